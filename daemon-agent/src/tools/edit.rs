//! `write_file` and `edit_file`: whole files and exact replacements, each in one step.

use std::io::Read;

use serde_json::Value;

use super::{
    ToolErrorKind, ToolFailure,
    args::CallArgs,
    paths::{FoundPath, Roots},
    truncate,
};

mod proposed;

pub(super) use proposed::MAX_REPLACED_BYTES;
pub use proposed::propose;

/// Largest file that is written or edited, bytes: text that people work on is smaller.
const MAX_FILE_BYTES: usize = 8 * 1024 * 1024;
/// Lines shown around a change.
const CONTEXT_LINES: usize = 3;
/// Longest part of the file shown after a change, bytes.
const MAX_SHOWN_BYTES: usize = 4_000;

/// Creates or replaces a file.
pub fn write(roots: &Roots, args: &Value) -> Result<String, ToolFailure> {
    let (path, content) = new_content(args)?;
    let target = roots.target(path)?;
    roots.put(&target, content.as_bytes())?;
    let done = if target.existing.is_some() { "Replaced" } else { "Created" };
    let (lines, bytes) = (content.lines().count(), content.len());
    Ok(format!("{done} {} ({lines} lines, {bytes} bytes)", roots.show(&target.path)))
}

/// The path and the content of a call of `write_file`.
fn new_content(args: &Value) -> Result<(&str, &str), String> {
    let args = CallArgs::new(args, &["path", "content"])?;
    let (path, content) = (args.text("path")?, args.text("content")?);
    if content.len() > MAX_FILE_BYTES {
        return Err(format!(
            "argument \"content\" has {} bytes; at most {MAX_FILE_BYTES} can be written",
            content.len()
        ));
    }
    Ok((path, content))
}

/// What a call of `edit_file` makes of a file.
struct EditedText<'a> {
    path: &'a str,
    found: FoundPath,
    before: String,
    after: String,
    /// Where the first replacement is, and what is there then.
    first: usize,
    new: &'a str,
    count: usize,
}

/// Makes the replacements of a call of `edit_file`; nothing is written.
fn edited<'a>(roots: &Roots, args: &'a Value) -> Result<EditedText<'a>, ToolFailure> {
    let args = CallArgs::new(args, &["path", "oldText", "newText", "all"])?;
    let (path, old, new) = (args.text("path")?, args.text("oldText")?, args.text("newText")?);
    let all = args.flag("all")?;
    if old.is_empty() {
        return Err("argument \"oldText\" is empty; use write_file to create a file".into());
    }
    if old == new {
        return Err("arguments \"oldText\" and \"newText\" are equal".into());
    }
    let (file, found) = roots.read(path)?;
    if found.stat.st_size as u64 > MAX_FILE_BYTES as u64 {
        return Err(format!("{path} has {} bytes; at most {MAX_FILE_BYTES} can be edited", found.stat.st_size).into());
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| ToolErrorKind::Unknown.because(format!("{path}: {error}")))?;
    let before = String::from_utf8(bytes).map_err(|_| format!("{path} is not UTF-8 text"))?;
    let (after, first, count) = replace(&before, old, new, all).map_err(|why| format!("{path}: {why}"))?;
    if after.len() > MAX_FILE_BYTES {
        return Err(format!("{path} would have {} bytes; at most {MAX_FILE_BYTES} can be written", after.len()).into());
    }
    Ok(EditedText { path, found, before, after, first, new, count })
}

/// Replaces text in a file.
pub fn edit(roots: &Roots, args: &Value) -> Result<String, ToolFailure> {
    let EditedText { path, found, after: changed, first, new, count, .. } = edited(roots, args)?;
    let target = roots.target(path)?;
    if !target.is_unchanged(&found.stat) {
        return Err(format!("{path} was changed by another writer meanwhile: read it again").into());
    }
    roots.put(&target, changed.as_bytes())?;
    // The Board reads the line from here, to number what it shows of the change.
    let place = match count {
        1 => format!(", line {}", line_of(&changed, first)),
        _ => format!(" in {count} places, the first"),
    };
    Ok(format!("Edited {}{place}:\n{}", roots.show(&target.path), around(&changed, first, new)))
}

