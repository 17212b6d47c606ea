//! A restore that is killed is finished or forgotten by whoever comes next (F93, F94), and a limit that no Board wrote is
//! not restored.

use std::path::{Path, PathBuf};

use board_tests::{Board, Engine, board::HOME, programs::run};
use serde_json::json;

use super::restore::{backup, full, rows, same};

crate::on_both_databases!(
    f93_a_restore_after_a_killed_one_has_its_blobs,
    f94_a_restore_that_was_killed_at_its_end_is_told_and_no_alarm,
    f94_a_restore_that_was_killed_before_its_end_changed_nothing,
    a_backup_with_a_negative_limit_is_refused,
);

/// Restores, and dies at a failpoint.
async fn killed(board: &Board, from: &Path, point: &str) {
    let mut command = board.command(&["restore", from.to_str().expect("text"), "--replace"]);
    command.env("FAILPOINTS", format!("{point}=return(crash)"));
    let said = run(command, "").await;
    assert!(said.status.code().is_none(), "it was to die at {point}: {said:?}");
}

/// Stages of the store of a Board that has its blobs in its data folder.
fn stages(board: &Board) -> Vec<PathBuf> {
    board_tests::canary::files(&board.data().join("artifacts/.staging"))
}

async fn doctor(board: &Board) -> String {
    let said = board.cli(&["doctor"]).await;
    assert!(said.status.success() && said.out.contains("ok    audit"), "{said:?}");
    said.out
}

async fn f93_a_restore_after_a_killed_one_has_its_blobs(engine: Engine) {
    let (fixture, _) = full(engine).await;
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("b.tar");
    backup(&fixture.board, &copy, &["--blobs"]).await;
    let mut board = Board::prepare(engine, &[]).await;
    super::give_audit_keys(&fixture.board, &board);
    for _ in 0..2 {
        killed(&board, &copy, "artifacts::keep").await;
        assert_eq!(stages(&board).len(), 1, "what it was about to keep");
    }
    let said = board.cli(&["restore", copy.to_str().expect("text")]).await.good();
    assert!(said.contains("1 blobs are in the store"), "{said}");
    assert_eq!(stages(&board), Vec::<PathBuf>::new());
    same(&rows(&board.database_url).await, &rows(&fixture.board.database_url).await, "the third time");
    board.ledger().somebody_else_submits();
    board.restart().await;
    board.assert_invariants().await;
}

/// A Board that was backed up and then went on: stopped, with the backup.
async fn went_on(engine: Engine, folder: &Path) -> (Board, PathBuf) {
    let mut board = Board::start(engine).await;
    let program = board.token(HOME, "admin").await;
    let copy = folder.join("sunday.tar");
    backup(&board, &copy, &[]).await;
    for n in 0..3 {
        program.post("/api/v1/tokens", &json!({"name": format!("t{n}"), "role": "viewer"})).await.expect(201);
    }
    board.stop().await;
    (board, copy)
}

async fn f94_a_restore_that_was_killed_at_its_end_is_told_and_no_alarm(engine: Engine) {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut board, copy) = went_on(engine, folder.path()).await;
    killed(&board, &copy, "restore::exchanged").await;
    let said = doctor(&board).await;
    assert!(said.contains("warn  audit: a restore was interrupted before its last step"), "{said}");
    assert!(said.contains("of team home: a backup was restored at"), "{said}");
    // A Board that starts then takes the last step.
    board.restart().await;
    let said = doctor(&board).await;
    assert!(!said.contains("before its last step") && said.contains("a backup was restored at"), "{said}");
    let program = board.token(HOME, "admin").await;
    let read = program.get("/api/v1/audit?limit=200").await.expect(200).json();
    let told = read["items"].as_array().expect("rows").iter().find(|row| row["action"] == "board.restore");
    assert_eq!(told.expect("a row")["detail"], "from sunday.tar");
    board.assert_invariants().await;
    board.stop().await;
    // So do a command, and another restore.
    for next in [&["team", "add", "more"][..], &["restore", copy.to_str().expect("text"), "--replace"]] {
        killed(&board, &copy, "restore::exchanged").await;
        board.cli(next).await.good();
        assert!(!doctor(&board).await.contains("before its last step"), "{next:?}");
        assert!(!board.data().join("audit/restoring").exists(), "{next:?}");
    }
    // What is cut off after that is found as ever.
    board.sql("DELETE FROM audit WHERE action = 'board.restore'").await;
    assert!(board.cli(&["doctor"]).await.out.contains("FAIL  audit: of team home: its end was cut off"));
}

async fn f94_a_restore_that_was_killed_before_its_end_changed_nothing(engine: Engine) {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut board, copy) = went_on(engine, folder.path()).await;
    let before = rows(&board.database_url).await;
    killed(&board, &copy, "restore::announced").await;
    same(&rows(&board.database_url).await, &before, "killed before it");
    assert!(!doctor(&board).await.contains("restore"), "nothing was put back");
    // Neither a command nor a Board takes over the heads of what is not there.
    board.cli(&["team", "add", "more"]).await.good();
    doctor(&board).await;
    board.restart().await;
    assert!(!board.data().join("audit/restoring").exists(), "nobody waits for it any more");
    doctor(&board).await;
    board.assert_invariants().await;
}

async fn a_backup_with_a_negative_limit_is_refused(engine: Engine) {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut board, _) = went_on(engine, folder.path()).await;
    let copy = folder.path().join("negative.tar");
    board.sql("UPDATE teams SET storage_bytes = -5").await;
    backup(&board, &copy, &[]).await;
    let before = rows(&board.database_url).await;
    let said = board.cli(&["restore", copy.to_str().expect("text"), "--replace"]).await;
    assert_eq!(said.code(), 1, "{said:?}");
    assert!(said.err.contains("a limit of team home is negative"), "{said:?}");
    same(&rows(&board.database_url).await, &before, "a negative limit");
    // One that is in a database already leaves no room and hides nothing.
    board.restart().await;
    let program = board.token(HOME, "admin").await;
    let quota = program.get("/api/v1/quota").await.expect(200).json();
    assert_eq!(quota["storage"]["limit"], 0, "{quota}");
    board.sql("UPDATE teams SET storage_bytes = 1000000").await;
    board.assert_invariants().await;
}
