//! What a viber reports about its skills: bundles of instructions and scripts that its agents can use. What their files say is
//! read below, by both ends alike.

pub mod definition;
pub mod front_matter;
pub mod parameters;
pub mod requirements;
mod variable_names;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{agent::ConfigError, instant::Instant};

/// Among the capabilities of its hello: a daemon that takes the `skill:` commands and answers `skills.list` and `skills.read`.
pub const SKILLS_CAPABILITY: &str = "skills";

/// Folders that are no part of a skill: of version control, of registries, and what macOS packs beside files.
const LEFT_OUT_FOLDERS: [&str; 3] = [".git", ".clawhub", "__MACOSX"];

/// Whether a folder of this name, wherever it lies in a skill, is no part of it.
pub fn is_left_out_folder(name: &str) -> bool {
    LEFT_OUT_FOLDERS.iter().any(|folder| name.eq_ignore_ascii_case(folder))
}

/// Whether the file at `path` beneath a skill's folder is no part of it: what lies in such a folder or is called like one, and
/// what macOS leaves beside files. It is neither in the digest nor in what is installed.
pub fn is_left_out(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name == ".DS_Store" || name.starts_with("._") || path.split('/').any(is_left_out_folder)
}

/// One skill as its files on the viber describe it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SkillInfo {
    pub name: String,
    pub description: String,
    pub kind: SkillKind,
    /// Why it is of this kind, in words.
    pub runs: String,
    pub scope: SkillScope,
    /// Its folder or file: beneath the home, or absolute.
    pub path: String,
    pub source: SkillSource,
    /// SHA-256 in hex over the sorted lines `path NUL mode NUL sha256 LF` of its files, but for what version control, registries and
    /// macOS leave beside them.
    pub digest: String,
    pub state: SkillState,
    /// What is wrong with its file. The version before may still be in use: `state` says whether.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ConfigError>,
    /// What it needs of the machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<SkillCheck>,
    /// A tool's JSON Schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    pub tokens: SkillTokens,
    /// Ids of the agents that it is offered to.
    pub agents: Vec<String>,
    /// Agents alone use it: a message cannot begin with its name (`user-invocable: false`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub agents_only: bool,
    /// What of its file is not used, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Instant>,
    pub calls: u64,
    pub failures: u64,
}

/// How an agent uses a skill. One of a later version is `Instructions`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SkillKind {
    /// It is called by its name and runs a script.
    Tool,
    /// It is loaded and followed.
    #[default]
    #[serde(other)]
    Instructions,
}

/// Where a skill lies. One of a later version is `Space`, which is trusted least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SkillScope {
    /// `agents/{id}/skills/`
    Agent,
    /// `skills/` of the home.
    #[default]
    Home,
    /// `.agents/skills/` or `.claude/skills/` of a space, where agents can write.
    #[serde(other)]
    Space,
}

/// Whether a skill can be used. One of a later version is `Error`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SkillState {
    #[default]
    Ready,
    /// Something that it needs of the machine is missing.
    NeedsSetup,
    /// Its files are not the ones that were approved.
    Modified,
    /// Nobody accepted it yet.
    Untrusted,
    /// Another one of the same name goes first.
    Shadowed,
    /// Nothing of it can be used.
    #[serde(other)]
    Error,
}

/// Where a skill comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SkillSource {
    /// `local`, `library`, `clawhub` or `space`.
    pub kind: String,
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Something that a skill needs of its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SkillCheck {
    /// `bin`, `anyBin`, `env`, `os`, `config` or `interpreter`.
    pub kind: String,
    pub label: String,
    pub ok: bool,
    /// A command or a change of a file that mends it; for people to copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// Estimated tokens of a skill in a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SkillTokens {
    /// Its line of the index, or its description as a tool.
    pub index: u64,
    /// Its instructions, once they are loaded.
    pub body: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_skill_is_written_as_the_board_reads_it() {
        let info = SkillInfo {
            name: "git-commit".to_owned(),
            kind: SkillKind::Tool,
            scope: SkillScope::Home,
            source: SkillSource { kind: "local".to_owned(), ..SkillSource::default() },
            state: SkillState::NeedsSetup,
            checks: vec![SkillCheck { kind: "bin".to_owned(), label: "git".to_owned(), ok: false, fix: None }],
            agents: vec!["default".to_owned()],
            calls: 2,
            ..SkillInfo::default()
        };
        let written = serde_json::to_value(&info).expect("JSON");
        let expected = json!({ "name": "git-commit", "description": "", "kind": "tool", "runs": "", "scope": "home",
            "path": "", "source": { "kind": "local" }, "digest": "", "state": "needs_setup",
            "checks": [{ "kind": "bin", "label": "git", "ok": false }], "tokens": { "index": 0, "body": 0 },
            "agents": ["default"], "calls": 2, "failures": 0 });
        assert_eq!(written, expected);
        assert_eq!(serde_json::from_value::<SkillInfo>(written).expect("read back"), info);
    }

    #[test]
    fn what_is_no_part_of_a_skill_is_told_by_its_path() {
        for path in [
            ".git/config",
            "sub/.git",
            "a/.GIT/hooks/x",
            ".clawhub/origin.json",
            "a/__MACOSX/x",
            ".DS_Store",
            "a/.DS_Store",
            "a/._x",
        ] {
            assert!(is_left_out(path), "{path}");
        }
        for path in ["SKILL.md", ".gitignore", ".git2/x", "a.DS_Store", "Thumbs.db", "._x/SKILL.md", "_x", ""] {
            assert!(!is_left_out(path), "{path}");
        }
    }

    #[test]
    fn words_of_a_later_version_are_the_careful_ones() {
        let later = json!({ "kind": "dream", "scope": "moon", "state": "sleepy", "more": 1 });
        let read: SkillInfo = serde_json::from_value(later).expect("a skill");
        assert_eq!(
            (read.kind, read.scope, read.state),
            (SkillKind::Instructions, SkillScope::Space, SkillState::Error)
        );
    }
}
