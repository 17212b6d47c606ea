//! Confining a command that does nothing: whether some layers can be had here only trying tells.

use std::{
    io::{BufRead, BufReader},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use super::Report;
use crate::sandbox::Layers;

/// Making a sandbox takes milliseconds; one that takes this long cannot be used.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Whether a command can have namespaces here, with the program that understands `hold`.
pub fn can_have_namespaces(program: &Path) -> bool {
    confine_nothing(program, Layers { namespaces: true, ..Layers::NONE }).is_some()
}

/// Starts nothing in exactly these layers: `None` where that fails, else whether its file tree hides sockets of others.
pub fn confine_nothing(program: &Path, layers: Layers) -> Option<bool> {
    let (ours, theirs) = UnixStream::pair().ok()?;
    let mut hold = Command::new(program);
    hold.arg0("daemon-agent").args(["hold", "--require", "--layers", &layers.to_string(), "--home", "/usr"]);
    hold.args(["--", "sh", "-c", ":"]).current_dir("/");
    hold.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
    let mut supervisor = hold.spawn().ok()?;
    // Holds the other end open.
    drop(hold);
    ours.set_read_timeout(Some(TIMEOUT)).ok()?;
    let mut lines = BufReader::new(&ours).lines().map_while(Result::ok);
    let told = lines.find_map(|line| match serde_json::from_str(&line) {
        Ok(Report::Started { overlays, .. }) => Some(Some(overlays)),
        Ok(Report::Failed { .. }) => Some(None),
        Ok(Report::Ended(_)) | Err(_) => None,
    });
    // Until it has ended by itself: it is nothing that it runs.
    lines.for_each(drop);
    if told.is_none() {
        let _ = supervisor.kill();
    }
    let _ = supervisor.wait();
    told.flatten()
}
