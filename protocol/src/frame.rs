//! Frames: the JSON messages of the WebSocket, each with a `type`, in either direction.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use crate::{
    adapter::AdapterInfo,
    agent::{AgentInfo, DamageInfo, JobInfo, ProviderInfo},
    command::Command,
    confinement::Confinement,
    event::Event,
    files::WorkspaceWritten,
    ids::{BootId, EditId, TaskId, ViberId},
    instant::Instant,
    limits::MAX_FRAME_BYTES,
    mcp::McpServerInfo,
    skill::SkillInfo,
};

/// Why a received text is not a valid frame.
#[derive(Debug, PartialEq, Eq)]
pub enum BadFrame {
    /// Larger than the limit: closes the connection with 4413.
    TooLarge,
    /// Not JSON, too deep, or not of the shape of its type: closes with 4400.
    Malformed(String),
    /// A type this side does not know: answered `unsupported`, the connection goes on.
    Unknown(String),
}

/// A text frame from a daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum FromDaemon {
    #[serde(rename = "hello")]
    Hello(Box<Hello>),
    #[serde(rename = "ack:cmd")]
    AckCommand { cmd_seq: u64 },
    // Raw items can't pass through serde's buffer of a tagged enum: `parse` reads this one by itself.
    #[serde(rename = "task:events", skip_deserializing)]
    Events(Events),
    #[serde(rename = "heartbeat")]
    Heartbeat {
        #[serde(default)]
        running: Vec<AttemptRef>,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        metrics: Option<Metrics>,
    },
    #[serde(rename = "viber:state")]
    State(Box<ViberState>),
    #[serde(rename = "workspace:changed")]
    WorkspaceChanged {
        path: String,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        hash: Option<String>,
        #[serde(default)]
        size: u64,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        mtime: Option<Instant>,
        #[serde(default)]
        by: String,
    },
    #[serde(rename = "workspace:written")]
    WorkspaceWritten(WorkspaceWritten),
    /// The outcome of a command that changes skills, or what is allowed of MCP servers. It is sent again after every welcome until the Board has it.
    #[serde(rename = "cmd:done")]
    CommandDone(CommandDone),
    #[serde(rename = "req")]
    Request {
        id: u64,
        method: String,
        #[serde(default)]
        params: Value,
    },
    #[serde(rename = "res")]
    Response {
        id: u64,
        ok: bool,
        #[serde(default)]
        result: Value,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        error: Option<String>,
    },
    #[serde(rename = "error")]
    Error {
        code: String,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        of: Option<String>,
    },
    #[serde(rename = "unsupported")]
    Unsupported { of: String },
}

/// Events of one attempt. `items` are kept as they came: what is stored is what was sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Events {
    pub task_id: TaskId,
    pub attempt: u32,
    /// The first seq that the items stand for.
    pub from: u64,
    pub items: Vec<Box<RawValue>>,
}

/// A text frame to a daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum ToDaemon {
    #[serde(rename = "welcome")]
    Welcome(Box<Welcome>),
    #[serde(rename = "ack:events")]
    AckEvents { acks: Vec<Acked> },
    /// Outcomes of changes that the Board has: the daemon may forget them.
    #[serde(rename = "ack:written")]
    AckWritten { edit_ids: Vec<EditId> },
    /// Outcomes of commands that the Board has.
    #[serde(rename = "ack:done")]
    AckDone { cmd_seqs: Vec<u64> },
    /// The next seq that the Board can take.
    #[serde(rename = "nack")]
    Nack { task_id: TaskId, attempt: u32, expect: u64 },
    #[serde(rename = "heartbeat")]
    Heartbeat { server_time: Instant },
    #[serde(rename = "req")]
    Request {
        id: u64,
        method: String,
        #[serde(default)]
        params: Value,
    },
    #[serde(rename = "res")]
    Response {
        id: u64,
        ok: bool,
        #[serde(default)]
        result: Value,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        error: Option<String>,
    },
    /// A frame was understood and refused: `forbidden_task`, `seq_conflict`, `attempt_ended`, `rate`. `of` is the task
    /// of refused events.
    #[serde(rename = "error")]
    Error {
        code: String,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        of: Option<String>,
    },
    #[serde(rename = "unsupported")]
    Unsupported { of: String },
    /// Any command, with its number; its own `type` is the command's.
    #[serde(untagged, skip_deserializing)]
    Command(NumberedCommand),
}

/// A command and its number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NumberedCommand {
    pub cmd_seq: u64,
    #[serde(flatten)]
    pub command: Command,
}

/// The daemon's first frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    /// Lowest and highest supported version.
    pub protocol: [u32; 2],
    pub viber_id: ViberId,
    pub boot_id: BootId,
    pub version: String,
    pub platform: String,
    pub hostname: String,
    #[serde(default)]
    pub capabilities: Vec<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(flatten)]
    pub state: ViberState,
    pub last_cmd_seq: u64,
    #[serde(default)]
    pub running: Vec<AttemptRef>,
    #[serde(default)]
    pub outbox: Vec<OutboxRange>,
}

/// The viber's state: complete lists; an absent one is unchanged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ViberState {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<AgentInfo>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skills: Option<Vec<SkillInfo>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<JobInfo>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub providers: Option<Vec<ProviderInfo>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<Vec<DamageInfo>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp: Option<Vec<McpServerInfo>>,
    /// Absent from daemons that only name it among their capabilities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confinement: Option<Box<Confinement>>,
    /// The ways to operators beside the Board that this machine has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapters: Option<Vec<AdapterInfo>>,
}

