//! Placeholders: what one is, and how inputs take their places.

use std::{collections::BTreeMap, ops::Range};

use super::{Playbook, PlaybookError, PlaybookStep, bullets};
use crate::text::head;

/// Longest name of an input, bytes.
const MAX_INPUT_NAME_BYTES: usize = 64;
/// Longest value of an input, bytes.
const MAX_INPUT_BYTES: usize = 4 * 1024;
/// Longest instruction of a step with its bullets, bytes: its task is told more beside it.
const MAX_STEP_BYTES: usize = 128 * 1024;
/// Most bytes of a playbook that is filled in: a short text can hold very many placeholders.
const MAX_FILLED_BYTES: usize = 1024 * 1024;

/// Whether an input can have this name.
pub(super) fn is_input_name(name: &str) -> bool {
    name.len() <= MAX_INPUT_NAME_BYTES
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(is_of_name)
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-')
}

/// Whether a value with it is more than one line of plain text.
fn ends_line(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// What may be placeholders in a text: where each stands, and the name in it.
pub(super) fn placeholders(text: &str) -> impl Iterator<Item = (Range<usize>, &str)> {
    text.match_indices('<').filter_map(move |(at, _)| {
        let rest = &text[at + 1..];
        let end = rest.bytes().position(|byte| !is_of_name(byte))?;
        let (name, behind) = rest.split_at(end);
        (behind.starts_with('>') && is_input_name(name)).then(|| (at..at + 1 + end + 1, name))
    })
}

impl Playbook {
    /// The playbook with these inputs in the places of their names. What a value says is text: a `<name>` in it stays. `Err`
    /// with every required one that is missing, every one that is not known, and every value that cannot be filled in: longer
    /// than 4 KiB, or with control characters or line ends; also with every step that becomes longer than 128 KiB.
    pub fn fill(&self, inputs: &BTreeMap<String, String>) -> Result<Playbook, Vec<PlaybookError>> {
        let mut errors: Vec<PlaybookError> = inputs.keys().filter_map(|name| self.unknown_input(name)).collect();
        for input in &self.inputs {
            let value = inputs.get(&input.name).map(String::as_str).unwrap_or_default();
            let wrong = match value {
                _ if input.required && value.trim().is_empty() => "is missing".to_owned(),
                _ if value.len() > MAX_INPUT_BYTES => format!("has more than {MAX_INPUT_BYTES} bytes"),
                _ if value.chars().any(ends_line) => "has a line end or another control character".to_owned(),
                _ => continue,
            };
            errors.push(PlaybookError { line: input.line, message: format!("the input `{}` {wrong}", input.name) });
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let value = |name: &String| inputs.get(name).map(String::as_str).unwrap_or_default();
        let values = self.inputs.iter().map(|input| (input.name.as_str(), value(&input.name))).collect();
        let mut filler = Filler { values, room: Some(MAX_FILLED_BYTES) };
        let goal = filler.fill(&self.goal);
        let steps: Vec<PlaybookStep> = self.steps.iter().map(|step| filler.fill_step(step)).collect();
        if filler.room.is_none() {
            let message = format!("with these inputs it has more than {} KiB", MAX_FILLED_BYTES / 1024);
            return Err(vec![PlaybookError { line: 0, message }]);
        }
        // A value can make another path of a name, and of a short step a long one.
        let wrong = |step: &PlaybookStep| {
            let line = step.line;
            let size = step.instruction.len() + step.bullets.iter().map(String::len).sum::<usize>();
            let long = (size > MAX_STEP_BYTES).then(|| format!("the step has more than {} KiB", MAX_STEP_BYTES / 1024));
            long.or_else(|| bullets::check_names(&step.gives).err()).map(|message| PlaybookError { line, message })
        };
        let errors: Vec<PlaybookError> = steps.iter().filter_map(wrong).collect();
        match errors.is_empty() {
            true => Ok(Playbook { name: self.name.clone(), goal, inputs: self.inputs.clone(), steps }),
            false => Err(errors),
        }
    }

    fn unknown_input(&self, name: &str) -> Option<PlaybookError> {
        let is_known = self.inputs.iter().any(|input| input.name == name);
        (!is_known).then(|| PlaybookError { line: 0, message: format!("there is no input {:?}", head(name, 80)) })
    }
}

/// Puts values in their places, in one pass.
struct Filler<'a> {
    values: BTreeMap<&'a str, &'a str>,
    /// Bytes that may still be written; `None` once they were too few.
    room: Option<usize>,
}

impl Filler<'_> {
    fn fill_step(&mut self, step: &PlaybookStep) -> PlaybookStep {
        PlaybookStep {
            instruction: self.fill(&step.instruction),
            bullets: step.bullets.iter().map(|bullet| self.fill(bullet)).collect(),
            gives: step.gives.iter().map(|name| self.fill(name)).collect(),
            ..step.clone()
        }
    }

    fn fill(&mut self, text: &str) -> String {
        let Some(room) = self.room else { return String::new() };
        let (mut filled, mut from) = (String::with_capacity(text.len()), 0);
        for (place, name) in placeholders(text) {
            let Some(value) = self.values.get(name) else { continue };
            filled.push_str(&text[from..place.start]);
            filled.push_str(value);
            from = place.end;
            if filled.len() > room {
                break;
            }
        }
        filled.push_str(&text[from..]);
        self.room = room.checked_sub(filled.len());
        filled
    }
}
