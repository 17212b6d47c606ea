//! A command line as rules see it: every place where a program may be named, however it is nested or wrapped.

use std::collections::{BTreeSet, VecDeque};

use super::{
    lexer,
    programs::{self, ProgramKind},
};

/// Texts of a command line that are read, itself among them, and their bytes beyond four times its own, before the rest is
/// taken as unknown.
const MAX_READ_TEXTS: usize = 512;
const MAX_EXTRA_BYTES: usize = 64 * 1024;
/// Words of the shell's own that stand before a command.
const KEYWORDS: &[&str] = &["!", "{", "}", "do", "done", "elif", "else", "fi", "if", "then", "until", "while"];
/// The same, behind which a name comes first.
const NAMING_KEYWORDS: &[&str] = &["function", "coproc"];
/// What stands behind these is no command.
const HEADERS: &[&str] = &["case", "for", "select", "in", "esac"];
/// Programs that look like patterns for files.
const TESTS: &[&str] = &["[", "[[", "{}"];

/// A word behind quotes and backslashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    pub text: String,
    /// A variable or another command is a part of it.
    pub is_expanded: bool,
    /// Names of files, a home or several words may stand for it.
    pub is_glob: bool,
}

impl Word {
    pub fn hides_text(&self) -> bool {
        self.is_expanded || self.is_glob
    }

    pub fn is_assignment(&self) -> bool {
        self.text.split_once('=').is_some_and(|(name, _)| {
            let name = name.strip_suffix('+').unwrap_or(name);
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(is_part)
        })
    }

    pub fn is_keyword(&self) -> bool {
        KEYWORDS.contains(&self.text.as_str()) || NAMING_KEYWORDS.contains(&self.text.as_str())
    }
}

/// How a text of a command line is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextKind {
    Commands,
    /// Only what is expanded in it.
    Here,
    /// In a language that is not read: any word of it may name a program.
    Foreign,
}

/// The words of one command, or of a text in a language that is not read.
#[derive(Clone, Debug)]
struct Part {
    words: Vec<Word>,
    is_foreign: bool,
}

/// The commands of a command line.
#[derive(Clone, Debug)]
pub(super) struct CommandLine {
    parts: Vec<Part>,
    /// Where a program is named: the part, the word, and whether nothing else can stand there.
    places: Vec<(usize, usize, bool)>,
    /// It is one command and nothing else.
    is_simple: bool,
    /// It was read to its end.
    is_whole: bool,
}

/// A place where a program is named.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandStart<'a> {
    pub words: &'a [Word],
    /// Nothing else can stand there.
    pub is_sure: bool,
}

impl CommandLine {
    pub fn read(text: &str) -> Self {
        let end = text.trim_end_matches('\n');
        // A backslash joins the next line, were it empty.
        let text = if end.ends_with('\\') { text } else { end };
        let mut line = Self { parts: Vec::new(), places: Vec::new(), is_simple: false, is_whole: true };
        let mut texts = VecDeque::from([(text.to_owned(), TextKind::Commands)]);
        let (mut read, mut room) = (0, text.len().saturating_mul(4).saturating_add(MAX_EXTRA_BYTES));
        while let Some((text, kind)) = texts.pop_front() {
            if read == MAX_READ_TEXTS || text.len() > room {
                line.is_whole = false;
                break;
            }
            room -= text.len();
            if kind == TextKind::Foreign {
                line.parts.push(Part { words: foreign_words(&text), is_foreign: true });
            } else {
                let lexed = lexer::read(&text, kind == TextKind::Here);
                line.is_whole &= !lexed.is_cut;
                if read == 0 {
                    line.is_simple = !lexed.is_compound && lexed.parts.len() == 1;
                }
                line.take(lexed, &text, &mut texts);
            }
            read += 1;
        }
        for (n, part) in line.parts.iter().enumerate() {
            let sure = if part.is_foreign { BTreeSet::new() } else { sure_starts(&part.words) };
            if may_begin_anywhere(part, &sure) {
                line.places.extend((0..part.words.len()).map(|at| (n, at, sure.contains(&at))));
            } else {
                line.places.extend(sure.into_iter().map(|at| (n, at, true)));
            }
        }
        line
    }

