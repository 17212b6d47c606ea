//! All skills of the machine as their files say at one moment, and which agents they are offered to.
//!
//! A mistake in one file hides no other skill, and the version before it stays in use while there is one.

mod judge;
mod source;

use std::{
    collections::{BTreeSet, HashMap},
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use protocol::{ConfigError, SkillCheck, SkillScope, SkillSource, SkillState, skill::definition::SkillDefinition};
use sha2::{Digest, Sha256};

use self::{
    judge::{first_of_each_name, is_listed, refuse_repeated, writable_folders},
    source::{source_of, source_word},
};
use super::{
    bundle::{self, BundleFiles, HashCache, ReadingBounds},
    health::{self, KnownVariables, Programs},
    library::{AcceptedCopy, SkillsLock, forget_copies},
    places::{self, FoundSkill},
};
use crate::{
    config::{Agent, ConfigSnapshot, Variables},
    home::Home,
};

/// Largest main file of a skill, bytes.
pub const MAX_MAIN_FILE_BYTES: u64 = 256 * 1024;
/// Most folders that are watched.
const MAX_WATCHED_FOLDERS: usize = 4_000;
/// What is looked at of a place of a space: somebody else may fill it.
const SPACE_BOUNDS: ReadingBounds = ReadingBounds { bytes: 64 * 1024 * 1024, entries: 20_000 };
/// Places in a space.
const SPACE_PLACES: [&str; 2] = [".agents/skills", ".claude/skills"];

/// Whose skills a place has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkillPlace {
    Agent(String),
    Home,
    /// A folder that agents may write to.
    Space(PathBuf),
}

impl SkillPlace {
    /// Its word in reports.
    pub fn scope(&self) -> SkillScope {
        match self {
            Self::Agent(_) => SkillScope::Agent,
            Self::Home => SkillScope::Home,
            Self::Space(_) => SkillScope::Space,
        }
    }

    /// The order in which an agent finds skills of one name; `None` if the place is not for it.
    fn rank_for(&self, agent: &Agent) -> Option<usize> {
        match self {
            Self::Agent(id) => (*id == agent.id).then_some(0),
            Self::Home => Some(1),
            Self::Space(space) => agent.spaces.iter().position(|own| own == space).map(|n| n + 2),
        }
    }
}

/// One skill.
#[derive(Clone, Debug, PartialEq)]
pub struct Skill {
    pub place: SkillPlace,
    /// Its folder, or the one that its single file lies in.
    pub folder: PathBuf,
    /// The name of its main file.
    pub main: String,
    pub is_single: bool,
    /// Where it lies, as people read it.
    pub path: String,
    /// The name in its file, or its folder's if the file says none.
    pub name: String,
    pub source: SkillSource,
    /// Of the version that is in use.
    pub digest: String,
    /// Whether there are links in its folder, which are no part of it.
    pub has_links: bool,
    /// Whether only files of this digest may be used: they were installed, or a person accepted them.
    pub is_pinned: bool,
    /// What is used instead of its files, because agents can write where they lie.
    pub copy: Option<AcceptedCopy>,
    /// What it says; `None` if it never said anything valid.
    pub definition: Option<Arc<SkillDefinition>>,
    /// What is wrong with its file now.
    pub error: Option<ConfigError>,
    pub checks: Vec<SkillCheck>,
    pub state: SkillState,
    /// Ids of the agents that it is offered to.
    pub agents: Vec<String>,
    pub warnings: Vec<String>,
}

impl Skill {
    /// The digest of its files as they are now.
    pub fn digest_now(&self) -> io::Result<String> {
        Ok(self.files_now()?.digest)
    }

    /// Its files as they are now.
    pub(super) fn files_now(&self) -> io::Result<BundleFiles> {
        let files = bundle::read(&self.folder, self.single(), &mut HashCache::default())?;
        if files.has_links && (self.is_pinned || self.script().is_some()) {
            return Err(io::Error::other("it holds links, and what they lead to is no part of what is decided about"));
        }
        Ok(files)
    }

