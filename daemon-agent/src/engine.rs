//! Engines execute tasks: given one, an engine reports its progress and ends with one outcome.

pub mod builtin;
pub mod echo;
pub mod limits;
pub mod waiting;

use std::{path::PathBuf, sync::Arc};

use protocol::TaskSubmit;
use tokio_util::sync::CancellationToken;

use crate::{
    artifacts::Collector,
    config::{Agent, Config},
    home::Home,
    mcp::McpServers,
    memory::Memory,
    report::{
        ActiveTime, Approvals, Children, EngineOutcome, Inbox, PauseSwitch, Rest, Sink, activity::ActivityRecorder,
    },
    skills::Skills,
};
use waiting::Resumed;

/// Everything that an engine needs for one attempt.
pub struct EngineRun {
    pub submit: TaskSubmit,
    pub agent: Arc<Agent>,
    pub config: Arc<Config>,
    pub home: Home,
    /// What agents remembered before.
    pub memory: Memory,
    /// The skills of the machine, as they are while the attempt runs.
    pub skills: Skills,
    /// The MCP servers of the machine.
    pub mcp: McpServers,
    pub sink: Sink,
    /// Collects the artifacts that the attempt produces.
    pub collector: Collector,
    /// Cancelled when the task must end now: drop the model call, end every process, then return
    /// `EngineOutcome::Stopped`.
    pub stop: CancellationToken,
    /// Where the engine asks a person for approval.
    pub approvals: Approvals,
    /// Tasks that it asks others for.
    pub children: Children,
    /// What people say meanwhile. An engine that cannot listen gets a closed one.
    pub inbox: Inbox,
    /// Where people want the task to be held, if they do.
    pub pause: PauseSwitch,
    /// Whether it is at rest while it only waits.
    pub rest: Rest,
    /// Where a former process left it; `None` if it begins.
    pub resumed: Option<Box<Resumed>>,
    /// A folder that the person at this machine named for the task.
    pub space: Option<PathBuf>,
    /// What it did, for its summary.
    pub activity: ActivityRecorder,
    /// How long the task has worked; the engine holds it while it waits for a person.
    pub active_time: ActiveTime,
    /// Whether the task began on this machine rather than on the Board.
    pub local: bool,
}

/// The available engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The built-in loop of model and tools.
    Builtin,
    /// Does what the goal says without a model, for tests and trials.
    Echo,
}

impl Engine {
    /// The engine for an agent, chosen by its model's provider (`echo/…` is the echo).
    pub fn of(agent: &Agent) -> Self {
        if agent.is_echo() { Self::Echo } else { Self::Builtin }
    }

    /// The name in `task:started`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Echo => "echo",
        }
    }

    /// Works on one attempt until it ends or is stopped.
    pub async fn run(self, run: EngineRun) -> EngineOutcome {
        match self {
            Self::Builtin => builtin::run(run).await,
            Self::Echo => echo::run(run).await,
        }
    }
}
