//! The difference of two texts as rows: a plan's step by its number and title, any other line as it is.

use protocol::plan::{Status, Steps};
use similar::{ChangeTag, TextDiff};

use super::plan::seen;
use crate::domain::plan::{TextChange, changes};

/// Lines around a change that are shown with it.
const CONTEXT_LINES: usize = 1;
/// Rows of one difference that a page shows.
const MAX_ROWS: usize = 400;

/// A line of a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepDiffRow {
    /// `ctx`, `add`, `del` or `gap`.
    pub op: &'static str,
    pub sign: &'static str,
    /// The step's number in its plan.
    pub number: String,
    /// The status's icon and word, of a step.
    pub status: Option<(&'static str, &'static str)>,
    pub spans: Vec<DiffSpan>,
    /// The change that this row begins: it can be taken by itself.
    pub change: Option<usize>,
}

/// A piece of a line; marked when it differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffSpan {
    pub text: String,
    pub marked: bool,
}

/// The rows, and whether some are left out.
pub fn rows(old: &str, new: &str) -> (Vec<StepDiffRow>, bool) {
    let (before, after) = (Lines::of(old), Lines::of(new));
    let mut rows = Vec::new();
    let mut shown = 0;
    let all = changes(old, new);
    for (n, change) in all.iter().enumerate() {
        let from = change.old.start.saturating_sub(CONTEXT_LINES).max(shown);
        if from > shown && !rows.is_empty() {
            rows.push(StepDiffRow {
                op: "gap",
                sign: "",
                number: String::new(),
                status: None,
                spans: Vec::new(),
                change: None,
            });
        }
        rows.extend((from..change.old.start).filter_map(|line| before.row(line, "ctx", "")));
        rows.extend(pair(&before, &after, change, n));
        shown = change.old.end;
        let next = all.get(n + 1).map_or(usize::MAX, |next| next.old.start);
        let until = (shown + CONTEXT_LINES).min(next).min(before.lines.len());
        rows.extend((shown..until).filter_map(|line| before.row(line, "ctx", "")));
        shown = shown.max(until);
    }
    let cut = rows.len() > MAX_ROWS;
    rows.truncate(MAX_ROWS);
    (rows, cut)
}

fn pair(before: &Lines<'_>, after: &Lines<'_>, change: &TextChange, n: usize) -> Vec<StepDiffRow> {
    let mut rows: Vec<StepDiffRow> = change.old.clone().filter_map(|line| before.row(line, "del", "−")).collect();
    let removed = rows.len();
    rows.extend(change.new.clone().filter_map(|line| after.row(line, "add", "+")));
    if let [old, new] = rows.as_mut_slice()
        && removed == 1
    {
        (old.spans, new.spans) = words(&old.text(), &new.text());
    }
    let (op, sign) = if change.new.is_empty() { ("del", "−") } else { ("add", "+") };
    if rows.is_empty() {
        // Only empty lines differ: the change is still one that can be taken.
        let spans = vec![DiffSpan { text: "(an empty line)".to_owned(), marked: false }];
        rows.push(StepDiffRow { op, sign, number: String::new(), status: None, spans, change: None });
    }
    rows[0].change = Some(n);
    rows
}

impl StepDiffRow {
    fn text(&self) -> String {
        self.spans.iter().map(|piece| piece.text.as_str()).collect()
    }
}

/// A plan's lines, and which step each one is.
struct Lines<'a> {
    lines: Vec<&'a str>,
    steps: Vec<Option<(usize, Status, String)>>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let lines: Vec<&str> = crate::domain::plan::lines(text);
        let mut count = 0;
        let steps = lines.iter().map(|line| {
            let mut found = Steps::of(line).steps;
            let step = (found.len() == 1).then(|| found.remove(0))?;
            // A to-do below a step has no number of its own.
            let top = !line.starts_with([' ', '\t']);
            count += usize::from(top);
            Some((if top { count } else { 0 }, step.status, step.title))
        });
        let steps = steps.collect();
        Self { lines, steps }
    }

    /// The row of a line; none for an empty one.
    fn row(&self, line: usize, op: &'static str, sign: &'static str) -> Option<StepDiffRow> {
        let text = self.lines.get(line)?.trim_end();
        if text.trim().is_empty() {
            return None;
        }
        let step = self.steps[line].as_ref();
        let number = step.filter(|step| step.0 > 0).map_or_else(String::new, |step| step.0.to_string());
        let text = step.map_or_else(|| text.to_owned(), |step| step.2.clone());
        let spans = vec![DiffSpan { text, marked: false }];
        Some(StepDiffRow { op, sign, number, status: step.map(|step| seen(step.1)), spans, change: None })
    }
}

/// Two versions of a line, with the words that differ marked.
fn words(old: &str, new: &str) -> (Vec<DiffSpan>, Vec<DiffSpan>) {
    let diff = TextDiff::from_words(old, new);
    let (mut before, mut after): (Vec<DiffSpan>, Vec<DiffSpan>) = (Vec::new(), Vec::new());
    let push = |to: &mut Vec<DiffSpan>, text: &str, marked: bool| match to.last_mut() {
        Some(last) if last.marked == marked => last.text.push_str(text),
        _ => to.push(DiffSpan { text: text.to_owned(), marked }),
    };
    for change in diff.iter_all_changes() {
        match change.tag() {
            ChangeTag::Equal => {
                push(&mut before, change.value(), false);
                push(&mut after, change.value(), false);
            }
            ChangeTag::Delete => push(&mut before, change.value(), true),
            ChangeTag::Insert => push(&mut after, change.value(), true),
        }
    }
    (before, after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_step_is_two_rows_with_its_words_marked() {
        let old = "# g\n\n- [ ] Hold\n- [ ] Open a PR\n";
        let new = "# g\n\n- [ ] Hold\n- [ ] Run the suite\n- [/] Open a draft PR\n";
        let (rows, cut) = rows(old, new);
        let brief: Vec<_> = rows.iter().map(|row| (row.op, row.number.as_str(), row.text(), row.change)).collect();
        let text = |text: &str| text.to_owned();
        assert_eq!(
            brief,
            [
                ("ctx", "1", text("Hold"), None),
                ("add", "2", text("Run the suite"), Some(0)),
                ("del", "2", text("Open a PR"), Some(1)),
                ("add", "3", text("Open a draft PR"), None),
            ]
        );
        assert!(!cut && rows[3].status == Some(("working", "Working")));
        let marked: String = rows[3].spans.iter().filter(|span| span.marked).map(|span| span.text.as_str()).collect();
        assert_eq!(marked.trim(), "draft");
    }

    #[test]
    fn a_mass_of_rows_is_cut() {
        let new: String = (0..5_000).map(|n| format!("- [ ] {n}\n")).collect();
        let (rows, cut) = rows("", &new);
        assert!(cut && rows.len() == MAX_ROWS);
        assert!(super::rows("a\n", "a\n").0.is_empty());
    }
}