    /// The words of the one simple command that it is, if it is one.
    pub fn only_command(&self) -> Option<&[Word]> {
        let words = &self.parts.first().filter(|_| self.is_simple && self.is_whole)?.words;
        let is_named = words.first().is_some_and(|word| {
            !word.hides_text() && !word.is_assignment() && !word.is_keyword() && !HEADERS.contains(&word.text.as_str())
        });
        is_named.then_some(words)
    }

    /// The words of the pattern that it is, in which `*` and `**` stand for themselves.
    pub fn pattern(&self) -> Option<&[Word]> {
        let words = &self.parts.first().filter(|_| self.is_simple && self.is_whole)?.words;
        let is_named = words.first().is_some_and(|word| !word.is_assignment());
        (is_named && !words.iter().any(|word| word.is_expanded)).then_some(words)
    }

    /// Each place where a program is named, or may be.
    pub fn starts(&self) -> impl Iterator<Item = CommandStart<'_>> {
        self.places.iter().filter_map(|(part, at, is_sure)| {
            let words = self.parts.get(*part)?.words.get(*at..)?;
            Some(CommandStart { words, is_sure: *is_sure })
        })
    }

    /// Whether a program is run whose name cannot be read.
    pub fn hides_a_name(&self) -> bool {
        let is_hidden = |word: &Word| word.hides_text() && !TESTS.contains(&word.text.as_str());
        let hides = |words: &[Word]| {
            words.first().is_some_and(is_hidden) || reads_commands(words) || programs::is_git_in_disguise(words)
        };
        !self.is_whole || self.starts().any(|start| start.is_sure && hides(start.words))
    }

    /// Adds what a text consists of; what is to be read as well is queued.
    fn take(&mut self, lexed: lexer::Lexed, text: &str, texts: &mut VecDeque<(String, TextKind)>) {
        texts.extend(lexed.substituted.into_iter().map(|inner| (inner, TextKind::Commands)));
        let mut input = None;
        for words in lexed.parts {
            for at in sure_starts(&words) {
                let own = words.get(at..).unwrap_or_default();
                let Some(kind) = text_kind(own) else { continue };
                input = input.max(Some(kind == TextKind::Commands));
                texts.extend(inner_texts(own, kind).into_iter().filter(|(inner, _)| inner != text));
            }
            self.parts.push(Part { words, is_foreign: false });
        }
        for document in lexed.here_documents {
            match input {
                Some(true) => texts.push_back((document.text, TextKind::Commands)),
                Some(false) => texts.push_back((document.text, TextKind::Foreign)),
                None if document.expands => texts.push_back((document.text, TextKind::Here)),
                None => {}
            }
        }
    }
}

