//! The front matter of a skill's file: YAML within bounds or, where people wrote none, `key: text` line by line.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_saphyr::{Error as YamlError, Spanned};

use crate::{
    ConfigError,
    agent::is_id,
    yaml::{brief_error, parse_bounded},
};

/// Largest front matter, bytes.
const MAX_FRONT_MATTER_BYTES: usize = 32 * 1024;
/// Most brackets that are open at a time.
const MAX_NESTING: usize = 32;
/// Most keys that are read line by line.
const MAX_LINE_KEYS: usize = 128;
/// Keys whose values have parts. As text they would mean nothing.
const STRUCTURED_KEYS: [&str; 2] = ["parameters", "requires"];

/// The two parts of a skill's file.
#[derive(Debug)]
pub struct FrontMatter<'t> {
    pub entries: BTreeMap<String, FrontValue>,
    pub body: &'t str,
    pub warnings: Vec<String>,
    /// The front matter, between the lines that enclose it.
    pub text: &'t str,
}

/// A value, and where it stands.
#[derive(Debug)]
pub struct FrontValue {
    pub value: Value,
    /// In the file, from 1.
    pub line: u32,
}

type ReadEntries = BTreeMap<String, Spanned<Value>>;

impl<'t> FrontMatter<'t> {
    /// Takes the text of `file` apart.
    pub fn read(text: &'t str, file: &str) -> Result<Self, ConfigError> {
        let wrong = |line: u32, message: String| ConfigError { file: file.to_owned(), line, message };
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let (front, body) = split(text).map_err(|why| wrong(1, why.to_owned()))?;
        if front.len() > MAX_FRONT_MATTER_BYTES {
            return Err(wrong(1, format!("the front matter is larger than {} KiB", MAX_FRONT_MATTER_BYTES / 1024)));
        }
        if nesting(front) > MAX_NESTING {
            return Err(wrong(1, format!("the front matter is nested more than {MAX_NESTING} levels deep")));
        }
        let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
        if front.lines().all(is_blank) {
            return Err(wrong(1, "expected `name` and `description` between the lines `---`".to_owned()));
        }
        // With the line before it, the parser counts lines as the file does.
        match parse_bounded::<ReadEntries>(&format!("---\n{front}")) {
            Ok(entries) => Ok(Self { entries: located(entries, 0), body, warnings: Vec::new(), text: front }),
            Err(error) if is_syntax(&error) => {
                let mut warnings = Vec::new();
                let entries = by_lines(front, file, &mut warnings)?;
                Ok(Self { entries, body, warnings, text: front })
            }
            Err(error) => Err(brief_error(&error, file)),
        }
    }
}

/// The text between two lines `---`, of which the first begins the file, and what follows them.
fn split(text: &str) -> Result<(&str, &str), &'static str> {
    let is_fence = |line: &str| line.trim_end() == "---";
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().filter(|line| is_fence(line));
    let first = first.ok_or("expected `---` and front matter with `name` and `description`")?;
    let mut end = first.len();
    for line in lines {
        if is_fence(line) {
            return Ok((&text[first.len()..end], &text[end + line.len()..]));
        }
        end += line.len();
    }
    Err("expected a line `---` at the end of the front matter")
}

/// A title as a name: `Agent Browser` becomes `agent-browser`. Anything else stays as it is, names among it.
pub fn plain_name(written: &str) -> String {
    let words: Vec<&str> = written.split(' ').collect();
    let is_word = |word: &&str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let is_title = !is_id(written) && words.iter().all(is_word);
    if is_title { words.join("-").to_ascii_lowercase() } else { written.to_owned() }
}

/// How many brackets are open at a time, at most; those in text count, too.
fn nesting(front: &str) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    for byte in front.bytes() {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}

fn located(entries: ReadEntries, before: u32) -> BTreeMap<String, FrontValue> {
    let located = entries.into_iter().map(|(key, spanned)| {
        let line = before + u32::try_from(spanned.referenced.line()).unwrap_or(0);
        (key, FrontValue { value: spanned.value, line })
    });
    located.collect()
}

/// Whether the text is no YAML, as opposed to YAML that is refused.
fn is_syntax(error: &YamlError) -> bool {
    matches!(
        error.without_snippet(),
        YamlError::ExternalMessage { .. }
            | YamlError::Eof { .. }
            | YamlError::Unexpected { .. }
            | YamlError::UnknownAnchor { .. }
    )
}

/// A key at the beginning of a line, with the lines that belong to it.
struct LineEntry<'t> {
    key: &'t str,
    /// Line of the file.
    line: u32,
    text: String,
}

fn by_lines(front: &str, file: &str, warnings: &mut Vec<String>) -> Result<BTreeMap<String, FrontValue>, ConfigError> {
    let mut entries: BTreeMap<String, FrontValue> = BTreeMap::new();
    for LineEntry { key, line, text } in line_entries(front, file)? {
        let wrong = |message: String| ConfigError { file: file.to_owned(), line, message };
        if entries.contains_key(key) {
            return Err(wrong(format!("the key {key:?} occurs twice")));
        }
        match parse_bounded::<ReadEntries>(&text) {
            Ok(read) => entries.extend(located(read, line - 1)),
            Err(error) if is_syntax(&error) && !STRUCTURED_KEYS.contains(&key) => {
                warnings.push(format!("line {line}: {key} is not valid YAML and is read as text"));
                entries.insert(key.to_owned(), FrontValue { value: Value::String(plain_text(&text)), line });
            }
            Err(error) => {
                let error = brief_error(&error, file);
                return Err(ConfigError { line: error.line + line - 1, ..error });
            }
        }
    }
    Ok(entries)
}

