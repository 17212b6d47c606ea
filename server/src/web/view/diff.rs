//! The difference of two texts, line by line, as a table.

use std::time::Duration;

use askama::Template;
use similar::{ChangeTag, TextDiff};

/// Lines around a change.
const CONTEXT_LINES: usize = 3;
/// Rows that a page shows.
const MAX_ROWS: usize = 2_000;
/// How long the smallest difference is looked for. After that a larger one is taken: texts of agents may differ in every line.
const DIFF_TIMEOUT: Duration = Duration::from_millis(200);

/// What differs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Template)]
#[template(path = "_diff.html")]
pub struct Diff {
    pub rows: Vec<DiffRow>,
    pub added: usize,
    pub removed: usize,
    /// Rows that are left out.
    pub omitted: usize,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DiffRow {
    /// `add`, `del`, `same` or `hunk`.
    pub op: &'static str,
    pub old: Option<usize>,
    pub new: Option<usize>,
    pub text: String,
}

impl Diff {
    /// From `old` to `new`.
    pub fn of(old: &str, new: &str) -> Self {
        let diff = TextDiff::configure().timeout(DIFF_TIMEOUT).diff_lines(old, new);
        let mut rows = Vec::new();
        let (mut added, mut removed) = (0, 0);
        for (index, group) in diff.grouped_ops(CONTEXT_LINES).iter().enumerate() {
            if index > 0 {
                rows.push(DiffRow { op: "hunk", old: None, new: None, text: "…".to_owned() });
            }
            for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
                let op = match change.tag() {
                    ChangeTag::Equal => "same",
                    ChangeTag::Insert => "add",
                    ChangeTag::Delete => "del",
                };
                added += usize::from(op == "add");
                removed += usize::from(op == "del");
                let number = |index: Option<usize>| index.map(|index| index + 1);
                let text = protocol::text::head(change.value().trim_end_matches(['\n', '\r']), 2_000).to_owned();
                rows.push(DiffRow { op, old: number(change.old_index()), new: number(change.new_index()), text });
            }
        }
        let omitted = rows.len().saturating_sub(MAX_ROWS);
        rows.truncate(MAX_ROWS);
        Self { rows, added, removed, omitted }
    }
}

impl Diff {
    /// From git's unified format, with git's remarks beside lines, such as a changed mode.
    pub fn of_unified(text: &str) -> (Self, Vec<String>) {
        let mut diff = Self { rows: Vec::new(), added: 0, removed: 0, omitted: 0 };
        let (mut notes, mut at) = (Vec::new(), None::<(usize, usize)>);
        for line in text.lines() {
            if let Some(begin) = hunk(line) {
                at = Some(begin);
                if diff.rows.is_empty() && begin.0 <= 1 && begin.1 <= 1 {
                    continue;
                }
                let place = line.splitn(3, "@@").nth(2).unwrap_or_default().trim();
                let text = if place.is_empty() { "…".to_owned() } else { format!("… {}", short(place)) };
                diff.rows.push(DiffRow { op: "hunk", old: None, new: None, text });
                continue;
            }
            let Some((old, new)) = at.as_mut() else {
                let remarks = ["rename ", "similarity ", "old mode ", "new mode ", "deleted file", "new file"];
                if remarks.iter().any(|word| line.starts_with(word)) {
                    notes.push(short(line));
                }
                continue;
            };
            let text = short(line.get(1..).unwrap_or_default());
            match line.as_bytes().first() {
                Some(b'+') => {
                    diff.rows.push(DiffRow { op: "add", old: None, new: Some(*new), text });
                    (*new, diff.added) = (*new + 1, diff.added + 1);
                }
                Some(b'-') => {
                    diff.rows.push(DiffRow { op: "del", old: Some(*old), new: None, text });
                    (*old, diff.removed) = (*old + 1, diff.removed + 1);
                }
                Some(b'\\') => {
                    diff.rows.push(DiffRow { op: "hunk", old: None, new: None, text: text.trim().to_owned() })
                }
                _ => {
                    diff.rows.push(DiffRow { op: "same", old: Some(*old), new: Some(*new), text });
                    (*old, *new) = (*old + 1, *new + 1);
                }
            }
        }
        diff.omitted = diff.rows.len().saturating_sub(MAX_ROWS);
        diff.rows.truncate(MAX_ROWS);
        (diff, notes)
    }
}

/// Where the lines after `@@ -12,3 +14,5 @@` begin.
fn hunk(line: &str) -> Option<(usize, usize)> {
    let (old, rest) = line.strip_prefix("@@ -")?.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let first = |range: &str| range.split(',').next()?.parse::<usize>().ok();
    Some((first(old)?, first(new)?))
}

fn short(text: &str) -> String {
    protocol::text::head(text, 2_000).to_owned()
}

impl DiffRow {
    /// What stands before the line.
    pub fn sign(&self) -> &'static str {
        match self.op {
            "add" => "+",
            "del" => "\u{2212}",
            _ => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_stand_among_their_neighbours() {
        let old: String = (1..=20).map(|n| format!("{n}\n")).collect();
        let diff = Diff::of(&old, &old.replace("10\n", "ten\n"));
        let shown: Vec<_> = diff.rows.iter().map(|row| (row.op, row.text.as_str())).collect();
        assert_eq!(shown[3..5], [("del", "10"), ("add", "ten")]);
        assert_eq!((shown.len(), diff.added, diff.removed), (8, 1, 1));
        assert!(Diff::of(&old, &old).rows.is_empty());
    }

    #[test]
    fn texts_that_differ_everywhere_are_compared_in_time() {
        let text = |word: &str| (0..60_000).map(|n| format!("{word} {n}\n")).collect::<String>();
        let (old, new) = (text("old"), text("new"));
        let began = std::time::Instant::now();
        let diff = Diff::of(&old, &new);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert_eq!((diff.added, diff.removed, diff.rows.len()), (60_000, 60_000, MAX_ROWS));
    }

    #[test]
    fn what_git_writes_is_read_line_by_line() {
        let text = "diff --git a/a b/b\nsimilarity index 90%\nrename from a\nrename to b\n--- a/a\n+++ b/b\n\
                    @@ -10,3 +12,3 @@ fn x() {\n same\n--- old\n+++ new\n\\ No newline at end of file\n\
                    @@ -90 +93,0 @@\n-gone\n";
        let (diff, notes) = Diff::of_unified(text);
        assert_eq!(notes, ["similarity index 90%", "rename from a", "rename to b"]);
        let rows: Vec<_> = diff.rows.iter().map(|row| (row.op, row.old, row.new, row.text.as_str())).collect();
        assert_eq!(
            rows,
            [
                ("hunk", None, None, "… fn x() {"),
                ("same", Some(10), Some(12), "same"),
                ("del", Some(11), None, "-- old"),
                ("add", None, Some(13), "++ new"),
                ("hunk", None, None, "No newline at end of file"),
                ("hunk", None, None, "…"),
                ("del", Some(90), None, "gone"),
            ]
        );
        assert_eq!((diff.added, diff.removed, diff.omitted), (1, 2, 0));
        assert!(Diff::of_unified("").0.rows.is_empty());
        assert_eq!(Diff::of_unified(&format!("@@ -1 +1 @@\n{}", "+x\n".repeat(2_500))).0.omitted, 500);
    }
}
