//! How an attempt ends, as its engine sees it.

use protocol::{TaskError, TaskResult};

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
