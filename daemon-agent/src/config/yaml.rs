//! One YAML file: bounded reading, typed parsing, and errors with file, line and snippet.

use std::{
    io::{ErrorKind, Read},
    path::Path,
};

use protocol::ConfigError;
use rustix::fs::OFlags;
use serde::de::DeserializeOwned;
use serde_saphyr::{Location, Spanned};

use crate::home::open_plain;

/// Largest file that is read, bytes: nobody writes larger ones by hand.
const MAX_FILE_BYTES: u64 = 256 * 1024;

/// A file's text, and its name below the home.
pub struct YamlFile {
    name: String,
    text: String,
}

impl YamlFile {
    /// Reads `path`, which errors call `name`; `None` if there is no such file.
    pub fn read(path: &Path, name: &str) -> Result<Option<Self>, ConfigError> {
        let whole = |message: String| ConfigError { file: name.to_owned(), line: 0, message };
        let file = match open_plain(path, OFlags::empty()) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == ErrorKind::InvalidInput => return Err(whole(error.to_string())),
            Err(error) => return Err(whole(format!("cannot be read: {error}"))),
        };
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| whole(format!("cannot be read: {error}")))?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(whole(format!("is larger than {} KiB", MAX_FILE_BYTES / 1024)));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
            ConfigError { line: line as u32, ..whole("is not UTF-8".to_owned()) }
        })?;
        Ok(Some(Self { name: name.to_owned(), text }))
    }

    /// A text that is not in a file yet.
    pub fn of(text: String, name: &str) -> Self {
        Self { name: name.to_owned(), text }
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Parses the file as `T`; an empty file is an empty mapping.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        let nothing = self.text.lines().all(|line| {
            let line = line.trim();
            line.is_empty() || line.starts_with('#') || line == "---"
        });
        let text = if nothing { "{}" } else { &self.text };
        parse_bounded(text).map_err(|error| config_error(&error, &self.name))
    }

    /// An error at `at`, with the line it stands on.
    pub fn fault(&self, at: Location, message: impl Into<String>) -> ConfigError {
        let (line, mut message) = (at.line() as usize, message.into());
        if let Some(text) = line.checked_sub(1).and_then(|index| self.text.lines().nth(index)) {
            let text = protocol::text::head(text, 160);
            message.push_str(&format!("\n{line:>4} | {text}"));
        }
        ConfigError { file: self.name.clone(), line: line as u32, message }
    }

    /// An error at a value.
    pub fn wrong<T>(&self, value: &Spanned<T>, message: impl Into<String>) -> ConfigError {
        self.fault(value.referenced, message)
    }

    /// A number that must lie within `from..=to`.
    pub fn within<N: Copy + PartialOrd + std::fmt::Display>(
        &self,
        key: &str,
        value: Option<&Spanned<N>>,
        (from, to): (N, N),
    ) -> Result<Option<N>, ConfigError> {
        match value {
            Some(found) if !(from..=to).contains(&found.value) => {
                Err(self.wrong(found, format!("{key} is {}, expected {from} to {to}", found.value)))
            }
            found => Ok(found.map(|found| found.value)),
        }
    }
}

/// Parses a text as `T`, within bounds on nesting, nodes and aliases.
pub fn parse_bounded<T: DeserializeOwned>(text: &str) -> Result<T, serde_saphyr::Error> {
    let budget = serde_saphyr::budget! {
        max_events: 20_000,
        max_aliases: 64,
        max_anchors: 64,
        max_depth: 16,
        max_documents: 1,
        max_nodes: 10_000,
        max_recorded_anchor_events: 10_000,
        max_recorded_anchor_bytes: 1024 * 1024,
    };
    let options = serde_saphyr::options! {
        budget: budget,
        strict_booleans: true,
        reject_unsupported_tags: true,
    };
    serde_saphyr::from_str_with_options(text, options)
}

/// What is wrong with the file `name`, in words.
pub fn config_error(error: &serde_saphyr::Error, name: &str) -> ConfigError {
    let line = error.location().map_or(0, |at| at.line() as u32);
    ConfigError { file: name.to_owned(), line, message: plain(&error.render()) }
}

/// The parser's message without the file and line, which are reported separately.
fn plain(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let located = text.strip_prefix("line ").and_then(|rest| rest.split_once(": "));
    let text = match located {
        Some((place, rest)) if place.bytes().all(|b| b.is_ascii_digit() || b" column".contains(&b)) => rest,
        _ => text,
    };
    let mut kept = text.lines().filter(|line| !line.trim_start().starts_with("--> ") && line.trim() != "|");
    let first = kept.next().unwrap_or_default().to_owned();
    kept.map(|line| match line.trim_start().strip_prefix("| ").filter(|marked| marked.trim_start().starts_with('^')) {
        // The marker line repeats the whole message.
        Some(marked) => marked.chars().take_while(|c| " ^".contains(*c)).collect::<String>(),
        None => line.to_owned(),
    })
    .filter(|line| line.trim().chars().any(|c| c != '^'))
    .fold(first, |all, line| format!("{all}\n{line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parsers_words_are_said_once() {
        let text = "error: line 2 column 1: unknown field `modle`\n --> <input>:2:1\n  |\n1 | name: X\n2 | modle: a/b\n  | ^ unknown field `modle`";
        assert_eq!(plain(text), "unknown field `modle`\n1 | name: X\n2 | modle: a/b");
        assert_eq!(plain("line noise: x"), "line noise: x");
    }
}
