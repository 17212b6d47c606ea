//! The limits that apply to a task: the smallest of its own (which hold its team's) and its agent's.

use protocol::{LimitPolicy, TaskLimits, TaskSubmit};

use crate::config::Agent;

/// What the task may use, and what happens then: `on_limit` is always set. Where one of the two says `stop`, it stops; where
/// neither says anything, tasks that began on this machine (`local`) do, because nobody there can be asked.
pub fn of_task(submit: &TaskSubmit, agent: &Agent, local: bool) -> TaskLimits {
    let usual = if local { LimitPolicy::Stop } else { LimitPolicy::Pause };
    let smallest = submit.limits.smallest(&agent.limits);
    TaskLimits { on_limit: smallest.on_limit.or(Some(usual)), ..smallest }
}

/// After how many calls of tools the agent checks in.
pub fn leash(submit: &TaskSubmit, agent: &Agent) -> Option<u32> {
    submit.leash.into_iter().chain(agent.leash).min()
}
