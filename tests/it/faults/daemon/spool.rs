//! A long time without the Board: everything waits on the daemon's disk and comes in order (F19).

use std::time::{Duration, Instant};

use super::{Spawning, content, kind, lines, says};
use board_tests::{
    Board, Engine, Fixture, eventually,
    llm::{Gate, Piece, Reply},
    wait::EVENT_TIMEOUT,
    within,
};

crate::on_both_databases!(f19_what_was_said_while_the_board_was_away_arrives_within_a_minute);

/// What was said meanwhile has arrived at most this long after the Board's return.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);

/// `tasks` models say `mib` MiB each while the Board is away, all of it within `talk_timeout`. All of it is there, in
/// order, a minute after its return.
async fn away(engine: Engine, tasks: usize, mib: usize, talk_timeout: Duration) {
    let (gate, text) = (Gate::new(), lines(mib * 1024 * 1024));
    let pieces = [vec![Piece::text("here. "), Piece::Wait(gate.clone())], says(&text)].concat();
    let said = format!("here. {}", text.concat());
    let mut fixture = Fixture::on(engine).scripted_model([Reply::Stream(pieces)]).with_viber().await;
    let mut ids = Vec::new();
    for n in 0..tasks {
        ids.push(fixture.give(&format!("talk for a day, {n}")).await);
    }
    for task in &ids {
        eventually("its first word", || async {
            (content(&fixture.events(task).await, "text-delta") == "here. ").then_some(())
        })
        .await;
    }
    fixture.board.kill9();
    gate.open();
    within(talk_timeout, "the models have said all", || async {
        fixture.llm.requests().iter().all(|request| request.finished).then_some(())
    })
    .await;
    within(talk_timeout, "all has ended on the machine", || async {
        let status = fixture.viber.cli(&["status", "--json"]).await.good();
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        (status["running"] == 0).then_some(())
    })
    .await;
    fixture.board.restart().await;
    let back = Instant::now();
    for task in &ids {
        let left = ARRIVAL_TIMEOUT.saturating_sub(back.elapsed());
        let done = fixture.operator.task_within(left, task, "completed", |task| task["state"] == "completed").await;
        assert_eq!(done["attempt"], 1);
    }
    assert!(back.elapsed() <= ARRIVAL_TIMEOUT, "{:?}", back.elapsed());
    println!("{tasks} × {mib} MiB were there {:?} after the Board's return", back.elapsed());
    for task in &ids {
        // `events` also checks that no seq is missing and none comes twice.
        let events = fixture.events(task).await;
        assert!(events.iter().all(|event| kind(event) != "gap"), "nothing had to be left out");
        assert!(content(&events, "text-delta") == said, "byte for byte, in order");
        assert_eq!(kind(events.last().expect("an ending")), "task:completed");
    }
    assert_eq!(fixture.llm.requests().len(), tasks, "begun once each");
    fixture.assert_invariants().await;
}

async fn f19_what_was_said_while_the_board_was_away_arrives_within_a_minute(engine: Engine) {
    away(engine, 2, 1, EVENT_TIMEOUT * 2).await;
}

/// As after a day: the Board has long given the task up when the line is there again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f19_a_task_that_was_given_up_meanwhile_is_adopted_with_all_it_said() {
    let (gate, text) = (Gate::new(), lines(512 * 1024));
    let pieces = [vec![Piece::text("here. "), Piece::Wait(gate.clone())], says(&text)].concat();
    let board = Board::start(Engine::Sqlite).await;
    board.sql("UPDATE teams SET lost_after_ms = 1000").await;
    let setup = Fixture::at(board).scripted_model([Reply::Stream(pieces)]).over_a_network(19);
    let fixture = setup.with_viber().await;
    let task = fixture.give("talk for a day").await;
    eventually("its first word", || async {
        (content(&fixture.events(&task).await, "text-delta") == "here. ").then_some(())
    })
    .await;
    fixture.proxy().refuse(true);
    fixture.proxy().reset();
    let lost = fixture.operator.task_in(&task, "error").await;
    assert_eq!(lost["error"]["code"], "lost");
    gate.open();
    within(EVENT_TIMEOUT * 2, "the model has said all", || async { fixture.llm.requests()[0].finished.then_some(()) })
        .await;
    fixture.proxy().refuse(false);
    let done =
        fixture.operator.task_within(ARRIVAL_TIMEOUT, &task, "adopted", |task| task["state"] == "completed").await;
    assert_eq!((&done["attempt"], done["error"].is_null()), (&1.into(), true));
    let events = fixture.events(&task).await;
    assert!(content(&events, "text-delta") == format!("here. {}", text.concat()), "byte for byte, in order");
    assert_eq!(fixture.llm.requests().len(), 1, "begun once");
    fixture.assert_invariants().await;
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn f19_a_spool_of_64_mib_arrives_within_a_minute() {
        away(Engine::Sqlite, 4, 15, Duration::from_secs(300)).await;
    }
}
