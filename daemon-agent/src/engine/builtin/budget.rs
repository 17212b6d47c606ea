//! What a task may consume and what it has consumed: its limits, its leash, and the agent's `maxSteps`. Asks nobody.

mod children;
pub(super) mod cost;
mod words;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use protocol::{BudgetProgress, ErrorCode, LimitPolicy, ReachedLimit, TaskError, TaskLimits, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{config::Agent, report::ActiveTime};
use children::SetApart;
pub(super) use words::nothing_left;

/// Part of a limit from which on people are told.
const NEARLY_USED: f64 = 0.8;
/// Money that is less than this does not matter: sums of prices are not exact, USD.
const COST_TOLERANCE_USD: f64 = 1e-9;

/// One of the bounds of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Limit {
    Steps,
    ToolCalls,
    Tokens,
    CostUsd,
    Minutes,
    /// Calls of tools since a person was asked last.
    Leash,
}

impl Limit {
    /// The key, as in `limits`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::ToolCalls => "toolCalls",
            Self::Tokens => "tokens",
            Self::CostUsd => "costUsd",
            Self::Minutes => "minutes",
            Self::Leash => "leash",
        }
    }
}

/// Where the loop looks at the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Boundary {
    /// Before a model call.
    Step,
    /// Before the same model call is tried again.
    Retry,
    /// Before a call of a tool.
    Call,
    /// Before a call that has others work: what they may use is set apart already, and the call itself uses none of it.
    MeshCall,
}

impl Boundary {
    /// The limits that count here, the first one asked first.
    fn limits(self) -> &'static [Limit] {
        match self {
            Self::Step => &[Limit::Steps, Limit::Tokens, Limit::CostUsd, Limit::Minutes],
            Self::Retry => &[Limit::Tokens, Limit::CostUsd, Limit::Minutes],
            Self::Call => &[Limit::ToolCalls, Limit::Tokens, Limit::CostUsd, Limit::Minutes, Limit::Leash],
            Self::MeshCall => &[Limit::ToolCalls, Limit::Minutes, Limit::Leash],
        }
    }
}

/// A limit that applies, and how much of it is used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LimitState {
    pub limit: Limit,
    pub allowed: f64,
    pub used: f64,
}

impl LimitState {
    /// Whether there is no room for more.
    fn is_reached(&self) -> bool {
        self.used >= self.allowed - self.tolerance()
    }

    /// Whether there is little room.
    fn is_nearly(&self) -> bool {
        self.used >= self.allowed * NEARLY_USED - self.tolerance()
    }

    fn tolerance(&self) -> f64 {
        if self.limit == Limit::CostUsd { COST_TOLERANCE_USD } else { 0.0 }
    }

    /// As it is reported.
    pub fn reported(&self) -> ReachedLimit {
        ReachedLimit { name: self.limit.name().to_owned(), allowed: self.allowed, used: self.used }
    }

    /// How the task ends because of it. `why` is how people decided, if they were asked.
    pub fn error(&self, why: Option<&str>) -> TaskError {
        let (name, allowed) = (self.limit.name(), number(self.allowed));
        let (message, suggestion) = match self.limit {
            Limit::Leash => (
                format!(
                    "The agent checked in after {}, its leash, and was not to go on",
                    self.limit.amount(self.allowed)
                ),
                "Continue in a new task, with a longer `leash` if need be.".to_owned(),
            ),
            _ => (
                format!("The task's budget is used up: {}", self.bound()),
                format!("Raise `limits.{name}` in the agent's file or for the task, or continue in a new task."),
            ),
        };
        let why = why.map(|why| format!("; {why}")).unwrap_or_default();
        TaskError {
            code: ErrorCode::BudgetExceeded,
            message: format!("{message}{why}."),
            retryable: false,
            suggestion: Some(suggestion),
            details: Some(json!({ "limit": name, "allowed": allowed, "used": number(self.used) })),
        }
    }
}

/// Limits, and what was consumed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Budget {
    limits: TaskLimits,
    /// What people granted, which the limits hold already.
    #[serde(default)]
    granted: TaskLimits,
    /// Calls of tools after which the agent checks in.
    leash: Option<u32>,
    steps: u32,
    /// Of this turn, without those that somebody's steering dropped, and those of a supervisor that its run needed.
    turn_steps: u32,
    /// What a supervisor had done, by digest, and the model call that last asked for something new.
    #[serde(default)]
    done: BTreeSet<String>,
    #[serde(default)]
    last_needed: u32,
    tool_calls: u32,
    /// Since a person was asked last.
    calls_on_leash: u32,
    tokens: u64,
    cost_usd: f64,
    #[serde(skip, default = "ActiveTime::start")]
    active_time: ActiveTime,
    /// Limits of which people were told that they are nearly used.
    told: Vec<Limit>,
    /// What children may use, by the calls that asked for them.
    #[serde(default)]
    set_apart: BTreeMap<String, SetApart>,
}

