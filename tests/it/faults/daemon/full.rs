//! The daemon's disk is full (F16).

use board_tests::{
    Disk, Engine, Fixture, Viber,
    disk::run_in_mount_namespace,
    eventually,
    llm::{Gate, Piece, Reply},
    wait::EVENT_TIMEOUT,
    within,
};
use serde_json::{Value, json};

use super::{Spawning, content, kind, lines, number, says};

/// All that the daemon keeps for the Board lies on 8 MiB, and its model says 12. What is kept is more than the 4 MiB that
/// a daemon may send ahead of the Board's acknowledgements.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f16_a_full_outbox_names_what_it_cannot_keep_and_still_delivers_the_result() {
    if run_in_mount_namespace(
        "faults::daemon::full::f16_a_full_outbox_names_what_it_cannot_keep_and_still_delivers_the_result",
    ) {
        return;
    }
    let (gate, text) = (Gate::new(), lines(12 * 1024 * 1024));
    let pieces = [vec![Piece::text("first words. "), Piece::Wait(gate.clone())], says(&text)].concat();
    let said = format!("first words. {}", text.concat());

    let machine = Viber::fresh("lab");
    std::fs::create_dir_all(machine.home().join("state")).expect("folders");
    let disk = Disk::in_memory(&machine.home().join("state"), 8);
    let script = [Reply::Stream(pieces), Reply::text("room again")];
    let mut fixture = Fixture::on(Engine::Sqlite).machine(machine).scripted_model(script).with_viber().await;
    let task = fixture.give("talk without end").await;
    eventually("its first words", || async {
        content(&fixture.events(&task).await, "text-delta").starts_with("first words").then_some(())
    })
    .await;
    fixture.board.kill9();
    gate.open();
    within(EVENT_TIMEOUT * 2, "the model has said all", || async { fixture.llm.requests()[0].finished.then_some(()) })
        .await;
    within(EVENT_TIMEOUT * 2, "the result is on the disk", || async {
        fixture.viber.has_result_on_disk(&task).then_some(())
    })
    .await;
    assert!(disk.free() < 1024 * 1024, "the disk was full: {} bytes are free", disk.free());

    // Also a daemon that starts on a full disk has it.
    fixture.viber.kill9();
    fixture.viber.run();
    fixture.board.restart().await;
    let done = fixture.over(&task).await;
    assert_eq!(done["state"], "completed", "{done:#}");
    let events = fixture.events(&task).await;
    let gaps: Vec<&Value> = events.iter().filter(|event| kind(event) == "gap").collect();
    assert!(!gaps.is_empty(), "what could not be kept is named");
    for gap in &gaps {
        let gap = &gap["event"];
        assert!(["disk", "quota"].contains(&gap["reason"].as_str().unwrap_or_default()), "{gap}");
    }
    let mut at = 0;
    for event in events.iter().filter(|event| kind(event) == "text-delta") {
        let piece = event["event"]["content"].as_str().expect("text");
        let found = said[at..].find(piece).unwrap_or_else(|| panic!("not said, or not in this order: {event}"));
        at += found + piece.len();
    }
    let kept = content(&events, "text-delta").len() as u64;
    let missing: u64 = gaps.iter().map(|gap| number(&gap["event"]["bytes"])).sum();
    assert!(kept >= 4 * 1024 * 1024, "the disk was used: {kept} bytes");
    assert!(kept < said.len() as u64 && kept + missing >= said.len() as u64, "{kept} kept, {missing} named missing");

    // The result is whole: its text as far as an event holds it, all of it in a file beside.
    assert_eq!(kind(events.last().expect("an ending")), "task:completed");
    let result = done["result"]["text"].as_str().expect("a text");
    assert!(result.starts_with("first words. line 00000000") && result.len() > 32 * 1024, "{}", result.len());
    let whole = done["result"]["artifactRefs"][0]["ref"].as_str().expect("a file with all of it");
    assert_eq!(std::fs::read_to_string(fixture.viber.home().join(whole)).expect("kept"), said);

    // What was delivered has made room.
    let next = fixture.give("and now").await;
    let done = fixture.over(&next).await;
    assert_eq!((&done["state"], &done["result"]["text"]), (&json!("completed"), &json!("room again")));
    assert!(fixture.events(&next).await.iter().all(|event| kind(event) != "gap"));
    eventually("room on the disk", || async { (disk.free() > 6 * 1024 * 1024).then_some(()) }).await;
    fixture.assert_invariants().await;
}

/// The folder for artifacts lies on 1 MiB, and a command prints three: what was kept of it opens, and is said to be a part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f16_the_beginning_of_an_output_that_filled_the_disk_opens() {
    if run_in_mount_namespace("faults::daemon::full::f16_the_beginning_of_an_output_that_filled_the_disk_opens") {
        return;
    }
    let machine = Viber::fresh("lab");
    std::fs::create_dir_all(machine.home().join("artifacts")).expect("folders");
    let disk = Disk::in_memory(&machine.home().join("artifacts"), 1);
    let fixture = Fixture::on(Engine::Sqlite).owner().machine(machine).echo_model().with_viber().await;
    let task = fixture.play("shell i=0; while [ $i -lt 60000 ]; do i=$((i + 1)); echo \"$i: a line of this length, so that there are many\"; done").await;
    assert_eq!(task["state"], "completed", "{task:#}");
    assert!(disk.free() < 64 * 1024, "the disk was full: {} bytes are free", disk.free());
    let events = fixture.events(task["id"].as_str().expect("an id")).await;
    let result = events.iter().find(|event| kind(event) == "tool-result").expect("a result")["event"]["result"].clone();
    let note = result["fileNote"].as_str().expect("a note");
    let kept: u64 =
        note.split("first ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok()).expect("how much");
    assert!(kept > 512 * 1024 && kept <= 1024 * 1024 && note.contains("No space left"), "{note}");
    let session = task["sessionId"].as_str().expect("a session");
    let page = fixture.owner().page(&format!("/t/home/sessions/{session}?pane=closed")).await.body;
    let says = page.split("data-extent>").nth(1).and_then(|rest| rest.split('<').next()).expect("how much it is");
    assert!(!says.contains("all kept"), "{says}");
    let link = page.split("href=\"").find(|rest| rest.starts_with("/t/home/artifacts/art_"));
    let link = link.and_then(|rest| rest.split('"').next()).expect("a link").to_owned();
    let text = fixture.owner().page(&format!("{link}/download")).await.expect(200).body;
    assert_eq!(text.len() as u64, kept, "all that was kept");
    assert!(text.starts_with("1: a line") && text.lines().nth(1_000).is_some_and(|line| line.starts_with("1001: ")));
    fixture.assert_invariants().await;
}
