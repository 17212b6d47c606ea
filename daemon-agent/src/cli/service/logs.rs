//! `logs` and `service logs`: what the daemon logged as a service, from the file that launchd writes or from journald.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use protocol::text::printable;

use super::{
    super::{CliError, LogsArgs},
    SERVICE_NAME,
};
use crate::home::Home;

/// How often a followed file is read again.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(300);
/// Most bytes of a file's end that are searched for the last lines.
const MAX_TAIL_BYTES: u64 = 4 * 1024 * 1024;

/// Prints the last lines, and with `-f` what follows until it is interrupted.
pub async fn logs(home: &Home, args: LogsArgs) -> Result<(), CliError> {
    let file = home.state().join("daemon.log");
    if file.exists() || cfg!(target_os = "macos") {
        let failed = |error: io::Error| CliError::Failed(format!("{}: {error}", file.display()));
        return show_file(&file, &args).await.map_err(failed);
    }
    journal(&args).await
}

/// Journald's lines of the user service.
async fn journal(args: &LogsArgs) -> Result<(), CliError> {
    let lines = args.lines.to_string();
    let form = if args.json { "json" } else { "cat" };
    let mut command = Command::new("journalctl");
    command.args(["--user", "--unit", SERVICE_NAME, "--no-pager", "--lines", &lines, "--output", form]);
    if args.follow {
        command.arg("--follow");
    }
    let run = tokio::task::spawn_blocking(move || command.stdin(Stdio::null()).status());
    let failed = |why: &dyn std::fmt::Display| {
        CliError::Failed(format!(
            "journalctl: {why}. A daemon that was started by hand logs to where it was started (stderr)."
        ))
    };
    match run.await.map_err(io::Error::other).flatten() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(&status)),
        Err(error) => Err(failed(&error)),
    }
}

async fn show_file(path: &Path, args: &LogsArgs) -> io::Result<()> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(MAX_TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    Read::by_ref(&mut file).take(MAX_TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(args.lines)..] {
        print(line, args.json);
    }
    if args.follow { follow(file, args.json).await } else { Ok(()) }
}

/// Prints what is appended to the file, for as long as anybody wants.
async fn follow(mut file: File, json: bool) -> io::Result<()> {
    let mut rest = Vec::new();
    loop {
        tokio::time::sleep(FOLLOW_INTERVAL).await;
        // A file that became shorter was begun anew.
        if file.metadata()?.len() < file.stream_position()? {
            file.seek(SeekFrom::Start(0))?;
            rest.clear();
        }
        Read::by_ref(&mut file).take(MAX_TAIL_BYTES).read_to_end(&mut rest)?;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            print(String::from_utf8_lossy(&line).trim_end_matches('\n'), json);
        }
    }
}

/// A line, safe for a terminal; with `--json` as an object like journald's, unless it is one already.
fn print(line: &str, json: bool) {
    let is_object = || serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(line).is_ok();
    let line = if json && !is_object() { serde_json::json!({ "MESSAGE": line }).to_string() } else { printable(line) };
    // A reader that went away is noticed at the next line; the signal it sends ends this process anyway.
    let _ = writeln!(io::stdout(), "{line}");
}
