//! The difference of two texts, line by line, as a table.

use askama::Template;
use similar::{ChangeTag, TextDiff};

/// Lines around a change.
const AROUND: usize = 3;
/// Rows that a page shows.
const MOST: usize = 2_000;

/// What differs.
#[derive(Clone, Debug, PartialEq, Eq, Template)]
#[template(path = "_diff.html")]
pub struct Diff {
    pub rows: Vec<Row>,
    pub added: usize,
    pub removed: usize,
    /// Rows that are left out.
    pub omitted: usize,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// `add`, `del`, `same` or `hunk`.
    pub op: &'static str,
    pub old: Option<usize>,
    pub new: Option<usize>,
    pub text: String,
}

impl Diff {
    /// From `old` to `new`.
    pub fn of(old: &str, new: &str) -> Self {
        let diff = TextDiff::from_lines(old, new);
        let mut rows = Vec::new();
        let (mut added, mut removed) = (0, 0);
        for (index, group) in diff.grouped_ops(AROUND).iter().enumerate() {
            if index > 0 {
                rows.push(Row { op: "hunk", old: None, new: None, text: "…".to_owned() });
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
                rows.push(Row { op, old: number(change.old_index()), new: number(change.new_index()), text });
            }
        }
        let omitted = rows.len().saturating_sub(MOST);
        rows.truncate(MOST);
        Self { rows, added, removed, omitted }
    }
}

impl Row {
    fn sign(&self) -> &'static str {
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
}
