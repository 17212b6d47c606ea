//! How an attempt ends, from its engine's point of view.

use protocol::{TaskError, TaskResult};

/// How an attempt ended. `task` appends `task:completed`, `task:error` or `task:stopped`, not the engine.
#[derive(Debug)]
pub enum EngineOutcome {
    Completed(TaskResult),
    Failed(TaskError),
    /// After `stop`: everything that was started is dead, and this many processes had to be killed.
    Stopped {
        killed: u32,
    },
}
