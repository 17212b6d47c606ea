//! A task that is started over while a summary of its turn is written, or is read by somebody, keeps its answer.

use board_tests::{
    Engine, FakeDaemon, Fixture,
    fake_daemon::{accepted, completed, started, text},
};
use protocol::{TaskId, TaskSubmit};
use serde_json::{Value, json};

use super::compact::{SUMMARY, asks, carried, end, failed, long, next, sums_up, work};

/// A turn that fails, and one after it.
async fn fails(fixture: &mut Fixture<FakeDaemon>, goal: &str) -> TaskId {
    let submit = next(fixture, goal).await;
    fixture.viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), failed("nobody knows")]).await;
    fixture.operator.task_in(submit.task_id.as_str(), "error").await;
    let later = next(fixture, "Never mind").await;
    end(fixture, &later, "Fine.").await;
    submit.task_id
}

/// What is sent of a task that was started over.
async fn over(fixture: &mut Fixture<FakeDaemon>, task: &TaskId, said: &str) {
    let again = fixture.viber.submitted().await;
    assert_eq!((&again.task_id, again.attempt), (task, 2));
    end(fixture, &again, said).await;
}

async fn asked(fixture: &mut Fixture<FakeDaemon>) -> TaskSubmit {
    let submit = next(fixture, "And now?").await;
    end(fixture, &submit, "Now it is dry.").await;
    submit
}

async fn a_task_that_is_started_over_meanwhile_keeps_its_answer(engine: Engine) {
    let mut fixture = long(engine, 4).await;
    let snow = fails(&mut fixture, "What about snow?").await;
    let compact = format!("/api/v1/sessions/{}/compact", fixture.session());
    let retry = |task: &TaskId| format!("/api/v1/tasks/{task}/retry");

    let (operator, viber, path) = (&fixture.operator, &mut fixture.viber, retry(&snow));
    let meanwhile = async {
        let summary = viber.submitted().await;
        assert!(summary.compact.is_some() && carried(&summary).contains("What about snow?"));
        let again = operator.post(&path, &json!({})).await.expect(200).json();
        assert_eq!(again["delivery"], "queued", "it waits for the summary");
        let events = vec![accepted(), started(), text(SUMMARY), completed(SUMMARY)];
        viber.report(&summary.task_id, 1, 1, events).await;
    };
    let body = json!({ "keep": 1 });
    let (answered, ()) = tokio::join!(operator.post(&compact, &body), meanwhile);
    assert_eq!(answered.expect(409).json()["code"], "went_on");
    over(&mut fixture, &snow, "It snows.").await;
    let after = asked(&mut fixture).await;
    assert!(carried(&after).contains("It snows.") && !sums_up(&after, SUMMARY), "{}", carried(&after));

    // The same of a draft that somebody reads meanwhile.
    let hail = fails(&mut fixture, "What about hail?").await;
    let (drafted, _) = asks(&mut fixture, "compact", &json!({ "preview": true, "keep": 1 }), SUMMARY).await;
    let draft = drafted.expect(200).json();
    fixture.operator.post(&retry(&hail), &json!({})).await.expect(200);
    over(&mut fixture, &hail, "It hails.").await;
    let draft = json!({ "summary": draft["summary"], "basis": draft["basis"] });
    assert_eq!(fixture.operator.post(&compact, &draft).await.expect(409).json()["code"], "went_on");

    // One that is made now tells of all that, and stands.
    let (made, told) = asks(&mut fixture, "compact", &body, SUMMARY).await;
    made.expect(200);
    assert!(carried(&told).contains("It snows.") && carried(&told).contains("It hails."), "{}", carried(&told));
    assert!(sums_up(&asked(&mut fixture).await, SUMMARY));
    fixture.board.assert_invariants().await;
}

/// Asks for something of the session that fails: its task.
async fn fails_at(fixture: &mut Fixture<FakeDaemon>, verb: &str, body: &Value) -> TaskId {
    let path = format!("/api/v1/sessions/{}/{verb}", fixture.session());
    let (operator, viber) = (&fixture.operator, &mut fixture.viber);
    let breaks = async {
        let submit = viber.submitted().await;
        viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), failed("no luck")]).await;
        submit.task_id
    };
    let (answered, task) = tokio::join!(operator.post(&path, body), breaks);
    assert_eq!(answered.expect(409).code(), "compaction_failed");
    task
}

async fn what_the_session_went_on_from_is_not_started_over(engine: Engine) {
    let mut fixture = long(engine, 4).await;
    let retry = |task: &TaskId| format!("/api/v1/tasks/{task}/retry");
    let reset = fails_at(&mut fixture, "reset", &json!({})).await;
    let flush = fails_at(&mut fixture, "flush", &json!({})).await;
    let compact = fails_at(&mut fixture, "compact", &json!({ "keep": 2 })).await;
    // Nothing was said since: each may be tried again.
    for task in [&reset, &flush, &compact] {
        fixture.operator.post(&retry(task), &json!({})).await.expect(200);
        let again = fixture.viber.submitted().await;
        assert_eq!((&again.task_id, again.attempt), (task, 2));
        fixture.viber.report(task, 2, 1, vec![accepted(), started(), failed("no luck")]).await;
        fixture.operator.task_in(task.as_str(), "error").await;
    }
    work(&mut fixture, 4).await;
    let refused = fixture.operator.post(&retry(&reset), &json!({})).await.expect(409);
    assert_eq!(refused.code(), "went_on", "the newest turn would be missing");
    let (noted, _) = asks(&mut fixture, "flush", &json!({}), "2 notes for MEMORY.md.").await;
    noted.expect(200);
    for (task, why) in [(&flush, "the same would be noted twice"), (&compact, "the same")] {
        assert_eq!(fixture.operator.post(&retry(task), &json!({})).await.expect(409).code(), "went_on", "{why}");
    }
    // A summary that was made meanwhile is not in one that was decided before it.
    let older = fails_at(&mut fixture, "compact", &json!({ "keep": 3 })).await;
    let (made, _) = asks(&mut fixture, "compact", &json!({ "keep": 2 }), SUMMARY).await;
    made.expect(200);
    assert_eq!(fixture.operator.post(&retry(&older), &json!({})).await.expect(409).code(), "went_on");
    fixture.board.assert_invariants().await;
}

on_both_databases!(
    a_task_that_is_started_over_meanwhile_keeps_its_answer,
    what_the_session_went_on_from_is_not_started_over,
);
