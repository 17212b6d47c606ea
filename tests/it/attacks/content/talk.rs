//! Hostile texts in a conversation, while they stream in and after a reload.

use board_tests::{
    Board, Engine, FakeDaemon, Person,
    evil::Collector,
    fake_daemon::{accepted, completed, progress, started, text},
    tasks::id,
};
use protocol::{EventBody, TaskId};
use serde_json::{Value, json};

use crate::attacks::watch::{Watch, texts};

const CORPUS: &str = include_str!("corpus.txt");
const IMAGES: &str = include_str!("images.txt");

/// A watched conversation with a viber that says what the test wants.
struct Scene {
    board: Board,
    operator: Person,
    viber: FakeDaemon,
    collector: Collector,
    watch: Watch,
    session: String,
    task: Value,
    attempt: Attempt,
}

/// Where the reports of a task stand.
struct Attempt {
    task: TaskId,
    seq: u64,
}

impl Attempt {
    async fn report(&mut self, viber: &mut FakeDaemon, events: Vec<EventBody>) {
        // A frame has at most 256 KiB.
        for some in events.chunks(100) {
            viber.report(&self.task, 1, self.seq, some.to_vec()).await;
            self.seq += some.len() as u64;
        }
    }
}

impl Scene {
    async fn open() -> Self {
        let board = Board::start(Engine::Sqlite).await;
        let operator = board.owner().await;
        let collector = Collector::start([127, 0, 0, 2]).await;
        let mut viber = FakeDaemon::connected(&board, "lab").await;
        let task = operator.submit(viber.id.as_str(), "Say something").await;
        let submit = viber.submitted().await;
        let mut attempt = Attempt { task: submit.task_id, seq: 1 };
        attempt.report(&mut viber, vec![accepted(), started()]).await;
        let watch = Watch::open(&board, &operator, &collector.address.to_string()).await;
        let session = format!("/t/home/sessions/{}", id(&task, "sessionId"));
        watch.go(&session).await;
        Self { board, operator, viber, collector, watch, session, task, attempt }
    }

