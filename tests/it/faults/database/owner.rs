//! One Board a database: the second is refused, takes over after a crash, and one that lost the database without noticing
//! changes nothing any more (F82–F84).

use board_tests::{Board, Engine, eventually};
use serde_json::json;
use sqlx::{Connection, Executor, PgConnection};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{Asked, Asking, absent_on, count};

crate::on_both_databases!(f82_a_second_board_is_told_who_has_the_database_and_takes_over_after_a_crash);

/// Ends the session that holds the database's lock.
const END_THE_LOCK: &str = "SELECT pg_terminate_backend(l.pid) FROM pg_locks l WHERE l.locktype = 'advisory' \
     AND l.granted AND l.classid::bigint = 1447186263 \
     AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// Another Board, with a data folder of its own and the same keys for the audit, on the same database.
async fn second(first: &Board) -> Board {
    let mut board = Board::prepare(Engine::Sqlite, &[]).await;
    super::give_audit_keys(first, &board);
    (board.engine, board.database_url) = (first.engine, first.database_url.clone());
    board
}

/// It must not serve: what it said.
async fn refused(board: &mut Board) -> String {
    board.serve();
    let status = board.ended().await;
    assert_eq!(status.code(), Some(78), "{}", board.log());
    board.log()
}

async fn f82_a_second_board_is_told_who_has_the_database_and_takes_over_after_a_crash(engine: Engine) {
    let mut fixture = absent_on(engine).await;
    let Asked::Kept(task) = fixture.ask("before").await else { panic!("it serves") };
    let mut other = second(&fixture.board).await;
    let said = refused(&mut other).await;
    let owner = format!("serve, process {}", fixture.board.pid());
    assert!(said.contains(&owner) && said.contains("since 20"), "who, and since when: {said}");
    let copy = fixture.board.data().join("copy");
    let copy = copy.to_str().expect("text");
    // What is small, or only reads, works beside it.
    fixture.board.cli(&["backup", copy]).await.good();
    other.cli(&["team", "list"]).await.good();
    other.cli(&["join-token", "--team", "home"]).await.good();
    assert!(other.cli(&["doctor"]).await.out.contains(&owner));
    for verb in [&["migrate"][..], &["restore", copy, "--replace"]] {
        let said = other.cli(verb).await;
        assert_eq!(said.code(), 78, "{verb:?}: {said:?}");
        assert!(said.err.contains(&owner), "{verb:?}: {said:?}");
    }
    let Asked::Kept(_) = fixture.ask("meanwhile").await else { panic!("it serves as before") };

    fixture.board.kill9();
    other.serve();
    other.ready().await;
    let said = refused(&mut fixture.board).await;
    assert!(said.contains(&format!("serve, process {}", other.pid())), "{said}");
    let token = fixture.operator.bearer().expect("a token").to_owned();
    let person = board_tests::Person::with_token(&other.url, &token);
    assert_eq!(person.task(&task).await["goal"], "before");
    other.stop().await;
    fixture.board.restart().await;
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f83_a_board_that_lost_the_database_unnoticed_changes_nothing_and_stops() {
    let mut fixture = absent_on(Engine::Postgres).await;
    let mut outsider = PgConnection::connect(&fixture.board.database_url).await.expect("the database");
    fixture.board.freeze();
    outsider.execute(END_THE_LOCK).await.expect("an ended session");
    let mut other = second(&fixture.board).await;
    other.serve();
    other.ready().await;
    // It wakes up with a change to make, before it can know: the request lies in its socket.
    let body = json!({ "goal": "too late", "viberId": fixture.viber_id }).to_string();
    let address = fixture.board.url.trim_start_matches("http://").to_owned();
    let head = format!(
        "POST /api/v1/tasks HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        fixture.operator.bearer().expect("a token"),
        body.len()
    );
    let mut late = TcpStream::connect(&address).await.expect("the kernel accepts for it");
    late.write_all(head.as_bytes()).await.expect("room in its socket");
    fixture.board.thaw();
    let mut answer = Vec::new();
    // It may also hang up.
    let _ = late.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 503"), "{answer}");
    let status = fixture.board.ended().await;
    let said = fixture.board.log();
    assert_eq!(status.code(), Some(78), "{said}");
    assert!(said.contains(&format!("serve, process {}", other.pid())), "it says who: {said}");
    let late = "SELECT COUNT(*) AS n FROM tasks WHERE goal = 'too late'";
    assert_eq!(count(&other.database_url, late).await, 0, "nothing of it was kept");
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f84_a_lock_whose_session_ends_is_taken_again_by_the_same_board() {
    let fixture = absent_on(Engine::Postgres).await;
    let mut outsider = PgConnection::connect(&fixture.board.database_url).await.expect("the database");
    let pid = fixture.board.pid();
    for n in 0..3 {
        let before = fixture.board.log().matches("lock is held again").count();
        outsider.execute(END_THE_LOCK).await.expect("an ended session");
        let Asked::Kept(_) = fixture.ask(&format!("during {n}")).await else { panic!("nobody else has it") };
        eventually("the lock is taken again", || async {
            (fixture.board.log().matches("lock is held again").count() > before).then_some(())
        })
        .await;
    }
    let mut other = second(&fixture.board).await;
    assert!(refused(&mut other).await.contains(&format!("process {pid}")));
    eventually("it still serves", || async { matches!(fixture.ask("after").await, Asked::Kept(_)).then_some(()) })
        .await;
    assert_eq!(fixture.board.pid(), pid);
    fixture.board.assert_invariants().await;
}
