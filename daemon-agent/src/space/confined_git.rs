//! `daemon-agent look`: confines its own process and then executes the machine's `git` on an untrusted repository.
//!
//! The kernel enforces the confinement on whatever program the process executes: only the named places can be read
//! (Landlock); no file can be written, no other program or thread started, no socket opened (seccomp); memory and time
//! are limited (rlimits). It does not matter what a repository makes git attempt, so there is no list of such things.
//! If a part of the confinement is unavailable, git is not started at all. Knows nothing of repositories.

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod confine;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod loader;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod syscalls;

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

/// Most memory that one git may use, including mapped files, bytes.
pub const MAX_MEMORY_BYTES: u64 = 256 * 1024 * 1024;
/// Processor time that one git may use, seconds: as long as a whole inspection may take.
pub const MAX_CPU_SECONDS: u64 = 10;

/// Why git was not started, as this program's exit code; git itself uses none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfinedGitError {
    /// The kernel cannot restrict reading.
    NoLandlock = 120,
    /// The kernel cannot restrict system calls.
    NoSeccomp = 121,
    /// A place had disappeared, or become a link.
    Moved = 122,
    /// Git cannot be started when confined: it is a script, or built for another machine.
    NotStarted = 123,
    Usage = 124,
}

impl ConfinedGitError {
    /// The error for this exit code.
    pub fn of(code: i32) -> Option<Self> {
        let all = [Self::NoLandlock, Self::NoSeccomp, Self::Moved, Self::NotStarted, Self::Usage];
        all.into_iter().find(|failure| *failure as i32 == code)
    }
}

/// What git is started with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfinedGitOptions {
    /// The folder in which git runs.
    pub folder: PathBuf,
    /// Files and folders, without links, that can be read with everything below them. Missing ones are left out.
    pub read: Vec<PathBuf>,
    /// Git itself, without links.
    pub program: PathBuf,
    /// Git's arguments.
    pub args: Vec<OsString>,
}

impl ConfinedGitOptions {
    /// Parses the arguments that follow `look`.
    fn parse(args: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut args = args.into_iter();
        let mut options = Self::default();
        while let Some(arg) = args.next() {
            match arg.to_str()? {
                "--in" => options.folder = args.next()?.into(),
                "--read" => options.read.push(args.next()?.into()),
                "--" => {
                    options.program = args.next()?.into();
                    options.args = args.by_ref().collect();
                }
                _ => return None,
            }
        }
        (options.folder.is_absolute() && options.program.is_absolute()).then_some(options)
    }

    /// The daemon's own arguments that [`ConfinedGitOptions::parse`] reads back.
    pub fn to_args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec!["look".into(), "--in".into(), self.folder.clone().into()];
        args.extend(self.read.iter().flat_map(|path| ["--read".into(), path.clone().into_os_string()]));
        args.extend(["--".into(), self.program.clone().into()]);
        args.extend(self.args.iter().cloned());
        args
    }
}

/// Runs `look` with the arguments that follow that word. Returns only if git could not be started.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let failure = match ConfinedGitOptions::parse(args) {
        Some(options) => become_git(&options),
        None => ConfinedGitError::Usage,
    };
    ExitCode::from(failure as u8)
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn become_git(options: &ConfinedGitOptions) -> ConfinedGitError {
    match confine::become_program(options) {
        Err(failure) => failure,
    }
}

/// Other systems lack this confinement, and on other machines nobody has checked which system calls git needs.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn become_git(_: &ConfinedGitOptions) -> ConfinedGitError {
    ConfinedGitError::NoSeccomp
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_back() {
        let options = ConfinedGitOptions {
            folder: "/space".into(),
            read: vec!["/space".into(), "/above/.git".into()],
            program: "/usr/bin/git".into(),
            args: vec!["log".into(), "--".into(), ".".into(), "--read".into()],
        };
        assert_eq!(ConfinedGitOptions::parse(options.to_args().into_iter().skip(1)), Some(options));
        for bad in [&["--in", "/x"][..], &["--in", "x", "--", "/git"], &["--in", "/x", "--", "git"], &["--write", "/x"]]
        {
            assert_eq!(ConfinedGitOptions::parse(bad.iter().map(OsString::from)), None, "{bad:?}");
        }
    }

    #[test]
    fn a_failure_is_none_of_gits_codes() {
        assert_eq!(ConfinedGitError::of(ConfinedGitError::Moved as i32), Some(ConfinedGitError::Moved));
        for code in [0, 1, 2, 126, 127, 128, 129, 255] {
            assert_eq!(ConfinedGitError::of(code), None);
        }
    }
}
