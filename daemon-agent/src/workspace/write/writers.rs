//! Who still has a displaced file open for writing.

use std::{
    ffi::OsStr,
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// How long whoever has the file open may take to finish: `>>` of a shell takes less than a millisecond.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(250);
const CLOSE_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The part of a descriptor's flags that says what it may do; zero is reading alone.
const ACCESS_MODE_MASK: u32 = 0o3;

/// Waits until no process has the file of this unique name open for writing; returns whether it came to that. Processes
/// of other users cannot be seen unless this one is root's.
#[expect(clippy::disallowed_methods, reason = "files are changed on threads that may block")]
pub fn wait_for_writers(name: &str) -> bool {
    let deadline = Instant::now() + CLOSE_TIMEOUT;
    while is_written(name) {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(CLOSE_POLL_INTERVAL);
    }
    true
}

fn is_written(name: &str) -> bool {
    let own = std::process::id().to_string();
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    processes.flatten().any(|process| {
        let id = process.file_name();
        let is_other = id.as_encoded_bytes().iter().all(u8::is_ascii_digit) && id != OsStr::new(&own);
        is_other && writes(&process.path(), name)
    })
}

/// Whether this process has it open for writing. A process that ends meanwhile has nothing open.
fn writes(process: &Path, name: &str) -> bool {
    let Ok(open) = fs::read_dir(process.join("fd")) else { return false };
    open.flatten().any(|descriptor| {
        let target = fs::read_link(descriptor.path());
        target.is_ok_and(|target| target.file_name() == Some(OsStr::new(name)))
            && may_write(&process.join("fdinfo").join(descriptor.file_name()))
    })
}

/// Reads a descriptor's flags, in octal; see proc(5).
fn may_write(info: &Path) -> bool {
    let Ok(info) = fs::read_to_string(info) else { return false };
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).is_some_and(|flags| flags & ACCESS_MODE_MASK != 0)
}