/// Names one attempt of a task.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptRef {
    pub task_id: TaskId,
    pub attempt: u32,
}

/// The events that an outbox still holds of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutboxRange {
    pub task_id: TaskId,
    pub attempt: u32,
    pub first_seq: u64,
    pub last_seq: u64,
}

/// The last seq of an attempt that is durable on the Board.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Acked {
    pub task_id: TaskId,
    pub attempt: u32,
    pub seq: u64,
}

/// Attempts below `min_attempt` of the task are over: whatever still runs of them is killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fence {
    pub task_id: TaskId,
    pub min_attempt: u32,
}

/// How a command ended that has an outcome of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandDone {
    pub cmd_seq: u64,
    /// Whether what it asked for is so now.
    pub ok: bool,
    /// Why it is not, for people.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

/// How much may be sent before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    pub events: u64,
    pub bytes: u64,
}

/// The Board's answer to `hello`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Welcome {
    pub protocol: u32,
    pub conn_epoch: u64,
    pub server_time: Instant,
    pub heartbeat_seconds: u64,
    pub max_frame_bytes: u64,
    pub window: Window,
    pub acked: Vec<Acked>,
    pub fence: Vec<Fence>,
    /// Attempts whose end the Board has recorded: they are neither begun nor reported on any more. An older Board does
    /// not send it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub over: Vec<AttemptRef>,
    /// Attempts without a recorded end whose task was stopped: they are not begun any more.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub stopped: Vec<AttemptRef>,
    /// Commands are replayed from this number on.
    pub cmds_from: u64,
    /// [`TeamRules`](crate::TeamRules) as they are now; the request `team.rules` tells later ones. Whoever cannot read them
    /// takes the rest.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub team_rules: Option<Value>,
}

/// The machine's load; sent at most every 30 s.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metrics {
    /// Busy share of all cores, 0 to 100.
    pub cpu_percent: f64,
    pub memory_used: u64,
    pub memory_total: u64,
    pub disk_used: u64,
    pub disk_total: u64,
}

impl FromDaemon {
    /// Parses a text frame from a daemon within the limits.
    pub fn parse(text: &str) -> Result<Self, BadFrame> {
        match &*kind(text, FROM_DAEMON)? {
            "task:events" => read(text).map(Self::Events),
            // The most frequent one is not put through the buffer of a tagged enum.
            "heartbeat" => read(text).map(|Heartbeat { running, metrics }| Self::Heartbeat { running, metrics }),
            _ => read(text),
        }
    }
}

impl ToDaemon {
    /// Parses a text frame from the Board within the limits.
    pub fn parse(text: &str) -> Result<Self, BadFrame> {
        match &*kind(text, TO_DAEMON)? {
            name if COMMANDS.contains(&name) => read(text).map(Self::Command),
            _ => read(text),
        }
    }
}

/// Parses one event of a `task:events` frame.
pub fn parse_event(raw: &RawValue) -> Result<Event, BadFrame> {
    serde_json::from_str(raw.get()).map_err(|error| BadFrame::Malformed(error.to_string()))
}

const FROM_DAEMON: &[&str] = &[
    "hello",
    "ack:cmd",
    "task:events",
    "heartbeat",
    "viber:state",
    "workspace:changed",
    "workspace:written",
    "cmd:done",
    "req",
    "res",
    "error",
    "unsupported",
];

const TO_DAEMON: &[&str] = &[
    "welcome",
    "ack:events",
    "ack:written",
    "ack:done",
    "nack",
    "heartbeat",
    "req",
    "res",
    "error",
    "unsupported",
    "task:submit",
    "task:stop",
    "viber:stop",
    "task:message",
    "interrupt",
    "viber:drain",
    "workspace:write",
    "approval:response",
    "task:pause",
    "task:resume",
    "skill:install",
    "skill:remove",
    "skill:accept",
    "skill:enable",
    "mcp:allow",
    "playbook:ledger",
    "task:child",
];

const COMMANDS: &[&str] = &[
    "task:submit",
    "task:stop",
    "viber:stop",
    "task:message",
    "interrupt",
    "viber:drain",
    "workspace:write",
    "approval:response",
    "task:pause",
    "task:resume",
    "skill:install",
    "skill:remove",
    "skill:accept",
    "skill:enable",
    "mcp:allow",
    "playbook:ledger",
    "task:child",
];

#[derive(Deserialize)]
struct Typed<'a> {
    #[serde(rename = "type", borrow)]
    name: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Heartbeat {
    #[serde(default)]
    running: Vec<AttemptRef>,
    #[serde(default)]
    metrics: Option<Metrics>,
}

fn kind<'a>(text: &'a str, known: &[&str]) -> Result<Cow<'a, str>, BadFrame> {
    if text.len() > MAX_FRAME_BYTES {
        return Err(BadFrame::TooLarge);
    }
    let Typed { name } = read(text)?;
    if known.contains(&&*name) { Ok(name) } else { Err(BadFrame::Unknown(crate::text::head(&name, 64).to_owned())) }
}

fn read<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, BadFrame> {
    serde_json::from_str(text).map_err(|error| BadFrame::Malformed(error.to_string()))
}

#[cfg(test)]
mod tests;
