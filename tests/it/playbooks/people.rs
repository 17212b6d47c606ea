//! People and runs: who decides about gates where the team's settings are strict, what they find among what needs them, and
//! how many runs a machine may start.

use board_tests::board::HOME;
use protocol::Decision;

use super::*;

crate::on_both_databases!(
    an_owner_decides_past_the_settings_with_a_reason,
    an_owner_is_asked_for_the_reason_on_the_page,
    who_may_not_decide_about_a_gate_does_not_skip_it,
    whoever_told_the_supervisor_something_does_not_decide,
    whoever_worked_in_a_steps_session_does_not_decide_about_it,
    whoever_lets_a_gate_pass_with_a_note_decides_about_the_next,
    a_supervisor_that_gave_up_stands_among_what_needs_a_person,
    a_machine_starts_no_more_runs_than_it_may,
    a_run_stands_in_the_rail_and_its_steps_do_not,
    the_palette_offers_playbooks_by_name,
    playbooks_are_listed_page_by_page,
    playbooks_of_a_large_folder_are_found,
    a_run_says_that_it_has_older_events,
);

/// A run that the owner started, whose gate is open, in a team where they do not decide it.
async fn own_gate(engine: Engine) -> (Fixture<FakeMachine>, Value, Value) {
    let text = playbook("1. [coder] Push.\n   - Approve: before\n2. [git] Tell everybody.");
    let fixture = with_playbook(engine, &text).await;
    strict(&fixture).await;
    let run = try_start_as(&fixture, fixture.owner(), json!({})).await.expect(201).json();
    let digest = open_gate(fixture.owner(), &run, "1").await;
    (fixture, run, digest)
}

/// Whoever wants something does not decide about it.
async fn strict(fixture: &Fixture<FakeMachine>) {
    fixture.owner().put("/api/v1/approval-rules", &json!({ "notRequester": true })).await.expect(200);
}

async fn an_owner_decides_past_the_settings_with_a_reason(engine: Engine) {
    let (fixture, run, digest) = own_gate(engine).await;
    let owner = fixture.owner();
    let word = |reason: &str| json!({ "action": "allow", "digest": digest, "reason": reason });
    act_on(owner, &run, "1", json!({ "action": "allow", "digest": digest })).await.expect(403);
    act_on(owner, &run, "1", word(" ")).await.expect(403);
    assert_eq!(act_on(owner, &run, "1", word(&"x".repeat(9_000))).await.expect(422).code(), "note_too_long");
    // Owners alone.
    let admin = fixture.board.token(HOME, "admin").await;
    let theirs = try_start_as(&fixture, &admin, json!({})).await.expect(201).json();
    let their_digest = open_gate(&admin, &theirs, "1").await;
    let their_word = json!({ "action": "allow", "digest": their_digest, "reason": "It is urgent" });
    act_on(&admin, &theirs, "1", their_word).await.expect(403);
    act(&admin, &theirs, "stop").await.expect(200);
    act_on(owner, &run, "1", word("Nobody else is awake")).await.expect(200);
    let job = Job::of_step(&fixture.viber, "1").await;
    let told = step(&run_now(owner, &run).await, "1")["decision"].clone();
    assert_eq!((&told["allowed"], &told["breakGlass"]), (&json!(true), &json!("Nobody else is awake")), "{told:#}");
    let audit = owner.get("/api/v1/audit").await.expect(200).json();
    let rows = audit["items"].as_array().expect("rows");
    let is_told = |row: &&Value| row["action"] == "gate.break_glass" && row.to_string().contains(id(&run, "id"));
    assert_eq!(rows.iter().filter(is_told).count(), 1, "{rows:#?}");
    job.completes(&fixture.viber, "Pushed.").await;
    Job::of_step(&fixture.viber, "2").await.completes(&fixture.viber, "Told.").await;
    run_in(owner, &run, "completed").await;
    fixture.board.assert_invariants().await;
}

