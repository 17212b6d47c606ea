//! Calls of a supervisor: which are carried out, which are refused, and which wait. What it says is text of a model, and decides
//! no more than that: it passes no gate, begins nothing before its time, and calls nothing done.

use protocol::text::head;
use serde_json::Value;

use super::{gates, plan::RunSnapshot};
use crate::domain::{RunStep, StepPhase, SupervisorCall, name};

/// Longest instruction that a supervisor gives, bytes.
const MAX_INSTRUCTION_BYTES: usize = 16 * 1024;
/// Longest summary that is kept, bytes.
const MAX_SUMMARY_BYTES: usize = 16 * 1024;
/// Longest reason for leaving a step out that is kept, bytes.
const MAX_REASON_BYTES: usize = 2 * 1024;
/// Steps that one supervisor adds.
const MAX_ADDED_STEPS: usize = 50;
/// How often a step is started at most before only a person starts it again.
const MAX_STEP_ATTEMPTS: u32 = 10;
/// Steps that an answer lists.
const MAX_LISTED_STEPS: usize = 40;
/// Longest result of a task in an answer, bytes.
const MAX_RESULT_BYTES: usize = 8 * 1024;
/// Files that an answer names.
pub const MAX_NAMED_FILES: usize = 64;

/// What becomes of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallVerdict {
    /// What it waits for has not happened.
    Wait,
    /// The step begins as soon as it may, perhaps with another instruction; the call waits for its end.
    Want {
        label: String,
        instruction: Option<String>,
    },
    /// The step has ended, with whatever outcome.
    Tell(String),
    /// An answer in words.
    Say(String),
    /// Why not.
    Deny(String),
    Add(Box<AddedStep>),
    Skip {
        label: String,
        reason: String,
    },
    /// The run ends; with an error when steps are left that can go no further.
    Finish {
        summary: String,
        is_complete: bool,
    },
}

/// A step that a supervisor would like to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedStep {
    pub label: String,
    pub agent: String,
    /// The viber's name, if it is another one.
    pub viber: Option<String>,
    pub instruction: String,
    pub after: Vec<String>,
}

/// What becomes of an open call now.
pub fn verdict(now: &RunSnapshot, call: &SupervisorCall) -> CallVerdict {
    let judged = match call.tool.as_str() {
        "run_step" => run_step(now, call),
        "add_step" => add_step(now, &call.args),
        "skip_step" => skip_step(now, &call.args),
        "finish" => finish(now, &call.args),
        other => Err(format!("There is no call {:?}.", head(other, 80))),
    };
    judged.unwrap_or_else(CallVerdict::Deny)
}

/// What is wrong with a call.
type Judged = Result<CallVerdict, String>;

fn run_step(now: &RunSnapshot, call: &SupervisorCall) -> Judged {
    let step = named(now, &call.args)?;
    let label = step.label.clone();
    if is_to_be_taken_up(now, step) {
        return Ok(CallVerdict::Wait);
    }
    if call.waits_for.as_ref() == Some(&label) {
        return Ok(match step.phase {
            StepPhase::Done | StepPhase::Failed | StepPhase::Skipped | StepPhase::Stopped => CallVerdict::Tell(label),
            StepPhase::Pending => match gates::denial(&now.run, step).filter(|_| !step.wanted) {
                Some(word) => CallVerdict::Deny(gates::denial_text(&label, word)),
                None if step.wanted || gates::is_let(&now.run, step) => CallVerdict::Wait,
                None => CallVerdict::Want { label, instruction: None },
            },
            StepPhase::Gate | StepPhase::Running => CallVerdict::Wait,
        });
    }
    match step.phase {
        StepPhase::Done | StepPhase::Skipped | StepPhase::Stopped => return Ok(CallVerdict::Tell(label)),
        StepPhase::Gate | StepPhase::Running => return Ok(CallVerdict::Want { label, instruction: None }),
        StepPhase::Pending | StepPhase::Failed => {}
    }
    let missing = now.missing_before(step);
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return Err(format!("Step {label} comes after {missing}: run it when that is done, or skipped."));
    }
    if step.attempt >= MAX_STEP_ATTEMPTS {
        return Err(format!("Step {label} was started {} times: a person decides about it now.", step.attempt));
    }
    let instruction = instruction(&call.args, "instruction")?;
    let as_written = || step.instruction.clone();
    let as_it_would_run = RunStep { instruction: instruction.clone().unwrap_or_else(as_written), ..step.clone() };
    if let Some(word) = gates::denial(&now.run, &as_it_would_run) {
        return Err(format!("{}. It is not asked again like this.", gates::denial_text(&label, word)));
    }
    Ok(CallVerdict::Want { label, instruction })
}

