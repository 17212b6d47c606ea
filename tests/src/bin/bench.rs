//! `make bench`: the figures of a release build, as a table and as JSON.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    // The daemon's own code starts MCP servers under the program that runs it, and what measures them is this one. Before there
    // are threads: a process with several cannot be confined.
    if args.nth(1).is_some_and(|word| word == "hold") {
        return daemon_agent::hold::main(args);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(board_tests::bench::main());
    ExitCode::SUCCESS
}
