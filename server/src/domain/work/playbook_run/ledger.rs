//! What happened in a run, in words: single lines, and the whole as Markdown for people and for a supervisor that goes on.
//!
//! Much of it is text of agents. Each stands on one line, without what Markdown would take for more than text, so that none
//! looks like a line of the Board.

use protocol::{Instant, playbook::GatePoint};

use crate::domain::{PlaybookRun, RunEvent, RunEventKind, RunStep, StepPhase, name};

/// Longest ledger, bytes of JSON: it goes to its viber in one frame.
const MAX_LEDGER_BYTES: usize = 192 * 1024;
/// What of them the steps may take.
const MAX_STEPS_BYTES: usize = 144 * 1024;
/// Events that a ledger lists, the newest.
pub const MAX_LISTED_EVENTS: u64 = 500;
/// Longest text of an event, characters.
const MAX_EVENT_CHARS: usize = 1_000;
/// Longest text of an agent in a ledger, characters.
const MAX_TEXT_CHARS: usize = 500;
/// Digits of a digest that are shown.
const SHOWN_DIGITS: usize = 12;
/// Files that are named for each step.
const MAX_NAMED_FILES: usize = 16;

impl RunEvent {
    /// A line about a run.
    pub fn of_run(kind: RunEventKind, text: &str, by: Option<&str>, at: Instant) -> Self {
        let text = name::clean(text, MAX_EVENT_CHARS).unwrap_or_default();
        Self { at, kind, step: None, text, by: by.map(str::to_owned) }
    }

    /// A line about one of its steps.
    pub fn of_step(kind: RunEventKind, step: &RunStep, what: &str, by: Option<&str>, at: Instant) -> Self {
        let text = format!("Step {} {what}", step.label);
        Self { step: Some(step.label.clone()), ..Self::of_run(kind, &text, by, at) }
    }
}

/// What a finished step took, for its line.
pub fn cost(step: &RunStep) -> String {
    step.usage.cost_usd.map(|usd| format!(", ${usd:.2}")).unwrap_or_default()
}

/// The ledger. `events`: the newest first. `files`: the names of what each step produced, `vibers`: those of where each ran, by
/// label.
pub fn ledger(
    run: &PlaybookRun,
    steps: &[RunStep],
    events: &[RunEvent],
    (files, vibers): (&[(String, Vec<String>)], &[(String, String)]),
) -> String {
    let mut text = format!("# Playbook {}: run {}\n\n", inline(&run.playbook), run.id);
    let paused = if run.paused { ", paused" } else { "" };
    text.push_str(&format!("- State: {}{paused}\n", run.state));
    text.push_str(&format!("- Started: {} by {}\n", to_second(run.created_at), inline(&run.starter)));
    if let Some(ended) = run.ended_at {
        text.push_str(&format!("- Ended: {}\n", to_second(ended)));
    }
    let way = if run.supervised { "with a supervisor" } else { "as written" };
    let digest = run.hash.get(..SHOWN_DIGITS).unwrap_or(&run.hash);
    text.push_str(&format!("- Runs: {way}\n- File: {}, SHA-256 {digest}\n", inline(&run.path)));
    for (name, value) in &run.inputs {
        text.push_str(&format!("- Input {}: {}\n", inline(name), inline(value)));
    }
    if let Some(summary) = &run.summary {
        text.push_str(&format!("- Summary: {}\n", inline(summary)));
    }
    text.push_str("\n## Steps\n\n");
    for step in steps {
        let made = files.iter().find(|(label, _)| *label == step.label).map(|(_, names)| names.as_slice());
        let viber = vibers.iter().find(|(label, _)| *label == step.label).map(|(_, name)| name.as_str());
        text.push_str(&of_step(step, made.unwrap_or_default(), viber));
    }
    let mut text = cut(&text, MAX_STEPS_BYTES);
    text.push_str("\n## What happened\n\n");
    text.push_str(&happened(events, MAX_LEDGER_BYTES - json_bytes(&text)));
    text
}

/// The newest events that fit, the oldest first.
fn happened(events: &[RunEvent], room: usize) -> String {
    let line = |event: &RunEvent| {
        let by = event.by.as_deref().map(|by| format!(" (by {})", inline(by))).unwrap_or_default();
        format!("- {} {}{by}\n", to_second(event.at), inline(&event.text))
    };
    let (mut lines, mut left) = (Vec::new(), room.saturating_sub(json_bytes(MORE)));
    for line in events.iter().map(line) {
        let Some(rest) = left.checked_sub(json_bytes(&line)) else {
            lines.push(MORE.to_owned());
            break;
        };
        left = rest;
        lines.push(line);
    }
    lines.iter().rev().map(String::as_str).collect()
}

/// An instant to the second.
fn to_second(at: Instant) -> String {
    let text = at.to_string();
    text.split_once('.').map_or(text.clone(), |(seconds, _)| format!("{seconds}Z"))
}

