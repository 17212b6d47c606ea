//! A skill's main file: what it is called, what it says that it needs, and whether it is a script itself.

use std::collections::BTreeMap;

use protocol::{
    ConfigError,
    agent::is_id,
    skill::{
        front_matter::{FrontMatter, FrontValue, plain_name},
        requirements::Requirements,
    },
};
use serde::Deserialize;
use serde_json::Value;

use super::bundle::{BadBundle, BundledFile};
use crate::domain::name;

/// Names of the main file in a skill's folder; the first one that is there counts.
pub const NAMES: [&str; 2] = ["SKILL.md", "skill.md"];
/// End of the name of a skill that is a single file.
const SINGLE_FILE_END: &str = ".skill.md";
/// Largest main file, bytes: daemons read no larger ones.
const MAX_MAIN_FILE_BYTES: usize = 256 * 1024;
/// Longest description that is kept, bytes.
const MAX_DESCRIPTION_BYTES: usize = 2_000;
/// Longest version and longest name of a registry that are kept, characters.
const MAX_WORD_CHARS: usize = 80;
/// Most tools that a skill can name.
const MAX_TOOLS: usize = 64;
/// Most warnings about one skill.
const MAX_WARNINGS: usize = 16;

/// What the main file says.
#[derive(Clone, Debug)]
pub struct MainFile {
    pub name: String,
    pub description: String,
    pub version: Option<String>,
    pub env: Vec<String>,
    pub bins: Vec<String>,
    pub tools: Vec<String>,
    pub warnings: Vec<String>,
    /// Whether a call can run it.
    pub is_script: bool,
    /// Whether all that follows the front matter would be that script.
    pub is_script_throughout: bool,
}

/// What a registry noted of a skill; it decides nothing.
#[derive(Debug, Default)]
pub struct RegistryRecord {
    pub slug: Option<String>,
    pub version: Option<String>,
}

/// Finds the main file, and reads it as daemons do.
pub fn find(files: &[BundledFile]) -> Result<(String, MainFile), BadBundle> {
    let single = |files: &[BundledFile]| match files {
        [file] => {
            let is_single = file.path.len() > SINGLE_FILE_END.len() && file.path.ends_with(SINGLE_FILE_END);
            (is_single && !file.path.contains('/')).then_some(0)
        }
        _ => None,
    };
    let named = |name: &&str| files.iter().position(|file| file.path == **name);
    let main = NAMES.iter().find_map(named).or_else(|| single(files)).and_then(|at| files.get(at));
    let main = main.ok_or_else(|| {
        BadBundle::whole("expected SKILL.md in it, at the top or in its only folder, or a single file NAME.skill.md")
    })?;
    if main.bytes.len() > MAX_MAIN_FILE_BYTES {
        return Err(BadBundle::entry(&main.path, format!("is larger than {} KiB", MAX_MAIN_FILE_BYTES / 1024)));
    }
    let text = std::str::from_utf8(&main.bytes).map_err(|_| BadBundle::entry(&main.path, "is not UTF-8"))?;
    let read = MainFile::read(text, &main.path).map_err(|error| {
        let place = if error.line == 0 { String::new() } else { format!("line {}: ", error.line) };
        // What follows shows the line.
        let why = error.message.lines().next().unwrap_or_default();
        BadBundle::entry(&error.file, format!("{place}{why}"))
    })?;
    Ok((main.path.clone(), read))
}

impl MainFile {
    fn read(text: &str, file: &str) -> Result<Self, ConfigError> {
        let front = FrontMatter::read(text, file)?;
        let mut warnings = front.warnings.clone();
        let keys = Keys { entries: &front.entries, file };
        let name = keys.name(&mut warnings)?;
        let description = keys.description()?;
        let Requirements { mut bins, any_bins, env, .. } = Requirements::read(&front.entries, file, &mut warnings)?;
        bins.extend(any_bins.into_iter().filter(|bin| !bins.contains(bin)).collect::<Vec<_>>());
        let asked = keys.text("run")?.map(|(word, _)| word);
        let is_called = front.entries.contains_key("parameters") && asked != Some("instructions");
        let (has_blocks, has_shell) = blocks(front.body);
        warnings.truncate(MAX_WARNINGS);
        Ok(Self {
            name,
            description,
            version: keys.version(),
            env,
            bins,
            tools: keys.tools(),
            warnings,
            is_script: is_called && (has_shell || !has_blocks || asked == Some("script")),
            is_script_throughout: is_called && !has_shell && (!has_blocks || asked == Some("script")),
        })
    }
}

