//! Starts the daemon.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    if args.nth(1).is_some_and(|word| word == "hold") {
        // Before anything else: a supervisor has no configuration and no logger.
        return daemon_agent::hold::main(args);
    }
    // One TLS provider for all, before anything could choose another.
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        eprintln!("daemon-agent: another TLS provider was there first");
    }
    daemon_agent::cli::main()
}