/// Whether somebody started the step's task over, and that has still to show in the step.
fn is_to_be_taken_up(now: &RunSnapshot, step: &RunStep) -> bool {
    matches!(step.phase, StepPhase::Pending | StepPhase::Failed) && now.is_at_work(step)
}

fn add_step(now: &RunSnapshot, args: &Value) -> Judged {
    if now.steps.iter().filter(|step| step.added).count() >= MAX_ADDED_STEPS {
        return Err(format!("A supervisor adds at most {MAX_ADDED_STEPS} steps."));
    }
    let agent = word(args, "agent").ok_or("Say which agent works on it.")?;
    let instruction = instruction(args, "instruction")?.ok_or("Say what is to be done.")?;
    let after = labels(args.get("after").unwrap_or(&Value::Null))?;
    if let Some(unknown) = after.iter().find(|label| now.step(label).is_none()) {
        return Err(no_step(now, unknown));
    }
    let label = new_label(now, &after);
    let viber = word(args, "viber");
    Ok(CallVerdict::Add(Box::new(AddedStep { label, agent, viber, instruction, after })))
}

fn skip_step(now: &RunSnapshot, args: &Value) -> Judged {
    let step = named(now, args)?;
    let label = step.label.clone();
    match step.phase {
        StepPhase::Skipped => return Ok(CallVerdict::Say(format!("Step {label} is skipped already."))),
        StepPhase::Done => return Err(format!("Step {label} is done.")),
        StepPhase::Running => return Err(format!("Step {label} runs.")),
        _ if now.is_at_work(step) => return Err(format!("Step {label} runs.")),
        StepPhase::Stopped => return Err(format!("Step {label} was stopped.")),
        StepPhase::Gate | StepPhase::Pending | StepPhase::Failed => {}
    }
    if step.gate.is_some() {
        return Err(format!("Step {label} has a gate: only a person skips it."));
    }
    let reason = text(args, "reason", MAX_REASON_BYTES).ok_or("Say why it is skipped.")?;
    Ok(CallVerdict::Skip { label, reason })
}

fn finish(now: &RunSnapshot, args: &Value) -> Judged {
    let is_under_way =
        |step: &&RunStep| matches!(step.phase, StepPhase::Running | StepPhase::Gate) || now.is_at_work(step);
    let under_way: Vec<&str> = now.steps.iter().filter(is_under_way).map(|step| step.label.as_str()).collect();
    if !under_way.is_empty() {
        return Err(format!("These steps have not ended: {}.", listed(&under_way)));
    }
    let can_go_on: Vec<&str> = open_ends(now);
    if !can_go_on.is_empty() {
        let steps = listed(&can_go_on);
        return Err(format!(
            "These steps are neither done nor skipped: {steps}. Run them, or skip them with a reason."
        ));
    }
    let is_complete = now.steps.iter().all(|step| step.phase.is_over());
    let summary = text(args, "summary", MAX_SUMMARY_BYTES).unwrap_or_default();
    Ok(CallVerdict::Finish { summary, is_complete })
}

/// The steps that could still be run: not those that failed or were started too often, that a person denied, or that come
/// after such.
fn open_ends(now: &RunSnapshot) -> Vec<&str> {
    let mut stuck: Vec<&str> = Vec::new();
    loop {
        let is_stuck = |step: &RunStep| {
            step.phase == StepPhase::Failed
                || step.attempt >= MAX_STEP_ATTEMPTS
                || gates::denial(&now.run, step).is_some()
                || step.after.iter().any(|label| stuck.contains(&label.as_str()))
        };
        let is_new = |step: &&RunStep| !step.phase.is_over() && !stuck.contains(&step.label.as_str()) && is_stuck(step);
        let more: Vec<&str> = now.steps.iter().filter(is_new).map(|step| step.label.as_str()).collect();
        if more.is_empty() {
            break;
        }
        stuck.extend(more);
    }
    let open = now.steps.iter().filter(|step| !step.phase.is_over()).map(|step| step.label.as_str());
    open.filter(|label| !stuck.contains(label)).collect()
}

/// What a call that waited for a step is told about it. `result`: what its task said in full, `files`: what it produced.
pub fn told(step: &RunStep, result: &str, files: &[String]) -> String {
    let label = &step.label;
    let mut told = match step.phase {
        StepPhase::Done => format!("Step {label} is done."),
        StepPhase::Skipped => {
            let skipped = step.skipped.as_ref();
            let by = skipped.map_or("somebody", |skipped| &skipped.by_name);
            let reason = skipped.map_or("", |skipped| &skipped.reason);
            format!("Step {label} was skipped by {by}: {reason}")
        }
        StepPhase::Stopped => format!("Step {label} was stopped."),
        _ => {
            let why = step.failure.as_deref().unwrap_or("nobody said why");
            format!("Step {label} failed, attempt {}: {why}", step.attempt)
        }
    };
    if !result.is_empty() {
        told.push_str("\n\nWhat its agent said:\n");
        told.push_str(&protocol::text::head_and_tail(result, MAX_RESULT_BYTES));
    }
    if !files.is_empty() {
        let named: Vec<&str> = files.iter().take(MAX_NAMED_FILES).map(String::as_str).collect();
        told.push_str(&format!("\n\nFiles that it produced: {}", named.join(", ")));
    }
    told
}