fn line_entries<'t>(front: &'t str, file: &str) -> Result<Vec<LineEntry<'t>>, ConfigError> {
    let mut entries: Vec<LineEntry<'t>> = Vec::new();
    for (n, text) in front.lines().enumerate() {
        // The line `---` comes first.
        let line = u32::try_from(n).unwrap_or(u32::MAX - 2) + 2;
        let is_continued = text.trim().is_empty() || text.starts_with([' ', '\t', '#', '-', ']', '}']);
        let wrong = |message: &str| ConfigError { file: file.to_owned(), line, message: message.to_owned() };
        match (key_of(text), entries.last_mut()) {
            (Some(key), _) if !is_continued => entries.push(LineEntry { key, line, text: format!("{text}\n") }),
            (_, Some(entry)) if is_continued => entry.text.push_str(&format!("{text}\n")),
            (_, None) if is_continued => {}
            _ => return Err(wrong("expected `key: value`")),
        }
        if entries.len() > MAX_LINE_KEYS {
            return Err(wrong(&format!("more than {MAX_LINE_KEYS} keys")));
        }
    }
    Ok(entries)
}

fn key_of(line: &str) -> Option<&str> {
    let (key, rest) = line.split_once(':')?;
    let is_key = key.starts_with(|c: char| c.is_ascii_alphabetic())
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    (is_key && (rest.is_empty() || rest.starts_with([' ', '\t', '\r']))).then_some(key)
}

/// What stands behind the key, its lines joined, without quotes around all of it.
fn plain_text(entry: &str) -> String {
    let value = entry.split_once(':').map_or("", |(_, value)| value);
    let lines: Vec<&str> = value.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = lines.join(" ");
    let unquoted = ['"', '\''].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote));
    unquoted.map(str::to_owned).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values(text: &str) -> Value {
        let read = FrontMatter::read(text, "SKILL.md").expect("front matter");
        read.entries.into_iter().map(|(key, found)| (key, found.value)).collect()
    }

    fn error(text: &str) -> (u32, String) {
        let error = FrontMatter::read(text, "SKILL.md").expect_err("a mistake");
        (error.line, error.message)
    }

    #[test]
    fn yaml_keeps_the_lines_of_the_file() {
        let read = FrontMatter::read("---\nname: a\nmetadata:\n  x: [1, true]\n---\nBody\n---\n", "f").expect("good");
        assert_eq!(read.body, "Body\n---\n");
        assert_eq!((read.entries["name"].line, &read.entries["metadata"].value), (2, &json!({ "x": [1, true] })));
        assert!(read.warnings.is_empty());
        assert_eq!(values("\u{feff}---\r\nname: a\r\n---\r\n"), json!({ "name": "a" }));
    }

    #[test]
    fn what_is_no_yaml_is_read_line_by_line() {
        let text = "---\nname: a\ndescription: Use when: you must\n  and here\nversion: 1\ntags: [a,\n  b]\n---\n";
        let read = FrontMatter::read(text, "f").expect("good");
        assert_eq!(read.entries["description"].value, "Use when: you must and here");
        assert_eq!(read.entries["tags"].value, json!(["a", "b"]));
        assert_eq!(read.entries["description"].line, 3);
        assert!(read.warnings[0].starts_with("line 3: description"), "{:?}", read.warnings);
        assert_eq!(values("---\nname: a\ndescription: \"x: y\" z\n---\n")["description"], "\"x: y\" z");
        assert_eq!(values("---\nname: a\ndescription: *bold* words\n---\n")["description"], "*bold* words");
    }

    #[test]
    fn a_title_becomes_a_name_and_nothing_else_does() {
        assert_eq!(plain_name("Agent Browser"), "agent-browser");
        for kept in ["Mixed_Case-1", "a", "", "trailing ", "../a b", "a\u{2215}b"] {
            assert_eq!(plain_name(kept), kept);
        }
    }

    #[test]
    fn structures_are_not_read_as_text() {
        let (line, _) = error("---\nname: a\ndescription: b: c\nparameters:\n  x: y: z\n---\n");
        assert_eq!(line, 5);
        assert_eq!(error("---\nname: a: b\nname: c\n---\n"), (3, "the key \"name\" occurs twice".to_owned()));
    }

    #[test]
    fn the_fences_are_named_when_they_are_missing() {
        assert!(error("# Title\n").1.contains("---"));
        assert!(error("---\nname: a\n").1.contains("end of the front matter"));
        assert!(error("---\n# nothing\n---\n").1.contains("name"));
        assert!(error(&format!("---\nname: {}\n---\n", "x".repeat(40_000))).1.contains("32 KiB"));
    }

    #[test]
    fn a66_bombs_are_refused_within_bounds() {
        let mut bomb = "---\na: &a [x,x,x,x,x,x,x,x,x]\n".to_owned();
        for n in 0..9 {
            let (this, last) = ((b'b' + n) as char, (b'a' + n) as char);
            bomb.push_str(&format!("{this}: &{this} [{}]\n", vec![format!("*{last}"); 9].join(",")));
        }
        let deep = format!("---\nname: a\nmetadata: {}{}\n---\n", "[".repeat(5_000), "]".repeat(5_000));
        let begun = std::time::Instant::now();
        for text in [format!("{bomb}---\n"), deep, "---\nname: a\nname: b\n---\n".to_owned()] {
            error(&text);
        }
        error("---\nname: !!python/object:os.system a\n---\n");
        assert!(begun.elapsed() < std::time::Duration::from_secs(1));
        assert_eq!(values("---\ny: 1\non: 2\nname: n\n---\n"), json!({ "y": 1, "on": 2, "name": "n" }));
    }
}
