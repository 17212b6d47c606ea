//! Skills that the team handed out: put into the home, taken away again, and accepted by people.
//!
//! Owns `skills.lock`, and the places of what it names. What the owner of the machine wrote stays as it is.

mod archive;
mod copies;
mod lock;
mod stage;

use std::{io, sync::Arc};

use protocol::{Instant, SkillInstall, SkillState, agent::is_id, skill::definition::SkillDefinition};

use self::{archive::ArchivedFile, lock::FormerSkill, stage::SkillsFolder};
pub use self::{
    copies::{AcceptedCopy, forget_copies},
    lock::{InstalledSkill, SkillsLock},
};
use super::{
    Skill, Skills,
    health::Programs,
    scan::{MAX_MAIN_FILE_BYTES, SkillPlace},
};

/// Names of the file that says what a skill is.
const MAIN_FILES: [&str; 2] = ["SKILL.md", "skill.md"];

/// Why the skills of a home were not changed.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// In words for people.
    #[error("{0}")]
    Refused(String),
    #[error("the skills of this viber cannot be read or written: {0}")]
    Disk(#[from] io::Error),
}

fn refused(why: impl Into<String>) -> LibraryError {
    LibraryError::Refused(why.into())
}

/// Where an installed skill lies, as people read it.
pub fn path_of(name: &str) -> String {
    format!("skills/{name}")
}

impl Skills {
    /// Whether the files of this skill have to be fetched before it can be installed. Blocks.
    pub fn needs_files(&self, wanted: &SkillInstall) -> Result<bool, LibraryError> {
        let name = &wanted.name;
        if !is_id(name) {
            return Err(refused(format!("{:?} is not a skill's name", protocol::text::head(name, 80))));
        }
        let set = self.now();
        let is_elsewhere = |skill: &&Arc<Skill>| {
            skill.place == SkillPlace::Home
                && skill.name == *name
                && skill.state != SkillState::Error
                && skill.path != path_of(name)
        };
        if let Some(other) = set.all.iter().find(is_elsewhere) {
            return Err(refused(format!(
                "the name {name} is that of {}, which belongs to the owner of this viber",
                other.path
            )));
        }
        let there = SkillsFolder::open(&self.shared.home)?.digest(name)?;
        if there.as_ref() == Some(&wanted.digest) {
            return Ok(false);
        }
        if there.is_none() {
            return Ok(true);
        }
        match SkillsLock::read(&self.shared.home)?.skills.get(name) {
            Some(known) if known.is_known() => Ok(true),
            Some(_) => Err(refused(format!(
                "skills.lock was lost, so whether {} was installed or belongs to the owner of this viber is not known: accept \
                 its files, or remove the folder and install it again",
                path_of(name)
            ))),
            None => Err(refused(format!(
                "{} was not installed from the library and has other files: it belongs to the owner of this viber",
                path_of(name)
            ))),
        }
    }

    /// Installs a skill, from the archive with its files unless they are there already. A repetition changes nothing. Blocks.
    pub fn install(&self, wanted: &SkillInstall, archive: Option<&[u8]>, now: Instant) -> Result<(), LibraryError> {
        let (home, name) = (&self.shared.home, &wanted.name);
        let needs_files = self.needs_files(wanted)?;
        let folder = SkillsFolder::open(home)?;
        if needs_files {
            let archive = archive.ok_or_else(|| refused("its files changed while it was installed: do it again"))?;
            let (files, digest) = archive::read(archive)?;
            if digest != wanted.digest {
                return Err(refused(format!("its files have the digest {digest}, not the one that was approved")));
            }
            check_definition(name, &files)?;
            if folder.stage(&files)? != wanted.digest {
                return Err(refused("its files were changed while they were written"));
            }
            folder.put_in_place(name)?;
        }
        let mut lock = SkillsLock::read(home)?;
        let before = lock.skills.get(name);
        if before.is_some_and(|before| !needs_files && before.is(wanted)) {
            return Ok(());
        }
        let former = folder
            .former_digest(name)
            .filter(|digest| *digest != wanted.digest)
            .map(|digest| FormerSkill { version: before.and_then(|before| before.version_of(&digest)), digest });
        let installed = InstalledSkill {
            digest: wanted.digest.clone(),
            version: wanted.version.clone(),
            reference: wanted.reference.clone(),
            source: if wanted.reference.is_some() { "clawhub" } else { "library" }.to_owned(),
            installed_at: now,
            former,
        };
        lock.skills.insert(name.clone(), installed);
        lock.forget_accepted(&path_of(name));
        Ok(lock.write(home)?)
    }

