//! The disk below an SQLite Board fills up, and is freed again (F45).

use std::time::Instant;

use board_tests::{
    Board, Disk, Engine, FakeDaemon, Fixture, disk::run_in_mount_namespace, eventually, wait::EVENT_TIMEOUT,
};
use serde_json::json;

use super::{Asked, Asking, absent};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f45_a_full_disk_refuses_writes_and_heals_when_there_is_room() {
    if run_in_mount_namespace("faults::database::full::f45_a_full_disk_refuses_writes_and_heals_when_there_is_room") {
        return;
    }
    let mount = tempfile::tempdir().expect("a folder");
    let disk = Disk::ext4(mount.path(), 16);
    let mut board = Board::prepare(Engine::Sqlite, &[]).await;
    board.database_url = format!("sqlite://{}/board.db", disk.path.display());
    board.serve();
    board.ready().await;
    let pid = board.pid();
    let fixture = absent(board).await;
    let talker = fixture.talker(2_000).await;
    let mut kept = Vec::new();
    let Asked::Kept(task) = fixture.ask("before").await else { panic!("there is room") };
    kept.push(("before".to_owned(), task));

    let filler = disk.fill(64 * 1024);
    // Written on until nothing more finds a place.
    let mut refused = Vec::new();
    let began = Instant::now();
    while refused.len() < 5 {
        assert!(began.elapsed() < EVENT_TIMEOUT, "the disk does not fill");
        let key = format!("full-{} {:.<20000}", kept.len() + refused.len(), "");
        match ask(&fixture, &key).await {
            Asked::Kept(task) => kept.push((key, task)),
            Asked::Later => refused.push(key),
        }
    }
    // Events are not acknowledged either, but for what may still find a place; reading goes on.
    let held = talker.acked();
    for _ in 0..10 {
        assert_eq!(ask(&fixture, &refused[0]).await, Asked::Later);
        fixture.operator.get("/api/v1/tasks").await.expect(200);
        fixture.operator.get(&format!("/api/v1/tasks/{}/events", talker.task)).await.expect(200);
        fixture.board.anon().get("/healthz").await.expect(200);
    }
    assert!(talker.acked() <= held + 20, "{} after {held}", talker.acked());

    std::fs::remove_file(filler).expect("the filler");
    let free = Instant::now();
    for key in &refused {
        let task = eventually("it is kept", || async {
            match ask(&fixture, key).await {
                Asked::Kept(task) => Some(task),
                Asked::Later => None,
            }
        })
        .await;
        kept.push((key.clone(), task));
    }
    println!("all was kept {:?} after there was room", free.elapsed());
    let held = talker.acked();
    eventually("the viber is heard again", || async { (talker.acked() > held).then_some(()) }).await;
    assert_eq!(fixture.board.pid(), pid, "nobody had to restart it");
    talker.finish(&fixture.operator).await;
    fixture.tasks_are(&kept).await;
    // Also beside the Board everything is whole.
    let said = fixture.board.cli(&["doctor"]).await;
    assert!(said.out.contains("ok    database: whole"), "{said:?}");
}

/// A submit whose key is the first word of its goal.
async fn ask(fixture: &Fixture<FakeDaemon>, goal: &str) -> Asked {
    let key = goal.split(' ').next().expect("a word");
    let body = json!({ "goal": goal, "viberId": fixture.viber_id });
    let answer = fixture.operator.post_once(key, "/api/v1/tasks", &body).await;
    match answer.status {
        201 => Asked::Kept(board_tests::tasks::id(&answer.json(), "id").to_owned()),
        503 | 507 => {
            assert!(!answer.header("retry-after").is_empty(), "{answer:?}");
            Asked::Later
        }
        _ => panic!("neither kept nor refused for now: {answer:#?}"),
    }
}
