//! The machine is away: what was seen last, with its age, and changes that wait.

use board_tests::{Engine, Fixture, eventually};
use reqwest::{Method, header};
use serde_json::json;

use super::{Workspace, tag};

crate::on_both_databases!(
    what_was_seen_is_shown_with_its_age,
    changes_wait_and_are_made_when_it_is_back,
    what_changed_there_meanwhile_is_a_conflict,
    a_killed_daemon_makes_each_change_once,
);

async fn what_was_seen_is_shown_with_its_age(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_viber().await;
    fixture.put("seen.md", Some(""), "seen\n").await.expect(200);
    fixture.put("other.md", Some(""), "never looked at\n").await.expect(200);
    let folder = format!("/api/v1/vibers/{}/workspace", fixture.viber_id);
    fixture.operator.get(&folder).await.expect(200);
    fixture.viber.stop().await;
    fixture.viber.contact(&fixture.operator, "disconnected").await;
    let read = fixture.read("seen.md").await.expect(200);
    assert_eq!(read.body, "seen\n");
    assert!(read.header("x-as-of").ends_with('Z'), "{read:#?}");
    let listed = fixture.operator.get(&folder).await.expect(200).json();
    assert!(listed["asOf"].is_string() && listed["items"].as_array().is_some_and(|all| all.len() == 2), "{listed}");
    fixture.operator.get(&format!("{folder}?path=never")).await.expect(409);
    assert_eq!(fixture.read("never.md").await.expect(409).code(), "viber_away");
    // What the machine did meanwhile is there when it is back.
    fixture.editor("seen.md", "seen again\n").await;
    fixture.viber.run();
    fixture.viber.connected(&fixture.operator).await;
    fixture.seen("seen.md", "seen again\n").await;
    assert_eq!(fixture.read("seen.md").await.header("x-as-of"), "");
    fixture.board.assert_invariants().await;
}

async fn changes_wait_and_are_made_when_it_is_back(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_viber().await;
    fixture.put("a.md", Some(""), "1").await.expect(200);
    let base = tag(&fixture.read("a.md").await);
    fixture.viber.stop().await;
    fixture.viber.contact(&fixture.operator, "disconnected").await;
    let queued = fixture.put("a.md", Some(&base), "2").await.expect(200).json();
    assert_eq!(queued["state"], "queued");
    let shown = fixture.read("a.md").await.expect(200);
    assert_eq!((shown.body.as_str(), json!(tag(&shown))), ("2", queued["hash"].clone()));
    assert_eq!(fixture.put("a.md", Some(&tag(&shown)), "3").await.expect(200).json()["state"], "queued");
    assert_eq!(fixture.put("b.md", Some(""), "new").await.expect(200).json()["state"], "queued");
    fixture.put("a.md", Some(""), "x").await.expect(412);
    let person = fixture.board.operator(board_tests::board::HOME, "olga@example.org", "operator").await;
    let page = person.page(&fixture.page("a.md")).await.expect(200).body;
    assert!(page.contains("Waits for the viber"), "{page}");
    assert_eq!(fixture.on_disk("a.md").as_deref(), Some("1"));
    fixture.viber.run();
    eventually("both are made", || async {
        (fixture.on_disk("a.md").as_deref() == Some("3") && fixture.on_disk("b.md").as_deref() == Some("new"))
            .then_some(())
    })
    .await;
    fixture.seen("a.md", "3").await;
    fixture.board.assert_invariants().await;
}

async fn what_changed_there_meanwhile_is_a_conflict(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_viber().await;
    fixture.put("a.md", Some(""), "base\n").await.expect(200);
    let base = tag(&fixture.read("a.md").await);
    fixture.viber.stop().await;
    fixture.viber.contact(&fixture.operator, "disconnected").await;
    fixture.put("a.md", Some(&base), "mine\n").await.expect(200);
    fixture.editor("a.md", "theirs\n").await;
    fixture.viber.run();
    let person = fixture.board.operator(board_tests::board::HOME, "olga@example.org", "operator").await;
    let page = eventually("the conflict is shown", || async {
        let page = person.page(&fixture.page("a.md")).await.expect(200).body;
        page.contains("compare both versions and decide").then_some(page)
    })
    .await;
    assert!(page.contains("theirs"), "{page}");
    assert_eq!(fixture.on_disk("a.md").as_deref(), Some("theirs\n"));
    let edit = page.split("/edits/").nth(1).and_then(|rest| rest.split('"').next()).expect("a link");
    let edit = format!("/t/{}/vibers/{}/edits/{edit}", board_tests::board::HOME, fixture.viber_id);
    let both = person.page(&edit).await.expect(200).body;
    assert!(
        both.contains("mine") && both.contains("theirs") && both.contains("&#60;&#60;&#60; theirs")
            || both.contains("&lt;&lt;&lt; theirs"),
        "{both}"
    );
    person.post_form(&edit, &[("choice", "theirs")]).await.expect(303);
    let after = person.page(&fixture.page("a.md")).await.expect(200).body;
    assert!(!after.contains("compare both versions and decide"), "{after}");
    fixture.board.assert_invariants().await;
}

async fn a_killed_daemon_makes_each_change_once(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_viber().await;
    fixture.put("a.md", Some(""), "0").await.expect(200);
    for n in 1..=3 {
        let base = tag(&fixture.read("a.md").await.expect(200));
        // It dies when the file is written and nothing of it is in the journal.
        fixture.viber.fail("writes::before_written", "1*return(crash)").await;
        let queued = fixture.put("a.md", Some(&base), &n.to_string()).await.expect(200).json();
        assert_eq!(queued["state"], "queued");
        fixture.viber.ended().await;
        assert_eq!(fixture.on_disk("a.md").as_deref(), Some(n.to_string().as_str()));
        fixture.viber.heal().await;
        fixture.viber.run();
        fixture.viber.connected(&fixture.operator).await;
        fixture.seen("a.md", &n.to_string()).await;
    }
    let history = fixture.board.operator(board_tests::board::HOME, "olga@example.org", "operator").await;
    let page = format!("{}?history=1", fixture.page("a.md"));
    eventually("all are done", || async {
        let body = history.page(&page).await.expect(200).body;
        (body.matches("data-state=\"done\"").count() >= 4 && !body.contains("Conflict")).then_some(())
    })
    .await;
    let now = tag(&fixture.read("a.md").await);
    let request =
        fixture.operator.request(Method::DELETE, &fixture.api("a.md")).header(header::IF_MATCH, format!("\"{now}\""));
    assert_eq!(fixture.operator.send(request).await.expect(200).json()["state"], "applied");
    fixture.board.assert_invariants().await;
}
