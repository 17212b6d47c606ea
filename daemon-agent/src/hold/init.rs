//! The first process in a command's process namespace: `daemon-agent hold --init …`, started by the supervisor.
//!
//! It builds the command's file tree, starts the command in it, adopts and reaps orphans, and reports over its standard
//! input how the command fared. It keeps the capabilities of the namespaces and protects its memory, so that no command
//! can trace it. When it is killed, the kernel kills everything in the namespace.

use std::{io::BufRead, process::ExitCode};

use anyhow::Context;
use rustix::process::{Signal, WaitOptions, WaitStatus, set_parent_process_death_signal, wait};

use super::{
    CommandEnd, HoldOptions, SupervisorReport,
    limits::{self, MAX_PROCESSES},
    supervise::{report, start},
};
use crate::sandbox::{self, Layers, ResolvedRules, View, ViewPlan};

/// The start message, which the supervisor sends as soon as it listens.
pub const START_MESSAGE: &[u8] = b"go\n";

/// Runs until no process is left in the namespace.
pub fn main(options: &HoldOptions) -> ExitCode {
    match begin(options) {
        Ok(command) => {
            reap(command);
            ExitCode::SUCCESS
        }
        Err(error) => {
            report(&SupervisorReport::Failed { message: format!("{error:#}") });
            ExitCode::FAILURE
        }
    }
}

/// Starts the command.
fn begin(options: &HoldOptions) -> anyhow::Result<i32> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The supervisor may have died already; then nobody sends the start message.
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    anyhow::ensure!(line.as_bytes() == START_MESSAGE, "no supervisor");
    sandbox::keep_memory_private()?;
    let rules = options.rules.as_ref().context("no rules")?;
    let places = ResolvedRules::find(rules)?;
    let plan = ViewPlan {
        places: &places,
        cwd: options.cwd.as_deref(),
        scratch: options.scratch.as_deref(),
        memory: limits::memory(rules.memory),
        processes: MAX_PROCESSES,
    };
    let view = View::enter(&plan).context("the sandbox cannot be made: no file tree of its own")?;
    let (command, layers) = start(options, Some(&view))?;
    let layers = Layers { namespaces: true, ..layers };
    report(&SupervisorReport::Started {
        pid: command,
        confined: true,
        layers: layers.to_string(),
        overlays: view.overlays,
    });
    Ok(command)
}

/// Reaps whatever ends. The command's own end is reported at once, so that the supervisor ends the others.
fn reap(command: i32) {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == command => {
                let (code, signal) = (status.exit_status(), WaitStatus::terminating_signal(status));
                report(&SupervisorReport::Ended(CommandEnd { code, signal, ..CommandEnd::default() }));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
