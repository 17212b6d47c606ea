//! Sizes, rates and times that both ends obey, and the codes with which a connection is closed.

/// The subprotocol of the WebSocket, offered by the daemon and chosen by the Board.
pub const SUBPROTOCOL: &str = "openviber.v1";
/// The supported protocol versions, lowest and highest.
pub const PROTOCOL: [u32; 2] = [1, 1];
/// Largest text frame, bytes.
pub const MAX_FRAME_BYTES: usize = 256 * 1024;
/// Largest single event when it is written, bytes.
pub const MAX_EVENT_BYTES: usize = 128 * 1024;
/// Calls of tools that one answer of a model may hold; each may be a question to people.
pub const MAX_CALLS_PER_ANSWER: usize = 64;
/// Largest `content` of a `tool-output` and `result` of a `tool-result`, bytes.
pub const MAX_TOOL_TEXT_BYTES: usize = 64 * 1024;
/// Largest `result.text`, bytes.
pub const MAX_RESULT_TEXT_BYTES: usize = 96 * 1024;
/// A larger task payload is fetched over HTTP instead of riding in the command, bytes.
pub const MAX_INLINE_PAYLOAD_BYTES: usize = 128 * 1024;
/// Largest goal or message content, bytes.
pub const MAX_GOAL_BYTES: usize = 256 * 1024;
/// Largest file of a workspace that is shown in full and can be edited, bytes.
pub const MAX_TEXT_FILE_BYTES: u64 = 1024 * 1024;
/// Most bytes of a file in one answer.
pub const MAX_PIECE_BYTES: u64 = 128 * 1024;
/// A larger change of a file is fetched over HTTP instead of riding in the command, bytes.
pub const MAX_INLINE_WRITE_BYTES: usize = 96 * 1024;
/// Most entries of one folder in one answer.
pub const MAX_ENTRIES: usize = 2_000;
/// Most bytes that the entries of one answer take as JSON.
pub const MAX_LISTING_BYTES: usize = 192 * 1024;
/// Longest path of a file in a workspace, bytes.
pub const MAX_PATH_BYTES: usize = 1024;
/// Longest `result.summary`, characters.
pub const MAX_SUMMARY_CHARS: usize = 280;
/// Longest title taken from a goal, characters.
pub const MAX_TITLE_CHARS: usize = 80;
/// Context window assumed when an agent names none, tokens.
pub const DEFAULT_CONTEXT_WINDOW_TOKENS: u64 = 32_768;
/// Between two heartbeats, seconds.
pub const HEARTBEAT_SECONDS: u64 = 10;
/// Silence after which the other side counts as disconnected, seconds.
pub const SILENCE_SECONDS: u64 = 30;
/// Sustained events a second that the Board accepts from a viber.
pub const EVENTS_PER_SECOND: u64 = 2_000;
/// Sustained bytes a second that the Board accepts from a viber.
pub const BYTES_PER_SECOND: u64 = 4 * 1024 * 1024;
/// Unacknowledged events a daemon may have under way.
pub const WINDOW_EVENTS: u64 = 4_000;
/// Unacknowledged bytes a daemon may have under way.
pub const WINDOW_BYTES: u64 = 4 * 1024 * 1024;
/// Outbox quota of one task, bytes.
pub const MAX_TASK_OUTBOX_BYTES: u64 = 64 * 1024 * 1024;
/// Outbox quota of a viber, bytes.
pub const MAX_VIBER_OUTBOX_BYTES: u64 = 256 * 1024 * 1024;
/// Kept free in the outbox for terminal events, bytes.
pub const OUTBOX_RESERVE_BYTES: u64 = 1024 * 1024;
/// Coalesced text frames per second and task, after the first delta, which is sent at once.
pub const DELTAS_PER_SECOND: u64 = 20;
/// Largest archive of a skill's files, bytes.
pub const MAX_SKILL_ARCHIVE_BYTES: u64 = 24 * 1024 * 1024;
/// Most bytes of a skill's files together.
pub const MAX_SKILL_BYTES: u64 = 20 * 1024 * 1024;
/// Most files of a skill in a library.
pub const MAX_SKILL_FILES: usize = 1_000;
/// How long a join token lives, seconds.
pub const JOIN_TOKEN_SECONDS: i64 = 15 * 60;

/// Codes with which a WebSocket is closed: from the private range of RFC 6455, and two of its own for violations of it.
pub mod close {
    /// Not a valid frame (RFC 6455).
    pub const MALFORMED: u16 = 1002;
    /// A text that is not UTF-8.
    pub const NOT_TEXT: u16 = 1007;
    /// The other side broke the protocol.
    pub const PROTOCOL: u16 = 4400;
    /// The credential is not (or no longer) valid.
    pub const AUTH: u16 = 4401;
    /// The credential is valid but does not allow this.
    pub const FORBIDDEN: u16 = 4403;
    /// Silent, or not reading, for too long.
    pub const TIMEOUT: u16 = 4408;
    /// A newer connection of the same viber took over.
    pub const SUPERSEDED: u16 = 4409;
    /// A frame over the limit.
    pub const TOO_LARGE: u16 = 4413;
    /// Far above the accepted rate.
    pub const RATE: u16 = 4429;
    /// The Board is shutting down; the reason holds `retry-after=SECONDS`.
    pub const DRAINING: u16 = 4503;
}