    /// Whether its files may still be used: if it is pinned, only while they are the ones that were read, and those that are
    /// used are the same. Blocks.
    pub fn is_usable(&self) -> bool {
        let is_as_read = || self.digest_now().is_ok_and(|digest| digest == self.digest);
        !self.is_pinned || is_as_read() && self.keep_copy()
    }

    /// Where the files lie that are used.
    pub fn used_folder(&self) -> &Path {
        self.copy.as_ref().map_or(self.folder.as_path(), AcceptedCopy::folder)
    }

    /// Has the copy there that is used; `false`: it cannot be made.
    fn keep_copy(&self) -> bool {
        let kept = self.copy.as_ref().map_or(Ok(()), |copy| copy.keep(&self.folder, self.single()));
        kept.inspect_err(|error| tracing::warn!(skill = self.name, "its accepted files are not kept: {error}")).is_ok()
    }

    /// The one file that it consists of.
    pub(super) fn single(&self) -> Option<&str> {
        self.is_single.then_some(self.main.as_str())
    }
}

/// All skills at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SkillSet {
    /// Agents' own first, then those of the home, then those in spaces.
    pub all: Vec<Arc<Skill>>,
    /// Folders in which a change may change them.
    pub folders: Vec<PathBuf>,
}

impl SkillSet {
    /// The skills that an agent is offered, by their names.
    pub fn offered_to(&self, agent: &Agent) -> Vec<Arc<Skill>> {
        let first = first_of_each_name(&self.all, agent);
        let mut offered: Vec<_> = first
            .into_iter()
            .map(|n| &self.all[n])
            .filter(|skill| is_listed(agent, &skill.name) && skill.state == SkillState::Ready)
            .cloned()
            .collect();
        offered.sort_by(|a, b| a.name.cmp(&b.name));
        offered
    }

    /// Names that an agent's file lists and of which nothing is offered to it.
    pub fn missing_for<'a>(&self, agent: &'a Agent) -> Vec<&'a str> {
        let offered = self.offered_to(agent);
        let listed = agent.skills.iter().filter(|name| *name != "*");
        listed.filter(|name| offered.iter().all(|skill| skill.name != **name)).map(String::as_str).collect()
    }
}

/// Skills as they were read before, by their folders and main files.
type SkillsBefore<'b> = HashMap<(&'b Path, &'b str), &'b Arc<Skill>>;

/// What a scan remembers of the files that it reads.
struct SeenFiles<'a> {
    before: &'a SkillsBefore<'a>,
    cache: &'a mut HashCache,
    /// Folders in which a change may change a skill.
    folders: &'a mut Vec<PathBuf>,
}

/// What skills are read with.
pub struct Scanner<'s> {
    pub home: &'s Home,
    pub files: &'s ConfigSnapshot,
    pub variables: &'s Variables,
    pub programs: &'s Programs,
    /// What was found before, for what is broken now.
    pub before: &'s SkillSet,
    /// What was installed, and what people accepted.
    pub lock: &'s SkillsLock,
}

