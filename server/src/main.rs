//! Starts the Board, or runs a console command.

use std::process::ExitCode;

fn main() -> ExitCode {
    server::fault::arm();
    // Before anything uses TLS or signs a token.
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default().ok();
    server::cli::run()
}
