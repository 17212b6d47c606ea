//! Starts the daemon.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    // Before anything else: these two need neither configuration nor logging.
    match args.nth(1) {
        Some(word) if word == "hold" => return daemon_agent::hold::main(args),
        Some(word) if word == "look" => return daemon_agent::space::confined_git::main(args),
        _ => {}
    }
    // One TLS provider for everything, before anything could choose another.
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        eprintln!("daemon-agent: another TLS provider was installed first");
    }
    daemon_agent::cli::main()
}
