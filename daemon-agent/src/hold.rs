//! The supervisor that owns a command's processes: `daemon-agent hold [options] -- argv…`.
//!
//! One mechanism for stop, time-out, crash and drain. Its standard input is the tie to the daemon: a `stop` line, or
//! its end (the daemon is gone), makes it end everything that descends from the command. When the command ends by
//! itself, what it left in the background is ended too: nothing of a command outlives it. Over a socket it reports how
//! it went as JSON lines. Refuses to know tasks, tools and models.

mod descriptors;
mod held;
mod init;
mod ipc;
mod kin;
mod limits;
mod options;
mod pages;
mod probe;
mod sockets;
mod supervise;
mod tree;

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use serde::{Deserialize, Serialize};

use crate::sandbox;

pub use held::{Command, Held};
pub use kin::Kin;
pub use limits::MAX_PROCESSES;
pub use options::Options;
use probe::can_have_namespaces;
pub use probe::confine_nothing;

/// What a supervisor tells the daemon, one JSON line each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Report {
    /// The command runs.
    Started {
        /// The command, or the first process of its namespace.
        pid: i32,
        confined: bool,
        /// What confines it, as `--layers` takes it.
        #[serde(default)]
        layers: String,
        /// Whether sockets of others are out of sight wherever they lie.
        #[serde(default)]
        overlays: bool,
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
    /// Why the supervisor ended it by itself: it took too much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excess: Option<String>,
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
    close_inherited();
    if options.init {
        return init::main(&options);
    }
    let mut options = options;
    if options.rules.is_some() && options.layers.namespaces && !options.require {
        // Once they are entered there is no way back: whoever does not insist on them hears first whether they can be.
        options.layers.namespaces = can_have_namespaces(&own_program());
    }
    // Now, because a process with several threads may not.
    let wanted = options.rules.is_some() && options.layers.namespaces;
    let namespaces = wanted && sandbox::enter(supervise::network(&options)).is_ok();
    // One thread: a supervisor per running command has to be small.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let run = |runtime: tokio::runtime::Runtime| runtime.block_on(supervise::run(&options, namespaces));
    match runtime.map_err(anyhow::Error::from).and_then(run) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("daemon-agent hold: {error:#}");
            ExitCode::from(127)
        }
    }
}

/// Closes what whoever started the daemon left open in it: a command gets its three standard streams and nothing else.
fn close_inherited() {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<i32> = open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // The one that listed them is closed by now.
        let _ = nix::unistd::close(descriptor);
    }
}
