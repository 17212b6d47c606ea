//! An agent's text that still grows, as HTML. Its finished blocks stay as they are; only the block that is being written
//! changes, and where plain words join it, nothing is rendered again.
//!
//! A block is finished once a complete line follows that does not belong to it: Markdown never opens a closed block again.
//! The last one is shown as if it ended here, with what it has opened closed.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use protocol::suggestion::{AnswerPiece, MAX_SUGGESTIONS, SuggestionScanner};

use super::{TextAuthor, convert_open, pieces::PieceScanner, render, suggestion, too_deep};

/// Tags that may follow the last words of a block.
const CLOSING_TAGS: &[&str] =
    &["</p>", "</li>", "</ul>", "</ol>", "</blockquote>", "</h3>", "</h4>", "</h5>", "</h6>", "</del>"];
/// What ends a block of code.
const CODE_END: &str = "</code></pre>";

/// A longer block is shown as it was written until it is finished: it would be rendered with each word.
const MAX_RENDERED_BLOCK_BYTES: usize = 16 * 1024;
/// Longest code that only grows: it is rendered anew when something else than that happens.
const MAX_GROWING_CODE_BYTES: usize = 64 * 1024;
/// Time after which further pieces are rendered without colours.
const COLOUR_TIME_BUDGET: Duration = Duration::from_millis(100);

/// A text and its HTML.
#[derive(Clone, Debug, Default)]
pub struct GrowingText {
    /// As it was written.
    written: String,
    /// The same without what it suggests for the memory: what is shown.
    source: String,
    suggestions: SuggestionScanner,
    /// A suggestion is being written.
    is_suggesting: bool,
    /// The finished pieces that say that there was a suggestion.
    notes: Vec<usize>,
    /// Nothing is a suggestion: it is no answer.
    is_verbatim: bool,
    /// Where each piece of finished blocks ends in the source.
    pieces: PieceScanner,
    /// HTML of the block that is being written.
    open: String,
    /// How much of the source the HTML shows: spaces at the end wait for what follows them.
    shown: usize,
    /// Where text may be added to `open` without rendering it again.
    insertion: Option<Insertion>,
}

#[derive(Clone, Debug)]
enum Insertion {
    /// Behind the last word, before the closing tags that begin here.
    Words(usize),
    /// At the end of a block that is shown as it was written.
    Raw(usize),
    /// At the end of a fence's code, which is here; the fence's character.
    Code(usize, char),
}

/// What a push changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Growth {
    /// This text is added behind the last word of the block that is being written.
    Words(String),
    /// What is being written is another block. These pieces before it are new and finished.
    Blocks(Range<usize>),
}

impl Eq for GrowingText {}

impl PartialEq for GrowingText {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl GrowingText {
    /// An answer.
    pub fn new(written: String) -> Self {
        Self { written, ..Self::default() }.read()
    }

    /// A text that suggests nothing, whatever it contains.
    pub fn verbatim(written: String) -> Self {
        Self { written, is_verbatim: true, ..Self::default() }.read()
    }

    fn read(mut self) -> Self {
        if self.is_verbatim {
            self.source.clone_from(&self.written);
        } else {
            while let Some(piece) = self.suggestions.next(&self.written) {
                self.take(piece);
            }
        }
        self.pieces.read(&self.source);
        self.grow();
        self
    }

    /// As it was written.
    pub fn written(&self) -> &str {
        &self.written
    }

    /// What is shown of it.
    pub fn shown(&self) -> &str {
        &self.source
    }

    /// The source of the finished pieces.
    pub fn complete(&self) -> &str {
        &self.source[..self.begins()]
    }

    /// How many pieces are finished.
    pub fn finished(&self) -> usize {
        self.pieces.ends().len()
    }

    /// HTML of the block that is being written.
    pub fn open(&self) -> &str {
        &self.open
    }