async fn an_owner_is_asked_for_the_reason_on_the_page(engine: Engine) {
    let (fixture, run, digest) = own_gate(engine).await;
    let page = format!("/t/{HOME}/playbook-runs/{}", id(&run, "id"));
    let asked = "Why you decide all the same";
    assert!(fixture.owner().page(&page).await.expect(200).body.contains(asked));
    let allow = format!("{page}/steps/1/allow");
    let digest = digest.as_str().expect("a digest");
    let refused = fixture.owner().post_form(&allow, &[("digest", digest), ("note", "Go on")]).await.expect(403);
    assert!(refused.body.contains(asked) && refused.body.contains("Go on"), "{}", refused.body);
    let reason = ("reason", "Nobody else is awake");
    fixture.owner().post_form(&allow, &[("digest", digest), ("note", ""), reason]).await.expect(303);
    Job::of_step(&fixture.viber, "1").await.completes(&fixture.viber, "Pushed.").await;
    act(fixture.owner(), &run, "stop").await.expect(200);
    fixture.board.assert_invariants().await;
}

async fn who_may_not_decide_about_a_gate_does_not_skip_it(engine: Engine) {
    let steps = "1. [coder] Build it.\n   - Approve: after\n2. [git] Release it.";
    let fixture = with_playbook(engine, &playbook(steps)).await;
    fixture.owner().put("/api/v1/approval-rules", &json!({ "minRole": "admin" })).await.expect(200);
    let skip = json!({ "action": "skip", "note": "It looks good" });
    let run = start(&fixture, json!({})).await;
    let first = Job::of_step(&fixture.viber, "1").await;
    first.completes(&fixture.viber, "Built.").await;
    open_gate(&fixture.operator, &run, "1").await;
    act_on(&fixture.operator, &run, "1", skip.clone()).await.expect(403);
    assert_eq!(states(&run_now(&fixture.operator, &run).await), ["gate", "pending"]);
    let admin = fixture.board.token(HOME, "admin").await;
    act_on(&admin, &run, "1", skip.clone()).await.expect(200);
    Job::of_step(&fixture.viber, "2").await.completes(&fixture.viber, "Released.").await;
    run_in(&fixture.operator, &run, "completed").await;
    // An owner's reason for that is the reason why they may.
    strict(&fixture).await;
    let own = try_start_as(&fixture, fixture.owner(), json!({})).await.expect(201).json();
    Job::of_step(&fixture.viber, "1").await.completes(&fixture.viber, "Built.").await;
    open_gate(fixture.owner(), &own, "1").await;
    act_on(fixture.owner(), &own, "1", skip).await.expect(200);
    let audit = fixture.owner().get("/api/v1/audit").await.expect(200).json();
    let is_told = |row: &&Value| row["action"] == "gate.break_glass" && row.to_string().contains(id(&own, "id"));
    assert_eq!(audit["items"].as_array().expect("rows").iter().filter(is_told).count(), 1, "{audit:#}");
    Job::of_step(&fixture.viber, "2").await.completes(&fixture.viber, "Released.").await;
    run_in(&fixture.operator, &own, "completed").await;
    fixture.board.assert_invariants().await;
}

async fn whoever_told_the_supervisor_something_does_not_decide(engine: Engine) {
    let fixture = with_playbook(engine, &playbook("1. [coder] Push.\n   - Approve: before")).await;
    let machine = &fixture.viber;
    strict(&fixture).await;
    let run = try_start_as(&fixture, fixture.owner(), json!({ "supervised": true })).await.expect(201).json();
    let mut supervisor = Job::of_supervisor(machine).await;
    let calls = supervisor.calls(machine, &[("run_step", json!({ "step": "1" }))]).await;
    decide(&fixture.operator, &run, "1", ("deny", "Push with force")).await.expect(200);
    assert_eq!(answered(machine, &calls[0]).await.decision, Decision::Deny);
    // What is asked now is what they said.
    let other = json!({ "step": "1", "instruction": "Push with force." });
    let calls = supervisor.calls(machine, &[("run_step", other)]).await;
    let digest = open_gate(&fixture.operator, &run, "1").await;
    let word = json!({ "action": "allow", "digest": digest });
    act_on(&fixture.operator, &run, "1", word.clone()).await.expect(403);
    let other = fixture.board.token(HOME, "operator").await;
    act_on(&other, &run, "1", word).await.expect(200);
    Job::of_step(machine, "1").await.completes(machine, "Pushed.").await;
    answered(machine, &calls[0]).await;
    act(&fixture.operator, &run, "stop").await.expect(200);
    fixture.board.assert_invariants().await;
}

