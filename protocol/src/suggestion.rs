//! Notes for the memory that an agent suggests in an answer: `<memory_suggestion>…</memory_suggestion>` outside of code.
//! The viber takes them, the Board shows the answer without them, and both find the same ones.
//!
//! An answer is read as it grows. What was decided about a piece of it never depends on what follows.

use std::ops::Range;

use crate::plan::fence;

const OPENING_TAG: &str = "<memory_suggestion>";
const CLOSING_TAG: &str = "</memory_suggestion>";
/// Suggestions that are taken from one answer.
pub const MAX_SUGGESTIONS: usize = 20;

/// What stands next in an answer, as bytes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerPiece {
    /// Text that is shown.
    Text(Range<usize>),
    /// A suggestion begins: nothing is shown until it ends.
    Opened,
    /// A suggestion, without its tags; it may be blank.
    Suggested(Range<usize>),
}

/// Reads an answer piece by piece.
#[derive(Clone, Debug, Default)]
pub struct SuggestionScanner {
    /// Everything before this is decided.
    at: usize,
    /// Where the line begins that `at` is in.
    line: usize,
    /// Where its first character stands that is no space, once that is known.
    first: Option<usize>,
    /// The fence of code that is open: its character and how many of them.
    fence: Option<(char, usize)>,
    /// Where the suggestion begins that is open.
    inside: Option<usize>,
}

impl SuggestionScanner {
    /// The next piece that is certain of the answer so far. It has to be called until there is none, and with the same
    /// answer and what has come to it.
    pub fn next(&mut self, answer: &str) -> Option<AnswerPiece> {
        let mut from = self.at;
        loop {
            let rest = &answer[self.at..];
            let Some(next) = rest.find(['<', '\n']) else {
                self.at = answer.len();
                return self.text(from, self.at);
            };
            let here = self.at + next;
            if rest[next..].starts_with('\n') {
                self.end_line(&answer[self.line..here]);
                self.at = here + 1;
                self.line = self.at;
                self.first = None;
                continue;
            }
            match self.tag(answer, here) {
                Tag::None => self.at = here + 1,
                Tag::Unknown => {
                    self.at = here;
                    return self.text(from, here);
                }
                Tag::Opens if self.inside.is_none() => {
                    if here > from {
                        self.at = here;
                        return self.text(from, here);
                    }
                    self.at = here + OPENING_TAG.len();
                    self.inside = Some(self.at);
                    return Some(AnswerPiece::Opened);
                }
                Tag::Opens => self.at = here + OPENING_TAG.len(),
                Tag::Closes => {
                    let text = self.text(from, here);
                    if text.is_some() {
                        self.at = here;
                        return text;
                    }
                    self.at = here + CLOSING_TAG.len();
                    match self.inside.take() {
                        Some(begin) => return Some(AnswerPiece::Suggested(begin..here)),
                        // A tag that closes nothing is left out.
                        None => from = self.at,
                    }
                }
            }
        }
    }

    /// What is left of an answer that has ended, as text: a suggestion without an end is none.
    pub fn rest(&self, answer: &str) -> Range<usize> {
        self.inside.unwrap_or(self.at)..answer.len()
    }

    fn text(&self, from: usize, to: usize) -> Option<AnswerPiece> {
        (to > from && self.inside.is_none()).then_some(AnswerPiece::Text(from..to))
    }

    fn end_line(&mut self, line: &str) {
        let Some((mark, length, info)) = fence(line) else { return };
        match self.fence {
            None if mark == '~' || !info.contains('`') => self.fence = Some((mark, length)),
            Some((kind, least)) if mark == kind && length >= least && info.is_empty() => self.fence = None,
            _ => {}
        }
    }

    /// The tag that begins at `here`. However long the line is, each tag in it costs the same.
    fn tag(&mut self, answer: &str, here: usize) -> Tag {
        let rest = &answer[here..];
        let tag = if rest.starts_with(OPENING_TAG) {
            Tag::Opens
        } else if rest.starts_with(CLOSING_TAG) {
            Tag::Closes
        } else if OPENING_TAG.starts_with(rest) || CLOSING_TAG.starts_with(rest) {
            Tag::Unknown
        } else {
            return Tag::None;
        };
        let line = self.line;
        let first = *self.first.get_or_insert_with(|| here - answer[line..here].trim_start().len());
        let before = &answer[first..here];
        // Code: in a fence, on a line that may be one, or behind a backtick.
        if self.fence.is_some() || before.ends_with('`') || ["```", "~~~"].iter().any(|mark| before.starts_with(mark)) {
            return Tag::None;
        }
        tag
    }
}

