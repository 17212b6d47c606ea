//! What a skill needs of its machine, in the forms that bundles write: `requires`, and `metadata` as YAML or as JSON text.

use std::collections::BTreeMap;

use serde_json::Value;

use super::front_matter::FrontValue;
use crate::{ConfigError, agent::is_variable_name, yaml::parse_bounded};

/// Names under which `metadata` has what is for this kind of program.
const METADATA_SECTIONS: [&str; 3] = ["openclaw", "clawdbot", "clawdis"];
/// Most needs of one kind.
const MAX_NEEDS: usize = 32;
/// Longest word of a need, bytes.
const MAX_NEED_BYTES: usize = 120;

/// What has to be there before the skill can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    /// Programs.
    pub bins: Vec<String>,
    /// Programs of which one is enough.
    pub any_bins: Vec<String>,
    /// Variables.
    pub env: Vec<String>,
    /// Settings of another program, which this one does not have.
    pub config: Vec<String>,
    /// Services at which the predecessor signed in.
    pub oauth: Vec<String>,
    /// Operating systems of which one is meant; empty for any.
    pub os: Vec<String>,
    /// Commands that install programs, by the programs.
    pub installs: BTreeMap<String, String>,
}

impl Requirements {
    /// Reads them; a mistake in `metadata`, which is for several programs, is only a warning.
    pub fn read(
        entries: &BTreeMap<String, FrontValue>,
        file: &str,
        warnings: &mut Vec<String>,
    ) -> Result<Self, ConfigError> {
        let mut found = Self::default();
        if let Some(FrontValue { value, line }) = entries.get("requires") {
            found.take_requires(value).map_err(|why| ConfigError {
                file: file.to_owned(),
                line: *line,
                message: format!("requires: {why}"),
            })?;
        }
        if let Some(FrontValue { value, line }) = entries.get("metadata")
            && let Err(why) = found.take_metadata(value)
        {
            warnings.push(format!("line {line}: metadata: {why}"));
        }
        found.bound();
        Ok(found)
    }

    fn take_requires(&mut self, value: &Value) -> Result<(), String> {
        let fields = match value {
            Value::Null => return Ok(()),
            Value::Object(fields) => fields,
            _ => return Err("expected lists such as `bins: [git]`".to_owned()),
        };
        for (key, list) in [
            ("bins", &mut self.bins),
            ("anyBins", &mut self.any_bins),
            ("env", &mut self.env),
            ("config", &mut self.config),
            ("oauth", &mut self.oauth),
        ] {
            list.extend(words(fields.get(key)).map_err(|why| format!("{key}: {why}"))?);
        }
        match self.env.iter().find(|name| !is_variable_name(name)) {
            Some(name) => Err(format!("env: {name:?} is not a variable's name")),
            None => Ok(()),
        }
    }

    fn take_metadata(&mut self, value: &Value) -> Result<(), String> {
        let read;
        let value = match value {
            Value::String(text) if text.trim().is_empty() => return Ok(()),
            Value::String(text) => {
                read = parse_bounded::<Value>(text).map_err(|_| "its text is neither JSON nor YAML".to_owned())?;
                &read
            }
            value => value,
        };
        let sections = METADATA_SECTIONS.iter().filter_map(|name| value.get(name));
        for section in sections {
            if let Some(requires) = section.get("requires") {
                self.take_requires(requires)?;
            }
            self.os.extend(words(section.get("os")).map_err(|why| format!("os: {why}"))?);
            let primary = section.get("primaryEnv").and_then(Value::as_str).filter(|name| is_variable_name(name));
            self.env.extend(primary.map(str::to_owned));
            for install in section.get("install").and_then(Value::as_array).into_iter().flatten() {
                self.take_install(install);
            }
        }
        Ok(())
    }

