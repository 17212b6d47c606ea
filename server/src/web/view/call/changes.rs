//! What an edit changes, line by line, with the words that differ: made of the call's arguments, so that it is there
//! before the edit is. Where in the file that is comes with the result.

use serde_json::Value;
use similar::{ChangeTag, DiffOp, TextDiff};

use super::super::{escape, truncate::truncate_escaped};

/// Lines on each side that are compared; what is longer counts as replaced.
const MAX_COMPARED_LINES: usize = 400;
/// Unchanged lines around a change.
const CONTEXT_LINES: usize = 3;
/// Rows that a page carries.
const MAX_ROWS: usize = 60;
/// HTML of a line, and of all rows, bytes at most.
const MAX_LINE_HTML_BYTES: usize = 1_000;
const MAX_HTML_BYTES: usize = 8_000;
/// HTML of a row around its line, and of its two line numbers, bytes at most.
const ROW_FRAME_BYTES: usize = 50;
const ROW_NUMBERS_BYTES: usize = 40;
/// Largest line number that is shown; files are not longer, and the columns are narrow.
const MAX_LINE_NUMBER: usize = 9_999_999;
/// Text of lines whose words are compared, bytes, for one place and for the whole edit.
const MAX_WORDS_BYTES: usize = 1_500;
const MAX_ALL_WORDS_BYTES: usize = 6_000;

/// A change of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EditDiff {
    rows: Vec<EditRow>,
    /// The number of its first line in the file, if it is known.
    first: Option<usize>,
    is_whole_file: bool,
    pub added: usize,
    pub removed: usize,
    /// Rows that are not in the table.
    pub omitted: usize,
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
enum EditRow {
    /// A line as HTML; `op` is `same`, `add` or `del`.
    Line { op: &'static str, cell: String },
    /// Lines that did not change and are left out.
    Gap { lines: usize },
}

/// Collects rows until a page carries no more.
#[derive(Default)]
struct RowWriter {
    rows: Vec<EditRow>,
    bytes: usize,
    is_full: bool,
    omitted: usize,
}

impl EditDiff {
    /// What a call of this tool changes; `None` when it changes no file.
    pub fn of(tool: &str, args: &Value) -> Option<Self> {
        let text = |name: &str| args.get(name).and_then(Value::as_str).unwrap_or("");
        match tool {
            "edit_file" => Some(Self::edited(text("oldText"), text("newText"))),
            "write_file" => Some(Self::written(text("content"))),
            _ => None,
        }
    }

    fn written(content: &str) -> Self {
        let mut rows = RowWriter::default();
        content.lines().for_each(|line| rows.line("add", &[(false, line)]));
        Self {
            rows: rows.rows,
            first: Some(1),
            is_whole_file: true,
            added: content.lines().count(),
            removed: 0,
            omitted: rows.omitted,
        }
    }

    fn edited(old: &str, new: &str) -> Self {
        let (before, after): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
        let mut rows = RowWriter::default();
        if before.len().max(after.len()) > MAX_COMPARED_LINES {
            before.iter().for_each(|line| rows.line("del", &[(false, *line)]));
            after.iter().for_each(|line| rows.line("add", &[(false, *line)]));
            let RowWriter { rows, omitted, .. } = rows;
            return Self { rows, added: after.len(), removed: before.len(), omitted, ..Self::default() };
        }
        let diff = TextDiff::from_slices(&before, &after);
        let (mut added, mut removed, mut words, mut seen) = (0, 0, MAX_ALL_WORDS_BYTES, 0);
        for group in diff.grouped_ops(CONTEXT_LINES) {
            let begin = group.first().map_or(seen, |op| op.old_range().start);
            if begin > seen {
                rows.gap(begin - seen);
            }
            seen = group.last().map_or(begin, |op| op.old_range().end);
            for op in &group {
                let (from, to) = (&before[op.old_range()], &after[op.new_range()]);
                if op.tag() == similar::DiffTag::Equal {
                    from.iter().for_each(|line| rows.line("same", &[(false, *line)]));
                    continue;
                }
                (added, removed) = (added + to.len(), removed + from.len());
                let size: usize = from.iter().chain(to).map(|line| line.len() + 1).sum();
                let is_read = matches!(op, DiffOp::Replace { .. }) && size <= MAX_WORDS_BYTES.min(words);
                if is_read {
                    words -= size;
                }
                rows.replaced(from, to, is_read);
            }
        }
        Self { rows: rows.rows, added, removed, omitted: rows.omitted, ..Self::default() }
    }

