//! A run as written: its steps in order and side by side, what they hand over, what breaks, who may do what with it.

use std::{collections::BTreeSet, time::Duration};

use board_tests::{
    Neighbour,
    board::HOME,
    fake_daemon::stopped,
    fake_machine::hash,
    wait::{SLACK, within},
};

use super::*;

crate::on_both_databases!(
    the_release_runs_as_it_is_written,
    what_waits_for_nothing_runs_side_by_side,
    eight_steps_run_at_once,
    what_cannot_run_is_refused,
    the_same_key_starts_one_run,
    a_broken_step_is_tried_again_and_then_asks,
    a_failed_step_is_skipped_with_a_reason,
    a_step_that_hands_nothing_over_fails,
    what_a_step_made_goes_to_the_next_one_on_another_viber,
    a_paused_run_starts_nothing,
    a_stopped_run_stops_its_steps,
    a_step_whose_session_is_deleted_fails,
    runs_are_listed_by_pages,
    who_may_not_is_refused,
);

/// What a stop may take until every machine was told.
const STOP_TIMEOUT: Duration = Duration::from_secs(12);

async fn the_release_runs_as_it_is_written(engine: Engine) {
    let fixture = with_playbook(engine, RELEASE).await;
    let files = playbooks(&fixture).await;
    let file = &files["items"][0];
    assert_eq!((&file["name"], &file["errors"]), (&json!("release-feature"), &json!([])), "{files:#}");
    assert_eq!((&file["hash"], &file["playbook"]["inputs"][0]["name"]), (&json!(hash(RELEASE)), &json!("version")));
    let run = start(&fixture, json!({ "hash": hash(RELEASE), "inputs": { "version": "4.12.0" } })).await;
    assert_eq!(
        (&run["playbook"], &run["state"], &run["supervised"], &run["hash"]),
        (&json!("release-feature"), &json!("running"), &json!(false), &json!(hash(RELEASE)))
    );
    let machine = &fixture.viber;
    let first = Job::of_step(machine, "1").await;
    assert_eq!((first.submit.agent_id.as_str(), first.submit.attempt), ("coder", 1));
    assert!(first.submit.goal.starts_with("Run all tests and ensure they pass."), "{}", first.submit.goal);
    assert!(first.submit.goal.contains("Prepare a feature branch for release."), "{}", first.submit.goal);
    assert_eq!(first.submit.playbook.as_ref().map(|playbook| playbook.run_id.to_string()), Some(id(&run, "id").into()));
    assert_eq!(states(&run_now(&fixture.operator, &run).await), ["running", "pending", "pending", "pending"]);
    // What changes on the machine now is of no consequence for this run.
    machine.write("playbooks/release-feature.md", &RELEASE.replace("Bump", "Forget")).await;
    first.completes(machine, "All 212 pass.").await;
    let second = Job::of_step(machine, "2").await;
    assert!(second.submit.goal.starts_with("Bump the version in package.json."), "{}", second.submit.goal);
    assert_eq!(second.files(), ["step-1.md"]);
    let handed = second.file(&fixture.board, machine, "step-1.md").await;
    assert!(handed.contains("Run all tests") && handed.contains("All 212 pass."), "{handed}");
    second.completes(machine, "It is 4.12.0 now.").await;
    let third = Job::of_step(machine, "3").await;
    assert_eq!(third.submit.agent_id, "git");
    assert!(third.submit.goal.starts_with("Create a new branch named `release/v4.12.0`."), "{}", third.submit.goal);
    third.completes(machine, "Done.").await;
    Job::of_step(machine, "4").await.completes(machine, "The PR is open.").await;
    let done = run_in(&fixture.operator, &run, "completed").await;
    assert_eq!(states(&done), ["done"; 4]);
    assert_eq!((&done["text"], &done["inputs"]), (&json!(RELEASE), &json!({ "version": "4.12.0" })));
    let steps = done["steps"].as_array().expect("steps");
    let sessions: BTreeSet<&str> = steps.iter().map(|step| id(step, "sessionId")).collect();
    assert_eq!(sessions.len(), 4, "each has its own: {done:#}");
    for step in steps {
        assert_eq!((&step["attempt"], &step["viberId"]), (&json!(1), &json!(fixture.viber_id)), "{step:#}");
        assert_eq!(fixture.operator.task(id(step, "taskId")).await["state"], "completed");
    }
    assert_eq!(step(&done, "4")["summary"], "The PR is open.");
    // Its viber has the ledger, and the last one tells of the end.
    machine
        .told("the ledger of the end", |command| match command {
            Command::Ledger(ledger) if ledger.text.contains("- State: completed") => {
                assert_eq!(ledger.run_id.as_str(), id(&run, "id"));
                let (text, digest) = (&ledger.text, id(&run, "hash"));
                assert!(text.contains(&digest[..12]) && !text.contains(digest) && !text.contains("vib_"), "{text}");
                Some(())
            }
            _ => None,
        })
        .await;
    fixture.board.assert_invariants().await;
}

