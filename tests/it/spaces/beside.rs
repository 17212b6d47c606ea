//! What changed, beside the conversation: it comes by itself, follows the work, and says how old it is.

use board_tests::{
    Browser, Engine, Fixture, Viber,
    board::HOME,
    browser::{Screen, Scripts},
    eventually,
    llm::{Gate, Piece, Reply},
    tasks::id,
};
use serde_json::json;

use super::Space;

fn write(path: &str, content: &str) -> Reply {
    Reply::call("write_file", json!({ "path": path, "content": content }))
}

/// A session whose agent has written a file, and its page with the tab Files.
async fn written(script: Vec<Reply>) -> (Fixture<Viber>, serde_json::Value, String) {
    let first = [write("greet.py", "def greet():\n    print('helo')\n"), Reply::text("Written.")];
    let script: Vec<Reply> = first.into_iter().chain(script).collect();
    let fixture = Fixture::on(Engine::Sqlite).scripted_model(script).with_viber().await;
    fixture.repository(&[("readme.md", "# Read me\n")]);
    let task = fixture.play("greet").await;
    let page = format!("{}/t/{HOME}/sessions/{}?pane=files", fixture.board.url, id(&task, "sessionId"));
    (fixture, task, page)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_changed_follows_the_work_and_keeps_what_is_read() {
    let gate = Gate::new();
    let more = vec![write("other.py", "one\n"), Reply::Stream(vec![Piece::Wait(gate.clone())])];
    let (mut fixture, task, page) = written(more).await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(&fixture.board.owner().await).await;
    browser.go(&page).await;
    browser.find("body[data-live=on]").await;
    browser.click(".pane-space .change > summary").await;
    browser.sees(".pane-space .diff", "helo").await;
    browser.click(".pane-space .line-link[data-line='2']").await;
    browser.fill(".comment-form textarea", "It is hello.").await;
    let again = fixture.operator.follow_up(&task, "go on").await;
    // While one writes nothing moves; what came meanwhile is there afterwards, and the draft too.
    browser.sees("#entries", "other.py").await;
    browser.click("#entries").await;
    browser.sees(".pane-space", "other.py").await;
    browser.sees(".pane-space .look-count", "2").await;
    assert!(browser.has(".pane-space .change[open] .diff").await, "what was opened is open");
    let kept = "return document.querySelector('.comment-form textarea')?.value";
    assert_eq!(browser.run(kept, json!(null)).await, json!("It is hello."));
    fixture.operator.stop(id(&again, "id")).await.expect(200);
    // Without the viber the last state stays, with its age.
    fixture.viber.stop().await;
    browser.click(".pane-space [data-look-again]").await;
    browser.sees(".pane-space .look-state", "The viber is offline.").await;
    browser.sees(".pane-space .look-state", "This is as it was").await;
    browser.sees(".pane-space", "other.py").await;
    // Somebody who comes now sees why there is nothing, and the rest of the page.
    let other = Browser::open(Scripts::On).await;
    other.sign_in(&fixture.board.owner().await).await;
    other.go(&page).await;
    other.sees(".pane-space .look-body", "This needs the viber.").await;
    other.sees("#entries", "Written.").await;
    // When it is back both see it by themselves.
    fixture.viber.run();
    fixture.viber.connected(&fixture.operator).await;
    other.sees(".pane-space .change", "greet.py").await;
    eventually("the first one too", async || {
        let state = browser.text_of(".pane-space .look-state").await;
        (state.contains("As of") && !state.contains("offline")).then_some(())
    })
    .await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tap_on_a_line_comments_on_it_on_a_phone() {
    let (fixture, task, page) = written(vec![Reply::text("Mended.")]).await;
    let browser = Browser::open_on(Screen::Phone, Scripts::On).await;
    browser.sign_in(&fixture.board.owner().await).await;
    browser.go(&page).await;
    browser.click(".pane-space .change > summary").await;
    browser.sees(".pane-space .diff", "helo").await;
    browser.click(".pane-space .lines tr[data-op=add]:nth-child(2) > td:last-child").await;
    browser.fill(".comment-form textarea", "It is hello.").await;
    browser.click(".comment-form .primary").await;
    browser.sees("#comments-bar .primary", "Send 1 comment").await;
    assert_eq!(browser.run("return location.search", json!(null)).await, json!("?pane=files"));
    let wide = "return document.documentElement.scrollWidth <= innerWidth";
    assert_eq!(browser.run(wide, json!(null)).await, json!(true), "nothing is cut off at the side");
    browser.click("#comments-bar .primary").await;
    eventually("it is sent", async || {
        let said = fixture.operator.get(&format!("/api/v1/sessions/{}/messages", id(&task, "sessionId"))).await;
        said.body.contains("A comment on a line:").then_some(())
    })
    .await;
    eventually("nothing waits", async || browser.has("#comments-bar[hidden]").await.then_some(())).await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_script_the_same_links_lead_to_pages() {
    let (fixture, _, page) = written(vec![Reply::text("Mended.")]).await;
    let browser = Browser::open(Scripts::Off).await;
    browser.sign_in(&fixture.board.owner().await).await;
    browser.go(&page).await;
    browser.click(".pane-space .look-state a").await;
    browser.click("#changes .change > summary").await;
    browser.click("#changes .change-diff a").await;
    browser.click("#new2 a").await;
    browser.fill("#remark", "It is hello.").await;
    browser.click("#comment .primary").await;
    browser.sees(".comment-row", "It is hello.").await;
    // The bar is there on the difference and in the session.
    browser.sees(".space > #comments-bar", "1 comment waits.").await;
    browser.go(&page).await;
    browser.click("#comments-bar .primary").await;
    browser.sees("#entries", "A comment on a line:").await;
    assert!(browser.has("#comments-bar[hidden]").await);
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_script_a_second_text_in_the_same_form_is_a_second_comment() {
    let (fixture, task, _) = written(vec![]).await;
    let browser = Browser::open(Scripts::Off).await;
    browser.sign_in(&fixture.board.owner().await).await;
    let session = id(&task, "sessionId");
    let form = fixture.page(&format!("/diff?path=greet.py&session={session}&side=new&line=2"));
    let key = "input[name=key]";
    browser.go(&format!("{}{form}", fixture.board.url)).await;
    let first = browser.attribute(&format!("#comment {key}"), "value").await;
    browser.fill("#remark", "It is hello.").await;
    browser.click("#comment .primary").await;
    browser.sees(".comment-row", "It is hello.").await;
    browser.back().await;
    browser.fill("#remark", "And say whom you greet.").await;
    browser.click("#comment .primary").await;
    browser.sees(".comments-bar", "2 comments wait").await;
    browser.go(&format!("{}/t/{HOME}/sessions/{session}/comments", fixture.board.url)).await;
    browser.sees(".comment-list", "It is hello.").await;
    browser.sees(".comment-list", "And say whom you greet.").await;
    // Also where the browser shows the very form again, with its key, and when it sends one of them twice.
    let owner = fixture.board.owner().await;
    let (path, space, first) =
        (format!("/t/{HOME}/sessions/{session}/comments"), fixture.space(), first.expect("a key"));
    for remark in ["It is hello.", "Greet everybody.", "Greet everybody."] {
        let fields = [
            ("space", space.as_str()),
            ("path", "greet.py"),
            ("place", "diff"),
            ("side", "new"),
            ("line", "2"),
            ("quote", "    print('helo')"),
            ("remark", remark),
            ("key", &first),
        ];
        owner.post_form(&path, &fields).await.expect(303);
    }
    assert_eq!(owner.page(&path).await.expect(200).body.matches("<li data-comment=").count(), 3);
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_comment_in_place_answers_with_its_row_and_what_waits() {
    let (fixture, task, _) = written(vec![]).await;
    let owner = fixture.board.owner().await;
    let session = id(&task, "sessionId");
    let path = format!("/t/{HOME}/sessions/{session}/comments");
    let space = fixture.space();
    let fields = |remark: &'static str| {
        [
            ("space", space.clone()),
            ("path", "greet.py".to_owned()),
            ("place", "diff".to_owned()),
            ("side", "new".to_owned()),
            ("line", "2".to_owned()),
            ("quote", "    print('helo')".to_owned()),
            ("remark", remark.to_owned()),
        ]
    };
    let post = async |path: &str, fields: &[(&str, String)]| {
        let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        owner.send(owner.form(path, &fields).header("hx-request", "true")).await
    };
    let added = post(&path, &fields("It is <b>hello</b>.")).await.expect(200).body;
    assert!(
        added.starts_with("<table><tbody><tr class=\"comment-row\">") && added.contains("1 comment waits"),
        "{added}"
    );
    assert!(!added.contains("<b>hello"), "text is text: {added}");
    post(&path, &fields(" ")).await.expect(422);
    let comment =
        added.split("data-comment=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an id").to_owned();
    let ids = [("comment", comment), ("key", "k1".to_owned())];
    let sent = post(&format!("{path}/send"), &ids).await.expect(200).body;
    assert!(sent.contains("hidden") && !sent.contains("name=\"comment\""), "{sent}");
    // Once more, and from another window.
    post(&format!("{path}/send"), &ids).await.expect(200);
    let other = [ids[0].clone(), ("key", "k2".to_owned())];
    post(&format!("{path}/send"), &other).await.expect(409);
    let said = fixture.operator.get(&format!("/api/v1/sessions/{session}/messages")).await.expect(200).body;
    assert_eq!(said.matches("A comment on a line:").count(), 1, "{said}");
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_comment_whose_answer_was_lost_is_sent_again_and_is_one() {
    // The first answer to a form never comes.
    const LOSE: &str = "const real = window.fetch;
        window.fetch = async (url, options) => {
          const answer = await real(url, options);
          if (options?.method !== 'POST' || !String(url).endsWith('/comments')) return answer;
          window.fetch = real;
          throw new TypeError('lost');
        };";
    let (fixture, task, page) = written(vec![Reply::text("Mended.")]).await;
    let (browser, owner) = (Browser::open(Scripts::On).await, fixture.board.owner().await);
    browser.sign_in(&owner).await;
    browser.go(&page).await;
    browser.click(".pane-space .change > summary").await;
    browser.sees(".pane-space .diff", "helo").await;
    browser.click(".pane-space .line-link[data-line='2']").await;
    browser.fill(".comment-form textarea", "It is hello.").await;
    browser.run(LOSE, json!(null)).await;
    browser.click(".comment-form .primary").await;
    browser.sees(".comment-form .field-error", "What you wrote is kept.").await;
    browser.click(".comment-form .primary").await;
    browser.sees("#comments-bar .primary", "Send 1 comment").await;
    assert_eq!(browser.count(".comment[data-comment]").await, 1);
    let waiting = format!("/t/{HOME}/sessions/{}/comments", id(&task, "sessionId"));
    assert_eq!(owner.page(&waiting).await.expect(200).body.matches("<li data-comment=").count(), 1);
    // Another form is another comment, though it says the same.
    browser.click(".pane-space .line-link[data-line='2']").await;
    browser.fill(".comment-form textarea", "It is hello.").await;
    browser.click(".comment-form .primary").await;
    browser.sees("#comments-bar .primary", "Send 2 comments").await;
    fixture.board.assert_invariants().await;
}
