//! Asking the machine's `git` about a repository that nobody trusts.
//!
//! A repository can name programs, other places and endless work in more ways than anybody has listed. So git runs
//! confined by the kernel (`look`), under the supervisor that ends what does not end. The settings here are not what makes
//! it safe: they make answers the same everywhere, and spare honest repositories an error about something that could not
//! have been started anyway.

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
    Space, Trouble, configuration,
    look::{LookFailure, LookOptions},
    queue::LOOKS,
    repository::Repository,
};
use crate::hold::{self, Command, Held, Options};

/// How long all questions of one look may take together.
pub const TIME: Duration = Duration::from_secs(10);
/// What a filter can name. One without programs leaves a file as it is.
const OF_FILTER: [&str; 4] = ["clean", "smudge", "process", "required"];

/// What stands above whatever the repository says.
const SETTINGS: [(&str, &str); 26] = [
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.quotePath", "false"),
    ("core.untrackedCache", "false"),
    // Larger files are told as binary: their differences are not for reading.
    ("core.bigFileThreshold", "8m"),
    // Large honest repositories within the memory that one look has, and without threads, which it has not.
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

/// The environment beside the settings: no other configuration, no questions, no network.
const ENVIRONMENT: [(&str, &str); 15] = [
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

/// A repository that questions can be asked about.
pub struct Git {
    program: PathBuf,
    folder: PathBuf,
    repository: Repository,
    filters: Vec<String>,
    until: Instant,
    _place: SemaphorePermit<'static>,
}

/// What git wrote.
#[derive(Debug)]
pub struct Told {
    pub bytes: Vec<u8>,
    /// There was more, or it may be.
    pub cut: bool,
    pub code: Option<i32>,
}

impl Git {
    /// Ready to ask about the repository of `space`; all questions together take [`TIME`] at most.
    pub async fn of(space: &Space) -> Result<Self, Trouble> {
        if !space.private.is_empty() {
            return Err(Trouble::HoldsHome);
        }
        let place = LOOKS.enter().await?;
        let until = Instant::now() + TIME;
        let root = space.root.clone();
        // The place goes along: a thread cannot be ended, and as long as it works it counts as a look.
        let found = tokio::task::spawn_blocking(move || {
            let repository = Repository::of(&root, until)?;
            let program = program(std::env::var_os("PATH"), &repository.top).ok_or(Trouble::NoGit)?;
            Ok::<_, Trouble>((repository, program, place))
        });
        let found = timeout_at(until, found).await.map_err(|_| Trouble::Slow)?;
        let (repository, program, place) = found.map_err(|error| Trouble::Git(error.to_string()))??;
        let folder = space.root.clone();
        let mut git = Self { program, folder, repository, filters: Vec::new(), until, _place: place };
        git.filters = configuration::filters(&git).await?;
        Ok(git)
    }

    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Asks; an answer of a failed command is an error in git's own words.
    pub async fn ask(&self, args: &[&str], most: usize) -> Result<Told, Trouble> {
        let told = self.run(args, most, true).await?;
        if told.cut || told.code == Some(0) {
            return Ok(told);
        }
        let why = self.run(args, 4 * 1024, false).await?;
        if why.code == Some(0) {
            return self.run(args, most, true).await;
        }
        Err(self.reason(&String::from_utf8_lossy(&why.bytes)))
    }

    /// The same, where failing is an answer too.
    pub async fn try_ask(&self, args: &[&str], most: usize) -> Result<Option<Told>, Trouble> {
        let told = self.run(args, most, true).await?;
        Ok((told.cut || told.code == Some(0)).then_some(told))
    }

    async fn run(&self, args: &[&str], most: usize, quiet: bool) -> Result<Told, Trouble> {
        let mut words: Vec<OsString> = vec!["--no-pager".into(), "--no-optional-locks".into()];
        words.extend(args.iter().map(OsString::from));
        let look = LookOptions {
            folder: self.folder.clone(),
            read: self.repository.read.clone(),
            program: self.program.clone(),
            args: words,
        };
        let argv = std::iter::once(hold::own_program().into()).chain(look.to_args()).collect();
        let options = Options { quiet, argv, ..Options::default() };
        let command = Command { supervisor: hold::own_program(), options, env: self.environment() };
        let started = timeout_at(self.until, Held::start(command)).await.map_err(|_| Trouble::Slow)?;
        let (mut held, mut pipe) = started.map_err(|error| Trouble::Git(error.to_string()))?;
        let mut bytes = Vec::new();
        let mut chunk = vec![0; 64 * 1024];
        let all = loop {
            match timeout_at(self.until, pipe.read(&mut chunk)).await {
                Err(_) => {
                    held.stopped().await;
                    return Err(Trouble::Slow);
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
        if let Some(failure) = ended.code.and_then(LookFailure::of) {
            return Err(not_started(failure));
        }
        if ended.signal == Some(Signal::XCPU.as_raw()) {
            return Err(Trouble::Slow);
        }
        Ok(Told { bytes, cut: !all, code: ended.code })
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut settings: Vec<(String, OsString)> =
            SETTINGS.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
        settings.push(("safe.directory".to_owned(), self.repository.top.clone().into()));
        for filter in &self.filters {
            let value = |word: &str| if word == "required" { "false" } else { "" };
            settings.extend(OF_FILTER.map(|word| (format!("filter.{filter}.{word}"), value(word).into())));
        }
        let mut env: Vec<(OsString, OsString)> =
            ENVIRONMENT.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
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

    /// Git's words, without the places of this machine that they may name.
    fn reason(&self, words: &str) -> Trouble {
        if words.contains("not a git repository") {
            return Trouble::NoRepository;
        }
        if ["Out of memory", "out of memory", "Cannot allocate memory"].iter().any(|end| words.contains(end)) {
            return Trouble::TooLarge;
        }
        let line = words.lines().find(|line| line.starts_with("fatal:") || line.starts_with("error:"));
        let line = line.or_else(|| words.lines().next()).unwrap_or("it ended without a word");
        Trouble::Git(protocol::text::head(line, 300).to_owned())
    }
}

fn not_started(failure: LookFailure) -> Trouble {
    match failure {
        LookFailure::NoLandlock => Trouble::NoConfinement("Landlock"),
        LookFailure::NoSeccomp => Trouble::NoConfinement("seccomp"),
        LookFailure::Moved => Trouble::Elsewhere("the folder".to_owned()),
        LookFailure::NotStarted => Trouble::NoGit,
        LookFailure::Usage => Trouble::Git("it was asked wrongly".to_owned()),
    }
}

/// The machine's git: never one that lies in the repository itself.
fn program(path: Option<OsString>, repository: &Path) -> Option<PathBuf> {
    let path = path.filter(|path| !path.is_empty()).unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let folders =
        path.as_bytes().split(|byte| *byte == b':').map(|folder| Path::new(std::ffi::OsStr::from_bytes(folder)));
    let programs = folders.filter(|folder| folder.is_absolute()).map(|folder| folder.join("git"));
    let real = programs.filter_map(|program| program.canonicalize().ok());
    let mut usable = real.filter(|program| program.is_file() && !program.starts_with(repository));
    usable.find(|program| is_program(program))
}

/// A script that stands before git could start it nowhere: it would need a shell.
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
