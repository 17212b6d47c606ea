//! What a command can reach: the files, sockets, terminals, processes, network and memory that it was granted.
//!
//! Owns the rules and the layers that enforce them: namespaces with a file tree made of what was granted (`view`),
//! Landlock behind them, and a filter of system calls. `hold` applies them to what it starts, never to the daemon
//! itself. Knows nothing of agents and tasks.

mod grants;
mod landlock;
mod layers;
mod mounts;
mod namespaces;
mod resolve;
mod seccomp;
pub mod secrets;
mod view;

use std::path::PathBuf;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

pub use grants::Grants;
pub use landlock::{has_scopes, has_sockets};
pub use layers::{Layers, Network};
pub use namespaces::{enter, enter_processes};
pub use resolve::ResolvedRules;
pub use secrets::{PRIVATE_NAMES, SKILLS_NAME};
pub use view::{View, ViewPlan};

/// What a command may touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The viber's home, whose private parts cannot be read.
    pub home: PathBuf,
    /// Files and folders that may be written to, with everything below them; missing ones are skipped. If one contains
    /// the home, only the parts beside the home count.
    pub write: Vec<PathBuf>,
    /// Where other agents of this machine write: a link there leads to nothing outside of it.
    pub beside: Vec<PathBuf>,
    /// Hidden places that may be read.
    pub read: Vec<PathBuf>,
    /// Files and folders below writable ones that must not be changed.
    pub protect: Vec<PathBuf>,
    /// Sockets of the user that a command may connect to.
    pub sockets: Vec<PathBuf>,
    pub network: Network,
    /// Most memory that all processes of the command may use together, bytes.
    pub memory: Option<u64>,
}

/// The layers that this kernel supports; namespaces are included, since only trying shows whether they work.
pub fn kernel_layers() -> Layers {
    Layers { namespaces: true, landlock: landlock::is_there(), seccomp: seccomp::is_there() }
}

/// Protects this process's memory and environment, which hold keys, from other processes of its user. The daemon calls
/// it before it reads any key.
pub fn keep_memory_private() -> std::io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Confines the calling thread, and every process started from it, to the rules for good. `view` is the command's own
/// file tree, if there is one.
pub fn confine_this_thread(
    places: &ResolvedRules,
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
