//! Takes a text apart as a POSIX shell would, as far as rules need to know: into the words of its commands, whatever they
//! are nested in. What cannot be known is said to be so.

use super::command::Word;

/// Text behind a brace that is searched for alternatives, bytes.
const MAX_BRACES_BYTES: usize = 256;

/// What one text consists of.
#[derive(Debug, Default)]
pub(super) struct Lexed {
    /// The words of each command.
    pub parts: Vec<Vec<Word>>,
    /// What stood in backticks: commands.
    pub substituted: Vec<String>,
    pub here_documents: Vec<HereDocument>,
    /// It has a list, a pipe, a redirection, a substitution, an assignment or a comment.
    pub is_compound: bool,
    /// Its end is missing, or a part of it is not understood.
    pub is_cut: bool,
}

/// The lines of a here-document.
#[derive(Debug)]
pub(super) struct HereDocument {
    pub text: String,
    /// Variables and substitutions in it are expanded.
    pub expands: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameKind {
    Top,
    /// `$( )`, `<( )`
    Substitution,
    /// `( )`
    Group,
    /// `$(( ))` is two of them.
    Arithmetic,
    /// `${ }`
    Parameter {
        in_quotes: bool,
    },
    /// The lines of a here-document.
    Here,
}

/// What is open.
#[derive(Debug)]
struct Frame {
    kind: FrameKind,
    words: Vec<Word>,
    word: Option<Word>,
    is_quoted: bool,
    /// `case` without its `esac`: a bracket ends a pattern.
    open_cases: usize,
    /// The next word is a file's name.
    drops_next_word: bool,
}

impl Frame {
    fn new(kind: FrameKind) -> Self {
        Self { kind, words: Vec::new(), word: None, is_quoted: false, open_cases: 0, drops_next_word: false }
    }

    /// Whether blanks and operators are text.
    fn is_text(&self) -> bool {
        self.is_quoted || matches!(self.kind, FrameKind::Parameter { .. } | FrameKind::Here)
    }
}

/// A here-document that begins at the next line.
struct Announced {
    delimiter: String,
    is_quoted: bool,
    strips_tabs: bool,
}

struct Lexer<'a> {
    rest: &'a str,
    /// What is open around `open`.
    outer: Vec<Frame>,
    open: Frame,
    announced: Vec<Announced>,
    lexed: Lexed,
}

/// The commands of a text, or of what is expanded in the lines of a here-document.
pub(super) fn read(text: &str, is_here: bool) -> Lexed {
    let kind = if is_here { FrameKind::Here } else { FrameKind::Top };
    let mut lexer =
        Lexer { rest: text, outer: Vec::new(), open: Frame::new(kind), announced: Vec::new(), lexed: Lexed::default() };
    while let Some(c) = lexer.next() {
        lexer.take(c);
    }
    lexer.lexed.is_cut |= !lexer.outer.is_empty() || lexer.open.is_quoted || !lexer.announced.is_empty();
    lexer.end_part();
    while lexer.close() {
        lexer.end_part();
    }
    lexer.lexed
}

