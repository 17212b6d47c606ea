//! Tasks and their attempts.

use protocol::{
    AgentMode, BudgetProgress, Instant, MessageId, NextCall, PausePoint, PlaybookTask, ReportedDetail, SessionId,
    TaskError, TaskId, TaskLimits, TaskResult, TreePlace, Usage, ViberId, adapter::SLACK_ORIGIN,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

crate::words! {
    /// The state of a task. The last three are final.
    TaskState {
        Pending = "pending",
        Running = "running",
        Completed = "completed",
        Error = "error",
        Stopped = "stopped",
    }
}

impl TaskState {
    /// Whether the task has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Error | Self::Stopped)
    }
}

crate::words! {
    /// What a task is for.
    TaskKind {
        /// What its goal says.
        Work = "work",
        /// A summary of older turns.
        Compact = "compact",
        /// Notes for the memory.
        Flush = "flush",
        /// A summary that another session begins with.
        Transfer = "transfer",
    }
}

crate::words! {
    /// What makes a request smaller whose provider refused it as too long. In this order, each once, and each keeps what
    /// those before it did.
    OverflowRung {
        /// A summary stands for all but the newest turns.
        Summary = "summary",
        /// A line is left of each result.
        ResultLines = "result_lines",
        /// Without personalization, memory and context beside the question.
        NoFiles = "no_files",
    }
}

/// An attempt that began by itself with a smaller request than the one before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SmallerAttempt {
    pub attempt: u32,
    pub rung: OverflowRung,
    /// The window of the model in tokens, if its provider said it with the refusal.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub window: Option<u64>,
    /// Tokens and money that the attempts before it took: the task's limits count them.
    #[serde(default)]
    pub spent: Usage,
    /// How far they had come with the limits beside that, as their daemon said.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub budget: Option<BudgetProgress>,
}

crate::words! {
    /// How far the delivery of a pending task is.
    Delivery as TaskDelivery {
        /// Behind another task of its session; no command exists yet.
        Queued = "queued",
        /// Its command is stored, and sent when the viber is connected.
        Offered = "offered",
        /// The viber's journal holds it.
        Accepted = "accepted",
    }
}

crate::words! {
    /// What a running task waits for.
    WaitingFor {
        Approval = "approval",
        Input = "input",
        RateLimit = "rate_limit",
        Budget = "budget",
        Paused = "paused",
        /// Steps of a playbook that it supervises, or tasks that it asked for.
        Child = "child",
    }
}

crate::words! {
    /// Whether the viber was heard within the lease.
    ContactState {
        Connected = "connected",
        Disconnected = "disconnected",
        /// It was connected when the Board stopped, and has not been heard since the Board's start.
        Unheard = "unheard",
    }
}

/// Why a running task is waiting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = TaskWaiting)]
pub struct Waiting {
    #[serde(rename = "for")]
    pub cause: WaitingFor,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub until: Option<Instant>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub id: Option<String>,
    /// `{callId, tool, args}` of the call that it is held before.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<Object>)]
    pub next: Option<NextCall>,
}

/// The contact with a viber, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    pub state: ContactState,
    pub since: Instant,
}

/// The origin of tasks that the Board submits for a run of a playbook.
pub const PLAYBOOK_ORIGIN: &str = "playbook";
/// The origin of tasks that an agent asked for.
pub const AGENT_ORIGIN: &str = "agent";

