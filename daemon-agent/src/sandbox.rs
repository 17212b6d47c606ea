//! What a command reaches: the files, sockets, terminals, processes, network and memory that it was given.
//!
//! Owns the rules and the layers that keep them: namespaces with a file tree made of what was given (`view`), Landlock
//! behind them, a filter of system calls. `hold` applies them to what it starts; never to the daemon itself. Refuses to
//! know agents and tasks.

mod grants;
mod landlock;
mod layers;
mod mounts;
mod namespaces;
mod places;
mod seccomp;
pub mod secrets;
mod view;

use std::path::PathBuf;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

pub use grants::Grants;
pub use landlock::{has_scopes, has_sockets};
pub use layers::{Layers, Network};
pub use namespaces::{enter, enter_processes};
pub use places::Places;
pub use secrets::PRIVATE;
pub use view::{Plan, View};

/// What a command may touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The viber's home: its private parts are not readable.
    pub home: PathBuf,
    /// Files and folders that may be written to, with all below them; what is not there is skipped. Of one that holds
    /// the home, only the parts beside the home.
    pub write: Vec<PathBuf>,
    /// What else agents of this machine write to: a link that lies there leads to nothing outside of it.
    pub beside: Vec<PathBuf>,
    /// Hidden places that are shown, read only.
    pub read: Vec<PathBuf>,
    /// Files and folders below what may be written to that stay as they are.
    pub protect: Vec<PathBuf>,
    /// Sockets of the user that a command may connect to.
    pub sockets: Vec<PathBuf>,
    pub network: Network,
    /// The most that all processes of the command use together, bytes.
    pub memory: Option<u64>,
}

/// What this kernel has of the layers that a process can take on by itself, and namespaces, which only trying tells.
pub fn kernel_layers() -> Layers {
    Layers { namespaces: true, landlock: landlock::is_there(), seccomp: seccomp::is_there() }
}

/// Closes this process's memory and environment, which hold keys, to other processes of its user. For the daemon,
/// before it reads any key.
pub fn keep_memory_private() -> std::io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Holds the calling thread, and every process started from it, to the rules for good. `view`: where the file tree is
/// one that was made for the command.
pub fn confine_this_thread(
    places: &Places,
    layers: Layers,
    network: Network,
    view: Option<&View>,
) -> anyhow::Result<()> {
    namespaces::drop_capabilities(view.is_some());
    if layers.landlock {
        match view {
            Some(view) => landlock::confine_in_view(places, view)?,
            None => landlock::confine(places, network)?,
        }
    }
    if layers.seccomp {
        seccomp::confine_this_thread(Layers { namespaces: view.is_some(), ..layers }, network)?;
    }
    Ok(())
}
