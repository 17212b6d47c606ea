//! Reasons why the Board does not do something. `web` turns them into pages, fragments and problem+json.

use crate::{db, domain};

/// A reason a reader would recognise, or `Internal`, which is logged once at the edge.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Unknown and foreign look alike (404).
    #[error("not found")]
    NotFound,
    /// Not signed in, or a credential that is not good (401, pages: 303 to sign-in).
    #[error("not signed in")]
    Unauthenticated,
    /// The role is too low (403).
    #[error("{0}")]
    Forbidden(&'static str),
    /// The team may not have so much more of something shared (403 `quota_exceeded`), bytes.
    #[error("the team's {what} has no room for it: {} of {} are used", domain::size_words(*used), domain::size_words(*limit))]
    QuotaExceeded { what: &'static str, used: u64, limit: u64 },
    /// A request that another site may have caused (403 `csrf_failed`).
    #[error("the request did not come from this Board's own pages")]
    CsrfFailed,
    /// Not understood (400).
    #[error("{0}")]
    Malformed(String),
    /// Understood and unacceptable (422); `code` is stable.
    #[error("{message}")]
    Unacceptable { code: &'static str, message: String },
    /// The state of things does not allow it (409); `code` is stable.
    #[error("{message}")]
    Conflict { code: &'static str, message: String },
    /// A body of a kind that this call does not take (415): what it takes.
    #[error("send {0}")]
    WrongMedia(&'static str),
    /// It was here and is no more (410).
    #[error("{0}")]
    Gone(&'static str),
    /// A viber that has to be asked is away, since when (503 `viber_offline`).
    #[error("the viber is offline since {since}")]
    Offline { since: protocol::Instant },
    /// It has no such bytes (416).
    #[error("it has only {size} bytes")]
    BadRange { size: u64 },
    /// Over a limit of size (413).
    #[error("{0}")]
    TooLarge(&'static str),
    /// Too often (429); seconds until it makes sense again.
    #[error("too many requests")]
    Throttled { retry_after: u64 },
    /// A thing we depend on is down (503); seconds until it makes sense again.
    #[error("{what} is not available")]
    Unavailable { what: &'static str, retry_after: u64 },
    /// Our fault.
    #[error("internal error: {0}")]
    Internal(String),
}

/// What most of the Board's functions answer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A 422 with its stable code.
    pub fn unacceptable(code: &'static str, message: impl Into<String>) -> Self {
        Self::Unacceptable { code, message: message.into() }
    }

    /// A 409 with its stable code.
    pub fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::Conflict { code, message: message.into() }
    }
}

impl From<db::Error> for Error {
    fn from(error: db::Error) -> Self {
        match error {
            db::Error::Unavailable(reason) => {
                tracing::warn!(reason, "the database is not available");
                Self::Unavailable { what: "the database", retry_after: 2 }
            }
            db::Error::Taken => Self::conflict("taken", "somebody else was faster"),
            db::Error::Broken(reason) => Self::Internal(reason),
        }
    }
}
