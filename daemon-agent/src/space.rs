//! Spaces: the working directories that agents declare, shown to people on the Board.
//!
//! A space is found by the name that stands for a declared folder, never by a path. Its files are read like those of
//! the workspace, beneath the root by descriptor. Changes are reported by git, which can start nothing and read nothing
//! but the space and its repository. Changes nothing.

mod base_commits;
mod changes;
mod configuration;
pub mod confined_git;
mod diff;
mod git;
mod log;
mod queue;
mod repository;

use std::path::{Path, PathBuf};

use protocol::{FilePiece, Listing, space::ID_DIGITS};

use crate::{
    config::{ConfigSnapshot, SharedAccess},
    home::Home,
    sandbox::{Grants, PRIVATE_NAMES, secrets},
    workspace::{HiddenPaths, Workspace, WorkspaceError, hex},
};

pub use base_commits::remember;
pub use diff::DiffQuery;

/// A declared folder that exists.
#[derive(Clone, Debug)]
pub struct Space {
    /// Without links.
    root: PathBuf,
    files: Workspace,
    home: Home,
    id: String,
    /// Paths beneath the root that belong to the daemon.
    private: Vec<String>,
}

/// Why a space cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum SpaceError {
    #[error("{0}")]
    Files(#[from] WorkspaceError),
    /// No agent declares it, or not any more.
    #[error("no agent of this viber declares this space")]
    Unknown,
    #[error("the folder is not there, or cannot be opened")]
    Away,
    #[error("the folder is not a git repository")]
    NoRepository,
    /// What leads out of it.
    #[error("{0} leads out of the space and is not followed")]
    Elsewhere(String),
    /// How many would have been followed.
    #[error("its .git contains more than {0} links, which are not followed")]
    Linked(usize),
    #[error("its configuration cannot be read: {0}")]
    Unreadable(String),
    #[error("the space contains the viber's own home, so its changes are not shown")]
    HoldsHome,
    #[error("git is not installed on this machine, or only as a script")]
    NoGit,
    /// What the kernel lacks.
    #[error("the kernel of this machine has no {0}, without which git cannot be confined, so only files are shown")]
    NoConfinement(&'static str),
    /// The queue of inspections is full.
    #[error("too many requests for the spaces of this viber at once: try again in a moment")]
    Busy,
    #[error("git needs more than {} MiB of memory for it", confined_git::MAX_MEMORY_BYTES / 1024 / 1024)]
    TooLarge,
    #[error("git took longer than {} s", git::INSPECTION_TIMEOUT.as_secs())]
    Slow,
    #[error("git failed: {0}")]
    Git(String),
}

impl SpaceError {
    /// The error's code on the wire, sent before the sentence.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Files(refused) => refused.code(),
            Self::Unknown => "not_found",
            Self::Away => "space_away",
            Self::NoRepository => "no_repository",
            Self::Elsewhere(_) | Self::HoldsHome => "leads_elsewhere",
            Self::Unreadable(_) | Self::Linked(_) => "unreadable_repository",
            Self::NoGit => "no_git",
            Self::NoConfinement(_) => "no_confinement",
            Self::Busy => "viber_busy",
            Self::TooLarge => "too_large",
            Self::Slow => "too_slow",
            Self::Git(_) => "git",
        }
    }
}

/// The id of the space that was reported to the Board as the text `reported`.
pub fn id(reported: &str) -> String {
    hex(reported.as_bytes())[..ID_DIGITS].to_owned()
}

impl Space {
    /// The space with this name, among those that agents declare now.
    pub fn find(files: &ConfigSnapshot, home: &Home, wanted: &str) -> Result<Self, SpaceError> {
        let agents = files.agents.values().filter_map(|agent| agent.as_ref().ok());
        let declared = agents.flat_map(|agent| {
            agent
                .spaces
                .iter()
                .zip(agent.info().spaces)
                .map(|(root, reported)| (root.as_path(), &*agent.reach, reported))
        });
        let (root, reach) = declared
            .into_iter()
            .find(|(_, _, reported)| id(reported) == wanted)
            .map(|(root, reach, _)| (root, reach))
            .ok_or(SpaceError::Unknown)?;
        Self::open(root, reach, home, wanted)
    }

