//! Gates: a person decides before a step begins or whether it is done, about exactly what they saw.

use board_tests::board::HOME;

use super::*;

crate::on_both_databases!(
    nothing_begins_before_a_person_lets_it,
    a_denied_step_fails_with_the_note,
    a_person_decides_whether_a_step_is_done,
    a_decision_is_about_what_was_seen,
    a_gate_is_decided_once,
    the_teams_settings_say_who_decides,
    whoever_started_a_run_may_be_kept_from_deciding,
    a_gate_outlives_the_board,
);

/// Where the team's settings of approvals are.
const RULES: &str = "/api/v1/approval-rules";

/// A run with one gate, which is open.
async fn at_a_gate(engine: Engine, point: &str) -> (Fixture<FakeMachine>, Value) {
    let text = playbook(&format!("1. [coder] Push <branch>.\n   - Approve: {point}\n2. [git] Tell everybody."));
    let fixture = with_playbook(engine, &text).await;
    let run = start(&fixture, json!({ "inputs": { "branch": "release/v1" } })).await;
    (fixture, run)
}

/// How many tasks of the team there are.
async fn tasks(fixture: &Fixture<FakeMachine>) -> usize {
    let tasks = fixture.operator.get("/api/v1/tasks").await.expect(200).json();
    tasks["items"].as_array().expect("tasks").len()
}

async fn nothing_begins_before_a_person_lets_it(engine: Engine) {
    let (fixture, run) = at_a_gate(engine, "before").await;
    let gate = step_in(&fixture.operator, &run, "1", "gate").await;
    assert_eq!((&gate["instruction"], &gate["taskId"]), (&json!("Push release/v1."), &Value::Null), "{gate:#}");
    let waits = run_that(&fixture.operator, &run, "a person is needed", |run| run["needs"] == "gate").await;
    assert_eq!(waits["state"], "running");
    tokio::time::sleep(QUIET).await;
    assert_eq!((tasks(&fixture).await, states(&run_now(&fixture.operator, &run).await)[0].as_str()), (0, "gate"));
    let digest = gate["gateDigest"].clone();
    let word = json!({ "action": "allow", "digest": digest, "note": " Read it. " });
    act_on(&fixture.operator, &run, "1", word).await.expect(200);
    let job = Job::of_step(&fixture.viber, "1").await;
    assert!(job.submit.goal.starts_with("Push release/v1."), "{}", job.submit.goal);
    let told = step(&run_now(&fixture.operator, &run).await, "1");
    let word = &told["decision"];
    assert_eq!((&word["allowed"], &word["note"]), (&json!(true), &json!("Read it.")), "{told:#}");
    job.completes(&fixture.viber, "Pushed.").await;
    Job::of_step(&fixture.viber, "2").await.completes(&fixture.viber, "Told.").await;
    let done = run_in(&fixture.operator, &run, "completed").await;
    assert_eq!(done["needs"], Value::Null);
    let audit = fixture.board.token(HOME, "admin").await.get("/api/v1/audit").await.expect(200).json();
    let rows = audit["items"].as_array().expect("rows");
    let is_told = |row: &&Value| row["action"] == "gate.allow" && row.to_string().contains(id(&run, "id"));
    assert_eq!(rows.iter().filter(is_told).count(), 1, "the decision is in the audit: {rows:#?}");
    fixture.board.assert_invariants().await;
}

async fn a_denied_step_fails_with_the_note(engine: Engine) {
    let (fixture, run) = at_a_gate(engine, "before").await;
    decide(&fixture.operator, &run, "1", ("deny", "Not on a Friday")).await.expect(200);
    let failed = step_in(&fixture.operator, &run, "1", "failed").await;
    assert!(failed["failure"].as_str().is_some_and(|why| why.contains("Not on a Friday")), "{failed:#}");
    run_that(&fixture.operator, &run, "a person is needed", |run| run["needs"] == "step").await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(states(&run_now(&fixture.operator, &run).await), ["failed", "pending"]);
    assert_eq!(tasks(&fixture).await, 0);
    // Who wants it after all is asked again.
    act_on(&fixture.operator, &run, "1", json!({ "action": "retry" })).await.expect(200);
    decide(&fixture.operator, &run, "1", ("allow", "It is Monday")).await.expect(200);
    Job::of_step(&fixture.viber, "1").await.completes(&fixture.viber, "Pushed.").await;
    Job::of_step(&fixture.viber, "2").await.completes(&fixture.viber, "Told.").await;
    run_in(&fixture.operator, &run, "completed").await;
    fixture.board.assert_invariants().await;
}

