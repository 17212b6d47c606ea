//! Commands: what the Board requests of a daemon. They are durable, ordered by `cmdSeq`, and applied once.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    approval::{ApprovalResponse, ModelPrice},
    event::{ArtifactRef, Usage},
    files::WorkspaceWrite,
    ids::{ArtifactId, MessageId, SessionId, TaskId},
    instant::Instant,
    mesh::{ChildReport, TreePlace},
    playbook::{PlaybookLedger, PlaybookTask},
    rules::ApprovalRules,
};

/// A command as it is sent, beside its `cmdSeq`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum Command {
    #[serde(rename = "task:submit")]
    Submit(Box<TaskSubmit>),
    /// Abort now. No `task:completed` follows; `task:stopped` does when everything is dead.
    #[serde(rename = "task:stop")]
    Stop { task_id: TaskId, attempt: u32, reason: String },
    /// The same for every task of the viber.
    #[serde(rename = "viber:stop")]
    StopAll { reason: String },
    /// Somebody talks to a running task, or changed what they had said.
    #[serde(rename = "task:message")]
    Message(Box<TaskMessage>),
    /// `target_agent_id` is an agent or `*`.
    #[serde(rename = "interrupt")]
    Interrupt { target_agent_id: String, reason: String },
    /// A change of a file, made on the Board. A stale base is reported as a conflict, never overwritten.
    #[serde(rename = "workspace:write")]
    Write(Box<WorkspaceWrite>),
    /// A person has decided what an agent asked.
    #[serde(rename = "approval:response")]
    Approval(Box<ApprovalResponse>),
    /// Hold before the next model call or, with `PausePoint::Tool`, before the next call of a tool already.
    #[serde(rename = "task:pause")]
    Pause { task_id: TaskId, attempt: u32, at: PausePoint },
    /// Go on with a task that is held, or is about to be.
    #[serde(rename = "task:resume")]
    Resume { task_id: TaskId, attempt: u32 },
    /// No new tasks are started until `drained` is false again.
    #[serde(rename = "viber:drain")]
    Drain { drained: bool },
    /// Put a skill of the team's library into the home, or another version of it in its place. Its outcome, as that of every
    /// `skill:` command, is a `CommandDone`. They are only for daemons
    /// with [`SKILLS_CAPABILITY`](crate::SKILLS_CAPABILITY).
    #[serde(rename = "skill:install")]
    InstallSkill(Box<SkillInstall>),
    /// Take away a skill that was installed. Nothing else of the home is removed.
    #[serde(rename = "skill:remove")]
    RemoveSkill { name: String },
    /// A person has seen the files of this digest: they may be used, though they lie in a space or are not the ones that
    /// were installed.
    #[serde(rename = "skill:accept")]
    AcceptSkill { name: String, digest: String },
    /// Offer a skill to these agents of the viber and to no others: the key `skills` of their files is rewritten, and nothing
    /// else in them.
    #[serde(rename = "skill:enable")]
    EnableSkill { name: String, agents: Vec<String> },
    /// A person has seen the tools of this hash: the MCP server may offer them from now on. Its outcome is a `CommandDone`;
    /// only to daemons with [`MCP_CAPABILITY`](crate::MCP_CAPABILITY).
    #[serde(rename = "mcp:allow")]
    AllowMcp { name: String, hash: String },
    /// What was done in a run of a playbook so far, for people to read on the machine; only to daemons with
    /// [`PLAYBOOKS_CAPABILITY`](crate::PLAYBOOKS_CAPABILITY).
    #[serde(rename = "playbook:ledger")]
    Ledger(Box<PlaybookLedger>),
    /// What became of a task that another one asked for. It answers the call that waits for it.
    #[serde(rename = "task:child")]
    Child(Box<ChildReport>),
}

/// A skill to be installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SkillInstall {
    pub name: String,
    /// Of its files, as in [`SkillInfo::digest`](crate::SkillInfo::digest). Others are refused.
    pub digest: String,
    /// The path below the Board's address of its files: a tar archive, sorted by path, of at most
    /// [`MAX_SKILL_ARCHIVE_BYTES`](crate::limits::MAX_SKILL_ARCHIVE_BYTES).
    pub url: String,
    /// Ids of the agents that it is offered to; absent: as before.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agents: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub version: Option<String>,
    /// What it is called where the team took it from, such as `slug@1.2.0` of a registry.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none", default)]
    pub reference: Option<String>,
}

