//! What comes late: an announcement, a viber that was silent for too long, a second try of a task that had failed, a stop that
//! has to pass what has ended, and what is left of a session that was deleted.

use protocol::SessionId;

use super::*;

crate::on_both_databases!(
    a_task_that_is_not_announced_yet_has_not_ended,
    a_task_belongs_to_one_call,
    a_viber_that_was_silent_hears_what_became_of_its_wishes,
    a_task_that_is_begun_again_hangs_where_it_hung,
    a_stop_passes_tasks_that_have_ended,
    what_a_revoked_viber_asked_for_ends,
    what_a_deleted_session_asked_for_is_forgotten,
);

/// The announcement of a task that a viber made for a call of its own.
fn announced(parent: &TaskId, call: &str, goal: &str) -> EventBody {
    let event = json!({ "type": "task:announce", "origin": "agent", "agentId": "coder",
        "sessionId": SessionId::new(1_790_000_000_000), "goal": goal,
        "parent": { "taskId": parent, "attempt": 1, "callId": call, "limits": { "steps": 3 } } });
    serde_json::from_value(event).expect("an event")
}

/// What a daemon says of a task that it makes itself.
fn made_here(call: &str, child: &TaskId) -> EventBody {
    let mut event = wanted(call, ("coder", "lab"), "Sort it");
    event.as_object_mut().expect("an object").remove("viber");
    event["childTaskId"] = json!(child);
    progress(&event)
}

fn failure() -> EventBody {
    let error = protocol::TaskError {
        code: protocol::ErrorCode::ToolFailed,
        message: "The disk is full".to_owned(),
        retryable: true,
        suggestion: None,
        details: None,
    };
    EventBody::Error { error }
}

/// Whether a machine was told of a call, in a command that nobody has taken yet.
fn is_told(machine: &FakeMachine, call: &str) -> bool {
    let of_call = |command: &Command| matches!(command, Command::Child(report) if report.call.call_id == call);
    machine.state().told.iter().any(of_call)
}

/// Waits until a machine is told to stop a task.
async fn stop_of(machine: &FakeMachine, task: &TaskId) {
    let stops = |command: &Command| matches!(command, Command::Stop { task_id, .. } if task_id == task);
    machine.told("a stop", |command| stops(command).then_some(())).await;
}

async fn a_task_that_is_not_announced_yet_has_not_ended(engine: Engine) {
    let (fixture, den) = two_machines(engine).await;
    let lab = &fixture.viber;
    let task = fixture.submit("Ready the release").await;
    let mut lead = Job::next(lab).await;
    let child = TaskId::new(1_790_000_000_000);
    lead.tell(lab, vec![made_here("call_1", &child)]).await;
    // The tree is brought forward: of a later call the end is told.
    lead.asks(lab, "call_2", ("tester", "den"), "Run the suite").await;
    Job::next(&den).await.completes(&den, "Done.").await;
    end_of(lab, "call_2").await;
    assert!(!is_told(lab, "call_1"), "nothing is known of it yet");
    lab.report(&child, 1, 1, vec![announced(lead.task(), "call_1", "Sort it"), accepted(), started()]).await;
    known(&fixture.operator, &child).await;
    let linked = fixture.operator.task_in(child.as_str(), "running").await;
    assert_eq!((&linked["parent"]["callId"], &linked["limits"]["steps"]), (&json!("call_1"), &json!(3)), "{linked:#}");
    lab.report(&child, 1, 4, vec![completed("Sorted.")]).await;
    let end = end_of(lab, "call_1").await;
    assert_eq!((end.state, end.child_task_id.as_ref()), (ChildState::Completed, Some(&child)));
    // One that is announced before the request that asked for it is the same.
    let early = TaskId::new(1_790_000_000_001);
    lab.report(&early, 1, 1, vec![announced(lead.task(), "call_3", "Sort it again"), accepted(), started()]).await;
    known(&fixture.operator, &early).await;
    fixture.operator.task_in(early.as_str(), "running").await;
    lead.tell(lab, vec![made_here("call_3", &early)]).await;
    lab.report(&early, 1, 4, vec![completed("Sorted again.")]).await;
    assert_eq!(end_of(lab, "call_3").await.state, ChildState::Completed);
    assert_eq!(items(&tree(&fixture.operator, id(&task, "id")).await).len(), 3);
    fixture.board.assert_invariants().await;
}

