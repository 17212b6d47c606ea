//! Who does the thinking: given a task, report while working and end with one outcome.

use std::sync::Arc;

use protocol::{TaskError, TaskResult, TaskSubmit};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Agent, Config},
    home::Home,
    task::Sink,
};

/// Everything an engine needs for one attempt.
pub struct Run {
    pub submit: TaskSubmit,
    pub agent: Arc<Agent>,
    pub config: Arc<Config>,
    pub home: Home,
    pub sink: Sink,
    /// Cancelled when the task must end now: drop the model call, end every process, then return `Outcome::Stopped`.
    pub stop: CancellationToken,
}

/// How an attempt ended. `task:completed`, `task:error` or `task:stopped` is appended by `task`, not by the engine.
#[derive(Debug)]
pub enum Outcome {
    Completed(TaskResult),
    Failed(TaskError),
    /// After `stop`: everything that was started is dead; so many processes had to be killed.
    Stopped {
        killed: u32,
    },
}
