//! The mounts of a tree, one by one. Every place is opened without following a link, because commands have written to
//! what is granted.

use std::{
    collections::BTreeSet,
    ffi::{CStr, CString},
    fs, io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{DirBuilderExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, mknodat},
    io::Errno,
    mount::{
        MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change, mount_remount,
        unmount,
    },
    process::{chdir, fchdir, pivot_root},
};

use super::{COMMAND_FOLDERS, ViewPlan};
use crate::sandbox::mounts::Mounts;

/// Where the machine's own root lies while the tree is built.
const OLD_ROOT: &str = "/old";
/// The new root under construction.
const NEW_ROOT: &str = "/new";
/// An empty lower layer for overlays.
const NOTHING_FOLDER: &str = "/nothing";
/// Empty files and folders that cover hidden ones.
const EMPTY_FOLDER: &str = "/empty";
/// Layers with whiteouts for what must not be found.
const HIDDEN_FOLDER: &str = "/hidden";

/// System folders: they contain no sockets, and programs start from there all the time.
const SYSTEM_FOLDERS: [&str; 8] = ["/usr", "/etc", "/boot", "/bin", "/sbin", "/lib", "/lib64", "/nix"];
/// A file system of another kind, shown as it is.
const SYSFS_FOLDER: &str = "/sys";
/// Folders with mounts somewhere below are taken apart down to this depth.
const MAX_SPLIT_DEPTH: usize = 5;
/// A folder with more entries than this is shown as it is.
const MAX_SPLIT_ENTRIES: usize = 400;
/// Devices that every program may use.
const SHOWN_DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// A tree under construction.
pub struct ViewBuilder {
    old: OwnedFd,
    new: OwnedFd,
    mounts: Mounts,
    overlays: bool,
    /// How many empty places were made so far.
    empty: usize,
    /// Places to hide below an overlay, although somebody may create them while the command runs.
    absent: Vec<PathBuf>,
}

fn below(root: &str, path: &Path) -> PathBuf {
    Path::new(root).join(path.strip_prefix("/").unwrap_or(path))
}

fn open_root(path: &str) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// A path that leads to exactly this opened place.
fn path_of(place: &OwnedFd) -> String {
    format!("{OLD_ROOT}/proc/self/fd/{}", place.as_raw_fd())
}

impl ViewBuilder {
    /// Moves the machine's root aside. From now on this process sees only the parts of the tree.
    pub fn begin(memory: u64, absent: Vec<PathBuf>) -> io::Result<Self> {
        let mounts = Mounts::read()?;
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        let base = ["/tmp", "/usr"].into_iter().find(|path| fs::metadata(path).is_ok_and(|meta| meta.is_dir()));
        let base = base.ok_or_else(|| io::Error::other("no folder to begin in"))?;
        mount_tmpfs(base, memory, "0755")?;
        chdir(base)?;
        for part in [OLD_ROOT, NEW_ROOT, NOTHING_FOLDER, EMPTY_FOLDER, HIDDEN_FOLDER] {
            fs::DirBuilder::new().mode(0o755).create(part.trim_start_matches('/'))?;
        }
        pivot_root(".", "old")?;
        chdir("/")?;
        mount_bind_recursive(NEW_ROOT, NEW_ROOT)?;
        Ok(Self { old: open_root(OLD_ROOT)?, new: open_root(NEW_ROOT)?, mounts, overlays: true, empty: 0, absent })
    }

    /// Shows everything on the machine, read-only.
    pub fn lay_machine(&mut self) -> io::Result<()> {
        self.lay(Path::new("/"), 0)
    }

    fn lay(&mut self, folder: &Path, depth: usize) -> io::Result<()> {
        for entry in fs::read_dir(below(OLD_ROOT, folder))?.flatten() {
            let path = folder.join(entry.file_name());
            let place = below(NEW_ROOT, &path);
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_symlink() {
                symlink(fs::read_link(entry.path())?, place)?;
            } else if meta.is_dir() {
                fs::DirBuilder::new().mode(meta.permissions().mode() & 0o777 | 0o500).create(&place)?;
                self.lay_folder(&path, depth)?;
            } else if meta.is_file() {
                fs::write(&place, "")?;
                self.bind(&path, false)?;
            }
        }
        Ok(())
    }

