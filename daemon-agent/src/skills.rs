//! Skills: bundles of instructions and scripts that people keep on the machine for its agents.
//!
//! Owns reading them, their state and what agents are offered, and what the team's library put here. Somebody else wrote them:
//! nothing of them is run here, names are never paths, links are not followed, and what they say widens no agent's rights.
//! Running a script is up to `tools`.

mod bundle;
mod follow;
mod health;
mod index;
mod library;
mod places;
mod review;
mod scan;
mod uses;

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

pub use protocol::skill::definition::{SkillDefinition, SkillScript};
use protocol::{
    ConfigError, Instant, SessionId, SkillInfo, SkillState, SkillTokens, skill::parameters, tokens::estimate,
};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

pub use self::{
    bundle::BundleFile,
    index::SkillsPrompt,
    library::{AcceptedCopy, InstalledSkill, LibraryError, SkillsLock},
    review::{ReviewedFiles, ReviewedPiece},
    scan::{Skill, SkillSet},
};
use self::{bundle::HashCache, health::Programs, scan::Scanner, uses::UseCounts};
use crate::{
    config::{Agent, ConfigSnapshot, Variables},
    home::Home,
};

/// Most bytes that a report to the Board takes, as JSON: it fits a frame beside everything else.
const MAX_REPORT_BYTES: usize = 96 * 1024;
/// Most bytes of it for skills that are reported in full.
const MAX_FULL_REPORT_BYTES: usize = 48 * 1024;
/// Longest texts in it, bytes.
const MAX_REPORTED_TEXT_BYTES: usize = 300;
/// Largest file of a skill that a model is given, bytes.
const MAX_LOADED_FILE_BYTES: u64 = 256 * 1024;

/// The skills of this machine as their files say now. Cheap to clone.
#[derive(Clone)]
pub struct Skills {
    shared: Arc<Shared>,
}

struct Shared {
    home: Home,
    variables: Variables,
    files: watch::Receiver<Arc<ConfigSnapshot>>,
    set: watch::Sender<Arc<SkillSet>>,
    /// Held while everything is read.
    cache: Mutex<HashCache>,
    uses: UseCounts,
}

impl Skills {
    /// Reads the skills of `home`. Blocks.
    pub fn open(home: &Home, variables: Variables, files: watch::Receiver<Arc<ConfigSnapshot>>) -> Self {
        let (set, cache) = (watch::Sender::new(Arc::default()), Mutex::default());
        let uses = UseCounts::open(home);
        let skills = Self { shared: Arc::new(Shared { home: home.clone(), variables, files, set, cache, uses }) };
        skills.read();
        skills
    }

    /// No skills, and none that appear.
    #[cfg(test)]
    pub fn none() -> Self {
        let snapshot = ConfigSnapshot { config: Arc::default(), agents: Default::default(), error: None };
        let files = watch::channel(Arc::new(snapshot)).1;
        Self::open(&Home::at("/nonexistent"), Variables::default(), files)
    }

    /// All of them.
    pub fn now(&self) -> Arc<SkillSet> {
        self.shared.set.borrow().clone()
    }

    /// Notifies when one changed.
    pub fn changes(&self) -> watch::Receiver<Arc<SkillSet>> {
        self.shared.set.subscribe()
    }

    /// Those that an agent is offered now.
    pub fn of(&self, agent: &Agent) -> AgentSkills {
        AgentSkills::of(self.now().offered_to(agent))
    }

    /// Why nothing is loaded for a text that begins with `/name`, though a skill of this name lies on the machine: a sentence for
    /// people. `None` for any other text, and for a tool that the agent has.
    pub fn why_not_called(&self, agent: &Agent, text: &str) -> Option<String> {
        self.now().why_not_loaded(agent, called_name(text)?)
    }

    /// Counts that an agent used this one, and no other of its name. Blocks.
    pub fn count(&self, skill: &Skill, ok: bool, at: Instant) {
        self.shared.uses.count(&self.shared.home, &skill.path, ok, at);
    }