/// Whether the text has fenced blocks, and whether some of them are for a shell.
fn blocks(body: &str) -> (bool, bool) {
    let opened = body.lines().filter_map(|line| super::text::fence(line));
    opened.fold((false, false), |(_, shell), word| (true, shell || matches!(word, "sh" | "bash")))
}

/// The keys of one front matter.
struct Keys<'f> {
    entries: &'f BTreeMap<String, FrontValue>,
    file: &'f str,
}

impl<'f> Keys<'f> {
    fn wrong(&self, line: u32, message: impl Into<String>) -> ConfigError {
        ConfigError { file: self.file.to_owned(), line, message: message.into() }
    }

    /// A key that has to be text.
    fn text(&self, key: &str) -> Result<Option<(&'f str, u32)>, ConfigError> {
        match self.entries.get(key) {
            None | Some(FrontValue { value: Value::Null, .. }) => Ok(None),
            Some(FrontValue { value: Value::String(text), line }) => Ok(Some((text, *line))),
            Some(found) => Err(self.wrong(found.line, format!("{key}: expected text; put it between quotes"))),
        }
    }

    fn name(&self, warnings: &mut Vec<String>) -> Result<String, ConfigError> {
        let (written, line) =
            self.text("name")?.ok_or_else(|| self.wrong(1, "expected a `name`, such as git-commit"))?;
        let name = plain_name(written);
        if !is_id(&name) {
            let shown = protocol::text::head(written, MAX_WORD_CHARS);
            return Err(self.wrong(line, format!("the name {shown:?}: expected 1 to 64 letters, digits, - and _")));
        }
        if name != written {
            warnings.push(format!("its name {written:?} is used as {name}"));
        }
        Ok(name)
    }

    fn description(&self) -> Result<String, ConfigError> {
        let found = self.text("description")?.map(|(text, _)| text).unwrap_or_default();
        let words: Vec<&str> = found.split_whitespace().collect();
        let line: String = words.join(" ").chars().filter(|c| !c.is_control()).collect();
        match protocol::text::head(&line, MAX_DESCRIPTION_BYTES) {
            "" => Err(self.wrong(1, "expected a `description` that says what it does and when to use it")),
            kept => Ok(kept.to_owned()),
        }
    }

    fn version(&self) -> Option<String> {
        let own = self.entries.get("version").map(|found| &found.value);
        let below = self.entries.get("metadata").and_then(|found| found.value.get("version"));
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        own.and_then(text).or_else(|| below.and_then(text)).and_then(|text| name::clean(&text, MAX_WORD_CHARS))
    }

    /// `allowed-tools`: a list, or words in a line with their rules in brackets, such as `Bash(git add *) Read`.
    fn tools(&self) -> Vec<String> {
        let tools: Vec<String> = match self.entries.get("allowed-tools").map(|found| &found.value) {
            Some(Value::String(text)) => {
                let mut open = 0_usize;
                let is_gap = |c: char| {
                    open = match c {
                        '(' => open + 1,
                        ')' => open.saturating_sub(1),
                        _ => open,
                    };
                    open == 0 && (c == ',' || c.is_whitespace())
                };
                text.split(is_gap).map(str::to_owned).collect()
            }
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        };
        tools.iter().filter_map(|tool| name::clean(tool, MAX_WORD_CHARS)).take(MAX_TOOLS).collect()
    }
}

impl RegistryRecord {
    /// Reads `.clawhub/origin.json`; nothing if it is something else.
    pub fn read(bytes: &[u8]) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Written {
            slug: Option<String>,
            installed_version: Option<String>,
            version: Option<String>,
        }
        let written: Written = serde_json::from_slice(bytes).unwrap_or_default();
        let word = |text: String| name::clean(&text, MAX_WORD_CHARS);
        Self {
            slug: written.slug.and_then(word),
            version: written.installed_version.or(written.version).and_then(word),
        }
    }
}
