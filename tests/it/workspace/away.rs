//! The machine is away: what was seen last, with its age, and changes that wait.

use board_tests::{Engine, eventually};
use reqwest::{Method, header};
use serde_json::json;

use super::{Stage, tag};

crate::on_both_databases!(
    what_was_seen_is_shown_with_its_age,
    changes_wait_and_are_made_when_it_is_back,
    what_changed_there_meanwhile_is_a_conflict,
    a_killed_daemon_makes_each_change_once,
);

async fn what_was_seen_is_shown_with_its_age(engine: Engine) {
    let mut stage = Stage::set(engine).await;
    stage.put("seen.md", Some(""), "seen\n").await.expect(200);
    stage.put("other.md", Some(""), "never looked at\n").await.expect(200);
    let folder = format!("/api/v1/vibers/{}/workspace", stage.id);
    stage.operator.get(&folder).await.expect(200);
    stage.viber.stop().await;
    stage.viber.contact(&stage.operator, "disconnected").await;
    let read = stage.read("seen.md").await.expect(200);
    assert_eq!(read.body, "seen\n");
    assert!(read.header("x-as-of").ends_with('Z'), "{read:#?}");
    let listed = stage.operator.get(&folder).await.expect(200).json();
    assert!(listed["asOf"].is_string() && listed["items"].as_array().is_some_and(|all| all.len() == 2), "{listed}");
    stage.operator.get(&format!("{folder}?path=never")).await.expect(409);
    assert_eq!(stage.read("never.md").await.expect(409).code(), "viber_away");
    // What the machine did meanwhile is there when it is back.
    stage.editor("seen.md", "seen again\n").await;
    stage.viber.run();
    stage.viber.connected(&stage.operator).await;
    stage.seen("seen.md", "seen again\n").await;
    assert_eq!(stage.read("seen.md").await.header("x-as-of"), "");
    stage.board.sound().await;
}

async fn changes_wait_and_are_made_when_it_is_back(engine: Engine) {
    let mut stage = Stage::set(engine).await;
    stage.put("a.md", Some(""), "1").await.expect(200);
    let base = tag(&stage.read("a.md").await);
    stage.viber.stop().await;
    stage.viber.contact(&stage.operator, "disconnected").await;
    let queued = stage.put("a.md", Some(&base), "2").await.expect(200).json();
    assert_eq!(queued["state"], "queued");
    let shown = stage.read("a.md").await.expect(200);
    assert_eq!((shown.body.as_str(), json!(tag(&shown))), ("2", queued["hash"].clone()));
    assert_eq!(stage.put("a.md", Some(&tag(&shown)), "3").await.expect(200).json()["state"], "queued");
    assert_eq!(stage.put("b.md", Some(""), "new").await.expect(200).json()["state"], "queued");
    stage.put("a.md", Some(""), "x").await.expect(412);
    let person = stage.board.operator(board_tests::board::HOME, "olga@example.org", "operator").await;
    let page = person.page(&stage.page("a.md")).await.expect(200).body;
    assert!(page.contains("Waits for the viber"), "{page}");
    assert_eq!(stage.on_disk("a.md").as_deref(), Some("1"));
    stage.viber.run();
    eventually("both are made", || async {
        (stage.on_disk("a.md").as_deref() == Some("3") && stage.on_disk("b.md").as_deref() == Some("new")).then_some(())
    })
    .await;
    stage.seen("a.md", "3").await;
    stage.board.sound().await;
}

async fn what_changed_there_meanwhile_is_a_conflict(engine: Engine) {
    let mut stage = Stage::set(engine).await;
    stage.put("a.md", Some(""), "base\n").await.expect(200);
    let base = tag(&stage.read("a.md").await);
    stage.viber.stop().await;
    stage.viber.contact(&stage.operator, "disconnected").await;
    stage.put("a.md", Some(&base), "mine\n").await.expect(200);
    stage.editor("a.md", "theirs\n").await;
    stage.viber.run();
    let person = stage.board.operator(board_tests::board::HOME, "olga@example.org", "operator").await;
    let page = eventually("the conflict is shown", || async {
        let page = person.page(&stage.page("a.md")).await.expect(200).body;
        page.contains("see both and decide").then_some(page)
    })
    .await;
    assert!(page.contains("theirs"), "{page}");
    assert_eq!(stage.on_disk("a.md").as_deref(), Some("theirs\n"));
    let edit = page.split("/edits/").nth(1).and_then(|rest| rest.split('"').next()).expect("a link");
    let edit = format!("/t/{}/vibers/{}/edits/{edit}", board_tests::board::HOME, stage.id);
    let both = person.page(&edit).await.expect(200).body;
    assert!(
        both.contains("mine") && both.contains("theirs") && both.contains("&#60;&#60;&#60; theirs")
            || both.contains("&lt;&lt;&lt; theirs"),
        "{both}"
    );
    person.post_form(&edit, &[("choice", "theirs")]).await.expect(303);
    let after = person.page(&stage.page("a.md")).await.expect(200).body;
    assert!(!after.contains("see both and decide"), "{after}");
    stage.board.sound().await;
}

async fn a_killed_daemon_makes_each_change_once(engine: Engine) {
    let mut stage = Stage::set(engine).await;
    stage.put("a.md", Some(""), "0").await.expect(200);
    for n in 1..=3 {
        let base = tag(&stage.read("a.md").await.expect(200));
        // It dies when the file is written and nothing of it is in the journal.
        stage.viber.fail("writes::before_written", "1*return(crash)").await;
        let queued = stage.put("a.md", Some(&base), &n.to_string()).await.expect(200).json();
        assert_eq!(queued["state"], "queued");
        stage.viber.ended().await;
        assert_eq!(stage.on_disk("a.md").as_deref(), Some(n.to_string().as_str()));
        stage.viber.heal().await;
        stage.viber.run();
        stage.viber.connected(&stage.operator).await;
        stage.seen("a.md", &n.to_string()).await;
    }
    let history = stage.board.operator(board_tests::board::HOME, "olga@example.org", "operator").await;
    let page = format!("{}?history=1", stage.page("a.md"));
    eventually("all are done", || async {
        let body = history.page(&page).await.expect(200).body;
        (body.matches("data-state=\"done\"").count() >= 4 && !body.contains("Conflict")).then_some(())
    })
    .await;
    let now = tag(&stage.read("a.md").await);
    let request =
        stage.operator.request(Method::DELETE, &stage.api("a.md")).header(header::IF_MATCH, format!("\"{now}\""));
    assert_eq!(stage.operator.send(request).await.expect(200).json()["state"], "applied");
    stage.board.sound().await;
}
