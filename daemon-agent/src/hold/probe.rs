//! Confines a command that does nothing: only trying shows whether some layers are available.

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

use super::SupervisorReport;
use crate::sandbox::Layers;

/// Building a sandbox takes milliseconds; one that takes this long is unusable.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether commands can have namespaces here, tried with `program`, which must understand `hold`.
pub fn can_have_namespaces(program: &Path) -> bool {
    confine_nothing(program, Layers { namespaces: true, ..Layers::NONE }).is_some()
}

/// Runs an empty command within exactly these layers. `None` if that fails; otherwise whether its file tree hides other
/// programs' sockets.
pub fn confine_nothing(program: &Path, layers: Layers) -> Option<bool> {
    let (ours, theirs) = UnixStream::pair().ok()?;
    let mut hold = Command::new(program);
    hold.arg0("daemon-agent").args(["hold", "--require", "--layers", &layers.to_string(), "--home", "/usr"]);
    hold.args(["--", "sh", "-c", ":"]).current_dir("/");
    hold.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
    let mut supervisor = hold.spawn().ok()?;
    // It holds the other end open.
    drop(hold);
    ours.set_read_timeout(Some(PROBE_TIMEOUT)).ok()?;
    let mut lines = BufReader::new(&ours).lines().map_while(Result::ok);
    let report = lines.find_map(|line| match serde_json::from_str(&line) {
        Ok(SupervisorReport::Started { overlays, .. }) => Some(Some(overlays)),
        Ok(SupervisorReport::Failed { .. }) => Some(None),
        Ok(SupervisorReport::Ended(_)) | Err(_) => None,
    });
    // Until it has ended by itself, since it runs nothing.
    lines.for_each(drop);
    if report.is_none() {
        let _ = supervisor.kill();
    }
    let _ = supervisor.wait();
    report.flatten()
}
