//! What agents ask people, what people decided, and what a team has decided beforehand.
//!
//! ```text
//! pending ─→ allowed │ denied │ answered
//!    └──────────┴─────────┴────→ expired
//! ```
//!
//! A decided one expires when its agent gave up waiting before it heard of the decision.

use protocol::{
    AffectedFile, AgentQuestion, ApprovalId, ApprovalKind, DecisionScope, Instant, ReachedLimit, SessionId, TaskId,
    TaskLimits, rules::ApprovalRules,
};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::domain::{Role, Waiting, WaitingFor};

/// How long a question waits for an answer unless the team says otherwise, minutes.
pub const DEFAULT_EXPIRY_MINUTES: u32 = 24 * 60;
/// The shortest that a team may choose, minutes.
pub const MIN_EXPIRY_MINUTES: u32 = 1;
/// The longest, minutes.
pub const MAX_EXPIRY_MINUTES: u32 = 30 * 24 * 60;

crate::words! {
    /// The state of an approval.
    ApprovalState {
        Pending = "pending",
        Allowed = "allowed",
        Denied = "denied",
        /// A question was answered.
        Answered = "answered",
        /// The task no longer waits for the decision.
        Expired = "expired",
    }
}

/// Something that an agent asks people: whether it may do something, or what it wants to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Approval {
    pub id: ApprovalId,
    pub kind: ApprovalKind,
    pub session_id: SessionId,
    pub task_id: TaskId,
    pub attempt: u32,
    /// Of the event that asked: the order of a task's questions.
    pub seq: u64,
    /// The call that waits.
    pub call_id: Option<String>,
    /// `plan`, `ask_operator` or `budget` where no tool is to be called.
    pub tool: String,
    /// SHA-256 of what the person saw and decides about.
    pub digest: String,
    pub args: Value,
    pub cwd: String,
    pub preview: String,
    pub risk: String,
    /// Why it is asked.
    pub reason: String,
    /// A rule that would allow its like; after a decision with `DecisionScope::Rule` the one that was written.
    pub rule: Option<String>,
    /// Files that the call would write.
    pub files: Vec<AffectedFile>,
    pub question: Option<AgentQuestion>,
    pub limit: Option<ReachedLimit>,
    pub state: ApprovalState,
    pub scope: Option<DecisionScope>,
    pub note: Option<String>,
    pub answer: Option<String>,
    /// The arguments that a person allowed instead.
    pub allowed_args: Option<Value>,
    /// How much more than until then the task may use.
    pub grant: Option<TaskLimits>,
    /// Why an owner decided it whom the team's settings do not let.
    pub break_glass: Option<String>,
    /// Operator or token; `board` for what was too much.
    pub decided_by: Option<String>,
    pub created_at: Instant,
    pub decided_at: Option<Instant>,
    pub expires_at: Option<Instant>,
    /// Why it counts as denied though nobody denied it.
    pub expiry: Option<String>,
    /// The approval whose other arguments it is about; both are one decision.
    pub replaces: Option<ApprovalId>,
    /// The same, from there.
    pub becomes: Option<ApprovalId>,
    /// What the call did that was allowed.
    pub consequence: Option<CallConsequence>,
}

/// What was asked and what became of it, as a line of a conversation says it.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalOutline {
    pub id: ApprovalId,
    pub kind: ApprovalKind,
    pub task_id: TaskId,
    pub attempt: u32,
    pub call_id: Option<String>,
    /// The beginning of what was asked.
    pub preview: String,
    pub rule: Option<String>,
    pub limit: Option<ReachedLimit>,
    pub state: ApprovalState,
    pub scope: Option<DecisionScope>,
    pub note: Option<String>,
    pub answer: Option<String>,
    /// Other arguments were allowed instead.
    pub is_changed: bool,
    pub grant: Option<TaskLimits>,
    /// An owner decided it whom the team's settings do not let.
    pub broke_glass: bool,
    pub decided_by: Option<String>,
    pub expiry: Option<String>,
}

/// What a task waits for that has asked such a question.
pub fn waiting(kind: ApprovalKind, id: &ApprovalId, until: Option<Instant>) -> Waiting {
    let cause = match kind {
        ApprovalKind::Question => WaitingFor::Input,
        ApprovalKind::Budget => WaitingFor::Budget,
        ApprovalKind::Step => WaitingFor::Child,
        ApprovalKind::Plan | ApprovalKind::Tool | ApprovalKind::Unknown => WaitingFor::Approval,
    };
    Waiting { cause, until, id: Some(id.to_string()), next: None }
}

/// What a call did that a decision was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CallConsequence {
    /// Whether it succeeded.
    pub ok: bool,
    pub at: Instant,
}

/// What a team has decided beforehand about calls of tools, who of it decides the rest, and what a task may use.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalSettings {
    pub rules: ApprovalRules,
    /// The least role that decides. Answers to questions need no more than an operator.
    pub min_role: Role,
    /// Whoever gave a task does not decide what it asks.
    pub not_requester: bool,
    /// A question that nobody answers in so many minutes counts as denied.
    pub expiry_minutes: u32,
    /// What each task may use at most, whatever it was given itself; says nothing about what happens then.
    pub limits: TaskLimits,
    /// Rises with every change; 0 for a team that has chosen none.
    pub version: u64,
}

impl ApprovalSettings {
    /// Whether they forbid, or want to be asked: an agent that does not know them must not work.
    pub fn is_restrictive(&self) -> bool {
        !self.rules.deny.is_empty() || !self.rules.ask.is_empty() || self.min_role > Role::Operator
    }
}

impl Default for ApprovalSettings {
    fn default() -> Self {
        Self {
            rules: ApprovalRules::default(),
            min_role: Role::Operator,
            not_requester: false,
            expiry_minutes: DEFAULT_EXPIRY_MINUTES,
            limits: TaskLimits::default(),
            version: 0,
        }
    }
}
