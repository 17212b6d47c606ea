//! What a compaction notes for the memory: proposals that lead to their turns and back, of a draft once it is applied.

use board_tests::{
    Answer, Engine, FakeDaemon, Fixture,
    board::HOME,
    fake_daemon::{accepted, progress, started, text},
};
use protocol::{EventBody, Policy, TaskSubmit};
use serde_json::{Value, json};

use super::compact::{SUMMARY, asks, long};

/// What a viber reports whose model also suggests two notes.
fn suggests(said: &str) -> Vec<EventBody> {
    let memory = |notes: &[&str]| {
        let lines: String = notes.iter().map(|note| format!("- {note}\n")).collect();
        let (proposal, note) = (format!("# Memory\n\n{lines}"), notes.join("\n"));
        let memory = json!({ "proposal": proposal, "path": "MEMORY.md", "note": note });
        progress(&json!({ "type": "memory", "memory": memory }))
    };
    let notes = ["Ada decides.", "Tabs it is."];
    let became = notes.map(|note| json!({ "note": note, "kind": "memory", "became": "proposed" }));
    let result = json!({ "text": said, "summary": said, "memory": { "notes": became } });
    let completed = EventBody::Completed { result: serde_json::from_value(result).expect("a result") };
    vec![accepted(), started(), memory(&notes[..1]), memory(&notes), text(said), completed]
}

/// Asks for something of the session, of which the viber's model also notes something.
async fn notes(fixture: &mut Fixture<FakeDaemon>, verb: &str, body: &Value, said: &str) -> (Answer, TaskSubmit) {
    let path = format!("/api/v1/sessions/{}/{verb}", fixture.session());
    let (operator, viber) = (&fixture.operator, &mut fixture.viber);
    let works = async {
        let submit = viber.submitted().await;
        viber.report(&submit.task_id, 1, 1, suggests(said)).await;
        submit
    };
    tokio::join!(operator.post(&path, body), works)
}

/// The proposals in this state.
async fn proposals(fixture: &Fixture<FakeDaemon>, state: &str) -> Vec<Value> {
    let path = format!("/api/v1/sessions/{}/memory/proposals?state={state}", fixture.session());
    fixture.operator.get(&path).await.expect(200).json()["items"].as_array().expect("a list").clone()
}

/// The session's page with the tab Memory.
async fn shown(fixture: &Fixture<FakeDaemon>) -> String {
    let page = format!("/t/{HOME}/sessions/{}?pane=memory", fixture.session());
    fixture.owner().page(&page).await.expect(200).body
}

async fn notes_lead_to_their_turns_and_back(engine: Engine) {
    let mut fixture = long(engine, 9).await;
    let (compacted, submit) = notes(&mut fixture, "compact", &json!({ "keep": 6 }), SUMMARY).await;
    compacted.expect(200);
    let waiting = proposals(&fixture, "pending").await;
    assert_eq!(waiting.len(), 1, "the newer one has both notes: {waiting:#?}");
    assert_eq!(waiting[0]["taskId"], json!(submit.task_id));
    let session = format!("/t/{HOME}/sessions/{}", fixture.session());
    let html = shown(&fixture).await;
    // Three turns; the compaction comes after nine.
    for link in ["#m-1\">question 1</a>", "#m-5\">question 5</a>", "#m-20\">The message it came with</a>"] {
        assert!(html.contains(&format!("{session}{link}")), "{link}: {html}");
    }
    let review = format!("2 notes suggested · <a class=\"link\" href=\"{session}?pane=memory#proposals\">Review</a>");
    assert_eq!(html.matches(&review).count(), 1, "{html}");

    // What is noted alone: the turns after those.
    let (noted, _) = notes(&mut fixture, "flush", &json!({}), "2 notes for MEMORY.md.").await;
    noted.expect(200);
    let html = shown(&fixture).await;
    for link in ["#m-7\">question 7</a>", "#m-17\">question 17</a>", "#m-22\">The message it came with</a>"] {
        assert!(html.contains(&format!("{session}{link}")), "{link}: {html}");
    }
    assert_eq!(html.matches(&review).count(), 2, "{html}");
    fixture.board.assert_invariants().await;
}

async fn notes_of_a_draft_wait_until_it_is_applied(engine: Engine) {
    let mut fixture = long(engine, 9).await;
    let policies = format!("/t/{HOME}/sessions/{}/policies", fixture.session());
    fixture.owner().post_form(&policies, &[("memory", "apply")]).await.expect(303);
    let draft = json!({ "preview": true, "keep": 6 });
    // One that nobody applies takes nothing.
    let (first, submit) = notes(&mut fixture, "compact", &draft, SUMMARY).await;
    first.expect(200);
    assert!(submit.compact.as_ref().expect("a compaction").notes);
    assert_eq!(submit.memory_policy, Policy::Propose, "it writes into no file, whatever the session's agent may");
    assert_eq!(proposals(&fixture, "pending").await, Vec::<Value>::new());
    let html = shown(&fixture).await;
    assert!(html.contains("2 notes suggested, to be reviewed when the summary is applied"), "{html}");
    assert!(!html.contains("data-proposal="), "{html}");

    let (second, submit) = notes(&mut fixture, "compact", &draft, SUMMARY).await;
    assert!(submit.compact.expect("a compaction").notes, "its turns were not noted yet");
    let edited = json!({ "summary": "- Only rain.", "basis": second.expect(200).json()["basis"] });
    let compact = format!("/api/v1/sessions/{}/compact", fixture.session());
    for _ in 0..2 {
        fixture.operator.post(&compact, &edited).await.expect(200);
        let waiting = proposals(&fixture, "pending").await;
        assert_eq!(waiting.len(), 1, "{waiting:#?}");
        assert_eq!(waiting[0]["taskId"], json!(submit.task_id));
        assert!(waiting[0]["content"].as_str().is_some_and(|text| text.contains("Tabs it is.")), "{waiting:#?}");
    }
    let html = shown(&fixture).await;
    assert!(html.contains("2 notes suggested · <a") && html.contains("question 1</a>"), "{html}");

    // Once they were decided about, nobody is asked again, and the turns are not noted again.
    let path = compact.replace("/compact", "/memory/proposals");
    let one = proposals(&fixture, "pending").await[0]["id"].as_str().expect("an id").to_owned();
    fixture.operator.post(&format!("{path}/{one}"), &json!({ "decision": "reject" })).await.expect(200);
    let undo = compact.replace("/compact", "/uncompact");
    fixture.operator.post(&undo, &json!({})).await.expect(200);
    fixture.operator.post(&compact, &edited).await.expect(200);
    assert_eq!(proposals(&fixture, "pending").await, Vec::<Value>::new());
    fixture.operator.post(&undo, &json!({})).await.expect(200);
    let (third, submit) = asks(&mut fixture, "compact", &json!({ "keep": 6 }), SUMMARY).await;
    third.expect(200);
    assert!(!submit.compact.expect("a compaction").notes);
    fixture.board.assert_invariants().await;
}

on_both_databases!(notes_lead_to_their_turns_and_back, notes_of_a_draft_wait_until_it_is_applied);
