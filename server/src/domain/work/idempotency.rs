//! Calls that a caller may send again when it never saw the answer.

use protocol::Instant;

/// How long an answer is kept for its key, milliseconds: 24 h.
pub const KEPT_FOR: i64 = 24 * 60 * 60 * 1000;

/// An unsafe call with a key of its caller's choice: an API client's `Idempotency-Key`, a form's hidden nonce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Once {
    pub key: String,
    /// SHA-256 (hex) of what is asked: the same key with other words is a mistake and refused.
    pub asks: String,
}

/// What the call with this key was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub status: u16,
    /// The body, byte for byte.
    pub answer: String,
    pub at: Instant,
}

/// Whether a key was seen in the last 24 h.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Earlier {
    No,
    /// The same call: it is answered as before and nothing is done.
    Same(Kept),
    /// Another call took the key (422 `idempotency_mismatch`).
    Other,
}
