//! The end of what a call has put out: its last whole lines, each with its own colours, and how much there is in all.
//!
//! What is shown depends on the lines alone, never on the pieces in which they came: a page that follows a command shows
//! what a reload shows. A line begins without colours, so that nothing leaks from one into the next, or out of a row.

use std::collections::VecDeque;

use protocol::{OutputPlace, text::grouped};

use super::super::{ansi, timeline::escaped};
use crate::domain::size_words;

/// Complete lines that a page shows of an output.
const MAX_LINES: usize = 40;
/// What these have together: bytes of text, and of HTML.
const MAX_TEXT_BYTES: usize = 4_000;
const MAX_HTML_BYTES: usize = 12_000;
/// Bytes of a line that are looked at.
const MAX_LINE_BYTES: usize = 4_000;
/// Bytes of a line that are shown.
const MAX_SHOWN_LINE_BYTES: usize = 1_000;
/// HTML of a line, bytes at most: one with more colours than that has none.
const MAX_LINE_HTML_BYTES: usize = 3_000;
/// HTML around a line that may still move, bytes.
const LINE_FRAME_BYTES: usize = 26;

/// The last lines of an output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputWindow {
    lines: VecDeque<ShownLine>,
    open: OpenLine,
    /// The place behind everything that was put out.
    place: OutputPlace,
    gaps: u64,
    /// Line ends of a part that was left out were not counted.
    uncounted: bool,
    /// What was put out before a gap ended within a line: the rest of that is not shown.
    skipping: bool,
}

/// A complete line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ShownLine {
    html: String,
    /// Bytes of its text that are shown, without sequences.
    text: usize,
    /// Bytes of the output that it stands for.
    bytes: u64,
}

/// The line that is being written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OpenLine {
    /// What was written since the last carriage return, up to a bound.
    source: String,
    /// Its bytes, with those beyond the bound.
    bytes: u64,
    /// It ended with a carriage return: what comes next is written over it.
    returned: bool,
}

impl OpenLine {
    fn push(&mut self, text: &str) {
        for piece in text.split_inclusive('\r') {
            let words = piece.strip_suffix('\r').unwrap_or(piece);
            if self.returned && !words.is_empty() {
                *self = Self::default();
            }
            self.bytes += words.len() as u64;
            self.source.push_str(protocol::text::head(words, MAX_LINE_BYTES.saturating_sub(self.source.len())));
            self.returned |= piece.ends_with('\r');
        }
    }

    fn shown(&self) -> ShownLine {
        let (mut html, text, rest) = ansi::line(&self.source, MAX_SHOWN_LINE_BYTES, MAX_LINE_HTML_BYTES);
        let cut = rest as u64 + (self.bytes - self.source.len() as u64);
        if cut > 0 {
            html.push_str(&format!("<span class=\"ansi-dim\"> … {} more</span>", size_words(cut)));
        }
        ShownLine { html, text, bytes: self.bytes - cut }
    }
}

impl OutputWindow {
    /// The end of a complete text. `whole` is the place behind the output when the text lacks its middle; `None` for its
    /// lines when nobody counted them.
    pub fn of(text: &str, whole: Option<(u64, Option<u64>)>) -> Self {
        let mut ends = text.bytes().enumerate().rev().filter(|(_, byte)| *byte == b'\n');
        // One more than is shown: the last line may be complete.
        let from = ends.nth(MAX_LINES + 1).map_or(0, |(at, _)| at + 1);
        let all = OutputPlace::default().after(text);
        let own = OutputPlace::default().after(&text[from..]);
        let (bytes, lines) = whole.unwrap_or((all.bytes, Some(all.lines)));
        let before = OutputPlace {
            bytes: bytes.max(all.bytes) - own.bytes,
            lines: lines.map_or(all.lines, |lines| lines.max(all.lines)) - own.lines,
        };
        let mut window = Self { place: before, uncounted: lines.is_none(), ..Self::default() };
        window.push(&text[from..], None);
        window
    }

