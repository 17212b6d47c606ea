//! Sessions, their messages and the messages' parts.

use protocol::{
    ApprovalId, ApprovalKind, Attachment, InjectionPoint, Instant, MessageId, NoticeLevel, Policy, SessionId, TaskId,
    ViberId,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::domain::{Brief, Contact};

crate::words! {
    /// Who a message is from.
    MessageRole {
        User = "user",
        Assistant = "assistant",
    }
}

crate::words! {
    /// What a list of sessions is narrowed to: the state of a session's task at work, else of its newest one.
    SessionState {
        /// The task waits for a person.
        Waiting = "waiting",
        /// A task is at work, or queued.
        Working = "working",
        Completed = "completed",
        Error = "error",
        Stopped = "stopped",
        /// Something ended that the reader has not seen.
        Unread = "unread",
    }
}

/// One conversation with one agent on one viber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub id: SessionId,
    pub viber_id: ViberId,
    pub agent_id: String,
    pub title: String,
    pub renamed_at: Option<Instant>,
    pub pinned_at: Option<Instant>,
    pub archived_at: Option<Instant>,
    /// The last seq given to, or reserved for, a message.
    pub last_seq: u64,
    pub created_by: String,
    pub created_at: Instant,
    pub active_at: Instant,
    pub policies: Policies,
}

/// How a session treats what its agent changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policies {
    /// Changes of its plan.
    pub plan: Policy,
    /// Changes of `MEMORY.md`.
    pub memory: Policy,
    /// The agent plans first and waits for a person before it does anything.
    pub approve_first: bool,
}

/// A change of the policies; absent fields stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyChange {
    pub plan: Option<Policy>,
    pub memory: Option<Policy>,
    pub approve_first: Option<bool>,
}

impl Policies {
    /// For the audit.
    pub fn words(self) -> String {
        let first = if self.approve_first { "approve before work" } else { "work at once" };
        format!("plan {}, memory {}, {first}", self.plan.as_str(), self.memory.as_str())
    }

    /// The policies with the change applied.
    pub fn with(self, change: PolicyChange) -> Self {
        Self {
            plan: change.plan.unwrap_or(self.plan),
            memory: change.memory.unwrap_or(self.memory),
            approve_first: change.approve_first.unwrap_or(self.approve_first),
        }
    }
}

impl Default for Policies {
    fn default() -> Self {
        Self { plan: Policy::Apply, memory: Policy::Propose, approve_first: false }
    }
}

/// A session in a list, with what its line shows.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionLine {
    pub session: Session,
    pub viber_name: String,
    /// Of its viber.
    pub contact: Contact,
    /// The task at work, else the newest.
    pub task: Option<Brief>,
    /// Something happened since the reader last looked.
    pub unread: bool,
}

/// One message, its parts in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub id: MessageId,
    pub session_id: SessionId,
    pub seq: u64,
    pub role: MessageRole,
    /// Operator or token id of a user's message, agent id of an assistant's.
    pub author: String,
    pub task_id: TaskId,
    /// Of an assistant's message; 0 for a user's.
    pub attempt: u32,
    pub parts: Vec<Part>,
    pub created_at: Instant,
}

/// A complete piece of a message, as the database keeps it and the API shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
#[schema(as = MessagePart)]
pub enum Part {
    Text {
        text: String,
        /// A long text has several parts: this one goes on in the next.
        #[serde(skip_serializing_if = "std::ops::Not::not", default)]
        continues: bool,
    },
    #[serde(rename_all = "camelCase")]
    Reasoning {
        text: String,
        #[serde(default)]
        duration_ms: u64,
    },
    #[serde(rename_all = "camelCase")]
    ToolCall {
        call_id: String,
        tool: String,
        args: Value,
        /// When it began, by the viber's clock.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        at: Option<Instant>,
    },
    #[serde(rename_all = "camelCase")]
    ToolResult {
        call_id: String,
        tool: String,
        result: Value,
        ok: bool,
        duration_ms: u64,
    },
    Artifact {
        artifact: Value,
    },
    Notice {
        level: NoticeLevel,
        text: String,
        /// What a withdrawn step had said: shown folded, sent to nobody.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        folded: Option<String>,
    },
    Summary {
        text: String,
    },
    /// What somebody said to the task while it ran, where its agent was told.
    #[serde(rename_all = "camelCase")]
    Message {
        id: MessageId,
        /// Operator or token.
        author: String,
        /// The author's name as the agent was told it.
        name: String,
        #[schema(value_type = String)]
        mode: InjectionPoint,
        text: String,
        /// Files that went with it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        files: Vec<Attachment>,
        /// The event of the attempt that says so.
        seq: u64,
    },
    /// Where the agent asked people something that is about no call: whether to begin with its plan, or about a limit. What
    /// they decided is in the approval.
    #[serde(rename_all = "camelCase")]
    Approval {
        approval_id: ApprovalId,
        kind: ApprovalKind,
    },
}

impl Part {
    /// A text that is whole.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), continues: false }
    }

    /// Whether its text goes on in the part after it.
    pub fn goes_on_in(&self, next: Option<&Self>) -> bool {
        matches!((self, next), (Self::Text { continues: true, .. }, Some(Self::Text { .. })))
    }

    /// The word in the database's `kind`: a part that came with a later version is kept under one that is read like it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text { .. } => "text",
            Self::Reasoning { .. } => "reasoning",
            Self::ToolCall { .. } => "tool-call",
            Self::ToolResult { .. } => "tool-result",
            Self::Artifact { .. } => "artifact",
            Self::Notice { .. } | Self::Message { .. } | Self::Approval { .. } => "notice",
            Self::Summary { .. } => "summary",
        }
    }
}
