//! Where a text that still grows can be cut: what lies before such a place is finished, whatever follows.
//!
//! Places are found line by line and never depend on what comes later, so that a text that came in pieces is cut where
//! the same text is cut at once. A place that is not certain is none: lists, indented lines and HTML belong to what is
//! before them.

/// Pieces have at least so many bytes of Markdown: each is rendered by itself.
pub(super) const MIN_PIECE_BYTES: usize = 64;

/// A fence of code that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenFence {
    pub mark: char,
    len: usize,
    is_indented: bool,
    is_in_list: bool,
    /// What it contains is shown as it stands.
    pub is_plain: bool,
}

/// The places found so far, and what is known about the line that is read next.
#[derive(Clone, Debug, Default)]
pub(super) struct PieceScanner {
    ends: Vec<usize>,
    /// Where the next line begins.
    at: usize,
    /// Whether a place before the next line has been decided about: its beginning may be enough for that.
    is_decided: bool,
    is_after_blank: bool,
    /// The line before closed a fence that is in nothing else.
    is_after_fence: bool,
    is_in_list: bool,
    /// Where the text of the list's items begins: what is indented less is not in the list.
    list_column: usize,
    fence: Option<OpenFence>,
    html: Html,
}

/// Lines of HTML: fences inside of them are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Html {
    #[default]
    None,
    /// Until the next blank line.
    Paragraph,
    /// Until the end of the text: nothing is certain any more.
    Rest,
}

impl PieceScanner {
    /// Where each finished piece ends.
    pub fn ends(&self) -> &[usize] {
        &self.ends
    }

    pub fn fence(&self) -> Option<OpenFence> {
        self.fence
    }

    /// Ends what there is so far, whatever it is: another text begins.
    pub fn cut(&mut self, end: usize) {
        let mut ends = std::mem::take(&mut self.ends);
        if ends.last().copied().unwrap_or(0) < end {
            ends.push(end);
        }
        *self = Self { ends, at: end, ..Self::default() };
    }

    /// Adds a piece without a text.
    pub fn add_empty(&mut self, end: usize) {
        self.ends.push(end);
    }

    /// Reads what has come to the text since the last time.
    pub fn read(&mut self, source: &str) {
        while let Some((line, next)) = line_at(source, self.at) {
            self.decide(line, true);
            self.pass(line);
            (self.at, self.is_decided) = (next, false);
        }
        self.decide(source[self.at..].trim_end_matches('\r'), false);
    }

    /// Whether the text can be cut before this line.
    fn decide(&mut self, line: &str, is_complete: bool) {
        if self.is_decided || self.html == Html::Rest || self.fence.is_some() {
            return;
        }
        let begins = begins_block(line, is_complete);
        let may = match begins {
            None => return,
            Some(LineStart::Fence) => self.html == Html::None,
            Some(LineStart::Item) => self.is_after_blank && !self.is_in_list || self.is_after_fence,
            Some(LineStart::Other) => self.is_after_blank || self.is_after_fence,
            Some(LineStart::Blank | LineStart::Indented) => self.is_after_fence,
        };
        self.is_decided = true;
        if may && self.at - self.ends.last().copied().unwrap_or(0) >= MIN_PIECE_BYTES {
            self.ends.push(self.at);
        }
    }