async fn a_task_belongs_to_one_call(engine: Engine) {
    let (fixture, den) = two_machines(engine).await;
    let lab = &fixture.viber;
    let task = fixture.submit("Ready the release").await;
    let mut lead = Job::next(lab).await;
    lead.asks(lab, "call_1", ("tester", "den"), "Run the suite").await;
    let tester = Job::next(&den).await;
    // The viber that does it claims it for a task of its own, and that task for itself.
    fixture.operator.submit(den.id.as_str(), "Something else").await;
    let mut other = Job::next(&den).await;
    let (theirs, own) = (tester.task().clone(), other.task().clone());
    other.tell(&den, vec![made_here("claim_1", &theirs), made_here("claim_2", &own)]).await;
    let asked = json!({ "type": "child-stop", "childTaskId": theirs, "reason": "because" });
    other.tell(&den, vec![progress(&asked)]).await;
    // A later event of the same viber is recorded: so were these.
    other.asks(&den, "call_2", ("coder", "lab"), "Look once").await;
    Job::next(lab).await;
    let found = tree(&fixture.operator, theirs.as_str()).await;
    assert_eq!((&found["root"], items(&found).len()), (&task["id"], 1), "{found:#}");
    assert_eq!(fixture.operator.task(theirs.as_str()).await["state"], "running");
    let found = tree(&fixture.operator, own.as_str()).await;
    assert_eq!(items(&found).len(), 1, "only what it really asked for: {found:#}");
    // Whoever asked for it still may end it.
    let stop = json!({ "type": "child-stop", "childTaskId": theirs, "reason": "not needed" });
    lead.tell(lab, vec![progress(&stop)]).await;
    stop_of(&den, &theirs).await;
    assert_eq!(end_of(lab, "call_1").await.error.as_deref(), Some("not needed"));
    fixture.board.assert_invariants().await;
}

async fn a_viber_that_was_silent_hears_what_became_of_its_wishes(engine: Engine) {
    let (fixture, den) = two_machines(engine).await;
    let lab = &fixture.viber;
    let task = fixture.submit("Ready the release").await;
    let mut lead = Job::next(lab).await;
    lead.asks(lab, "call_1", ("tester", "den"), "Run the suite").await;
    let mut tester = Job::next(&den).await;
    child_of(lab, "call_1", |state| state == ChildState::Running).await;
    fixture.board.sql("UPDATE teams SET lost_after_ms = 1000").await;
    lab.leave().await;
    let lost = |task: &Value| task["error"]["code"] == "lost";
    let limit = board_tests::wait::EVENT_TIMEOUT * 2;
    fixture.operator.task_within(limit, id(&task, "id"), "lost", lost).await;
    fixture.board.sql("UPDATE teams SET lost_after_ms = 900000").await;
    tester.completes(&den, "All 96 specs pass.").await;
    fixture.operator.task_in(tester.task().as_str(), "completed").await;
    // It was cut off, not dead: its agent still waits, and asks for more.
    lab.come_back().await;
    let end = end_of(lab, "call_1").await;
    assert_eq!(end.result.map(|result| result.text).as_deref(), Some("All 96 specs pass."));
    lead.asks(lab, "call_2", ("tester", "den"), "Run it once more").await;
    Job::next(&den).await.completes(&den, "Once more.").await;
    assert_eq!(end_of(lab, "call_2").await.state, ChildState::Completed);
    lead.completes(lab, "Ready.").await;
    fixture.operator.task_in(id(&task, "id"), "completed").await;
    fixture.board.assert_invariants().await;
}