    async fn report(&mut self, events: Vec<EventBody>) {
        self.attempt.report(&mut self.viber, events).await;
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
        self.board.sound().await;
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
    let mut scene = Scene::open().await;
    let corpus = texts(CORPUS, &scene.collector.address.to_string());
    assert!(corpus.len() >= 150, "{}", corpus.len());

    // An agent's report, live: what is complete, what was withdrawn, and what still grows.
    let mut sent = 0;
    // A page shows the newest of a long report: a few at a time, so that each is seen.
    for some in corpus.chunks(5) {
        let events = some.iter().enumerate().flat_map(|(n, hostile)| everywhere(sent + n, hostile)).collect();
        scene.report(events).await;
        for n in sent..sent + some.len() {
            scene.shows(&format!(".call[data-call=b{n}]"), 1).await;
        }
        sent += some.len();
        scene.shows(".notice[data-level=warning]", some.len()).await;
        scene.shows(".call", 2 * some.len()).await;
        scene.watch.clean("live").await;
    }
    let all = corpus.concat();
    let step = |state: &str| progress(&json!({"type": "step", "n": 1, "state": state, "reason": all}));
    scene.report(vec![step("started"), text(&all), step("discarded")]).await;
    for (kind, css) in [("reasoning-delta", "[data-open=reasoning]"), ("text-delta", "[data-open=text]")] {
        let deltas = corpus.iter().map(|hostile| progress(&json!({"type": kind, "content": hostile})));
        scene.report(deltas.chain([progress(&json!({"type": kind, "content": "the last"}))]).collect()).await;
        let shown = format!("return document.querySelector('{css}')?.textContent.endsWith('the last') ?? false");
        scene.watch.until("growing text", &shown).await;
        scene.watch.clean(kind).await;
    }
    scene.report(vec![completed(&all)]).await;
    scene.watch.browser.find("[data-task-state=completed]").await;
    scene.watch.clean("completed").await;

    // Errors, of tasks that had said something before.
    let failures = corpus.chunks(40).count();
    for (n, some) in corpus.chunks(40).enumerate() {
        scene.operator.follow_up(&scene.task, &format!("Fail {n}")).await;
        let submit = scene.viber.submitted().await;
        let error = json!({"code": "internal", "message": some.join("\n"), "retryable": true, "suggestion": some.concat(),
            "details": {"text": some}});
        let error = EventBody::Error { error: serde_json::from_value(error).expect("an error") };
        let mut attempt = Attempt { task: submit.task_id, seq: 1 };
        attempt.report(&mut scene.viber, vec![accepted(), started(), text("So far so good."), error]).await;
        scene.shows(".notice.ended", n + 1).await;
        scene.watch.clean("an error, live").await;
    }
    // People's goals: each a message, the rest of them waiting in the queue.
    let said: Vec<&String> = corpus.iter().filter(|text| !text.contains('\0')).collect();
    for some in said.chunks(40) {
        let mut waiting = Vec::new();
        for goal in some {
            waiting.push(scene.operator.follow_up(&scene.task, goal).await);
        }
        let last = serde_json::to_string(some.last().expect("one")).expect("JSON");
        let queued = format!(
            "return document.querySelector('#queue > li:last-child .cut')?.textContent.trim() === {last}.trim()"
        );
        scene.watch.until("the queue", &queued).await;
        scene.watch.clean("goals, live").await;
        // It shows no more of them at once.
        for task in &waiting {
            scene.operator.stop(id(task, "id")).await.expect(200);
        }
    }

    // After a reload: page by page, back to the first message.
    scene.watch.go(&scene.session).await;
    scene.watch.clean("reloaded").await;
    while scene.watch.browser.has(".older a").await {
        let before = scene.watch.browser.count("#entries *").await;
        scene.watch.run("document.querySelector('.older a').click()").await;
        scene.shows("#entries *", before + 1).await;
    }
    let count = |css: &str| format!("return document.querySelectorAll('{css}').length");
    assert_eq!(scene.watch.run(&count("article.message[data-role=user]")).await, said.len() + 1 + failures);
    assert_eq!(scene.watch.run(&count(".notice[data-level=warning]")).await, sent);
    // Errors, and the goals that were stopped.
    assert_eq!(scene.watch.run(&count(".notice.ended")).await, failures + said.len());
    scene.watch.clean("reloaded, all of it").await;
    // Put into the composer to be sent again.
    scene.watch.go(&format!("{}?edit=3", scene.session)).await;
    scene.watch.clean("edited").await;
    scene.over().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a69_no_image_is_fetched_from_elsewhere() {
    let mut scene = Scene::open().await;
    let images = texts(IMAGES, &scene.collector.address.to_string());
    assert!(images.len() >= 15);
    scene.report(images.iter().enumerate().flat_map(|(n, image)| everywhere(n, image)).collect()).await;
    scene.shows(".notice[data-level=warning]", images.len()).await;
    scene.watch.clean("live").await;
    let deltas = images.iter().map(|image| text(image));
    scene.report(deltas.chain([text("the last")]).collect()).await;
    scene.watch.browser.sees("[data-open=text]", "the last").await;
    scene.watch.clean("growing").await;
    scene.report(vec![completed(&images.concat())]).await;
    scene.watch.browser.find("[data-task-state=completed]").await;
    for image in &images {
        scene.operator.follow_up(&scene.task, image).await;
    }
    for _ in 0..2 {
        scene.watch.go(&scene.session).await;
        scene.shows("article.message[data-role=user]", images.len()).await;
        scene.watch.clean("reloaded").await;
    }
    // A reader may follow an image of Markdown's own: it is a link that says what it is.
    let host = format!("a[href^='http://{}/pwn']", scene.collector.address);
    let placeholders = format!(
        "return [...document.querySelectorAll(\".prose {host}\")].filter((a) => a.textContent.startsWith('Image: ')).length"
    );
    assert!(scene.watch.run(&placeholders).await.as_u64().expect("a number") >= 6);
    assert_eq!(scene.watch.run("return document.images.length").await, 0);
    scene.over().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a71_what_a_command_prints_is_shown_literally() {
    let mut scene = Scene::open().await;
    let corpus = texts(CORPUS, &scene.collector.address.to_string());
    let printed: Vec<&String> = corpus.iter().filter(|text| !text.contains(['\0', '\r'])).collect();
    let call = json!({"type": "tool-call", "callId": "c1", "tool": "shell", "args": {"command": "./hostile"}});
    scene.report(vec![progress(&call)]).await;
    scene.watch.browser.find("[data-call=c1] samp").await;
    // In pieces, each tag cut in its middle. The page keeps the newest 6,000 characters of a stream.
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
        scene.report(pieces).await;
        literal(&scene, &all, "live").await;
        scene.watch.clean("live").await;
    }
    let result = json!({"type": "tool-result", "callId": "c1", "tool": "shell", "ok": true, "durationMs": 5,
        "result": {"output": all, "exitCode": 0}});
    scene.report(vec![progress(&result), completed("Done.")]).await;
    scene.watch.browser.find("[data-task-state=completed]").await;
    literal(&scene, &all, "complete, live").await;
    scene.watch.clean("complete, live").await;
    scene.watch.go(&scene.session).await;
    literal(&scene, &all, "reloaded").await;
    scene.watch.clean("reloaded").await;
    // The whole of it, by the link that the page gives, is plain text.
    let link = scene.watch.browser.attribute("[data-call=c1] header a", "href").await.expect("a link to all of it");
    let whole = scene.operator.page(&link).await.expect(200);
    assert_eq!(whole.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(whole.header("x-content-type-options"), "nosniff");
    assert_eq!(whole.body, all);
    scene.watch.browser.go(&format!("{}{link}", scene.board.url)).await;
    assert_eq!(scene.watch.run("return window.__hits.length + document.scripts.length").await, 0);
    scene.over().await;
}

/// The newest of what a command printed stands in the page, letter by letter and without an element in it.
async fn literal(scene: &Scene, all: &str, when: &str) {
    let newest: String = all.chars().skip(all.chars().count().saturating_sub(1_000)).collect();
    let newest = serde_json::to_string(&newest).expect("JSON");
    let script = format!(
        "const samp = document.querySelector('[data-call=c1] samp'); return samp.textContent.trimEnd().endsWith({newest}.trimEnd()) && samp.children.length === 0"
    );
    scene.watch.until(&format!("the output, {when}"), &script).await;
}
