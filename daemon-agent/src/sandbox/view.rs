//! The file tree of one command, made in a mount namespace of its own.
//!
//! A new root where everything of the machine can be read: folders of users through an overlay, in which a socket or
//! pipe of somebody else is not found, folders of the system as they are. `/dev`, `/proc`, `/run` and `/tmp` are the
//! command's own. On top lies what was granted, and over what is hidden an empty file or folder. Refuses to know
//! Landlock.

mod tree;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;

use self::tree::Tree;
use super::{Places, namespaces::enter_mounts};

/// Folders that are the command's own. What of the machine's lies in them is there when it was granted.
const OWN: [&str; 5] = ["/dev", "/proc", "/run", "/tmp", "/var/tmp"];

/// What of the machine's own runtime folders is no door but a fact: where names are resolved, which system this is.
const FACTS: [&str; 8] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/ssl/certs/ca-certificates.crt",
    "/run/current-system",
    "/run/booted-system",
    "/run/opengl-driver",
];

/// What is laid over the tree at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    /// Itself, so that nobody renames it away under what lies deeper.
    Pinned,
    /// The machine's own, written to.
    Writable,
    /// As it is, read only.
    ReadOnly,
    /// Nothing.
    Empty,
}

/// A tree that was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// What it was made of; paths mean the same in it, as far as they are there.
    pub places: Places,
    /// Whether sockets and pipes of others are out of sight wherever they lie; else only in the folders of its own.
    pub overlays: bool,
    /// What is covered only for as long as nobody outside replaces it: Landlock has to leave it out too.
    pub exposed: Vec<PathBuf>,
}

/// What a tree is made of.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    pub places: &'a Places,
    pub cwd: Option<&'a Path>,
    /// Where `/tmp` lies; without one it is in memory.
    pub scratch: Option<&'a Path>,
    /// The most that `/tmp` and `/dev/shm` hold, bytes.
    pub memory: u64,
    /// The most processes and threads at once, where the kernel counts them by namespace.
    pub processes: u64,
}

impl View {
    /// Makes the tree and moves this process, the first of its process namespace, into it.
    pub fn enter(plan: &Plan) -> anyhow::Result<Self> {
        enter_mounts().context("no mount namespace")?;
        let layers = layers(plan);
        let mut tree = Tree::begin(plan.memory, plan.places.absent.clone()).context("no new root")?;
        tree.lay_machine().context("the machine's files")?;
        tree.lay_own(plan).context("files of its own")?;
        for (path, layer) in &layers {
            let laid = match layer {
                Layer::Pinned => tree.pin(path),
                Layer::Writable => tree.show(path, true),
                Layer::ReadOnly => tree.show(path, false),
                Layer::Empty => tree.empty(path),
            };
            laid.with_context(|| path.display().to_string())?;
        }
        let overlays = tree.finish().context("the new root")?;
        let covered = |path: &&PathBuf| plan.places.writable_around(path).is_some() || !overlays;
        let places = plan.places.clone();
        Ok(Self { places, overlays, exposed: plan.places.closed().filter(covered).cloned().collect() })
    }
}

/// Whether `path` lies in a folder that is the command's own.
fn is_own(path: &Path) -> bool {
    OWN.iter().any(|own| path.starts_with(own) && path != Path::new(own))
}

/// Everything that lies over the tree, outer places first.
fn layers(plan: &Plan) -> Vec<(PathBuf, Layer)> {
    let places = plan.places;
    let mut layers: Vec<(PathBuf, Layer)> = Vec::new();
    let mut lay = |path: &Path, layer: Layer| layers.push((path.to_owned(), layer));
    places.write.iter().for_each(|path| lay(path, Layer::Writable));
    places.sockets.iter().for_each(|path| lay(path, Layer::Writable));
    if places.writable_around(&places.home).is_some() || is_own(&places.home) {
        lay(&places.home, Layer::ReadOnly);
    }
    for path in &places.read {
        let hidden = places.closed().any(|closed| path.starts_with(closed));
        if hidden || places.writable_around(path).is_none() {
            lay(path, Layer::ReadOnly);
        }
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let facts = FACTS.iter().map(PathBuf::from).filter_map(|fact| fact.canonicalize().ok());
    let needed = std::env::split_paths(&path).filter_map(|folder| folder.canonicalize().ok());
    let needed = needed.chain(facts).chain(plan.cwd.and_then(|cwd| cwd.canonicalize().ok()));
    for path in needed.filter(|path| is_own(path)) {
        let shown = path.starts_with(&places.home) || places.writable_around(&path).is_some();
        if !shown {
            lay(&path, Layer::ReadOnly);
        }
    }
    for path in places.closed().filter(|path| !places.write.contains(path)) {
        lay(path, Layer::Empty);
    }
    for path in &places.protect {
        let Some(around) = places.writable_around(path) else { continue };
        // What is not there cannot be covered: the folder that would hold it is, unless it is the granted one itself.
        let there = path.ancestors().find(|path| path.symlink_metadata().is_ok()).filter(|path| path != around);
        if let Some(there) = there.filter(|there| there.starts_with(around)) {
            lay(there, Layer::ReadOnly);
        }
    }
    let pinned: Vec<PathBuf> = layers
        .iter()
        .filter(|(_, layer)| *layer > Layer::Writable)
        .flat_map(|(path, _)| path.ancestors().skip(1).map(Path::to_owned).collect::<Vec<_>>())
        .filter(|folder| places.writable_around(folder).is_some_and(|around| around != folder))
        .filter(|folder| !folder.starts_with(&places.home) && !is_link(folder))
        .collect();
    layers.extend(pinned.into_iter().map(|folder| (folder, Layer::Pinned)));
    layers.sort_by(|(a, x), (b, y)| (a.components().count(), x, a).cmp(&(b.components().count(), y, b)));
    layers.dedup();
    layers
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink())
}
