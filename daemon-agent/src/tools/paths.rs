//! Where an agent may read and write: its spaces and the workspace, held as open folders.
//!
//! The kernel resolves a path beneath one of these folders (openat2), so that neither `..` nor a link nor a concurrent
//! rename leads out of it. Only files and folders are ever opened. The daemon's own files are refused even if a space
//! contains them.

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
};

use crate::{
    config::{Agent, SharedAccess},
    home::Home,
    memory::CURATED_NAMES,
    sandbox::{Grants, PRIVATE_NAMES, SKILLS_NAME, secrets},
    tools::{CallBounds, ToolErrorKind, ToolFailure},
    workspace::{ProtectedPaths, Workspace},
};

mod write;

/// Longest path, bytes: the kernel refuses longer ones too (PATH_MAX), with a less helpful message.
const MAX_PATH_BYTES: usize = 4096;
/// A concurrent rename makes the kernel give up on a path with `..`; resolving is tried this often.
const MAX_RESOLVE_ATTEMPTS: usize = 64;

/// The folders that an agent's paths may lie in; relative paths start in the first one.
#[derive(Debug)]
pub struct Roots {
    roots: Vec<Root>,
    home: PathBuf,
    /// Secrets of the user.
    hidden: Vec<PathBuf>,
    /// Declared spaces that do not exist.
    missing: Vec<PathBuf>,
    /// Whether the first declared space exists, or none was declared.
    starts: bool,
    /// Notified of writes, so that changes of the workspace are attributed to the agent.
    write_listener: Option<Workspace>,
    /// What must not be written in the workspace, and the real path of the workspace.
    protected: ProtectedPaths,
    workspace: PathBuf,
    /// What the call that uses them is bound to.
    bounds: Option<CallBounds>,
    /// Folders in which nothing is written, whatever contains them.
    read_only: Vec<PathBuf>,
}

#[derive(Debug)]
struct Root {
    /// Without links.
    path: PathBuf,
    /// As the agent's file writes it.
    declared: PathBuf,
    handle: OwnedFd,
    /// Nothing in it is written, whatever contains it.
    is_read_only: bool,
}

/// What a root is for its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootKind {
    /// Where it works.
    Space,
    /// The workspace beside its spaces, which all agents of the machine share.
    Workspace,
}

/// A path, split into a root and the rest below it.
#[derive(Clone, Debug)]
struct RootedPath {
    root: usize,
    way: PathBuf,
}

/// Whether links that stay beneath the root may be followed.
#[derive(Clone, Copy)]
enum LinkPolicy {
    Follow,
    Refuse,
}

/// What a path leads to: examined, but not opened for reading.
#[derive(Debug)]
pub struct FoundPath {
    handle: OwnedFd,
    pub stat: Stat,
    /// Where it really lies.
    pub path: PathBuf,
}

impl FoundPath {
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