    /// The names of those that a session has loaded. Blocks.
    pub fn loaded_by(&self, session: &SessionId) -> Vec<String> {
        uses::loaded(&self.shared.home, session)
    }

    /// Remembers that a session has loaded one. Blocks.
    pub fn remember_loaded(&self, session: &SessionId, name: &str) {
        uses::remember(&self.shared.home, session, name);
    }

    /// What is reported to the Board, as much of it as fits.
    pub fn report(&self) -> Vec<SkillInfo> {
        let (mut reported, mut room) = (Vec::new(), MAX_REPORT_BYTES);
        let set = self.now();
        for skill in &set.all {
            let full = self.info(skill);
            let size = |info: &SkillInfo| serde_json::to_string(info).map_or(usize::MAX, |json| json.len());
            let spent = MAX_REPORT_BYTES - room;
            let info = if spent + size(&full) <= MAX_FULL_REPORT_BYTES { full } else { brief(full) };
            let bytes = size(&info);
            if bytes > room {
                tracing::warn!("of {} skills, {} are reported to the Board", set.all.len(), reported.len());
                break;
            }
            room -= bytes;
            reported.push(info);
        }
        reported
    }

    /// One skill in full.
    pub fn info(&self, skill: &Skill) -> SkillInfo {
        let short = |text: &str| protocol::text::head(text, MAX_REPORTED_TEXT_BYTES).to_owned();
        let uses = self.shared.uses.of(&skill.path);
        let definition = skill.definition.as_deref();
        let error = skill.error.as_ref();
        SkillInfo {
            name: skill.name.clone(),
            description: definition.map_or_else(String::new, |definition| short(&definition.description)),
            kind: definition.map(SkillDefinition::kind).unwrap_or_default(),
            runs: definition.map_or_else(String::new, |definition| short(&definition.runs)),
            scope: skill.place.scope(),
            path: short(&skill.path),
            source: skill.source.clone(),
            digest: skill.digest.clone(),
            state: skill.state,
            error: error.map(|error| ConfigError { message: short(&error.message), ..error.clone() }),
            checks: skill.checks.clone(),
            parameters: skill.parameters(),
            tokens: definition.map_or_else(SkillTokens::default, |definition| SkillTokens {
                index: estimate(&definition.name) + estimate(&definition.description),
                body: estimate(&definition.body),
            }),
            agents: skill.agents.clone(),
            agents_only: definition.is_some_and(|definition| !definition.is_for_people),
            warnings: skill.warnings.iter().map(|warning| short(warning)).collect(),
            last_used_at: uses.last_used_at,
            calls: uses.calls,
            failures: uses.failures,
        }
    }

    fn files(&self) -> watch::Receiver<Arc<ConfigSnapshot>> {
        self.shared.files.clone()
    }

    /// Reads everything again, before somebody reports a change.
    pub async fn rescan(&self) {
        let skills = self.clone();
        let _ = tokio::task::spawn_blocking(move || skills.read()).await;
    }

    fn read(&self) {
        let mut cache = self.shared.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let files = self.shared.files.borrow().clone();
        let before = self.now();
        let variables = self.shared.variables.with_file(&self.shared.home);
        let lock = match SkillsLock::read(&self.shared.home) {
            Ok(lock) => lock,
            Err(error) => {
                tracing::warn!("skills.lock cannot be read, so the skills stay as they were: {error}");
                return;
            }
        };
        let scanner = Scanner {
            home: &self.shared.home,
            files: &files,
            variables: &variables,
            programs: &Programs::of_process(),
            before: &before,
            lock: &lock,
        };
        let next = scanner.scan(&mut cache);
        self.shared.set.send_if_modified(|now| {
            let is_changed = **now != next;
            if is_changed {
                for error in next.all.iter().filter_map(|skill| skill.error.as_ref()) {
                    tracing::warn!(file = error.file, line = error.line, "{}", error.message);
                }
                *now = Arc::new(next);
            }
            is_changed
        });
    }
}

