//! What an edit changes, line by line, with the words that differ: made of the call's arguments, so that it is there
//! before the edit is.

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
/// Text of lines whose words are compared, bytes, for one place and for the whole edit.
const MAX_WORDS_BYTES: usize = 1_500;
const MAX_ALL_WORDS_BYTES: usize = 6_000;

/// A change of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EditDiff {
    /// Rows of a table.
    pub html: String,
    pub added: usize,
    pub removed: usize,
    /// Rows that are not in the table.
    pub omitted: usize,
}

/// Collects rows until a page carries no more.
#[derive(Default)]
struct RowWriter {
    html: String,
    rows: usize,
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
        Self { html: rows.html, added: content.lines().count(), removed: 0, omitted: rows.omitted }
    }

    fn edited(old: &str, new: &str) -> Self {
        let (before, after): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
        let mut rows = RowWriter::default();
        if before.len().max(after.len()) > MAX_COMPARED_LINES {
            before.iter().for_each(|line| rows.line("del", &[(false, *line)]));
            after.iter().for_each(|line| rows.line("add", &[(false, *line)]));
            let RowWriter { html, omitted, .. } = rows;
            return Self { html, added: after.len(), removed: before.len(), omitted };
        }
        let diff = TextDiff::from_slices(&before, &after);
        let (mut added, mut removed, mut words) = (0, 0, MAX_ALL_WORDS_BYTES);
        for (n, group) in diff.grouped_ops(CONTEXT_LINES).iter().enumerate() {
            if n > 0 {
                rows.gap();
            }
            for op in group {
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
        Self { html: rows.html, added, removed, omitted: rows.omitted }
    }

    /// How many bytes of HTML it takes at most.
    pub fn weight(&self) -> usize {
        self.html.len() + 250
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

    fn gap(&mut self) {
        if self.rows < MAX_ROWS {
            self.html.push_str("<tr data-op=\"hunk\"><td colspan=\"2\">…</td></tr>");
        }
    }

    fn line(&mut self, op: &str, words: &[(bool, &str)]) {
        if self.rows == MAX_ROWS || self.html.len() > MAX_HTML_BYTES - MAX_LINE_HTML_BYTES - 100 {
            self.rows = MAX_ROWS;
            self.omitted += 1;
            return;
        }
        self.rows += 1;
        let (sign, mark) = match op {
            "add" => ("+", "ins"),
            "del" => ("\u{2212}", "del"),
            _ => ("", ""),
        };
        let mut cell = String::new();
        for (marked, word) in words {
            if *marked {
                cell.push_str(&format!("<{mark}>{}</{mark}>", escape(word)));
            } else {
                cell.push_str(&escape(word));
            }
        }
        if cell.len() > MAX_LINE_HTML_BYTES {
            let plain: String = words.iter().map(|(_, word)| *word).collect();
            cell = format!("{} …", escape(&truncate_escaped(&plain, MAX_LINE_HTML_BYTES - 100)));
        }
        self.html.push_str(&format!("<tr data-op=\"{op}\"><td>{sign}</td><td>{cell}</td></tr>"));
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
        assert!(diff.html.starts_with(&row("same", "", "fn a() {")), "{}", diff.html);
        assert!(diff.html.contains(&row("del", "\u{2212}", "    let total = <del>sum(1);</del>")), "{}", diff.html);
        assert!(diff.html.contains("    let total = <ins>sum(2);</ins>"), "{}", diff.html);
        assert!(diff.html.ends_with(&row("same", "", "}")), "{}", diff.html);
    }

    #[test]
    fn lines_with_little_in_common_have_no_marks() {
        let diff = edited("alpha beta gamma", "one two three");
        assert!(!diff.html.contains("<del>") && !diff.html.contains("<ins>"), "{}", diff.html);
    }

    #[test]
    fn a_written_file_is_all_new() {
        let diff = EditDiff::of("write_file", &json!({ "content": "a\n<b>\n" })).expect("a file");
        assert_eq!((diff.added, diff.removed), (2, 0));
        assert!(diff.html.contains("<td>+</td><td>&lt;b&gt;</td>"), "{}", diff.html);
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
            assert!(diff.html.len() <= MAX_HTML_BYTES, "{}", diff.html.len());
            assert!(diff.removed == old.lines().count() && diff.added == new.lines().count());
            assert!(diff.omitted > 0 || diff.html.contains(" …</td>"));
        }
    }
}
