//! One YAML file: bounded reading, typed parsing, and errors with file, line and snippet.

use std::{
    io::{ErrorKind, Read},
    path::Path,
};

use protocol::{
    ConfigError,
    yaml::{config_error, parse_bounded},
};
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