/// A task for an attempt: everything that is needed to run it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskSubmit {
    pub task_id: TaskId,
    pub attempt: u32,
    pub session_id: SessionId,
    pub agent_id: String,
    pub goal: String,
    /// The conversation before the goal, oldest first, without it.
    #[serde(default)]
    pub messages: Vec<Turn>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub plan: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub artifacts: Vec<ArtifactRef>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub memory: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub context: Option<Value>,
    /// Files that came with the goal.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub attachments: Vec<Attachment>,
    /// Whether the agent's changes of the plan are made at once.
    #[serde(default)]
    pub plan_policy: Policy,
    /// Whether the agent's changes of `MEMORY.md` are made at once.
    #[serde(default = "Policy::propose")]
    pub memory_policy: Policy,
    /// The agent plans first, and waits for a person before it does anything.
    #[serde(default)]
    pub approve_first: bool,
    #[serde(default)]
    pub stream: ReportedDetail,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mode: Option<AgentMode>,
    /// `provider/model` for this task instead of the agent's own; one that the viber reported in `ProviderInfo::models`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    #[serde(default)]
    pub limits: TaskLimits,
    /// The team's rules for calls of tools. The agent's and the machine's apply as well.
    #[serde(skip_serializing_if = "ApprovalRules::is_empty", default)]
    pub rules: ApprovalRules,
    /// A question that nobody answers in so many minutes counts as denied.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub approval_minutes: Option<u32>,
    /// What models cost where their provider does not say.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub prices: Vec<ModelPrice>,
    /// The agent checks in after so many calls of tools.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub leash: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub deadline: Option<Instant>,
    /// Leaves out personalization and what the viber remembers: the request was too long with them.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub no_files: bool,
    /// What earlier attempts of this task took that it goes on from: its limits count that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spent: Option<Usage>,
    /// How far those had come with its limits beside that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub budget: Option<BudgetProgress>,
    /// Set when nothing is to be done but to summarize `messages`; only to agents with `Capability::Compact`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub compact: Option<CompactRequest>,
    /// Set when the task belongs to a run of a playbook; only to daemons with
    /// [`PLAYBOOKS_CAPABILITY`](crate::PLAYBOOKS_CAPABILITY) where it is the supervisor.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub playbook: Option<PlaybookTask>,
    /// Set when another task asked for it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parent: Option<TreePlace>,
    /// Tasks that earlier attempts asked for, as they are now.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub children: Vec<ChildReport>,
    /// Set instead of `messages`, `goal` and the rest when they are too large for a frame: the path below the Board's
    /// address from which the daemon fetches the whole `TaskSubmit` as JSON.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub payload_url: Option<String>,
}

/// What becomes of the turns in `TaskSubmit::messages`. Its result is the summary, which begins with
/// [`SUMMARY_HEADING`](crate::context::SUMMARY_HEADING) as the summary before does, if one of the turns is that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactRequest {
    /// Whether a summary is made.
    pub summary: bool,
    /// Whether what should be kept for long is noted in the memory, as the session's policy allows.
    pub notes: bool,
    /// What people want of the summary.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub instructions: Option<String>,
    /// Tokens of what the summary takes the place of: it must be shorter.
    pub replaced_tokens: u64,
    /// Most tokens of the summary. Below [`MIN_SUMMARY_TOKENS`](crate::context::MIN_SUMMARY_TOKENS) no request has room for
    /// one, and it is written for people.
    pub max_tokens: u64,
}

/// A message to a task that has not ended. The same id with a higher `rev` replaces it until the agent was told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskMessage {
    pub task_id: TaskId,
    pub message_id: MessageId,
    /// Rises with every change of the message.
    #[serde(default)]
    pub rev: u32,
    /// The name of whoever says it.
    #[serde(default)]
    pub author: String,
    pub content: String,
    /// `{currentFile?, selection?}` of whoever says it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub context: Option<Value>,
    /// Files that came with it; only to agents with `Capability::Files`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub attachments: Vec<Attachment>,
    pub injection_mode: InjectionPoint,
    /// Its place among the task's messages: they are told in this order.
    #[serde(default)]
    pub position: u64,
    /// It is not to be told any more.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub withdrawn: bool,
}

/// How an agent's change of a shared file is treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = ChangePolicy))]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// It is made at once.
    #[default]
    Apply,
    /// A person accepts or rejects it.
    Propose,
}

impl Policy {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Propose => "propose",
        }
    }

    fn propose() -> Self {
        Self::Propose
    }
}