/// The text after the replacement, where the first replacement is, and how many there were.
fn replace(text: &str, old: &str, new: &str, all: bool) -> Result<(String, usize, usize), String> {
    // A file with Windows line ends is shown to the model without them.
    let windows = |part: &str| part.replace("\r\n", "\n").replace('\n', "\r\n");
    let (old, new) = match text.contains(old) {
        false if text.contains("\r\n") && text.contains(&windows(old)) => (windows(old), windows(new)),
        _ => (old.to_owned(), new.to_owned()),
    };
    let places: Vec<usize> = text.match_indices(&old).map(|(at, _)| at).collect();
    match places[..] {
        [] => Err(not_found(text, &old)),
        [first] => Ok((text.replacen(&old, &new, 1), first, 1)),
        [first, ..] if all => Ok((text.replace(&old, &new), first, places.len())),
        _ => {
            let lines: Vec<_> = places.iter().take(10).map(|at| line_of(text, *at).to_string()).collect();
            let count = places.len();
            let lines = lines.join(", ");
            Err(format!("oldText occurs {count} times (lines {lines}): give more lines around it, or set all"))
        }
    }
}

/// Why `old` is not there, with the closest match.
fn not_found(text: &str, old: &str) -> String {
    let squeeze = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted = old.lines().map(squeeze).find(|line| !line.is_empty()).unwrap_or_default();
    let similar = text.lines().enumerate().find(|(_, line)| !wanted.is_empty() && squeeze(line).contains(&wanted));
    match similar {
        Some((index, line)) => {
            let line = truncate::line(line, 200);
            format!(
                "oldText was not found. Line {} is similar, mind the white space and what follows: {line:?}",
                index + 1
            )
        }
        None => "oldText was not found: read the file and copy the text exactly, without the line numbers".into(),
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// The numbered lines around the change at byte `at`.
fn around(text: &str, at: usize, new: &str) -> String {
    let first = line_of(text, at);
    let last = first + new.matches('\n').count();
    let from = first.saturating_sub(CONTEXT_LINES).max(1);
    let lines = text.lines().enumerate().skip(from - 1).take(last + CONTEXT_LINES + 1 - from);
    let shown: Vec<_> = lines.map(|(index, line)| format!("{:>6}\t{}", index + 1, truncate::line(line, 500))).collect();
    protocol::text::head_and_tail(&shown.join("\n"), MAX_SHOWN_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unique_text_is_replaced_and_an_ambiguous_one_refused() {
        let text = "a = 1\nb = 2\na = 1\n";
        assert_eq!(replace(text, "b = 2", "b = 3", false), Ok(("a = 1\nb = 3\na = 1\n".into(), 6, 1)));
        let error = replace(text, "a = 1", "a = 2", false).expect_err("twice there");
        assert!(error.contains("2 times (lines 1, 3)"), "{error}");
        assert_eq!(replace(text, "a = 1", "", true), Ok(("\nb = 2\n\n".into(), 0, 2)));
    }

    #[test]
    fn a_near_miss_is_pointed_out() {
        let error = replace("fn main() {\n\tlet x  =  1;\n}\n", "    let x = 1;", "", false).expect_err("other space");
        assert!(error.contains("Line 2") && error.contains("let x  =  1;"), "{error}");
        assert!(replace("abc", "xyz", "", false).is_err_and(|error| error.contains("not found")));
    }

    #[test]
    fn windows_line_ends_are_kept() {
        let changed = replace("one\r\ntwo\r\nthree\r\n", "one\ntwo", "1\n2", false);
        assert_eq!(changed, Ok(("1\r\n2\r\nthree\r\n".into(), 0, 1)));
    }

    #[test]
    fn the_change_is_shown_with_its_lines() {
        let text: String = (1..=20).map(|n| format!("line {n}\n")).collect();
        let shown = around(&text, text.find("line 10").expect("there"), "line 10\nline 11");
        assert!(shown.starts_with("     7\tline 7") && shown.ends_with("    14\tline 14"), "{shown}");
    }
}