    /// A complete line.
    fn pass(&mut self, line: &str) {
        let text = line.trim_start_matches(' ');
        let indent = line.len() - text.len();
        let blank = is_blank(text);
        self.is_after_fence = false;
        if self.fence.is_some_and(|open| open.is_in_list && indent == 0 && !blank) {
            self.fence = None;
        }
        if let Some(open) = self.fence {
            let marks = text.chars().take_while(|c| *c == open.mark).count();
            if indent < 4 && marks >= open.len && is_blank(&text[marks..]) {
                self.fence = None;
                self.is_after_fence = !open.is_indented;
                self.is_after_blank = false;
            }
            return;
        }
        if blank {
            self.is_after_blank = true;
            if self.html == Html::Paragraph {
                self.html = Html::None;
            }
            return;
        }
        let fence = if indent < 4 { fence_of(text) } else { None };
        match self.html {
            Html::Rest => {}
            // Whether it opens one depends on what the lines before it are.
            Html::Paragraph if fence.is_some() => self.html = Html::Rest,
            Html::Paragraph => {}
            Html::None if indent < 4 && text.starts_with('<') => {
                let name = text[1..].to_ascii_lowercase();
                let is_long = ["script", "pre", "style", "textarea", "!", "?"].iter().any(|tag| name.starts_with(tag));
                self.html = if is_long { Html::Rest } else { Html::Paragraph };
            }
            Html::None => {
                if let Some((mark, len, info)) = fence {
                    let is_plain = indent == 0 && !info.contains("artifact_deltas") && !info.contains(['\\', '&']);
                    self.is_in_list &= indent >= self.list_column;
                    let (is_indented, is_in_list) = (indent > 0, self.is_in_list);
                    self.fence = Some(OpenFence { mark, len, is_indented, is_in_list, is_plain });
                }
            }
        }
        match begins_block(line, true) {
            Some(LineStart::Item) => (self.is_in_list, self.list_column) = (true, column(text)),
            Some(LineStart::Other) if self.is_after_blank => self.is_in_list = false,
            Some(LineStart::Indented) if !self.is_in_list && indent < 4 && is_item(text, true) == Some(true) => {
                (self.is_in_list, self.list_column) = (true, indent + column(text));
            }
            _ => {}
        }
        self.is_after_blank = false;
    }
}

/// How a line begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineStart {
    Blank,
    Indented,
    Item,
    Fence,
    Other,
}

/// `None`: what there is of it is not enough to say.
fn begins_block(line: &str, is_complete: bool) -> Option<LineStart> {
    if is_blank(line) {
        return is_complete.then_some(LineStart::Blank);
    }
    if line.starts_with([' ', '\t']) {
        return Some(LineStart::Indented);
    }
    if line.starts_with(['`', '~']) {
        // A run of backticks may be code in a line, which only its end shows.
        return is_complete.then(|| if fence_of(line).is_some() { LineStart::Fence } else { LineStart::Other });
    }
    is_item(line, is_complete).map(|is| if is { LineStart::Item } else { LineStart::Other })
}

/// Whether a line is blank: other white space is text.
fn is_blank(line: &str) -> bool {
    line.trim_start_matches([' ', '\t']).is_empty()
}

/// Where the text of an item begins in its line.
fn column(item: &str) -> usize {
    let marker = item.chars().take_while(|c| !c.is_whitespace()).count();
    let spaces = item[marker..].chars().take_while(|c| *c == ' ').count();
    marker + if (1..5).contains(&spaces) { spaces } else { 1 }
}

/// Whether a line begins an item of a list.
fn is_item(line: &str, is_complete: bool) -> Option<bool> {
    let digits = line.chars().take_while(char::is_ascii_digit).count();
    let rest = match line.chars().next()? {
        '-' | '+' | '*' => &line[1..],
        _ if digits == 0 || digits > 9 => return Some(false),
        _ => match line[digits..].chars().next() {
            Some('.' | ')') => &line[digits + 1..],
            Some(_) => return Some(false),
            None => return is_complete.then_some(false),
        },
    };
    match rest.chars().next() {
        Some(next) => Some(next.is_whitespace()),
        None => is_complete.then_some(true),
    }
}

/// The fence that a line opens: its character, how many of them, and what stands behind them.
fn fence_of(line: &str) -> Option<(char, usize, &str)> {
    let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let len = line.chars().take_while(|c| *c == mark).count();
    let info = &line[len..];
    (len >= 3 && !(mark == '`' && info.contains('`'))).then_some((mark, len, info))
}

/// The complete line at `at` without its end, and where the next one begins. A carriage return that nothing follows yet
/// may be the first half of an end.
fn line_at(source: &str, at: usize) -> Option<(&str, usize)> {
    let rest = &source[at..];
    let end = rest.find(['\n', '\r'])?;
    let len = match &rest.as_bytes()[end..] {
        [b'\r', b'\n', ..] => 2,
        [b'\r'] => return None,
        _ => 1,
    };
    Some((&rest[..end], at + end + len))
}
