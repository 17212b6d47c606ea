//! Steps whose tasks people start over in their sessions, and steps whose vibers are revoked: nothing runs twice, and nothing
//! is stuck.

use board_tests::fake_daemon::stopped;

use super::*;

crate::on_both_databases!(
    a_step_that_was_started_over_in_its_session_runs_once,
    what_runs_again_is_not_skipped,
    what_runs_again_is_stopped_with_its_run,
    a_step_goes_elsewhere_when_its_viber_was_revoked,
);

/// A run as written whose first step has failed, and that step's task.
async fn failed(engine: Engine) -> (Fixture<FakeMachine>, Value, TaskId) {
    let fixture = with_playbook(engine, &playbook("1. [coder] One.\n2. [coder] Two.")).await;
    let run = start(&fixture, json!({})).await;
    let first = Job::of_step(&fixture.viber, "1").await;
    let task = first.task().clone();
    first.fails(&fixture.viber, "The disk is full.").await;
    step_in(&fixture.operator, &run, "1", "failed").await;
    (fixture, run, task)
}

async fn a_step_that_was_started_over_in_its_session_runs_once(engine: Engine) {
    let (fixture, run, task) = failed(engine).await;
    let machine = &fixture.viber;
    act(&fixture.operator, &run, "pause").await.expect(200);
    // One person wants it again as soon as the run goes on, and another one starts it over in its session.
    act_on(&fixture.operator, &run, "1", json!({ "action": "retry" })).await.expect(200);
    assert_eq!(states(&run_now(&fixture.operator, &run).await), ["pending", "pending"]);
    fixture.operator.retry(task.as_str()).await.expect(200);
    let again = Job::of_step(machine, "1").await;
    assert_eq!((again.task(), again.submit.attempt), (&task, 2));
    assert_eq!(step_in(&fixture.operator, &run, "1", "running").await["attempt"], 2);
    act(&fixture.operator, &run, "resume").await.expect(200);
    again.completes(machine, "There was room.").await;
    Job::of_step(machine, "2").await.completes(machine, "Two.").await;
    let done = run_in(&fixture.operator, &run, "completed").await;
    let attempts = ["1", "2"].map(|label| step(&done, label)["attempt"].clone());
    assert_eq!(attempts, [json!(2), json!(1)], "{done:#}");
    let tasks = fixture.operator.get("/api/v1/tasks").await.expect(200).json();
    assert_eq!(tasks["items"].as_array().map(Vec::len), Some(2), "one for each step: {tasks:#}");
    fixture.board.assert_invariants().await;
}

async fn what_runs_again_is_not_skipped(engine: Engine) {
    let (fixture, run, task) = failed(engine).await;
    fixture.operator.retry(task.as_str()).await.expect(200);
    // Whether or not the run has seen it.
    let skipped = act_on(&fixture.operator, &run, "1", json!({ "action": "skip", "note": "It failed" })).await;
    assert_eq!(skipped.expect(409).code(), "step_running");
    act_on(&fixture.operator, &run, "1", json!({ "action": "retry" })).await.expect(409);
    let again = Job::of_step(&fixture.viber, "1").await;
    assert_eq!((again.task(), again.submit.attempt), (&task, 2));
    again.completes(&fixture.viber, "There was room.").await;
    Job::of_step(&fixture.viber, "2").await.completes(&fixture.viber, "Two.").await;
    assert_eq!(states(&run_in(&fixture.operator, &run, "completed").await), ["done", "done"]);
    fixture.board.assert_invariants().await;
}

async fn what_runs_again_is_stopped_with_its_run(engine: Engine) {
    let (fixture, run, task) = failed(engine).await;
    act(&fixture.operator, &run, "pause").await.expect(200);
    act_on(&fixture.operator, &run, "1", json!({ "action": "retry" })).await.expect(200);
    fixture.operator.retry(task.as_str()).await.expect(200);
    let mut again = Job::of_step(&fixture.viber, "1").await;
    act(&fixture.operator, &run, "stop").await.expect(200);
    let is_its_stop = |command: &Command| match command {
        Command::Stop { task_id, .. } if *task_id == task => Some(()),
        _ => None,
    };
    fixture.viber.told("a stop", is_its_stop).await;
    again.tell(&fixture.viber, vec![stopped()]).await;
    fixture.operator.task_in(task.as_str(), "stopped").await;
    run_that(&fixture.operator, &run, "all is over", |run| count(run, "stopped") == 2).await;
    fixture.board.assert_invariants().await;
}

async fn a_step_goes_elsewhere_when_its_viber_was_revoked(engine: Engine) {
    let steps = "1. [default] One.\n   - Viber: pool=large\n2. [coder] Two.";
    let fixture = with_playbook(engine, &playbook(steps)).await;
    let den = FakeMachine::connected(&fixture.board, "den").await;
    let kiln = FakeMachine::connected(&fixture.board, "kiln").await;
    let large = async |machine: &FakeMachine| {
        let labels = json!({ "labels": { "pool": "large" } });
        fixture.owner().patch(&format!("/api/v1/vibers/{}", machine.id), &labels).await.expect(200);
    };
    large(&den).await;
    let run = start(&fixture, json!({})).await;
    let first = Job::of_step(&den, "1").await;
    large(&kiln).await;
    fixture.owner().delete(&format!("/api/v1/vibers/{}", den.id)).await.expect(204);
    step_in(&fixture.operator, &run, "1", "failed").await;
    act_on(&fixture.operator, &run, "1", json!({ "action": "retry" })).await.expect(200);
    let again = Job::of_step(&kiln, "1").await;
    assert_ne!((again.task(), &again.submit.session_id), (first.task(), &first.submit.session_id));
    again.completes(&kiln, "One.").await;
    Job::of_step(&fixture.viber, "2").await.completes(&fixture.viber, "Two.").await;
    let done = run_in(&fixture.operator, &run, "completed").await;
    assert_eq!(step(&done, "1")["viberId"], kiln.id.as_str(), "{done:#}");
    fixture.board.assert_invariants().await;
}
