//! Hostile texts in a conversation, while they stream in and after a reload.

use board_tests::{
    Engine, FakeDaemon, Fixture,
    fake_daemon::{accepted, completed, progress, started, text},
    hostile_site::Collector,
    tasks::id,
};
use protocol::EventBody;
use serde_json::{Value, json};

use crate::attacks::page_watch::{PageWatch, texts};

const CORPUS: &str = include_str!("corpus.txt");
const IMAGES: &str = include_str!("images.txt");

/// A watched conversation with a viber that says what the test wants.
struct Conversation {
    fixture: Fixture<FakeDaemon>,
    collector: Collector,
    watch: PageWatch,
    /// The page of its session.
    page: String,
    task: Value,
}

impl Conversation {
    async fn open() -> Self {
        let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
        let collector = Collector::start([127, 0, 0, 2]).await;
        let task = fixture.begin("Say something").await;
        let watch = PageWatch::open(&fixture.board, fixture.owner(), &collector.address.to_string()).await;
        let page = format!("/t/home/sessions/{}", fixture.session());
        watch.go(&page).await;
        Self { fixture, collector, watch, page, task }
    }

    /// Waits until the page shows `count` of what `css` finds.
    async fn shows(&self, css: &str, count: usize) {
        let css = serde_json::to_string(css).expect("JSON");
        let script = format!("return document.querySelectorAll({css}).length >= {count}");
        self.watch.until(&format!("{count} {css}"), &script).await;
    }

    /// Nothing was asked for from the outside, and the Board is whole.
    async fn over(self) {
        assert_eq!(self.collector.heard(), Vec::<String>::new(), "somebody called");
        self.fixture.board.assert_invariants().await;
    }
}

