//! Why a connection ends, and how the daemon is told.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use futures_util::{SinkExt, stream::SplitSink};
use protocol::{ViberId, limits::close};

use crate::{actions::reconcile, domain::Connection, error::Error, state::Board};

/// How long a close frame may take to leave.
pub(super) const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long what a connection had begun may take after its end.
pub(super) const LAST_WORK_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest delay that a draining Board asks for, seconds: daemons come back spread over this time.
const MAX_RETRY_AFTER_SECONDS: u64 = 10;
/// The longest reason in a close frame, bytes: RFC 6455 leaves room for 123.
const MAX_REASON_BYTES: usize = 120;

/// Why a connection ends: the close code, and a text for the log and the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseReason {
    /// 0 when the other side is gone, so that no close frame is sent.
    pub code: u16,
    pub reason: String,
}

impl CloseReason {
    pub fn new(code: u16, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }

    /// The other side is gone.
    pub fn gone() -> Self {
        Self::new(0, "gone")
    }

    /// The Board is shutting down. The delay depends on the viber, so that not all come back at once.
    pub fn draining(viber: &ViberId) -> Self {
        let mixed = viber.as_str().bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        Self::new(close::DRAINING, format!("retry-after={}", 1 + mixed % MAX_RETRY_AFTER_SECONDS))
    }

    /// A hello could not be answered.
    pub fn of_refusal(viber: &ViberId, error: Error) -> Self {
        match error {
            Error::Unauthenticated => Self::new(close::AUTH, "the viber was revoked"),
            Error::Unavailable { retry_after, .. } => Self::new(close::DRAINING, format!("retry-after={retry_after}")),
            other => {
                tracing::error!(viber.id = %viber, error = %other, "a hello could not be answered");
                Self::new(close::DRAINING, "retry-after=30")
            }
        }
    }

    /// A frame could not be read or sent. A violation of RFC 6455 is answered with a code of RFC 6455 (section 7.4.1).
    pub fn of_error(error: &axum::Error) -> Self {
        // tungstenite's words; axum hides the kinds of its errors.
        let words = error.to_string();
        match () {
            () if words.contains("too long") => Self::new(close::TOO_LARGE, "the frame is too large"),
            // A daemon that takes too little of what is sent is cut below this layer (`web::socket`).
            () if words.contains("timed out") => Self::new(close::TIMEOUT, "the daemon does not read"),
            () if words.contains("UTF-8") => Self::new(close::NOT_TEXT, "not UTF-8"),
            () if words.contains("IO error") || words.contains("without closing handshake") => Self::gone(),
            () => Self::new(close::MALFORMED, words),
        }
    }
}

/// Sends the close frame, if there is anybody to send it to.
pub(super) async fn goodbye(mut sink: SplitSink<WebSocket, Message>, close: &CloseReason) {
    if close.code == 0 {
        // The library answers a close frame of theirs, when it is given time.
        drop(tokio::time::timeout(GOODBYE_TIMEOUT, sink.flush()).await);
        return;
    }
    let reason = protocol::text::head(&close.reason, MAX_REASON_BYTES).into();
    let sent = async {
        // The peer's answer is not awaited: it may be the reason for the end that it does not answer.
        drop(sink.send(Message::Close(Some(CloseFrame { code: close.code, reason }))).await);
    };
    drop(tokio::time::timeout(GOODBYE_TIMEOUT, sent).await);
}

/// Records that contact is lost; otherwise the scheduler does it later.
pub(super) async fn lost(board: &Board, Connection { team, viber, epoch, .. }: &Connection) {
    if let Err(error) = reconcile::disconnected(board, team, viber, *epoch).await {
        tracing::warn!(viber.id = %viber, %error, "the end of a connection could not be recorded");
    }
}
