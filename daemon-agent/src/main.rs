//! Starts the daemon.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        // Before anything else: a supervisor has no configuration and no logger.
        Some(word) if word == "hold" => daemon_agent::hold::main(args),
        _ => ExitCode::SUCCESS,
    }
}