    /// Says why a skill cannot be removed, or whether it is the only one of its name. Blocks.
    pub fn check_removal(&self, name: &str) -> Result<bool, LibraryError> {
        removable(&SkillsLock::read(&self.shared.home)?, name)?;
        let own = path_of(name);
        Ok(self.now().all.iter().all(|skill| skill.name != name || skill.path == own))
    }

    /// Takes away a skill that was installed, and nothing else. Its files are kept as a former version. Blocks.
    pub fn remove_installed(&self, name: &str) -> Result<(), LibraryError> {
        let home = &self.shared.home;
        let mut lock = SkillsLock::read(home)?;
        removable(&lock, name)?;
        SkillsFolder::open(home)?.take_away(name)?;
        lock.skills.remove(name);
        lock.forget_accepted(&path_of(name));
        Ok(lock.write(home)?)
    }

    /// Takes these files of a skill as accepted by a person, wherever they lie. They must have been read already. Blocks.
    pub fn accept(&self, name: &str, digest: &str) -> Result<(), LibraryError> {
        let set = self.now();
        let has_these = |skill: &&Arc<Skill>| {
            skill.name == name && skill.digest == digest && skill.definition.is_some() && skill.error.is_none()
        };
        let found: Vec<_> = set.all.iter().filter(has_these).collect();
        if found.is_empty() {
            let name = protocol::text::head(name, 80);
            return Err(refused(format!("no skill {name} of this viber has these files: look at it again")));
        }
        if let Some(linked) = found.iter().find(|skill| skill.is_pinned && skill.has_links) {
            return Err(refused(format!("{} holds links: what they lead to is not among its files", linked.path)));
        }
        let mut lock = SkillsLock::read(&self.shared.home)?;
        let before = lock.clone();
        for skill in found.into_iter().filter(|skill| skill.is_pinned) {
            lock.accept(&skill.path, digest, |path| set.all.iter().any(|known| known.path == path));
        }
        if lock != before {
            lock.write(&self.shared.home)?;
        }
        Ok(())
    }
}

impl InstalledSkill {
    /// Whether this is what is wanted.
    fn is(&self, wanted: &SkillInstall) -> bool {
        self.digest == wanted.digest && self.version == wanted.version && self.reference == wanted.reference
    }

    /// The version that these files are known to be.
    fn version_of(&self, digest: &str) -> Option<String> {
        if self.digest == digest {
            return self.version.clone();
        }
        self.former.as_ref().filter(|former| former.digest == digest)?.version.clone()
    }
}

/// Refuses to remove what was not installed.
fn removable(lock: &SkillsLock, name: &str) -> Result<(), LibraryError> {
    if is_id(name) && lock.skills.get(name).is_some_and(InstalledSkill::is_known) {
        return Ok(());
    }
    let name = protocol::text::head(name, 80);
    Err(refused(format!("{name} was not installed from the library, so it is not removed")))
}

/// Refuses files that are no skill, or another one.
fn check_definition(name: &str, files: &[ArchivedFile]) -> Result<(), LibraryError> {
    let is_main = |archived: &&ArchivedFile| MAIN_FILES.contains(&archived.file.path.as_str());
    let main = files.iter().find(is_main).ok_or_else(|| refused("the archive has no SKILL.md"))?;
    let path = &main.file.path;
    if main.file.size > MAX_MAIN_FILE_BYTES {
        return Err(refused(format!("{path} is larger than {} KiB", MAX_MAIN_FILE_BYTES / 1024)));
    }
    let text = std::str::from_utf8(&main.content).map_err(|_| refused(format!("{path} is not UTF-8")))?;
    let read = SkillDefinition::read(text, path, &|name| Programs::of_process().has(name));
    let definition = read.map_err(|error| refused(format!("{}:{}: {}", error.file, error.line, error.message)))?;
    if definition.name != name {
        return Err(refused(format!("{path} says that its name is {}, not {name}", definition.name)));
    }
    Ok(())
}

/// An archive of these files, and their digest.
#[cfg(test)]
pub fn test_archive(files: &[(&str, u32, &str)]) -> (Vec<u8>, String) {
    let archive = tests::archive_of(files);
    let digest = archive::read(&archive).expect("a good archive").1;
    (archive, digest)
}

#[cfg(test)]
mod tests;
