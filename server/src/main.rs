//! Starts the Board, or does what the console asks.

use std::process::ExitCode;

fn main() -> ExitCode {
    server::fault::arm();
    // Before anything can ask for TLS or sign a token.
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default().ok();
    server::cli::run()
}