    /// Keeps the command of an installation, which a person may copy: nothing here runs it.
    fn take_install(&mut self, install: &Value) {
        let field = |key: &str| install.get(key).and_then(Value::as_str).filter(|word| is_package(word));
        let command = match install.get("kind").and_then(Value::as_str) {
            Some("brew") => field("formula").map(|name| format!("brew install {name}")),
            Some("node" | "npm") => field("package").map(|name| format!("npm install -g {name}")),
            Some("go") => field("module").map(|name| format!("go install {name}")),
            Some("uv" | "pip" | "pipx") => field("package").map(|name| format!("uv tool install {name}")),
            Some("apt") => field("package").map(|name| format!("sudo apt-get install {name}")),
            Some("cargo") => field("package").or(field("crate")).map(|name| format!("cargo install {name}")),
            _ => None,
        };
        let Some(command) = command else { return };
        for bin in words(install.get("bins")).unwrap_or_default() {
            self.installs.entry(bin).or_insert_with(|| command.clone());
        }
    }

    fn bound(&mut self) {
        let Self { bins, any_bins, env, config, oauth, os, .. } = self;
        for list in [bins, any_bins, env, config, oauth, os] {
            let mut seen = std::collections::BTreeSet::new();
            list.retain(|word| seen.insert(word.clone()));
            list.truncate(MAX_NEEDS);
        }
    }
}

/// A list of words; a single word is one, and so is the name of an object.
fn words(value: Option<&Value>) -> Result<Vec<String>, String> {
    let word = |value: &Value| {
        let named = value.get("name").or(value.get("key")).unwrap_or(value);
        let text = named.as_str().map(str::trim);
        text.filter(|text| is_need(text)).map(str::to_owned).ok_or("expected a list of names".to_owned())
    };
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => list.iter().map(word).collect(),
        Some(single) => word(single).map(|word| vec![word]),
    }
}

fn is_need(text: &str) -> bool {
    (1..=MAX_NEED_BYTES).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// Whether the word names a package and nothing that a shell would obey.
fn is_package(word: &str) -> bool {
    word.len() <= MAX_NEED_BYTES
        && word.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '@')
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"@/._+-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(key: &str, value: Value) -> (Result<Requirements, ConfigError>, Vec<String>) {
        let entries = BTreeMap::from([(key.to_owned(), FrontValue { value, line: 4 })]);
        let mut warnings = Vec::new();
        (Requirements::read(&entries, "SKILL.md", &mut warnings), warnings)
    }

    #[test]
    fn every_form_of_metadata_says_the_same() {
        let section = json!({ "requires": { "bins": ["gh"], "anyBins": ["rg", "grep"], "env": ["GH_TOKEN"],
            "config": ["channels.slack"] }, "os": "linux", "primaryEnv": "GH_TOKEN",
            "install": [{ "kind": "brew", "formula": "gh", "bins": ["gh"] }, { "kind": "brew", "formula": "x; rm", "bins": ["y"] }] });
        for name in METADATA_SECTIONS {
            let value = json!({ name: section });
            let text = value.to_string();
            for value in [value, Value::String(text)] {
                let (found, warnings) = read("metadata", value);
                let found = found.expect("good");
                assert_eq!(
                    (found.bins.as_slice(), found.env.as_slice()),
                    (&["gh".to_owned()][..], &["GH_TOKEN".to_owned()][..])
                );
                assert_eq!(
                    (found.any_bins.len(), found.config.len(), found.os.as_slice()),
                    (2, 1, &["linux".to_owned()][..])
                );
                assert_eq!(found.installs, BTreeMap::from([("gh".to_owned(), "brew install gh".to_owned())]));
                assert!(warnings.is_empty(), "{warnings:?}");
            }
        }
    }

    #[test]
    fn the_predecessors_form_is_strict_and_metadata_is_not() {
        let (found, _) = read("requires", json!({ "oauth": ["google"], "bins": "git", "env": [{ "name": "A" }] }));
        let found = found.expect("good");
        assert_eq!((found.oauth.len(), found.bins.len(), found.env.len()), (1, 1, 1));
        for value in [json!("git"), json!({ "bins": 5 }), json!({ "env": ["A B"] })] {
            assert_eq!(read("requires", value).0.expect_err("a mistake").line, 4);
        }
        for value in [json!("{not: [closed"), json!({ "openclaw": { "requires": 5 } })] {
            let (found, warnings) = read("metadata", value);
            assert!(found.is_ok() && warnings.len() == 1, "{warnings:?}");
        }
        assert!(read("metadata", json!({ "short-description": "x" })).1.is_empty());
    }
}
