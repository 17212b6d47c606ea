//! Search in what a viber remembers: asked of the viber, shown as text, honest when it is away.

use board_tests::{Engine, board::HOME, eventually};
use protocol::SessionId;
use serde_json::json;

use super::{Proposing, with_memory};

async fn what_is_found_is_shown_with_where_it_stands(engine: Engine) {
    let fixture = with_memory(engine).await;
    let owner = fixture.board.owner().await;
    let submit = fixture.propose(None, "x").await;
    let elsewhere = SessionId::new(7);
    fixture.viber.state().found = json!({ "ranking": "text", "known": 1234, "items": [
        { "source": "daily", "path": "workspace/memory/2026-03-01.md", "title": "Fixed the kiosk",
          "excerpt": "The KIOSK <img src=x onerror=alert(1)> was kiosked.", "at": "2026-03-01T10:00:00.000Z" },
        { "source": "session", "path": format!("agents/default/sessions/{}.jsonl", submit.session_id),
          "title": "remember it", "excerpt": "kiosk", "sessionId": submit.session_id },
        { "source": "session", "path": "agents/default/sessions/x.jsonl", "excerpt": "kiosk", "sessionId": elsewhere },
        { "source": "curated", "path": "workspace/../../secret", "excerpt": "kiosk" },
    ] });
    let id = &fixture.viber.id;
    let found = fixture.operator.get(&format!("/api/v1/vibers/{id}/memory?q=kiosk&limit=3")).await.expect(200).json();
    assert_eq!((&found["known"], found["items"].as_array().map(Vec::len)), (&json!(1234), Some(3)), "{found:#}");
    assert_eq!(found["items"][0]["source"], "daily");
    let asked = fixture.viber.state().asked.clone();
    let asked: Vec<_> =
        asked.iter().filter(|(method, _)| method == "memory.search").map(|(_, params)| params).collect();
    assert_eq!(asked, [&json!({ "agentId": "default", "query": "kiosk", "limit": 3 })]);

    let page = format!("/t/{HOME}/vibers/{id}/memory?q=kiosk");
    let html = owner.page(&page).await.expect(200).body;
    assert!(html.contains("<mark>KIOSK</mark>") && html.contains("<mark>kiosked</mark>"), "{html}");
    assert!(html.contains("&#60;img src=x") && !html.contains("<img src=x"), "text is text: {html}");
    assert!(html.contains(&format!("/vibers/{id}/files/memory/2026-03-01.md")), "{html}");
    assert!(html.contains(&format!(r#"href="/t/home/sessions/{}""#, submit.session_id)), "{html}");
    assert!(html.contains(&format!("/vibers/{id}/sessions/{elsewhere}")), "one that only the machine has: {html}");
    assert!(!html.contains("files/../"), "{html}");
    assert!(html.contains("of 1234 indexed") && html.contains("Daily log"), "{html}");

    for (query, code) in [("", "bad_query"), ("?q=x&limit=101", "bad_limit"), ("?q=x&limit=0", "bad_limit")] {
        let refused = fixture.operator.get(&format!("/api/v1/vibers/{id}/memory{query}")).await.expect(422);
        assert_eq!(refused.code(), code);
    }
    let long = format!("/api/v1/vibers/{id}/memory?q={}", "x".repeat(1001));
    assert_eq!(fixture.operator.get(&long).await.expect(422).code(), "bad_query");
    fixture.viber.state().found = json!("memory is not built on this viber");
    let html = owner.page(&page).await.expect(200).body;
    assert!(html.contains("memory is not built on this viber"), "{html}");
    fixture.viber.state().found = json!({ "items": 3 });
    let strange = fixture.operator.get(&format!("/api/v1/vibers/{id}/memory?q=x")).await.expect(422);
    assert_eq!(strange.code(), "viber_refused");

    fixture.viber.leave().await;
    let away = eventually("it is known to be away", || async {
        let answer = fixture.operator.get(&format!("/api/v1/vibers/{id}/memory?q=x")).await;
        (answer.status == 409).then_some(answer)
    })
    .await;
    assert_eq!(away.code(), "viber_away");
    let html = eventually("the page says so", || async {
        let html = owner.page(&page).await.expect(200).body;
        html.contains("when the viber reconnects").then_some(html)
    })
    .await;
    assert!(html.contains("The viber is offline."), "{html}");
    fixture.board.assert_invariants().await;
}

async fn nobody_searches_the_memory_of_others(engine: Engine) {
    let fixture = with_memory(engine).await;
    let foreign = fixture.board.operator("elsewhere", "far@example.org", "owner").await;
    let id = &fixture.viber.id;
    let token = fixture.board.token("elsewhere", "owner").await;
    token.get(&format!("/api/v1/vibers/{id}/memory?q=x")).await.expect(404);
    foreign.page(&format!("/t/{HOME}/vibers/{id}/memory?q=x")).await.expect(404);
    foreign.page(&format!("/t/elsewhere/vibers/{id}/memory?q=x")).await.expect(404);
    assert!(fixture.viber.state().asked.iter().all(|(method, _)| method != "memory.search"));
    fixture.board.assert_invariants().await;
}

crate::on_both_databases!(what_is_found_is_shown_with_where_it_stands, nobody_searches_the_memory_of_others);