async fn a_task_that_is_begun_again_hangs_where_it_hung(engine: Engine) {
    let (fixture, den) = two_machines(engine).await;
    let lab = &fixture.viber;
    let task = fixture.submit("Ready the release").await;
    let mut lead = Job::next(lab).await;
    lead.asks(lab, "call_1", ("tester", "den"), "Run the suite").await;
    let mut tester = Job::next(&den).await;
    tester.tell(&den, vec![failure()]).await;
    let end = end_of(lab, "call_1").await;
    assert_eq!((end.state, end.error.as_deref()), (ChildState::Error, Some("The disk is full")));
    fixture.operator.retry(tester.task().as_str()).await.expect(200);
    let mut again = Job::next(&den).await;
    assert_eq!((again.task(), again.submit.attempt), (tester.task(), 2));
    again.completes(&den, "All 96 specs pass.").await;
    assert_eq!(end_of(lab, "call_1").await.state, ChildState::Completed, "whoever asked is told of that, too");
    // One that is begun again ends with the task that asked for it.
    lead.asks(lab, "call_2", ("tester", "den"), "Run the rest").await;
    let mut rest = Job::next(&den).await;
    rest.tell(&den, vec![failure()]).await;
    end_of(lab, "call_2").await;
    fixture.operator.retry(rest.task().as_str()).await.expect(200);
    let rest = Job::next(&den).await;
    fixture.operator.stop(id(&task, "id")).await.expect(200);
    stop_of(&den, rest.task()).await;
    fixture.operator.task_in(rest.task().as_str(), "stopped").await;
    fixture.board.assert_invariants().await;
}

async fn a_stop_passes_tasks_that_have_ended(engine: Engine) {
    let (fixture, den) = two_machines(engine).await;
    let lab = &fixture.viber;
    let task = fixture.submit("Ready the release").await;
    let mut lead = Job::next(lab).await;
    lead.asks(lab, "call_1", ("tester", "den"), "Run the suite").await;
    let mut tester = Job::next(&den).await;
    tester.asks(&den, "call_2", ("coder", "lab"), "Build the image").await;
    let coder = Job::next(lab).await;
    tester.completes(&den, "It is being built.").await;
    end_of(lab, "call_1").await;
    assert_eq!(fixture.operator.task(coder.task().as_str()).await["state"], "running");
    fixture.operator.stop(id(&task, "id")).await.expect(200);
    stop_of(lab, coder.task()).await;
    fixture.operator.task_in(coder.task().as_str(), "stopped").await;
    fixture.board.assert_invariants().await;
}

async fn what_a_revoked_viber_asked_for_ends(engine: Engine) {
    let (fixture, den) = two_machines(engine).await;
    let lab = &fixture.viber;
    fixture.submit("Ready the release").await;
    let mut lead = Job::next(lab).await;
    lead.asks(lab, "call_1", ("tester", "den"), "Run the suite").await;
    let mut tester = Job::next(&den).await;
    let admin = fixture.board.token(HOME, "admin").await;
    assert!(admin.delete(&format!("/api/v1/vibers/{}", fixture.viber_id)).await.status < 300);
    stop_of(&den, tester.task()).await;
    fixture.operator.task_in(tester.task().as_str(), "stopped").await;
    tester.tell(&den, vec![stopped()]).await;
    fixture.board.assert_invariants().await;
}

async fn what_a_deleted_session_asked_for_is_forgotten(engine: Engine) {
    let (fixture, den) = two_machines(engine).await;
    let lab = &fixture.viber;
    let task = fixture.submit("Ready the release").await;
    let mut lead = Job::next(lab).await;
    lead.asks(lab, "call_1", ("tester", "den"), "Run the suite").await;
    lead.asks(lab, "call_2", ("tester", "den"), "Run the rest").await;
    let (tester, mut rest) = (Job::next(&den).await, Job::next(&den).await);
    rest.completes(&den, "Done.").await;
    end_of(lab, "call_2").await;
    let session = format!("/api/v1/sessions/{}", id(&task, "sessionId"));
    fixture.operator.delete(&session).await.expect(204);
    stop_of(&den, tester.task()).await;
    // What was asked for goes with the session: it is its text.
    eventually("no row is left", async || {
        (fixture.board.sql("UPDATE delegations SET depth = depth").await == 0).then_some(())
    })
    .await;
    assert_eq!(fixture.operator.task(tester.task().as_str()).await["state"], "stopped");
    fixture.board.assert_invariants().await;
}
