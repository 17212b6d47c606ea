//! Which skills may be used, whose files somebody stands for, and which agents each is offered to.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use protocol::{ConfigError, SkillSource, SkillState};

use super::{Scanner, Skill, SkillPlace, SkillSet};
use crate::{
    config::Agent,
    skills::library::{AcceptedCopy, InstalledSkill, path_of},
};

/// Whether an agent's file lists the skill.
pub fn is_listed(agent: &Agent, name: &str) -> bool {
    agent.skills.iter().any(|listed| listed == "*" || listed == name)
}

/// For each name the skill that goes first for an agent. One that is broken, or that nobody accepted, hides no other.
pub fn first_of_each_name(all: &[Arc<Skill>], agent: &Agent) -> Vec<usize> {
    let mut first: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (n, skill) in all.iter().enumerate() {
        let hides_others = !matches!(skill.state, SkillState::Error | SkillState::Untrusted);
        let Some(rank) = skill.place.rank_for(agent).filter(|_| hides_others) else { continue };
        let best = first.entry(&skill.name).or_insert((rank, n));
        if rank < best.0 {
            *best = (rank, n);
        }
    }
    first.into_values().map(|(_, n)| n).collect()
}

/// Of several skills of a place that have the same name, one keeps it: rather one that may be used, and whose folder is called
/// like that, else the first.
pub fn refuse_repeated(skills: &mut [Arc<Skill>]) {
    let mut order: Vec<usize> = (0..skills.len()).filter(|n| skills[*n].definition.is_some()).collect();
    order.sort_by_key(|n| {
        let skill = &skills[*n];
        let is_called_so = skill.is_single || skill.folder.file_name().is_some_and(|name| *name == *skill.name);
        (skill.state != SkillState::Ready, !is_called_so, *n)
    });
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for n in order {
        let skill = &mut skills[n];
        match names.get(&skill.name) {
            None => drop(names.insert(skill.name.clone(), skill.path.clone())),
            Some(other) => {
                let message = format!("the name {:?} is that of {other}: expected another one", skill.name);
                let file = if skill.is_single { skill.path.clone() } else { format!("{}/{}", skill.path, skill.main) };
                let skill = Arc::make_mut(skill);
                skill.error = Some(ConfigError { file, line: 1, message });
                skill.state = SkillState::Error;
            }
        }
    }
}

/// Where agents can write, without links.
pub fn writable_folders(agents: &[&Agent]) -> Vec<PathBuf> {
    let folders: BTreeSet<&PathBuf> = agents.iter().flat_map(|agent| &agent.reach.write).collect();
    folders.into_iter().filter_map(|folder| folder.canonicalize().ok()).collect()
}

