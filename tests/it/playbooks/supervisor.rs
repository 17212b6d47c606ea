//! A supervisor: an agent that plans a run. What it says is text of a model; the Board decides what comes of it.

use board_tests::fake_daemon::{stopped, text};
use protocol::Decision;

use super::*;

crate::on_both_databases!(
    steps_that_are_asked_for_together_run_side_by_side,
    a_supervisor_adds_and_skips_steps,
    a_supervisor_is_refused_with_words,
    a_supervisor_passes_no_gate,
    a_denials_note_reaches_the_supervisor,
    a_failed_step_is_told_and_run_again,
    a_supervisor_that_fails_goes_on_from_the_ledger,
    a_supervisor_is_started_five_times_at_most,
    a_supervisor_that_ends_without_finish_is_started_again,
    a_stopped_run_stops_its_supervisor,
    who_supervises_nothing_is_denied,
);

const STEPS: &str = "1. [coder] One.\n2. [git] Two.\n   - After: none\n3. [coder] Three.\n   - After: 1, 2";

/// A supervised run of these steps, with its supervisor at work.
async fn supervised(engine: Engine, steps: &str) -> (Fixture<FakeMachine>, Value, Job) {
    let fixture = with_playbook(engine, &playbook(steps)).await;
    let run = start(&fixture, json!({ "supervised": true })).await;
    assert_eq!(run["supervised"], true);
    let supervisor = Job::of_supervisor(&fixture.viber).await;
    (fixture, run, supervisor)
}

/// What a call is told that was carried out.
fn told(response: &ApprovalResponse) -> &str {
    assert_eq!(response.decision, Decision::Answer, "{response:?}");
    response.answer.as_deref().expect("words")
}

/// Why a call was refused.
fn refused(response: &ApprovalResponse) -> &str {
    assert_eq!(response.decision, Decision::Deny, "{response:?}");
    response.note.as_deref().expect("words")
}

fn run_step(label: &str) -> (&'static str, Value) {
    ("run_step", json!({ "step": label }))
}

/// The supervisor ends its run, and then itself.
async fn finishes(mut supervisor: Job, machine: &FakeMachine, summary: &str) {
    let said = supervisor.call(machine, "finish", json!({ "summary": summary })).await;
    told(&said);
    supervisor.tell(machine, vec![completed(summary)]).await;
}

/// A step is asked for, done, and told.
async fn does(supervisor: &mut Job, machine: &FakeMachine, label: &str) {
    let calls = supervisor.calls(machine, &[run_step(label)]).await;
    Job::of_step(machine, label).await.completes(machine, &format!("{label} is done.")).await;
    let response = answered(machine, &calls[0]).await;
    assert!(told(&response).contains(&format!("{label} is done.")), "{response:?}");
}

