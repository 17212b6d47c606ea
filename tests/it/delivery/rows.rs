//! Rows of tool calls that speak: what came of a plan, a note, an artifact, an edit, and why one failed; folded and opened
//! all at once.

use board_tests::{
    Browser, Engine, FakeDaemon, Fixture,
    browser::{Screen, Scripts},
    eventually,
    fake_daemon::{completed, progress, text},
};
use protocol::EventBody;
use serde_json::{Value, json};

fn called(id: &str, tool: &str, args: Value, result: Value, ok: bool) -> Vec<EventBody> {
    vec![
        progress(&json!({"type": "tool-call", "callId": id, "tool": tool, "args": args})),
        progress(&json!({"type": "tool-result", "callId": id, "tool": tool, "result": result, "ok": ok,
            "durationMs": 1_200})),
    ]
}

async fn rows(fixture: &mut Fixture<FakeDaemon>) {
    let plan = json!({"steps": [{"title": "Look", "status": "done"}, "Think", "Write", "Test"]});
    let answer = "The plan is updated.\ns1 [done] Look\ns2 [pending] Think\ns3 [pending] Write\ns4 [pending] Test";
    let edit = json!({"path": "src/a.rs", "oldText": "fn a() {\n    let x = sum(1);\n}",
        "newText": "fn a() {\n    let x = sum(2);\n    let y = 1;\n    let z = 1;\n    done(<y>);\n}"});
    let mut events = called("plan", "update_plan", plan, json!(answer), true);
    events.extend(called(
        "note",
        "remember",
        json!({"note": "Build with make."}),
        json!("It is in today's log."),
        true,
    ));
    events.extend(called("art", "add_artifact", json!({"id": "chart.png", "path": "c.png"}), json!("Saved."), true));
    events.extend(called(
        "new",
        "write_file",
        json!({"path": "b.txt", "content": "one\ntwo\n"}),
        json!("Created"),
        true,
    ));
    events.extend(called("gone", "read_file", json!({"path": "no"}), json!("no: there is no such file"), false));
    let output = format!("{}src/x.c:3: error: expected ';'\nmake: *** [all] Error 1\n", "cc x.c\n".repeat(3));
    events.extend(called("make", "shell", json!({"command": "make"}), json!({"exitCode": 2, "output": output}), false));
    events.extend(called("edit", "edit_file", edit, json!("Edited src/a.rs, line 40:\n    37\tfor the model"), true));
    fixture.tell(events).await;
}

async fn summary(browser: &Browser, call: &str) -> String {
    browser.content_of(&format!("[data-call={call}] > summary")).await.split_whitespace().collect::<Vec<_>>().join(" ")
}

async fn counted(browser: &Browser, words: &str) {
    eventually(words, || async { browser.content_of(".calls > summary").await.contains(words).then_some(()) }).await;
}

async fn opens(browser: &Browser, open: usize) {
    let count = "return document.querySelectorAll('#entries details.fold[open]').length";
    let all = format!("{open} rows are open");
    eventually(&all, || async { (browser.run(count, Value::Null).await == json!(open)).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_say_what_came_of_them() {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.begin("Change it").await;
    rows(&mut fixture).await;
    fixture.tell(vec![text("Done.")]).await;
    let page = format!("{}/t/home/sessions/{}", fixture.board.url, fixture.session());
    for (screen, scripts) in [(Screen::Desk, Scripts::On), (Screen::Phone, Scripts::On), (Screen::Desk, Scripts::Off)] {
        let browser = Browser::open_on(screen, scripts).await;
        browser.sign_in(fixture.owner()).await;
        browser.go(&page).await;
        browser.find("[data-call=make]").await;
        for (call, words) in [
            ("plan", "Plan: 4 steps, 1 done"),
            ("note", "Remembered: Build with make."),
            ("art", "Artifact chart.png"),
            ("new", "b.txt +2"),
            ("gone", "Failed, there is no such file"),
            ("make", "Failed, exit 2: src/x.c:3: error: expected ';'"),
        ] {
            let says = summary(&browser, call).await;
            assert!(says.contains(words), "{call}: {says}");
        }
        let edit = summary(&browser, "edit").await;
        assert!(edit.contains("src/a.rs") && edit.contains("+4") && edit.contains("−1"), "{edit}");
        // What failed is open, the rest opens one by one, to the difference in its place.
        assert!(!browser.has("[data-call=edit][open]").await && browser.has("[data-call=make][open]").await);
        browser.click("[data-call=edit] > summary").await;
        assert_eq!(browser.content_of("[data-call=edit] tr[data-op=del] del").await, "sum(1);");
        assert_eq!(browser.content_of("[data-call=edit] tr[data-op=add] ins").await, "sum(2);");
        assert!(browser.content_of("[data-call=edit] .diff").await.contains("done(<y>);"));
        assert_eq!(browser.content_of("[data-call=edit] tr[data-op=del] td").await, "41", "its line in the file");
        assert!(!browser.content_of("[data-call=edit]").await.contains("for the model"));
        if scripts_on(&browser).await {
            assert_eq!(browser.console_errors().await, Vec::<String>::new());
            let wide = "return document.documentElement.scrollWidth > innerWidth";
            assert_eq!(browser.run(wide, Value::Null).await, json!(false), "nothing is wider than the page");
        } else {
            assert!(!browser.has("[data-folds]:not([hidden] *)").await, "no button that does nothing");
        }
    }
    fixture.tell(vec![completed("Done.")]).await;
    fixture.board.assert_invariants().await;
}

async fn scripts_on(browser: &Browser) -> bool {
    browser.has("body[data-live=on]").await || browser.has(".output .actions").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_rows_fold_and_open_by_a_key_and_stay_so() {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.begin("Change it").await;
    rows(&mut fixture).await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}/t/home/sessions/{}", fixture.board.url, fixture.session())).await;
    browser.find("body[data-live=on]").await;
    // The group, and what failed.
    opens(&browser, 3).await;
    browser.run("document.activeElement.blur(); return true", Value::Null).await;
    browser.press(&["f"]).await;
    opens(&browser, 0).await;
    // Live updates leave it so, also rows that would come open.
    fixture
        .tell(called("last", "shell", json!({"command": "false"}), json!({"exitCode": 1, "output": ""}), false))
        .await;
    counted(&browser, "2 commands").await;
    opens(&browser, 0).await;
    browser.press(&["u"]).await;
    opens(&browser, 9).await;
    fixture.tell(called("more", "shell", json!({"command": "true"}), json!({"exitCode": 0, "output": ""}), true)).await;
    counted(&browser, "3 commands").await;
    opens(&browser, 10).await;
    // One that is folded by itself stays folded.
    browser.click("[data-call=more] > summary").await;
    opens(&browser, 9).await;
    fixture.tell(called("end", "shell", json!({"command": "true"}), json!({"exitCode": 0, "output": ""}), true)).await;
    counted(&browser, "4 commands").await;
    opens(&browser, 10).await;
    assert!(!browser.has("[data-call=more][open]").await);
    // The same in the menu, for a mouse.
    browser.click(".bar details.menu > summary").await;
    browser.click("[data-folds=closed]").await;
    opens(&browser, 0).await;
}
