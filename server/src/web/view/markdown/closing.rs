//! What an unfinished block of Markdown has opened, closed where it ends: emphasis, code and links look while they are being
//! written as they will when they are complete.

use std::borrow::Cow;

/// Marks of emphasis, the longer ones first.
const MARKS: &[&str] = &["**", "__", "~~", "*", "_"];

/// The block with what it has opened closed; the block itself when that is nothing.
pub(super) fn closed(block: &str) -> Cow<'_, str> {
    let from = last_run(block);
    let run = block[from..].trim_end();
    // A fence inside of a list or a quote: what stands there is no emphasis.
    if block.lines().filter(|line| line.trim_start_matches([' ', '>', '-', '*', '+']).starts_with("```")).count() % 2
        == 1
    {
        return Cow::Borrowed(block);
    }
    let Some((keep, ends)) = open_marks(run) else { return Cow::Borrowed(block) };
    Cow::Owned(format!("{}{}{ends}", &block[..from], keep))
}

/// Where the last paragraph, item, heading or row of the block begins: emphasis does not reach beyond it.
fn last_run(block: &str) -> usize {
    let mut at = 0;
    let mut from = 0;
    for line in block.split_inclusive('\n') {
        let text = line.trim_start();
        let is_item = text.starts_with(['#', '>', '|'])
            || ["- ", "* ", "+ "].iter().any(|marker| text.starts_with(marker))
            || text.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with(". ")
                && text.starts_with(|c: char| c.is_ascii_digit());
        if text.is_empty() {
            from = at + line.len();
        } else if is_item {
            from = at + line.len() - text.len();
        }
        at += line.len();
    }
    from.min(block.len())
}

/// What is shown of a run of text, and the marks that close it; `None` when nothing is open.
fn open_marks(run: &str) -> Option<(String, String)> {
    let bytes = run.as_bytes();
    let marker = run.len() - run.trim_start_matches(['-', '*', '+', ' ', '#', '>']).len();
    let mut at =
        if run.starts_with(['-', '*', '+', '#', '>']) && bytes.get(1).is_some_and(|c| *c == b' ') { marker } else { 0 };
    // Each with where it stands.
    let mut open: Vec<(usize, &str)> = Vec::new();
    let mut link: Option<usize> = None;
    while at < run.len() {
        let rest = &run[at..];
        match bytes[at] {
            b'\\' => {
                at += 1 + run[at + 1..].chars().next().map_or(0, char::len_utf8);
                continue;
            }
            b'`' => {
                let ticks = &rest[..rest.len() - rest.trim_start_matches('`').len()];
                let inside = &rest[ticks.len()..];
                let end = runs_of(inside, b'`').find(|(_, len)| *len == ticks.len());
                match end {
                    Some((end, len)) => at += ticks.len() + end + len,
                    None => {
                        open.push((at, ticks));
                        break;
                    }
                }
                continue;
            }
            b'[' => link = Some(at),
            b')' if link.is_some() => link = None,
            _ => {}
        }
        let Some(mark) = MARKS.iter().find(|mark| rest.starts_with(**mark)) else {
            at += rest.chars().next().map_or(1, char::len_utf8);
            continue;
        };
        let after = run[at + mark.len()..].chars().next();
        let before = run[..at].chars().next_back();
        let space = |c: Option<char>| c.is_none_or(char::is_whitespace);
        let word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        if open.last().is_some_and(|(_, last)| last == mark) && !space(before) {
            open.pop();
        } else if after.is_none_or(|c| !c.is_whitespace())
            && !(mark.starts_with('_') && word(before))
            && !(word(before) && word(after))
        {
            open.push((at, mark));
        }
        at += mark.len();
    }
    // A link whose address is being written shows its words.
    if let Some(from) = link
        && let Some(words) = run[from + 1..].find("](").map(|end| &run[from + 1..from + 1 + end])
        && open.iter().all(|(at, _)| *at < from)
    {
        let ends: String = open.iter().rev().map(|(_, mark)| *mark).collect();
        return Some((format!("{}{words}", &run[..from]), ends));
    }
    let last = open.last()?;
    // Nothing stands behind the mark yet: it is not shown.
    let mut keep = run;
    if last.0 + last.1.len() == run.len() {
        keep = run[..last.0].trim_end();
        open.pop();
    }
    let ends: String = open.iter().rev().map(|(_, mark)| *mark).collect();
    Some((keep.to_owned(), ends))
}

/// Runs of an ASCII character: where each begins, and how long it is. Found one by one, so that many cost no more than few.
fn runs_of(text: &str, mark: u8) -> impl Iterator<Item = (usize, usize)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        let from = at + bytes[at..].iter().position(|byte| *byte == mark)?;
        let len = bytes[from..].iter().take_while(|byte| **byte == mark).count();
        at = from + len;
        Some((from, len))
    })
}
