//! One file of a version, exactly: whole or against another version, with what does not show marked and what was found noted
//! at its line.

use std::time::Duration;

use protocol::limits::MAX_TEXT_FILE_BYTES;
use similar::{ChangeTag, TextDiff};

use crate::domain::skills::{SkillFinding, is_invisible};

/// Bytes of a file that are shown at once.
const MAX_SHOWN_BYTES: usize = 64 * 1024;
/// Rows of a file that are shown at once.
const MAX_ROWS: usize = 1_000;
/// Lines around a change.
const CONTEXT_LINES: usize = 3;
/// Longest line of a comparison, bytes; whole files show longer ones.
const MAX_COMPARED_LINE_BYTES: usize = 4_000;
/// Lines before the one that is looked for.
const LINES_BEFORE: usize = 20;
/// How long two texts are compared before the rest counts as changed.
const DIFF_TIMEOUT: Duration = Duration::from_millis(500);

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinePiece {
    Text(String),
    /// A character that does not show, as its code.
    Odd(String),
}

/// A line, with what was found in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRow {
    /// `add`, `del`, `same` or `hunk`.
    pub op: &'static str,
    pub old: Option<usize>,
    pub new: Option<usize>,
    pub pieces: Vec<LinePiece>,
    pub notes: Vec<String>,
}

impl FileRow {
    pub fn sign(&self) -> &'static str {
        match self.op {
            "add" => "+",
            "del" => "\u{2212}",
            _ => "",
        }
    }
}

/// The lines that are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileRows {
    pub rows: Vec<FileRow>,
    pub added: usize,
    pub removed: usize,
    /// What is not shown of a comparison.
    pub omitted: usize,
    /// Where the shown part of a whole file begins and ends, and how long it is, bytes.
    pub range: Option<(usize, usize, usize)>,
    /// Every line ends with CR LF: they are not marked.
    pub is_crlf: bool,
}

/// Where in a file to begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextPlace {
    /// A byte.
    pub at: usize,
    /// A line, from 1, which is shown wherever it is.
    pub line: Option<usize>,
}

/// Why a file is not shown as text.
pub fn no_text(bytes: &[u8]) -> String {
    let size = crate::domain::size_words(bytes.len() as u64);
    if bytes.len() as u64 > MAX_TEXT_FILE_BYTES {
        return format!("{size}: larger than a page shows. It is not shown here.");
    }
    format!("Not text: {}, {size}. It is not shown here.", protocol::sniff::sniff(bytes))
}

/// A text in pieces, with what does not show as its code.
pub fn pieces(text: &str) -> Vec<LinePiece> {
    let mut all = Vec::new();
    let mut plain = String::new();
    for c in text.chars() {
        if is_invisible(c) {
            if !plain.is_empty() {
                all.push(LinePiece::Text(std::mem::take(&mut plain)));
            }
            all.push(LinePiece::Odd(format!("U+{:04X}", u32::from(c))));
        } else {
            plain.push(c);
        }
    }
    if !plain.is_empty() {
        all.push(LinePiece::Text(plain));
    }
    all
}

/// What was found in a line of a file.
fn notes(findings: &[&SkillFinding], line: usize) -> Vec<String> {
    let of_line = findings.iter().filter(|finding| finding.line as usize == line);
    of_line.map(|finding| format!("Line {line}: {}.", finding.kind.label())).collect()
}

fn is_crlf(text: &str) -> bool {
    let ends = text.matches('\n').count();
    ends > 0 && ends == text.matches("\r\n").count()
}

/// A line without its end.
fn line_of(text: &str, is_crlf: bool) -> &str {
    let line = text.strip_suffix('\n').unwrap_or(text);
    if is_crlf { line.strip_suffix('\r').unwrap_or(line) } else { line }
}

impl FileRows {
    /// The file as it is, from a place on.
    pub fn whole(text: &str, place: TextPlace, findings: &[&SkillFinding]) -> Self {
        let start = start(text, place);
        let is_crlf = is_crlf(text);
        let mut all = Self { is_crlf, ..Self::default() };
        let mut number = 1 + text.get(..start).unwrap_or("").matches('\n').count();
        let mut at = start;
        while all.rows.len() < MAX_ROWS && at < text.len() {
            let rest = text.get(at..).unwrap_or("");
            let length = rest.find('\n').map_or(rest.len(), |end| end + 1);
            let taken = protocol::text::head(rest, length.min(MAX_SHOWN_BYTES - (at - start)));
            if taken.is_empty() {
                break;
            }
            all.rows.push(FileRow {
                op: "same",
                old: None,
                new: Some(number),
                pieces: pieces(line_of(taken, is_crlf)),
                notes: notes(findings, number),
            });
            at += taken.len();
            number += usize::from(taken.len() == length);
        }
        all.range = Some((start, at, text.len()));
        all
    }

