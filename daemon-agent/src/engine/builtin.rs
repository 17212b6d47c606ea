//! The built-in agent loop.

use protocol::{ErrorCode, TaskError};

use super::{Outcome, Run};

/// Runs one attempt with the agent's model and tools.
pub async fn run(run: Run) -> Outcome {
    Outcome::Failed(TaskError {
        code: ErrorCode::ProviderUnavailable,
        message: format!("no engine for the model {}", run.agent.model),
        retryable: false,
        suggestion: None,
        details: None,
    })
}
