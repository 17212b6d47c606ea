//! Who does the thinking: given a task, report while working and end with one outcome.

pub mod builtin;
pub mod echo;

use std::sync::Arc;

use protocol::TaskSubmit;
use tokio_util::sync::CancellationToken;

use crate::{
    artifacts::Shelf,
    config::{Agent, Config},
    home::Home,
    memory::Memory,
    report::{Approvals, Outcome, Sink},
};

/// Everything an engine needs for one attempt.
pub struct Run {
    pub submit: TaskSubmit,
    pub agent: Arc<Agent>,
    pub config: Arc<Config>,
    pub home: Home,
    /// What was known before.
    pub memory: Memory,
    pub sink: Sink,
    /// What it produces.
    pub shelf: Shelf,
    /// Cancelled when the task must end now: drop the model call, end every process, then return `Outcome::Stopped`.
    pub stop: CancellationToken,
    /// Where it asks a person.
    pub approvals: Approvals,
    /// It began on this machine, not on the Board.
    pub local: bool,
}

/// The engines there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Model, tools, loop.
    Builtin,
    /// Does what the goal says without a model, for tests and trials.
    Echo,
}

impl Engine {
    /// The engine of an agent: its model's provider decides (`echo/…` is the echo).
    pub fn of(agent: &Agent) -> Self {
        if agent.model.starts_with("echo/") { Self::Echo } else { Self::Builtin }
    }

    /// The name in `task:started`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Echo => "echo",
        }
    }

    /// Works on one attempt until it ends or is stopped.
    pub async fn run(self, run: Run) -> Outcome {
        match self {
            Self::Builtin => builtin::run(run).await,
            Self::Echo => echo::run(run).await,
        }
    }
}
