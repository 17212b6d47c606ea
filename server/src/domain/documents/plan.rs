//! Plans as the Board keeps them: revisions, what agents propose, and what waits for a person's word.

mod change;

use protocol::{ApprovalId, Instant, ProposalId, SessionId, TaskId};
use serde_json::Value;

pub use change::{Change, changes, lines, take};

crate::words! {
    /// Where a revision comes from.
    Source as PlanSource {
        Operator = "operator",
        Agent = "agent",
        /// Somebody or something on the machine.
        File = "file",
    }
}

crate::words! {
    /// What a proposal would change.
    ProposalKind {
        Plan = "plan",
        Memory = "memory",
    }
}

crate::words! {
    /// What became of a proposal.
    ProposalState {
        Pending = "pending",
        Accepted = "accepted",
        Rejected = "rejected",
        /// A newer one of the same agent stands in its place.
        Superseded = "superseded",
    }
}

crate::words! {
    /// What became of a question.
    ApprovalState {
        Pending = "pending",
        Allowed = "allowed",
        Denied = "denied",
        /// Nobody waits for it any more.
        Expired = "expired",
    }
}

/// A version of a session's plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// From 1.
    pub n: u64,
    /// SHA-256 of the text.
    pub hash: String,
    pub markdown: String,
    pub source: Source,
    /// The name to show.
    pub author: String,
    pub task_id: Option<TaskId>,
    pub created_at: Instant,
}

/// A change that an agent would like to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    pub id: ProposalId,
    pub kind: ProposalKind,
    pub session_id: SessionId,
    pub task_id: TaskId,
    pub attempt: u32,
    /// Of the event that brought it.
    pub seq: u64,
    /// What the agent saw.
    pub base_hash: Option<String>,
    /// Of `MEMORY.md`: what it said then, once that was read.
    pub base: Option<String>,
    /// The whole text as it would be.
    pub content: String,
    pub note: String,
    pub state: ProposalState,
    pub decided_by: Option<String>,
    pub created_at: Instant,
    pub decided_at: Option<Instant>,
}

/// What an agent waits for a person's word for.
#[derive(Clone, Debug, PartialEq)]
pub struct Approval {
    pub id: ApprovalId,
    pub session_id: SessionId,
    pub task_id: TaskId,
    pub attempt: u32,
    pub tool: String,
    /// Of what the person decides about: SHA-256.
    pub digest: String,
    pub args: Value,
    pub cwd: String,
    pub preview: String,
    pub risk: String,
    pub state: ApprovalState,
    pub scope: Option<String>,
    pub note: Option<String>,
    pub decided_by: Option<String>,
    pub created_at: Instant,
    pub decided_at: Option<Instant>,
    pub expires_at: Option<Instant>,
}
