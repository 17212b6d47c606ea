//! Starts the daemon.
fn main() {}
