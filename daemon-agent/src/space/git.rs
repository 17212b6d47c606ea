//! Asks the machine's `git` about an untrusted repository.
//!
//! A repository can name programs, other places and endless work in more ways than anybody has listed. So git runs
//! confined by the kernel (`confined_git`), under a supervisor that kills it at its time limit. The settings here do
//! not provide safety: they make answers the same everywhere, and spare honest repositories an error about something
//! that could not have been started anyway.

use std::{
    ffi::OsString,
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Signal;
use tokio::{
    io::AsyncReadExt,
    sync::SemaphorePermit,
    time::{Instant, timeout_at},
};

use super::{
    Space, SpaceError, configuration,
    confined_git::{ConfinedGitError, ConfinedGitOptions},
    queue::INSPECTION_QUEUE,
    repository::Repository,
};
use crate::hold::{self, CommandSpec, HoldOptions, SupervisedCommand};

/// How long all git commands of one inspection may take together.
pub const INSPECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Settings that a filter can have. A filter without programs leaves files as they are.
const FILTER_KEYS: [&str; 4] = ["clean", "smudge", "process", "required"];

/// Settings that override whatever the repository says.
const GIT_SETTINGS: [(&str, &str); 26] = [
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.quotePath", "false"),
    ("core.untrackedCache", "false"),
    // Larger files are reported as binary: nobody reads their differences.
    ("core.bigFileThreshold", "8m"),
    // Lets large honest repositories fit into the memory of an inspection, without threads, which are not allowed.
    ("core.packedGitWindowSize", "8m"),
    ("core.packedGitLimit", "64m"),
    ("core.deltaBaseCacheLimit", "16m"),
    ("core.preloadIndex", "false"),
    ("index.threads", "1"),
    ("pack.threads", "1"),
    ("color.ui", "false"),
    ("diff.external", ""),
    ("diff.orderFile", "/dev/null"),
    ("diff.noprefix", "false"),
    ("diff.mnemonicPrefix", "false"),
    ("diff.submodule", "short"),
    ("diff.ignoreSubmodules", "dirty"),
    ("log.showSignature", "false"),
    ("log.mailmap", "false"),
    ("core.alternateRefsCommand", ""),
    ("submodule.recurse", "false"),
    ("protocol.allow", "never"),
    ("gc.auto", "0"),
];

/// The environment in addition to the settings: no other configuration, no prompts, no network.
const GIT_ENVIRONMENT: [(&str, &str); 15] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", ""),
    ("SSH_ASKPASS", ""),
    ("GIT_PAGER", "cat"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_LITERAL_PATHSPECS", "1"),
    ("LC_ALL", "C"),
    ("HOME", "/nonexistent"),
];

/// A repository that git can be asked about.
pub struct Git {
    program: PathBuf,
    folder: PathBuf,
    repository: Repository,
    filters: Vec<String>,
    until: Instant,
    place: SemaphorePermit<'static>,
}

/// Git's output.
#[derive(Debug)]
pub struct GitOutput {
    pub bytes: Vec<u8>,
    /// Whether there was more, or may have been.
    pub cut: bool,
    pub code: Option<i32>,
}

impl Git {
    /// Prepares an inspection of the repository of `space`, which takes at most [`INSPECTION_TIMEOUT`].
    pub async fn of(space: &Space) -> Result<Self, SpaceError> {
        if !space.private.is_empty() {
            return Err(SpaceError::HoldsHome);
        }
        let place = INSPECTION_QUEUE.enter().await?;
        let until = Instant::now() + INSPECTION_TIMEOUT;
        let root = space.root.clone();
        // The thread holds the permit: it cannot be cancelled, and counts as an inspection for as long as it works.
        let found = tokio::task::spawn_blocking(move || {
            let repository = Repository::of(&root, until)?;
            let program = program(std::env::var_os("PATH"), &repository.top).ok_or(SpaceError::NoGit)?;
            Ok::<_, SpaceError>((repository, program, place))
        });
        let found = timeout_at(until, found).await.map_err(|_| SpaceError::Slow)?;
        let (repository, program, place) = found.map_err(|error| SpaceError::Git(error.to_string()))??;
        let folder = space.root.clone();
        let mut git = Self { program, folder, repository, filters: Vec::new(), until, place };
        git.filters = configuration::filters(&git).await?;
        Ok(git)
    }

    /// What is left of the inspection when git was asked everything: when it must be over, and its permit.
    pub fn rest(self) -> (Instant, SemaphorePermit<'static>) {
        (self.until, self.place)
    }

    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Runs a git command; a failing one is an error with git's own message.
    pub async fn ask(&self, args: &[&str], most: usize) -> Result<GitOutput, SpaceError> {
        let output = self.run(args, most, true).await?;
        if output.cut || output.code == Some(0) {
            return Ok(output);
        }
        let why = self.run(args, 4 * 1024, false).await?;
        if why.code == Some(0) {
            return self.run(args, most, true).await;
        }
        Err(self.reason(&String::from_utf8_lossy(&why.bytes)))
    }

    /// Like [`Git::ask`], but a failing command is `None`.
    pub async fn try_ask(&self, args: &[&str], most: usize) -> Result<Option<GitOutput>, SpaceError> {
        let output = self.run(args, most, true).await?;
        Ok((output.cut || output.code == Some(0)).then_some(output))
    }

    async fn run(&self, args: &[&str], most: usize, quiet: bool) -> Result<GitOutput, SpaceError> {
        let mut words: Vec<OsString> = vec!["--no-pager".into(), "--no-optional-locks".into()];
        words.extend(args.iter().map(OsString::from));
        let confined = ConfinedGitOptions {
            folder: self.folder.clone(),
            read: self.repository.read.clone(),
            program: self.program.clone(),
            args: words,
        };
        let argv = std::iter::once(hold::own_program().into()).chain(confined.to_args()).collect();
        let options = HoldOptions { quiet, argv, ..HoldOptions::default() };
        let command = CommandSpec { supervisor: hold::own_program(), options, env: self.environment() };
        let started = timeout_at(self.until, SupervisedCommand::start(command)).await.map_err(|_| SpaceError::Slow)?;
        let (mut held, mut pipe) = started.map_err(|error| SpaceError::Git(error.to_string()))?;
        let mut bytes = Vec::new();
        let mut chunk = vec![0; 64 * 1024];
        let all = loop {
            match timeout_at(self.until, pipe.read(&mut chunk)).await {
                Err(_) => {
                    held.stopped().await;
                    return Err(SpaceError::Slow);
                }
                Ok(Ok(0) | Err(_)) => break true,
                Ok(Ok(length)) => bytes.extend_from_slice(&chunk[..length]),
            }
            if bytes.len() > most {
                bytes.truncate(most);
                break false;
            }
        };
        let ended = if all { timeout_at(self.until, held.ended()).await.ok() } else { None };
        let ended = match ended {
            Some(ended) => ended,
            None => held.stopped().await,
        };
        if let Some(failure) = ended.code.and_then(ConfinedGitError::of) {
            return Err(not_started(failure));
        }
        if ended.signal == Some(Signal::XCPU.as_raw()) {
            return Err(SpaceError::Slow);
        }
        Ok(GitOutput { bytes, cut: !all, code: ended.code })
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut settings: Vec<(String, OsString)> =
            GIT_SETTINGS.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
        settings.push(("safe.directory".to_owned(), self.repository.top.clone().into()));
        for filter in &self.filters {
            let value = |word: &str| if word == "required" { "false" } else { "" };
            settings.extend(FILTER_KEYS.map(|word| (format!("filter.{filter}.{word}"), value(word).into())));
        }
        let mut env: Vec<(OsString, OsString)> =
            GIT_ENVIRONMENT.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        env.push(("PATH".into(), self.program.parent().unwrap_or(Path::new("/usr/bin")).into()));
        env.push(("GIT_DIR".into(), self.repository.git.clone().into()));
        env.push(("GIT_WORK_TREE".into(), self.repository.top.clone().into()));
        env.push(("GIT_CONFIG_COUNT".into(), settings.len().to_string().into()));
        for (n, (key, value)) in settings.into_iter().enumerate() {
            env.push((format!("GIT_CONFIG_KEY_{n}").into(), key.into()));
            env.push((format!("GIT_CONFIG_VALUE_{n}").into(), value));
        }
        env
    }

    /// Git's error message, without paths of this machine that it may contain.
    fn reason(&self, words: &str) -> SpaceError {
        if words.contains("not a git repository") {
            return SpaceError::NoRepository;
        }
        if ["Out of memory", "out of memory", "Cannot allocate memory"].iter().any(|end| words.contains(end)) {
            return SpaceError::TooLarge;
        }
        let line = words.lines().find(|line| line.starts_with("fatal:") || line.starts_with("error:"));
        let line = line.or_else(|| words.lines().next()).unwrap_or("it ended without a message");
        SpaceError::Git(protocol::text::head(line, 300).to_owned())
    }
}

fn not_started(failure: ConfinedGitError) -> SpaceError {
    match failure {
        ConfinedGitError::NoLandlock => SpaceError::NoConfinement("Landlock"),
        ConfinedGitError::NoSeccomp => SpaceError::NoConfinement("seccomp"),
        ConfinedGitError::Moved => SpaceError::Elsewhere("the folder".to_owned()),
        ConfinedGitError::NotStarted => SpaceError::NoGit,
        ConfinedGitError::Usage => SpaceError::Git("it was started with invalid arguments".to_owned()),
    }
}

/// The machine's git, but never one that lies in the repository itself.
fn program(path: Option<OsString>, repository: &Path) -> Option<PathBuf> {
    let path = path.filter(|path| !path.is_empty()).unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let folders =
        path.as_bytes().split(|byte| *byte == b':').map(|folder| Path::new(std::ffi::OsStr::from_bytes(folder)));
    let programs = folders.filter(|folder| folder.is_absolute()).map(|folder| folder.join("git"));
    let real = programs.filter_map(|program| program.canonicalize().ok());
    let mut usable = real.filter(|program| program.is_file() && !program.starts_with(repository));
    usable.find(|program| is_program(program))
}

/// Whether it is a binary: a wrapper script could not start git, since it would need a shell.
fn is_program(path: &Path) -> bool {
    let mut head = [0; 4];
    std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == *b"\x7fELF"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_git_of_the_repository_is_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("a folder");
        std::fs::create_dir_all(root.join("bin")).expect("made");
        std::fs::create_dir_all(root.join("repo/bin")).expect("made");
        std::fs::create_dir_all(root.join("shims")).expect("made");
        for path in ["bin/git", "repo/bin/git", "repo/git"] {
            std::fs::write(root.join(path), "\x7fELF and so on").expect("written");
        }
        std::fs::write(root.join("shims/git"), "#!/bin/sh\nexec git\n").expect("written");
        let folders = ["repo/bin", "shims", "bin"].map(|folder| root.join(folder).display().to_string());
        let path = format!(".:repo/bin::{}", folders.join(":"));
        assert_eq!(program(Some(path.into()), &root.join("repo")), Some(root.join("bin/git")));
        assert_eq!(program(Some(".:".into()), &root), None);
    }
}
