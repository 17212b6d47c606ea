//! Sessions and their messages as the API shows them.

use protocol::{Instant, MessageId, Policy, SessionId, TaskId, ViberId};
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain;

/// One conversation with one agent on one viber.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Session)]
pub struct SessionResource {
    pub id: SessionId,
    pub viber_id: ViberId,
    pub agent_id: String,
    pub title: String,
    pub pinned: bool,
    pub archived: bool,
    /// The highest `seq` assigned to a message or reserved for one; 0 before the first.
    pub last_seq: u64,
    /// Operator or token id.
    pub created_by: String,
    pub created_at: Instant,
    /// Time of the newest message or change of a task's state.
    pub active_at: Instant,
    /// `apply` or `propose`: the agent's changes of the plan.
    pub plan_policy: Policy,
    /// The same for `MEMORY.md`.
    pub memory_policy: Policy,
    /// The agent plans first and waits for an approval.
    pub approve_first: bool,
    /// From which share of what it may take the session is compacted by itself, percent; 0: never; null: as the team says.
    /// Absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub compact_at: Option<Option<u64>>,
}

impl From<domain::Session> for SessionResource {
    fn from(session: domain::Session) -> Self {
        Self {
            id: session.id,
            viber_id: session.viber_id,
            agent_id: session.agent_id,
            title: session.title,
            pinned: session.pinned_at.is_some(),
            archived: session.archived_at.is_some(),
            last_seq: session.last_seq,
            created_by: session.created_by,
            created_at: session.created_at,
            active_at: session.active_at,
            plan_policy: session.policies.plan,
            memory_policy: session.policies.memory,
            approve_first: session.policies.approve_first,
            compact_at: None,
        }
    }
}

/// One message of a session.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Message)]
pub struct MessageResource {
    pub id: MessageId,
    /// Ascending in the session; the reply to a message directly follows it.
    pub seq: u64,
    pub role: domain::MessageRole,
    /// Operator or token id of a user's message, id of the viber of one that was said at its machine, agent id of an assistant's.
    pub author: String,
    /// Of a message that was said at a machine: who that is, as the adapter there knows them, such as a name in Slack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author_name: Option<String>,
    /// The parts of the message, in order. An answer carries about 4 MiB of them.
    pub parts: Vec<domain::Part>,
    /// Set when parts before these were left out: how many. `next` leads to them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub omitted_parts: Option<u64>,
    pub task_id: TaskId,
    /// Set on an assistant's message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    pub created_at: Instant,
}

impl From<domain::Message> for MessageResource {
    fn from(message: domain::Message) -> Self {
        Self {
            id: message.id,
            seq: message.seq,
            role: message.role,
            author: message.author,
            author_name: None,
            parts: message.parts,
            omitted_parts: None,
            task_id: message.task_id,
            attempt: (message.attempt > 0).then_some(message.attempt),
            created_at: message.created_at,
        }
    }
}