    /// Opens the declared folder `root` under the name `id`; `reach` is what agents can reach.
    fn open(root: &Path, reach: &SharedAccess, home: &Home, id: &str) -> Result<Self, SpaceError> {
        let root = Grants::look(&reach.write).real(root).map_err(|_| SpaceError::Away)?;
        if !root.is_dir() {
            return Err(SpaceError::Away);
        }
        let house = home.root().canonicalize().unwrap_or_else(|_| home.root().to_owned());
        let private = PRIVATE_NAMES.iter().map(|name| house.join(name));
        if private.clone().any(|closed| root.starts_with(closed)) {
            return Err(SpaceError::Away);
        }
        let below = |closed: PathBuf| closed.strip_prefix(&root).ok()?.to_str().map(str::to_owned);
        let private: Vec<String> = private.filter_map(below).collect();
        let mut opened = reach.read.clone();
        opened.push(root.clone());
        let secrets = secrets::hidden(&house, &opened);
        if secrets.iter().any(|secret| root.starts_with(secret)) {
            return Err(SpaceError::Away);
        }
        let veiled: Vec<String> = private.iter().cloned().chain(secrets.into_iter().filter_map(below)).collect();
        let files = Workspace::elsewhere(root.clone(), HiddenPaths::Foreign(veiled.into()));
        Ok(Self { root, files, home: home.clone(), id: id.to_owned(), private })
    }

    /// Lists a folder. Blocks.
    pub fn list(&self, path: &str, from: u64) -> Result<Listing, WorkspaceError> {
        self.files.list(path, from)
    }

    /// Reads a piece of a file. Blocks.
    pub fn read(&self, path: &str, offset: u64, limit: u64) -> Result<FilePiece, WorkspaceError> {
        self.files.read(path, offset, limit)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_space_shows_what_lies_beneath_it_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |path: &str| folder.path().join(path);
        let home = Home::at(at("space/home"));
        for made in ["space/src", "space/.git", "space-evil", "space/home"] {
            fs::create_dir_all(at(made)).expect("made");
        }
        home.open().expect("a home");
        for (path, text) in [
            ("space/src/main.rs", "fn main() {}"),
            ("space/.git/config", "secret"),
            ("space-evil/a", "secret"),
            ("space/home/state/credential", "secret"),
            ("space/home/config.yaml", "secret"),
            ("space/home/workspace/task.md", "plan"),
        ] {
            fs::write(at(path), text).expect("written");
        }
        symlink(at("space-evil"), at("space/link")).expect("linked");
        symlink(at("space-evil/a"), at("space/leaf")).expect("linked");
        symlink(at("space"), at("declared")).expect("linked");
        // Another agent works in `space`, and may have created the link where this agent's space was.
        symlink(at("space-evil"), at("space/app")).expect("linked");
        let reach = SharedAccess { write: vec![at("space")], ..SharedAccess::default() };
        assert!(matches!(Space::open(&at("space/app"), &reach, &home, "x"), Err(SpaceError::Away)));
        fs::remove_file(at("space/app")).expect("removed");
        let space = Space::open(&at("declared"), &SharedAccess::default(), &home, "x").expect("a space");
        let names = |path: &str| {
            let listed = space.list(path, 0).expect("listed");
            listed.entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>()
        };
        assert_eq!(names(""), ["home", "src", "leaf", "link"]);
        assert_eq!(names("home"), ["agents", "artifacts", "skills", "workspace"]);
        assert!(space.read("src/main.rs", 0, 100).is_ok() && space.read("home/workspace/task.md", 0, 100).is_ok());
        for path in [
            ".git/config",
            "home/state/credential",
            "home/config.yaml",
            "link/a",
            "leaf",
            "../space-evil/a",
            "src/../../space-evil/a",
            "/etc/passwd",
            "",
            "src",
        ] {
            assert!(space.read(path, 0, 100).is_err(), "{path}");
        }
        for path in [".git", "home/state", "link", "..", "src/main.rs"] {
            assert!(space.list(path, 0).is_err(), "{path}");
        }
        assert!(
            Space::open(&home.state(), &SharedAccess::default(), &home, "x").is_err(),
            "the daemon's own is no space"
        );
        assert!(
            Space::open(&at("nothing"), &SharedAccess::default(), &home, "x").is_err()
                && Space::open(&at("space-evil/a"), &SharedAccess::default(), &home, "x").is_err()
        );
    }
}