impl Budget {
    /// Of a task that has consumed nothing.
    pub fn new(limits: TaskLimits, leash: Option<u32>, active_time: ActiveTime) -> Self {
        Self {
            limits,
            granted: TaskLimits::default(),
            leash,
            steps: 0,
            turn_steps: 0,
            done: BTreeSet::new(),
            last_needed: 0,
            tool_calls: 0,
            calls_on_leash: 0,
            tokens: 0,
            cost_usd: 0.0,
            active_time,
            told: Vec::new(),
            set_apart: BTreeMap::new(),
        }
    }

    /// This one, in a process that counts its time in `active_time`.
    pub fn resumed(self, active_time: ActiveTime) -> Self {
        Self { active_time, ..self }
    }

    /// Whether the task ends at a limit, instead of asking a person. At its leash it asks in any case.
    pub fn stops_at(&self, limit: Limit) -> bool {
        limit != Limit::Leash && self.limits.on_limit == Some(LimitPolicy::Stop)
    }

    /// Whether money is bounded.
    pub fn limits_cost(&self) -> bool {
        self.limits.cost_usd.is_some()
    }

    /// Counts a model call.
    pub fn count_step(&mut self) {
        self.steps += 1;
        self.turn_steps += 1;
    }

    /// Counts a model call in the place of one that was dropped.
    pub fn count_step_again(&mut self) {
        self.turn_steps = self.turn_steps.saturating_sub(1);
        self.count_step();
    }

    /// The Board has done what the last model call asked for as a supervisor: a run may have more steps than the agent's
    /// `maxSteps`. What was done before counts, so that one which goes round in circles ends.
    pub fn count_no_round(&mut self, digest: &str) {
        let is_new = self.done.insert(digest.to_owned());
        if is_new && self.last_needed != self.steps {
            self.last_needed = self.steps;
            self.turn_steps = self.turn_steps.saturating_sub(1);
        }
    }

    /// Counts calls of tools.
    pub fn count_calls(&mut self, calls: usize) {
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        self.tool_calls = self.tool_calls.saturating_add(calls);
        self.calls_on_leash = self.calls_on_leash.saturating_add(calls);
    }

    /// Counts what a model call consumed.
    pub fn count_usage(&mut self, usage: &Usage) {
        let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
        self.tokens = self.tokens.saturating_add(tokens);
        self.cost_usd += usage.cost_usd.unwrap_or_default();
    }

    /// Counts what the attempts consumed that this one goes on from.
    pub fn count_spent(&mut self, spent: &Usage) {
        self.count_usage(spent);
        self.steps = self.steps.saturating_add(spent.model_calls);
        self.tool_calls = self.tool_calls.saturating_add(spent.tool_calls);
    }

    /// Goes on with what people granted to those attempts, and on the leash that they had.
    pub fn go_on_from(&mut self, before: &BudgetProgress) {
        self.raise(&before.granted);
        (self.leash, self.calls_on_leash) = (before.leash, before.calls_on_leash);
        // People were told of what is nearly used.
        self.nearly_used();
    }

    /// What an attempt that goes on from this one has to know beside the usage.
    pub fn progress(&self) -> BudgetProgress {
        BudgetProgress {
            worked_seconds: u32::try_from(self.active_time.elapsed().as_secs()).unwrap_or(u32::MAX),
            granted: self.granted.clone(),
            leash: self.leash,
            calls_on_leash: self.calls_on_leash,
        }
    }

    /// People want something more: the agent's `maxSteps` counts anew, the task's limits do not.
    pub fn begin_rounds(&mut self) {
        self.turn_steps = 0;
    }

    /// How many calls may be made before people have to be asked, at least one and at most `most`.
    pub fn room_for_calls(&self, most: usize) -> usize {
        let calls = self.limits.tool_calls.map(|limit| limit.saturating_sub(self.tool_calls));
        let leash = self.leash.map(|leash| leash.saturating_sub(self.calls_on_leash));
        let room = calls.into_iter().chain(leash).min().and_then(|room| usize::try_from(room).ok());
        room.unwrap_or(most).clamp(1, most.max(1))
    }

