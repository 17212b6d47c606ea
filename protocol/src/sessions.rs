//! Sessions as a machine has recorded them: the logs of its agents, listed and read in pieces. A log outlives the Board
//! on which the session began.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    frame::AttemptRef,
    ids::{SessionId, TaskId},
    instant::Instant,
};

/// Sessions in one answer to `session.list`.
pub const MAX_SESSIONS: usize = 100;
/// Lines in one answer to `session.log`.
pub const MAX_LINES: usize = 500;
/// Most bytes that the lines of one answer take as JSON.
pub const MAX_LINES_BYTES: usize = 160 * 1024;
/// Longest line that is sent, bytes as JSON; of a longer one only its size is.
pub const MAX_LINE_BYTES: usize = 128 * 1024;

/// The answer to `session.list {from?}`: the newest first, from number `from` on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionList {
    pub items: Vec<LoggedSession>,
    /// Where the rest begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// A session that this machine has a log of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoggedSession {
    pub session_id: SessionId,
    pub agent_id: String,
    /// From its first goal; empty when the log does not say.
    #[serde(default)]
    pub title: String,
    /// When it was last written to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at: Option<Instant>,
    /// Absent when there are too many to count quickly.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lines: Option<u64>,
    #[serde(default)]
    pub bytes: u64,
    /// The task of its last line.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_task_id: Option<TaskId>,
}

/// A position in a log: how many lines lie before it, and how many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPlace {
    pub line: u64,
    pub at: u64,
}

/// The answer to `session.log {sessionId, agentId?, from?: LogPlace, limit?}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionPiece {
    pub session_id: SessionId,
    pub agent_id: String,
    #[serde(default)]
    pub title: String,
    #[serde(default)]
    pub lines: Vec<LoggedLine>,
    /// Where the rest begins; absent at the end of the log.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<LogPlace>,
    /// Attempts among these lines that are not over, or whose reports are still on their way to the Board.
    #[serde(default)]
    pub open: Vec<AttemptRef>,
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoggedLine {
    /// Its number in the file, from 1.
    pub seq: u64,
    /// The offset of its end in the file: where the next one begins.
    pub end: u64,
    /// The size of the line.
    pub bytes: u64,
    /// `{"at","seq","taskId","attempt","type",…}`; absent when it is no such object, or too long.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<Value>,
}
