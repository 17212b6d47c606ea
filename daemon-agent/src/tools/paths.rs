//! Where an agent may read and write: its spaces and the workspace, held as open folders.
//!
//! A path is resolved by the kernel beneath one of these folders (openat2), so that neither `..` nor a link nor a
//! rename under way leads out of it. What is neither file nor folder is never opened. Refuses the daemon's own files
//! even where a space holds them.

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
};

use crate::{
    config::{Agent, Reach},
    home::Home,
    memory::CURATED,
    sandbox::{Grants, PRIVATE, secrets},
    workspace::{Closed, Workspace},
};

mod write;

/// Longer paths are refused by the kernel too (PATH_MAX), with a less helpful word.
const MAX_PATH: usize = 4096;
/// A rename under way makes the kernel give up on a path with `..`; it is asked again so often.
const TRIES: usize = 64;

/// The folders that an agent's paths may lie in; the first one is where relative paths start.
#[derive(Debug)]
pub struct Roots {
    roots: Vec<Root>,
    home: PathBuf,
    /// Secrets of the user.
    hidden: Vec<PathBuf>,
    /// Declared spaces that are not there.
    missing: Vec<PathBuf>,
    /// Whether the first declared space is there, or none was declared.
    starts: bool,
    /// Told of what is written, so that a change of the workspace has the agent's name.
    told: Option<Workspace>,
    /// What of the workspace is read and not written, and where the workspace really is.
    closed: Closed,
    workspace: PathBuf,
}

#[derive(Debug)]
struct Root {
    /// Without links.
    path: PathBuf,
    /// As the agent's file writes it.
    declared: PathBuf,
    handle: OwnedFd,
}

/// A path, taken apart: a root and the way from it.
#[derive(Clone, Debug)]
struct Place {
    root: usize,
    way: PathBuf,
}

/// Whether links that stay beneath the root may be followed.
#[derive(Clone, Copy)]
enum Links {
    Follow,
    Refuse,
}

/// What a path led to: looked at, but not opened for reading.
#[derive(Debug)]
pub struct Found {
    handle: OwnedFd,
    pub stat: Stat,
    /// Where it really lies.
    pub path: PathBuf,
}

impl Found {
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// Opens the file itself, whatever its path leads to by now.
    pub fn open(&self) -> io::Result<File> {
        let again = format!("/proc/self/fd/{}", self.handle.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(again, flags, Mode::empty())?.into())
    }
}

impl Roots {
    /// The roots of an agent.
    pub fn open(agent: &Agent, home: &Home) -> Self {
        Self::of(&agent.spaces, &agent.reach, &home.workspace(), home.root())
    }

