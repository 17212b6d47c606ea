//! A skill's main file: what it is called, what it says that it needs, and whether it is a script itself.

use std::collections::BTreeMap;

use protocol::{
    ConfigError,
    skill::{
        definition::SkillDefinition,
        front_matter::{FrontMatter, FrontValue},
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
/// Longest version and longest name of a registry that are kept, characters.
const MAX_WORD_CHARS: usize = 80;
/// Most tools that a skill can name.
const MAX_TOOLS: usize = 64;

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
        BadBundle::entry(&error.file, format!("{place}{}", error.message))
    })?;
    Ok((main.path.clone(), read))
}

impl MainFile {
    /// By the rules of daemons, without their machines: a word that may be a command there is taken for one where the text is
    /// looked through, and refuses nothing.
    fn read(text: &str, file: &str) -> Result<Self, ConfigError> {
        let read = SkillDefinition::read(text, file, &|_| false)?;
        let front = FrontMatter::read(text, file)?;
        let keys = Keys { entries: &front.entries };
        let Requirements { mut bins, any_bins, env, .. } = read.requirements;
        bins.extend(any_bins.into_iter().filter(|bin| !bins.contains(bin)).collect::<Vec<_>>());
        let asked = keys.value("run").and_then(Value::as_str);
        let is_called = read.parameters.is_some() && asked != Some("instructions");
        let (has_blocks, has_shell) = blocks(front.body);
        Ok(Self {
            name: read.name,
            description: read.description,
            version: keys.version(),
            env,
            bins,
            tools: keys.tools(),
            warnings: read.warnings,
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
}

impl<'f> Keys<'f> {
    fn value(&self, key: &str) -> Option<&'f Value> {
        self.entries.get(key).map(|found| &found.value)
    }

    fn version(&self) -> Option<String> {
        let own = self.value("version");
        let below = self.value("metadata").and_then(|metadata| metadata.get("version"));
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        own.and_then(text).or_else(|| below.and_then(text)).and_then(|text| name::clean(&text, MAX_WORD_CHARS))
    }

    /// `allowed-tools`: a list, or words in a line with their rules in brackets, such as `Bash(git add *) Read`.
    fn tools(&self) -> Vec<String> {
        let tools: Vec<String> = match self.value("allowed-tools") {
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