async fn steps_that_are_asked_for_together_run_side_by_side(engine: Engine) {
    let (fixture, run, mut supervisor) = supervised(engine, STEPS).await;
    let machine = &fixture.viber;
    assert_eq!(supervisor.submit.agent_id, "default");
    for word in ["Prepare a feature branch", "1. [coder] One.", "after: 1, 2"] {
        assert!(supervisor.submit.goal.contains(word), "{word} in {}", supervisor.submit.goal);
    }
    // Nothing begins by itself.
    tokio::time::sleep(QUIET).await;
    assert_eq!(states(&run_now(&fixture.operator, &run).await), ["pending"; 3]);
    let calls = supervisor.calls(machine, &[run_step("1"), run_step("2")]).await;
    let mut jobs = Job::side_by_side(machine, 2).await;
    // These are no questions to people.
    let approvals = fixture.operator.get("/api/v1/approvals").await.expect(200).json();
    assert_eq!(approvals["items"], json!([]));
    for call in &calls {
        fixture.operator.get(&format!("/api/v1/approvals/{call}")).await.expect(404);
        let word = json!({ "decision": "answer", "digest": format!("digest of {call}"), "answer": "done" });
        fixture.operator.post(&format!("/api/v1/approvals/{call}"), &word).await.expect(404);
    }
    let mut second = jobs.remove("2").expect("it runs");
    second.makes(machine, "two.txt", b"2").await;
    second.completes(machine, "Two of two.").await;
    let answer = answered(machine, &calls[1]).await;
    assert!(told(&answer).contains("Two of two.") && told(&answer).contains("two.txt"), "{answer:?}");
    jobs.remove("1").expect("it runs").completes(machine, "One of one.").await;
    assert!(told(&answered(machine, &calls[0]).await).contains("One of one."));
    // What is done is told again, not done again.
    let again = supervisor.call(machine, "run_step", json!({ "step": 1 })).await;
    assert!(told(&again).contains("Step 1 is done."), "{again:?}");
    let instruction = json!({ "step": "3", "instruction": "Three, and slowly." });
    let calls = supervisor.calls(machine, &[("run_step", instruction)]).await;
    let third = Job::of_step(machine, "3").await;
    assert!(third.submit.goal.starts_with("Three, and slowly."), "{}", third.submit.goal);
    assert_eq!(third.files(), ["step-1.md", "step-2.md", "two.txt"]);
    third.completes(machine, "Slowly done.").await;
    answered(machine, &calls[0]).await;
    finishes(supervisor, machine, "All three are done.").await;
    let done = run_in(&fixture.operator, &run, "completed").await;
    assert_eq!((&done["summary"], states(&done)), (&json!("All three are done."), vec!["done".to_owned(); 3]));
    let tasks = fixture.operator.get("/api/v1/tasks?limit=200").await.expect(200).json();
    assert_eq!(tasks["items"].as_array().map(Vec::len), Some(4), "a supervisor and three steps");
    fixture.board.assert_invariants().await;
}

async fn a_supervisor_adds_and_skips_steps(engine: Engine) {
    let (fixture, run, mut supervisor) = supervised(engine, STEPS).await;
    let machine = &fixture.viber;
    does(&mut supervisor, machine, "1").await;
    let more = json!({ "agent": "git", "instruction": "Look twice.", "after": ["1"] });
    let added = supervisor.call(machine, "add_step", more).await;
    assert!(told(&added).contains("1a"), "{added:?}");
    let shown = step(&run_now(&fixture.operator, &run).await, "1a");
    assert_eq!((&shown["added"], &shown["agentId"], &shown["state"]), (&json!(true), &json!("git"), &json!("pending")));
    does(&mut supervisor, machine, "1a").await;
    let skipped = supervisor.call(machine, "skip_step", json!({ "step": "2", "reason": "Git is asleep" })).await;
    told(&skipped);
    let shown = step(&run_now(&fixture.operator, &run).await, "2");
    assert_eq!((&shown["state"], &shown["skipped"]["reason"]), (&json!("skipped"), &json!("Git is asleep")));
    does(&mut supervisor, machine, "3").await;
    finishes(supervisor, machine, "Two of three.").await;
    let done = run_in(&fixture.operator, &run, "completed").await;
    assert_eq!(states(&done), ["done", "done", "skipped", "done"], "1, 1a, 2, 3");
    fixture.board.assert_invariants().await;
}

