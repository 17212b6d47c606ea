//! Small file systems that fill up, in a mount namespace that vanishes with the test.
//!
//! A test that mounts runs itself again as a child process in a namespace of its own: as root, or as whoever may make a
//! user namespace. Where neither is allowed it fails and says so; it never passes without its disk.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Set for the child that runs the test.
const INSIDE_VARIABLE: &str = "BOARD_TEST_MOUNTS";

/// A mounted file system of a bounded size.
#[derive(Debug)]
pub struct Disk {
    pub path: PathBuf,
    /// The image of an ext4 disk.
    _image: Option<tempfile::NamedTempFile>,
}

/// Runs the test `name` (its path in the suite, `faults::daemon::f16_…`) again, as a child process in a mount
/// namespace of its own. Returns true in the caller, which then has nothing left to do, and false in that child.
pub fn run_in_mount_namespace(name: &str) -> bool {
    if std::env::var_os(INSIDE_VARIABLE).is_some() {
        return false;
    }
    let test = std::env::current_exe().expect("a running test has a path");
    let mut unshare = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.arg("--map-root-user");
    }
    unshare.args(["--mount", "--propagation", "private"]).arg(test).args([name, "--exact", "--nocapture"]);
    unshare.env(INSIDE_VARIABLE, "1").stdin(Stdio::null());
    let done = unshare.output().unwrap_or_else(|error| panic!("{unshare:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{name} in a namespace of its own ({}):\n{out}\n{err}", done.status);
    assert!(out.contains("1 passed"), "{name} is not the name of a test:\n{out}");
    true
}

impl Disk {
    /// An empty file system of `mib` MiB in memory, mounted at the folder `path`, open to its owner alone.
    pub fn in_memory(path: &Path, mib: u32) -> Self {
        mount(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={mib}m,mode=0700"), "tmpfs"]).arg(path));
        Self { path: path.to_owned(), _image: None }
    }

    /// An ext4 of `mib` MiB in an image file; in memory where loop devices are not ours to use.
    pub fn ext4(path: &Path, mib: u32) -> Self {
        let image = tempfile::NamedTempFile::new().expect("an image file");
        image.as_file().set_len(u64::from(mib) * 1024 * 1024).expect("room for an image");
        let made = Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(image.path()).status();
        let mounted = made.is_ok_and(|status| status.success())
            && Command::new("mount")
                .args(["-o", "loop"])
                .arg(image.path())
                .arg(path)
                .status()
                .is_ok_and(|s| s.success());
        if !mounted {
            return Self::in_memory(path, mib);
        }
        Self { path: path.to_owned(), _image: Some(image) }
    }

    /// Bytes that are free.
    pub fn free(&self) -> u64 {
        let stat = rustix::fs::statvfs(&self.path).expect("a file system");
        stat.f_bavail * stat.f_frsize
    }

    /// Takes all room but `leave` bytes, with a file that can be removed again.
    pub fn fill(&self, leave: u64) -> PathBuf {
        use std::io::Write as _;
        let path = self.path.join("filler");
        let mut file = std::fs::File::create(&path).expect("a file");
        let chunk = [7_u8; 4096];
        while self.free() > leave && file.write_all(&chunk).is_ok() {}
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: somebody may still have a file open. Without it the namespace's end does the same.
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).stderr(Stdio::null()).status();
    }
}

fn mount(command: &mut Command) {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}