    /// The roots of an agent with these spaces; `reach` is what all agents can reach.
    fn of(spaces: &[PathBuf], reach: &SharedAccess, workspace: &Path, home: &Path) -> Self {
        let grants = Grants::look(&reach.write);
        let mut found = Self {
            roots: Vec::new(),
            home: home.canonicalize().unwrap_or_else(|_| home.to_owned()),
            hidden: Vec::new(),
            missing: Vec::new(),
            starts: true,
            write_listener: None,
            protected: ProtectedPaths::default(),
            bounds: None,
            read_only: Vec::new(),
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

    /// Lets these folders be read, too, if the path that a call names lies in one. Whatever else they lie in, nothing in them is written.
    pub fn with_readable(mut self, folders: Vec<PathBuf>, named: Option<&str>) -> Self {
        // Each takes a descriptor, and there may be hundreds: only the one that the call names is opened.
        let meant = folders.iter().filter(|folder| named.is_some_and(|named| Path::new(named).starts_with(folder)));
        let opened = meant.filter_map(|folder| Root::open(folder, folder.clone()).ok());
        self.roots.extend(opened.map(|root| Root { is_read_only: true, ..root }));
        self.read_only = folders;
        self
    }

    /// Notifies this workspace of writes.
    pub fn with_write_listener(self, workspace: Workspace) -> Self {
        Self { write_listener: Some(workspace), ..self }
    }

    /// Refuses writing to these paths of the workspace.
    pub fn with_protected_paths(self, protected: ProtectedPaths) -> Self {
        Self { protected, ..self }
    }

    /// Refuses whatever the call was not looked at for.
    pub fn with_bounds(self, bounds: Option<CallBounds>) -> Self {
        Self { bounds, ..self }
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

    /// All roots that exist, without links.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.roots.iter().map(|root| root.path.as_path())
    }

    /// All roots that exist and may be written to, as the agent's file writes them.
    pub fn declared(&self) -> impl Iterator<Item = &Path> {
        self.roots.iter().filter(|root| !root.is_read_only).map(|root| root.declared.as_path())
    }

    /// A path as it is shown to the model: in a form that it could use itself.
    pub fn show(&self, path: &Path) -> String {
        let short = self.working_directory().ok().and_then(|start| path.strip_prefix(start).ok()).unwrap_or(path);
        if short.as_os_str().is_empty() { ".".into() } else { short.display().to_string() }
    }

    /// Examines what `path` leads to.
    pub fn find(&self, path: &str) -> Result<FoundPath, ToolFailure> {
        let place = self.place(path)?;
        let found = self.look(&place, LinkPolicy::Follow).map_err(|error| self.explain(path, &error))?;
        self.check_path(&found.path)?;
        Ok(found)
    }

    /// Refuses a path that is not the one which the call was looked at for.
    fn check_path(&self, found: &Path) -> Result<(), ToolFailure> {
        let meant = self.bounds.as_ref().and_then(|bounds| bounds.path.as_deref());
        if meant.is_none_or(|meant| meant == found) {
            return Ok(());
        }
        let shown = self.show(found);
        Err(ToolErrorKind::Permission
            .because(format!("nothing was done: the path leads to {shown} by now, which nobody decided about")))
    }

    /// Like [`Roots::find`], for a real path that was found by walking: follows no link, and returns `None` if the path
    /// is no longer real.
    pub fn find_again(&self, path: &Path) -> Option<FoundPath> {
        self.look(&self.beneath(path)?, LinkPolicy::Refuse).ok()
    }

    /// Like [`Roots::find_again`], but the last part of the path may be a link, which is then examined itself.
    pub fn find_again_or_link(&self, path: &Path) -> Option<Stat> {
        let place = self.beneath(path.parent()?)?;
        let folder = self.resolve(&place, OFlags::PATH | OFlags::DIRECTORY, LinkPolicy::Refuse).ok()?;
        self.readable(&folder).ok()?;
        rustix::fs::statat(&folder, path.file_name()?, AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    /// Opens a folder that was found by walking, for listing.
    pub fn open_folder(&self, path: &Path) -> io::Result<OwnedFd> {
        let place = self.beneath(path).ok_or(Errno::XDEV)?;
        let handle = self.resolve(&place, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK, LinkPolicy::Refuse)?;
        self.readable(&handle)?;
        Ok(handle)
    }

    /// Opens the regular file at `path` for reading.
    pub fn read(&self, path: &str) -> Result<(File, FoundPath), ToolFailure> {
        let found = self.find(path)?;
        match found.kind() {
            FileType::RegularFile => {
                let file = found.open().map_err(|error| self.explain(path, &error))?;
                Ok((file, found))
            }
            FileType::Directory => Err(format!("{path} is a folder; use list_files").into()),
            _ => Err(format!("{path} is not a regular file").into()),
        }
    }

    /// The way to `path`, without links, beneath the innermost root that it lies in, and whether that is a space. The
    /// workspace is one for an agent that has no other.
    pub fn innermost(&self, path: &Path) -> Option<(PathBuf, RootKind)> {
        let around = self.roots.iter().filter(|root| path.starts_with(&root.path));
        let root = around.max_by_key(|root| root.path.components().count())?;
        let is_start = self.roots.first().is_some_and(|first| first.path == root.path);
        let kind = if root.path == self.workspace && !is_start { RootKind::Workspace } else { RootKind::Space };
        Some((path.strip_prefix(&root.path).ok()?.to_owned(), kind))
    }

    fn place(&self, path: &str) -> Result<RootedPath, ToolFailure> {
        if path.is_empty() {
            return Err("the path is empty".into());
        }
        if path.contains('\0') {
            return Err("the path contains a NUL character".into());
        }
        if path.len() > MAX_PATH_BYTES {
            return Err(format!("the path is longer than {MAX_PATH_BYTES} bytes").into());
        }
        let path = Path::new(path);
        if path.is_relative() {
            self.working_directory()?;
            return Ok(RootedPath { root: 0, way: path.to_owned() });
        }
        let within = |(root, known): (usize, &Root)| {
            let way = path.strip_prefix(&known.path).or_else(|_| path.strip_prefix(&known.declared)).ok()?;
            Some(RootedPath { root, way: way.to_owned() })
        };
        let places = self.roots.iter().enumerate().filter_map(within);
        // The shortest rest belongs to the innermost root.
        places.min_by_key(|place| place.way.as_os_str().len()).ok_or_else(|| self.outside(&path.to_string_lossy()))
    }

    /// Splits a path without links.
    fn beneath(&self, real: &Path) -> Option<RootedPath> {
        let within = |(root, known): (usize, &Root)| {
            let way = real.strip_prefix(&known.path).ok()?.to_owned();
            Some(RootedPath { root, way })
        };
        self.roots.iter().enumerate().find_map(within)
    }

    fn look(&self, place: &RootedPath, links: LinkPolicy) -> io::Result<FoundPath> {
        let handle = self.resolve(place, OFlags::PATH, links)?;
        let path = self.readable(&handle)?;
        let stat = rustix::fs::fstat(&handle)?;
        Ok(FoundPath { handle, stat, path })
    }

    /// Opens beneath the root, or beneath another root that a link with an absolute target leads to.
    fn resolve(&self, place: &RootedPath, flags: OFlags, links: LinkPolicy) -> io::Result<OwnedFd> {
        let root = &self.roots[place.root];
        match open_beneath(&root.handle, &place.way, flags, links) {
            Err(Errno::XDEV) if matches!(links, LinkPolicy::Follow) => {
                let real = root.path.join(&place.way).canonicalize().map_err(|_| Errno::XDEV)?;
                let place = self.beneath(&real).ok_or(Errno::XDEV)?;
                // The path may have changed in between: without links, it can only lie where it seems to.
                Ok(open_beneath(&self.roots[place.root].handle, &place.way, flags, LinkPolicy::Refuse)?)
            }
            opened => Ok(opened?),
        }
    }

    /// The real path of an open file, unless it belongs to the daemon or is a secret of the user.
    fn readable(&self, handle: &OwnedFd) -> io::Result<PathBuf> {
        let path = real_path(handle)?;
        let private =
            path.strip_prefix(&self.home).is_ok_and(|way| PRIVATE_NAMES.iter().any(|name| way.starts_with(name)));
        if private || self.is_hidden(&path) { Err(Errno::ACCESS.into()) } else { Ok(path) }
    }

    /// Whether a path without links lies in a secret, and not in a root within it.
    fn is_hidden(&self, path: &Path) -> bool {
        let root = self.paths().filter(|root| path.starts_with(root)).max_by_key(|root| root.components().count());
        let holds_root = |secret: &Path| root.is_some_and(|root| root.starts_with(secret));
        self.hidden.iter().any(|secret| path.starts_with(secret) && !holds_root(secret))
    }

    /// Whether `path`, without links, may be changed: everything in the roots except a home that a space contains or is, and the
    /// skills of the home.
    fn writable(&self, path: &Path) -> bool {
        let skills = self.home.join(SKILLS_NAME);
        if self.read_only.iter().chain([&skills]).any(|folder| path.starts_with(folder)) {
            return false;
        }
        let part_of_home = |root: &Root| root.path != self.home && root.path.starts_with(&self.home);
        let declared = |root: &Root| path.starts_with(&root.path) && part_of_home(root);
        !path.starts_with(&self.home) || self.roots.iter().any(declared)
    }

    /// Why `path`, without links, must not be written although it lies where an agent may write.
    fn write_refusal(&self, path: &Path) -> Option<String> {
        let way = path.strip_prefix(&self.workspace).ok()?;
        // Protected names are text.
        let way = way.to_str().filter(|way| self.protected.holds(way))?;
        Some(if CURATED_NAMES.contains(&way) {
            format!("changes of {way} are proposed to the operators: use `remember`")
        } else if self.protected.files.iter().any(|file| file == way) {
            format!("{way} is a plan, which is not written as a file: this session's is changed with `update_plan`")
        } else {
            format!("{way} belongs to another session")
        })
    }

    fn outside(&self, path: &str) -> ToolFailure {
        let roots = self.roots.iter().filter(|root| !root.is_read_only);
        let roots: Vec<_> = roots.map(|root| root.path.display().to_string()).collect();
        let message = format!("forbidden path: {path} lies outside of {}", roots.join(" and "));
        ToolErrorKind::Permission.because(message)
    }

    fn explain(&self, path: &str, error: &io::Error) -> ToolFailure {
        let (kind, message) = match Errno::from_io_error(error) {
            Some(Errno::XDEV | Errno::LOOP) => return self.outside(path),
            Some(Errno::NOENT) => (ToolErrorKind::NotFound, format!("{path} does not exist")),
            Some(Errno::NOTDIR) => {
                (ToolErrorKind::NotFound, format!("{path} does not exist: a part of it is not a folder"))
            }
            Some(Errno::ACCESS | Errno::PERM) => {
                (ToolErrorKind::Permission, format!("{path} cannot be accessed: permission denied"))
            }
            Some(Errno::NAMETOOLONG) => (ToolErrorKind::Validation, format!("{path}: the name is too long")),
            Some(Errno::NOSPC | Errno::DQUOT) => {
                (ToolErrorKind::Unknown, format!("{path} could not be written: the disk is full"))
            }
            _ => (ToolErrorKind::Unknown, format!("{path}: {error}")),
        };
        kind.because(message)
    }
}

/// What an agent may read, for code that opens files on its behalf.
pub struct ReadableFiles {
    agent: Arc<Agent>,
    home: Home,
}

impl ReadableFiles {
    /// The files that `agent` may read.
    pub fn of(agent: &Arc<Agent>, home: &Home) -> Self {
        Self { agent: agent.clone(), home: home.clone() }
    }

    /// Opens a regular file, and returns the name it has.
    pub fn open(&self, path: &str) -> Result<(File, String), ToolFailure> {
        let roots = Roots::open(&self.agent, &self.home);
        let (file, found) = roots.read(path)?;
        Ok((file, found.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()))
    }
}

impl Root {
    fn open(declared: &Path, path: PathBuf) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // What was a folder when it was examined may be a link by now.
        let handle = rustix::fs::openat2(CWD, &path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
        Ok(Self { path, declared: declared.to_owned(), handle, is_read_only: false })
    }
}

fn open_beneath(root: impl AsFd, way: &Path, flags: OFlags, links: LinkPolicy) -> Result<OwnedFd, Errno> {
    let way = if way.as_os_str().is_empty() { Path::new(".") } else { way };
    let rules = match links {
        LinkPolicy::Follow => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        LinkPolicy::Refuse => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS,
    };
    let mut tries = 0;
    loop {
        match rustix::fs::openat2(root.as_fd(), way, flags | OFlags::CLOEXEC, Mode::empty(), rules) {
            Err(Errno::AGAIN | Errno::INTR) if tries < MAX_RESOLVE_ATTEMPTS => tries += 1,
            opened => return opened,
        }
    }
}

fn real_path(handle: &OwnedFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

#[cfg(test)]
mod tests;
