//! Changes the key `skills` in the text of an agent's file. What is not understood is left alone, and so is a text that would say
//! anything else differently afterwards.

use std::{collections::BTreeMap, ops::Range};

use serde_json::{Value, json};

use crate::config::yaml::YamlFile;

/// How the key may be written.
const SKILLS_KEYS: [&str; 3] = ["skills", "\"skills\"", "'skills'"];

/// The text, in which `skills` lists `name` or does not; `listed` is what it lists. `None` if that cannot be done without
/// changing anything else.
pub fn with_skill(text: &str, listed: &[String], name: &str, is_listed: bool) -> Option<String> {
    let mut wanted: Vec<String> = listed.iter().filter(|known| *known != name).cloned().collect();
    if is_listed {
        wanted.push(name.to_owned());
    }
    let drafts = match key_ends(text)[..] {
        [] if is_listed => vec![Some(appended(text, name)), put_first(text, name)],
        [key_end] if is_listed => vec![with_item(text, key_end, listed, name)],
        [key_end] => vec![without_items(text, key_end, listed, name)],
        _ => return None,
    };
    drafts.into_iter().flatten().find(|draft| says_only(text, draft, &wanted))
}

/// Whether `after` lists `wanted`, and says everything else as `before` does.
fn says_only(before: &str, after: &str, wanted: &[String]) -> bool {
    let read = |text: &str| YamlFile::of(text.to_owned(), "").parse::<BTreeMap<String, Value>>().ok();
    let (Some(mut before), Some(mut after)) = (read(before), read(after)) else { return false };
    before.remove("skills");
    after.remove("skills") == Some(json!(wanted)) && before == after
}

/// Where the value of the key can begin: behind its colon.
fn key_ends(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for (start, line) in lines(text) {
        let rest = SKILLS_KEYS.iter().find_map(|key| line.strip_prefix(key));
        let value = rest.and_then(|rest| rest.trim_start_matches([' ', '\t']).strip_prefix(':'));
        if let Some(value) = value.filter(|value| value.is_empty() || value.starts_with(char::is_whitespace)) {
            found.push(start + line.len() - value.len());
        }
    }
    found
}

/// Each line with its end, and where it begins.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut next = 0;
    text.split_inclusive('\n').map(move |line| {
        next += line.len();
        (next - line.len(), line)
    })
}

fn line_end(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

fn appended(text: &str, name: &str) -> String {
    let end = line_end(text);
    let before = if text.is_empty() || text.ends_with('\n') { "" } else { end };
    format!("{text}{before}skills: [{name}]{end}")
}

/// The key above all others, where nothing can follow them.
fn put_first(text: &str, name: &str) -> Option<String> {
    let is_key = |line: &str| line.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '"' | '\'' | '_'));
    let (at, _) = lines(text).find(|(_, line)| is_key(line))?;
    Some(format!("{}skills: [{name}]{}{}", &text[..at], line_end(text), &text[at..]))
}

/// What the list of an agent looks like in its file.
enum WrittenList {
    /// `[a, b]`; where it is opened.
    Flow(usize, Vec<FlowItem>),
    /// A line for each.
    Block(Vec<BlockItem>),
}

/// A word between brackets, and the comma behind it.
struct FlowItem {
    word: Range<usize>,
    comma: Option<usize>,
}

/// A line `- word`.
struct BlockItem {
    /// With its end.
    line: Range<usize>,
    indent: usize,
    /// What stands behind the word.
    comment: Option<usize>,
}

fn with_item(text: &str, key_end: usize, listed: &[String], name: &str) -> Option<String> {
    let (at, new) = match written_list(text, key_end, listed.len())? {
        WrittenList::Flow(open, items) => match items.last() {
            Some(last) => (last.word.end, format!(", {name}")),
            None => (open + 1, name.to_owned()),
        },
        WrittenList::Block(items) => match items.last() {
            Some(BlockItem { line, indent, .. }) => {
                let content = text[line.clone()].trim_end_matches(['\r', '\n']);
                (line.start + content.len(), format!("{}{}- {name}", line_end(text), " ".repeat(*indent)))
            }
            None => (key_end, format!(" [{name}]")),
        },
    };
    Some(format!("{}{new}{}", &text[..at], &text[at..]))
}

/// Takes the name away, as often as it is there.
fn without_items(text: &str, key_end: usize, listed: &[String], name: &str) -> Option<String> {
    let (mut text, mut listed) = (text.to_owned(), listed.to_vec());
    while let Some(n) = listed.iter().position(|known| known == name) {
        text = match written_list(&text, key_end, listed.len())? {
            WrittenList::Flow(_, items) => without_word(&text, &items, n),
            WrittenList::Block(items) => without_line(&text, key_end, &items, n),
        };
        listed.remove(n);
    }
    Some(text)
}

