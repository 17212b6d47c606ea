//! The limits that apply to a task: the smallest of its own and its agent's.

use protocol::{LimitPolicy, TaskLimits, TaskSubmit};

use crate::config::Agent;

/// What the task may use, and what happens then: `on_limit` is always set. Where one of the two says `stop`, it stops; where
/// neither says anything, tasks that began on this machine (`local`) do, because nobody there can be asked.
pub fn of_task(submit: &TaskSubmit, agent: &Agent, local: bool) -> TaskLimits {
    let (asked, own) = (&submit.limits, &agent.limits);
    let usual = if local { LimitPolicy::Stop } else { LimitPolicy::Pause };
    let on_limit = match (asked.on_limit, own.on_limit) {
        (Some(LimitPolicy::Stop), _) | (_, Some(LimitPolicy::Stop)) => LimitPolicy::Stop,
        (policy, other) => policy.or(other).unwrap_or(usual),
    };
    TaskLimits {
        steps: least(asked.steps, own.steps),
        tool_calls: least(asked.tool_calls, own.tool_calls),
        tokens: least(asked.tokens, own.tokens),
        cost_usd: asked.cost_usd.into_iter().chain(own.cost_usd).reduce(f64::min),
        minutes: least(asked.minutes, own.minutes),
        on_limit: Some(on_limit),
    }
}

/// After how many calls of tools the agent checks in.
pub fn leash(submit: &TaskSubmit, agent: &Agent) -> Option<u32> {
    least(submit.leash, agent.leash)
}

fn least<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    a.into_iter().chain(b).min()
}