/// The step that a call names.
fn named<'s>(now: &'s RunSnapshot, args: &Value) -> Result<&'s RunStep, String> {
    let label = label(args.get("step").unwrap_or(&Value::Null)).ok_or("Say which step: its number, as text.")?;
    now.step(&label).ok_or_else(|| no_step(now, &label))
}

fn no_step(now: &RunSnapshot, label: &str) -> String {
    let known: Vec<&str> = now.steps.iter().map(|step| step.label.as_str()).collect();
    format!("There is no step {:?}. The steps are: {}.", head(label, 20), listed(&known))
}

fn listed(labels: &[&str]) -> String {
    let more = labels.len().saturating_sub(MAX_LISTED_STEPS);
    let first = labels.iter().take(MAX_LISTED_STEPS).copied().collect::<Vec<_>>().join(", ");
    if more == 0 { first } else { format!("{first} and {more} more") }
}

/// A label, as text or as a number.
fn label(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim().to_owned()).filter(|label| !label.is_empty()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn labels(value: &Value) -> Result<Vec<String>, String> {
    let bad = || "after is a list of numbers of steps.".to_owned();
    let mut found: Vec<String> = match value {
        Value::Null => Vec::new(),
        Value::Array(items) => items.iter().map(label).collect::<Option<_>>().ok_or_else(bad)?,
        Value::String(text) => text.split(',').filter_map(|one| label(&Value::from(one))).collect(),
        one => vec![label(one).ok_or_else(bad)?],
    };
    let mut seen = std::collections::HashSet::new();
    found.retain(|label| seen.insert(label.clone()));
    Ok(found)
}

/// A short text of one line.
fn word(args: &Value, field: &str) -> Option<String> {
    args.get(field).and_then(Value::as_str).and_then(|text| name::clean(text, name::MAX_NAME_CHARS))
}

/// A text that is kept as far as it fits.
fn text(args: &Value, field: &str, most: usize) -> Option<String> {
    let said = args.get(field).and_then(Value::as_str)?.replace('\0', "\u{fffd}");
    Some(head(said.trim(), most).to_owned()).filter(|text| !text.is_empty())
}

/// An instruction, which is not cut: less than all of it would be another one.
fn instruction(args: &Value, field: &str) -> Result<Option<String>, String> {
    let Some(said) = args.get(field).and_then(Value::as_str) else { return Ok(None) };
    if said.len() > MAX_INSTRUCTION_BYTES {
        return Err(format!("An instruction has at most {} KiB.", MAX_INSTRUCTION_BYTES / 1024));
    }
    let said = said.trim().replace('\0', "\u{fffd}");
    Ok(Some(said).filter(|said| !said.is_empty()))
}

/// A free label behind the last of the steps that come before: `3a`, `3b`, … `3z`, `3aa`. Without such, behind the last step of
/// the playbook that has begun, else the first.
fn new_label(now: &RunSnapshot, after: &[String]) -> String {
    let number = |label: &str| label.trim_end_matches(|c: char| c.is_ascii_lowercase()).parse::<u32>().ok();
    let has_begun = |step: &&RunStep| step.phase != StepPhase::Pending;
    let begun = now.steps.iter().filter(has_begun).filter_map(|step| number(&step.label)).max();
    let base = after.iter().filter_map(|label| number(label)).max().or(begun).unwrap_or(1);
    let free = (1..=now.steps.len() as u32 + 1).map(|n| format!("{base}{}", letters(n)));
    let is_free = |label: &String| now.step(label).is_none();
    free.into_iter().find(is_free).unwrap_or_else(|| format!("{base}{}", letters(u32::MAX)))
}

/// `a` for 1, `z` for 26, `aa` for 27.
fn letters(mut n: u32) -> String {
    let mut letters = Vec::new();
    while n > 0 {
        n -= 1;
        letters.push(char::from(b'a' + (n % 26) as u8));
        n /= 26;
    }
    letters.iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::letters;

    #[test]
    fn labels_count_in_letters() {
        let counted: Vec<String> = [1, 2, 26, 27, 52, 53].map(letters).into();
        assert_eq!(counted, ["a", "b", "z", "aa", "az", "ba"]);
    }
}
