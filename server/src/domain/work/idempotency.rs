//! Calls that a caller may repeat when it never saw the answer.

use protocol::Instant;

/// How long an answer is kept for its key, milliseconds: 24 h.
pub const ANSWER_LIFETIME_MS: i64 = 24 * 60 * 60 * 1000;

/// An unsafe call with a key chosen by its caller: an API client's `Idempotency-Key`, a form's hidden nonce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotentCall {
    pub key: String,
    /// SHA-256 (hex) of the request: the same key with another request is a mistake and refused.
    pub asks: String,
}

/// The answer that the call with this key got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAnswer {
    pub status: u16,
    /// The body, byte for byte.
    pub answer: String,
    pub at: Instant,
}

/// Whether a key was seen in the last 24 h.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EarlierCall {
    No,
    /// The same call: it gets the same answer and has no effect.
    Same(KeptAnswer),
    /// Another call has used the key (422 `idempotency_mismatch`).
    Other,
}