    /// The roots of an agent with these spaces, where all agents reach so much.
    fn of(spaces: &[PathBuf], reach: &Reach, workspace: &Path, home: &Path) -> Self {
        let grants = Grants::look(&reach.write);
        let mut found = Self {
            roots: Vec::new(),
            home: home.canonicalize().unwrap_or_else(|_| home.to_owned()),
            hidden: Vec::new(),
            missing: Vec::new(),
            starts: true,
            told: None,
            closed: Closed::default(),
            workspace: workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned()),
        };
        let spaces = spaces.iter().map(|space| (space.as_path(), grants.real(space)));
        for (declared, real) in spaces.chain([(workspace, workspace.canonicalize())]) {
            match real.and_then(|path| Root::open(declared, path)) {
                Ok(root) => found.roots.push(root),
                Err(_) => {
                    found.starts &= !found.roots.is_empty();
                    found.missing.push(declared.to_owned());
                }
            }
        }
        let opened: Vec<PathBuf> = reach.read.iter().cloned().chain(found.paths().map(PathBuf::from)).collect();
        found.hidden = secrets::hidden(&found.home, &opened);
        found
    }

    /// The same, of which this workspace hears.
    pub fn told(self, workspace: Workspace) -> Self {
        Self { told: Some(workspace), ..self }
    }

    /// The same, where this of the workspace is not written.
    pub fn closed(self, closed: Closed) -> Self {
        Self { closed, ..self }
    }

    /// The folder where relative paths start.
    pub fn working_directory(&self) -> Result<&Path, String> {
        match self.roots.first().filter(|_| self.starts) {
            Some(root) => Ok(&root.path),
            None => Err(format!(
                "the working directory {} does not exist, or a link leads there that an agent may have made",
                self.missing[0].display()
            )),
        }
    }

    /// All roots that are there, without links.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.roots.iter().map(|root| root.path.as_path())
    }

    /// The same as the agent's file writes them.
    pub fn declared(&self) -> impl Iterator<Item = &Path> {
        self.roots.iter().map(|root| root.declared.as_path())
    }

    /// How a path is told to the model: as it may write it itself.
    pub fn show(&self, path: &Path) -> String {
        let short = self.working_directory().ok().and_then(|start| path.strip_prefix(start).ok()).unwrap_or(path);
        if short.as_os_str().is_empty() { ".".into() } else { short.display().to_string() }
    }

    /// Looks at what `path` leads to.
    pub fn find(&self, path: &str) -> Result<Found, String> {
        let place = self.place(path)?;
        self.look(&place, Links::Follow).map_err(|error| self.explain(path, &error))
    }

    /// The same for a real path that was found by walking: no links, and `None` when it is no longer so.
    pub fn find_again(&self, path: &Path) -> Option<Found> {
        self.look(&self.beneath(path)?, Links::Refuse).ok()
    }

    /// The same, but the last part of the path may be a link, which is then looked at itself.
    pub fn find_again_or_link(&self, path: &Path) -> Option<Stat> {
        let place = self.beneath(path.parent()?)?;
        let folder = self.resolve(&place, OFlags::PATH | OFlags::DIRECTORY, Links::Refuse).ok()?;
        self.readable(&folder).ok()?;
        rustix::fs::statat(&folder, path.file_name()?, AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    /// Opens a folder, found by walking, for listing.
    pub fn open_folder(&self, path: &Path) -> io::Result<OwnedFd> {
        let place = self.beneath(path).ok_or(Errno::XDEV)?;
        let handle = self.resolve(&place, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK, Links::Refuse)?;
        self.readable(&handle)?;
        Ok(handle)
    }

    /// Opens the regular file at `path` for reading.
    pub fn read(&self, path: &str) -> Result<(File, Found), String> {
        let found = self.find(path)?;
        match found.kind() {
            FileType::RegularFile => {
                let file = found.open().map_err(|error| self.explain(path, &error))?;
                Ok((file, found))
            }
            FileType::Directory => Err(format!("{path} is a folder; use list_files")),
            _ => Err(format!("{path} is not a regular file")),
        }
    }

    fn place(&self, path: &str) -> Result<Place, String> {
        if path.is_empty() {
            return Err("the path is empty".into());
        }
        if path.contains('\0') {
            return Err("the path holds a NUL character".into());
        }
        if path.len() > MAX_PATH {
            return Err(format!("the path is longer than {MAX_PATH} bytes"));
        }
        let path = Path::new(path);
        if path.is_relative() {
            self.working_directory()?;
            return Ok(Place { root: 0, way: path.to_owned() });
        }
        let within = |(root, known): (usize, &Root)| {
            let way = path.strip_prefix(&known.path).or_else(|_| path.strip_prefix(&known.declared)).ok()?;
            Some(Place { root, way: way.to_owned() })
        };
        let places = self.roots.iter().enumerate().filter_map(within);
        // The shortest way is the one from the innermost root.
        places.min_by_key(|place| place.way.as_os_str().len()).ok_or_else(|| self.outside(&path.to_string_lossy()))
    }

    /// The place of a path without links.
    fn beneath(&self, real: &Path) -> Option<Place> {
        let within = |(root, known): (usize, &Root)| {
            let way = real.strip_prefix(&known.path).ok()?.to_owned();
            Some(Place { root, way })
        };
        self.roots.iter().enumerate().find_map(within)
    }

    fn look(&self, place: &Place, links: Links) -> io::Result<Found> {
        let handle = self.resolve(place, OFlags::PATH, links)?;
        let path = self.readable(&handle)?;
        let stat = rustix::fs::fstat(&handle)?;
        Ok(Found { handle, stat, path })
    }

    /// Opens beneath the root, or beneath another one that a link with an absolute target leads to.
    fn resolve(&self, place: &Place, flags: OFlags, links: Links) -> io::Result<OwnedFd> {
        let root = &self.roots[place.root];
        match open_beneath(&root.handle, &place.way, flags, links) {
            Err(Errno::XDEV) if matches!(links, Links::Follow) => {
                let real = root.path.join(&place.way).canonicalize().map_err(|_| Errno::XDEV)?;
                let place = self.beneath(&real).ok_or(Errno::XDEV)?;
                // Between the two looks the path may have changed: without links it can only lie where it seems to.
                Ok(open_beneath(&self.roots[place.root].handle, &place.way, flags, Links::Refuse)?)
            }
            opened => Ok(opened?),
        }
    }

    /// The real path of an open file, unless it is the daemon's own or a secret of the user.
    fn readable(&self, handle: &OwnedFd) -> io::Result<PathBuf> {
        let path = real_path(handle)?;
        let private = path.strip_prefix(&self.home).is_ok_and(|way| PRIVATE.iter().any(|name| way.starts_with(name)));
        if private || self.is_hidden(&path) { Err(Errno::ACCESS.into()) } else { Ok(path) }
    }

    /// Whether a path without links lies in a secret, and in no root within that.
    fn is_hidden(&self, path: &Path) -> bool {
        let root = self.paths().filter(|root| path.starts_with(root)).max_by_key(|root| root.components().count());
        let holds_root = |secret: &Path| root.is_some_and(|root| root.starts_with(secret));
        self.hidden.iter().any(|secret| path.starts_with(secret) && !holds_root(secret))
    }

    /// Whether `path`, without links, may be changed: everything in the roots but the home where a space holds it.
    fn writable(&self, path: &Path) -> bool {
        let declared = |root: &Root| path.starts_with(&root.path) && root.path.starts_with(&self.home);
        !path.starts_with(&self.home) || self.roots.iter().any(declared)
    }

    /// Why `path`, without links, is not written although it lies where an agent writes.
    fn closed_to(&self, path: &Path) -> Option<String> {
        let way = path.strip_prefix(&self.workspace).ok()?;
        // What is closed has names that are text.
        let way = way.to_str().filter(|way| self.closed.holds(way))?;
        Some(if CURATED.contains(&way) {
            format!("changes of {way} are proposed to the operators: use `remember`")
        } else if self.closed.files.iter().any(|file| file == way) {
            "changes of this session's plan are proposed to the operators: use `update_plan`".to_owned()
        } else {
            format!("{way} belongs to another session")
        })
    }

    fn outside(&self, path: &str) -> String {
        let roots: Vec<_> = self.paths().map(|path| path.display().to_string()).collect();
        format!("forbidden path: {path} lies outside of {}", roots.join(" and "))
    }

    fn explain(&self, path: &str, error: &io::Error) -> String {
        match Errno::from_io_error(error) {
            Some(Errno::XDEV | Errno::LOOP) => self.outside(path),
            Some(Errno::NOENT) => format!("{path} does not exist"),
            Some(Errno::NOTDIR) => format!("{path} does not exist: a part of it is not a folder"),
            Some(Errno::ACCESS | Errno::PERM) => format!("{path} may not be touched: permission denied"),
            Some(Errno::NAMETOOLONG) => format!("{path}: the name is too long"),
            Some(Errno::NOSPC | Errno::DQUOT) => format!("{path} could not be written: the disk is full"),
            _ => format!("{path}: {error}"),
        }
    }
}

impl Root {
    fn open(declared: &Path, path: PathBuf) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // What was a folder when it was looked at may be a link by now.
        let handle = rustix::fs::openat2(CWD, &path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
        Ok(Self { path, declared: declared.to_owned(), handle })
    }
}

fn open_beneath(root: impl AsFd, way: &Path, flags: OFlags, links: Links) -> Result<OwnedFd, Errno> {
    let way = if way.as_os_str().is_empty() { Path::new(".") } else { way };
    let rules = match links {
        Links::Follow => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        Links::Refuse => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS,
    };
    let mut tries = 0;
    loop {
        match rustix::fs::openat2(root.as_fd(), way, flags | OFlags::CLOEXEC, Mode::empty(), rules) {
            Err(Errno::AGAIN | Errno::INTR) if tries < TRIES => tries += 1,
            opened => return opened,
        }
    }
}

fn real_path(handle: &OwnedFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

#[cfg(test)]
mod tests;
