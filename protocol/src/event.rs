//! Task events: what a daemon reports about an attempt, durable and in order.

mod task_error;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::{
    approval::{ApprovalRequest, Decision},
    command::InjectionPoint,
    ids::{ApprovalId, ArtifactId, MessageId, SessionId, TaskId},
    instant::Instant,
    mesh::{AgentMessage, ChildAnnouncement, ChildState, DelegateRequest},
};
pub use task_error::{ErrorCode, TaskError};

/// One entry of an attempt's log. `seq` is contiguous from 1; the terminal event is the last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub seq: u64,
    pub at: Instant,
    #[serde(flatten)]
    pub body: EventBody,
}

impl Event {
    /// The first seq that this event stands for: its own, or the start of the gap that it reports.
    pub fn first_seq(&self) -> u64 {
        match &self.body {
            EventBody::Progress { event: AgentEvent { event: AgentStreamEvent::Gap { from, .. }, .. } } => *from,
            _ => self.seq,
        }
    }
}

/// What happened, by the name it has on the wire.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum EventBody {
    /// A task that began on the machine (a job, the CLI), or that another one there asked for (`parent`).
    #[serde(rename = "task:announce")]
    Announce {
        origin: String,
        agent_id: String,
        session_id: SessionId,
        goal: String,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        parent: Option<ChildAnnouncement>,
        /// Who asked for it, as the adapter knows them: at most 80 characters of somebody else's text.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        author: Option<String>,
    },
    /// The task is in the journal and does not run yet.
    #[serde(rename = "task:accepted")]
    Accepted {},
    #[serde(rename = "task:started")]
    Started {
        #[serde(skip_serializing_if = "Option::is_none", default)]
        pid: Option<u32>,
        model: String,
        engine: String,
    },
    #[serde(rename = "task:progress")]
    Progress { event: AgentEvent },
    #[serde(rename = "task:completed")]
    Completed { result: TaskResult },
    #[serde(rename = "task:error")]
    Error { error: TaskError },
    /// All processes that the attempt had started have ended.
    #[serde(rename = "task:stopped")]
    Stopped {
        reason: String,
        /// Processes that had to be killed.
        #[serde(default)]
        killed: u32,
    },
}

impl EventBody {
    /// Whether nothing can follow this event in its attempt.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Completed { .. } | Self::Error { .. } | Self::Stopped { .. })
    }

    /// The event's name on the wire, as in `event:` of the API's stream.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Announce { .. } => "task:announce",
            Self::Accepted {} => "task:accepted",
            Self::Started { .. } => "task:started",
            Self::Progress { .. } => "task:progress",
            Self::Completed { .. } => "task:completed",
            Self::Error { .. } => "task:error",
            Self::Stopped { .. } => "task:stopped",
        }
    }
}

/// A stream event with the agent it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentEvent {
    pub agent_id: String,
    #[serde(flatten)]
    pub event: AgentStreamEvent,
}

/// What an agent does while it works.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum AgentStreamEvent {
    TextDelta {
        content: String,
    },
    ReasoningDelta {
        content: String,
    },
    ToolCall {
        call_id: String,
        tool: String,
        args: Value,
    },
    ToolOutput {
        call_id: String,
        content: String,
        /// What the call had put out before this; absent where the piece follows the one before it.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        before: Option<OutputPlace>,
    },
    ToolResult {
        call_id: String,
        tool: String,
        result: Value,
        ok: bool,
        duration_ms: u64,
    },
    StateChange {
        state: ActivityState,
        /// With `waiting`: what the agent waits for.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        waiting: Option<AgentWait>,
    },
    /// Brackets every model call. What a discarded step said stays in the log and belongs to no message.
    Step {
        n: u32,
        state: StepState,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        reason: Option<String>,
    },
    /// `{markdown, hash}` of the plan that is now in force, or `{proposal: markdown, base, note?}`.
    Plan {
        plan: Value,
    },
    /// `{proposal: markdown, base, note?}` for `MEMORY.md`, or `{path, hash}` of a memory file that was written.
    Memory {
        memory: Value,
    },
    Artifact {
        artifact: ArtifactRef,
    },
    Usage(Usage),
    Context(BTreeMap<String, Value>),
    ApprovalRequired(Box<ApprovalRequest>),
    /// A question is not open any more though nobody's decision about it was followed: it counts as denied.
    ApprovalExpired {
        approval_id: ApprovalId,
        reason: String,
    },
    /// What somebody decided, where the viber is the first to know: it followed this, whatever is decided later.
    ApprovalDecided {
        approval_id: ApprovalId,
        digest: String,
        decision: Decision,
        /// The name of whoever decided.
        by: String,
        /// The adapter that they used; `board` for the Board's.
        adapter: String,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        note: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        answer: Option<String>,
    },
    /// What somebody said at the machine, which the agent is told now: `message-state` follows.
    UserMessage {
        message_id: MessageId,
        author: String,
        content: String,
        /// The adapter that they used.
        origin: String,
        mode: InjectionPoint,
    },
    /// What became of the call that a decision was about.
    ApprovalOutcome {
        approval_id: ApprovalId,
        call_id: String,
        ok: bool,
    },
    /// How far a `task:message` has come. The words before `consumed` were said without it, those after it with it.
    MessageState {
        message_id: MessageId,
        /// Of the version that this is about.
        #[serde(default)]
        rev: u32,
        state: MessageProgress,
        /// With `consumed`: the number of the turn that it is told in, from 1.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        turn: Option<u32>,
    },
    /// Opens a further turn of the task: what these messages ask for.
    Turn {
        /// From 2 on.
        n: u32,
        message_ids: Vec<MessageId>,
        /// `None`: one of a later version.
        #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "known_mode")]
        mode: Option<InjectionPoint>,
    },
    /// A part of the work that another agent is to do.
    Delegate(Box<DelegateRequest>),
    /// What the agent heard of such a task.
    Child {
        call_id: String,
        child_task_id: TaskId,
        state: ChildState,
    },
    /// A task that it asked for is to end.
    ChildStop {
        child_task_id: TaskId,
        reason: String,
    },
    AgentMessage(AgentMessage),
    Notice {
        level: NoticeLevel,
        text: String,
    },
    /// Events `from…to` are missing. The event's own seq is `to`.
    Gap {
        from: u64,
        to: u64,
        bytes: u64,
        reason: String,
    },
}