async fn what_waits_for_nothing_runs_side_by_side(engine: Engine) {
    let steps = "1. [coder] One.\n2. [git] Two.\n   - After: none\n3. [coder] Three.\n   - After: 1, 2";
    let fixture = with_playbook(engine, &playbook(steps)).await;
    let run = start(&fixture, json!({})).await;
    let mut jobs = Job::side_by_side(&fixture.viber, 2).await;
    assert_eq!(jobs.keys().collect::<Vec<_>>(), ["1", "2"]);
    jobs.remove("2").expect("it runs").completes(&fixture.viber, "Two.").await;
    let half = step_in(&fixture.operator, &run, "2", "done").await;
    assert_eq!(half["attempt"], 1);
    assert_eq!(step(&run_now(&fixture.operator, &run).await, "3")["state"], "pending");
    jobs.remove("1").expect("it runs").completes(&fixture.viber, "One.").await;
    let third = Job::of_step(&fixture.viber, "3").await;
    assert_eq!(third.files(), ["step-1.md", "step-2.md"]);
    third.completes(&fixture.viber, "Three.").await;
    run_in(&fixture.operator, &run, "completed").await;
    fixture.board.assert_invariants().await;
}

async fn eight_steps_run_at_once(engine: Engine) {
    let steps: String = (1..=12).map(|n| format!("{n}. [coder] Shelf {n}.\n   - After: none\n")).collect();
    let fixture = with_playbook(engine, &playbook(&steps)).await;
    let run = start(&fixture, json!({})).await;
    let mut jobs = Job::side_by_side(&fixture.viber, 8).await;
    tokio::time::sleep(QUIET).await;
    let now = run_now(&fixture.operator, &run).await;
    assert_eq!((count(&now, "running"), count(&now, "pending")), (8, 4), "{now:#}");
    for _ in 0..4 {
        let (_, job) = jobs.pop_first().expect("it runs");
        job.completes(&fixture.viber, "Done.").await;
        let next = Job::next(&fixture.viber).await;
        jobs.insert(next.step().expect("a step").to_owned(), next);
        assert_eq!((jobs.len(), count(&run_now(&fixture.operator, &run).await, "running")), (8, 8));
    }
    for job in jobs.into_values() {
        job.completes(&fixture.viber, "Done.").await;
    }
    run_in(&fixture.operator, &run, "completed").await;
    fixture.board.assert_invariants().await;
}

