//! Files that go along: chosen, pasted and dropped, seen before they are sent, taken back, refused with a reason.

use std::{fs, path::PathBuf};

use board_tests::{Browser, Engine, FakeDaemon, Fixture, board::HOME, browser::Scripts, eventually};
use protocol::{AgentInfo, Capability, FromDaemon, ViberState};
use serde_json::{Value, json};

use super::{answers::offers, resting, session_page, until};

/// Puts files where somebody pastes or drops them.
const BRING: &str = "
    const [kind, files] = arguments[0];
    const held = new DataTransfer();
    for (const [name, type, base64] of files) {
      const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
      held.items.add(new File([bytes], name, { type }));
    }
    const area = document.querySelector('#composer textarea');
    const event = kind === 'paste'
      ? new ClipboardEvent('paste', { clipboardData: held, bubbles: true, cancelable: true })
      : new DragEvent('drop', { dataTransfer: held, bubbles: true, cancelable: true });
    area.dispatchEvent(event);";
const RED_DOT: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

/// A folder with files to choose from.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, content).expect("written");
        path
    }
}

async fn choose(browser: &Browser, path: &std::path::Path) {
    let field = browser.find(".attach-pick input[type=file]").await;
    field.send_keys(&path.display().to_string()).await.expect("chosen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_pasted_dropped_and_chosen_in_a_session_and_go_with_the_message() {
    let (mut fixture, browser) = resting(Scripts::On).await;
    let folder = Folder::new();
    browser.go(&session_page(&fixture)).await;
    browser.find("body[data-live=on]").await;
    browser.run(BRING, json!(["paste", [["image.png", "image/png", RED_DOT]]])).await;
    browser.sees("#attached", "pasted ").await;
    until(&browser, "it is seen", "return document.querySelector('#attached img')?.naturalWidth === 1").await;
    browser.run(BRING, json!(["drop", [["a,b <i>.csv", "text/csv", "YSxiCg=="], ["other.txt", "", "eA=="]]])).await;
    browser.sees("#attached", "other.txt").await;
    browser.sees("#attached", "a,b i.csv").await;
    choose(&browser, &folder.file("chosen.txt", b"chosen")).await;
    browser.sees("#attached", "chosen.txt").await;
    assert_eq!(browser.count("#attached li").await, 4);

    // One is taken back; what is there survives a reload, with what was written.
    browser.fill("#content", "read them").await;
    browser.click("#attached li:nth-child(3) button").await;
    until(&browser, "it is gone", "return document.querySelectorAll('#attached li').length === 3").await;
    browser.go(&session_page(&fixture)).await;
    assert_eq!(browser.count("#attached li").await, 3);
    browser.click("#composer button.primary").await;
    let submit = fixture.viber.submitted().await;
    let names: Vec<&str> = submit.attachments.iter().map(|file| file.name.as_str()).collect();
    assert_eq!((submit.goal.as_str(), names.len(), names[1], names[2]), ("read them", 3, "a,b i.csv", "chosen.txt"));
    until(&browser, "the composer is empty", "return document.querySelector('#attached').hidden").await;

    // The message shows what went with it.
    browser.sees(".message[data-role=user]:last-of-type .cards, #entries", "chosen.txt").await;
    until(&browser, "its picture", "return document.querySelector('.message .card img')?.naturalWidth === 1").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}

/// The agent `default` sees no pictures, `reviewer` does; there are two models.
async fn blind_and_seeing(fixture: &mut Fixture<FakeDaemon>) {
    offers(fixture).await;
    let agent = |id: &str, model: &str, more: &[Capability]| AgentInfo {
        id: id.into(),
        name: id.into(),
        model: model.into(),
        max_steps: 25,
        capabilities: [&[Capability::Files], more].concat(),
        ..AgentInfo::default()
    };
    let agents = vec![
        agent("default", "anthropic/claude-sonnet-4-5", &[]),
        agent("reviewer", "anthropic/claude-opus-4-1", &[Capability::Images]),
    ];
    let state = ViberState { agents: Some(agents), ..ViberState::default() };
    fixture.viber.send(&FromDaemon::State(Box::new(state))).await;
    let viber = format!("/api/v1/vibers/{}", fixture.viber_id);
    eventually("what they can is known", async || {
        fixture.operator.get(&viber).await.expect(200).body.contains("images").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whose_model_sees_no_pictures_is_said_before_one_is_sent() {
    const NOTE: &str = "return getComputedStyle(document.querySelector('#composer > .blind-note')).display";
    let (mut fixture, browser) = resting(Scripts::On).await;
    blind_and_seeing(&mut fixture).await;
    let home = format!("{}/t/{HOME}?viber={}", fixture.board.url, fixture.viber_id);
    for (page, field) in [(session_page(&fixture), "#content"), (home, "#goal")] {
        browser.go(&page).await;
        browser.find("body[data-live=on]").await;
        browser.find(field).await;
        let shown = async |what: &str, display: &str| until(&browser, what, &format!("{NOTE} === '{display}'")).await;
        shown("nothing is attached", "none").await;
        browser.run(BRING, json!(["paste", [["notes.txt", "text/plain", "eA=="]]])).await;
        browser.sees("#composer", "notes.txt").await;
        shown("a text is no picture", "none").await;
        browser.run(BRING, json!(["paste", [["image.png", "image/png", RED_DOT]]])).await;
        shown("it is said", "flex").await;
    }
    browser.go(&session_page(&fixture)).await;
    browser.find("body[data-live=on]").await;
    browser.run(BRING, json!(["paste", [["image.png", "image/png", RED_DOT]]])).await;
    let choose = async |name: &str, value: &str| {
        browser
            .run(
                "const field = document.querySelector(`#composer select[name=${arguments[0][0]}]`);
                 field.value = arguments[0][1];
                 field.dispatchEvent(new Event('change', { bubbles: true }));",
                json!([name, value]),
            )
            .await;
    };
    let is = |display: &str| format!("{NOTE} === '{display}'");
    until(&browser, "it is said again", &is("flex")).await;
    choose("agent", "reviewer").await;
    until(&browser, "this one sees", &is("none")).await;
    choose("agent", "default").await;
    until(&browser, "this one does not", &is("flex")).await;
    choose("model", "anthropic/claude-opus-4-1").await;
    until(&browser, "of another model nobody says it", &is("none")).await;
    choose("model", "own").await;
    until(&browser, "its own does not", &is("flex")).await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_else_attached_is_there_at_once_and_goes_with_what_shows_it() {
    let (mut fixture, browser) = resting(Scripts::On).await;
    let other = Browser::open(Scripts::On).await;
    other.sign_in(fixture.owner()).await;
    for window in [&browser, &other] {
        window.go(&session_page(&fixture)).await;
        window.find("body[data-live=on]").await;
    }
    other.fill("#content", "with it").await;
    for name in ["theirs.txt", "more.txt"] {
        browser.run(BRING, json!(["paste", [[name, "text/plain", "eA=="]]])).await;
        for window in [&browser, &other] {
            window.sees("#attached", name).await;
        }
    }
    // What one takes away is gone for both, and what the other writes stays.
    browser.click("#attached li:nth-child(2) button").await;
    for window in [&browser, &other] {
        until(window, "it is gone", "return document.querySelectorAll('#attached li').length === 1").await;
    }
    other.click("#composer button.primary").await;
    let first = fixture.viber.submitted().await;
    let names: Vec<&str> = first.attachments.iter().map(|file| file.name.as_str()).collect();
    assert_eq!((first.goal.as_str(), names.as_slice()), ("with it", ["theirs.txt"].as_slice()));
    until(&browser, "it went along", "return document.querySelector('#attached').hidden").await;
    fixture.viber.report(&first.task_id, 1, 1, vec![board_tests::fake_daemon::completed("done")]).await;

    // A form that shows nothing takes nothing along, whatever waits.
    let said = [("content", "without it"), ("key", ""), ("shows_files", "yes")];
    browser.run(BRING, json!(["paste", [["late.txt", "text/plain", "eA=="]]])).await;
    browser.sees("#attached", "late.txt").await;
    fixture.owner().post_form(&format!("/t/{HOME}/sessions/{}/messages", fixture.session()), &said).await.expect(303);
    let submit = fixture.viber.submitted().await;
    assert_eq!((submit.goal.as_str(), submit.attachments.len()), ("without it", 0));
    for window in [&browser, &other] {
        assert_eq!(window.console_errors().await, Vec::<String>::new());
    }
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_taken_away_at_its_last_moment_does_not_stay() {
    // The answer to an upload waits until somebody lets it come.
    const HOLD: &str = "const add = XMLHttpRequest.prototype.addEventListener;
        XMLHttpRequest.prototype.addEventListener = function (name, act) {
          add.call(this, name, name !== 'load' ? act : async (event) => {
            await new Promise((go) => { window.letCome = go; });
            act(event);
          });
        };";
    let (mut fixture, browser) = resting(Scripts::On).await;
    browser.go(&session_page(&fixture)).await;
    browser.find("body[data-live=on]").await;
    browser.run(HOLD, Value::Null).await;
    browser.run(BRING, json!(["paste", [["secret.txt", "text/plain", "eA=="]]])).await;
    until(&browser, "it is on the Board", "return Boolean(window.letCome)").await;
    browser.click("#attaching li button").await;
    browser.run("window.letCome()", Value::Null).await;
    let none = "return document.querySelectorAll('#attached li, #attaching li').length === 0";
    let waits = async || {
        let page = fixture.owner().page(&format!("/t/{HOME}/sessions/{}", fixture.session())).await.expect(200).body;
        (!page.contains("secret.txt")).then_some(())
    };
    board_tests::eventually("it was taken back", waits).await;
    until(&browser, "nothing is shown", none).await;
    browser.fill("#content", "nothing goes along").await;
    browser.click("#composer button.primary").await;
    assert_eq!(fixture.viber.submitted().await.attachments.len(), 0);
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_refused_says_why_and_the_others_stay() {
    let (fixture, browser) = resting(Scripts::On).await;
    let folder = Folder::new();
    browser.go(&session_page(&fixture)).await;
    choose(&browser, &folder.file("small.txt", b"small")).await;
    browser.sees("#attached", "small.txt").await;
    let used = fixture.operator.get("/api/v1/quota").await.expect(200).json()["storage"]["used"].as_u64();
    let limit = (used.expect("a number") + 1_000).to_string();
    fixture.board.cli(&["team", "quota", HOME, "--storage", &limit]).await.good();
    choose(&browser, &folder.file("large.txt", &[b'x'; 20_000])).await;
    browser.sees("#attaching", "Not attached").await;
    browser.sees("#attaching [data-failed]", "20 kB").await;
    assert!(browser.text_of("#attaching").await.contains("storage"), "{}", browser.text_of("#attaching").await);
    browser.click("#attaching button").await;
    until(&browser, "it is gone", "return !document.querySelector('#attaching li')").await;
    assert_eq!(browser.count("#attached li").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_file_that_the_board_says_it_has_is_shown_as_attached() {
    // What comes back for an upload: nothing yet, another page, and a refusal.
    const ANSWERS_JS: &str = "const send = XMLHttpRequest.prototype.send;
        XMLHttpRequest.prototype.send = function (body) {
          if (!window.answers?.length) return send.call(this, body);
          const [status, text] = window.answers.shift();
          Object.defineProperty(this, 'status', { get: () => status });
          Object.defineProperty(this, 'responseText', { get: () => text });
          this.upload.dispatchEvent(new ProgressEvent('progress', { lengthComputable: true, loaded: 1, total: 1 }));
          this.upload.dispatchEvent(new ProgressEvent('load'));
          window.letCome = () => this.dispatchEvent(new ProgressEvent('load'));
        };";
    let (mut fixture, browser) = resting(Scripts::On).await;
    browser.go(&session_page(&fixture)).await;
    browser.find("body[data-live=on]").await;
    browser.run(ANSWERS_JS, Value::Null).await;
    let answers = [
        (200, "<main><h1>Sign in</h1></main>", "did not say that it has it"),
        (200, "<ul id=\"attached\"></ul>", "did not say that it has it"),
        (401, "", "You are signed out."),
        (413, "<p>It is too large.</p>", "It is too large."),
    ];
    for (n, (status, text, why)) in answers.into_iter().enumerate() {
        browser.run("window.answers = [arguments[0]]", json!([status, text])).await;
        browser.run(BRING, json!(["paste", [[format!("refused-{n}.txt"), "text/plain", "eA=="]]])).await;
        // It has left, which is not all: no bar says that it is whole.
        let waits = "return document.querySelector('#attaching progress:not([value])') !== null";
        until(&browser, "it waits for an answer", waits).await;
        browser.run("window.letCome()", Value::Null).await;
        browser.sees("#attaching li:last-child[data-failed]", why).await;
        assert!(!browser.has("#attaching progress").await, "nothing is under way");
    }
    assert_eq!(browser.count("#attaching li[data-failed]").await, 4);
    browser.run(BRING, json!(["paste", [["kept.txt", "text/plain", "eA=="]]])).await;
    browser.sees("#attached", "kept.txt").await;
    browser.fill("#content", "read it").await;
    browser.click("#composer button.primary").await;
    let submit = fixture.viber.submitted().await;
    let names: Vec<&str> = submit.attachments.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["kept.txt"]);
    until(&browser, "none is shown", "return !document.querySelector('#attaching li, #attached li')").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_file_that_is_refused_while_it_leaves_says_why() {
    let (fixture, browser) = resting(Scripts::On).await;
    let folder = Folder::new();
    browser.go(&session_page(&fixture)).await;
    browser.find("body[data-live=on]").await;
    fixture.board.cli(&["team", "quota", HOME, "--storage", "1000"]).await.good();
    choose(&browser, &folder.file("large.bin", &vec![b'x'; 60_000_000])).await;
    browser.sees("#attaching [data-failed]", "Not attached").await;
    assert!(browser.text_of("#attaching").await.contains("storage"), "{}", browser.text_of("#attaching").await);
    assert_eq!(browser.count("#attached li").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_task_takes_its_files_along() {
    for scripts in [Scripts::On, Scripts::Off] {
        let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
        let browser = Browser::open(scripts).await;
        browser.sign_in(fixture.owner()).await;
        let folder = Folder::new();
        browser.go(&format!("{}/t/home", fixture.board.url)).await;
        browser.fill("#goal", "read it").await;
        choose(&browser, &folder.file("numbers.csv", b"a,b\n1,2\n")).await;
        if scripts == Scripts::On {
            browser.sees("#attaching", "numbers.csv").await;
            browser.run(BRING, json!(["paste", [["dot.png", "image/png", RED_DOT]]])).await;
            until(&browser, "it is seen", "return document.querySelector('#attaching canvas') !== null").await;
            browser.run(BRING, json!(["drop", [["not-this.txt", "", "eA=="]]])).await;
            browser.sees("#attaching", "not-this.txt").await;
            browser.click("#attaching li:nth-child(3) button").await;
        }
        browser.click("#composer button.primary").await;
        let submit = fixture.viber.submitted().await;
        let names: Vec<&str> = submit.attachments.iter().map(|file| file.name.as_str()).collect();
        let expected: &[&str] = if scripts == Scripts::On { &["numbers.csv", "dot.png"] } else { &["numbers.csv"] };
        assert_eq!((submit.goal.as_str(), names.as_slice()), ("read it", expected));
        browser.sees("#entries", "numbers.csv").await;
        let sessions = fixture.operator.get("/api/v1/sessions").await.expect(200).json();
        assert_eq!(sessions["items"].as_array().map(Vec::len), Some(1), "{sessions:#}");
        assert_eq!(browser.console_errors().await, Vec::<String>::new());
        fixture.board.assert_invariants().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_with_files_that_is_sent_twice_is_one_task() {
    let fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    let owner = fixture.owner();
    let field =
        |name: &str, value: &str| format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
    let file = |name: &str, content: &str| {
        format!("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n{content}\r\n")
    };
    let send = |path: &'static str, body: String| {
        let request = owner.request(reqwest::Method::POST, path);
        owner.send(request.header("content-type", "multipart/form-data; boundary=b").body(body))
    };
    let sessions = async || fixture.operator.get("/api/v1/sessions").await.expect(200).json()["items"].clone();
    let whole =
        [field("key", "k-1"), field("goal", "read it"), field("viber", ""), file("a.txt", "x"), "--b--\r\n".into()];
    let first = send("/t/home/tasks", whole.concat()).await.expect(303).header("location").to_owned();
    let second = send("/t/home/tasks", whole.concat()).await.expect(303).header("location").to_owned();
    assert_eq!(first, second);
    assert_eq!(sessions().await.as_array().map(Vec::len), Some(1));

    // Without a file, the same form works as well; what is no field of it is refused.
    let bare = [field("goal", "no file"), file("", ""), "--b--\r\n".into()].concat();
    send("/t/home/tasks", bare).await.expect(303);
    send("/t/home/tasks", [field("other", "x"), "--b--\r\n".into()].concat()).await.expect(400);
    let nul = [field("goal", "a\0b"), "--b--\r\n".into()].concat();
    send("/t/home/tasks", nul).await.expect(422);
    let large = [field("goal", &"x".repeat(2 * 1024 * 1024)), "--b--\r\n".into()].concat();
    send("/t/home/tasks", large).await.expect(413);
    assert_eq!(sessions().await.as_array().map(Vec::len), Some(2));

    // What could not be sent is kept: the session has its files, and the composer has the goal.
    let empty = [field("goal", " "), file("b.txt", "y"), "--b--\r\n".into()].concat();
    let page = send("/t/home/tasks", empty).await.expect(422).body;
    assert!(page.contains("Not sent: ") && page.contains("b.txt") && page.contains("id=\"attached\""), "{page}");
    let prepared = [field("goal", "later"), file("c.txt", "z"), "--b--\r\n".into()].concat();
    let page = send("/t/home/sessions", prepared).await.expect(200).body;
    assert!(page.contains(">later</textarea>") && page.contains("c.txt"), "{page}");
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_scripts_files_are_chosen_in_the_composer_too() {
    let (mut fixture, browser) = resting(Scripts::Off).await;
    let folder = Folder::new();
    browser.go(&session_page(&fixture)).await;
    choose(&browser, &folder.file("plain.txt", b"plain")).await;
    browser.click("button[form=attach-form]").await;
    browser.sees("[data-waiting]", "plain.txt").await;
    browser.go(&session_page(&fixture)).await;
    browser.sees("#attached", "plain.txt").await;
    browser.fill("#content", "read it").await;
    browser.click("#composer button.primary").await;
    assert_eq!(fixture.viber.submitted().await.attachments.len(), 1);
    assert_eq!(browser.run("return 1", Value::Null).await, 1);
}
