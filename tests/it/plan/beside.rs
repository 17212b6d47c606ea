//! The workspace beside the talk: counts, opening by itself, and staying as its reader left it.

use board_tests::{
    Browser, Engine, Fixture,
    browser::Scripts,
    eventually,
    fake_daemon::{FakeDaemon, completed, progress, text},
};
use protocol::EventBody;
use serde_json::{Value, json};

fn call(id: &str, tool: &str, path: &str) -> EventBody {
    progress(&json!({"type": "tool-call", "callId": id, "tool": tool, "args": {"path": path, "content": "x"}}))
}

fn result(id: &str, tool: &str, ok: bool) -> EventBody {
    progress(&json!({"type": "tool-result", "callId": id, "tool": tool, "ok": ok, "durationMs": 1, "result": "said"}))
}

fn plan(markdown: &str) -> EventBody {
    progress(&json!({"type": "plan", "plan": {"markdown": markdown}}))
}

fn artifact(id: &str) -> EventBody {
    progress(
        &json!({"type": "artifact", "artifact": {"id": id, "title": id, "type": "text/plain", "ref": format!("artifacts/{id}.txt"), "sizeBytes": 5}}),
    )
}

/// What the strip says, without what is only heard.
async fn strip(fixture: &Fixture<FakeDaemon>) -> String {
    let page = format!("/t/home/sessions/{}", fixture.session());
    let html = fixture.owner().page(&page).await.expect(200).body;
    let from = html.find(r#"<div class="strip""#).expect("a strip");
    let strip = &html[from..from + html[from..].find("</nav>").expect("its end")];
    let mut text = String::new();
    for piece in strip.split('<').skip(1) {
        let (tag, words) = piece.split_once('>').expect("a tag");
        if !tag.contains("visually-hidden") {
            text.push_str(words.trim());
            text.push(' ');
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

async fn the_strip_counts_what_is_there(engine: Engine) {
    let mut fixture = Fixture::on(engine).owner().with_fake().await;
    fixture.begin("Ship it").await;
    assert_eq!(strip(&fixture).await, "Plan Artifacts Files Memory Context");
    fixture
        .tell(vec![
            plan("# Ship it\n\n- [x] Build\n- [-] Lint\n- [ ] Test\n- [ ] Tell\n"),
            call("a", "write_file", "src/a.rs"),
            result("a", "write_file", true),
            call("b", "edit_file", "./src/a.rs"),
            result("b", "edit_file", true),
            call("c", "edit_file", "src/b.rs"),
            result("c", "edit_file", false),
            call("d", "write_file", "notes.md"),
            result("d", "write_file", true),
            call("e", "read_file", "other.md"),
            result("e", "read_file", true),
            artifact("report"),
            artifact("report"),
            artifact("chart"),
        ])
        .await;
    let all = "Plan 2/4 Artifacts 2 Files 2 Memory Context";
    eventually("everything is counted", async || (strip(&fixture).await == all).then_some(())).await;
    // A failed edit that succeeds later counts.
    fixture.tell(vec![call("f", "edit_file", "src/b.rs"), result("f", "edit_file", true), completed("Done.")]).await;
    let all = "Plan 2/4 Artifacts 2 Files 3 Memory Context";
    eventually("the third file is counted", async || (strip(&fixture).await == all).then_some(())).await;
    // Deleted with all that belongs to it.
    let verb = format!("/t/home/sessions/{}/delete", fixture.session());
    fixture
        .owner()
        .post_form(&format!("/t/home/sessions/{}/pane", fixture.session()), &[("pane", "files")])
        .await
        .expect(303);
    fixture.owner().post_form(&verb, &[]).await.expect(303);
    fixture.board.assert_invariants().await;
}

async fn more_files_than_are_counted_cost_nothing_more(engine: Engine) {
    let mut fixture = Fixture::on(engine).owner().with_fake().await;
    fixture.begin("Touch everything").await;
    let long = "p".repeat(2_000);
    let mut all = vec![call("long", "write_file", &long), result("long", "write_file", true)];
    for n in 0..150 {
        all.push(call(&format!("c{n}"), "write_file", &format!("src/{n}.rs")));
    }
    all.extend((0..150).map(|n| result(&format!("c{n}"), "write_file", true)));
    fixture.tell(all).await;
    fixture.tell(vec![text("Done."), completed("Done.")]).await;
    eventually("a hundred and more", async || strip(&fixture).await.contains("Files 100+").then_some(())).await;
    fixture.board.assert_invariants().await;
}

async fn a_choice_is_its_readers_alone(engine: Engine) {
    let mut fixture = Fixture::on(engine).owner().with_fake().await;
    fixture.begin("Ship it").await;
    let page = format!("/t/home/sessions/{}", fixture.session());
    let pane = format!("{page}/pane");
    let shows = async |person: &board_tests::Person, path: &str| {
        let html = person.page(path).await.expect(200).body;
        let at = html.find(r#"data-pane=""#).expect("a strip");
        html[at..].split('"').nth(3).expect("a tab").to_owned()
    };
    let bo = fixture.board.operator("home", "bo@example.org", "viewer").await;
    assert_eq!(shows(fixture.owner(), &page).await, "", "there is nothing to show");
    fixture.tell(vec![artifact("report")]).await;
    eventually("it opens by itself", async || (shows(fixture.owner(), &page).await == "artifacts").then_some(())).await;
    fixture.tell(vec![plan("- [ ] a\n"), completed("Done.")]).await;
    eventually("the plan goes before", async || (shows(fixture.owner(), &page).await == "plan").then_some(())).await;

    // Without scripts an address says it, and the form that closes it is kept.
    assert_eq!(shows(fixture.owner(), &format!("{page}?pane=files")).await, "files");
    assert_eq!(shows(fixture.owner(), &format!("{page}?pane=closed")).await, "");
    assert_eq!(shows(fixture.owner(), &page).await, "plan", "a page that was looked at changes nothing");
    let answer = fixture.owner().post_form(&pane, &[("pane", "closed")]).await.expect(303);
    assert!(answer.header("location").ends_with(&page), "{answer:#?}");
    assert_eq!(shows(fixture.owner(), &page).await, "");
    assert_eq!(shows(&bo, &page).await, "plan", "somebody else has their own");
    bo.post_form(&pane, &[("pane", "memory")]).await.expect(303);
    assert_eq!((shows(&bo, &page).await.as_str(), shows(fixture.owner(), &page).await.as_str()), ("memory", ""));
    assert_eq!(shows(fixture.owner(), &format!("{page}?pane=plan")).await, "plan", "the address goes first");

    fixture.owner().post_form(&pane, &[("pane", "everything")]).await.expect(400);
    let nobodys = "/t/home/sessions/ses_00000000000000000000000000000000/pane";
    fixture.owner().post_form(nobodys, &[("pane", "plan")]).await.expect(404);
    fixture.board.assert_invariants().await;
}

on_both_databases!(
    the_strip_counts_what_is_there,
    more_files_than_are_counted_cost_nothing_more,
    a_choice_is_its_readers_alone,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pane_opens_by_itself_and_stays_as_it_was_left() {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.begin("Ship it").await;
    let page = format!("{}/t/home/sessions/{}", fixture.board.url, fixture.session());
    let browser = Browser::open(Scripts::On).await;
    browser.prefer("light", Some((1440, 900))).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&page).await;
    browser.find("body[data-live=on]").await;
    let width = async || browser.run("return document.querySelector('.talk').clientWidth", Value::Null).await;
    let shown = async || browser.run("return document.querySelector('#pane').checkVisibility()", Value::Null).await;
    assert_eq!(shown().await, false, "it takes no room while there is nothing");
    let alone = width().await.as_i64().expect("a width");

    // The first artifact opens it, without a reload; the numbers follow.
    browser.run("window.stayed = true", Value::Null).await;
    fixture.tell(vec![artifact("report")]).await;
    browser.find("#tabs[data-pane=open]").await;
    browser.sees("#pane", "report").await;
    browser.sees("#tabs .only-wide a[href$='=artifacts'] .count", "1").await;
    assert!(width().await.as_i64().expect("a width") < alone, "the conversation made room");
    fixture.tell(vec![plan("- [x] Build\n- [ ] Test\n")]).await;
    browser.sees("#tabs .only-wide a[href$='=plan'] .count", "1/2").await;
    browser.sees("#tabs [aria-current]", "Artifacts").await;
    assert_eq!(browser.count("#tabs .only-wide [aria-current]").await, 1);
    fixture.tell(vec![plan("- [x] Build\n- [x] Test\n")]).await;
    browser.sees("#tabs .only-wide a[href$='=plan'] .count", "2/2").await;
    assert_eq!(browser.run("return window.stayed", Value::Null).await, true);

    // Closed, it stays closed: after a reload, while more comes, and for the same person elsewhere.
    browser.click("#tabs .only-wide form button").await;
    browser.find("#tabs[data-pane=closed]").await;
    browser.find("body[data-live=on]").await;
    fixture.tell(vec![artifact("chart")]).await;
    browser.sees("#tabs .only-wide a[href$='=artifacts'] .count", "2").await;
    assert_eq!(shown().await, false);
    browser.go(&page).await;
    assert_eq!(shown().await, false);
    // A tab that is chosen is what the next visit shows.
    browser.click("#tabs .only-wide a[href$='pane=files']").await;
    browser.find("#tabs[data-tab=files]").await;
    browser.close_tab().await;
    eventually("the choice is kept", async || {
        browser.go(&page).await;
        browser.has("#tabs[data-tab=files]").await.then_some(())
    })
    .await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}