async fn what_cannot_run_is_refused(engine: Engine) {
    let fixture = with_playbook(engine, RELEASE).await;
    let refused = try_start(&fixture, json!({})).await.expect(422);
    assert_eq!(refused.code(), "missing_input");
    assert!(refused.body.contains("version"), "{}", refused.body);
    let unknown = json!({ "inputs": { "version": "1", "colour": "red" } });
    assert!(try_start(&fixture, unknown).await.expect(422).body.contains("colour"));
    let inputs = json!({ "version": "1" });
    let stale = json!({ "inputs": inputs, "hash": hash("another text") });
    assert_eq!(try_start(&fixture, stale).await.expect(409).code(), "raced");
    try_start(&fixture, json!({ "inputs": inputs, "playbook": "none" })).await.expect(404);
    let nowhere = json!({ "inputs": inputs, "viberId": protocol::ViberId::new(1) });
    assert!(matches!(try_start(&fixture, nowhere).await.status, 404 | 422));
    let mistakes = [
        (playbook("1. [coder] One.\n2. [nobody] Two."), 8, "nobody"),
        (playbook("1. [coder] One.\n   - After: 2\n2. [coder] Two.\n   - After: 1"), 8, ""),
        (playbook("1. [coder] One.\n   - Retry: often"), 8, "Retry"),
        (playbook("1. [coder] One.\n   - Viber: <where>"), 8, "Viber"),
        ("# Playbook: x\n\n## Goal\nNothing.\n".to_owned(), 1, "Steps"),
    ];
    for (text, line, word) in mistakes {
        fixture.viber.write("playbooks/release-feature.md", &text).await;
        let refused = try_start(&fixture, json!({})).await.expect(422);
        assert_eq!(refused.code(), "bad_playbook", "{text}");
        let told = refused.body.contains(word) && refused.body.contains(&format!("line {line}: "));
        assert!(told, "{line} {word}: {}", refused.body);
        let files = playbooks(&fixture).await;
        assert_eq!(files["items"][0]["errors"][0]["line"], line, "{files:#}");
    }
    // A viber may come later: whoever is not there when the turn of its step comes fails it.
    for target in ["Viber: elsewhere", "Viber: pool=large"] {
        let text = playbook(&format!("1. [coder] One.\n   - {target}"));
        fixture.viber.write("playbooks/release-feature.md", &text).await;
        let run = start(&fixture, json!({})).await;
        let failed = step_in(&fixture.operator, &run, "1", "failed").await;
        assert!(failed["failure"].as_str().is_some_and(|why| !why.is_empty()), "{failed:#}");
        act(&fixture.operator, &run, "stop").await.expect(200);
    }
    let tasks = fixture.operator.get("/api/v1/tasks").await.expect(200).json();
    assert_eq!(tasks["items"], json!([]), "no task was made");
    fixture.board.assert_invariants().await;
}

async fn the_same_key_starts_one_run(engine: Engine) {
    let fixture = with_playbook(engine, RELEASE).await;
    let body = wanted(&fixture, json!({ "inputs": { "version": "1" } }));
    let first = fixture.operator.post_once("k", RUNS, &body).await.expect(201).json();
    let again = fixture.operator.post_once("k", RUNS, &body).await.expect(201).json();
    assert_eq!(first["id"], again["id"]);
    let other = wanted(&fixture, json!({ "inputs": { "version": "2" } }));
    assert!(matches!(fixture.operator.post_once("k", RUNS, &other).await.status, 409 | 422), "another request");
    let listed = fixture.operator.get(RUNS).await.expect(200).json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1), "{listed:#}");
    let _first = Job::of_step(&fixture.viber, "1").await;
    act(&fixture.operator, &first, "stop").await.expect(200);
    fixture.board.assert_invariants().await;
}

async fn a_broken_step_is_tried_again_and_then_asks(engine: Engine) {
    let steps = "1. [coder] One.\n   - Retry: 1\n2. [coder] Two.\n3. [git] Three.\n   - After: none";
    let fixture = with_playbook(engine, &playbook(steps)).await;
    let run = start(&fixture, json!({})).await;
    let mut jobs = Job::side_by_side(&fixture.viber, 2).await;
    let first = jobs.remove("1").expect("it runs");
    let task = first.task().clone();
    first.fails(&fixture.viber, "The disk is full.").await;
    // By itself, and as another attempt of the same task.
    let second = Job::of_step(&fixture.viber, "1").await;
    assert_eq!((second.task(), second.submit.attempt), (&task, 2));
    second.fails(&fixture.viber, "It is still full.").await;
    let failed = step_in(&fixture.operator, &run, "1", "failed").await;
    assert_eq!(failed["attempt"], 2);
    assert!(failed["failure"].as_str().is_some_and(|why| why.contains("still full")), "{failed:#}");
    let waits = run_that(&fixture.operator, &run, "a person is needed", |run| run["needs"] == "step").await;
    assert_eq!((&waits["state"], &step(&waits, "2")["state"]), (&json!("running"), &json!("pending")));
    // The other branch goes on meanwhile.
    jobs.remove("3").expect("it runs").completes(&fixture.viber, "Three.").await;
    step_in(&fixture.operator, &run, "3", "done").await;
    act_on(&fixture.operator, &run, "2", json!({ "action": "retry" })).await.expect(409);
    act_on(&fixture.operator, &run, "1", json!({ "action": "retry" })).await.expect(200);
    let third = Job::of_step(&fixture.viber, "1").await;
    third.completes(&fixture.viber, "There was room.").await;
    assert_eq!(step_in(&fixture.operator, &run, "1", "done").await["attempt"], 3);
    act_on(&fixture.operator, &run, "1", json!({ "action": "retry" })).await.expect(409);
    Job::of_step(&fixture.viber, "2").await.completes(&fixture.viber, "Two.").await;
    let done = run_in(&fixture.operator, &run, "completed").await;
    assert_eq!(done["needs"], Value::Null, "{done:#}");
    fixture.board.assert_invariants().await;
}

