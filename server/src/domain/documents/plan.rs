//! Plans: their revisions, and the proposals of agents (also for `MEMORY.md`).

mod text_changes;

use protocol::{Instant, ProposalId, SessionId, TaskId};

pub use text_changes::{TextChange, changes, lines, take};

crate::words! {
    /// Who wrote a revision.
    PlanSource {
        Operator = "operator",
        Agent = "agent",
        /// A person or program that changed the file on the machine.
        File = "file",
    }
}

crate::words! {
    /// The document that a proposal would change.
    ProposalKind {
        Plan = "plan",
        Memory = "memory",
    }
}

crate::words! {
    /// The state of a proposal.
    ProposalState {
        Pending = "pending",
        Accepted = "accepted",
        Rejected = "rejected",
        /// A newer proposal has replaced it, or it came with the draft of a summary that nobody applied.
        Superseded = "superseded",
    }
}

/// A version of a session's plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// Its number, from 1.
    pub n: u64,
    /// SHA-256 of the text.
    pub hash: String,
    pub markdown: String,
    pub source: PlanSource,
    /// The name to show.
    pub author: String,
    pub task_id: Option<TaskId>,
    pub created_at: Instant,
}

/// A change that an agent proposes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    pub id: ProposalId,
    pub kind: ProposalKind,
    pub session_id: SessionId,
    pub task_id: TaskId,
    pub attempt: u32,
    /// Seq of the event that contained it.
    pub seq: u64,
    /// Hash of the version that the agent saw.
    pub base_hash: Option<String>,
    /// The text of that version of `MEMORY.md`, once it is known.
    pub base: Option<String>,
    /// The whole proposed text.
    pub content: String,
    pub note: String,
    pub state: ProposalState,
    pub decided_by: Option<String>,
    pub created_at: Instant,
    pub decided_at: Option<Instant>,
}