    /// Adds what was put out next; `before` says where that is, when anybody knows.
    pub fn push(&mut self, content: &str, before: Option<OutputPlace>) {
        if let Some(before) = before.filter(|before| *before != self.place) {
            let (skipping, gaps) = (before.bytes > 0, self.gaps + 1);
            *self = Self { place: before, skipping, gaps, ..Self::default() };
        }
        self.place = self.place.after(content);
        for line in content.split_inclusive('\n') {
            let words = line.strip_suffix('\n');
            if self.skipping {
                self.skipping = words.is_none();
                continue;
            }
            self.open.push(words.unwrap_or(line));
            if words.is_some() {
                let mut done = std::mem::take(&mut self.open).shown();
                done.bytes += (line.len() - words.map_or(0, str::len)) as u64;
                self.lines.push_back(done);
                self.fit();
            }
        }
    }

    /// What was dropped once stays dropped, since lines only follow: whatever the pieces, the same lines are left.
    fn fit(&mut self) {
        let sum = |lines: &VecDeque<ShownLine>, size: fn(&ShownLine) -> usize| lines.iter().map(size).sum::<usize>();
        while self.lines.len() > MAX_LINES
            || sum(&self.lines, |line| line.text) > MAX_TEXT_BYTES
            || sum(&self.lines, |line| line.html.len()) > MAX_HTML_BYTES
        {
            self.lines.pop_front();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.place.bytes == 0
    }

    /// How many complete lines are shown, and how many there were.
    pub fn complete(&self) -> (usize, u64) {
        (self.lines.len(), self.place.lines)
    }

    /// How many gaps it has had: what was shown before one is not shown any more.
    pub fn gaps(&self) -> u64 {
        self.gaps
    }

    /// Bytes of the whole output.
    pub fn bytes(&self) -> u64 {
        self.place.bytes
    }

    /// The lines as text in HTML, when nothing follows any more.
    pub fn html(&self) -> String {
        let mut html = String::with_capacity(self.weight());
        for line in &self.lines {
            html.push_str(&line.html);
            html.push('\n');
        }
        if self.open.bytes > 0 {
            html.push_str(&self.open.shown().html);
        }
        html
    }

    /// The last `count` complete lines and the one that is being written, each an element: more may follow.
    pub fn growing(&self, count: usize) -> String {
        let mut html = String::with_capacity(self.weight());
        for line in self.lines.iter().skip(self.lines.len().saturating_sub(count)) {
            html.push_str(&format!("<span>{}\n</span>", line.html));
        }
        if !self.is_empty() {
            html.push_str(&format!("<span class=\"now\">{}</span>", self.open.shown().html));
        }
        html
    }

    /// How much is shown of how much; `None` when that is all.
    pub fn extent(&self) -> Option<String> {
        let (mut shown, mut total) = (self.lines.len() as u64, self.place.lines);
        let mut bytes: u64 = self.lines.iter().map(|line| line.bytes).sum();
        if self.open.bytes > 0 {
            (shown, total) = (shown + 1, total.saturating_add(1));
            bytes += self.open.shown().bytes;
        }
        let of = format!("{} of {}", size_words(bytes), size_words(self.place.bytes));
        match shown < total {
            true if !self.uncounted => Some(format!("The last {} of {} lines, {of}", grouped(shown), grouped(total))),
            true => Some(format!("The end, {of}")),
            // Of a line that is written over again and again the last state is all there is to see.
            false if self.lines.iter().chain([&self.open.shown()]).any(|line| line.html.ends_with(" more</span>")) => {
                Some(of)
            }
            false => None,
        }
    }

    /// How many bytes of HTML it takes at most.
    pub fn weight(&self) -> usize {
        let lines: usize = self.lines.iter().map(|line| line.html.len() + LINE_FRAME_BYTES).sum();
        lines + escaped(&self.open.source).min(MAX_LINE_HTML_BYTES) + 2 * LINE_FRAME_BYTES + 60
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pushed<'a>(pieces: impl IntoIterator<Item = &'a str>) -> OutputWindow {
        let mut window = OutputWindow::default();
        pieces.into_iter().for_each(|piece| window.push(piece, None));
        window
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn the_same_is_shown_whatever_the_pieces(
            lines in proptest::collection::vec("[a-z<&\r\u{1b}\\[31m]{0,60}", 0..60),
            size in 1usize..200,
            last in "[a-z\r]{0,20}",
        ) {
            let text = format!("{}{last}", lines.iter().map(|line| format!("{line}\n")).collect::<String>());
            let characters: Vec<char> = text.chars().collect();
            let pieces: Vec<String> = characters.chunks(size).map(|piece| piece.iter().collect()).collect();
            let window = pushed(pieces.iter().map(String::as_str));
            prop_assert_eq!(&window, &pushed([text.as_str()]));
            let complete = OutputWindow::of(&text, None);
            prop_assert_eq!(window.html(), complete.html());
            prop_assert_eq!(window.extent(), complete.extent());
            prop_assert!(window.html().len() <= window.weight() && window.growing(99).len() <= window.weight());
        }
    }

    #[test]
    fn it_says_how_much_is_shown_and_begins_with_a_whole_line() {
        let text: String = (0..5_000).map(|n| format!("line {n:04} {}\n", "x".repeat(70))).collect();
        let window = OutputWindow::of(&text, None);
        assert_eq!(window.extent().as_deref(), Some("The last 40 of 5,000 lines, 3.2 kB of 405.0 kB"));
        assert!(window.html().starts_with("line 4960 ") && window.html().ends_with("x\n"));
        // The middle is not there, and somebody counted.
        let window = OutputWindow::of(&text, Some((9_000_000, Some(100_000))));
        assert_eq!(window.extent().as_deref(), Some("The last 40 of 100,000 lines, 3.2 kB of 9.0 MB"));
        let window = OutputWindow::of(&text, Some((9_000_000, None)));
        assert_eq!(window.extent().as_deref(), Some("The end, 3.2 kB of 9.0 MB"));
        assert_eq!(OutputWindow::of("all of it\n", None).extent(), None);
        let huge = OutputWindow::of("a\n", Some((u64::MAX, Some(u64::MAX))));
        assert!(huge.extent().is_some());
    }

    #[test]
    fn a_long_line_is_cut_at_its_end_and_says_so() {
        let window = OutputWindow::of(&format!("first\n{}", "y".repeat(50_000)), None);
        let html = window.html();
        assert!(
            html.starts_with("first\nyyy") && html.ends_with("<span class=\"ansi-dim\"> … 49.0 kB more</span>"),
            "{html}"
        );
        assert_eq!(window.extent().as_deref(), Some("1.0 kB of 50.0 kB"));
    }

    #[test]
    fn a_carriage_return_writes_over_its_line() {
        assert_eq!(pushed(["10 %\r", "20 %", "\r100 %\r\nnext"]).html(), "100 %\nnext");
        assert_eq!(pushed(["10 %\r"]).html(), "10 %");
        assert_eq!(pushed(["10 %\r"]).extent(), None);
    }

    #[test]
    fn no_colour_leaves_its_line_and_no_line_is_heavier_than_its_bound() {
        let window = pushed(["\u{1b}[31mred\nplain\n"]);
        assert_eq!(window.html(), "<span class=\"ansi-red\">red</span>\nplain\n");
        let evil: String = (0..2_000).map(|n| format!("\u{1b}[1;2;4;{}m<", 31 + n % 7)).collect();
        let window = pushed([format!("{evil}\n").repeat(60).as_str(), &evil]);
        assert!(window.html().len() <= MAX_HTML_BYTES + MAX_LINE_HTML_BYTES + 200, "{}", window.html().len());
        assert!(window.html().len() <= window.weight());
    }

    #[test]
    fn a_gap_begins_with_the_next_whole_line() {
        let mut window = pushed(["one\ntwo\n"]);
        window.push("lf\nten\n", Some(OutputPlace { bytes: 100, lines: 8 }));
        assert_eq!((window.html().as_str(), window.complete()), ("ten\n", (1, 10)));
        window.push("more\n", Some(OutputPlace { bytes: 107, lines: 10 }));
        assert_eq!(window.html(), "ten\nmore\n");
    }
}
