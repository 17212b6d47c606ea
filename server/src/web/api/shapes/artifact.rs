//! Artifacts as the API shows them.

use protocol::{ArtifactId, Instant, SessionId, TaskId, ViberId};
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain;

/// A file or link that a task produced, or that an operator attached.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Artifact)]
pub struct ArtifactResource {
    pub id: ArtifactId,
    pub session_id: SessionId,
    pub viber_id: ViberId,
    /// Absent for an attachment that waits for the session's next task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The name given by the agent, or the file name. Artifacts of a session with the same name are versions of one.
    pub name: String,
    pub title: String,
    /// The type declared by the agent or the upload.
    #[serde(rename = "type")]
    pub kind: String,
    /// The type detected from the content.
    pub sniffed: String,
    /// A path on the viber, or a URL that the Board never fetches.
    #[serde(rename = "ref")]
    pub reference: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// `agent`, `file` (it appeared in the task's folder) or `operator` (an attachment).
    pub origin: domain::ArtifactOrigin,
    /// Where its bytes are: `viber` (only there), `stored` (on the Board), `offline` (only on a viber that is offline),
    /// `gone`, or `link` (it has none).
    pub state: domain::ArtifactState,
    /// Since when `state` holds.
    pub state_since: Instant,
    pub created_by: String,
    pub created_at: Instant,
}

impl From<domain::Artifact> for ArtifactResource {
    fn from(artifact: domain::Artifact) -> Self {
        let (state, state_since) = artifact.place();
        Self {
            id: artifact.id,
            session_id: artifact.session_id,
            viber_id: artifact.viber_id,
            task_id: artifact.task_id,
            attempt: artifact.attempt,
            name: artifact.name,
            title: artifact.title,
            kind: artifact.claimed,
            sniffed: artifact.sniffed,
            reference: artifact.reference,
            size: artifact.size,
            sha256: artifact.sha256,
            origin: artifact.origin,
            state,
            state_since,
            created_by: artifact.created_by,
            created_at: artifact.created_at,
        }
    }
}