async fn a_supervisor_is_refused_with_words(engine: Engine) {
    let (fixture, run, mut supervisor) = supervised(engine, STEPS).await;
    let machine = &fixture.viber;
    for (tool, args, word) in [
        ("run_step", json!({ "step": "3" }), "comes after 1, 2"),
        ("run_step", json!({ "step": "9" }), "no step"),
        ("run_step", json!({}), "which step"),
        ("run_step", json!({ "step": "1", "instruction": "x".repeat(17_000) }), "16 KiB"),
        ("skip_step", json!({ "step": "1", "reason": " " }), "why"),
        ("skip_step", json!({ "step": "7", "reason": "no" }), "no step"),
        ("add_step", json!({ "agent": "nobody", "instruction": "x" }), "nobody"),
        ("add_step", json!({ "agent": "git", "instruction": "x", "after": ["8"] }), "no step"),
        ("add_step", json!({ "agent": "git", "instruction": "x", "viber": "elsewhere" }), "elsewhere"),
        ("finish", json!({ "summary": "All is well." }), "neither done nor skipped"),
        ("delete_everything", json!({}), ""),
    ] {
        let response = supervisor.call(machine, tool, args.clone()).await;
        assert!(refused(&response).contains(word), "{tool} {word}: {response:?}");
    }
    assert_eq!(states(&run_now(&fixture.operator, &run).await), ["pending"; 3], "nothing came of it");
    let calls = supervisor.calls(machine, &[run_step("1")]).await;
    let first = Job::of_step(machine, "1").await;
    for (tool, args) in [
        ("skip_step", json!({ "step": "1", "reason": "It takes so long" })),
        ("finish", json!({ "summary": "Enough." })),
    ] {
        refused(&supervisor.call(machine, tool, args).await);
    }
    first.completes(machine, "One.").await;
    told(&answered(machine, &calls[0]).await);
    refused(&supervisor.call(machine, "skip_step", json!({ "step": "1", "reason": "too late" })).await);
    assert_eq!(states(&run_now(&fixture.operator, &run).await), ["done", "pending", "pending"]);
    act(&fixture.operator, &run, "stop").await.expect(200);
    fixture.board.assert_invariants().await;
}

async fn a_supervisor_passes_no_gate(engine: Engine) {
    let (fixture, run, mut supervisor) = supervised(engine, "1. [coder] Push.\n   - Approve: before").await;
    let machine = &fixture.viber;
    let calls = supervisor.calls(machine, &[run_step("1")]).await;
    let digest = open_gate(&fixture.operator, &run, "1").await;
    refused(&supervisor.call(machine, "skip_step", json!({ "step": "1", "reason": "Nobody answers" })).await);
    refused(&supervisor.call(machine, "finish", json!({ "summary": "Enough." })).await);
    // A person looks at this: asked for otherwise meanwhile, what they see is what runs.
    let other = json!({ "step": "1", "instruction": "Push with force." });
    let other = supervisor.calls(machine, &[("run_step", other)]).await;
    tokio::time::sleep(QUIET).await;
    let now = step(&run_now(&fixture.operator, &run).await, "1");
    assert_eq!((&now["state"], &now["taskId"]), (&json!("gate"), &Value::Null), "{now:#}");
    assert_eq!((&now["gateDigest"], &now["instruction"]), (&digest, &json!("Push.")), "{now:#}");
    act_on(&fixture.operator, &run, "1", json!({ "action": "allow", "digest": digest })).await.expect(200);
    let job = Job::of_step(machine, "1").await;
    assert!(job.submit.goal.starts_with("Push.\n"), "{}", job.submit.goal);
    job.completes(machine, "Pushed.").await;
    for call in calls.iter().chain(&other) {
        answered(machine, call).await;
    }
    finishes(supervisor, machine, "Pushed.").await;
    run_in(&fixture.operator, &run, "completed").await;
    fixture.board.assert_invariants().await;
}