async fn a_person_decides_whether_a_step_is_done(engine: Engine) {
    let (fixture, run) = at_a_gate(engine, "after").await;
    let first = Job::of_step(&fixture.viber, "1").await;
    first.completes(&fixture.viber, "Pushed, I think.").await;
    let gate = step_in(&fixture.operator, &run, "1", "gate").await;
    assert_eq!(gate["summary"], "Pushed, I think.", "{gate:#}");
    decide(&fixture.operator, &run, "1", ("deny", "It is not there")).await.expect(200);
    let failed = step_in(&fixture.operator, &run, "1", "failed").await;
    assert!(failed["failure"].as_str().is_some_and(|why| why.contains("It is not there")), "{failed:#}");
    act_on(&fixture.operator, &run, "1", json!({ "action": "retry" })).await.expect(200);
    let second = Job::of_step(&fixture.viber, "1").await;
    assert!(second.submit.goal.contains("It is not there"), "it is told why: {}", second.submit.goal);
    second.completes(&fixture.viber, "Now it is.").await;
    let again = open_gate(&fixture.operator, &run, "1").await;
    assert_ne!(again, gate["gateDigest"], "another attempt is another thing to decide about");
    let stale = json!({ "action": "allow", "digest": gate["gateDigest"] });
    act_on(&fixture.operator, &run, "1", stale).await.expect(409);
    tokio::time::sleep(QUIET).await;
    assert_eq!(step(&run_now(&fixture.operator, &run).await, "2")["state"], "pending");
    decide(&fixture.operator, &run, "1", ("allow", "")).await.expect(200);
    Job::of_step(&fixture.viber, "2").await.completes(&fixture.viber, "Told.").await;
    run_in(&fixture.operator, &run, "completed").await;
    fixture.board.assert_invariants().await;
}

async fn a_decision_is_about_what_was_seen(engine: Engine) {
    let (fixture, run) = at_a_gate(engine, "before").await;
    let digest = open_gate(&fixture.operator, &run, "1").await;
    let other = start(&fixture, json!({ "inputs": { "branch": "main" } })).await;
    let others = open_gate(&fixture.operator, &other, "1").await;
    assert_ne!(digest, others, "other inputs are another thing");
    for wrong in [others, json!("0".repeat(64)), json!(""), json!(digest.as_str().expect("text").to_uppercase())] {
        for action in ["allow", "deny"] {
            let word = json!({ "action": action, "digest": wrong });
            act_on(&fixture.operator, &run, "1", word).await.expect(409);
        }
    }
    // Without one nothing is decided either.
    let blind = act_on(&fixture.operator, &run, "1", json!({ "action": "allow" })).await.expect(422);
    assert_eq!(blind.code(), "digest_required");
    assert_eq!(states(&run_now(&fixture.operator, &run).await), ["gate", "pending"]);
    assert_eq!(tasks(&fixture).await, 0);
    act_on(&fixture.operator, &run, "1", json!({ "action": "allow", "digest": digest })).await.expect(200);
    Job::of_step(&fixture.viber, "1").await.completes(&fixture.viber, "Pushed.").await;
    fixture.board.assert_invariants().await;
}