    /// Sets where in the file the edit was made, as its result tells.
    pub fn made(&mut self, result: &Value) {
        let told = result.as_str().and_then(|text| text.lines().next()).and_then(|line| line.strip_suffix(':'));
        let line = told.and_then(|told| told.rsplit_once(", line ")?.1.parse().ok());
        self.first = self.first.or(line.filter(|line| (1..=MAX_LINE_NUMBER).contains(line)));
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How its table looks: with line numbers or without.
    pub fn columns(&self) -> &'static str {
        match (self.first, self.is_whole_file) {
            (None, _) => "plain",
            (Some(_), false) => "numbered",
            (Some(_), true) => "numbered written",
        }
    }

    /// Rows of a table: sign and line, after the numbers of the line before and after the edit where they are known.
    pub fn html(&self) -> String {
        let mut html = String::new();
        let (mut old, mut new) = (self.first.unwrap_or(1), self.first.unwrap_or(1));
        for row in &self.rows {
            let (op, cell) = match row {
                EditRow::Line { op, cell } => (*op, cell),
                EditRow::Gap { lines } => {
                    (old, new) = (old + lines, new + lines);
                    let columns = if self.first.is_some() { 4 } else { 2 };
                    // Before the first line there is nothing to be left out of.
                    if !html.is_empty() {
                        html.push_str(&format!("<tr data-op=\"hunk\"><td colspan=\"{columns}\">…</td></tr>"));
                    }
                    continue;
                }
            };
            let (before, after, sign) = match op {
                "add" => (None, Some(&mut new), "+"),
                "del" => (Some(&mut old), None, "\u{2212}"),
                _ => (Some(&mut old), Some(&mut new), ""),
            };
            html.push_str(&format!("<tr data-op=\"{op}\">"));
            for number in [before, after] {
                let shown = number.map_or_else(String::new, |number| {
                    *number += 1;
                    (*number - 1).to_string()
                });
                if self.first.is_some() {
                    html.push_str(&format!("<td>{shown}</td>"));
                }
            }
            html.push_str(&format!("<td>{sign}</td><td>{cell}</td></tr>"));
        }
        html
    }

    /// How many bytes of HTML it takes at most.
    pub fn weight(&self) -> usize {
        let row = |row: &EditRow| match row {
            EditRow::Line { cell, .. } => cell.len() + ROW_FRAME_BYTES + ROW_NUMBERS_BYTES,
            EditRow::Gap { .. } => ROW_FRAME_BYTES,
        };
        self.rows.iter().map(row).sum::<usize>() + 250
    }
}

impl RowWriter {
    /// Lines that take the place of others, with the words that differ when somebody compares them.
    fn replaced(&mut self, from: &[&str], to: &[&str], by_word: bool) {
        if !by_word {
            from.iter().for_each(|line| self.line("del", &[(false, *line)]));
            to.iter().for_each(|line| self.line("add", &[(false, *line)]));
            return;
        }
        let (old, new) = (from.join("\n"), to.join("\n"));
        let diff = TextDiff::from_words(&old, &new);
        let (mut gone, mut come): (Vec<(bool, &str)>, Vec<(bool, &str)>) = (Vec::new(), Vec::new());
        let mut same = 0;
        for change in diff.iter_all_changes() {
            let word = change.value();
            match change.tag() {
                ChangeTag::Equal => {
                    same += word.trim().len();
                    gone.push((false, word));
                    come.push((false, word));
                }
                ChangeTag::Delete => gone.push((true, word)),
                ChangeTag::Insert => come.push((true, word)),
            }
        }
        // Lines with little in common are other lines: marks would only be noise.
        let marks = 4 * same >= old.trim().len().min(new.trim().len());
        for (op, words) in [("del", gone), ("add", come)] {
            let mut line: Vec<(bool, &str)> = Vec::new();
            for (mark, word) in words {
                for (n, piece) in word.split('\n').enumerate() {
                    if n > 0 {
                        self.line(op, &line);
                        line.clear();
                    }
                    if !piece.is_empty() {
                        line.push((mark && marks, piece));
                    }
                }
            }
            self.line(op, &line);
        }
    }

    fn gap(&mut self, lines: usize) {
        if !self.is_full {
            self.rows.push(EditRow::Gap { lines });
        }
    }