/// One unit of work in a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub id: TaskId,
    pub session_id: SessionId,
    pub viber_id: ViberId,
    pub agent_id: String,
    pub kind: TaskKind,
    /// The user message that asked for it, and its seq: the task's place in the session.
    pub message_id: MessageId,
    pub message_seq: u64,
    pub goal: String,
    pub state: TaskState,
    /// While pending.
    pub delivery: Option<Delivery>,
    /// While running.
    pub waiting: Option<Waiting>,
    /// Of its viber.
    pub contact: Contact,
    /// The newest attempt's number.
    pub attempt: u32,
    pub stream: ReportedDetail,
    pub mode: Option<AgentMode>,
    pub limits: TaskLimits,
    /// `{plan?, artifacts?, memory?, context?, attachments?, model?, leash?, playbook?, parent?}` as submitted; `{compact}`
    /// unless it is work.
    pub payload: Value,
    /// As the viber reported when it started.
    pub model: Option<String>,
    pub result: Option<TaskResult>,
    pub error: Option<TaskError>,
    pub usage: Usage,
    /// `board`, `playbook`, `agent`, or where on the machine it began: `job`, `cli`.
    pub origin: String,
    pub created_by: String,
    pub created_at: Instant,
    pub offered_at: Option<Instant>,
    pub started_at: Option<Instant>,
    pub ended_at: Option<Instant>,
    pub stopped_by: Option<String>,
    pub stop_confirmed_at: Option<Instant>,
    /// Where people want it to be held. It is held when it waits for `WaitingFor::Paused`.
    pub pausing: Option<PausePoint>,
    /// Attempts that began by themselves because a request was too long, oldest first.
    pub smaller: Vec<SmallerAttempt>,
    /// The newest attempt goes on from the work of all attempts from this one on.
    pub goes_on_from: Option<u32>,
}

/// Where something was said, in a word for people.
pub fn origin_name(origin: &str) -> &str {
    match origin {
        SLACK_ORIGIN => "Slack",
        other => other,
    }
}

impl Task {
    /// How an attempt's request was made smaller, if it was.
    pub fn rung_of(&self, attempt: u32) -> Option<&SmallerAttempt> {
        self.smaller.iter().find(|smaller| smaller.attempt == attempt)
    }

    /// `provider/model`, when one was chosen for this task instead of its agent's own.
    pub fn model_asked(&self) -> Option<&str> {
        self.payload.get("model").and_then(Value::as_str)
    }

    /// What it is to the run of a playbook, if it belongs to one.
    pub fn playbook(&self) -> Option<PlaybookTask> {
        let told = self.payload.get("playbook").filter(|_| self.origin == PLAYBOOK_ORIGIN)?;
        serde_json::from_value(told.clone()).ok()
    }

    /// Its place in a tree, if another task asked for it.
    pub fn parent(&self) -> Option<TreePlace> {
        let told = self.payload.get("parent").filter(|_| self.origin == AGENT_ORIGIN)?;
        serde_json::from_value(told.clone()).ok()
    }

    /// Who asked for it where it began, as the machine's adapter knows them: somebody else's text, cleaned. Nobody, of what the
    /// Board or an agent began, whatever a viber says.
    pub fn author(&self) -> Option<&str> {
        let is_of_adapter = !["board", PLAYBOOK_ORIGIN, AGENT_ORIGIN].contains(&self.origin.as_str());
        self.payload.get("author").filter(|_| is_of_adapter).and_then(Value::as_str)
    }

    /// It drafts a summary, which changes nothing until somebody applies it.
    pub fn is_draft(&self) -> bool {
        self.kind == TaskKind::Compact && self.payload["compact"]["applies"] == false
    }

    /// After how many calls of tools its agent checks in.
    pub fn leash(&self) -> Option<u32> {
        self.payload.get("leash").and_then(Value::as_u64).and_then(|leash| u32::try_from(leash).ok())
    }
}

/// A task as a list shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Brief {
    pub id: TaskId,
    pub state: TaskState,
    pub delivery: Option<Delivery>,
    pub waiting: Option<Waiting>,
    pub ended_at: Option<Instant>,
}

/// One delivery of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    pub task_id: TaskId,
    pub attempt: u32,
    pub viber_id: ViberId,
    /// Seq of its newest durable event.
    pub last_seq: u64,
    /// Events up to here have become parts.
    pub parts_seq: u64,
    pub message_id: Option<MessageId>,
    /// `completed`, `error`, `stopped` or `lost`.
    pub outcome: Option<String>,
    pub superseded: bool,
    pub created_at: Instant,
    pub started_at: Option<Instant>,
    pub ended_at: Option<Instant>,
}