async fn a_failed_step_is_skipped_with_a_reason(engine: Engine) {
    let fixture = with_playbook(engine, &playbook("1. [coder] One.\n2. [coder] Two.")).await;
    let run = start(&fixture, json!({})).await;
    Job::of_step(&fixture.viber, "1").await.fails(&fixture.viber, "No.").await;
    step_in(&fixture.operator, &run, "1", "failed").await;
    act_on(&fixture.operator, &run, "1", json!({ "action": "skip", "note": " " })).await.expect(422);
    act_on(&fixture.operator, &run, "1", json!({ "action": "dance" })).await.expect(422);
    act_on(&fixture.operator, &run, "9", json!({ "action": "retry" })).await.expect(404);
    act_on(&fixture.operator, &run, "1", json!({ "action": "skip", "note": "Tested by hand" })).await.expect(200);
    let second = Job::of_step(&fixture.viber, "2").await;
    let handed = second.file(&fixture.board, &fixture.viber, "step-1.md").await;
    assert!(handed.contains("skipped") && handed.contains("Tested by hand"), "{handed}");
    second.completes(&fixture.viber, "Two.").await;
    let done = run_in(&fixture.operator, &run, "completed").await;
    assert_eq!(states(&done), ["skipped", "done"]);
    assert_eq!(step(&done, "1")["skipped"]["reason"], "Tested by hand");
    fixture.board.assert_invariants().await;
}

async fn a_step_that_hands_nothing_over_fails(engine: Engine) {
    let steps = "1. [coder] One.\n   - Gives: notes.md, table.csv\n   - Retry: 1";
    let fixture = with_playbook(engine, &playbook(steps)).await;
    let run = start(&fixture, json!({})).await;
    let mut first = Job::of_step(&fixture.viber, "1").await;
    assert!(first.submit.goal.contains("notes.md, table.csv"), "{}", first.submit.goal);
    first.makes(&fixture.viber, "notes.md", b"# One").await;
    first.completes(&fixture.viber, "Both files are there, I promise.").await;
    // By itself, in the same session, and told what was missing.
    let again = Job::of_step(&fixture.viber, "1").await;
    assert!(again.submit.goal.contains("did not hand over table.csv"), "{}", again.submit.goal);
    again.completes(&fixture.viber, "They are there.").await;
    let failed = step_in(&fixture.operator, &run, "1", "failed").await;
    let why = failed["failure"].as_str().expect("why");
    assert!(why.contains("table.csv") && !why.contains("notes.md"), "{why}");
    act_on(&fixture.operator, &run, "1", json!({ "action": "retry" })).await.expect(200);
    let mut second = Job::of_step(&fixture.viber, "1").await;
    assert!(second.submit.goal.contains(why), "it is told what was wrong: {}", second.submit.goal);
    second.makes(&fixture.viber, "notes.md", b"# One").await;
    second.makes(&fixture.viber, "table.csv", b"a,b\n").await;
    second.completes(&fixture.viber, "Now they are.").await;
    assert_eq!(states(&run_in(&fixture.operator, &run, "completed").await), ["done"]);
    fixture.board.assert_invariants().await;
}