async fn a_denials_note_reaches_the_supervisor(engine: Engine) {
    let (fixture, run, mut supervisor) = supervised(engine, "1. [coder] Push.\n   - Approve: before").await;
    let machine = &fixture.viber;
    let calls = supervisor.calls(machine, &[run_step("1")]).await;
    let denied = open_gate(&fixture.operator, &run, "1").await;
    decide(&fixture.operator, &run, "1", ("deny", "Not to main")).await.expect(200);
    assert!(refused(&answered(machine, &calls[0]).await).contains("Not to main"));
    assert_eq!(states(&run_now(&fixture.operator, &run).await), ["pending"]);
    // The same is not asked again, something else is.
    assert!(refused(&supervisor.call(machine, "run_step", json!({ "step": "1" })).await).contains("Not to main"));
    let other = json!({ "step": "1", "instruction": "Push to a branch." });
    let calls = supervisor.calls(machine, &[("run_step", other)]).await;
    let asked = open_gate(&fixture.operator, &run, "1").await;
    assert_ne!(asked, denied);
    act_on(&fixture.operator, &run, "1", json!({ "action": "allow", "digest": denied })).await.expect(409);
    decide(&fixture.operator, &run, "1", ("allow", "")).await.expect(200);
    let job = Job::of_step(machine, "1").await;
    assert!(job.submit.goal.starts_with("Push to a branch."), "{}", job.submit.goal);
    job.completes(machine, "Pushed.").await;
    told(&answered(machine, &calls[0]).await);
    finishes(supervisor, machine, "Pushed to a branch.").await;
    run_in(&fixture.operator, &run, "completed").await;
    fixture.board.assert_invariants().await;
}

async fn a_failed_step_is_told_and_run_again(engine: Engine) {
    let (fixture, run, mut supervisor) = supervised(engine, "1. [coder] One.\n   - Gives: notes.md").await;
    let machine = &fixture.viber;
    let calls = supervisor.calls(machine, &[run_step("1")]).await;
    Job::of_step(machine, "1").await.completes(machine, "Here they are.").await;
    let response = answered(machine, &calls[0]).await;
    assert!(told(&response).contains("failed") && told(&response).contains("notes.md"), "{response:?}");
    assert_eq!(run_now(&fixture.operator, &run).await["needs"], Value::Null, "the supervisor sees to it");
    let calls = supervisor.calls(machine, &[run_step("1")]).await;
    let mut second = Job::of_step(machine, "1").await;
    second.makes(machine, "notes.md", b"# One").await;
    second.completes(machine, "Now they are.").await;
    told(&answered(machine, &calls[0]).await);
    finishes(supervisor, machine, "Done.").await;
    assert_eq!(step(&run_in(&fixture.operator, &run, "completed").await, "1")["attempt"], 2);
    fixture.board.assert_invariants().await;
}

async fn a_supervisor_that_fails_goes_on_from_the_ledger(engine: Engine) {
    let (fixture, run, mut supervisor) = supervised(engine, STEPS).await;
    let machine = &fixture.viber;
    does(&mut supervisor, machine, "1").await;
    supervisor.calls(machine, &[run_step("2")]).await;
    let second = Job::of_step(machine, "2").await;
    supervisor.fails(machine, "The model is away.").await;
    let mut next = Job::of_supervisor(machine).await;
    let context = next.submit.context.clone().expect("something to go on from");
    let ledger = context["ledger"].as_str().expect("a ledger");
    assert!(ledger.contains("1 is done.") && ledger.matches("State: running").count() == 2, "{ledger}");
    // What was done stays done, and what runs is waited for.
    let again = next.call(machine, "run_step", json!({ "step": "1" })).await;
    assert!(told(&again).contains("Step 1 is done."), "{again:?}");
    let calls = next.calls(machine, &[run_step("2")]).await;
    second.completes(machine, "2 is done.").await;
    assert!(told(&answered(machine, &calls[0]).await).contains("2 is done."));
    does(&mut next, machine, "3").await;
    finishes(next, machine, "Done in two goes.").await;
    let done = run_in(&fixture.operator, &run, "completed").await;
    for step in done["steps"].as_array().expect("steps") {
        assert_eq!(step["attempt"], 1, "{step:#}");
    }
    fixture.board.assert_invariants().await;
}