async fn whoever_lets_a_gate_pass_with_a_note_decides_about_the_next(engine: Engine) {
    let steps = "1. [coder] Build.\n   - Approve: before\n2. [git] Push.\n   - Approve: before";
    let fixture = with_playbook(engine, &playbook(steps)).await;
    let machine = &fixture.viber;
    strict(&fixture).await;
    let run = try_start_as(&fixture, fixture.owner(), json!({})).await.expect(201).json();
    let admin = fixture.board.token(HOME, "admin").await;
    decide(&admin, &run, "1", ("allow", "I have read it")).await.expect(200);
    Job::of_step(machine, "1").await.completes(machine, "Built.").await;
    decide(&admin, &run, "2", ("allow", "That, too")).await.expect(200);
    let second = Job::of_step(machine, "2").await;
    second.fails(machine, "No network.").await;
    step_in(&admin, &run, "2", "failed").await;
    // What its agent is told is somebody's wish: with another instruction the gate is asked about again.
    let again = json!({ "action": "retry", "note": "Take the other network" });
    act_on(&fixture.operator, &run, "2", json!({ "action": "retry", "note": "x".repeat(9_000) })).await.expect(422);
    act_on(&admin, &run, "2", again).await.expect(200);
    let digest = open_gate(&admin, &run, "2").await;
    let word = json!({ "action": "allow", "digest": digest });
    act_on(&admin, &run, "2", word.clone()).await.expect(403);
    act_on(&fixture.operator, &run, "2", word).await.expect(200);
    let third = Job::of_step(machine, "2").await;
    assert!(third.submit.goal.contains("Take the other network"), "{}", third.submit.goal);
    third.completes(machine, "Pushed.").await;
    let done = run_in(&admin, &run, "completed").await;
    assert!(done["events"].to_string().contains("is to be started again: Take the other network"), "{done:#}");
    fixture.board.assert_invariants().await;
}

async fn whoever_worked_in_a_steps_session_does_not_decide_about_it(engine: Engine) {
    let fixture = with_playbook(engine, &playbook("1. [coder] Push.\n   - Approve: after")).await;
    let machine = &fixture.viber;
    strict(&fixture).await;
    let run = try_start_as(&fixture, fixture.owner(), json!({})).await.expect(201).json();
    let first = Job::of_step(machine, "1").await;
    let task = first.task().clone();
    first.completes(machine, "Pushed.").await;
    let digest = open_gate(&fixture.operator, &run, "1").await;
    let task = fixture.operator.task(task.as_str()).await;
    fixture.operator.follow_up(&task, "Push the rest, too.").await;
    Job::next(machine).await.completes(machine, "Pushed that, too.").await;
    let word = json!({ "action": "allow", "digest": digest });
    act_on(&fixture.operator, &run, "1", word.clone()).await.expect(403);
    let other = fixture.board.token(HOME, "operator").await;
    act_on(&other, &run, "1", word).await.expect(200);
    run_in(&fixture.operator, &run, "completed").await;
    fixture.board.assert_invariants().await;
}

