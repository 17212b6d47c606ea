//! A173: a hard link is another name of the same SQLite file, with another lock and another log beside it.

use board_tests::{Board, Engine, board::HOME};
use serde_json::json;

/// What a command says that refuses a file with several names.
const HARD_LINKS_REFUSAL: &str = "has other names (hard links)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a173_a_hard_link_gets_nobody_into_a_database_twice() {
    let mut board = Board::start(Engine::Sqlite).await;
    let program = board.token(HOME, "admin").await;
    let file = super::file(&board);
    let copy = board.data().join("copy.tar");
    let copy = copy.to_str().expect("text").to_owned();
    board.cli(&["backup", &copy]).await.good();
    let mut other = Board::prepare(Engine::Sqlite, &[]).await;
    super::give_audit_keys(&board, &other);
    let hard = other.data().join("hard.db");
    std::fs::hard_link(&file, &hard).expect("a link");
    other.database_url = format!("sqlite://{}", hard.display());
    other.serve();
    assert_eq!(other.ended().await.code(), Some(78), "{}", other.log());
    assert!(other.log().contains(HARD_LINKS_REFUSAL), "{}", other.log());
    let beside = ["team", "add", "beside"];
    for verb in [&["migrate"][..], &["restore", &copy, "--replace"], &["backup", "elsewhere.tar"], &beside] {
        let said = other.cli(verb).await;
        assert_eq!(said.code(), 78, "{verb:?}: {said:?}");
        assert!(said.err.contains(HARD_LINKS_REFUSAL), "{verb:?}: {said:?}");
    }
    for one in [&board, &other] {
        let said = one.cli(&["doctor"]).await;
        assert!(!said.status.success() && said.out.contains(HARD_LINKS_REFUSAL), "{said:?}");
    }
    // The one that serves goes on; once it has stopped, nobody can tell any more who would be the other.
    program.post("/api/v1/tokens", &json!({"name": "on", "role": "viewer"})).await.expect(201);
    board.stop().await;
    board.serve();
    assert_eq!(board.ended().await.code(), Some(78), "{}", board.log());
    assert!(board.log().contains(HARD_LINKS_REFUSAL), "{}", board.log());
    std::fs::remove_file(&hard).expect("removed");
    // What `restore` leaves when it is killed while the old file has two names is its own.
    std::fs::hard_link(&file, board.data().join("board.db.before-1")).expect("a link");
    board.restart().await;
    board.cli(&["doctor"]).await.good();
    board.assert_invariants().await;
}
