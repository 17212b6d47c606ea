//! A155: what is no attack raises no alarm: crashes, several processes, other keys, backups, Boards of before.

use board_tests::{Board, Engine, Person, board::HOME, eventually};
use futures_util::future::join_all;
use serde_json::json;

use super::{audit::old_rows, hang_up};

crate::on_both_databases!(
    a155_a_crash_and_other_processes_raise_no_alarm,
    a155_a_backup_that_is_put_back_is_told_and_no_alarm,
    a155_an_audit_of_before_is_sealed_at_the_first_start,
);

/// What doctor says, which is content.
async fn content(board: &Board) -> String {
    let said = board.cli(&["doctor"]).await;
    assert!(said.status.success() && said.out.contains("ok    audit"), "{said:?}");
    said.out
}

async fn makes_tokens(program: &Person, count: u32) {
    for n in 0..count {
        program.post("/api/v1/tokens", &json!({"name": format!("t{n}"), "role": "viewer"})).await.expect(201);
    }
}

/// The number of the newest row of `home`, and that which its head names.
async fn ends(board: &Board) -> (u64, u64) {
    let db = server::db::Db::connect(&board.database_url).await.expect("the database");
    let team = server::db::teams::by_slug(&mut db.reader().await.expect("a reader"), HOME).await;
    let team = team.expect("an answer").expect("the team").id;
    let newest = server::db::audit::newest(&mut db.reader_of(&team).await.expect("a reader")).await;
    let newest = newest.expect("an answer").expect("a row").seq;
    db.close().await;
    let heads = std::fs::read_to_string(board.data().join("audit/head")).expect("the heads");
    let line = heads.lines().find(|line| line.starts_with(team.as_str())).expect("a head of home");
    (newest, line.split(' ').nth(1).expect("a number").parse().expect("a number"))
}

async fn a155_a_crash_and_other_processes_raise_no_alarm(engine: Engine) {
    let mut board = Board::start(engine).await;
    let program = board.token(HOME, "admin").await;
    makes_tokens(&program, 2).await;
    // Killed between a commit and its head.
    board.fail("audit::before_head", "return(crash)").await;
    let asked = program.request(reqwest::Method::POST, "/api/v1/tokens").json(&json!({"name": "x", "role": "viewer"}));
    program.try_send(asked).await.ok();
    assert!(!board.ended().await.success());
    let (newest, head) = ends(&board).await;
    assert!(head < newest, "the head was not written: {head} {newest}");
    content(&board).await;
    board.heal().await;
    board.restart().await;
    let (newest, head) = ends(&board).await;
    assert_eq!(newest, head, "a start looks at all of them");

    // Commands beside it, at once with it and with each other; another audit key in the middle.
    let tokens = async {
        let names: Vec<String> = (0..6).map(|n| format!("cli {n}")).collect();
        join_all(names.iter().map(|name| async {
            board.cli(&["token", "add", "--team", HOME, "--name", name, "--role", "viewer"]).await.good();
        }))
        .await;
    };
    let rotate = async {
        let said = board.cli(&["keys", "rotate", "--audit"]).await.good();
        assert!(said.contains("sealing the audit with"), "{said}");
    };
    tokio::join!(tokens, makes_tokens(&program, 10), rotate);
    content(&board).await;
    eventually("the head has followed", || async {
        let (newest, head) = ends(&board).await;
        assert!(head <= newest, "never ahead");
        (head == newest).then_some(())
    })
    .await;
    hang_up(&board, "read again").await;
    makes_tokens(&program, 1).await;
    board.stop().await;
    let (newest, head) = ends(&board).await;
    assert_eq!(newest, head, "an end in order leaves nothing behind");
    let files = board_tests::canary::files(&board.data().join("audit"));
    assert_eq!(files.iter().filter(|file| file.extension().is_some_and(|end| end == "key")).count(), 2, "{files:?}");
    content(&board).await;
    board.restart().await;
    board.assert_invariants().await;
}

async fn a155_a_backup_that_is_put_back_is_told_and_no_alarm(engine: Engine) {
    let mut board = Board::start(engine).await;
    let program = board.token(HOME, "admin").await;
    makes_tokens(&program, 2).await;
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("sunday.copy");
    let copy = copy.to_str().expect("text");
    board.cli(&["backup", copy]).await.good();
    makes_tokens(&program, 5).await;
    board.stop().await;
    assert!(!content(&board).await.contains("a backup was restored"));
    board.cli(&["restore", copy, "--replace"]).await.good();
    let said = content(&board).await;
    assert!(said.contains("warn  audit: of team home: a backup was restored at"), "{said}");
    board.restart().await;
    let rows = program.get("/api/v1/audit?limit=200").await.expect(200).json();
    let row = &rows["items"][0];
    assert_eq!((&row["action"], &row["detail"]), (&json!("board.restore"), &json!("from sunday.copy")), "{rows:#}");
    makes_tokens(&program, 1).await;
    board.assert_invariants().await;

    // On another machine, which has none of the keys: it says which rows it cannot check, and seals on.
    let mut other = Board::prepare(engine, &[]).await;
    other.cli(&["restore", copy]).await.good();
    let said = content(&other).await;
    assert!(said.contains("were sealed with a key that is missing here"), "{said}");
    other.serve();
    other.ready().await;
    makes_tokens(&other.token(HOME, "admin").await, 1).await;
    content(&other).await;
    other.assert_invariants().await;
    other.sql("DELETE FROM audit WHERE seq = 2").await;
    assert!(!other.cli(&["doctor"]).await.status.success());
}

async fn a155_an_audit_of_before_is_sealed_at_the_first_start(engine: Engine) {
    let mut board = Board::start(engine).await;
    board.stop().await;
    let db = server::db::Db::connect(&board.database_url).await.expect("the database");
    let team = server::db::teams::by_slug(&mut db.reader().await.expect("a reader"), HOME).await;
    let team = team.expect("an answer").expect("a team").id;
    db.close().await;
    board.sql("DELETE FROM audit").await;
    old_rows(&board, team.as_str(), 3).await;
    std::fs::remove_dir_all(board.data().join("audit")).expect("the folder");
    let said = board.cli(&["doctor"]).await;
    assert!(said.status.success() && said.out.contains("warn  audit: not sealed yet"), "{said:?}");
    // Two at once, one of which dies of it.
    board.fail("audit::sealed", "1*return(crash)").await;
    board.serve();
    assert!(!board.ended().await.success());
    board.heal().await;
    join_all((0..3).map(|_| board.cli(&["team", "list"]))).await.into_iter().for_each(|said| drop(said.good()));
    board.restart().await;
    content(&board).await;
    let program = board.token(HOME, "admin").await;
    let rows = program.get("/api/v1/audit?limit=200").await.expect(200).json();
    let rows = rows["items"].as_array().expect("rows");
    let seals = rows.iter().filter(|row| row["action"] == "audit.seal").count();
    assert_eq!((seals, rows.len()), (1, 5), "{rows:#?}");
    content(&board).await;
    board.sql("UPDATE audit SET detail = 'other' WHERE seq = 1").await;
    let said = board.cli(&["doctor"]).await;
    assert!(said.out.contains("row 1 was changed"), "{said:?}");
}