    fn lay_folder(&mut self, path: &Path, depth: usize) -> io::Result<()> {
        if COMMAND_FOLDERS.iter().any(|own| path == Path::new(own)) {
            return Ok(());
        }
        let laid = if SYSTEM_FOLDERS.iter().any(|system| path == Path::new(system)) || path == Path::new(SYSFS_FOLDER) {
            self.bind(path, false)
        } else if self.mounts.below(path).is_empty() {
            self.overlay(path)
        } else if depth < MAX_SPLIT_DEPTH && self.entries(path) <= MAX_SPLIT_ENTRIES {
            return self.lay(path, depth + 1);
        } else {
            self.overlays = false;
            self.bind(path, false)
        };
        match laid {
            // This user may not look into it: an empty folder is shown.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            laid => laid,
        }
    }

    fn entries(&self, path: &Path) -> usize {
        fs::read_dir(below(OLD_ROOT, path)).map_or(0, Iterator::count)
    }

    /// A layer over the folder at `path` with whiteouts for what must not be found later. Of missing paths, the
    /// outermost missing folder is hidden. `None` if there is nothing to hide.
    fn hide(&self, path: &Path) -> io::Result<Option<String>> {
        let mut missing = BTreeSet::new();
        for place in &self.absent {
            let Ok(way) = place.strip_prefix(path) else { continue };
            let (mut folder, mut parts) = (PathBuf::new(), way.components());
            let first = parts.find_map(|part| {
                folder.push(part);
                match fs::symlink_metadata(below(OLD_ROOT, &path.join(&folder))) {
                    Ok(meta) if meta.is_dir() => None,
                    // A link leads to a place that has a name of its own.
                    Ok(_) => Some(None),
                    Err(_) => Some(Some(folder.clone())),
                }
            });
            missing.extend(first.flatten());
        }
        if missing.is_empty() {
            return Ok(None);
        }
        let number = fs::read_dir(HIDDEN_FOLDER)?.count();
        let layer = PathBuf::from(format!("{HIDDEN_FOLDER}/{number}"));
        fs::DirBuilder::new().mode(folder_mode(&below(OLD_ROOT, path))).create(&layer)?;
        for place in missing {
            let mut folder = PathBuf::new();
            for part in place.parent().unwrap_or(Path::new("")).components() {
                folder.push(part);
                match fs::DirBuilder::new()
                    .mode(folder_mode(&below(OLD_ROOT, &path.join(&folder))))
                    .create(layer.join(&folder))
                {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                    _ => {}
                }
            }
            // A whiteout is a device with the number 0.
            mknodat(CWD, layer.join(&place), FileType::CharacterDevice, Mode::empty(), 0)?;
        }
        Ok(Some(format!("{HIDDEN_FOLDER}/{number}")))
    }

    /// Shows a folder without its mounts through an overlay, above what is hidden there or above nothing; as it is,
    /// where the kernel or the file system does not support overlays.
    fn overlay(&mut self, path: &Path) -> io::Result<()> {
        if self.mounts.of(path).is_some_and(|mount| mount.kind == "autofs") {
            return Ok(());
        }
        let source = self.source(path)?;
        let target = self.target(path)?;
        let noexec = self.mounts.of(path).map_or(MountFlags::empty(), |mount| mount.flags & MountFlags::NOEXEC);
        let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | noexec;
        // By its descriptor, not its name, which may contain a separator of these options.
        let options = match self.hide(path) {
            Ok(Some(layer)) => format!("lowerdir={layer}:."),
            // Without whiteouts in this kernel, what exists is covered all the same.
            Ok(None) | Err(_) => format!("lowerdir=.:{NOTHING_FOLDER}"),
        };
        let options = CString::new(options).map_err(io::Error::other)?;
        fchdir(&source)?;
        let laid = mount("overlay", path_of(&target), "overlay", flags, Some(options.as_c_str()));
        chdir("/")?;
        match laid {
            Ok(()) => Ok(()),
            Err(Errno::ACCESS) => Err(Errno::ACCESS.into()),
            Err(_) => {
                self.overlays = false;
                self.bind(path, false)
            }
        }
    }

