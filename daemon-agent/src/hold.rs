//! The supervisor process of a sandboxed command, which owns all processes that the command starts:
//! `daemon-agent hold [options] -- argv…`.
//!
//! One mechanism handles stop, timeout, crash and drain. Standard input ties the supervisor to the daemon: on a `stop`
//! line or at the end of input (the daemon is gone) it ends every descendant of the command. When the command exits by
//! itself, the background processes that it left are ended too, so nothing outlives its command. The supervisor reports
//! progress over a socket, as JSON lines. Knows nothing of tasks, tools and models.

mod ancestry;
mod command;
mod descriptors;
mod init;
mod ipc;
mod limits;
mod memory;
mod options;
mod probe;
mod process_tree;
mod sockets;
mod supervise;

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use serde::{Deserialize, Serialize};

use crate::sandbox;

pub use ancestry::Ancestry;
pub use command::{CommandSpec, SupervisedCommand, inherited_variables};
pub use limits::MAX_PROCESSES;
pub use options::HoldOptions;
use probe::can_have_namespaces;
pub use probe::confine_nothing;

/// What a supervisor reports to the daemon, one JSON line each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum SupervisorReport {
    /// The command is running.
    Started {
        /// The process id of the command, or of the first process in its namespace.
        pid: i32,
        confined: bool,
        /// The layers that confine it, in the form that `--layers` takes.
        #[serde(default)]
        layers: String,
        /// Whether other programs' sockets are hidden wherever they lie.
        #[serde(default)]
        overlays: bool,
    },
    /// The command could not be started.
    Failed {
        message: String,
    },
    Ended(CommandEnd),
}

/// How a command ended; by then everything that descends from it is dead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandEnd {
    /// The command's exit code, unless a signal ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Processes that the supervisor had to kill.
    pub killed: u32,
    /// Processes that survived even SIGKILL for ten seconds (stuck in the kernel).
    pub left: u32,
    /// Why the supervisor ended the command by itself: it exceeded a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excess: Option<String>,
}

/// The program to start as `… hold`: the running one, even after an upgrade replaced its file.
pub fn own_program() -> PathBuf {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() { own } else { std::env::current_exe().unwrap_or_else(|_| "daemon-agent".into()) }
}

/// Runs `hold` with the arguments after that word until the command and everything that descends from it are dead.
/// Exits with the command's code, 128 + signal if a signal ended it, 127 if it could not be started, 2 on wrong usage.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let options = match HoldOptions::parse(args) {
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
        // Namespaces cannot be left again, so unless they are required, check first whether they work here.
        options.layers.namespaces = can_have_namespaces(&own_program());
    }
    // Now, because a process with several threads cannot enter them.
    let wanted = options.rules.is_some() && options.layers.namespaces;
    let namespaces = wanted && sandbox::enter(supervise::network(&options)).is_ok();
    // A single thread: there is a supervisor per running command, so it has to be small.
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

/// Closes descriptors that the daemon inherited: a command gets its three standard streams and nothing else.
fn close_inherited() {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<i32> = open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // The descriptor used for listing is closed by now.
        let _ = nix::unistd::close(descriptor);
    }
}