async fn what_a_step_made_goes_to_the_next_one_on_another_viber(engine: Engine) {
    let steps = "1. [coder] One.\n   - Gives: notes.md\n2. [default] Two.\n   - Viber: den\n3. [coder] Three.";
    let fixture = with_playbook(engine, &playbook(steps)).await;
    let den = FakeMachine::connected(&fixture.board, "den").await;
    let run = start(&fixture, json!({})).await;
    let mut first = Job::of_step(&fixture.viber, "1").await;
    first.makes(&fixture.viber, "notes.md", "# Zwölf\n".as_bytes()).await;
    let lost = ArtifactId::new(1_790_000_000_000);
    first.announces(&fixture.viber, (&lost, "lost.bin"), &[0, 159, 146, 150]).await;
    first.completes(&fixture.viber, "Two changes are in it.").await;
    let second = Job::of_step(&den, "2").await;
    assert_eq!(second.files(), ["notes.md", "step-1.md"]);
    assert_eq!(second.file(&fixture.board, &den, "notes.md").await, "# Zwölf\n");
    let handed = second.file(&fixture.board, &den, "step-1.md").await;
    assert!(handed.contains("Two changes are in it.") && handed.contains("lost.bin"), "{handed}");
    assert!(second.submit.goal.contains("lost.bin"), "what is missing is said: {}", second.submit.goal);
    // A viber that has nothing to do with it reads none of these files.
    let stranger = FakeMachine::connected(&fixture.board, "stranger").await;
    for file in &second.submit.attachments {
        read_blob(&fixture.board, &stranger, file.id.as_str()).await.expect(404);
    }
    second.completes(&den, "Looked at.").await;
    let third = Job::of_step(&fixture.viber, "3").await;
    assert_eq!(third.files(), ["step-2.md"], "what came before that is not its business");
    third.completes(&fixture.viber, "Three.").await;
    let done = run_in(&fixture.operator, &run, "completed").await;
    assert_eq!(step(&done, "2")["viberId"], den.id.as_str());
    fixture.board.assert_invariants().await;
}

async fn a_paused_run_starts_nothing(engine: Engine) {
    let fixture = with_playbook(engine, &playbook("1. [coder] One.\n2. [coder] Two.")).await;
    let run = start(&fixture, json!({})).await;
    let first = Job::of_step(&fixture.viber, "1").await;
    let paused = act(&fixture.operator, &run, "pause").await.expect(200).json();
    assert_eq!((&paused["paused"], &paused["state"]), (&json!(true), &json!("running")));
    first.completes(&fixture.viber, "What runs goes on.").await;
    step_in(&fixture.operator, &run, "1", "done").await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(states(&run_now(&fixture.operator, &run).await), ["done", "pending"]);
    assert_eq!(act(&fixture.operator, &run, "resume").await.expect(200).json()["paused"], false);
    Job::of_step(&fixture.viber, "2").await.completes(&fixture.viber, "Two.").await;
    run_in(&fixture.operator, &run, "completed").await;
    assert_eq!(act(&fixture.operator, &run, "pause").await.status, 409, "it has ended");
    fixture.board.assert_invariants().await;
}

async fn a_stopped_run_stops_its_steps(engine: Engine) {
    let steps = "1. [coder] One.\n2. [default] Two.\n   - After: none\n   - Viber: den\n3. [coder] Three.";
    let fixture = with_playbook(engine, &playbook(steps)).await;
    let den = FakeMachine::connected(&fixture.board, "den").await;
    let run = start(&fixture, json!({})).await;
    let (first, second) = (Job::of_step(&fixture.viber, "1").await, Job::of_step(&den, "2").await);
    let answer = act(&fixture.operator, &run, "stop").await.expect(200).json();
    assert_eq!(answer["state"], "stopped", "at once");
    for (machine, mut job) in [(&fixture.viber, first), (&den, second)] {
        let task = job.task().clone();
        let is_told = || async {
            let state = machine.state();
            let stops = |command: &Command| matches!(command, Command::Stop { task_id, .. } if *task_id == task);
            state.told.iter().any(stops).then_some(())
        };
        within(STOP_TIMEOUT * SLACK, "its machine is told", is_told).await;
        job.tell(machine, vec![stopped()]).await;
    }
    let over = run_that(&fixture.operator, &run, "all is over", |run| count(run, "stopped") == 3).await;
    assert_eq!((&over["state"], &over["needs"]), (&json!("stopped"), &Value::Null));
    for step in over["steps"].as_array().expect("steps") {
        if let Some(task) = step["taskId"].as_str() {
            assert_eq!(fixture.operator.task(task).await["state"], "stopped");
        }
    }
    act(&fixture.operator, &run, "resume").await.expect(409);
    fixture.board.assert_invariants().await;
}

async fn a_step_whose_session_is_deleted_fails(engine: Engine) {
    let fixture = with_playbook(engine, &playbook("1. [coder] One.\n2. [coder] Two.")).await;
    let run = start(&fixture, json!({})).await;
    let first = Job::of_step(&fixture.viber, "1").await;
    fixture.operator.delete(&format!("/api/v1/sessions/{}", first.submit.session_id)).await.expect(204);
    let failed = step_in(&fixture.operator, &run, "1", "failed").await;
    assert!(failed["failure"].as_str().is_some_and(|why| !why.is_empty()), "{failed:#}");
    // A person has it done again: in a new session.
    act_on(&fixture.operator, &run, "1", json!({ "action": "retry" })).await.expect(200);
    let again = Job::of_step(&fixture.viber, "1").await;
    assert_ne!(again.submit.session_id, first.submit.session_id);
    again.completes(&fixture.viber, "One.").await;
    Job::of_step(&fixture.viber, "2").await.completes(&fixture.viber, "Two.").await;
    run_in(&fixture.operator, &run, "completed").await;
    fixture.board.assert_invariants().await;
}

