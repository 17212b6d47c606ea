//! Limits in words that people read: `$24.56 of the $30.00 that this task may cost`.

use protocol::text::grouped;

use super::{Limit, LimitState, number};

/// Amounts of money below this are told in hundredths of a cent, USD.
const SMALL_USD: f64 = 0.1;

impl Limit {
    /// An amount of it: `1,200 tokens`, `$24.56`.
    pub fn amount(self, value: f64) -> String {
        match self {
            Self::CostUsd if value.abs() < SMALL_USD && value != 0.0 => format!("${value:.4}"),
            Self::CostUsd => format!("${value:.2}"),
            _ => {
                let (one, many) = self.units();
                format!("{} {}", short(value), if value == 1.0 { one } else { many })
            }
        }
    }

    fn units(self) -> (&'static str, &'static str) {
        match self {
            Self::Steps => ("model call", "model calls"),
            Self::ToolCalls | Self::Leash => ("tool call", "tool calls"),
            Self::Tokens => ("token", "tokens"),
            Self::CostUsd => ("dollar", "dollars"),
            Self::Minutes => ("minute", "minutes"),
        }
    }

    /// What a task does with it.
    fn verb(self) -> &'static str {
        match self {
            Self::Steps | Self::ToolCalls | Self::Leash => "make",
            Self::Tokens => "use",
            Self::CostUsd => "cost",
            Self::Minutes => "work for",
        }
    }
}

impl LimitState {
    /// How much of it is used.
    pub fn used_of_allowed(&self) -> String {
        let used = match self.limit {
            Limit::CostUsd => self.limit.amount(self.used),
            _ => short(self.used),
        };
        format!("{used} of the {} that this task may {}", self.limit.amount(self.allowed), self.limit.verb())
    }

    /// What the task may do, with the key in the files: `it may make 2 model calls (limits.steps)`.
    pub fn bound(&self) -> String {
        let (verb, amount, name) = (self.limit.verb(), self.limit.amount(self.allowed), self.limit.name());
        format!("it may {verb} {amount} (limits.{name})")
    }
}

/// What is nothing left of, for a model that would give away a part of it.
pub fn nothing_left(limit: &str) -> &'static str {
    match limit {
        "steps" => "this task may make no more model calls",
        "toolCalls" => "this task may make no more tool calls",
        "tokens" => "this task has no tokens left",
        "costUsd" => "this task has no money left",
        _ => "this task has no time left",
    }
}

/// A count with its thousands grouped, or minutes with hundredths of one where they matter.
fn short(value: f64) -> String {
    let rounded = (value * 100.0).round() / 100.0;
    match value {
        _ if rounded.fract() == 0.0 && rounded >= 1.0 => grouped(rounded as u64),
        _ if value.abs() < 0.1 => number(value).to_string(),
        _ => rounded.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_told_in_words() {
        let told = |limit, used, allowed| LimitState { limit, used, allowed }.used_of_allowed();
        for (limit, used, allowed, words) in [
            (Limit::CostUsd, 24.55625, 30.0, "$24.56 of the $30.00 that this task may cost"),
            (Limit::CostUsd, 0.0412, 0.05, "$0.0412 of the $0.0500 that this task may cost"),
            (Limit::Tokens, 80_000.0, 100_000.0, "80,000 of the 100,000 tokens that this task may use"),
            (Limit::Steps, 8.0, 10.0, "8 of the 10 model calls that this task may make"),
            (Limit::ToolCalls, 1.0, 1.0, "1 of the 1 tool call that this task may make"),
            (Limit::Minutes, 25.5, 30.0, "25.5 of the 30 minutes that this task may work for"),
            (Limit::Minutes, 24.016_666_666_67, 30.0, "24.02 of the 30 minutes that this task may work for"),
            (Limit::Minutes, 0.0, 0.001, "0 of the 0.001 minutes that this task may work for"),
        ] {
            assert_eq!(told(limit, used, allowed), words);
        }
        let bound = LimitState { limit: Limit::CostUsd, used: 30.01, allowed: 30.0 }.bound();
        assert_eq!(bound, "it may cost $30.00 (limits.costUsd)");
    }
}