enum Tag {
    None,
    /// More has to come.
    Unknown,
    Opens,
    Closes,
}

/// The notes that an answer suggests, none of them blank.
pub fn suggestions(answer: &str) -> Vec<&str> {
    let mut scanner = SuggestionScanner::default();
    let pieces = std::iter::from_fn(|| scanner.next(answer));
    let notes = pieces.filter_map(|piece| match piece {
        AnswerPiece::Suggested(note) => Some(answer[note].trim()),
        AnswerPiece::Text(_) | AnswerPiece::Opened => None,
    });
    notes.filter(|note| !note.is_empty()).collect()
}

/// An answer that has ended, without what it suggests for the memory.
pub fn without_suggestions(answer: &str) -> String {
    let mut scanner = SuggestionScanner::default();
    let mut shown = String::with_capacity(answer.len());
    while let Some(piece) = scanner.next(answer) {
        if let AnswerPiece::Text(text) = piece {
            shown.push_str(&answer[text]);
        }
    }
    shown.push_str(&answer[scanner.rest(answer)]);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_stand_outside_of_code() {
        let answer = "Done.\n<memory_suggestion>Use tabs.</memory_suggestion>\n```\n<memory_suggestion>no</memory_suggestion>\n```\n\
                      Say `<memory_suggestion>` to suggest.\n<memory_suggestion>\n## Build\n\n```sh\nmake\n```\n</memory_suggestion> and \
                      <memory_suggestion> </memory_suggestion><memory_suggestion>open";
        assert_eq!(suggestions(answer), ["Use tabs.", "## Build\n\n```sh\nmake\n```"]);
        assert_eq!(
            without_suggestions(answer),
            "Done.\n\n```\n<memory_suggestion>no</memory_suggestion>\n```\nSay `<memory_suggestion>` to suggest.\n and open"
        );
        assert_eq!(suggestions("no\n~~~\n<memory_suggestion>x</memory_suggestion>"), Vec::<&str>::new());
        assert_eq!(without_suggestions("a</memory_suggestion>b <memory_sugg"), "ab <memory_sugg");
    }

    #[test]
    fn a_line_of_many_signs_costs_no_more_for_each() {
        // 256 KiB each. Where a sign costs what stands before it, this takes minutes.
        let spaces = " ".repeat(128 << 10);
        for sign in ["<", "<memory_suggestion>", "</memory_suggestion>", "<memory_suggestio"] {
            let answer = format!("x\n{spaces}{}", sign.repeat((128 << 10) / sign.len()));
            let before = std::time::Instant::now();
            for _ in 0..5 {
                without_suggestions(&answer);
            }
            assert!(before.elapsed().as_secs() < 20, "{sign}: {:?}", before.elapsed());
        }
    }

    #[test]
    fn an_answer_in_pieces_is_read_as_at_once() {
        let answer = "Eins ä\n<memory_suggestion>ü\n```\nx</memory_suggestion>\n```\n</memory_suggestion>\n<b> `<memory_suggestion>` </memory_suggestion>\n\
                      ~~~\n<memory_suggestion>\n~~~\n<<memory_suggestion>y</memory_suggestion><memory_suggestion>z";
        let read = |cuts: &[usize]| {
            let (mut scanner, mut text, mut notes) = (SuggestionScanner::default(), String::new(), Vec::new());
            for end in cuts.iter().copied().chain([answer.len()]) {
                let so_far = &answer[..end];
                while let Some(piece) = scanner.next(so_far) {
                    match piece {
                        AnswerPiece::Text(some) => text.push_str(&so_far[some]),
                        AnswerPiece::Opened => notes.push(None),
                        AnswerPiece::Suggested(note) => {
                            *notes.last_mut().expect("open") = Some(so_far[note].to_owned())
                        }
                    }
                }
            }
            (text, notes, scanner.rest(answer))
        };
        let whole = read(&[]);
        assert_eq!(whole.1.len(), 3, "{whole:?}");
        let ends: Vec<usize> = answer.char_indices().map(|(at, _)| at).collect();
        assert_eq!(read(&ends), whole, "letter by letter");
        for cut in ends {
            assert_eq!(read(&[cut]), whole, "{cut}");
        }
    }
}