    fn line(&mut self, op: &'static str, words: &[(bool, &str)]) {
        self.is_full |= self.rows.len() >= MAX_ROWS || self.bytes > MAX_HTML_BYTES - MAX_LINE_HTML_BYTES - 100;
        if self.is_full {
            self.omitted += 1;
            return;
        }
        let mark = if op == "add" { "ins" } else { "del" };
        // Where everything differs, the line itself says so.
        let is_all_new = words.iter().all(|(marked, word)| *marked || word.trim().is_empty());
        let mut cell = String::new();
        for (marked, word) in words {
            if *marked && !is_all_new {
                cell.push_str(&format!("<{mark}>{}</{mark}>", escape(word)));
            } else {
                cell.push_str(&escape(word));
            }
        }
        if cell.len() > MAX_LINE_HTML_BYTES {
            let plain: String = words.iter().map(|(_, word)| *word).collect();
            cell = format!("{} …", escape(&truncate_escaped(&plain, MAX_LINE_HTML_BYTES - 100)));
        }
        self.bytes += cell.len() + ROW_FRAME_BYTES;
        self.rows.push(EditRow::Line { op, cell });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn edited(old: &str, new: &str) -> EditDiff {
        EditDiff::of("edit_file", &json!({ "path": "a", "oldText": old, "newText": new })).expect("an edit")
    }

    #[test]
    fn an_edit_shows_the_words_that_differ() {
        let diff =
            edited("fn a() {\n    let total = sum(1);\n}\n", "fn a() {\n    let total = sum(2);\n    done();\n}\n");
        assert_eq!((diff.added, diff.removed, diff.omitted), (2, 1, 0));
        let row = |op, sign, line: &str| format!("<tr data-op=\"{op}\"><td>{sign}</td><td>{line}</td></tr>");
        let html = diff.html();
        assert!(html.starts_with(&row("same", "", "fn a() {")), "{html}");
        assert!(html.contains(&row("del", "\u{2212}", "    let total = <del>sum(1);</del>")), "{html}");
        assert!(html.contains("    let total = <ins>sum(2);</ins>"), "{html}");
        assert!(html.ends_with(&row("same", "", "}")), "{html}");
    }

    #[test]
    fn the_result_tells_where_it_is_in_the_file() {
        let lines = |from: usize| (from..from + 9).map(|n| format!("{n}\n")).collect::<String>();
        let (old, new) = (format!("a\n{}b\n", lines(1)), format!("{}c\nd\n", lines(1)));
        let mut diff = edited(&old, &new);
        assert_eq!(diff.columns(), "plain");
        for unknown in
            ["Edited a in 2 places, the first:\n", "Edited a, line 0:", "Edited a, line 99999999:", "Edited a:", ""]
        {
            diff.made(&json!(unknown));
            assert_eq!(diff.columns(), "plain", "{unknown}");
        }
        diff.made(&json!("Edited a, line 3:, line 40:\n    37\tx"));
        assert_eq!(diff.columns(), "numbered");
        let row = |op, old: &str, new: &str, sign, line: &str| {
            format!("<tr data-op=\"{op}\"><td>{old}</td><td>{new}</td><td>{sign}</td><td>{line}</td></tr>")
        };
        let html = diff.html();
        assert!(html.starts_with(&row("del", "40", "", "\u{2212}", "a")), "{html}");
        assert!(
            html.contains(&row("same", "43", "42", "", "3")) && html.contains("<td colspan=\"4\">…</td>"),
            "{html}"
        );
        assert!(html.contains(&row("same", "47", "46", "", "7")) && !html.contains(">45</td><td>44<"), "{html}");
        assert!(html.ends_with(&row("add", "", "50", "+", "d")), "{html}");
        assert!(html.len() <= diff.weight());
    }

    #[test]
    fn lines_with_little_in_common_have_no_marks() {
        let diff = edited("alpha beta gamma", "one two three");
        let html = diff.html();
        assert!(!html.contains("<del>") && !html.contains("<ins>"), "{html}");
    }

    #[test]
    fn a_written_file_is_all_new() {
        let diff = EditDiff::of("write_file", &json!({ "content": "a\n<b>\n" })).expect("a file");
        assert_eq!((diff.added, diff.removed), (2, 0));
        assert!(diff.html().contains("<td>2</td><td>+</td><td>&lt;b&gt;</td>"), "{}", diff.html());
        assert_eq!(diff.columns(), "numbered written");
        assert_eq!(EditDiff::of("shell", &json!({ "command": "ls" })), None);
    }

    #[test]
    fn no_edit_is_larger_than_a_page_carries() {
        let marks: String = (0..3_000).map(|n| format!("\"{n}' ")).collect();
        let lines: String = (0..9_000).map(|n| format!("<{n}>\n")).collect();
        for (old, new) in
            [(marks.clone(), lines.clone()), (lines.clone(), String::new()), (lines.clone(), marks.clone())]
        {
            let diff = edited(&old, &new);
            let html = diff.html();
            assert!(html.len() <= MAX_HTML_BYTES && html.len() <= diff.weight(), "{}", html.len());
            assert!(diff.removed == old.lines().count() && diff.added == new.lines().count());
            assert!(diff.omitted > 0 || html.contains(" …</td>"));
        }
    }
}