impl Lexer<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = self.rest.get(c.len_utf8()..).unwrap_or_default();
        Some(c)
    }

    fn eat(&mut self, prefix: &str) -> bool {
        let rest = self.rest.strip_prefix(prefix);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn word(&mut self) -> &mut Word {
        self.open.word.get_or_insert_default()
    }

    fn begin(&mut self, kind: FrameKind) {
        let outer = std::mem::replace(&mut self.open, Frame::new(kind));
        self.outer.push(outer);
    }

    /// Goes on with what is around; `false` when nothing is.
    fn close(&mut self) -> bool {
        let Some(outer) = self.outer.pop() else { return false };
        self.open = outer;
        true
    }

    fn take(&mut self, c: char) {
        let (kind, is_quoted) = (self.open.kind, self.open.is_quoted);
        let is_parameter = matches!(kind, FrameKind::Parameter { .. });
        match c {
            '\\' => self.escape(),
            '"' if kind != FrameKind::Here => {
                self.open.is_quoted = !is_quoted;
                self.word();
            }
            '$' => self.expand(),
            '`' => self.substitute(),
            '}' if is_parameter && !is_quoted => drop(self.close()),
            '\'' if !is_quoted && kind != FrameKind::Here => self.quote(kind),
            c if self.open.is_text() => self.word().text.push(c),
            ' ' | '\t' => self.end_word(),
            '#' if self.open.word.is_none() => {
                self.lexed.is_compound = true;
                self.rest = self.rest.find('\n').and_then(|end| self.rest.get(end..)).unwrap_or_default();
            }
            '(' => {
                self.end_part();
                self.lexed.is_compound = true;
                self.begin(FrameKind::Group);
            }
            ')' => {
                self.end_part();
                self.lexed.is_compound = true;
                if self.open.open_cases == 0 && !self.close() {
                    self.lexed.is_cut = true;
                }
            }
            ';' | '&' | '|' | '\n' => {
                self.end_part();
                self.lexed.is_compound = true;
                if c == '\n' {
                    self.take_here_documents();
                }
            }
            '<' | '>' => self.redirect(c),
            '\r' | '\0' => {
                self.lexed.is_compound = true;
                self.word().text.push(c);
            }
            c => {
                let is_glob = match c {
                    '*' | '?' | '[' => true,
                    '{' => {
                        let near = crate::text::head(self.rest, MAX_BRACES_BYTES);
                        let word = near.split([' ', '\t', '\n']).next().unwrap_or_default();
                        // What is longer is taken for one.
                        near.len() == MAX_BRACES_BYTES || word.contains(',') || word.contains("..")
                    }
                    '~' => self.open.word.is_none(),
                    _ => false,
                };
                let word = self.word();
                word.is_glob |= is_glob;
                word.text.push(c);
            }
        }
    }

    fn escape(&mut self) {
        let is_quoted = self.open.is_quoted || self.open.kind == FrameKind::Here;
        match self.next() {
            Some('\n') => {}
            Some(next) => {
                let stays = is_quoted && !"$`\"\\".contains(next);
                let word = self.word();
                if stays {
                    word.text.push('\\');
                }
                word.text.push(next);
            }
            None => self.lexed.is_cut = true,
        }
    }

    fn expand(&mut self) {
        self.lexed.is_compound = true;
        let in_quotes = match self.open.kind {
            FrameKind::Parameter { in_quotes } => in_quotes || self.open.is_quoted,
            kind => kind == FrameKind::Here || self.open.is_quoted,
        };
        let word = self.word();
        word.is_expanded = true;
        word.text.push('$');
        if self.eat("((") {
            self.begin(FrameKind::Arithmetic);
            self.begin(FrameKind::Arithmetic);
        } else if self.eat("(") {
            self.begin(FrameKind::Substitution);
        } else if self.eat("{") {
            self.begin(FrameKind::Parameter { in_quotes });
        } else if self.rest.starts_with('\'') && !self.open.is_text() {
            // `$'…'` knows more escapes than are read here.
            self.lexed.is_cut = true;
        }
    }

    fn substitute(&mut self) {
        self.lexed.is_compound = true;
        let is_quoted = self.open.is_quoted;
        self.word().is_expanded = true;
        let mut text = String::new();
        loop {
            match self.next() {
                Some('`') => break,
                Some('\\') => {
                    let mut rest = self.rest.chars();
                    match rest.next() {
                        Some(next) if "`$\\".contains(next) || is_quoted && next == '"' => {
                            text.push(next);
                            self.next();
                        }
                        _ => text.push('\\'),
                    }
                }
                Some(c) => text.push(c),
                None => {
                    self.lexed.is_cut = true;
                    break;
                }
            }
        }
        self.lexed.substituted.push(text);
    }

    fn quote(&mut self, kind: FrameKind) {
        // What it means there differs between shells.
        self.lexed.is_cut |= kind == FrameKind::Parameter { in_quotes: true };
        let (text, rest) = match self.rest.split_once('\'') {
            Some((text, rest)) => (text, rest),
            None => {
                self.lexed.is_cut = true;
                (self.rest, "")
            }
        };
        self.word().text.push_str(text);
        self.rest = rest;
    }

    fn end_word(&mut self) {
        if let Some(word) = self.open.word.take()
            && !std::mem::take(&mut self.open.drops_next_word)
        {
            self.open.words.push(word);
        }
    }

    fn end_part(&mut self) {
        self.end_word();
        self.open.drops_next_word = false;
        let words = std::mem::take(&mut self.open.words);
        let Some(first) = words.first() else { return };
        match words.iter().find(|word| !word.is_keyword()).map(|word| word.text.as_str()) {
            Some("case") => self.open.open_cases += 1,
            Some("esac") => self.open.open_cases = self.open.open_cases.saturating_sub(1),
            _ => {}
        }
        let is_number = self.open.kind == FrameKind::Arithmetic && first.hides_text();
        if self.open.kind != FrameKind::Here && !is_number {
            self.lexed.is_compound |= first.is_assignment();
            self.lexed.parts.push(words);
        }
    }

    fn redirect(&mut self, c: char) {
        self.lexed.is_compound = true;
        if self.eat("(") {
            self.word().is_expanded = true;
            self.begin(FrameKind::Substitution);
            return;
        }
        let is_number = |word: &Word| !word.text.is_empty() && word.text.bytes().all(|byte| byte.is_ascii_digit());
        if self.open.word.as_ref().is_some_and(is_number) {
            self.open.word = None;
        }
        self.end_word();
        // A here-string is one more word.
        if c == '<' && self.eat("<<") {
            return;
        }
        if c == '<' && self.eat("<") {
            self.announce();
            return;
        }
        self.rest = self.rest.trim_start_matches(['>', '&', '|']);
        self.open.drops_next_word = true;
    }

    /// A here-document begins at the next line.
    fn announce(&mut self) {
        let strips_tabs = self.eat("-");
        self.rest = self.rest.trim_start_matches([' ', '\t']);
        let (mut delimiter, mut is_quoted) = (String::new(), false);
        while let Some(c) = self.rest.chars().next().filter(|c| !" \t\n;&|<>()".contains(*c)) {
            self.next();
            match c {
                '\'' | '"' => {
                    is_quoted = true;
                    let (text, rest) = self.rest.split_once(c).unwrap_or((self.rest, ""));
                    delimiter.push_str(text);
                    self.rest = rest;
                }
                '\\' => {
                    is_quoted = true;
                    delimiter.extend(self.next());
                }
                c => delimiter.push(c),
            }
        }
        self.announced.push(Announced { delimiter, is_quoted, strips_tabs });
    }

    fn take_here_documents(&mut self) {
        for Announced { delimiter, is_quoted, strips_tabs } in std::mem::take(&mut self.announced) {
            let mut text = String::new();
            while !self.rest.is_empty() {
                let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
                self.rest = rest;
                let shown = if strips_tabs { line.trim_start_matches('\t') } else { line };
                if shown == delimiter {
                    break;
                }
                text.push_str(line);
                text.push('\n');
            }
            self.lexed.here_documents.push(HereDocument { text, expands: !is_quoted });
        }
    }
}