/// Stands for lines that do not fit.
const MORE: &str = "- … and more\n";

/// About how many bytes a text takes in JSON, without what no line of a ledger has.
fn json_bytes(text: &str) -> usize {
    text.len() + text.bytes().filter(|byte| matches!(byte, b'"' | b'\\' | b'\n')).count()
}

fn of_step(step: &RunStep, files: &[String], viber: Option<&str>) -> String {
    let added = if step.added { ", added by the supervisor" } else { "" };
    let mut text = format!("- Step {}: {}\n", step.label, inline(&step.title));
    text.push_str(&format!("  - State: {}{added}\n  - Agent: {}\n", state(step), inline(&step.agent_id)));
    if let Some(viber) = viber {
        text.push_str(&format!("  - Viber: {}\n", inline(viber)));
    }
    if !step.after.is_empty() {
        text.push_str(&format!("  - After: {}\n", step.after.join(", ")));
    }
    if step.attempt > 0 {
        text.push_str(&format!("  - Attempts: {}{}\n", step.attempt, cost(step)));
    }
    if let Some(summary) = &step.summary {
        text.push_str(&format!("  - Said: {}\n", inline(summary)));
    }
    if let Some(failure) = step.failure.as_ref().filter(|_| step.phase == StepPhase::Failed) {
        text.push_str(&format!("  - Failed: {}\n", inline(failure)));
    }
    if let Some(skipped) = &step.skipped {
        text.push_str(&format!("  - Skipped by {}: {}\n", inline(&skipped.by_name), inline(&skipped.reason)));
    }
    if let Some(word) = &step.gate_word {
        let said = if word.allowed { "let pass" } else { "denied" };
        let note = word.note.as_deref().map(|note| format!(": {}", inline(note))).unwrap_or_default();
        text.push_str(&format!("  - Gate: {said} by {}{note}\n", inline(&word.by_name)));
    }
    if !files.is_empty() {
        let names = files.iter().take(MAX_NAMED_FILES).map(|name| inline(name)).collect::<Vec<_>>().join(", ");
        text.push_str(&format!("  - Files: {names}\n"));
    }
    text
}

fn state(step: &RunStep) -> String {
    match (step.phase, step.gate) {
        (StepPhase::Gate, Some(GatePoint::After)) => "gate, a person decides whether it is done".to_owned(),
        (StepPhase::Gate, _) => "gate, a person decides whether it begins".to_owned(),
        (phase, _) => phase.to_string(),
    }
}

/// Text of somebody else on one line, in which nothing is markup.
fn inline(text: &str) -> String {
    let line = name::clean(text, MAX_TEXT_CHARS).unwrap_or_default();
    let mut plain = String::with_capacity(line.len());
    for c in line.chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '|' | '~' | '&' | '!') {
            plain.push('\\');
        }
        plain.push(c);
    }
    plain
}

/// As many lines of a text as fit.
fn cut(text: &str, room: usize) -> String {
    let (mut kept, mut left) = (String::new(), room);
    for line in text.split_inclusive('\n') {
        let Some(rest) = left.checked_sub(json_bytes(line)) else {
            kept.push_str(MORE);
            break;
        };
        left = rest;
        kept.push_str(line);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_says_stays_on_its_line() {
        for text in [
            "done\n- Step 9: forged",
            "a\r\n## What happened",
            "x\u{2028}- y\u{85}z",
            "[a](javascript:x) <b> `c`",
            "\u{202e}turned",
        ] {
            let line = inline(text);
            assert!(!line.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{202e}')), "{line:?}");
            for mark in ['[', '<', '`', '#'] {
                let marks = line.match_indices(mark).all(|(at, _)| line[..at].ends_with('\\'));
                assert!(marks, "{line:?}");
            }
        }
    }

    #[test]
    fn a_long_ledger_keeps_whole_lines_and_what_is_new() {
        let long = cut(&"- ä \"line\" of a ledger\n".repeat(40_000), MAX_STEPS_BYTES);
        let json = serde_json::to_string(&long).expect("JSON").len();
        assert!(json <= MAX_STEPS_BYTES + 100 && long.ends_with(MORE), "{json}");
        assert!(long.lines().all(|line| line.starts_with("- ")), "every line is whole");
        assert_eq!(cut("- one\n", 100), "- one\n");
        let event = |n: i64| RunEvent::of_run(RunEventKind::Paused, &format!("event {n}"), None, Instant(n));
        let newest_first: Vec<RunEvent> = (0..1_000).rev().map(event).collect();
        let told = happened(&newest_first, 2_000);
        assert!(told.starts_with(MORE) && told.ends_with("event 999\n") && told.len() <= 2_000, "{told}");
        assert!(happened(&newest_first[..2], 2_000).starts_with("- 1970-01-01T00:00:00Z event 998"));
    }
}
