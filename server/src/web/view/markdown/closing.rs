//! What an unfinished block of Markdown has opened, closed where it ends: emphasis, code, links, formulas, marks of
//! footnotes and a table's header look while they are being written as they will when they are complete.

use std::borrow::Cow;

use super::rewrite::MAX_FOOTNOTE_DIGITS;

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
    let marked = match open_marks(run) {
        Some((keep, ends)) => Cow::Owned(format!("{}{keep}{ends}", &block[..from])),
        None => Cow::Borrowed(block),
    };
    match with_delimiter_row(&marked) {
        Some(table) => Cow::Owned(table),
        None => marked,
    }
}

/// The block with the whole row that follows a table's header, while that row is not complete: it makes it a table.
fn with_delimiter_row(block: &str) -> Option<String> {
    let (mut at, mut from) = (0, 0);
    for line in block.split_inclusive('\n') {
        at += line.len();
        if line.trim().is_empty() {
            from = at;
        }
    }
    let mut lines = block[from..].split('\n');
    let header = lines.next()?.trim_end();
    let below = lines.next().unwrap_or_default();
    let is_rule = |row: &str| row.chars().all(|c| matches!(c, '|' | '-' | ':' | ' '));
    let is_header = header.starts_with('|') && !is_rule(header) && !header.contains('\r');
    if !is_header || !is_rule(below) || lines.next().is_some() {
        return None;
    }
    Some(format!("{}{header}\n|{}", &block[..from], "---|".repeat(cells(header))))
}

/// The cells of a row that begins with a bar.
fn cells(row: &str) -> usize {
    let (mut bars, mut is_escaped, mut ends) = (0, false, false);
    for c in row.chars() {
        ends = c == '|' && !is_escaped;
        bars += usize::from(ends);
        is_escaped = c == '\\' && !is_escaped;
    }
    bars - usize::from(ends)
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
            b'$' => {
                let marks = &rest[..rest.len() - rest.trim_start_matches('$').len()];
                let inside = &rest[marks.len()..];
                match formula_end(inside, marks.len()) {
                    Some(end) => at += marks.len() + end,
                    None if opens_formula(&run[..at], marks, inside) => {
                        open.push((at, marks));
                        break;
                    }
                    None => at += marks.len(),
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
    // The mark of a footnote shows its number; without one it is not shown yet.
    let number = link.and_then(|from| run[from..].strip_prefix("[^"));
    let is_number = |name: &&str| name.len() <= MAX_FOOTNOTE_DIGITS && name.bytes().all(|c| c.is_ascii_digit());
    let number = number.filter(is_number);
    let mut keep = match number {
        Some("") => run[..run.len() - "[^".len()].trim_end(),
        _ => run,
    };
    if open.is_empty() && number.is_none() {
        return None;
    }
    if let Some((at, mark)) = open.last() {
        if mark.starts_with('$') {
            // Half of what ends it, or of a command in it.
            keep = keep.trim_end_matches(['$', '\\']).trim_end();
        }
        // Nothing stands behind the mark yet: it is not shown.
        if at + mark.len() >= keep.len() {
            keep = run[..*at].trim_end();
            open.pop();
        }
    }
    let bracket = number.filter(|digits| !digits.is_empty()).map_or("", |_| "]");
    let ends: String = std::iter::once(bracket).chain(open.iter().rev().map(|(_, mark)| *mark)).collect();
    Some((keep.to_owned(), ends))
}

/// Where the formula ends that `marks` marks opened before `inside`, with what closes it.
fn formula_end(inside: &str, marks: usize) -> Option<usize> {
    match marks {
        1 if inside.starts_with(char::is_whitespace) => None,
        1 => {
            let end = inside.match_indices('$').map(|(at, _)| at).find(|at| !inside[..*at].ends_with('\\'))?;
            let is_closed = end > 0 && !inside[..end].ends_with(char::is_whitespace);
            (is_closed && !inside[end + 1..].starts_with(|c: char| c.is_ascii_digit())).then_some(end + 1)
        }
        2 => inside.find("$$").map(|end| end + 2),
        _ => None,
    }
}

/// Whether a formula begins here whose end is not written yet. Prices and variables of a shell have a mark, too.
fn opens_formula(before: &str, marks: &str, inside: &str) -> bool {
    let in_a_word = before.ends_with(char::is_alphanumeric);
    match marks.len() {
        1 => !in_a_word && !inside.starts_with(char::is_whitespace) && !inside.contains('$') && is_formula(inside),
        2 => before.trim().is_empty() || !in_a_word && is_formula(inside),
        _ => false,
    }
}

/// Whether it has a sign that only formulas have, and no words but commands and what stands in braces.
fn is_formula(text: &str) -> bool {
    let (mut letters, mut before, mut last) = (0, ' ', ' ');
    for c in text.chars() {
        if c.is_alphabetic() {
            if letters == 0 {
                before = last;
            }
            letters += 1;
            if letters > 2 && !matches!(before, '\\' | '{') {
                return false;
            }
        } else {
            letters = 0;
        }
        last = c;
    }
    text.contains(['\\', '^', '{'])
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