async fn a_supervisor_is_started_five_times_at_most(engine: Engine) {
    let (fixture, run, mut supervisor) = supervised(engine, STEPS).await;
    let machine = &fixture.viber;
    fixture.board.fail("playbooks::after_pauses", "return").await;
    for _ in 1..5 {
        supervisor.fails(machine, "The model is away.").await;
        supervisor = Job::of_supervisor(machine).await;
    }
    supervisor.fails(machine, "The model is away.").await;
    let waits = run_that(&fixture.operator, &run, "a person is needed", |run| run["needs"] == "supervisor").await;
    assert_eq!((&waits["state"], states(&waits)), (&json!("running"), vec!["pending".to_owned(); 3]));
    let listed = fixture.operator.get(RUNS).await.expect(200).json();
    assert_eq!(listed["items"][0]["needs"], "supervisor");
    act(&fixture.operator, &run, "stop").await.expect(200);
    run_that(&fixture.operator, &run, "it is over", |run| count(run, "stopped") == 3).await;
    fixture.board.assert_invariants().await;
}

async fn a_supervisor_that_ends_without_finish_is_started_again(engine: Engine) {
    let (fixture, run, mut supervisor) = supervised(engine, "1. [coder] One.").await;
    let machine = &fixture.viber;
    supervisor.tell(machine, vec![text("I think that is it."), completed("All done, I think.")]).await;
    let mut next = Job::of_supervisor(machine).await;
    assert_eq!(run_now(&fixture.operator, &run).await["state"], "running", "nothing was done");
    does(&mut next, machine, "1").await;
    // Every step is done: its end is the run's.
    next.completes(machine, "That was all.").await;
    run_in(&fixture.operator, &run, "completed").await;
    fixture.board.assert_invariants().await;
}

async fn a_stopped_run_stops_its_supervisor(engine: Engine) {
    let (fixture, run, mut supervisor) = supervised(engine, STEPS).await;
    let machine = &fixture.viber;
    supervisor.calls(machine, &[run_step("1")]).await;
    let mut first = Job::of_step(machine, "1").await;
    act(&fixture.operator, &run, "stop").await.expect(200);
    for job in [&mut first, &mut supervisor] {
        let task = job.task().clone();
        machine
            .told("a stop", |command| match command {
                Command::Stop { task_id, .. } if *task_id == task => Some(()),
                _ => None,
            })
            .await;
        job.tell(machine, vec![stopped()]).await;
        assert_eq!(fixture.operator.task(task.as_str()).await["state"], "stopped");
    }
    let over = run_that(&fixture.operator, &run, "it is over", |run| count(run, "stopped") == 3).await;
    assert_eq!((&over["state"], over["id"].as_str()), (&json!("stopped"), Some(id(&run, "id"))));
    fixture.board.assert_invariants().await;
}

async fn who_supervises_nothing_is_denied(engine: Engine) {
    let (fixture, run, mut supervisor) = supervised(engine, STEPS).await;
    let machine = &fixture.viber;
    let calls = supervisor.calls(machine, &[run_step("1")]).await;
    let mut first = Job::of_step(machine, "1").await;
    // The agent of a step, and that of a task of no run.
    refused(&first.call(machine, "finish", json!({ "summary": "I am done, so all is." })).await);
    refused(&first.call(machine, "run_step", json!({ "step": "3" })).await);
    fixture.operator.submit(&fixture.viber_id, "Sweep the floor").await;
    let mut other = Job::next(machine).await;
    assert_eq!(other.submit.playbook, None);
    for (tool, args) in [run_step("2"), ("skip_step", json!({ "step": "2", "reason": "x" }))] {
        refused(&other.call(machine, tool, args).await);
    }
    // Nor does another machine speak for the supervisor: its report of a task that is not its own is refused.
    let den = FakeMachine::connected(&fixture.board, "den").await;
    fixture.operator.submit(den.id.as_str(), "Sweep here").await;
    let mut theirs = Job::next(&den).await;
    refused(&theirs.call(&den, "finish", json!({ "summary": "Theirs" })).await);
    assert_eq!(states(&run_now(&fixture.operator, &run).await), ["running", "pending", "pending"]);
    other.completes(machine, "Swept.").await;
    theirs.completes(&den, "Swept.").await;
    first.completes(machine, "One.").await;
    told(&answered(machine, &calls[0]).await);
    act(&fixture.operator, &run, "stop").await.expect(200);
    fixture.board.assert_invariants().await;
}
