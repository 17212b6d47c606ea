//! A85, A87 to A91, A95, A96: the wire below the product. Raw sockets say what no library would.

mod flood;
mod paths;
mod sizes;
mod slow;
mod smuggling;
mod websocket;

use std::time::Duration;

use board_tests::{Engine, Fixture};

/// The rules hold before any database is asked; where one is asked, the case runs on both.
const ANY_ENGINE: Engine = Engine::Sqlite;

/// Long enough for an answer on a busy machine, and far below ten seconds, which nothing may hang.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A Board with a program, and the Board's host.
async fn served(engine: Engine) -> (Fixture<()>, String) {
    let fixture = Fixture::on(engine).without_viber().await;
    let host = fixture.board.url.trim_start_matches("http://").to_owned();
    (fixture, host)
}