async fn a_gate_is_decided_once(engine: Engine) {
    let (fixture, run) = at_a_gate(engine, "before").await;
    let digest = open_gate(&fixture.operator, &run, "1").await;
    let word = |action: &str| json!({ "action": action, "digest": digest });
    let (one, two) = tokio::join!(
        act_on(&fixture.operator, &run, "1", word("allow")),
        act_on(fixture.owner(), &run, "1", word("deny"))
    );
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409], "one of them decided: {one:#?} {two:#?}");
    if one.status == 200 {
        Job::of_step(&fixture.viber, "1").await.completes(&fixture.viber, "Pushed.").await;
    } else {
        step_in(&fixture.operator, &run, "1", "failed").await;
    }
    act_on(&fixture.operator, &run, "1", word("allow")).await.expect(409);
    act(&fixture.operator, &run, "stop").await.expect(200);
    fixture.board.assert_invariants().await;
}

/// Whether somebody is refused the decision, and nothing comes of it.
async fn may_not(person: &Person, run: &Value) {
    for action in ["allow", "deny"] {
        let digest = open_gate(person, run, "1").await;
        let word = json!({ "action": action, "digest": digest });
        act_on(person, run, "1", word).await.expect(403);
    }
    assert_eq!(states(&run_now(person, run).await), ["gate", "pending"]);
}

async fn the_teams_settings_say_who_decides(engine: Engine) {
    let (fixture, run) = at_a_gate(engine, "before").await;
    open_gate(&fixture.operator, &run, "1").await;
    fixture.owner().put(RULES, &json!({ "minRole": "admin" })).await.expect(200);
    may_not(&fixture.operator, &run).await;
    let other = fixture.board.token(HOME, "operator").await;
    may_not(&other, &run).await;
    let admin = fixture.board.token(HOME, "admin").await;
    decide(&admin, &run, "1", ("allow", "")).await.expect(200);
    Job::of_step(&fixture.viber, "1").await.completes(&fixture.viber, "Pushed.").await;
    fixture.board.assert_invariants().await;
}

async fn whoever_started_a_run_may_be_kept_from_deciding(engine: Engine) {
    let (fixture, run) = at_a_gate(engine, "before").await;
    open_gate(&fixture.operator, &run, "1").await;
    fixture.owner().put(RULES, &json!({ "notRequester": true })).await.expect(200);
    may_not(&fixture.operator, &run).await;
    // A token is the person who made it.
    let made = fixture.owner().post("/api/v1/tokens", &json!({ "name": "own", "role": "admin" })).await.expect(201);
    let own = Person::with_token(&fixture.board.url, made.json()["token"].as_str().expect("a token"));
    let theirs = try_start_as(&fixture, &own, json!({ "inputs": { "branch": "x" } })).await.expect(201).json();
    open_gate(&fixture.operator, &theirs, "1").await;
    for same in [&own, fixture.owner()] {
        may_not(same, &theirs).await;
    }
    decide(&own, &run, "1", ("allow", "")).await.expect(200);
    decide(&fixture.operator, &theirs, "1", ("deny", "No")).await.expect(200);
    Job::of_step(&fixture.viber, "1").await.completes(&fixture.viber, "Pushed.").await;
    fixture.board.assert_invariants().await;
}

async fn a_gate_outlives_the_board(engine: Engine) {
    let (mut fixture, run) = at_a_gate(engine, "before").await;
    let digest = open_gate(&fixture.operator, &run, "1").await;
    fixture.viber.leave().await;
    fixture.board.kill9();
    fixture.board.restart().await;
    assert_eq!(open_gate(&fixture.operator, &run, "1").await, digest);
    act_on(&fixture.operator, &run, "1", json!({ "action": "allow", "digest": digest })).await.expect(200);
    // The decision is committed: the next Board acts on it, and the machine hears of it when it is back.
    fixture.board.kill9();
    fixture.board.restart().await;
    fixture.viber.come_back().await;
    let job = Job::of_step(&fixture.viber, "1").await;
    assert_eq!(job.submit.attempt, 1);
    job.completes(&fixture.viber, "Pushed.").await;
    Job::of_step(&fixture.viber, "2").await.completes(&fixture.viber, "Told.").await;
    run_in(&fixture.operator, &run, "completed").await;
    fixture.board.assert_invariants().await;
}
