//! What goes from step to step, also from a machine that is away for a moment, and whatever files are called; and files of
//! playbooks that cannot be read.

use std::collections::BTreeSet;

use protocol::path::collision_key;

use super::*;

crate::on_both_databases!(
    files_of_a_machine_that_is_away_are_waited_for,
    a_file_is_given_where_it_was_asked_for,
    a_file_is_given_by_its_title,
    odd_names_of_files_reach_the_next_step,
    a_file_that_cannot_be_read_hides_no_other,
);

async fn files_of_a_machine_that_is_away_are_waited_for(engine: Engine) {
    let steps = "1. [coder] One.\n   - Gives: notes.md\n2. [default] Two.\n   - Viber: den";
    let fixture = with_playbook(engine, &playbook(steps)).await;
    let den = FakeMachine::connected(&fixture.board, "den").await;
    let run = start(&fixture, json!({})).await;
    let mut first = Job::of_step(&fixture.viber, "1").await;
    first.makes(&fixture.viber, "notes.md", b"# One").await;
    act(&fixture.operator, &run, "pause").await.expect(200);
    first.completes(&fixture.viber, "One.").await;
    step_in(&fixture.operator, &run, "1", "done").await;
    // It is killed before anybody else has its file.
    fixture.viber.leave().await;
    let viber = format!("/api/v1/vibers/{}", fixture.viber_id);
    let read = async || fixture.operator.get(&viber).await.expect(200).json();
    until(EVENT_TIMEOUT, "it is away", read, |viber| viber["contact"]["state"] == "disconnected").await;
    act(&fixture.operator, &run, "resume").await.expect(200);
    tokio::time::sleep(QUIET).await;
    assert_eq!(states(&run_now(&fixture.operator, &run).await), ["done", "pending"]);
    fixture.viber.come_back().await;
    let second = Job::of_step(&den, "2").await;
    assert_eq!(second.files(), ["notes.md", "step-1.md"]);
    assert_eq!(second.file(&fixture.board, &den, "notes.md").await, "# One");
    second.completes(&den, "Two.").await;
    run_in(&fixture.operator, &run, "completed").await;
    fixture.board.assert_invariants().await;
}

async fn a_file_is_given_where_it_was_asked_for(engine: Engine) {
    let fixture = with_playbook(engine, &playbook("1. [coder] One.\n   - Gives: docs/notes.md")).await;
    let run = start(&fixture, json!({})).await;
    let mut first = Job::of_step(&fixture.viber, "1").await;
    first.makes(&fixture.viber, "drafts/notes.md", b"# Not yet").await;
    first.completes(&fixture.viber, "Here it is.").await;
    let failed = step_in(&fixture.operator, &run, "1", "failed").await;
    assert!(failed["failure"].as_str().is_some_and(|why| why.contains("docs/notes.md")), "{failed:#}");
    act_on(&fixture.operator, &run, "1", json!({ "action": "retry" })).await.expect(200);
    let mut second = Job::of_step(&fixture.viber, "1").await;
    second.makes(&fixture.viber, "docs/notes.md", b"# One").await;
    second.completes(&fixture.viber, "Now it is.").await;
    run_in(&fixture.operator, &run, "completed").await;
    fixture.board.assert_invariants().await;
}

async fn a_file_is_given_by_its_title(engine: Engine) {
    let steps = "1. [coder] One.\n   - Gives: tests.md, docs/b.csv\n2. [git] Two.";
    let fixture = with_playbook(engine, &playbook(steps)).await;
    let run = start(&fixture, json!({})).await;
    let mut first = Job::of_step(&fixture.viber, "1").await;
    first.makes(&fixture.viber, "b.csv", b"a,b\n").await;
    let (report, bytes) = (ArtifactId::new(1_790_000_000_001), b"# All pass");
    fixture.viber.state().artifacts.insert(report.to_string(), bytes.to_vec());
    let artifact = json!({
        "id": "f-tests", "title": "tests.md", "ref": format!("artifacts/{}/f-tests.md", first.task()),
        "artifactId": report, "size": bytes.len(), "sha256": sha256(bytes), "sniffed": "text/plain",
    });
    first.tell(&fixture.viber, vec![progress(&json!({ "type": "artifact", "artifact": artifact }))]).await;
    first.completes(&fixture.viber, "All pass.").await;
    let second = Job::of_step(&fixture.viber, "2").await;
    assert_eq!(second.files(), ["b.csv", "step-1.md", "tests.md"], "called as the playbook calls them");
    assert_eq!(second.file(&fixture.board, &fixture.viber, "tests.md").await, "# All pass");
    second.completes(&fixture.viber, "Two.").await;
    run_in(&fixture.operator, &run, "completed").await;
    fixture.board.assert_invariants().await;
}

async fn odd_names_of_files_reach_the_next_step(engine: Engine) {
    let fixture = with_playbook(engine, &playbook("1. [coder] One.\n2. [git] Two.")).await;
    let run = start(&fixture, json!({})).await;
    let mut first = Job::of_step(&fixture.viber, "1").await;
    let long = format!("{}.csv", "\u{1f600}".repeat(116));
    // Longer than file systems take, the Board's own in capitals, and two that many machines take for one.
    for name in [long.as_str(), "STEP-1.md", "notes.md", "NOTES.md"] {
        first.makes(&fixture.viber, name, name.as_bytes()).await;
    }
    first.completes(&fixture.viber, "Four files.").await;
    let second = Job::of_step(&fixture.viber, "2").await;
    let names = second.files();
    let keys: BTreeSet<String> = names.iter().map(|name| collision_key(name)).collect();
    assert_eq!((names.len(), keys.len()), (5, 5), "{names:?}");
    assert!(names.contains(&"step-1.md") && names.iter().all(|name| name.len() <= 255), "{names:?}");
    let table = names.iter().find(|name| name.ends_with(".csv")).expect("its ending stays");
    assert_eq!(second.file(&fixture.board, &fixture.viber, table).await, long);
    second.completes(&fixture.viber, "Two.").await;
    run_in(&fixture.operator, &run, "completed").await;
    fixture.board.assert_invariants().await;
}

async fn a_file_that_cannot_be_read_hides_no_other(engine: Engine) {
    let fixture = with_playbook(engine, &playbook("1. [coder] One.")).await;
    let reads = || fixture.viber.state().asked.iter().filter(|(method, _)| method == "workspace.read").count();
    eventually("the file is known", async || {
        let before = reads();
        playbooks(&fixture).await;
        (reads() == before).then_some(())
    })
    .await;
    fixture.viber.state().lies.insert("workspace.read".to_owned(), json!(7));
    fixture.viber.write("playbooks/second.md", &playbook("1. [coder] Two.")).await;
    let found = playbooks(&fixture).await;
    let items = found["items"].as_array().expect("items");
    let told: Vec<_> = items.iter().map(|file| (file["name"].as_str(), file["errors"][0]["line"].as_u64())).collect();
    assert_eq!(told, [(Some("release-feature"), None), (Some("second"), Some(0))], "{found:#}");
    // Nor does it run.
    let refused = try_start(&fixture, json!({ "playbook": "second" })).await;
    assert!((400..500).contains(&refused.status), "{refused:#?}");
    fixture.board.assert_invariants().await;
}