fn without_word(text: &str, items: &[FlowItem], n: usize) -> String {
    let FlowItem { word, comma } = &items[n];
    let blanks = |from: usize| text[from..].len() - text[from..].trim_start_matches([' ', '\t']).len();
    let before = n.checked_sub(1).and_then(|before| items[before].comma);
    let (comma_before, mut last) = match (comma, before) {
        (Some(comma), _) => {
            let end = comma + 1 + blanks(comma + 1);
            let is_followed = text[end..].starts_with(|c: char| !matches!(c, '#' | '\r' | '\n'));
            (None, word.start..if is_followed { end } else { comma + 1 })
        }
        (None, Some(before)) if before + 1 + blanks(before + 1) == word.start => (None, before..word.end),
        (None, Some(before)) => (Some(before..before + 1), word.clone()),
        (None, None) => (None, word.clone()),
    };
    // A line that only this word stood on goes with it.
    let start = text[..last.start].rfind('\n').map_or(0, |at| at + 1);
    let end = last.end + blanks(last.end);
    let line_end = ["\r\n", "\n"].into_iter().find(|line_end| text[end..].starts_with(line_end));
    if let Some(line_end) = line_end.filter(|_| text[start..last.start].trim().is_empty()) {
        last = start..end + line_end.len();
    }
    let gone: Vec<_> = comma_before.into_iter().chain([last]).collect();
    without(text, &gone)
}

fn without_line(text: &str, key_end: usize, items: &[BlockItem], n: usize) -> String {
    let BlockItem { line, indent, comment } = &items[n];
    let gone = match comment {
        // What somebody noted there stays.
        Some(comment) => line.start + indent..*comment,
        None => line.clone(),
    };
    let text = without(text, &[gone]);
    match items.len() {
        1 => format!("{} []{}", &text[..key_end], &text[key_end..]),
        _ => text,
    }
}

/// The text without these parts, which are in order.
fn without(text: &str, parts: &[Range<usize>]) -> String {
    let (mut kept, mut from) = (String::new(), 0);
    for part in parts {
        kept.push_str(&text[from..part.start]);
        from = part.end;
    }
    kept.push_str(&text[from..]);
    kept
}

/// The list behind the key, if it is written plainly and has `count` items.
fn written_list(text: &str, key_end: usize, count: usize) -> Option<WrittenList> {
    let rest = text[key_end..].trim_start_matches([' ', '\t']);
    let found = match rest.chars().next() {
        Some('[') => {
            let open = text.len() - rest.len();
            WrittenList::Flow(open, flow_items(text, open)?)
        }
        None | Some('#' | '\r' | '\n') => WrittenList::Block(block_items(text, key_end)?),
        Some(_) => return None,
    };
    let has = match &found {
        WrittenList::Flow(_, items) => items.len(),
        WrittenList::Block(items) => items.len(),
    };
    (has == count).then_some(found)
}

fn flow_items(text: &str, open: usize) -> Option<Vec<FlowItem>> {
    let mut items: Vec<FlowItem> = Vec::new();
    let mut at = open + 1;
    loop {
        match *text.as_bytes().get(at)? {
            b']' => return Some(items),
            b' ' | b'\t' | b'\r' | b'\n' => at += 1,
            b'#' if text[..at].ends_with(char::is_whitespace) => at += text[at..].find('\n')?,
            b',' => {
                let last = items.last_mut().filter(|last| last.comma.is_none())?;
                last.comma = Some(at);
                at += 1;
            }
            _ if items.last().is_none_or(|last| last.comma.is_some()) => {
                let length = word_length(&text[at..])?;
                items.push(FlowItem { word: at..at + length, comma: None });
                at += length;
            }
            _ => return None,
        }
    }
}

fn block_items(text: &str, key_end: usize) -> Option<Vec<BlockItem>> {
    let mut items: Vec<BlockItem> = Vec::new();
    for (start, line) in lines(text).filter(|(start, _)| *start > key_end) {
        let content = line.trim_end_matches(['\r', '\n']);
        let indent = content.len() - content.trim_start_matches(' ').len();
        let rest = &content[indent..];
        if rest.trim().is_empty() || rest.starts_with('#') {
            continue;
        }
        let Some(item) = rest.strip_prefix('-').filter(|item| item.starts_with([' ', '\t'])) else {
            // Whatever follows the list.
            return (indent == 0).then_some(items);
        };
        if items.last().is_some_and(|last| last.indent != indent) {
            return None;
        }
        let word = item.trim_start_matches([' ', '\t']);
        let behind = &word[word_length(word)?..];
        let comment = behind.trim_start_matches([' ', '\t']);
        let is_comment = comment.starts_with('#') && comment.len() < behind.len();
        if !comment.is_empty() && !is_comment {
            return None;
        }
        let comment = is_comment.then(|| start + content.len() - comment.len());
        items.push(BlockItem { line: start..start + line.len(), indent, comment });
    }
    Some(items)
}

/// The length of the word, plain or between quotes, that the text begins with. Nothing needs an escape that can be in a list.
fn word_length(text: &str) -> Option<usize> {
    let quote = text.chars().next()?;
    if matches!(quote, '"' | '\'') {
        let length = text[1..].find(['"', '\'', '\\', '\r', '\n'])?;
        return text[1 + length..].starts_with(quote).then_some(length + 2);
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let length = text.find(|c: char| !is_plain(c)).unwrap_or(text.len());
    (length > 0).then_some(length)
}
