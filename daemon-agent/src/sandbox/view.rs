//! The file tree of one command, built in a mount namespace of its own.
//!
//! A new root in which everything on the machine can be read: users' folders through an overlay, in which other
//! programs' sockets and pipes are not found, and system folders as they are. `/dev`, `/proc`, `/run` and `/tmp` are
//! the command's own. Granted folders are mounted on top, and hidden places are covered by an empty file or folder.
//! Knows nothing of Landlock.

mod builder;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;

use self::builder::ViewBuilder;
use super::{ResolvedRules, namespaces::enter_mounts};

/// Folders that belong to the command. The machine's files in them are visible only if they were granted.
const COMMAND_FOLDERS: [&str; 5] = ["/dev", "/proc", "/run", "/tmp", "/var/tmp"];

/// Entries of the machine's runtime folders that only inform: how names are resolved, which system this is.
const SHOWN_RUNTIME_FILES: [&str; 8] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/ssl/certs/ca-certificates.crt",
    "/run/current-system",
    "/run/booted-system",
    "/run/opengl-driver",
];

/// What covers a place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cover {
    /// The folder itself, so that it cannot be renamed away under what is mounted deeper.
    Pinned,
    /// The machine's own, writable.
    Writable,
    /// The machine's own, read-only.
    ReadOnly,
    /// An empty file or folder.
    Empty,
}

/// A tree that was built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// What it was built from; paths mean the same inside it, as far as they exist.
    pub places: ResolvedRules,
    /// Whether other programs' sockets and pipes are hidden wherever they lie, and not only in the command's own
    /// folders.
    pub overlays: bool,
    /// Places that are covered only until somebody outside replaces them: Landlock has to exclude them as well.
    pub exposed: Vec<PathBuf>,
}

/// What a tree is built from.
#[derive(Clone, Copy, Debug)]
pub struct ViewPlan<'a> {
    pub places: &'a ResolvedRules,
    pub cwd: Option<&'a Path>,
    /// The folder that holds `/tmp`; without it, `/tmp` is in memory.
    pub scratch: Option<&'a Path>,
    /// Most bytes that `/tmp` and `/dev/shm` may hold.
    pub memory: u64,
    /// Most processes and threads at a time, where the kernel counts them per namespace.
    pub processes: u64,
}

impl View {
    /// Builds the tree and moves this process, the first in its process namespace, into it.
    pub fn enter(plan: &ViewPlan) -> anyhow::Result<Self> {
        enter_mounts().context("no mount namespace")?;
        let layers = layers(plan);
        let mut tree = ViewBuilder::begin(plan.memory, plan.places.absent.clone()).context("no new root")?;
        tree.lay_machine().context("the machine's files")?;
        tree.lay_own(plan).context("files of its own")?;
        for (path, layer) in &layers {
            let laid = match layer {
                Cover::Pinned => tree.pin(path),
                Cover::Writable => tree.show(path, true),
                Cover::ReadOnly => tree.show(path, false),
                Cover::Empty => tree.empty(path),
            };
            laid.with_context(|| path.display().to_string())?;
        }
        let overlays = tree.finish().context("the new root")?;
        let covered = |path: &&PathBuf| plan.places.writable_around(path).is_some() || !overlays;
        let places = plan.places.clone();
        Ok(Self { places, overlays, exposed: plan.places.closed().filter(covered).cloned().collect() })
    }
}

/// Whether `path` lies in a folder that belongs to the command.
fn is_own(path: &Path) -> bool {
    COMMAND_FOLDERS.iter().any(|own| path.starts_with(own) && path != Path::new(own))
}

/// Everything that covers the tree, outer places first.
fn layers(plan: &ViewPlan) -> Vec<(PathBuf, Cover)> {
    let places = plan.places;
    let mut layers: Vec<(PathBuf, Cover)> = Vec::new();
    let mut lay = |path: &Path, layer: Cover| layers.push((path.to_owned(), layer));
    places.write.iter().for_each(|path| lay(path, Cover::Writable));
    places.sockets.iter().for_each(|path| lay(path, Cover::Writable));
    if places.writable_around(&places.home).is_some() || is_own(&places.home) {
        lay(&places.home, Cover::ReadOnly);
    }
    for path in &places.read {
        let hidden = places.closed().any(|closed| path.starts_with(closed));
        if hidden || places.writable_around(path).is_none() {
            lay(path, Cover::ReadOnly);
        }
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let facts = SHOWN_RUNTIME_FILES.iter().map(PathBuf::from).filter_map(|fact| fact.canonicalize().ok());
    let needed = std::env::split_paths(&path).filter_map(|folder| folder.canonicalize().ok());
    let needed = needed.chain(facts).chain(plan.cwd.and_then(|cwd| cwd.canonicalize().ok()));
    for path in needed.filter(|path| is_own(path)) {
        let shown = path.starts_with(&places.home) || places.writable_around(&path).is_some();
        if !shown {
            lay(&path, Cover::ReadOnly);
        }
    }
    for path in places.closed().filter(|path| !places.write.contains(path)) {
        lay(path, Cover::Empty);
    }
    for path in &places.protect {
        let Some(around) = places.writable_around(path) else { continue };
        // A missing place cannot be covered: the folder that would contain it is covered instead, unless that is the
        // granted one.
        let there = path.ancestors().find(|path| path.symlink_metadata().is_ok()).filter(|path| path != around);
        if let Some(there) = there.filter(|there| there.starts_with(around)) {
            lay(there, Cover::ReadOnly);
        }
    }
    let pinned: Vec<PathBuf> = layers
        .iter()
        .filter(|(_, layer)| *layer > Cover::Writable)
        .flat_map(|(path, _)| path.ancestors().skip(1).map(Path::to_owned).collect::<Vec<_>>())
        .filter(|folder| places.writable_around(folder).is_some_and(|around| around != folder))
        .filter(|folder| !folder.starts_with(&places.home) && !is_link(folder))
        .collect();
    layers.extend(pinned.into_iter().map(|folder| (folder, Cover::Pinned)));
    layers.sort_by(|(a, x), (b, y)| (a.components().count(), x, a).cmp(&(b.components().count(), y, b)));
    layers.dedup();
    layers
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink())
}