impl Scanner<'_> {
    /// Reads everything.
    pub fn scan(&self, cache: &mut HashCache) -> SkillSet {
        let agents: Vec<&Agent> = self.files.agents.values().filter_map(|agent| agent.as_ref().ok()).collect();
        let root = self.home.root().canonicalize().unwrap_or_else(|_| self.home.root().to_owned());
        let mut places: Vec<(SkillPlace, PathBuf, String)> = agents
            .iter()
            .map(|agent| (SkillPlace::Agent(agent.id.clone()), root.clone(), format!("agents/{}/skills", agent.id)))
            .collect();
        places.push((SkillPlace::Home, root.clone(), "skills".to_owned()));
        let spaces: BTreeSet<&PathBuf> = agents.iter().flat_map(|agent| &agent.spaces).collect();
        for space in spaces {
            let Ok(real) = space.canonicalize() else { continue };
            places.extend(SPACE_PLACES.map(|way| (SkillPlace::Space(space.clone()), real.clone(), way.to_owned())));
        }
        let (mut set, writable) = (SkillSet::default(), writable_folders(&agents));
        let before: SkillsBefore<'_> =
            self.before.all.iter().map(|skill| ((skill.folder.as_path(), skill.main.as_str()), skill)).collect();
        for (place, base, way) in places {
            cache.bound(if matches!(place, SkillPlace::Space(_)) { SPACE_BOUNDS } else { ReadingBounds::NONE });
            let found = places::look(&base, &way);
            if found.folders.is_empty() {
                set.folders.extend(awaited_in(&place, &base.join(&way)));
            }
            set.folders.extend(found.folders);
            let first = set.all.len();
            for skill in found.skills {
                let mut seen = SeenFiles { before: &before, cache: &mut *cache, folders: &mut set.folders };
                let mut read = self.read(&place, skill, &root, &mut seen);
                self.trust(&mut read, &root, &writable);
                set.all.push(Arc::new(read));
            }
            set.all.extend(found.links.into_iter().map(|link| Arc::new(self.refused_link(&place, &link, &root))));
            refuse_repeated(&mut set.all[first..]);
        }
        // Those of the home come first: however many a space has, they are watched.
        let mut seen = BTreeSet::new();
        set.folders.retain(|folder| seen.insert(folder.clone()));
        set.folders.truncate(MAX_WATCHED_FOLDERS);
        self.judge(&mut set.all, &agents);
        forget_copies(&root, |digest| self.lock.accepts_somewhere(digest));
        set
    }

    fn read(&self, place: &SkillPlace, found: FoundSkill, root: &Path, seen: &mut SeenFiles<'_>) -> Skill {
        let FoundSkill { folder, main, is_single } = found;
        let main_path = folder.join(&main);
        let shown = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
        let file = shown(&main_path);
        let known = seen.before.get(&(folder.as_path(), main.as_str())).copied().cloned();
        let mut skill = Skill {
            path: if is_single { file.clone() } else { shown(&folder) },
            name: fallback_name(&folder, &main, is_single),
            source: source_of(place, &folder, is_single),
            place: place.clone(),
            folder,
            main,
            is_single,
            digest: String::new(),
            has_links: false,
            is_pinned: false,
            copy: None,
            definition: None,
            error: None,
            checks: Vec::new(),
            state: SkillState::Ready,
            agents: Vec::new(),
            warnings: Vec::new(),
        };
        match self.look_into(&skill, &file, seen) {
            Ok((definition, files)) => {
                skill.name.clone_from(&definition.name);
                (skill.digest, skill.has_links) = (files.digest, files.has_links);
                skill.warnings.clone_from(&definition.warnings);
                if skill.has_links {
                    skill.warnings.push("it holds links, which are not followed and no part of it".to_owned());
                }
                skill.checks = self.checks(&skill, &definition, &files.interpreters);
                skill.definition = Some(Arc::new(definition));
            }
            Err(error) => {
                // The version before stays in use, with what is wrong with the new one.
                if let Some(known) = known.filter(|known| known.definition.is_some()) {
                    skill.name.clone_from(&known.name);
                    skill.digest.clone_from(&known.digest);
                    skill.definition.clone_from(&known.definition);
                    skill.checks.clone_from(&known.checks);
                    skill.warnings.clone_from(&known.warnings);
                }
                skill.error = Some(error);
            }
        }
        skill
    }

    fn look_into(
        &self,
        skill: &Skill,
        file: &str,
        seen: &mut SeenFiles<'_>,
    ) -> Result<(SkillDefinition, BundleFiles), ConfigError> {
        let whole = |why: &io::Error| ConfigError { file: file.to_owned(), line: 0, message: why.to_string() };
        let text = read_text(&skill.folder, &skill.main, file)?;
        let definition = SkillDefinition::read(&text, file, &|name| self.programs.has(name))?;
        let files = bundle::read(&skill.folder, skill.single(), seen.cache).map_err(|error| whole(&error))?;
        let main = files.files.iter().find(|file| file.path == skill.main);
        if main.is_none_or(|main| main.sha256 != bundle::hex(&Sha256::digest(&text))) {
            // The digest must not be that of another text.
            return Err(whole(&io::Error::other("is being changed")));
        }
        seen.folders.extend(files.folders.iter().cloned());
        Ok((definition, files))
    }

    fn refused_link(&self, place: &SkillPlace, link: &Path, root: &Path) -> Skill {
        let path = link.strip_prefix(root).unwrap_or(link).display().to_string();
        let message = "is a link, which is not followed: copy what it leads to".to_owned();
        Skill {
            place: place.clone(),
            folder: link.to_owned(),
            main: String::new(),
            is_single: false,
            name: fallback_name(link, "", false),
            source: SkillSource { kind: source_word(place).to_owned(), ..SkillSource::default() },
            digest: String::new(),
            has_links: true,
            is_pinned: false,
            copy: None,
            definition: None,
            error: Some(ConfigError { file: path.clone(), line: 0, message }),
            path,
            checks: Vec::new(),
            state: SkillState::Error,
            agents: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn checks(&self, skill: &Skill, definition: &SkillDefinition, interpreters: &[String]) -> Vec<SkillCheck> {
        let name = &definition.name;
        let is_script = definition.script.is_some();
        let given = self.files.config.skills.get(name);
        let users = self.files.agents.values().filter_map(|agent| agent.as_ref().ok());
        let users: Vec<&Agent> =
            users.filter(|agent| is_listed(agent, name) && skill.place.rank_for(agent).is_some()).collect();
        let has = |variable: &str| {
            // What a script gets beyond what all commands of its agent get.
            is_script && given.is_some_and(|given| given.0.contains_key(variable))
                || self.variables.value(variable).is_some()
                    && users.iter().any(|agent| agent.env.iter().any(|name| name == variable))
        };
        let fix = |variable: &str| {
            if is_script {
                format!("config.yaml: skills: {{ {name}: {{ env: {{ {variable}: \"${{{variable}}}\" }} }} }}")
            } else {
                format!("set {variable} for the daemon, and list it under `env:` in the agent's file")
            }
        };
        health::checks(definition, interpreters, self.programs, &KnownVariables { has: &has, fix: &fix })
    }
}

/// The folder in which a place that is not there yet will appear; in a space, whose own folder changes often, only the one
/// right above it.
fn awaited_in(place: &SkillPlace, missing: &Path) -> Option<PathBuf> {
    let levels = if matches!(place, SkillPlace::Space(_)) { 1 } else { 2 };
    missing
        .ancestors()
        .skip(1)
        .take(levels)
        .find(|folder| folder.symlink_metadata().is_ok_and(|meta| meta.is_dir()))
        .map(Path::to_owned)
}

/// The text of a main file.
pub fn read_text(folder: &Path, main: &str, shown: &str) -> Result<String, ConfigError> {
    let wrong = |line: u32, message: String| ConfigError { file: shown.to_owned(), line, message };
    let open = bundle::open_beneath(folder, main).map_err(|error| wrong(0, error.to_string()))?;
    let bytes = read_up_to(open.0, MAX_MAIN_FILE_BYTES).map_err(|error| wrong(0, error.to_string()))?;
    let bytes = bytes.ok_or_else(|| wrong(0, format!("is larger than {} KiB", MAX_MAIN_FILE_BYTES / 1024)))?;
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        wrong(u32::try_from(line).unwrap_or(u32::MAX), "is not UTF-8".to_owned())
    })
}

/// The whole file, or `None` if it has more bytes.
pub fn read_up_to(file: File, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

fn fallback_name(folder: &Path, main: &str, is_single: bool) -> String {
    let name = if is_single {
        main.trim_end_matches(".skill.md").to_owned()
    } else {
        folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    };
    let is_shown = |c: &char| {
        let is_unseen =
            matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
        !c.is_control() && !is_unseen
    };
    protocol::text::head(&name.chars().filter(is_shown).collect::<String>(), 64).to_owned()
}

#[cfg(test)]
mod tests;
