//! `daemon-agent look`: the last step before the machine's `git` looks at a repository that nobody trusts.
//!
//! It confines itself in ways that the kernel keeps for whatever the process becomes, and then becomes git: only the named
//! places can be read (Landlock), no file can be written, no program and no thread started, no socket opened (seccomp),
//! memory and time are bounded (rlimits). What a repository makes git want to do does not matter, so there is no list of
//! what it could be. Where a part of the confinement is not to be had, git is not started at all. Refuses to know
//! repositories.

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod confine;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod loader;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod syscalls;

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

/// Memory of one git, mapped files included, bytes.
pub const MAX_MEMORY: u64 = 256 * 1024 * 1024;
/// Seconds of a processor that one git may use: as long as a whole look may take.
pub const MAX_SECONDS: u64 = 10;

/// Why git was not started, as this program's exit code: none of them is one of git's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookFailure {
    /// The kernel cannot limit what is read.
    NoLandlock = 120,
    /// The kernel cannot limit system calls.
    NoSeccomp = 121,
    /// A place was not there any more, or a link by then.
    Moved = 122,
    /// Git is not a program that can be started when confined: a script, or of another machine.
    NotStarted = 123,
    Usage = 124,
}

impl LookFailure {
    /// Which one this exit code is.
    pub fn of(code: i32) -> Option<Self> {
        let all = [Self::NoLandlock, Self::NoSeccomp, Self::Moved, Self::NotStarted, Self::Usage];
        all.into_iter().find(|failure| *failure as i32 == code)
    }
}

/// What git is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LookOptions {
    /// Where git runs.
    pub folder: PathBuf,
    /// Files and folders, without links, that can be read with all below them. What is not there is left out.
    pub read: Vec<PathBuf>,
    /// Git itself, without links.
    pub program: PathBuf,
    /// Git's arguments.
    pub args: Vec<OsString>,
}

impl LookOptions {
    /// Reads the arguments that stand after `look`.
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

    /// The arguments of the daemon's own program that [`LookOptions::parse`] reads back.
    pub fn to_args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec!["look".into(), "--in".into(), self.folder.clone().into()];
        args.extend(self.read.iter().flat_map(|path| ["--read".into(), path.clone().into_os_string()]));
        args.extend(["--".into(), self.program.clone().into()]);
        args.extend(self.args.iter().cloned());
        args
    }
}

/// Runs `look` with the arguments after that word. Comes back only when git could not be started.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let failure = match LookOptions::parse(args) {
        Some(options) => become_git(&options),
        None => LookFailure::Usage,
    };
    ExitCode::from(failure as u8)
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn become_git(options: &LookOptions) -> LookFailure {
    match confine::become_program(options) {
        Err(failure) => failure,
    }
}

/// Other systems have no such confinement, and on other machines nobody has looked which system calls git needs.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn become_git(_: &LookOptions) -> LookFailure {
    LookFailure::NoSeccomp
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_back() {
        let options = LookOptions {
            folder: "/space".into(),
            read: vec!["/space".into(), "/above/.git".into()],
            program: "/usr/bin/git".into(),
            args: vec!["log".into(), "--".into(), ".".into(), "--read".into()],
        };
        assert_eq!(LookOptions::parse(options.to_args().into_iter().skip(1)), Some(options));
        for bad in [&["--in", "/x"][..], &["--in", "x", "--", "/git"], &["--in", "/x", "--", "git"], &["--write", "/x"]]
        {
            assert_eq!(LookOptions::parse(bad.iter().map(OsString::from)), None, "{bad:?}");
        }
    }

    #[test]
    fn a_failure_is_none_of_gits_codes() {
        assert_eq!(LookFailure::of(LookFailure::Moved as i32), Some(LookFailure::Moved));
        for code in [0, 1, 2, 126, 127, 128, 129, 255] {
            assert_eq!(LookFailure::of(code), None);
        }
    }
}
