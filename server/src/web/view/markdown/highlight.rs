//! Code with classes for the style sheet: a handful of kinds, bounded in time and size.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt::{self, Write},
    sync::LazyLock,
    time::{Duration, Instant},
};

use comrak::adapters::SyntaxHighlighterAdapter;
use syntect::{
    parsing::{ParseState, Scope, ScopeStack, SyntaxReference, SyntaxSet},
    util::LinesWithEndings,
};

/// The classes that code may carry; the style sheet knows exactly these.
pub(super) const CLASSES: &[&str] =
    &["hl-comment", "hl-string", "hl-number", "hl-keyword", "hl-name", "hl-add", "hl-del"];

/// Longest block that is highlighted, bytes.
const MAX_BLOCK_BYTES: usize = 24 * 1024;
/// A longer line ends the highlighting of its block: minified code is not for reading.
const MAX_LINE_BYTES: usize = 2_000;
/// Time for all blocks of one text; later blocks stay plain. It is far more than blocks within the limits take, so
/// that a text always looks the same, and less than a reader would notice.
const TIME_BUDGET: Duration = Duration::from_millis(700);

static SYNTAXES: LazyLock<SyntaxSet> = LazyLock::new(SyntaxSet::load_defaults_newlines);

/// Scopes by the class they get; the innermost match of a token decides.
static CLASS_BY_SCOPE: LazyLock<Vec<(Scope, &'static str)>> = LazyLock::new(|| {
    let words = [
        ("comment", CLASSES[0]),
        ("string", CLASSES[1]),
        ("constant.numeric", CLASSES[2]),
        ("constant.language", CLASSES[2]),
        ("keyword.operator", ""),
        ("keyword", CLASSES[3]),
        ("storage", CLASSES[3]),
        ("entity.name", CLASSES[4]),
        ("markup.inserted", CLASSES[5]),
        ("markup.deleted", CLASSES[6]),
    ];
    words.iter().filter_map(|(scope, class)| Some((Scope::new(scope).ok()?, *class))).collect()
});

/// Highlights the blocks of one text within one budget of time.
pub(super) struct Highlighter {
    colours: bool,
    until: Instant,
}

impl Highlighter {
    /// Without `colours` code stays plain.
    pub(super) fn new(colours: bool) -> Self {
        if colours {
            LazyLock::force(&SYNTAXES);
        }
        Self { colours, until: Instant::now() + TIME_BUDGET }
    }

    fn block(&self, out: &mut dyn Write, syntax: &SyntaxReference, code: &str) -> fmt::Result {
        let (mut state, mut stack) = (ParseState::new(syntax), ScopeStack::new());
        let mut pen = Pen { out, class: "" };
        let mut rest = code;
        for line in LinesWithEndings::from(code) {
            if line.len() > MAX_LINE_BYTES || Instant::now() > self.until {
                break;
            }
            let Ok(ops) = state.parse_line(line, &SYNTAXES) else { break };
            let mut from = 0;
            for (at, op) in ops {
                pen.write(&line[from..at], class(&stack))?;
                from = at;
                if stack.apply(&op).is_err() {
                    return pen.write(&rest[from..], "").and_then(|()| pen.switch(""));
                }
            }
            pen.write(&line[from..], class(&stack))?;
            rest = &rest[line.len()..];
        }
        pen.write(rest, "").and_then(|()| pen.switch(""))
    }
}

/// Writes text, changing the class only where it changes.
struct Pen<'a> {
    out: &'a mut dyn Write,
    class: &'static str,
}

impl Pen<'_> {
    fn write(&mut self, text: &str, class: &'static str) -> fmt::Result {
        if text.is_empty() {
            return Ok(());
        }
        if !text.trim().is_empty() {
            self.switch(class)?;
        }
        escape(self.out, text)
    }

    fn switch(&mut self, class: &'static str) -> fmt::Result {
        if class == self.class {
            return Ok(());
        }
        if !self.class.is_empty() {
            self.out.write_str("</span>")?;
        }
        self.class = class;
        if class.is_empty() { Ok(()) } else { write!(self.out, "<span class=\"{class}\">") }
    }
}

fn class(stack: &ScopeStack) -> &'static str {
    let kind =
        |scope: &Scope| CLASS_BY_SCOPE.iter().find(|(kind, _)| kind.is_prefix_of(*scope)).map(|(_, class)| *class);
    stack.as_slice().iter().rev().find_map(kind).unwrap_or("")
}

fn escape(out: &mut dyn Write, text: &str) -> fmt::Result {
    comrak::html::escape(out, text)
}

/// The block's language by the name a model gives it.
fn syntax(lang: &str) -> Option<&'static SyntaxReference> {
    let token = match lang {
        "ts" | "tsx" | "typescript" | "jsx" | "mjs" => "js",
        "console" | "shell" | "zsh" | "shell-session" => "sh",
        "jsonc" | "json5" => "json",
        "c++" => "cpp",
        "toml" | "ini" => "properties",
        other => other,
    };
    SYNTAXES.find_syntax_by_token(token).filter(|syntax| syntax.name != "Plain Text")
}

/// A language name as an attribute may carry it.
fn label(lang: &str) -> &str {
    let end =
        lang.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '#' | '.'))).unwrap_or(lang.len());
    &lang[..end.min(24)]
}

impl SyntaxHighlighterAdapter for Highlighter {
    fn write_highlighted(&self, out: &mut dyn Write, lang: Option<&str>, code: &str) -> fmt::Result {
        match lang.map(label).filter(|_| self.colours).and_then(syntax) {
            Some(syntax) if code.len() <= MAX_BLOCK_BYTES => self.block(out, syntax, code),
            _ => escape(out, code),
        }
    }

    fn write_pre_tag(&self, out: &mut dyn Write, attributes: HashMap<&'static str, Cow<'_, str>>) -> fmt::Result {
        match attributes.get("lang").map(|lang| label(lang)).filter(|lang| !lang.is_empty()) {
            Some(lang) => write!(out, "<pre tabindex=\"0\" data-lang=\"{lang}\">"),
            None => out.write_str("<pre tabindex=\"0\">"),
        }
    }

    fn write_code_tag(&self, out: &mut dyn Write, _: HashMap<&'static str, Cow<'_, str>>) -> fmt::Result {
        out.write_str("<code>")
    }
}