async fn runs_are_listed_by_pages(engine: Engine) {
    let fixture = with_playbook(engine, &playbook("1. [coder] One.\n   - Approve: before")).await;
    let den = FakeMachine::with_agents(&fixture.board, HOME, "den", &["coder"]).await;
    den.write("playbooks/release-feature.md", &playbook("1. [coder] One.\n   - Approve: before")).await;
    let mut started = Vec::new();
    for n in 0..5 {
        let viber = if n == 3 { den.id.as_str() } else { fixture.viber_id.as_str() };
        let run = start(&fixture, json!({ "viberId": viber })).await;
        open_gate(&fixture.operator, &run, "1").await;
        started.insert(0, id(&run, "id").to_owned());
    }
    let ids = |page: &Value| -> Vec<String> {
        page["items"].as_array().expect("items").iter().map(|run| id(run, "id").to_owned()).collect()
    };
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = fixture.operator.get(&format!("{RUNS}?limit=2{cursor}")).await.expect(200).json();
        assert!(page["items"].as_array().is_some_and(|items| items.len() <= 2));
        found.extend(ids(&page));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(found, started, "the newest first, each once");
    let there = fixture.operator.get(&format!("{RUNS}?viberId={}", den.id)).await.expect(200).json();
    assert_eq!(ids(&there), [started[1].clone()]);
    assert_eq!(there["items"][0]["needs"], "gate", "{there:#}");
    assert_eq!(there["items"][0].get("text"), None, "a list has no texts");
    let waiting = fixture.operator.get(&format!("{RUNS}?needing=true")).await.expect(200).json();
    assert_eq!(ids(&waiting), started);
    decide(&fixture.operator, &there["items"][0], "1", ("allow", "")).await.expect(200);
    Job::of_step(&den, "1").await.completes(&den, "One.").await;
    run_in(&fixture.operator, &there["items"][0], "completed").await;
    started.remove(1);
    let waiting = fixture.operator.get(&format!("{RUNS}?needing=true")).await.expect(200).json();
    assert_eq!(ids(&waiting), started);
    let nonsense = fixture.operator.get(&format!("{RUNS}?viberId=nonsense")).await;
    assert!(matches!(nonsense.status, 400 | 422), "{nonsense:#?}");
    fixture.board.assert_invariants().await;
}

async fn who_may_not_is_refused(engine: Engine) {
    let fixture = with_playbook(engine, &playbook("1. [coder] One.\n   - Approve: before")).await;
    let viewer = fixture.board.token(HOME, "viewer").await;
    let files = format!("/api/v1/vibers/{}/playbooks", fixture.viber_id);
    viewer.get(&files).await.expect(200);
    try_start_as(&fixture, &viewer, json!({})).await.expect(403);
    let run = start(&fixture, json!({})).await;
    let digest = open_gate(&viewer, &run, "1").await;
    let far = Neighbour::of(&fixture.board).await.operator;
    far.get(&files).await.expect(404);
    assert!(matches!(try_start_as(&fixture, &far, json!({})).await.status, 404 | 422));
    far.get(&format!("{RUNS}/{}", id(&run, "id"))).await.expect(404);
    assert_eq!(far.get(RUNS).await.expect(200).json()["items"], json!([]));
    for (person, status) in [(&viewer, 403), (&far, 404)] {
        for verb in ["stop", "pause", "resume"] {
            act(person, &run, verb).await.expect(status);
        }
        for action in ["allow", "deny", "retry", "skip"] {
            let body = json!({ "action": action, "digest": digest, "note": "I say so" });
            act_on(person, &run, "1", body).await.expect(status);
        }
    }
    assert_eq!(states(&run_now(&fixture.operator, &run).await), ["gate"]);
    let anon = fixture.board.anon();
    anon.get(RUNS).await.expect(401);
    fixture.board.assert_invariants().await;
}