/// The least that says what it is and whether it can be used. What people decide about, they decide by its digest.
fn brief(info: SkillInfo) -> SkillInfo {
    let description = protocol::text::head(&info.description, 40).to_owned();
    let error =
        info.error.map(|error| ConfigError { message: protocol::text::head(&error.message, 100).to_owned(), ..error });
    let is_decided = matches!(info.source.kind.as_str(), "library" | "clawhub")
        || matches!(info.state, SkillState::Modified | SkillState::Untrusted);
    let digest = if is_decided { info.digest } else { String::new() };
    let (runs, checks, warnings) = Default::default();
    SkillInfo { description, error, runs, digest, checks, parameters: None, warnings, ..info }
}

impl Skill {
    /// What it does, in a line; empty if it says nothing valid.
    pub fn description(&self) -> &str {
        self.definition.as_deref().map_or("", |definition| &definition.description)
    }

    fn body(&self) -> &str {
        self.definition.as_deref().map_or("", |definition| &definition.body)
    }

    /// What a call runs, if it is a tool.
    pub fn script(&self) -> Option<&SkillScript> {
        self.definition.as_deref()?.script.as_ref()
    }

    /// The JSON Schema of a tool's arguments.
    pub fn parameters(&self) -> Option<Value> {
        Some(parameters::schema(self.definition.as_deref()?.parameters.as_deref()?))
    }

    /// The arguments of a call as variables of the script; `Err` is a sentence for the model.
    pub fn variables(&self, args: &Value) -> Result<Vec<(String, String)>, String> {
        let parameters = self.definition.as_deref().and_then(|definition| definition.parameters.as_deref());
        parameters::variables(parameters.unwrap_or_default(), args)
    }

    /// The names of its parameters.
    pub fn parameter_names(&self) -> Vec<String> {
        let parameters = self.definition.as_deref().and_then(|definition| definition.parameters.as_deref());
        parameters.unwrap_or_default().iter().map(|parameter| parameter.name.clone()).collect()
    }

    /// Whether it is loaded and followed.
    pub fn is_instructions(&self) -> bool {
        self.definition.is_some() && self.script().is_none()
    }

    /// Whether agents are told of it.
    pub fn is_for_models(&self) -> bool {
        self.definition.as_deref().is_some_and(|definition| definition.is_for_models)
    }

    /// Its text for a model, with the names of its files. Blocks.
    pub fn load(&self) -> String {
        let files = match self.is_single {
            true => Vec::new(),
            false => {
                let read = bundle::read(self.used_folder(), None, &mut HashCache::default());
                read.map(|read| read.files).unwrap_or_default()
            }
        };
        let paths: Vec<String> = files.into_iter().map(|file| file.path).collect();
        index::loaded_text(self, &paths)
    }

    /// The text of one of its files for a model; `Err` is a sentence. Blocks.
    pub fn load_file(&self, path: &str) -> Result<String, String> {
        if self.is_single {
            return Err(format!("the skill {} is a single file", self.name));
        }
        let opened = bundle::open_beneath(self.used_folder(), path);
        let (file, stat) = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!("the skill {} has no file {path:?}", self.name),
            _ => format!("{path:?} cannot be read: only files in the skill's folder, and no links"),
        })?;
        let bytes = scan::read_up_to(file, MAX_LOADED_FILE_BYTES).map_err(|error| format!("{path:?}: {error}"))?;
        let bytes =
            bytes.ok_or_else(|| format!("{path:?} has {} bytes: read it in parts with read_file", stat.st_size))?;
        if self.is_pinned && !self.is_part(path, &bytes) {
            return Err(format!("{path:?} is not among the files of the skill {} that were accepted", self.name));
        }
        let text =
            String::from_utf8(bytes).map_err(|_| format!("{path:?} is a binary file of {} bytes", stat.st_size))?;
        let attributes = format!("skill=\"{}\"", self.name);
        Ok(protocol::text::fenced("file", &attributes, &text.replace('\0', "\u{fffd}")))
    }

    /// Whether its files are still the ones that were read, and one of them has this content.
    fn is_part(&self, path: &str, content: &[u8]) -> bool {
        let Ok(now) = self.files_now() else { return false };
        let path: Vec<&str> = path.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
        let (path, sha256) = (path.join("/"), bundle::hex(&Sha256::digest(content)));
        now.digest == self.digest && now.files.iter().any(|file| file.path == path && file.sha256 == sha256)
    }
}

