//! A85, A87 to A91, A95, A96: the wire below the product. Raw sockets say what no library would.

mod flood;
mod paths;
mod sizes;
mod slow;
mod smuggling;
mod websocket;

use std::time::Duration;

use board_tests::{Board, Engine, Person, board::HOME};

/// The rules hold before any database is asked; where one is asked, the case runs on both.
const ANY: Engine = Engine::Sqlite;

/// Long enough for an answer on a busy machine, and far below ten seconds, which nothing may hang.
const SOON: Duration = Duration::from_secs(5);

/// A Board, a program's token, and the Board's host.
async fn scene(engine: Engine) -> (Board, Person, String) {
    let board = Board::start(engine).await;
    let operator = board.token(HOME, "operator").await;
    let host = board.url.trim_start_matches("http://").to_owned();
    (board, operator, host)
}
