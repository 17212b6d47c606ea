//! What pages say of a run and its steps: states as icon and word, what something took, which viber a step wants.

use std::collections::BTreeMap;

use protocol::{TaskLimits, Usage, UsageSource, playbook::StepViber};

use crate::{
    db::playbook_runs::StepWork,
    domain::{RunEventKind, RunStep, StepPhase},
    web::view::{Badge, filters::token_words},
};

/// Longest value of an input that a row of facts shows, bytes.
const MAX_SHOWN_INPUT_BYTES: usize = 200;

/// How a step stands; while it runs, as its task does, as far as anybody knows.
pub fn step_badge(step: &RunStep, work: Option<&StepWork>) -> Badge {
    match step.phase {
        StepPhase::Pending => Badge { state: "pending", icon: "pending", word: "To do" },
        StepPhase::Gate => Badge { state: "waiting", icon: "waiting", word: "Needs you" },
        StepPhase::Running => {
            // That its task has ended becomes the step's end a moment later.
            let task = work.and_then(|work| Some((work.task.as_ref()?, work.contact.state)));
            let task = task.filter(|(task, _)| !task.state.is_final());
            task.map_or(Badge::WORKING, |(task, contact)| Badge::brief(task, contact))
        }
        StepPhase::Done => Badge { state: "done", icon: "done", word: "Done" },
        StepPhase::Failed => Badge { state: "failed", icon: "failed", word: "Failed" },
        StepPhase::Skipped => Badge { state: "stopped", icon: "skip", word: "Skipped" },
        StepPhase::Stopped => Badge { state: "stopped", icon: "stopped", word: "Stopped" },
    }
}

/// The icon of a line of the ledger, and the state that gives its colour.
pub fn event_icon(kind: RunEventKind) -> (&'static str, &'static str) {
    match kind {
        RunEventKind::Started | RunEventKind::StepStarted | RunEventKind::Resumed => ("play", "done"),
        RunEventKind::StepDone | RunEventKind::Completed => ("done", "done"),
        RunEventKind::StepFailed | RunEventKind::Failed => ("failed", "failed"),
        RunEventKind::StepRetried | RunEventKind::SupervisorRetried => ("retry", "working"),
        RunEventKind::StepAdded => ("plus", "done"),
        RunEventKind::StepSkipped => ("skip", "done"),
        RunEventKind::GateOpened => ("gate", "waiting"),
        RunEventKind::GateAllowed => ("gate", "done"),
        RunEventKind::GateDenied => ("gate", "failed"),
        RunEventKind::Paused => ("paused", "waiting"),
        RunEventKind::Stopped => ("stopped", "stopped"),
    }
}

/// What something took: `$0.81`, or tokens where nobody knows what they cost; empty when it took nothing.
pub fn cost(usage: &Usage) -> String {
    let about = if usage.source == UsageSource::Estimated { "≈ " } else { "" };
    let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
    match usage.cost_usd {
        Some(cost) => format!("${cost:.2}"),
        None if tokens > 0 => format!("{about}{} tokens", token_words(tokens)),
        None => String::new(),
    }
}

/// Which viber a step wants; `None`: that of the playbook.
pub fn target(target: Option<&StepViber>) -> Option<String> {
    Some(match target? {
        StepViber::Name(name) => name.clone(),
        StepViber::Labels(labels) => format!("any with {}", labelled(labels)),
    })
}

/// `gpu, zone=eu`.
fn labelled(labels: &BTreeMap<String, String>) -> String {
    let word = |(key, value): (&String, &String)| if value.is_empty() { key.clone() } else { format!("{key}={value}") };
    labels.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// `version=4.12.0, branch=main`; empty without inputs.
pub fn inputs(inputs: &BTreeMap<String, String>) -> String {
    let one = |(name, value): (&String, &String)| {
        let head = protocol::text::head(value, MAX_SHOWN_INPUT_BYTES);
        format!("{name}={head}{}", if head.len() < value.len() { "…" } else { "" })
    };
    inputs.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// `1`, `1 and 2`, `1, 2 and 3a`.
pub fn listed(labels: &[impl AsRef<str>]) -> String {
    let labels: Vec<&str> = labels.iter().map(AsRef::as_ref).collect();
    match labels.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// `1 step`, `2 steps`.
pub fn count(n: u64, one: &str, more: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { more })
}

/// `$2.00, 20 minutes`; empty without limits.
pub fn limits(limits: &TaskLimits) -> String {
    let all = [
        limits.cost_usd.map(|cost| format!("${cost:.2}")),
        limits.minutes.map(|n| count(n.into(), "minute", "minutes")),
        limits.tokens.map(|n| count(n, "token", "tokens")),
        limits.steps.map(|n| count(n.into(), "model call", "model calls")),
        limits.tool_calls.map(|n| count(n.into(), "call of a tool", "calls of tools")),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_as_sentences() {
        assert_eq!(listed(&[] as &[&str]), "");
        assert_eq!(listed(&["1"]), "1");
        assert_eq!(listed(&["1", "2", "3a"]), "1, 2 and 3a");
        let labels = BTreeMap::from([("gpu".to_owned(), String::new()), ("zone".to_owned(), "eu".to_owned())]);
        assert_eq!(target(Some(&StepViber::Labels(labels))).as_deref(), Some("any with gpu, zone=eu"));
        assert_eq!(target(None), None);
    }

    #[test]
    fn what_something_took_is_money_or_tokens() {
        let usage = Usage { input_tokens: 1_200, output_tokens: 300, ..Usage::default() };
        assert!(cost(&usage).ends_with("1.5k tokens"), "{}", cost(&usage));
        assert_eq!(cost(&Usage { cost_usd: Some(0.814), ..usage }), "$0.81");
        assert_eq!(cost(&Usage::default()), "");
        let bounds = TaskLimits { minutes: Some(1), cost_usd: Some(2.0), ..TaskLimits::default() };
        assert_eq!(limits(&bounds), "$2.00, 1 minute");
    }

    #[test]
    fn a_long_input_is_cut() {
        let given = BTreeMap::from([("a".to_owned(), "x".repeat(300)), ("b".to_owned(), "1".to_owned())]);
        let words = inputs(&given);
        assert!(words.starts_with("a=xxx") && words.ends_with("x…, b=1") && words.len() < 230, "{words}");
    }
}