/// A file that came with a goal or a message; the daemon fetches it from `/api/daemon/blobs/{id}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Attachment {
    pub id: ArtifactId,
    pub name: String,
    /// Bytes.
    pub size: u64,
    pub sha256: String,
    /// The media type that was claimed.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none", default)]
    pub kind: Option<String>,
}

/// One turn of the conversation before the goal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    pub role: TurnRole,
    pub parts: Vec<TurnPart>,
}

/// Who spoke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TurnRole {
    User,
    Assistant,
}

/// What was said or done in a turn. Reasoning is never sent back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum TurnPart {
    Text {
        text: String,
    },
    /// A call with its result as the model read it, cut or become a line where the request has no room for all of it.
    ToolCall {
        call_id: String,
        tool: String,
        args: Value,
        result: String,
        ok: bool,
        /// People said that it stays, by itself or with its message: it is not made shorter later.
        #[serde(skip_serializing_if = "std::ops::Not::not", default)]
        pinned: bool,
    },
    /// Said by the Board, such as that older turns were left out.
    Notice {
        text: String,
    },
}

/// How much of the work is reported while it goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ReportedDetail {
    None,
    Text,
    #[default]
    Full,
}

impl ReportedDetail {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Text => "text",
            Self::Full => "full",
        }
    }
}

/// When an agent asks before it acts, the strictest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AgentMode {
    /// Before every call but those that only read or only speak to people.
    AlwaysAsk,
    /// Before calls that its table calls risky.
    ViberDecides,
    /// Only where a rule says so.
    #[default]
    AlwaysExecute,
}

impl AgentMode {
    /// The word on the wire and in the agent's file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AlwaysAsk => "always_ask",
            Self::ViberDecides => "viber_decides",
            Self::AlwaysExecute => "always_execute",
        }
    }
}

/// When a running task is told a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = InjectionMode))]
#[serde(rename_all = "kebab-case")]
pub enum InjectionPoint {
    /// At the end of its turn, together with those collected next to it.
    Collect,
    /// Now: the model's call is dropped, a tool has a moment to end.
    Steer,
    /// In a turn of its own, after this one.
    #[default]
    Followup,
}

impl InjectionPoint {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Collect => "collect",
            Self::Steer => "steer",
            Self::Followup => "followup",
        }
    }
}

/// Limits of one task; an absent limit does not apply.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct TaskLimits {
    /// Model calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u32>,
    /// Input and output tokens together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Wall-clock minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minutes: Option<u32>,
    /// What happens when one is reached; `Pause` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_limit: Option<LimitPolicy>,
}

impl TaskLimits {
    /// Whether it bounds nothing.
    pub fn is_unbounded(&self) -> bool {
        *self == Self::default()
    }

    /// The smaller of each; where one of the two says `Stop`, it stops.
    #[must_use]
    pub fn smallest(&self, other: &Self) -> Self {
        fn least<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
            a.into_iter().chain(b).min()
        }
        let on_limit = match (self.on_limit, other.on_limit) {
            (Some(LimitPolicy::Stop), _) | (_, Some(LimitPolicy::Stop)) => Some(LimitPolicy::Stop),
            (policy, other) => policy.or(other),
        };
        Self {
            steps: least(self.steps, other.steps),
            tool_calls: least(self.tool_calls, other.tool_calls),
            tokens: least(self.tokens, other.tokens),
            cost_usd: self.cost_usd.into_iter().chain(other.cost_usd).reduce(f64::min),
            minutes: least(self.minutes, other.minutes),
            on_limit,
        }
    }
}

/// How far an attempt has come with its task's limits beside its `Usage`, for another one that goes on from it. It is `budget`
/// in the details of the error that ends the attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetProgress {
    /// How long it worked, seconds. Time in which it waited for people is none of it.
    pub worked_seconds: u32,
    /// What people granted beyond the limits.
    pub granted: TaskLimits,
    /// The leash that it has; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leash: Option<u32>,
    /// Calls of tools since people were asked last.
    pub calls_on_leash: u32,
}

/// What happens when a task reaches one of its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LimitPolicy {
    /// A person is asked for more.
    Pause,
    /// The task ends with `budget_exceeded`.
    Stop,
}

/// Where a task is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PausePoint {
    /// Before the next model call.
    #[default]
    Step,
    /// Before the next call of a tool, or the next model call, whichever comes first.
    Tool,
}

impl PausePoint {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Tool => "tool",
        }
    }
}