    /// Shows a file or folder as it is, with what is mounted below.
    fn bind(&self, path: &Path, writable: bool) -> io::Result<()> {
        mount_bind_recursive(path_of(&self.source(path)?), path_of(&self.target(path)?))?;
        if writable {
            return Ok(());
        }
        let own = self.mounts.of(path).map_or(MountFlags::empty(), |mount| mount.flags);
        self.make_read_only(path, own)?;
        for mount in self.mounts.below(path) {
            self.make_read_only(&mount.point, mount.flags)?;
        }
        Ok(())
    }

    fn make_read_only(&self, path: &Path, flags: MountFlags) -> io::Result<()> {
        // What is visible there now, not what it covers.
        let top = open_beneath(&self.new, path)?;
        let flags = MountFlags::BIND | MountFlags::RDONLY | flags;
        Ok(mount_remount(path_of(&top), flags, "")?)
    }

    /// Adds `/dev`, `/proc`, `/run`, `/tmp`, `/var/tmp`.
    pub fn lay_own(&mut self, plan: &ViewPlan) -> io::Result<()> {
        for own in COMMAND_FOLDERS {
            self.folder(Path::new(own))?;
        }
        let run = Path::new("/var/run");
        if fs::symlink_metadata(below(OLD_ROOT, run)).is_ok_and(|meta| meta.is_dir()) {
            self.empty(run)?;
        }
        self.lay_devices(plan.memory)?;
        let options = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let proc = below(NEW_ROOT, Path::new("/proc"));
        mount("proc", &proc, "proc", options, None::<&CStr>)?;
        // Older kernels have no such limit per namespace; there the supervisor counts.
        let _ = fs::write(proc.join("sys/kernel/pid_max"), plan.processes.to_string());
        mount_remount(&proc, MountFlags::BIND | MountFlags::RDONLY | options, "")?;
        self.lay_temporary(plan)
    }

    fn lay_devices(&self, memory: u64) -> io::Result<()> {
        let dev = below(NEW_ROOT, Path::new("/dev"));
        for name in SHOWN_DEVICES {
            let path = Path::new("/dev").join(name);
            if self.source(&path).is_ok() {
                fs::write(dev.join(name), "")?;
                self.bind(&path, true)?;
            }
        }
        for folder in ["pts", "shm"] {
            fs::create_dir(dev.join(folder))?;
        }
        let options = MountFlags::NOSUID | MountFlags::NOEXEC;
        mount("devpts", dev.join("pts"), "devpts", options, c"newinstance,ptmxmode=0666,mode=0620")?;
        mount_tmpfs(dev.join("shm"), memory, "1777")?;
        let links = [
            ("ptmx", "pts/ptmx"),
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
        ];
        links.into_iter().try_for_each(|(name, to)| symlink(to, dev.join(name)))
    }

    fn lay_temporary(&self, plan: &ViewPlan) -> io::Result<()> {
        let [tmp, var_tmp] = ["/tmp", "/var/tmp"].map(|path| below(NEW_ROOT, Path::new(path)));
        let kept = plan.scratch.and_then(|scratch| self.temporary_in(scratch).ok());
        match &kept {
            Some(kept) => mount_bind_recursive(path_of(kept), &tmp)?,
            None => mount_tmpfs(&tmp, plan.memory, "1777")?,
        }
        Ok(mount_bind_recursive(&tmp, &var_tmp)?)
    }

