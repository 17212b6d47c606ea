//! When a session is compacted by itself: from which share on, and that it waits after two failures, as the tab says.

use board_tests::{
    Engine, FakeDaemon, Fixture,
    board::HOME,
    fake_daemon::{accepted, completed, started, text},
};
use serde_json::{Value, json};

use super::{
    compact::{SUMMARY, asks, end, failed, has, long, next, sums_up, told},
    context,
};

/// A turn whose request took so many tokens of a window of 32,768.
async fn measure(fixture: &mut Fixture<FakeDaemon>, used: u64) {
    let layers = json!([{ "layer": "system", "tokens": 5_000 }, { "layer": "history", "tokens": used - 5_000 }]);
    let report = json!({ "window": 32_768, "used": used, "source": "measured", "step": 1, "layers": layers });
    let submit = next(fixture, "Measure it").await;
    let events = vec![accepted(), started(), context(&report), text("Measured."), completed("Measured.")];
    fixture.viber.report(&submit.task_id, 1, 1, events).await;
    fixture.operator.task_in(submit.task_id.as_str(), "completed").await;
}

/// The next task is sent at once.
async fn is_not_compacted(fixture: &mut Fixture<FakeDaemon>, goal: &str) {
    let work = next(fixture, goal).await;
    assert!(work.compact.is_none() && work.goal == goal, "{goal}: {}", work.goal);
    end(fixture, &work, "Done.").await;
}

async fn change(fixture: &Fixture<FakeDaemon>, compact_at: Value) {
    let session = format!("/api/v1/sessions/{}", fixture.session());
    fixture.operator.patch(&session, &json!({ "compactAt": compact_at })).await.expect(200);
}

async fn the_teams_share_decides_where_a_session_has_none(engine: Engine) {
    let mut fixture = long(engine, 5).await;
    measure(&mut fixture, 15_000).await;
    is_not_compacted(&mut fixture, "At 70 %").await;

    fixture.owner().post_form(&format!("/t/{HOME}/settings/context"), &[("compact_at", "30")]).await.expect(303);
    change(&fixture, json!(70)).await;
    is_not_compacted(&mut fixture, "At 70 % of its own").await;

    change(&fixture, Value::Null).await;
    assert_eq!(told(&fixture).await["compactAt"], 30);
    let compaction = next(&mut fixture, "At 30 % of the team").await;
    assert!(compaction.compact.is_some() && has(&compaction, 0), "it comes first: {}", compaction.goal);
    end(&mut fixture, &compaction, SUMMARY).await;
    let work = fixture.viber.submitted().await;
    assert_eq!(work.goal, "At 30 % of the team");
    assert!(sums_up(&work, SUMMARY) && !has(&work, 0) && has(&work, 4));
    fixture.board.assert_invariants().await;
}

async fn after_two_failures_it_waits_and_says_why(engine: Engine) {
    let mut fixture = long(engine, 9).await;
    measure(&mut fixture, 25_000).await;
    let waits = async |fixture: &Fixture<FakeDaemon>| told(fixture).await["compactWaits"].clone();
    let tab = format!("/t/{HOME}/sessions/{}?pane=context", fixture.session());
    let reason = "The <b>summary</b> was refused twice.";
    let mut newest = Value::Null;
    for _ in 0..2 {
        assert_eq!(waits(&fixture).await, Value::Null, "one may fail");
        let compaction = next(&mut fixture, "Go on").await;
        assert!(compaction.compact.is_some(), "it comes first: {}", compaction.goal);
        newest = json!(compaction.task_id);
        fixture.viber.report(&compaction.task_id, 1, 1, vec![accepted(), started(), failed(reason)]).await;
        let work = fixture.viber.submitted().await;
        assert!(work.compact.is_none() && work.goal == "Go on");
        end(&mut fixture, &work, "Done.").await;
    }
    let now = waits(&fixture).await;
    assert_eq!((&now["taskId"], &now["reason"]), (&newest, &json!(reason)), "{now}");
    assert!(now["at"].is_string(), "{now}");
    let html = fixture.owner().page(&tab).await.expect(200).body;
    for words in
        ["Automatic compaction waits", "The &#60;b&#62;summary&#60;/b&#62; was refused twice.", "Not by itself"]
    {
        assert!(html.contains(words), "{words}: {html}");
    }
    assert!(html.contains("are left out") && !html.contains("is compacted before a task"), "{html}");
    is_not_compacted(&mut fixture, "And now?").await;
    change(&fixture, json!(0)).await;
    assert_eq!(waits(&fixture).await, Value::Null, "who wants none waits for none");
    change(&fixture, Value::Null).await;
    assert_eq!(waits(&fixture).await["taskId"], newest, "another share changes nothing");

    // One that somebody asks for succeeds.
    asks(&mut fixture, "compact", &json!({}), SUMMARY).await.0.expect(200);
    assert_eq!(waits(&fixture).await, Value::Null);
    let html = fixture.owner().page(&tab).await.expect(200).body;
    assert!(!html.contains("Automatic compaction waits"), "{html}");
    let undo = format!("/api/v1/sessions/{}/uncompact", fixture.session());
    fixture.operator.post(&undo, &json!({})).await.expect(200);
    is_not_compacted(&mut fixture, "Somebody undid it").await;
    let compaction = next(&mut fixture, "Then it is full again").await;
    assert!(compaction.compact.is_some(), "it begins by itself again: {}", compaction.goal);
    fixture.board.assert_invariants().await;
}

on_both_databases!(the_teams_share_decides_where_a_session_has_none, after_two_failures_it_waits_and_says_why);