impl Scanner<'_> {
    /// Says of a skill that was just read whether its files are ones that somebody stands for: those that the library handed
    /// out, those that a person accepted, and whatever the owner of the machine wrote where agents cannot write.
    /// What lies where agents can write is used from a copy in the home, whose path without links is `root`.
    pub(super) fn trust(&self, skill: &mut Skill, root: &Path, writable: &[PathBuf]) {
        let installed = self.installed(skill);
        let is_written_to = |folder: &PathBuf| {
            skill.folder.starts_with(folder) || !skill.is_single && folder.starts_with(&skill.folder)
        };
        let otherwise = match &skill.place {
            _ if installed.is_some() => SkillState::Modified,
            SkillPlace::Space(_) => SkillState::Untrusted,
            _ if writable.iter().any(is_written_to) => SkillState::Untrusted,
            _ => return,
        };
        let is_installed = installed.is_some_and(|installed| installed.digest == skill.digest);
        let is_known = is_installed || self.lock.accepts(&skill.path, &skill.digest);
        // What links lead to is not among the files, and of a broken file the version before is not there any more.
        let is_theirs = is_known && skill.error.is_none() && !skill.has_links && !skill.digest.is_empty();
        skill.is_pinned = true;
        if !is_theirs {
            skill.state = otherwise;
        } else if installed.is_none() {
            let copy = AcceptedCopy::of(root, &skill.digest);
            let is_there = copy.folder().is_dir();
            skill.copy = Some(copy);
            if !is_there {
                skill.keep_copy();
            }
        }
        if let Some(InstalledSkill { source, reference, version, .. }) = installed.cloned() {
            skill.source = SkillSource { kind: source, reference, version };
        }
    }

    /// What the lock says of a skill, if it lies where the library puts one.
    fn installed(&self, skill: &Skill) -> Option<&InstalledSkill> {
        let name = skill.folder.file_name().and_then(|name| name.to_str())?;
        let is_there = skill.place == SkillPlace::Home && !skill.is_single && skill.path == path_of(name);
        self.lock.skills.get(name).filter(|_| is_there)
    }

    /// Gives each skill its state, and its agents.
    pub(super) fn judge(&self, all: &mut [Arc<Skill>], agents: &[&Agent]) {
        for skill in all.iter_mut() {
            let state = match &**skill {
                Skill { state: SkillState::Error, .. } | Skill { definition: None, .. } => SkillState::Error,
                Skill { state: state @ (SkillState::Modified | SkillState::Untrusted), .. } => *state,
                Skill { checks, .. } if checks.iter().any(|check| !check.ok) => SkillState::NeedsSetup,
                _ => SkillState::Ready,
            };
            Arc::make_mut(skill).state = state;
        }
        let (mut seen, mut first) = (BTreeSet::new(), BTreeSet::new());
        for agent in agents {
            let leading = first_of_each_name(all, agent);
            let names: BTreeSet<&str> = leading.iter().map(|n| all[*n].name.as_str()).collect();
            for n in (0..all.len()).filter(|n| all[*n].place.rank_for(agent).is_some()) {
                seen.insert(n);
                if !names.contains(all[n].name.as_str()) {
                    first.insert(n);
                }
            }
            for n in &leading {
                if is_listed(agent, &all[*n].name) && all[*n].state == SkillState::Ready {
                    Arc::make_mut(&mut all[*n]).agents.push(agent.id.clone());
                }
            }
            first.extend(leading);
        }
        for n in seen.difference(&first).copied().collect::<Vec<_>>() {
            let skill = Arc::make_mut(&mut all[n]);
            if skill.state != SkillState::Error {
                skill.state = SkillState::Shadowed;
            }
        }
    }
}

impl SkillSet {
    /// Why an agent is not given the instructions of this name when a person asks for them: a sentence. `None` if no skill is
    /// called so, or the agent has a tool of this name.
    pub fn why_not_loaded(&self, agent: &Agent, name: &str) -> Option<String> {
        let named = || self.all.iter().filter(move |skill| skill.name == name);
        let rank = |skill: &&Arc<Skill>| skill.place.rank_for(agent);
        let is_last = |state| matches!(state, SkillState::Error | SkillState::Shadowed);
        let within_reach = named().filter(|skill| rank(skill).is_some());
        let skill = within_reach.min_by_key(|skill| (is_last(skill.state), rank(skill))).or_else(|| named().next())?;
        let is_for_agents = skill.is_instructions() && skill.definition.as_deref().is_none_or(|it| !it.is_for_people);
        let why = match skill.state {
            _ if rank(&skill).is_none() || !is_listed(agent, name) => "this agent does not have it".to_owned(),
            SkillState::Modified => "it was changed on the machine and waits for a person".to_owned(),
            SkillState::Untrusted => "nobody has accepted its files yet".to_owned(),
            SkillState::NeedsSetup => {
                let missing = skill.checks.iter().find(|check| !check.ok);
                let missing = missing.map_or("something", |check| check.label.as_str());
                format!("{} is missing on the machine", protocol::text::head(missing, 80))
            }
            SkillState::Error => "its file is broken".to_owned(),
            SkillState::Ready if is_for_agents => "only agents load it".to_owned(),
            SkillState::Ready | SkillState::Shadowed => return None,
        };
        Some(format!("The skill {name} was not loaded: {why}."))
    }
}