    /// HTML of some finished pieces.
    pub fn blocks(&self, some: Range<usize>) -> String {
        let began = Instant::now();
        some.fold(String::new(), |html, n| match began.elapsed() < COLOUR_TIME_BUDGET {
            _ if self.notes.contains(&n) => html + &suggestion::finished(),
            true => html + &render(self.block(n), TextAuthor::Agent),
            false => html + &convert_open(self.block(n)),
        })
    }

    /// The first of the last finished pieces that have at most so many bytes of Markdown together.
    pub fn last_within(&self, bytes: usize) -> usize {
        let ends = self.pieces.ends();
        let end = self.begins();
        let begins = std::iter::once(0).chain(ends.iter().copied());
        begins.take_while(|begin| end - begin > bytes).count()
    }

    /// Adds to the text.
    pub fn push(&mut self, more: &str) -> Growth {
        self.written.push_str(more);
        if self.is_verbatim {
            return self.add(more);
        }
        let before = self.finished();
        let Some(first) = self.suggestions.next(&self.written) else { return Growth::Words(String::new()) };
        let mut next = self.suggestions.next(&self.written);
        if let (AnswerPiece::Text(text), None) = (&first, &next) {
            let text = self.written[text.clone()].to_owned();
            return self.add(&text);
        }
        self.take(first);
        while let Some(piece) = next {
            self.take(piece);
            next = self.suggestions.next(&self.written);
        }
        self.pieces.read(&self.source);
        self.grow();
        Growth::Blocks(before..self.finished())
    }

    /// Takes a piece of what was written.
    fn take(&mut self, piece: AnswerPiece) {
        match piece {
            AnswerPiece::Text(text) => self.source.push_str(&self.written[text]),
            AnswerPiece::Opened => {
                self.pieces.read(&self.source);
                self.pieces.cut(self.source.len());
                self.is_suggesting = true;
            }
            AnswerPiece::Suggested(note) => {
                self.is_suggesting = false;
                if self.notes.len() < MAX_SUGGESTIONS && !self.written[note].trim().is_empty() {
                    self.notes.push(self.finished());
                    self.pieces.add_empty(self.source.len());
                }
            }
        }
    }

    /// Adds to what is shown.
    fn add(&mut self, more: &str) -> Growth {
        let before = self.finished();
        let words = self.words(more);
        self.source.push_str(more);
        self.pieces.read(&self.source);
        if self.finished() == before
            && let Some(words) = words
            && let Some(Insertion::Words(at) | Insertion::Raw(at) | Insertion::Code(at, _)) = &mut self.insertion
        {
            let html = ammonia_text(&words);
            self.open.insert_str(*at, &html);
            *at += html.len();
            self.shown += words.len();
            return Growth::Words(words);
        }
        self.grow();
        Growth::Blocks(before..self.finished())
    }

    fn block(&self, n: usize) -> &str {
        let ends = self.pieces.ends();
        let from = n.checked_sub(1).map_or(0, |before| ends[before]);
        &self.source[from..ends[n]]
    }

    /// Where the block that is being written begins.
    fn begins(&self) -> usize {
        self.pieces.ends().last().copied().unwrap_or(0)
    }

    /// Renders the block that is being written.
    fn grow(&mut self) {
        if self.is_suggesting {
            (self.open, self.insertion, self.shown) = (suggestion::open(), None, self.source.len());
            return;
        }
        let fence = self.pieces.fence();
        let code = fence.filter(|fence| fence.is_plain).map(|fence| fence.mark);
        (self.open, self.insertion) = open_block(&self.source[self.begins()..], fence.is_some(), code);
        self.shown = match self.insertion {
            Some(Insertion::Code(..) | Insertion::Raw(_)) => self.source.len(),
            _ => self.source.trim_end_matches(' ').len(),
        };
    }