    /// What changed from `old` to `new`, with the lines around it.
    pub fn between(old: &str, new: &str, findings: &[&SkillFinding]) -> Self {
        let is_crlf = [old, new].iter().all(|text| text.is_empty() || is_crlf(text));
        let mut all = Self { is_crlf, ..Self::default() };
        let diff = TextDiff::configure().timeout(DIFF_TIMEOUT).diff_lines(old, new);
        let mut shown = 0;
        for (index, group) in diff.grouped_ops(CONTEXT_LINES).iter().enumerate() {
            if index > 0 {
                all.rows.push(FileRow { op: "hunk", old: None, new: None, pieces: pieces("…"), notes: Vec::new() });
            }
            for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
                let op = match change.tag() {
                    ChangeTag::Equal => "same",
                    ChangeTag::Insert => "add",
                    ChangeTag::Delete => "del",
                };
                all.added += usize::from(op == "add");
                all.removed += usize::from(op == "del");
                let line = line_of(change.value(), is_crlf);
                let head = protocol::text::head(line, MAX_COMPARED_LINE_BYTES);
                if all.rows.len() >= MAX_ROWS || shown + head.len() > MAX_SHOWN_BYTES {
                    all.omitted += 1;
                    continue;
                }
                shown += head.len();
                let new = change.new_index().map(|index| index + 1);
                let mut notes = new.map(|line| notes(findings, line)).unwrap_or_default();
                if head.len() < line.len() {
                    notes.push(format!(
                        "{} more bytes of this line are shown with the whole file.",
                        line.len() - head.len()
                    ));
                }
                if change.missing_newline() {
                    notes.push("The file ends here without a line end.".to_owned());
                }
                all.rows.push(FileRow {
                    op,
                    old: change.old_index().map(|index| index + 1),
                    new,
                    pieces: pieces(head),
                    notes,
                });
            }
        }
        all
    }

    /// Where the next part begins.
    pub fn next(&self) -> Option<usize> {
        self.range.filter(|(_, end, all)| end < all).map(|(_, end, _)| end)
    }

    /// What part is shown, when it is not everything.
    pub fn part(&self) -> Option<String> {
        let (start, end, all) = self.range.filter(|(start, end, all)| *start > 0 || end < all)?;
        Some(format!("Bytes {} to {end} of {all}.", start + 1))
    }
}

/// The byte that the shown part begins with.
fn start(text: &str, place: TextPlace) -> usize {
    let Some(line) = place.line else { return text.floor_char_boundary(place.at.min(text.len())) };
    let begin = |line: usize| match line {
        0 | 1 => 0,
        line => text.match_indices('\n').nth(line - 2).map_or(text.len(), |(at, _)| at + 1),
    };
    let is_near = line <= MAX_ROWS / 2 && begin(line + 1) <= MAX_SHOWN_BYTES;
    if is_near {
        return 0;
    }
    let (before, line) = (begin(line.saturating_sub(LINES_BEFORE)), begin(line));
    if line - before < MAX_SHOWN_BYTES / 2 { before } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::skills::FindingKind;

    fn shown(rows: &FileRows) -> Vec<(&'static str, Option<usize>, String)> {
        let text = |row: &FileRow| {
            let piece = |piece: &LinePiece| match piece {
                LinePiece::Text(text) => text.clone(),
                LinePiece::Odd(code) => format!("[{code}]"),
            };
            row.pieces.iter().map(piece).collect::<String>()
        };
        rows.rows.iter().map(|row| (row.op, row.new, text(row))).collect()
    }

    #[test]
    fn what_does_not_show_stands_as_its_code() {
        let rows = FileRows::whole("a\u{200b}b\r\nc\t<b>\n", TextPlace::default(), &[]);
        let expected = [("same", Some(1), "a[U+200B]b[U+000D]".to_owned()), ("same", Some(2), "c\t<b>".to_owned())];
        assert_eq!(shown(&rows), expected);
        let rows = FileRows::whole("a\r\nb\r\n", TextPlace::default(), &[]);
        assert!(rows.is_crlf && shown(&rows)[0].2 == "a");
    }

    #[test]
    fn every_byte_of_a_long_file_is_shown_part_by_part() {
        let text = format!("{}\n{}", "é".repeat(50_000), "x\n".repeat(1_500));
        let (mut place, mut all, mut last) = (TextPlace::default(), String::new(), 0);
        let mut parts = 0;
        loop {
            let rows = FileRows::whole(&text, place, &[]);
            assert!(rows.rows.len() <= MAX_ROWS && rows.part().is_some());
            for (_, number, line) in shown(&rows) {
                all.push_str(&line);
                last = number.expect("a number");
            }
            parts += 1;
            let Some(next) = rows.next() else { break };
            place.at = next;
        }
        assert_eq!((all, last, parts), (text.replace('\n', ""), 1_501, 3));
    }

    #[test]
    fn a_line_is_found_wherever_it_is() {
        let text: String = (1..=30_000).map(|n| format!("line {n}\n")).collect();
        let first = |line| {
            let rows = FileRows::whole(&text, TextPlace { at: 0, line: Some(line) }, &[]);
            assert!(rows.rows.iter().any(|row| row.new == Some(line)), "{line}");
            rows.rows[0].new
        };
        assert_eq!((first(1), first(40), first(29_999)), (Some(1), Some(1), Some(29_979)));
        assert_eq!(FileRows::whole("a", TextPlace { at: 9, line: None }, &[]).rows, []);
    }

    #[test]
    fn changes_carry_what_was_found_in_them() {
        let finding = SkillFinding { path: "a".to_owned(), line: 2, kind: FindingKind::Network, text: String::new() };
        let rows = FileRows::between("one\ntwo\n", "one\ncurl x", &[&finding]);
        let ops: Vec<_> = rows.rows.iter().map(|row| (row.op, row.old, row.new, row.notes.len())).collect();
        assert_eq!(ops, [("same", Some(1), Some(1), 0), ("del", Some(2), None, 0), ("add", None, Some(2), 2)]);
        assert_eq!((rows.added, rows.removed, rows.omitted), (1, 1, 0));
        let long = FileRows::between("", &"x\n".repeat(3_000), &[]);
        assert_eq!((long.rows.len(), long.added, long.omitted), (1_000, 3_000, 2_000));
    }
}