    /// The folder in a scratch folder that is a command's `/tmp`. Commands write to the scratch folder: a link there
    /// leads nowhere.
    fn temporary_in(&self, scratch: &Path) -> io::Result<OwnedFd> {
        let path = scratch.join("tmp");
        match fs::DirBuilder::new().mode(0o700).create(below(OLD_ROOT, &path)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let place = self.source(&path)?;
        let meta = rustix::fs::fstat(&place)?;
        if meta.st_mode & 0o7777 != 0o1777 {
            fs::set_permissions(path_of(&place), fs::Permissions::from_mode(0o1777))?;
        }
        Ok(place)
    }

    /// Shows a file, folder or socket of the machine, whatever covers it so far.
    pub fn show(&mut self, path: &Path, writable: bool) -> io::Result<()> {
        let source = match self.source(path) {
            Ok(source) => source,
            // Gone in the meantime, or not accessible to this user.
            Err(error) if is_absence(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let is_folder = FileType::from_raw_mode(rustix::fs::fstat(&source)?.st_mode).is_dir();
        match self.place(path, is_folder) {
            Ok(()) if !writable && is_folder && self.mounts.below(path).is_empty() => self.overlay(path),
            Ok(()) => self.bind(path, writable),
            Err(error) if !writable && is_absence(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Covers what is at `path` with an empty file or folder. Paths that are not in the tree need no cover.
    pub fn empty(&mut self, path: &Path) -> io::Result<()> {
        let target = match self.target(path) {
            Ok(target) => target,
            Err(error) if is_absence(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        self.empty += 1;
        let empty = Path::new(EMPTY_FOLDER).join(self.empty.to_string());
        if FileType::from_raw_mode(rustix::fs::fstat(&target)?.st_mode).is_dir() {
            fs::DirBuilder::new().mode(0o755).create(&empty)?;
        } else {
            fs::write(&empty, "")?;
        }
        Ok(mount_bind_recursive(&empty, path_of(&target))?)
    }

    /// Mounts a folder over itself: a mount point cannot be renamed or removed.
    pub fn pin(&self, path: &Path) -> io::Result<()> {
        match self.target(path) {
            Ok(target) => Ok(mount_bind_recursive(path_of(&target), path_of(&target))?),
            Err(error) if is_absence(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Moves this process into the tree for good. Returns whether every user folder is shown through an overlay.
    pub fn finish(self) -> io::Result<bool> {
        chdir(NEW_ROOT)?;
        pivot_root(".", ".")?;
        unmount(".", UnmountFlags::DETACH)?;
        chdir("/")?;
        // The new root, `/dev` and everything empty share a file system: nothing can be created in it from now on.
        mount_remount("/", MountFlags::RDONLY, "")?;
        Ok(self.overlays)
    }

    fn source(&self, path: &Path) -> io::Result<OwnedFd> {
        open_beneath(&self.old, path)
    }

    fn target(&self, path: &Path) -> io::Result<OwnedFd> {
        open_beneath(&self.new, path)
    }

    /// Makes sure that there is something to mount on at `path`.
    fn place(&self, path: &Path, is_folder: bool) -> io::Result<()> {
        if self.target(path).is_ok() {
            return Ok(());
        }
        if is_folder {
            return self.folder(path);
        }
        let parent = path.parent().ok_or(Errno::NOENT)?;
        self.folder(parent)?;
        let (parent, name) = (self.target(parent)?, path.file_name().ok_or(Errno::NOENT)?);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o644))?;
        Ok(())
    }

    /// Creates the folder `path` with those above it, in parts of the tree that are still under construction.
    fn folder(&self, path: &Path) -> io::Result<()> {
        if self.target(path).is_ok() {
            return Ok(());
        }
        let parent = path.parent().ok_or(Errno::NOENT)?;
        self.folder(parent)?;
        let (parent, name) = (self.target(parent)?, path.file_name().ok_or(Errno::NOENT)?);
        Ok(rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755))?)
    }
}

/// Whether an error means that something neither exists nor can be created.
fn is_absence(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), NotFound | NotADirectory | PermissionDenied | ReadOnlyFilesystem)
}

/// The mode of a folder, for the one that covers it.
fn folder_mode(path: &Path) -> u32 {
    fs::metadata(path).map_or(0o755, |meta| meta.permissions().mode() & 0o777)
}

/// Opens `path` in the tree at `root`, without following a link.
fn open_beneath(root: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let path = path.strip_prefix("/").unwrap_or(path);
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(root, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), how)?)
}

fn mount_tmpfs(path: impl AsRef<Path>, size: u64, mode: &str) -> io::Result<()> {
    let options = CString::new(format!("mode={mode},size={size}")).map_err(io::Error::other)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(mount("tmpfs", path.as_ref(), "tmpfs", flags, Some(options.as_c_str()))?)
}
