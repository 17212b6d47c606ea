//! What confines commands on this machine: found out by confining one, once, when the daemon starts.

use std::{
    io::{BufRead, BufReader},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::{Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

use super::{Layers, landlock};
use crate::{
    fault,
    hold::{self, Report},
};

/// Making a sandbox takes milliseconds; one that takes this long cannot be used.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub layers: Layers,
    /// Sockets of others are out of sight wherever they lie.
    pub overlays: bool,
    /// Landlock keeps abstract sockets and signals.
    pub scopes: bool,
    /// Landlock keeps sockets that are files.
    pub sockets: bool,
}

impl Found {
    /// The words among the capabilities of `hello`: the layers, or that there is no confinement.
    pub fn words(self) -> Vec<String> {
        if !self.layers.confine() {
            return vec!["unconfined".to_owned()];
        }
        self.layers.names().map(str::to_owned).collect()
    }
}

static FOUND: OnceLock<Found> = OnceLock::new();

/// What this process found, or finds now with its own program.
pub fn found() -> Found {
    look(&hold::own_program())
}

/// The same with the program that understands `hold`.
pub fn look(program: &Path) -> Found {
    let found = *FOUND.get_or_init(|| probe(program));
    let without = |point| !fault::at(point);
    let there = Layers {
        namespaces: without("sandbox::namespaces"),
        landlock: without("sandbox::landlock"),
        seccomp: without("sandbox::seccomp"),
    };
    let layers = found.layers.and(there);
    Found {
        layers,
        overlays: found.overlays && layers.namespaces,
        scopes: found.scopes && layers.landlock,
        sockets: found.sockets && layers.landlock,
    }
}

/// Confines commands that do nothing, by each layer alone.
fn probe(program: &Path) -> Found {
    let alone = |layers| confine_nothing(program, layers);
    let namespaces = alone(Layers { namespaces: true, ..Layers::NONE });
    let landlock = alone(Layers { landlock: true, ..Layers::NONE }).is_some();
    let seccomp = alone(Layers { seccomp: true, ..Layers::NONE }).is_some();
    Found {
        layers: Layers { namespaces: namespaces.is_some(), landlock, seccomp },
        overlays: namespaces.unwrap_or(false),
        scopes: landlock && landlock::has_scopes(),
        sockets: landlock && landlock::has_sockets(),
    }
}

/// Whether a command can have namespaces here, with the program that understands `hold`.
pub fn can_have_namespaces(program: &Path) -> bool {
    confine_nothing(program, Layers { namespaces: true, ..Layers::NONE }).is_some()
}

/// Starts nothing in exactly these layers: `None` where that fails, else whether its file tree hides sockets of others.
fn confine_nothing(program: &Path, layers: Layers) -> Option<bool> {
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
