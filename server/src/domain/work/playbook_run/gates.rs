//! Gates: what a decision is bound to, and whether there is one about a step as it would run now.

use protocol::playbook::{self, GatePoint};
use serde_json::json;

use crate::domain::{GateWord, PlaybookRun, RunStep};

/// What a decision about a step's gate is about: SHA-256 in hex over the playbook, the step as it would run, and the inputs; of
/// a gate after the step over the attempt, too. A decision about anything else is none.
pub fn digest(run: &PlaybookRun, step: &RunStep) -> String {
    let attempt = step.gate.filter(|gate| *gate == GatePoint::After).map(|_| step.attempt);
    let gate = step.gate.map(GatePoint::as_str);
    // A list and sorted inputs have one JSON.
    let bound = json!([run.hash, step.label, step.instruction, step.bullets, run.inputs, gate, attempt]);
    playbook::digest(&bound.to_string())
}

/// What was decided about the step as it would run now.
fn word<'s>(run: &PlaybookRun, step: &'s RunStep) -> Option<&'s GateWord> {
    let is_bound = step.gate_digest.as_deref() == Some(digest(run, step).as_str());
    step.gate_word.as_ref().filter(|_| is_bound)
}

/// Whether the step may begin as far as its gate goes.
pub fn is_passed(run: &PlaybookRun, step: &RunStep) -> bool {
    step.gate != Some(GatePoint::Before) || word(run, step).is_some_and(|word| word.allowed)
}

/// Whether a person let the step begin, as it would run now.
pub fn is_let(run: &PlaybookRun, step: &RunStep) -> bool {
    step.gate == Some(GatePoint::Before) && is_passed(run, step)
}

/// The denial of the step as it would run now: it is not asked about again.
pub fn denial<'s>(run: &PlaybookRun, step: &'s RunStep) -> Option<&'s GateWord> {
    word(run, step).filter(|word| step.gate == Some(GatePoint::Before) && !word.allowed)
}

/// A denial in words.
pub fn denial_text(label: &str, word: &GateWord) -> String {
    let said = word.note.as_deref().map(|note| format!(": {note}")).unwrap_or_default();
    format!("{} denied step {label}{said}", word.by_name)
}
