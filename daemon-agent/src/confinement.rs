//! What confines commands on this machine: found out by confining one, once, when the daemon starts, and told in words.
//!
//! Owns what was found. Refuses to know how it is done (`sandbox`, `hold`).

pub mod told;

use std::{path::Path, sync::OnceLock};

use crate::{
    fault,
    hold::{self, confine_nothing},
    sandbox::{Layers, has_scopes, has_sockets},
};

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
        scopes: landlock && has_scopes(),
        sockets: landlock && has_sockets(),
    }
}