    /// What `more` adds behind the last word, when it is no more than words there.
    fn words(&self, more: &str) -> Option<String> {
        let open = self.source.len() + more.len() - self.begins();
        let line = self.source.rfind(['\n', '\r']).map_or(0, |end| end + 1);
        match self.insertion.as_ref()? {
            Insertion::Words(_) => {
                let line = &self.source[line..];
                let begun =
                    line.trim_start_matches(|c: char| c.is_whitespace() || "-+*>.)#".contains(c) || c.is_ascii_digit());
                // The word that goes on may become an address, an entity, or no longer be what it looked like.
                let word = line.trim_end_matches(' ').rsplit(' ').next().unwrap_or(line);
                let is_plain = |c: char| c.is_alphanumeric() || " ,.;?!'\"()%–—…’“”".contains(c);
                if open > MAX_RENDERED_BLOCK_BYTES
                    || self.source[self.begins()..].contains('[')
                    || !begun.starts_with(char::is_alphabetic)
                    || !word.chars().chain(more.chars()).all(is_plain)
                    || format!("{word}{more}").to_ascii_lowercase().contains("www")
                {
                    return None;
                }
                let added = format!("{}{more}", &self.source[self.shown..]);
                Some(added.trim_end_matches(' ').to_owned())
            }
            Insertion::Raw(_) => (!more.contains(['\r', '\0'])).then(|| more.to_owned()),
            Insertion::Code(_, fence) => {
                let lines = format!("{}{more}", &self.source[line..]);
                let ends = lines.split(['\n', '\r']).any(|line| may_close(line, *fence));
                let is_other = ends || self.source.ends_with('\r') || more.contains(['\r', '\0']) || too_deep(&lines);
                (!is_other && open <= MAX_GROWING_CODE_BYTES).then(|| more.to_owned())
            }
        }
    }
}

/// The block that is being written, and where text may be added to it. `code`: the character of the fence at its end, if
/// that shows what it contains as it stands.
fn open_block(source: &str, is_code: bool, code: Option<char>) -> (String, Option<Insertion>) {
    if source.trim().is_empty() {
        return (String::new(), None);
    }
    let deep = too_deep(source);
    let code = code.filter(|_| source.len() <= MAX_GROWING_CODE_BYTES && !deep);
    if code.is_none() && source.len() > MAX_RENDERED_BLOCK_BYTES {
        let html = format!("<pre tabindex=\"0\"><code>{}", ammonia_text(&source.replace('\0', "\u{fffd}")));
        let at = html.len();
        return (html + CODE_END, Some(Insertion::Raw(at)));
    }
    let closed = if is_code || deep { source.into() } else { super::closing::closed(source) };
    let mut html = convert_open(&closed);
    html.truncate(html.trim_end().len());
    if let Some(mark) = code {
        let Some(mut at) = html.len().checked_sub(CODE_END.len()).filter(|_| html.ends_with(CODE_END)) else {
            return (html, None);
        };
        // More may follow on the line that closes it.
        if source.trim_end_matches(['\n', '\r']).rsplit(['\n', '\r']).next().is_some_and(|line| may_close(line, mark)) {
            return (html, None);
        }
        // The line that is being written has no end yet.
        if !source.ends_with(['\n', '\r']) && html[..at].ends_with('\n') {
            at -= 1;
            html.remove(at);
        }
        return (html, Some(Insertion::Code(at, mark)));
    }
    let mut at = html.len();
    while let Some(tag) = CLOSING_TAGS.iter().find(|tag| html[..at].ends_with(**tag)) {
        at = html[..at - tag.len()].trim_end().len();
    }
    let is_text = !is_code && !deep && !html[..at].ends_with('>') && html[..at].contains('>') && closed == source;
    (html, is_text.then_some(Insertion::Words(at)))
}

/// Whether a line may close a fence of this character.
fn may_close(line: &str, mark: char) -> bool {
    let line = line.trim();
    line.len() >= 3 && line.chars().all(|c| c == mark)
}

/// Text as it stands in sanitised HTML.
fn ammonia_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\u{a0}', "&nbsp;")
}

#[cfg(test)]
mod tests;