/// A place in the output of a call: how much comes before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputPlace {
    /// Bytes of text.
    pub bytes: u64,
    /// Line ends.
    pub lines: u64,
}

impl OutputPlace {
    /// The place behind `content`.
    #[must_use]
    pub fn after(self, content: &str) -> Self {
        let lines = content.bytes().filter(|byte| *byte == b'\n').count();
        Self { bytes: self.bytes.saturating_add(content.len() as u64), lines: self.lines.saturating_add(lines as u64) }
    }
}

/// What the agent is busy with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActivityState {
    Idle,
    Thinking,
    Tool,
    Waiting,
}

/// What a waiting agent waits for, and until when as far as it knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentWait {
    #[serde(rename = "for")]
    pub cause: PauseCause,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub until: Option<Instant>,
    /// With `PauseCause::Paused` before a call of a tool: the call.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<NextCall>,
}

impl AgentWait {
    /// A wait of which no end is known.
    pub fn of(cause: PauseCause) -> Self {
        Self { cause, until: None, next: None }
    }
}

/// A call that a held task would make next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NextCall {
    pub call_id: String,
    pub tool: String,
    pub args: Value,
}

/// Why an agent waits. A cause of a later version is `Unknown`: the wait itself is still reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseCause {
    Approval,
    Input,
    RateLimit,
    Budget,
    Paused,
    /// Other tasks have to end first.
    Child,
    #[serde(other)]
    Unknown,
}

/// A mode that this version knows.
fn known_mode<'de, D: Deserializer<'de>>(from: D) -> Result<Option<InjectionPoint>, D::Error> {
    let word = Value::deserialize(from)?;
    Ok(serde_json::from_value(word).ok())
}

/// How far a message to a task has come on its viber. A state of a later version is `Unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MessageProgress {
    /// The task has it, and the agent was not told yet.
    Delivered,
    /// The agent was told.
    Consumed,
    /// It was withdrawn before the agent was told.
    Withdrawn,
    /// The task will not tell it.
    Discarded,
    #[serde(other)]
    Unknown,
}

/// The state of a model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepState {
    Started,
    Finished,
    Discarded,
}

/// How much a notice matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum NoticeLevel {
    Info,
    Warning,
    Error,
}

/// Tokens and money of a model call, an attempt or a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = TokenUsage))]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cached_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    pub source: UsageSource,
    /// Model calls, and calls of tools in their answers; 0 from daemons that do not tell.
    #[serde(skip_serializing_if = "is_zero")]
    pub model_calls: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub tool_calls: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Usage {
    /// Adds another call's usage; a sum with an estimate in it is an estimate.
    pub fn add(&mut self, other: &Usage) {
        let nothing_yet = self.input_tokens == 0 && self.output_tokens == 0;
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.model_calls = self.model_calls.saturating_add(other.model_calls);
        self.tool_calls = self.tool_calls.saturating_add(other.tool_calls);
        self.cost_usd = match (self.cost_usd, other.cost_usd) {
            (None, cost) | (cost, None) => cost,
            (Some(a), Some(b)) => Some(a + b),
        };
        if nothing_yet || other.source == UsageSource::Estimated {
            self.source = other.source;
        }
    }
}

/// Whether the provider reported the count, or the daemon estimated it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum UsageSource {
    Measured,
    #[default]
    Estimated,
}

/// The type of an artifact that is all that a command has put out, because its result does not hold all of it. It
/// belongs to the command's row in the conversation and is no product of its own.
pub const COMMAND_OUTPUT_TYPE: &str = "command-output";

/// A pointer to something a task produced; the bytes stay on the viber.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ArtifactRef {
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub title: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none", default)]
    pub kind: Option<String>,
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none", default)]
    pub reference: Option<String>,
    /// The Board's name for it; `id` is the agent's, and unique in its task only.
    #[serde(rename = "artifactId", skip_serializing_if = "Option::is_none", default)]
    pub artifact_id: Option<ArtifactId>,
    /// Bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sha256: Option<String>,
    /// The type detected from the bytes, beside the type that was claimed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sniffed: Option<String>,
    /// The call whose whole output it is; its type is then [`COMMAND_OUTPUT_TYPE`].
    #[serde(rename = "callId", skip_serializing_if = "Option::is_none", default)]
    pub call_id: Option<String>,
}

/// The result of a task, complete in itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TaskResult {
    /// The text of the last model step of the last turn, at most 96 KiB.
    pub text: String,
    /// Its first paragraph, at most 280 characters.
    pub summary: String,
    pub artifact_refs: Vec<ArtifactRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Value>,
    pub usage: Usage,
}