/// One hostile text in every place that an agent's report has for texts: nine events.
fn everywhere(n: usize, hostile: &str) -> Vec<EventBody> {
    let (strange, command) = (format!("a{n} {hostile}"), format!("b{n}"));
    [
        json!({"type": "reasoning-delta", "content": hostile}),
        json!({"type": "text-delta", "content": hostile}),
        json!({"type": "tool-call", "callId": strange, "tool": hostile, "args": {hostile: hostile}}),
        json!({"type": "tool-result", "callId": strange, "tool": hostile, "result": {hostile: hostile}, "ok": false,
            "durationMs": 1}),
        json!({"type": "tool-call", "callId": command, "tool": "shell", "args": {"command": format!("{hostile}\n:")}}),
        json!({"type": "tool-output", "callId": command, "content": hostile}),
        json!({"type": "tool-result", "callId": command, "tool": "shell", "ok": true, "durationMs": 1,
            "result": {"output": hostile, "exitCode": 0}}),
        json!({"type": "notice", "level": "warning", "text": hostile}),
        json!({"type": "artifact", "artifact": {"id": hostile, "title": hostile, "type": hostile, "ref": hostile}}),
    ]
    .iter()
    .map(progress)
    .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a68_nothing_that_is_written_runs_or_becomes_markup() {
    let mut conversation = Conversation::open().await;
    let corpus = texts(CORPUS, &conversation.collector.address.to_string());
    assert!(corpus.len() >= 150, "{}", corpus.len());

    // An agent's report, live: what is complete, what was withdrawn, and what still grows.
    let mut sent = 0;
    // A page shows the newest of a long report: a few at a time, so that each is seen.
    for some in corpus.chunks(5) {
        let events = some.iter().enumerate().flat_map(|(n, hostile)| everywhere(sent + n, hostile)).collect();
        conversation.fixture.tell(events).await;
        for n in sent..sent + some.len() {
            conversation.shows(&format!(".call[data-call=b{n}]"), 1).await;
        }
        sent += some.len();
        conversation.shows(".notice[data-level=warning]", some.len()).await;
        conversation.shows(".call", 2 * some.len()).await;
        conversation.watch.clean("live").await;
    }
    let all = corpus.concat();
    let step = |state: &str| progress(&json!({"type": "step", "n": 1, "state": state, "reason": all}));
    conversation.fixture.tell(vec![step("started"), text(&all), step("discarded")]).await;
    for (kind, css) in [("reasoning-delta", "[data-open=reasoning]"), ("text-delta", "[data-open=text]")] {
        let deltas = corpus.iter().map(|hostile| progress(&json!({"type": kind, "content": hostile})));
        conversation
            .fixture
            .tell(deltas.chain([progress(&json!({"type": kind, "content": "the last"}))]).collect())
            .await;
        let shown = format!("return document.querySelector('{css}')?.textContent.endsWith('the last') ?? false");
        conversation.watch.until("growing text", &shown).await;
        conversation.watch.clean(kind).await;
    }
    conversation.fixture.tell(vec![completed(&all)]).await;
    conversation.watch.browser.find("[data-task-state=completed]").await;
    conversation.watch.clean("completed").await;

    // Errors, of tasks that had said something before.
    let failures = corpus.chunks(40).count();
    for (n, some) in corpus.chunks(40).enumerate() {
        conversation.fixture.owner().follow_up(&conversation.task, &format!("Fail {n}")).await;
        let submit = conversation.fixture.viber.submitted().await;
        let error = json!({"code": "internal", "message": some.join("\n"), "retryable": true, "suggestion": some.concat(),
            "details": {"text": some}});
        let error = EventBody::Error { error: serde_json::from_value(error).expect("an error") };
        let bodies = vec![accepted(), started(), text("So far so good."), error];
        conversation.fixture.viber.report(&submit.task_id, 1, 1, bodies).await;
        conversation.shows(".notice.ended", n + 1).await;
        conversation.watch.clean("an error, live").await;
    }
    // People's goals: each a message, the rest of them waiting in the queue.
    let said: Vec<&String> = corpus.iter().filter(|text| !text.contains('\0')).collect();
    // At least two at a time: one alone waits for nobody.
    for some in said.chunks(said.len().div_ceil(said.len().div_ceil(40))) {
        let mut waiting = Vec::new();
        for goal in some {
            waiting.push(conversation.fixture.owner().follow_up(&conversation.task, goal).await);
        }
        let last = serde_json::to_string(some.last().expect("one")).expect("JSON");
        let queued = format!(
            "return document.querySelector('#queue > li:last-child .cut')?.textContent.trim() === {last}.trim()"
        );
        conversation.watch.until("the queue", &queued).await;
        conversation.watch.clean("goals, live").await;
        // It shows no more of them at once.
        for task in &waiting {
            conversation.fixture.owner().stop(id(task, "id")).await.expect(200);
        }
    }

    // After a reload: page by page, back to the first message.
    conversation.watch.go(&conversation.page).await;
    conversation.watch.clean("reloaded").await;
    while conversation.watch.browser.has(".older a").await {
        let before = conversation.watch.browser.count("#entries *").await;
        conversation.watch.run("document.querySelector('.older a').click()").await;
        conversation.shows("#entries *", before + 1).await;
    }
    let count = |css: &str| format!("return document.querySelectorAll('{css}').length");
    assert_eq!(conversation.watch.run(&count("article.message[data-role=user]")).await, said.len() + 1 + failures);
    assert_eq!(conversation.watch.run(&count(".notice[data-level=warning]")).await, sent);
    // Errors, and the goals that were stopped.
    assert_eq!(conversation.watch.run(&count(".notice.ended")).await, failures + said.len());
    conversation.watch.clean("reloaded, all of it").await;
    // Put into the composer to be sent again.
    conversation.watch.go(&format!("{}?edit=3", conversation.page)).await;
    conversation.watch.clean("edited").await;
    conversation.over().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a69_no_image_is_fetched_from_elsewhere() {
    let mut conversation = Conversation::open().await;
    let images = texts(IMAGES, &conversation.collector.address.to_string());
    assert!(images.len() >= 15);
    conversation.fixture.tell(images.iter().enumerate().flat_map(|(n, image)| everywhere(n, image)).collect()).await;
    conversation.shows(".notice[data-level=warning]", images.len()).await;
    conversation.watch.clean("live").await;
    let deltas = images.iter().map(|image| text(image));
    conversation.fixture.tell(deltas.chain([text("the last")]).collect()).await;
    conversation.watch.browser.sees("[data-open=text]", "the last").await;
    conversation.watch.clean("growing").await;
    conversation.fixture.tell(vec![completed(&images.concat())]).await;
    conversation.watch.browser.find("[data-task-state=completed]").await;
    for image in &images {
        conversation.fixture.owner().follow_up(&conversation.task, image).await;
    }
    for _ in 0..2 {
        conversation.watch.go(&conversation.page).await;
        conversation.shows("article.message[data-role=user]", images.len()).await;
        conversation.watch.clean("reloaded").await;
    }
    // A reader may follow an image of Markdown's own: it is a link that says what it is.
    let host = format!("a[href^='http://{}/pwn']", conversation.collector.address);
    let placeholders = format!(
        "return [...document.querySelectorAll(\".prose {host}\")].filter((a) => a.textContent.startsWith('Image: ')).length"
    );
    assert!(conversation.watch.run(&placeholders).await.as_u64().expect("a number") >= 6);
    assert_eq!(conversation.watch.run("return document.images.length").await, 0);
    conversation.over().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a71_what_a_command_prints_is_shown_literally() {
    let mut conversation = Conversation::open().await;
    let corpus = texts(CORPUS, &conversation.collector.address.to_string());
    // Lines that a page shows whole: colours, and lines that are written over or cut, have cases of their own.
    let is_whole = |text: &&String| !text.contains(['\0', '\r', '\u{1b}']) && text.len() < 900;
    let printed: Vec<&String> = corpus.iter().filter(is_whole).collect();
    let call = json!({"type": "tool-call", "callId": "c1", "tool": "shell", "args": {"command": "./hostile"}});
    conversation.fixture.tell(vec![progress(&call)]).await;
    conversation.watch.browser.find("[data-call=c1] samp").await;
    // In pieces, each tag cut in its middle. The page keeps the last lines, at most 4,000 bytes of them.
    let mut all = String::new();
    for some in printed.chunks(60) {
        let mut pieces = Vec::new();
        for line in some {
            let line = format!("{line}\n");
            let middle = line.char_indices().nth(line.chars().count() / 2).expect("a character").0;
            for piece in [&line[..middle], &line[middle..]] {
                pieces.push(progress(&json!({"type": "tool-output", "callId": "c1", "content": piece})));
            }
            all.push_str(&line);
        }
        conversation.fixture.tell(pieces).await;
        literal(&conversation, &all, "live").await;
        conversation.watch.clean("live").await;
    }
    let result = json!({"type": "tool-result", "callId": "c1", "tool": "shell", "ok": true, "durationMs": 5,
        "result": {"output": all, "exitCode": 0}});
    conversation.fixture.tell(vec![progress(&result), completed("Done.")]).await;
    conversation.watch.browser.find("[data-task-state=completed]").await;
    literal(&conversation, &all, "complete, live").await;
    conversation.watch.clean("complete, live").await;
    conversation.watch.go(&conversation.page).await;
    literal(&conversation, &all, "reloaded").await;
    conversation.watch.clean("reloaded").await;
    // The whole of it, by the link that the page gives, is plain text.
    let link =
        conversation.watch.browser.attribute("[data-call=c1] footer a", "href").await.expect("a link to all of it");
    let whole = conversation.fixture.owner().page(&link).await.expect(200);
    assert_eq!(whole.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(whole.header("x-content-type-options"), "nosniff");
    assert_eq!(whole.body, all);
    conversation.watch.browser.go(&format!("{}{link}", conversation.fixture.board.url)).await;
    assert_eq!(conversation.watch.run("return window.__hits.length + document.scripts.length").await, 0);
    conversation.over().await;
}

/// The newest of what a command printed stands in the page, letter by letter but for control characters, and without
/// an element in it but its lines.
async fn literal(conversation: &Conversation, all: &str, when: &str) {
    let shown: Vec<char> = all.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
    let newest: String = shown[shown.len().saturating_sub(700)..].iter().collect();
    let newest = serde_json::to_string(&newest).expect("JSON");
    let script = format!(
        "const samp = document.querySelector('[data-call=c1] samp');
        const isLine = (line) => line.matches('samp > span') && !line.children.length && [...line.attributes].every((attribute) => attribute.name === 'class' && attribute.value === 'now');
        return samp.textContent.trimEnd().endsWith({newest}.trimEnd()) && [...samp.querySelectorAll('*')].every(isLine)"
    );
    conversation.watch.until(&format!("the output, {when}"), &script).await;
}
