//! What a task gives away of its limits: a child's come out of what is left, and what it did not use comes back.

use protocol::{LimitPolicy, TaskLimits, Usage};
use serde::{Deserialize, Serialize};

use super::{Budget, COST_TOLERANCE_USD, Limit};

/// What was set apart for one child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SetApart {
    tokens: u64,
    cost_usd: f64,
}

impl Budget {
    /// What a child may use that is to have at most `asked`. Of tokens and money it gets half of the rest where nothing is said;
    /// of the others, which count for each task by itself, no more than is left. `Err` names the limit that leaves nothing.
    pub fn room_for_child(&self, asked: &TaskLimits) -> Result<TaskLimits, &'static str> {
        let rest = |limit: Limit| self.state_of(limit).map(|state| (state.allowed - state.used).max(0.0));
        let whole = |limit: Limit, asked: Option<u32>| match rest(limit) {
            Some(rest) if rest < 1.0 => Err(limit.name()),
            Some(rest) => {
                let rest = rest.min(f64::from(u32::MAX)) as u32;
                Ok(Some(asked.unwrap_or(rest).min(rest)))
            }
            None => Ok(asked),
        };
        let tokens = match rest(Limit::Tokens) {
            Some(rest) if rest < 1.0 => return Err(Limit::Tokens.name()),
            Some(rest) => {
                let rest = rest as u64;
                Some(asked.tokens.unwrap_or((rest / 2).max(1)).min(rest))
            }
            None => asked.tokens,
        };
        let cost_usd = match rest(Limit::CostUsd) {
            Some(rest) if rest <= COST_TOLERANCE_USD => return Err(Limit::CostUsd.name()),
            Some(rest) => Some(asked.cost_usd.unwrap_or(rest / 2.0).min(rest)),
            None => asked.cost_usd,
        };
        let limits = TaskLimits {
            steps: whole(Limit::Steps, asked.steps)?,
            tool_calls: whole(Limit::ToolCalls, asked.tool_calls)?,
            tokens,
            cost_usd,
            minutes: whole(Limit::Minutes, asked.minutes)?,
            on_limit: None,
        };
        // Nobody grants it more than its parent has.
        let on_limit = (limits != TaskLimits::default()).then_some(LimitPolicy::Stop);
        Ok(TaskLimits { on_limit, ..limits })
    }

    /// Sets apart what the child of a call may use.
    pub fn set_apart(&mut self, call: &str, limits: &TaskLimits) {
        let tokens = limits.tokens.filter(|_| self.limits.tokens.is_some()).unwrap_or_default();
        let cost_usd = limits.cost_usd.filter(|_| self.limits.cost_usd.is_some()).unwrap_or_default();
        self.set_apart.insert(call.to_owned(), SetApart { tokens, cost_usd });
    }

    /// The child of a call has ended with this usage, which counts; the rest is there again.
    pub fn take_back(&mut self, call: &str, used: &Usage) {
        if self.set_apart.remove(call).is_some() {
            self.count_usage(used);
        }
    }

    pub(super) fn tokens_apart(&self) -> u64 {
        self.set_apart.values().fold(0, |sum: u64, apart| sum.saturating_add(apart.tokens))
    }

    pub(super) fn cost_apart(&self) -> f64 {
        self.set_apart.values().map(|apart| apart.cost_usd).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ActiveTime;

    fn budget(limits: TaskLimits) -> Budget {
        Budget::new(limits, None, ActiveTime::start())
    }

    #[test]
    fn children_share_what_is_left_and_give_back_what_they_did_not_use() {
        let mut budget = budget(TaskLimits { tokens: Some(1_000), cost_usd: Some(3.0), ..TaskLimits::default() });
        let own = Usage { input_tokens: 100, cost_usd: Some(1.0), ..Usage::default() };
        budget.count_usage(&own);
        let first = budget.room_for_child(&TaskLimits::default()).expect("room");
        assert_eq!((first.tokens, first.cost_usd, first.on_limit), (Some(450), Some(1.0), Some(LimitPolicy::Stop)));
        budget.set_apart("a", &first);
        assert!(budget.nearly_used().is_empty(), "nobody has used it");
        let second = budget.room_for_child(&TaskLimits { cost_usd: Some(9.0), ..TaskLimits::default() }).expect("room");
        assert_eq!((second.tokens, second.cost_usd), (Some(225), Some(1.0)), "never more than is left");
        budget.set_apart("b", &second);
        assert_eq!(budget.room_for_child(&TaskLimits::default()), Err("costUsd"));
        budget.take_back("a", &Usage { output_tokens: 50, cost_usd: Some(0.25), ..Usage::default() });
        budget.take_back("a", &Usage { output_tokens: 50, cost_usd: Some(0.25), ..Usage::default() });
        let third = budget.room_for_child(&TaskLimits::default()).expect("room again");
        assert_eq!((third.tokens, third.cost_usd), (Some(312), Some(0.375)));
    }

    #[test]
    fn what_counts_for_each_task_is_bounded_by_the_rest() {
        let mut budget = budget(TaskLimits { steps: Some(10), tool_calls: Some(1), ..TaskLimits::default() });
        budget.count_step();
        let asked = TaskLimits { steps: Some(50), minutes: Some(5), ..TaskLimits::default() };
        let room = budget.room_for_child(&asked).expect("room");
        assert_eq!((room.steps, room.tool_calls, room.minutes), (Some(9), Some(1), Some(5)));
        budget.count_calls(1);
        assert_eq!(budget.room_for_child(&asked), Err("toolCalls"));
        let unbounded = Budget::new(TaskLimits::default(), None, ActiveTime::start());
        assert_eq!(unbounded.room_for_child(&TaskLimits::default()), Ok(TaskLimits::default()));
    }
}
