//! A backup that is made while everybody writes, put into another Board (F56).

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use board_tests::{Board, Engine, board::HOME, eventually};
use futures_util::future::join_all;
use sqlx::{Connection, SqliteConnection};

use super::{Asked, Asking, absent_on, talker, tasks};

crate::on_both_databases!(f56_a_backup_made_under_load_is_whole_and_serves);

async fn f56_a_backup_made_under_load_is_whole_and_serves(engine: Engine) {
    let fixture = absent_on(engine).await;
    let talkers = [fixture.talker(2_000).await, fixture.talker(50).await];
    let mut people = Vec::new();
    for _ in 0..3 {
        people.push(fixture.board.token(HOME, "operator").await);
    }
    let over = AtomicBool::new(false);
    let clients = people.iter().enumerate().map(|(n, person)| {
        let (fixture, over) = (&fixture, &over);
        async move {
            let mut kept = Vec::new();
            while !over.load(Ordering::SeqCst) {
                let key = format!("client {n}, {}", kept.len());
                kept.push((key.clone(), fixture.insist(person, &key, Duration::from_secs(20)).await));
            }
            kept
        }
    });
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("copy");
    let copying = async {
        eventually("everybody is at work", || async {
            (talkers.iter().all(|talker| talker.acked() > 50)).then_some(())
        })
        .await;
        let Asked::Kept(first) = fixture.ask("before the backup").await else { panic!("it serves") };
        let acked: Vec<u64> = talkers.iter().map(|talker| talker.acked()).collect();
        fixture.board.cli(&["backup", copy.to_str().expect("text")]).await.good();
        let Asked::Kept(_) = fixture.ask("after the backup").await else { panic!("it serves") };
        let then: Vec<u64> = talkers.iter().map(|talker| talker.acked()).collect();
        eventually("work has gone on", || async {
            talkers.iter().zip(&then).all(|(talker, then)| talker.acked() > *then).then_some(())
        })
        .await;
        over.store(true, Ordering::SeqCst);
        (first, acked)
    };
    let (kept, (first, acked)) = tokio::join!(join_all(clients), copying);
    let kept: Vec<(String, String)> = kept.into_iter().flatten().collect();

    // On another machine, without the Board that it came from.
    let mut other = Board::prepare(engine, &[]).await;
    other.cli(&["restore", copy.to_str().expect("text")]).await.good();
    let said = other.cli(&["doctor"]).await;
    assert!(said.out.contains("ok    database: whole") && said.out.contains("ok    audit"), "{said:?}");
    if engine == Engine::Sqlite {
        let mut connection = SqliteConnection::connect(&other.database_url).await.expect("the file");
        let broken: Vec<(String,)> = sqlx::query_as("SELECT \"table\" FROM pragma_foreign_key_check")
            .fetch_all(&mut connection)
            .await
            .expect("rows");
        connection.close().await.expect("a clean goodbye");
        assert!(broken.is_empty(), "rows that point nowhere: {broken:?}");
    }
    other.serve();
    other.ready().await;
    let viewer = other.token(HOME, "operator").await;

    // One moment of the Board: everything acknowledged before, nothing twice, nothing that was never asked for.
    let there = tasks(&other.database_url).await;
    let goals: Vec<&str> = there.iter().map(|task| task.1.as_str()).collect();
    assert!(there.contains(&(first, "before the backup".to_owned())), "{there:?}");
    assert!(!goals.contains(&"after the backup"));
    for task in there.iter().filter(|task| task.1.starts_with("client")) {
        assert!(kept.contains(&(task.1.clone(), task.0.clone())), "{task:?} was acknowledged to nobody");
    }
    for n in 0..people.len() {
        let prefix = format!("client {n}, ");
        let mut numbers: Vec<usize> =
            goals.iter().filter_map(|goal| goal.strip_prefix(&prefix)?.parse().ok()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..numbers.len()).collect::<Vec<_>>(), "without a hole");
    }
    for (talker, acked) in talkers.iter().zip(acked) {
        talker::said(&viewer.events(&talker.task).await, acked, talker.bytes);
        assert_eq!(viewer.task(&talker.task).await["state"], "running");
    }
    other.ledger().somebody_else_submits();
    other.assert_invariants().await;

    // The copy is a Board of its own, and the first goes on.
    let Asked::Kept(_) = fixture.ask_as(&viewer, "on the copy").await else { panic!("it serves") };
    for talker in talkers {
        talker.finish(&fixture.operator).await;
    }
    fixture.board.assert_invariants().await;
}