    /// The first limit that leaves no room for what comes behind this boundary.
    pub fn used_up(&self, at: Boundary) -> Option<LimitState> {
        let all = at.limits().iter().filter_map(|limit| self.state_of(*limit));
        all.into_iter().find(LimitState::is_reached)
    }

    /// Limits that are nearly used and of which nobody was told. What is set apart for others is not used.
    pub fn nearly_used(&mut self) -> Vec<LimitState> {
        let all = [Limit::Steps, Limit::ToolCalls, Limit::Tokens, Limit::CostUsd, Limit::Minutes];
        let fresh = all.into_iter().filter(|limit| !self.told.contains(limit)).filter_map(|limit| self.spent_of(limit));
        let fresh: Vec<LimitState> = fresh.filter(|state| state.is_nearly() && !state.is_reached()).collect();
        self.told.extend(fresh.iter().map(|state| state.limit));
        fresh
    }

    /// A person allowed more when they were asked about `asked`. Of a leash, calls are a new one, and without any grant there
    /// is none from now on.
    pub fn grant(&mut self, asked: Limit, grant: Option<&TaskLimits>) {
        let nothing = TaskLimits::default();
        let more = grant.unwrap_or(&nothing);
        if asked == Limit::Leash {
            self.calls_on_leash = 0;
            self.leash = match more.tool_calls {
                Some(calls) => Some(calls.max(1)),
                None if *more == nothing => None,
                None => self.leash,
            };
            self.raise(&TaskLimits { tool_calls: None, ..more.clone() });
        } else {
            self.raise(more);
        }
        // Where there is room again, people are told again when there is little.
        let told = std::mem::take(&mut self.told);
        self.told =
            told.into_iter().filter(|limit| self.spent_of(*limit).is_some_and(|state| state.is_nearly())).collect();
    }

    /// Adds to the limits that apply.
    fn raise(&mut self, more: &TaskLimits) {
        let (limits, granted) = (&mut self.limits, &mut self.granted);
        add((&mut limits.steps, &mut granted.steps), more.steps, u32::saturating_add);
        add((&mut limits.tool_calls, &mut granted.tool_calls), more.tool_calls, u32::saturating_add);
        add((&mut limits.tokens, &mut granted.tokens), more.tokens, u64::saturating_add);
        add((&mut limits.minutes, &mut granted.minutes), more.minutes, u32::saturating_add);
        let money = more.cost_usd.filter(|cost| cost.is_finite() && *cost > 0.0);
        add((&mut limits.cost_usd, &mut granted.cost_usd), money, |a, b| a + b);
    }

