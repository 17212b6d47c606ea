//! The JSON of the API: answers, and what several bodies share, with schemas. Built from the domain, never the other
//! way round.

pub mod artifact;
pub mod people;
pub mod session;
pub mod task;
pub mod viber;

pub use artifact::ArtifactResource;
pub use people::{AuditEntry, InvitationResource, MemberResource, TokenResource};
pub use session::{MessageResource, SessionResource};
pub use task::TaskResource;
pub use viber::{ContactResource, ViberResource};

use serde::{Deserialize, Serialize};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{Object, RefOr, Schema, schema::Type},
};

use crate::domain::{Edit, EditState};

/// One page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub struct List<T> {
    pub items: Vec<T>,
    /// The `cursor` of the next page; null on the last one.
    pub next: Option<String>,
}

/// A body that says nothing: `{}`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(examples(json!({})))]
pub struct EmptyBody {}

/// Labels of vibers: what `BTreeMap<String, String>` is described as.
#[derive(Debug)]
pub enum Labels {}

impl PartialSchema for Labels {
    fn schema() -> RefOr<Schema> {
        let text = |most| Object::builder().schema_type(Type::String).max_length(Some(most));
        let labels = Object::builder()
            .description(Some("At most 32; a key has 1 to 63 characters, a value at most 200, without any that hide"))
            .property_names(Some(text(63).min_length(Some(1))))
            .additional_properties(Some(text(200)))
            .max_properties(Some(32));
        labels.into()
    }
}

impl ToSchema for Labels {}

/// Whether a change is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WriteState {
    /// It is on the machine.
    Applied,
    /// It waits until the viber is back.
    Queued,
}

impl WriteState {
    /// What became of an edit that nothing stands against.
    pub fn of(state: EditState) -> Self {
        if state == EditState::Applied { Self::Applied } else { Self::Queued }
    }
}

/// What became of a change of a file.
#[derive(Debug, Serialize, ToSchema)]
pub struct WriteOutcome {
    /// The version that there is now, or will be; null: none.
    pub hash: Option<String>,
    pub state: WriteState,
}

impl WriteOutcome {
    /// The same, of an edit that was made or waits.
    pub fn of(edit: Edit) -> Self {
        Self { hash: edit.hash, state: WriteState::of(edit.state) }
    }
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
    /// One sentence for a person; absent where it could reveal something.
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

/// An error about a version: it is not the one that the call named, or the call named none.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionProblem {
    #[serde(flatten)]
    pub problem: Problem,
    /// The version that is there; null: none. Absent when it was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub current: Option<Option<String>>,
    /// The version that the call named; null: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub base: Option<Option<String>>,
}
