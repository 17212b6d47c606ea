//! What a task may consume: the smaller of the agent's and the task's limits, and the agent's `maxSteps`.

use protocol::{ErrorCode, TaskError, TaskLimits, TaskSubmit, Usage};
use serde_json::json;

use crate::config::Agent;

/// Limits and what was consumed. `task` enforces the minutes; the loop counts tokens.
#[derive(Debug)]
pub(super) struct Budget {
    limits: TaskLimits,
    steps: u32,
    tool_calls: u32,
}

impl Budget {
    pub fn of(agent: &Agent, submit: &TaskSubmit) -> Self {
        let (own, asked) = (&agent.limits, &submit.limits);
        let limits = TaskLimits {
            steps: smaller(own.steps, asked.steps),
            tool_calls: smaller(own.tool_calls, asked.tool_calls),
            tokens: smaller(own.tokens, asked.tokens),
            ..TaskLimits::default()
        };
        Self { limits, steps: 0, tool_calls: 0 }
    }

    /// Counts one more model call.
    pub fn take_step(&mut self) -> Result<(), TaskError> {
        if let Some(limit) = self.limits.steps.filter(|limit| self.steps >= *limit) {
            return Err(exceeded("steps", limit.into(), u64::from(self.steps) + 1));
        }
        self.steps += 1;
        Ok(())
    }

    /// Counts one more tool call.
    pub fn take_call(&mut self) -> Result<(), TaskError> {
        if let Some(limit) = self.limits.tool_calls.filter(|limit| self.tool_calls >= *limit) {
            return Err(exceeded("toolCalls", limit.into(), u64::from(self.tool_calls) + 1));
        }
        self.tool_calls += 1;
        Ok(())
    }

    /// Whether `usage` leaves room for more.
    pub fn check_tokens(&self, usage: &Usage) -> Result<(), TaskError> {
        let used = usage.input_tokens + usage.output_tokens;
        match self.limits.tokens.filter(|limit| used >= *limit) {
            Some(limit) => Err(exceeded("tokens", limit, used)),
            None => Ok(()),
        }
    }

    /// Whether the agent may start another round.
    pub fn check_rounds(&self, agent: &Agent) -> Result<(), TaskError> {
        if self.steps < agent.max_steps {
            return Ok(());
        }
        Err(TaskError {
            code: ErrorCode::MaxStepsReached,
            message: format!("The agent wanted to go on after {} steps, its `maxSteps`.", agent.max_steps),
            retryable: true,
            suggestion: Some(format!(
                "Send “continue” to go on from here, or raise `maxSteps` in agents/{}.yaml.",
                agent.id
            )),
            details: Some(json!({ "maxSteps": agent.max_steps })),
        })
    }
}

fn smaller<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn exceeded(name: &str, limit: u64, used: u64) -> TaskError {
    TaskError {
        code: ErrorCode::BudgetExceeded,
        message: format!("The task's budget is used up: limits.{name} is {limit}."),
        retryable: false,
        suggestion: Some(format!(
            "Raise `limits.{name}` in the agent's file or for the task, or continue in a new task."
        )),
        details: Some(json!({ "limit": name, "allowed": limit, "used": used })),
    }
}
