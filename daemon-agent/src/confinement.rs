//! What confines commands on this machine: determined by confining one, once, when the daemon starts, and described in
//! words.
//!
//! Owns the result. Does not know how confinement works (`sandbox`, `hold`).

pub mod description;

use std::{path::Path, sync::OnceLock};

use crate::{
    fault,
    hold::{self, confine_nothing},
    sandbox::{Layers, has_scopes, has_sockets},
};

/// What this machine supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfinementSupport {
    pub layers: Layers,
    /// Whether other programs' sockets are hidden wherever they lie.
    pub overlays: bool,
    /// Whether Landlock restricts abstract sockets and signals.
    pub scopes: bool,
    /// Whether Landlock restricts sockets that are files.
    pub sockets: bool,
}

impl ConfinementSupport {
    /// The entries among the capabilities of `hello`: the layers, or that there is no confinement.
    pub fn words(self) -> Vec<String> {
        if !self.layers.confine() {
            return vec!["unconfined".to_owned()];
        }
        self.layers.names().map(str::to_owned).collect()
    }
}

static DETECTED_SUPPORT: OnceLock<ConfinementSupport> = OnceLock::new();

/// The support that this process determined, or determines now with its own program.
pub fn found() -> ConfinementSupport {
    look(&hold::own_program())
}

/// The support, determined with `program`, which must understand `hold`.
pub fn look(program: &Path) -> ConfinementSupport {
    let found = *DETECTED_SUPPORT.get_or_init(|| probe(program));
    let without = |point| !fault::at(point);
    let there = Layers {
        namespaces: without("sandbox::namespaces"),
        landlock: without("sandbox::landlock"),
        seccomp: without("sandbox::seccomp"),
    };
    let layers = found.layers.and(there);
    ConfinementSupport {
        layers,
        overlays: found.overlays && layers.namespaces,
        scopes: found.scopes && layers.landlock,
        sockets: found.sockets && layers.landlock,
    }
}

/// Confines commands that do nothing, by each layer separately.
fn probe(program: &Path) -> ConfinementSupport {
    let alone = |layers| confine_nothing(program, layers);
    let namespaces = alone(Layers { namespaces: true, ..Layers::NONE });
    let landlock = alone(Layers { landlock: true, ..Layers::NONE }).is_some();
    let seccomp = alone(Layers { seccomp: true, ..Layers::NONE }).is_some();
    ConfinementSupport {
        layers: Layers { namespaces: namespaces.is_some(), landlock, seccomp },
        overlays: namespaces.unwrap_or(false),
        scopes: landlock && has_scopes(),
        sockets: landlock && has_sockets(),
    }
}