/// Where in the words of one command a program stands: behind assignments, the shell's own words, and wrappers with their
/// options.
fn sure_starts(words: &[Word]) -> BTreeSet<usize> {
    let is_lead = |word: &&Word| word.is_assignment() || word.is_keyword();
    let lead = words.iter().take_while(is_lead).count();
    let mut found = BTreeSet::new();
    let mut open = vec![lead];
    if words.get(..lead).unwrap_or_default().iter().any(|word| NAMING_KEYWORDS.contains(&word.text.as_str())) {
        open.push(lead + 1);
    }
    while let Some(at) = open.pop() {
        let Some(program) = words.get(at).filter(|word| !HEADERS.contains(&word.text.as_str())) else { continue };
        if program.is_keyword() {
            open.push(at + 1);
            continue;
        }
        if !found.insert(at) {
            continue;
        }
        match programs::kind(&program.text) {
            ProgramKind::Wrapper if !only_asks(words, at) => {
                open.extend(behind_options(words, at + 1));
            }
            ProgramKind::Find => {
                let is_exec = |word: &Word| matches!(word.text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir");
                open.extend((at + 1..words.len()).filter(|next| words.get(next - 1).is_some_and(is_exec)));
            }
            _ => {}
        }
        if let Some(behind) = words.get(at..).and_then(programs::run_behind) {
            open.extend(behind_options(words, at + behind));
        }
    }
    found
}

/// Whether `command` says where a program lies, and runs none.
fn only_asks(words: &[Word], at: usize) -> bool {
    let text = |at: usize| words.get(at).map(|word| word.text.as_str());
    text(at) == Some("command") && matches!(text(at + 1), Some("-v" | "-V"))
}

/// Where a wrapper's program may stand: behind options, each with a word that may belong to it, assignments and numbers.
fn behind_options(words: &[Word], from: usize) -> BTreeSet<usize> {
    const MAX_PLACES: usize = 32;
    let (mut found, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(at) = open.pop() {
        let Some(word) = words.get(at) else { continue };
        if found.len() == MAX_PLACES || !found.insert(at) {
            continue;
        }
        if word.text.starts_with('-') {
            open.extend([at + 1, at + 2]);
        } else if word.is_assignment() || word.text.starts_with(|c: char| c.is_ascii_digit()) {
            open.push(at + 1);
        }
    }
    found
}

/// Whether any word of these may name a program.
fn may_begin_anywhere(part: &Part, sure: &BTreeSet<usize>) -> bool {
    part.is_foreign
        || sure.iter().filter_map(|at| Some((*at, part.words.get(*at)?))).any(|(at, word)| {
            match programs::kind(&word.text) {
                ProgramKind::Wrapper => !only_asks(&part.words, at),
                ProgramKind::Container => part.words.iter().any(|word| matches!(word.text.as_str(), "run" | "exec")),
                _ => part.words.get(at..).is_some_and(|words| programs::run_behind(words).is_some()),
            }
        })
}

/// How the texts are read that a program is given; `None` when it runs none.
fn text_kind(words: &[Word]) -> Option<TextKind> {
    match programs::kind(&words.first()?.text) {
        ProgramKind::Interpreter => Some(TextKind::Foreign),
        _ if programs::run_behind(words).is_some() => Some(TextKind::Commands),
        ProgramKind::Plain | ProgramKind::Container | ProgramKind::Find => None,
        ProgramKind::Wrapper | ProgramKind::Shell => Some(TextKind::Commands),
    }
}

/// Texts among the arguments of a program that may be commands.
fn inner_texts(words: &[Word], kind: TextKind) -> Vec<(String, TextKind)> {
    let is_text = |text: &str| text.contains([' ', ';', '&', '|', '\n', '(', '\t', '`', '$']);
    let mut found = Vec::new();
    for pair in words.windows(2) {
        let [before, word] = pair else { continue };
        let is_given = before.text.starts_with('-') && before.text.ends_with(['c', 'e', 'S']);
        if is_text(&word.text) || is_given && !word.text.starts_with('-') {
            found.push((word.text.clone(), kind));
        }
        let attached = ["-S", "-c", "-e"].iter().find_map(|option| word.text.strip_prefix(option));
        let behind = word.text.split_once('=').map(|(_, text)| text);
        found.extend(
            [attached, behind]
                .into_iter()
                .flatten()
                .filter(|text| !text.is_empty())
                .map(|text| (text.to_owned(), kind)),
        );
    }
    found
}

/// Whether a program takes its commands from its input.
fn reads_commands(words: &[Word]) -> bool {
    let Some((program, arguments)) = words.split_first() else { return false };
    let is_option = |word: &Word| word.text.starts_with('-');
    match programs::kind(&program.text) {
        ProgramKind::Shell => {
            let asks = |word: &Word| matches!(word.text.as_str(), "--version" | "--help") || word.text.contains('c');
            arguments.iter().all(is_option) && !arguments.iter().any(asks)
        }
        ProgramKind::Interpreter => arguments.is_empty() || arguments.iter().all(|word| word.text == "-"),
        _ => false,
    }
}

/// The words of a text in another language, whatever stands between them.
fn foreign_words(text: &str) -> Vec<Word> {
    let is_between = |c: char| !(c.is_ascii_alphanumeric() || "_./+-".contains(c));
    let words = text.split(is_between).filter(|word| !word.is_empty());
    words.map(|word| Word { text: word.to_owned(), ..Word::default() }).collect()
}
