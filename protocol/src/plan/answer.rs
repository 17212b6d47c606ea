//! Finds a plan in an agent's answer: a fenced `plan` block, or an answer (or a section of it) that is a task list.

use serde_json::Value;

use super::{
    Document,
    document::{Item, fence, fences},
};

/// The plan in an answer, as Markdown text or `{goal, steps}`. The last `plan` block counts; without one, a section with
/// "plan" in its heading, or the whole answer when it begins like a plan.
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
    let text = section(&lines, &fenced).or_else(|| whole(answer))?;
    Some(Value::String(text))
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

/// The part below a heading with the word "plan" that has task-list items, up to the next heading of its level.
fn section(lines: &[&str], fenced: &[std::ops::Range<usize>]) -> Option<String> {
    let heading = |at: usize| {
        let inside = fenced.iter().any(|fence| fence.contains(&at));
        let line = lines[at].trim_end();
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        let text = line.get(level..)?.strip_prefix(' ')?;
        (!inside && (1..=6).contains(&level)).then_some((level, text))
    };
    let is_plan = |text: &str| text.split(|c: char| !c.is_alphanumeric()).any(|word| word.eq_ignore_ascii_case("plan"));
    (0..lines.len()).rev().find_map(|at| {
        let (level, _) = heading(at).filter(|(_, text)| is_plan(text))?;
        let end = (at + 1..lines.len()).find(|next| heading(*next).is_some_and(|(l, _)| l <= level));
        let part = &lines[at..end.unwrap_or(lines.len())];
        let items = (at + 1..at + part.len()).filter(|n| !fenced.iter().any(|fence| fence.contains(n)));
        (items.filter(|n| Item::parse(lines[*n]).is_some()).count() >= 2).then(|| part.concat())
    })
}

/// The answer, when its first line is a heading of the first level or a task, and it has at least two tasks.
fn whole(answer: &str) -> Option<String> {
    let first = answer.lines().find(|line| !line.trim().is_empty())?;
    let begins = first.starts_with("# ") || Item::parse(first).is_some();
    (begins && Document::parse(answer).blocks.len() >= 2).then(|| answer.to_owned())
}
