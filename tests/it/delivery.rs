//! Delivery as `protocol.md` promises it, seen by a daemon that speaks it rightly or wrongly on command.

mod commands;
mod endings;
mod events;
mod handshake;
mod lies;
mod restarts;

use board_tests::{Board, Engine, FakeDaemon, Person, board::HOME};

/// A Board with a program that may submit and a viber that is connected.
struct Stage {
    board: Board,
    operator: Person,
    viber: FakeDaemon,
}

impl Stage {
    async fn set(engine: Engine) -> Self {
        let board = Board::start(engine).await;
        let operator = board.token(HOME, "operator").await;
        let viber = FakeDaemon::connected(&board, "lab").await;
        Self { board, operator, viber }
    }

    fn viber_id(&self) -> String {
        self.viber.id.to_string()
    }
}
