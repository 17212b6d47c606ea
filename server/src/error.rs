//! Reasons why the Board refuses or fails. `web` turns them into pages, fragments and problem+json.

use crate::{
    db::DbError,
    domain::{self, InvalidInput},
};

/// A reason a reader would recognise, or `Internal`, which is logged once at the edge.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Unknown, or another team's: the two look alike (404).
    #[error("not found")]
    NotFound,
    /// Not signed in, or an invalid credential (401, pages: 303 to sign-in).
    #[error("not signed in")]
    Unauthenticated,
    /// The role is too low (403).
    #[error("{0}")]
    Forbidden(&'static str),
    /// The team's quota has no room for it (403 `quota_exceeded`), bytes.
    #[error("the team's {what} has no room for it: {} of {} are used", domain::size_words(*used), domain::size_words(*limit))]
    QuotaExceeded { what: &'static str, used: u64, limit: u64 },
    /// A request that another site may have caused (403 `csrf_failed`).
    #[error("the request did not come from this Board's own pages")]
    CsrfFailed,
    /// Malformed (400).
    #[error("{0}")]
    Malformed(String),
    /// Understood, but not acceptable (422); `code` is stable.
    #[error("{message}")]
    Unacceptable { code: &'static str, message: String },
    /// The current state does not allow it (409); `code` is stable.
    #[error("{message}")]
    Conflict { code: &'static str, message: String },
    /// The body has a media type that this call does not accept (415): what it accepts.
    #[error("send {0}")]
    WrongMedia(&'static str),
    /// It existed and is gone (410).
    #[error("{0}")]
    Gone(&'static str),
    /// The viber that would have to answer is offline (503 `viber_offline`).
    #[error("the viber is offline since {since}")]
    Offline { since: protocol::Instant },
    /// The requested range lies outside of it (416).
    #[error("it has only {size} bytes")]
    BadRange { size: u64 },
    /// Larger than a limit allows (413).
    #[error("{0}")]
    TooLarge(&'static str),
    /// Too many requests (429); seconds until trying again makes sense.
    #[error("too many requests")]
    Throttled { retry_after: u64 },
    /// Something the Board depends on is down (503); seconds until trying again makes sense.
    #[error("{what} is not available")]
    Unavailable { what: &'static str, retry_after: u64 },
    /// The registry of skills does not answer as one (503 `registry_away`): what it did, and seconds until trying again makes
    /// sense.
    #[error("the registry of skills {why}")]
    RegistryAway { why: &'static str, retry_after: u64 },
    /// A bug or an impossible state (500).
    #[error("internal error: {0}")]
    Internal(String),
}

/// The result of most of the Board's functions.
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

impl From<InvalidInput> for Error {
    fn from(invalid: InvalidInput) -> Self {
        Self::unacceptable(invalid.code, invalid.message)
    }
}

impl From<DbError> for Error {
    fn from(error: DbError) -> Self {
        match error {
            DbError::Unavailable(reason) => {
                tracing::warn!(reason, "the database is not available");
                Self::Unavailable { what: "the database", retry_after: 2 }
            }
            DbError::Taken => Self::conflict("taken", "somebody else was faster"),
            DbError::Broken(reason) => Self::Internal(reason),
        }
    }
}