/// The skills that one agent is offered at a moment, by their names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentSkills(Arc<Vec<Arc<Skill>>>);

impl AgentSkills {
    /// These skills.
    pub fn of(offered: Vec<Arc<Skill>>) -> Self {
        Self(Arc::new(offered))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The one of this name.
    pub fn find(&self, name: &str) -> Option<&Arc<Skill>> {
        self.0.iter().find(|skill| skill.name == name)
    }

    /// The tool of this name, if a model may call it.
    pub fn tool(&self, name: &str) -> Option<&Arc<Skill>> {
        self.tools().find(|skill| skill.name == name)
    }

    /// Those that a model calls by their names.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<Skill>> {
        self.0.iter().filter(|skill| skill.script().is_some() && skill.is_for_models())
    }

    /// Those that are loaded and followed.
    pub fn instructions(&self) -> impl Iterator<Item = &Skill> {
        self.0.iter().filter(|skill| skill.is_instructions()).map(|skill| &**skill)
    }

    /// The folders whose files tools may read, and in which they write nothing: where skills lie, and the copies that are used.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().flat_map(|skill| {
            let found = (!skill.is_single).then_some(skill.folder.as_path());
            found.into_iter().chain(skill.copy.as_ref().map(AcceptedCopy::folder))
        })
    }

    /// The skill that a goal begins with: `/name …`.
    pub fn called_by(&self, goal: &str) -> Option<&Arc<Skill>> {
        let found = self.find(called_name(goal)?).filter(|skill| skill.is_instructions())?;
        found.definition.as_deref().is_some_and(|definition| definition.is_for_people).then_some(found)
    }
}

/// The name that a text begins with: `/name …`.
fn called_name(text: &str) -> Option<&str> {
    text.trim_start().strip_prefix('/')?.split(char::is_whitespace).next()
}

/// What is wrong with the skill at `path`, a folder or a file, or what it is.
pub fn validate(path: &Path) -> Result<SkillDefinition, ConfigError> {
    let shown = path.display().to_string();
    let wrong = |message: &str| ConfigError { file: shown.clone(), line: 0, message: message.to_owned() };
    let is_folder = path.is_dir();
    let folder = if is_folder { Some(path) } else { path.parent() };
    let folder = folder.map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
    let folder = folder.ok_or_else(|| wrong("is no skill"))?;
    let main = match is_folder {
        true => ["SKILL.md", "skill.md"].into_iter().find(|name| folder.join(name).is_file()),
        false => path.file_name().and_then(|name| name.to_str()).filter(|_| path.exists()),
    };
    let main = main.ok_or_else(|| wrong("expected a folder with SKILL.md, or a file of the form NAME.skill.md"))?;
    let folder = folder.canonicalize().map_err(|error| wrong(&error.to_string()))?;
    let file = if is_folder { path.join(main).display().to_string() } else { shown.clone() };
    let text = scan::read_text(&folder, main, &file)?;
    let definition = SkillDefinition::read(&text, &file, &|name| Programs::of_process().has(name))?;
    let single = (!is_folder).then_some(main);
    bundle::read(&folder, single, &mut HashCache::default()).map_err(|error| wrong(&error.to_string()))?;
    Ok(definition)
}

#[cfg(test)]
pub use library::test_archive;

#[cfg(test)]
mod tests;