    /// Whether the agent may start another round.
    pub fn check_rounds(&self, agent: &Agent) -> Result<(), TaskError> {
        if self.turn_steps < agent.max_steps {
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

    /// What is allowed and used of a limit; `None` if it does not apply.
    fn state_of(&self, limit: Limit) -> Option<LimitState> {
        let of = |count: Option<u32>| count.map(f64::from);
        let allowed = match limit {
            Limit::Steps => of(self.limits.steps),
            Limit::ToolCalls => of(self.limits.tool_calls),
            Limit::Tokens => self.limits.tokens.map(|tokens| tokens as f64),
            Limit::CostUsd => self.limits.cost_usd,
            Limit::Minutes => of(self.limits.minutes),
            Limit::Leash => of(self.leash),
        };
        let used = match limit {
            Limit::Steps => f64::from(self.steps),
            Limit::ToolCalls => f64::from(self.tool_calls),
            Limit::Tokens => self.tokens.saturating_add(self.tokens_apart()) as f64,
            Limit::CostUsd => self.cost_usd + self.cost_apart(),
            Limit::Minutes => minutes(self.active_time.elapsed()),
            Limit::Leash => f64::from(self.calls_on_leash),
        };
        allowed.map(|allowed| LimitState { limit, allowed, used })
    }

    /// The same without what is set apart for others.
    fn spent_of(&self, limit: Limit) -> Option<LimitState> {
        let apart = match limit {
            Limit::Tokens => self.tokens_apart() as f64,
            Limit::CostUsd => self.cost_apart(),
            _ => 0.0,
        };
        self.state_of(limit).map(|state| LimitState { used: state.used - apart, ..state })
    }
}

/// Adds to a limit that applies, and to what was granted of it.
fn add<T: Copy>((limit, granted): (&mut Option<T>, &mut Option<T>), more: Option<T>, sum: impl Fn(T, T) -> T) {
    if let (Some(limit), Some(more)) = (limit, more) {
        *limit = sum(*limit, more);
        *granted = Some(granted.map_or(more, |before| sum(before, more)));
    }
}

/// In hundredths, so that what people read is short.
fn minutes(time: Duration) -> f64 {
    (time.as_secs_f64() / 60.0 * 100.0).floor() / 100.0
}

/// A count without a decimal point, money with one.
pub(super) fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 { json!(value as i64) } else { json!((value * 1e6).round() / 1e6) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A budget of 100 of one limit, of which this much is used.
    fn used(limit: Limit, used: u32) -> Budget {
        let mut limits = TaskLimits::default();
        match limit {
            Limit::Steps => limits.steps = Some(100),
            Limit::ToolCalls => limits.tool_calls = Some(100),
            Limit::Tokens => limits.tokens = Some(100),
            Limit::CostUsd => limits.cost_usd = Some(100.0),
            Limit::Minutes => limits.minutes = Some(100),
            Limit::Leash => {}
        }
        let minutes = if limit == Limit::Minutes { used } else { 0 };
        let time = ActiveTime::counted(Duration::from_secs(u64::from(minutes) * 60));
        time.hold();
        let mut budget = Budget::new(limits, (limit == Limit::Leash).then_some(100), time);
        match limit {
            Limit::Steps => (0..used).for_each(|_| budget.count_step()),
            Limit::ToolCalls | Limit::Leash => budget.count_calls(used as usize),
            Limit::Tokens => {
                budget.count_usage(&Usage { input_tokens: u64::from(used), ..Usage::default() });
            }
            // In hundredths, whose sum is not exact.
            Limit::CostUsd => (0..used * 100).for_each(|_| {
                budget.count_usage(&Usage { cost_usd: Some(0.01), ..Usage::default() });
            }),
            Limit::Minutes => {}
        }
        budget
    }

    #[test]
    fn each_limit_is_told_at_eighty_and_reached_at_a_hundred() {
        use Boundary::{Call, Step};
        for (limit, at) in [
            (Limit::Steps, Step),
            (Limit::ToolCalls, Call),
            (Limit::Tokens, Step),
            (Limit::CostUsd, Step),
            (Limit::Minutes, Call),
        ] {
            for (amount, told, reached) in
                [(79, false, false), (80, true, false), (99, true, false), (100, false, true)]
            {
                let mut budget = used(limit, amount);
                assert_eq!(!budget.nearly_used().is_empty(), told, "{limit:?} {amount}");
                assert!(budget.nearly_used().is_empty(), "once");
                assert_eq!(budget.used_up(at).map(|state| state.limit), reached.then_some(limit), "{limit:?} {amount}");
            }
        }
        assert!(used(Limit::Leash, 99).used_up(Call).is_none());
        let mut leash = used(Limit::Leash, 100);
        assert!(leash.used_up(Call).is_some() && leash.nearly_used().is_empty() && !leash.stops_at(Limit::Leash));
    }

    #[test]
    fn a_grant_adds_to_its_limits_and_to_none_that_does_not_apply() {
        let mut budget = used(Limit::CostUsd, 100);
        let grant = |cost_usd| TaskLimits { cost_usd: Some(cost_usd), steps: Some(5), ..TaskLimits::default() };
        for senseless in [f64::NAN, f64::INFINITY, -1.0] {
            budget.grant(Limit::CostUsd, Some(&grant(senseless)));
            assert!(budget.used_up(Boundary::Step).is_some());
        }
        budget.grant(Limit::CostUsd, Some(&grant(20.0)));
        assert!(budget.used_up(Boundary::Step).is_none());
        assert_eq!(budget.nearly_used().len(), 1, "100 of 120");
        assert_eq!(budget.limits.steps, None);
    }

    #[test]
    fn calls_that_run_at_once_fit_what_is_left() {
        let mut budget = used(Limit::ToolCalls, 97);
        assert_eq!((budget.room_for_calls(8), budget.room_for_calls(2)), (3, 2));
        budget.count_calls(3);
        assert_eq!(budget.room_for_calls(8), 1);
        budget.grant(Limit::Leash, Some(&TaskLimits { tool_calls: Some(2), ..TaskLimits::default() }));
        assert_eq!(used(Limit::Tokens, 0).room_for_calls(8), 8);
    }
}
