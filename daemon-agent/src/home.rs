//! Where everything of a viber lies: `~/.openviber/`, or `OPENVIBER_HOME` for all of it.

use std::path::{Path, PathBuf};

/// The root folder and the paths below it. Creating and locking it is `Home::open`'s task.
#[derive(Clone, Debug)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    /// A home at `root`; nothing is touched.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The root folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Human-visible context: plan, memory, bootstrap files.
    pub fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    /// Credential, journal, outbox, lock: the daemon's alone (0700).
    pub fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    /// Provider keys written by `key set` (0700, files 0600).
    pub fn secrets(&self) -> PathBuf {
        self.root.join("secrets")
    }

    /// Agent files and session logs.
    pub fn agents(&self) -> PathBuf {
        self.root.join("agents")
    }

    /// What a task produced.
    pub fn artifacts(&self, task: &str) -> PathBuf {
        self.root.join("artifacts").join(task)
    }

    /// One line per completed part: `agents/{agent}/sessions/{session}.jsonl`.
    pub fn session_log(&self, agent: &str, session: &str) -> PathBuf {
        self.agents().join(agent).join("sessions").join(format!("{session}.jsonl"))
    }
}