async fn a_supervisor_that_gave_up_stands_among_what_needs_a_person(engine: Engine) {
    let fixture = with_playbook(engine, &playbook("1. [coder] One.")).await;
    let machine = &fixture.viber;
    let run = start(&fixture, json!({ "supervised": true })).await;
    fixture.board.fail("playbooks::after_pauses", "return").await;
    for _ in 0..5 {
        Job::of_supervisor(machine).await.fails(machine, "The model is away.").await;
    }
    let given_up = run_that(&fixture.operator, &run, "a person is needed", |run| run["needs"] == "supervisor").await;
    let events = given_up["events"].to_string();
    let why = "because: The model is away.";
    assert_eq!(events.matches(&format!("was started again, attempt 5, {why}")).count(), 1, "{given_up:#}");
    assert_eq!(events.matches(&format!("is not started again after attempt 5, {why}")).count(), 1, "{given_up:#}");
    let waiting = fixture.operator.get(&format!("{RUNS}?needing=true")).await.expect(200).json();
    assert_eq!(waiting["items"][0]["id"], run["id"]);
    let rail = async || fixture.owner().page(&format!("/t/{HOME}/sessions")).await.expect(200).body;
    assert!(rail().await.contains("Its supervisor does not go on"), "nothing else of the run waits");
    act(&fixture.operator, &run, "resume").await.expect(200);
    let _again = Job::of_supervisor(machine).await;
    assert!(!rail().await.contains("Its supervisor does not go on"));
    act(&fixture.operator, &run, "stop").await.expect(200);
    fixture.board.assert_invariants().await;
}

async fn a_machine_starts_no_more_runs_than_it_may(engine: Engine) {
    let text = playbook("1. [coder] One.\n   - Approve: before");
    let fixture = with_playbook(engine, &text).await;
    let viber = Person::with_token(&fixture.board.url, &fixture.viber.credential);
    let body = json!({ "playbook": "mine", "text": text, "inputs": {}, "supervised": false });
    let send = async |key: &str| viber.post_once(key, "/api/daemon/playbook-runs", &body).await;
    for n in 1..=20 {
        send(&format!("k{n}")).await.expect(201);
    }
    assert_eq!(send("k21").await.expect(409).code(), "too_many_runs");
    assert_eq!(send("k20").await.expect(201).json(), send("k20").await.expect(201).json(), "that is none more");
    // People start others all the same.
    let run = start(&fixture, json!({})).await;
    open_gate(&fixture.operator, &run, "1").await;
    let listed = fixture.operator.get(&format!("{RUNS}?limit=200")).await.expect(200).json();
    let of_machine = listed["items"].as_array().expect("runs").iter().find(|run| run["startedBy"] == fixture.viber_id);
    act(&fixture.operator, of_machine.expect("one of the machine"), "stop").await.expect(200);
    eventually("there is room again", async || (send("k22").await.status == 201).then_some(())).await;
    fixture.board.assert_invariants().await;
}

async fn a_run_stands_in_the_rail_and_its_steps_do_not(engine: Engine) {
    let text = playbook("1. [coder] Count the boxes.\n2. [git] Weigh the boxes.");
    let fixture = with_playbook(engine, &text).await;
    let owner = fixture.owner();
    let run = start(&fixture, json!({})).await;
    let first = Job::of_step(&fixture.viber, "1").await;
    let place = format!("/playbook-runs/{}", id(&run, "id"));
    let list = async |query: &str| owner.page(&format!("/t/{HOME}/sessions{query}")).await.expect(200).body;
    let html = list("").await;
    assert!(html.contains(&place) && !html.contains("Count the boxes"), "{html}");
    assert!(html.contains("Show steps of runs"), "{html}");
    assert!(list("?steps=1").await.contains("Count the boxes"));
    assert!(list("?q=count").await.contains("Count the boxes"), "a search finds them");
    assert!(list("?state=working").await.contains("Count the boxes"), "a filter finds them");
    first.completes(&fixture.viber, "Counted.").await;
    Job::of_step(&fixture.viber, "2").await.completes(&fixture.viber, "Weighed.").await;
    run_in(owner, &run, "completed").await;
    let html = list("").await;
    assert!(html.contains(&place) && html.contains("data-unread-count=\"\""), "{html}");
    fixture.board.assert_invariants().await;
}

async fn the_palette_offers_playbooks_by_name(engine: Engine) {
    let fixture = with_playbook(engine, RELEASE).await;
    let find = async |words: &str| fixture.owner().page(&format!("/t/{HOME}/palette?q={words}")).await.expect(200).body;
    for words in ["release-feature", "run%20release"] {
        let html = find(words).await;
        assert!(html.contains("Run release-feature on ") && html.contains("/playbooks/release-feature"), "{html}");
    }
    assert!(!find("courier").await.contains("Run release-feature"));
}

