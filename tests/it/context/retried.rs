//! A task that is started over while a summary of its turn is written, or is read by somebody, keeps its answer.

use board_tests::{
    Engine, FakeDaemon, Fixture,
    fake_daemon::{accepted, completed, started, text},
};
use protocol::{TaskId, TaskSubmit};
use serde_json::json;

use super::compact::{SUMMARY, asks, carried, end, failed, long, next, sums_up};

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

on_both_databases!(a_task_that_is_started_over_meanwhile_keeps_its_answer);
