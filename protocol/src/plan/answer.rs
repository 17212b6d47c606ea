//! Finds a plan in an agent's answer: a fenced `plan` block, or the task list below the heading "Plan". Any other task list
//! is a part of the answer.

use serde_json::{Value, json};

use super::{
    Document,
    document::{fence, fences},
};

/// The plan in an answer, as Markdown text, `{goal, steps}` or `{steps}`. The last `plan` block counts; without one, the steps
/// of the last section whose heading is "Plan" and nothing else.
pub fn of_answer(answer: &str) -> Option<Value> {
    let lines: Vec<&str> = answer.split_inclusive('\n').collect();
    let fenced = fences(&lines);
    let block = fenced.iter().rev().find(|lines_of| {
        let info = fence(lines[lines_of.start]).map_or("", |(.., info)| info);
        info.split([' ', ',', '{']).next().is_some_and(|word| word.eq_ignore_ascii_case("plan"))
    });
    if let Some(block) = block {
        let (kind, least, _) = fence(lines[block.start])?;
        let last = lines[block.end - 1];
        let closed =
            block.len() > 1 && fence(last).is_some_and(|(mark, n, info)| mark == kind && n >= least && info.is_empty());
        let text = lines[block.start + 1..block.end - usize::from(closed)].concat();
        return block_content(&text);
    }
    section(&lines, &fenced)
}

/// A block's content, as JSON if it is a plan in JSON.
fn block_content(text: &str) -> Option<Value> {
    if text.trim().is_empty() {
        return None;
    }
    if text.trim_start().starts_with('{')
        && let Ok(json @ Value::Object(_)) = serde_json::from_str::<Value>(text)
        && (json["steps"].is_array() || json["goal"].is_string() || json["markdown"].is_string())
    {
        return Some(json);
    }
    Some(Value::String(text.to_owned()))
}

/// The task list below the heading "Plan", up to the next heading of its level. What is written around it is no part of the
/// plan.
fn section(lines: &[&str], fenced: &[std::ops::Range<usize>]) -> Option<Value> {
    let heading = |at: usize| {
        let inside = fenced.iter().any(|fence| fence.contains(&at));
        let line = lines[at].trim_end();
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        let text = line.get(level..)?.strip_prefix(' ')?;
        (!inside && (1..=6).contains(&level)).then_some((level, text))
    };
    let is_plan = |text: &str| text.trim_matches(['#', '*', ':', ' ']).eq_ignore_ascii_case("plan");
    (0..lines.len()).rev().find_map(|at| {
        let (level, _) = heading(at).filter(|(_, text)| is_plan(text))?;
        let end = (at + 1..lines.len()).find(|next| heading(*next).is_some_and(|(l, _)| l <= level));
        let below = lines[at + 1..end.unwrap_or(lines.len())].concat();
        let steps = Document::parse(&below).steps().steps;
        (!steps.is_empty()).then(|| json!({ "steps": steps }))
    })
}
