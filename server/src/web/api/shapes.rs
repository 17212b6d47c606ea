//! The JSON of the API: what stands in answers, with its schema. Built from the domain, never the other way round.

pub mod artifact;
pub mod people;
pub mod session;
pub mod task;
pub mod viber;

pub use artifact::Artifact;
pub use people::{AuditEntry, Invitation, Member, Token};
pub use session::{Message, Session};
pub use task::Task;
pub use viber::{Contact, Viber};

use serde::Serialize;
use utoipa::ToSchema;

/// One page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub struct List<T> {
    pub items: Vec<T>,
    /// The `cursor` of the next page; null on the last one.
    pub next: Option<String>,
}

/// An error as RFC 9457 has it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// Always `about:blank`: the code says what happened.
    pub r#type: String,
    /// The status in words.
    pub title: String,
    pub status: u16,
    /// One sentence for a person; absent where it could tell something.
    pub detail: Option<String>,
    /// Stable, for programs.
    pub code: String,
    /// Of `quota_exceeded`: what is used up.
    pub what: Option<String>,
    /// Of `quota_exceeded`: how much of it is used.
    pub used: Option<u64>,
    /// Of `quota_exceeded`: how much of it may be.
    pub limit: Option<u64>,
    /// The same as the answer's `x-request-id`; stands in the Board's log.
    pub request_id: String,
}