async fn playbooks_are_listed_page_by_page(engine: Engine) {
    let text = playbook("1. [Coder] Run the tests.");
    let fixture = with_playbook(engine, &text).await;
    for n in 0..120 {
        fixture.viber.state().files.insert(format!("playbooks/nightly-{n:03}.md"), text.clone());
    }
    let path = format!("/api/v1/vibers/{}/playbooks", fixture.viber_id);
    let (mut names, mut next) = (Vec::new(), String::new());
    loop {
        let list = fixture.operator.get(&format!("{path}?limit=60&cursor={next}")).await.expect(200).json();
        let items = list["items"].as_array().expect("a list").iter();
        names.extend(items.map(|file| id(file, "name").to_owned()));
        match list["next"].as_str() {
            Some(more) => more.clone_into(&mut next),
            None => break,
        }
    }
    assert_eq!((names.len(), names.last().map(String::as_str)), (121, Some("release-feature")));
    assert!(names.is_sorted(), "{names:?}");
    assert_eq!(fixture.operator.get(&format!("{path}?cursor=x")).await.expect(422).code(), "bad_cursor");
    assert_eq!(fixture.operator.get(&format!("{path}?limit=201")).await.expect(422).code(), "bad_limit");
    fixture.board.assert_invariants().await;
}

async fn playbooks_of_a_large_folder_are_found(engine: Engine) {
    let fixture = with_playbook(engine, RELEASE).await;
    let page = async || {
        let path = format!("/t/{HOME}/playbooks?viber={}", fixture.viber_id);
        fixture.owner().page(&path).await.expect(200).body
    };
    // Entries before it: those of the first answer, then of as many as are asked for.
    let fill = |to: usize| {
        let notes = (0..to).map(|n| (format!("playbooks/a-{n:05}.txt"), String::new()));
        fixture.viber.state().files.extend(notes);
    };
    fill(2_100);
    assert_eq!(playbooks(&fixture).await["items"][0]["name"], "release-feature");
    let html = page().await;
    assert!(html.contains("release-feature") && !html.contains("are not looked at here"), "{html}");
    fill(20_050);
    assert_eq!(playbooks(&fixture).await["items"], json!([]));
    let html = page().await;
    assert!(html.contains("51 more entries of the folder are not looked at here."), "{html}");
    // One that takes its time for each answer holds nobody up: what is known by then is shown.
    fixture.viber.state().files.insert("playbooks/A.md".to_owned(), RELEASE.to_owned());
    fixture.viber.state().slow = Duration::from_millis(1_500);
    let began = std::time::Instant::now();
    let list = playbooks(&fixture).await;
    assert_eq!((list["items"].as_array().map(Vec::len), &list["items"][0]["name"]), (Some(1), &json!("A")));
    assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
    fixture.viber.state().slow = Duration::ZERO;
    fixture.board.assert_invariants().await;
}

async fn a_run_says_that_it_has_older_events(engine: Engine) {
    let fixture = with_playbook(engine, RELEASE).await;
    let run = start(&fixture, json!({ "inputs": { "version": "4.12" } })).await;
    let now = run_now(&fixture.operator, &run).await;
    assert!(now.get("moreEvents").is_none(), "{now:#}");
    let events = "INSERT INTO playbook_events (team_id, run_id, n, at, kind, text) \
                  WITH RECURSIVE i(n) AS (SELECT 1000 UNION ALL SELECT n + 1 FROM i WHERE n < 1499) \
                  SELECT r.team_id, r.run_id, i.n, 1, 'paused', 'Paused' FROM i, playbook_runs r";
    assert_eq!(fixture.board.sql(events).await, 500);
    let now = run_now(&fixture.operator, &run).await;
    assert_eq!((now["events"].as_array().map(Vec::len), &now["moreEvents"]), (Some(500), &json!(true)));
    act(&fixture.operator, &run, "stop").await.expect(200);
    fixture.board.assert_invariants().await;
}
