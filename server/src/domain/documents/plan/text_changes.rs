//! The differences between two texts, as pieces that can be taken one by one.

use std::{collections::BTreeSet, ops::Range};

use similar::{Algorithm, DiffOp, TextDiff};

/// Pairs of lines that are compared to match changed lines; a larger replacement stays one piece.
const MAX_COMPARED_LINE_PAIRS: usize = 4_000;

/// A piece of the difference: these lines of the old text become those of the new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextChange {
    pub old: Range<usize>,
    pub new: Range<usize>,
}

/// The pieces in order. A changed line is a piece of its own where it can be matched.
pub fn changes(old: &str, new: &str) -> Vec<TextChange> {
    let (before, after) = (lines(old), lines(new));
    let diff = TextDiff::configure().algorithm(Algorithm::Patience).diff_slices(&before, &after);
    let mut found = Vec::new();
    for op in diff.ops() {
        match *op {
            DiffOp::Equal { .. } => {}
            DiffOp::Delete { old_index, old_len, new_index } => found.extend(
                (old_index..old_index + old_len).map(|n| TextChange { old: n..n + 1, new: new_index..new_index }),
            ),
            DiffOp::Insert { old_index, new_index, new_len } => found.extend(
                (new_index..new_index + new_len).map(|n| TextChange { old: old_index..old_index, new: n..n + 1 }),
            ),
            DiffOp::Replace { old_index, old_len, new_index, new_len } => {
                pair(&before, &after, old_index..old_index + old_len, new_index..new_index + new_len, &mut found);
            }
        }
    }
    found
}

/// `old` with only the pieces in `wanted` (by number) applied.
pub fn take(old: &str, new: &str, wanted: &BTreeSet<usize>) -> String {
    let (before, after) = (lines(old), lines(new));
    let mut text = String::with_capacity(new.len());
    let mut at = 0;
    let mut put = |line: &str| {
        // The last line of a text may have no end.
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(line);
    };
    for (n, change) in changes(old, new).iter().enumerate() {
        before[at..change.old.start].iter().for_each(|line| put(line));
        let chosen = if wanted.contains(&n) { &after[change.new.clone()] } else { &before[change.old.clone()] };
        chosen.iter().for_each(|line| put(line));
        at = change.old.end;
    }
    before[at..].iter().for_each(|line| put(line));
    text
}

/// A text's lines, with their ends.
pub fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// Matches lines that resemble each other, in order; the others are insertions and deletions of their own.
fn pair(before: &[&str], after: &[&str], old: Range<usize>, new: Range<usize>, found: &mut Vec<TextChange>) {
    if old.len() * new.len() > MAX_COMPARED_LINE_PAIRS {
        return found.push(TextChange { old, new });
    }
    let (mut i, mut j) = (old.start, new.start);
    while i < old.end || j < new.end {
        // The nearest matching pair: as few lines as possible are inserted or deleted before it.
        let alike = (0..(old.end - i) + (new.end - j)).find_map(|skip| {
            (0..=skip)
                .find(|down| {
                    let (a, b) = (i + down, j + skip - down);
                    a < old.end && b < new.end && resemble(before[a], after[b])
                })
                .map(|down| (i + down, j + skip - down))
        });
        let (a, b) = alike.unwrap_or((old.end, new.end));
        found.extend((i..a).map(|n| TextChange { old: n..n + 1, new: j..j }));
        found.extend((j..b).map(|n| TextChange { old: a..a, new: n..n + 1 }));
        if alike.is_some() {
            found.push(TextChange { old: a..a + 1, new: b..b + 1 });
        }
        (i, j) = if alike.is_some() { (a + 1, b + 1) } else { (a, b) };
    }
}

/// Whether one line may have become the other: they share most of their words.
fn resemble(a: &str, b: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        let word = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        text.split_whitespace().map(word).filter(|word| word.len() > 1).collect()
    };
    let (a, b) = (words(a), words(b));
    let shared = a.iter().filter(|word| b.contains(word)).count();
    shared > 0 && 2 * shared >= a.len().min(b.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "# g\n\n- [x] Hold for 50 runs\n- [ ] Open a PR\n";
    const NEW: &str =
        "# g\n\n- [x] Hold for 50 runs\n- [ ] Run the kiosk suite\n- [ ] Open a draft PR and ask Tomasz\n";

    #[test]
    fn each_step_is_a_piece_of_its_own() {
        let found = changes(OLD, NEW);
        assert_eq!(found, [TextChange { old: 3..3, new: 3..4 }, TextChange { old: 3..4, new: 4..5 }]);
        assert_eq!(take(OLD, NEW, &BTreeSet::new()), OLD);
        assert_eq!(take(OLD, NEW, &BTreeSet::from([0, 1])), NEW);
        assert_eq!(
            take(OLD, NEW, &BTreeSet::from([0])),
            OLD.replace("- [ ] Open", "- [ ] Run the kiosk suite\n- [ ] Open")
        );
        assert_eq!(take(OLD, NEW, &BTreeSet::from([1])), OLD.replace("Open a PR", "Open a draft PR and ask Tomasz"));
    }

    #[test]
    fn any_two_texts_are_taken_apart_and_put_together() {
        let texts = [
            "",
            "a",
            "a\n",
            "a\nb\nc\n",
            "c\nb\na",
            "x y\nz\n",
            "- [ ] one two\n- [ ] three\n",
            "- [x] one two\n",
            "\n\n",
        ];
        for old in texts {
            for new in texts {
                let all = (0..changes(old, new).len()).collect();
                assert_eq!(take(old, new, &all).trim_end(), new.trim_end(), "{old:?} {new:?}");
                assert_eq!(take(old, new, &BTreeSet::new()), old, "{old:?} {new:?}");
            }
        }
        let long = (0..3_000).map(|n| format!("- [ ] {n}\n")).collect::<String>();
        let other = (0..3_000).map(|n| format!("- [x] other {}\n", n + 7)).collect::<String>();
        assert_eq!(take(&long, &other, &(0..changes(&long, &other).len()).collect()), other);
    }
}
