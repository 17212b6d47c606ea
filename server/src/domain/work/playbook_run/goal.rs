//! What tasks of a run are told: a step its instruction and what lies before it, a supervisor the whole playbook.

use protocol::{
    limits::MAX_GOAL_BYTES,
    playbook::{Playbook, StepViber},
    text::{head, head_and_tail},
};

use crate::domain::{PlaybookRun, RunStep, StepPhase};

/// Longest goal of a playbook in the goal of a step, bytes.
const MAX_PURPOSE_BYTES: usize = 8 * 1024;
/// Longest instruction of a step in a supervisor's goal, bytes.
const MAX_LISTED_INSTRUCTION_BYTES: usize = 4 * 1024;
/// Longest result in the file that is handed over, bytes.
const MAX_RESULT_BYTES: usize = 96 * 1024;
/// Files that could not be had and are named; of the others it is said how many they are.
const MAX_NAMED_MISSING: usize = 32;

/// What lies before a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandedFiles {
    /// Names of files that are attached.
    pub attached: Vec<String>,
    /// What could not be had, each with the step that produced it.
    pub missing: Vec<String>,
}

impl HandedFiles {
    /// What is missing, in words: a step may make very many files.
    fn missed(&self) -> String {
        let named: Vec<&str> = self.missing.iter().take(MAX_NAMED_MISSING).map(String::as_str).collect();
        match self.missing.len() - named.len() {
            0 => named.join(", "),
            more => format!("{} and {more} more", named.join(", ")),
        }
    }
}

/// The goal of a step's task.
pub fn of_step(run: &PlaybookRun, playbook: &Playbook, step: &RunStep, handed: &HandedFiles) -> String {
    let mut goal = step.instruction.clone();
    if !step.bullets.is_empty() {
        goal.push('\n');
        step.bullets.iter().for_each(|bullet| goal.push_str(&format!("\n- {bullet}")));
    }
    let purpose = head(playbook.goal.trim(), MAX_PURPOSE_BYTES);
    goal.push_str(&format!(
        "\n\n---\n\nThis is step {} of the playbook {:?}, run {}. Do this step and no other. What the playbook is for:\n\n{purpose}",
        step.label, run.playbook, run.id
    ));
    if !handed.attached.is_empty() {
        let files = handed.attached.join(", ");
        goal.push_str(&format!("\n\nAttached is what the steps before it produced: {files}."));
    }
    if !handed.missing.is_empty() {
        goal.push_str(&format!("\n\nThis could not be handed over: {}.", handed.missed()));
    }
    if !step.gives.is_empty() {
        let files = step.gives.join(", ");
        goal.push_str(&format!(
            "\n\nThe step fails unless you report these files as artifacts, each with this name as its title: {files}."
        ));
    }
    // A second try is told what was wrong with the first one.
    if let Some(failure) = &step.failure {
        goal.push_str(&format!("\n\nThe attempt before this one failed: {}", head(failure, MAX_PURPOSE_BYTES)));
    }
    goal
}

/// The goal of the task that supervises a run.
pub fn of_supervisor(run: &PlaybookRun, playbook: &Playbook, steps: &[RunStep]) -> String {
    // The first line is the title of its session.
    let mut goal = format!("Supervise the playbook {:?}.\n\nIt is the run {}.\n\n## Goal\n\n", run.playbook, run.id);
    goal.push_str(head(playbook.goal.trim(), MAX_GOAL_BYTES / 4));
    if !run.inputs.is_empty() {
        goal.push_str("\n\n## Inputs\n");
        run.inputs.iter().for_each(|(name, value)| goal.push_str(&format!("\n- {name}: {value}")));
    }
    goal.push_str("\n\n## Steps\n");
    for step in steps {
        goal.push_str(&format!("\n{}", outline(step)));
    }
    // Names of files and bullets alone may fill it.
    head_and_tail(&goal, MAX_GOAL_BYTES / 2)
}

/// What a supervisor is told that ended before its run had.
pub fn of_next_supervisor(run: &PlaybookRun, steps: &[RunStep]) -> String {
    let open = steps.iter().filter(|step| !step.phase.is_over());
    let open = open.map(|step| step.label.as_str()).collect::<Vec<_>>().join(", ");
    format!(
        "Go on with the playbook {:?}: you ended without `finish`, and these steps are neither done nor skipped: {open}. Run them \
         or skip them, and then call `finish`.",
        run.playbook
    )
}

/// A step as a supervisor reads it.
fn outline(step: &RunStep) -> String {
    let after = if step.after.is_empty() { "none".to_owned() } else { step.after.join(", ") };
    let mut outline = format!(
        "{}. [{}] {}\n   after: {after}",
        step.label,
        step.agent_id,
        head(&step.instruction, MAX_LISTED_INSTRUCTION_BYTES)
    );
    match &step.target {
        Some(StepViber::Name(viber)) => outline.push_str(&format!("; on {viber}")),
        Some(StepViber::Labels(labels)) => {
            let labels = labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ");
            outline.push_str(&format!("; on a viber with {labels}"));
        }
        None => {}
    }
    if let Some(gate) = step.gate {
        outline.push_str(&format!("; a person decides {} it", gate.as_str()));
    }
    if !step.gives.is_empty() {
        outline.push_str(&format!("; gives {}", step.gives.join(", ")));
    }
    step.bullets.iter().for_each(|bullet| outline.push_str(&format!("\n   - {bullet}")));
    outline.push('\n');
    outline
}

/// The file about a step that the steps after it get. `result`: what its task said in full.
pub fn handed_file(step: &RunStep, result: &str, handed: &HandedFiles) -> String {
    let mut text = format!("# Step {}: {}\n\nState: {}\n", step.label, step.title, step.phase);
    if let Some(skipped) = step.skipped.as_ref().filter(|_| step.phase == StepPhase::Skipped) {
        text.push_str(&format!("Skipped by {}: {}\n", skipped.by_name, skipped.reason));
    }
    if !handed.attached.is_empty() {
        text.push_str(&format!("Files beside this one: {}\n", handed.attached.join(", ")));
    }
    if !handed.missing.is_empty() {
        text.push_str(&format!("Missing, because it could not be had: {}\n", handed.missed()));
    }
    if let Some(summary) = step.summary.as_ref().filter(|_| step.phase == StepPhase::Done) {
        text.push_str(&format!("\n## Summary\n\n{summary}\n"));
    }
    if !result.is_empty() {
        text.push_str(&format!("\n## Result\n\n{}\n", head_and_tail(result, MAX_RESULT_BYTES)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_takes_few_words() {
        let missing = |count: usize| (1..=count).map(|n| format!("{n}.bin of step 1")).collect();
        let of = |count| HandedFiles { attached: Vec::new(), missing: missing(count) }.missed();
        assert_eq!(of(2), "1.bin of step 1, 2.bin of step 1");
        assert!(of(MAX_NAMED_MISSING).ends_with("32.bin of step 1"), "{}", of(MAX_NAMED_MISSING));
        assert!(of(1_000).ends_with("32.bin of step 1 and 968 more"), "{}", of(1_000));
    }
}
