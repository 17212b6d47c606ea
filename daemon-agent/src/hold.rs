//! The supervisor that owns a command's processes: `daemon-agent hold [options] -- argv…`.
//!
//! One mechanism for stop, time-out, crash and drain. Its standard input is the tie to the daemon: a `stop` line, or
//! its end (the daemon is gone), makes it end everything that descends from the command. When the command ends by
//! itself, what it left in the background is ended too: nothing of a command outlives it. Over a socket it reports how
//! it went as JSON lines. Refuses to know tasks, tools and models.

mod held;
mod kin;
mod options;
mod supervise;
mod tree;

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use serde::{Deserialize, Serialize};

pub use held::{Command, Held};
pub use kin::Kin;
pub use options::Options;

/// What a supervisor tells the daemon, one JSON line each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Report {
    /// The command runs.
    Started {
        pid: i32,
        confined: bool,
    },
    /// The command could not be started.
    Failed {
        message: String,
    },
    Ended(Ended),
}

/// How a command ended; by then everything that descends from it is dead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ended {
    /// The command's exit code, unless a signal ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Processes that were ended by the supervisor.
    pub killed: u32,
    /// Processes that survived even SIGKILL for ten seconds (stuck in the kernel).
    pub left: u32,
}

/// The program to start as `… hold`: the running one, also after an upgrade has replaced its file.
pub fn own_program() -> PathBuf {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() { own } else { std::env::current_exe().unwrap_or_else(|_| "daemon-agent".into()) }
}

/// Runs `hold` with the arguments after that word, until the command and all that descends from it are dead.
/// Exits as the command did, 128 + signal when one ended it, 127 when it could not be started, 2 on wrong usage.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("daemon-agent hold: {why}\nusage: daemon-agent hold {} -- COMMAND [ARGUMENT]…", options::USAGE);
            return ExitCode::from(2);
        }
    };
    // One thread: a supervisor per running command has to be small.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(supervise::run(options))) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("daemon-agent hold: {error:#}");
            ExitCode::from(127)
        }
    }
}
