//! The JSON of the API: answers, and what several bodies share, with schemas. Built from the domain, never the other
//! way round.

pub mod artifact;
pub mod mcp;
pub mod people;
pub mod playbook;
pub mod session;
pub mod skill;
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

/// An empty body: `{}`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(examples(json!({})))]
pub struct EmptyBody {}

/// Labels of vibers: the schema of their `BTreeMap<String, String>`.
#[derive(Debug)]
pub enum Labels {}

impl PartialSchema for Labels {
    fn schema() -> RefOr<Schema> {
        let text = |most| Object::builder().schema_type(Type::String).max_length(Some(most));
        let labels = Object::builder()
            .description(Some("At most 32; a key has 1 to 63 characters, a value at most 200, none of them invisible"))
            .property_names(Some(text(63).min_length(Some(1))))
            .additional_properties(Some(text(200)))
            .max_properties(Some(32));
        labels.into()
    }
}

impl ToSchema for Labels {}

/// Whether an accepted edit has reached its machine.
// `domain::EditState` also has conflicts and refusals; the API answers those with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = WriteState)]
pub enum EditDelivery {
    /// Written on the viber.
    Applied,
    /// Queued until the viber reconnects.
    Queued,
}

impl EditDelivery {
    /// The delivery of an edit that was accepted.
    pub fn of(state: EditState) -> Self {
        if state == EditState::Applied { Self::Applied } else { Self::Queued }
    }
}

/// The outcome of a change to a file.
#[derive(Debug, Serialize, ToSchema)]
pub struct WriteOutcome {
    /// The version of the file after the change; null when there is no file then.
    pub hash: Option<String>,
    pub state: EditDelivery,
}

impl WriteOutcome {
    /// The outcome of an edit that was applied or is queued.
    pub fn of(edit: Edit) -> Self {
        Self { hash: edit.hash, state: EditDelivery::of(edit.state) }
    }
}

/// An error in the format of RFC 9457 (`application/problem+json`).
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// Always `about:blank`: the code says what happened.
    pub r#type: String,
    /// The kind of error, in words.
    pub title: String,
    pub status: u16,
    /// One sentence for a person; absent where it could reveal something.
    pub detail: Option<String>,
    /// Stable, for programs.
    pub code: String,
    /// With `quota_exceeded`: the quota that is used up.
    pub what: Option<String>,
    /// With `quota_exceeded`: the usage, in bytes.
    pub used: Option<u64>,
    /// With `quota_exceeded`: the limit, in bytes.
    pub limit: Option<u64>,
    /// The `x-request-id` of the response; the Board's log names it too.
    pub request_id: String,
}

/// A version error: the request named a version that is not the current one, or none.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionProblem {
    #[serde(flatten)]
    pub problem: Problem,
    /// The current version; null when there is no file. Absent when it was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub current: Option<Option<String>>,
    /// The version that the request named; null when it named none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub base: Option<Option<String>>,
}
