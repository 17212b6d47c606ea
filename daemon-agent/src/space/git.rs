//! Running the machine's `git` to look at a repository that nobody trusts.
//!
//! A repository can name programs: filters, drivers of diffs, hooks, monitors, helpers of transports. None of them runs:
//! each way to them is closed by name, filters one by one because there is no other way, and the whole is confined by
//! the kernel to reading, under the supervisor that ends everything that a command may have begun.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    io::AsyncReadExt,
    time::{Instant, timeout_at},
};

use super::{Space, Trouble, repository::Repository};
use crate::{
    hold::{self, Command, Held, Options},
    sandbox::Rules,
};

/// How long one question may take.
pub const TIME: Duration = Duration::from_secs(10);
/// Filters that are turned off by name; a repository with more is not looked at.
const MAX_FILTERS: usize = 100;
/// Bytes of a list of names.
const MAX_NAMES: usize = 64 * 1024;
/// What a filter can name.
const OF_FILTER: [&str; 4] = ["clean", "smudge", "process", "required"];

/// What stands above whatever the repository says.
const SETTINGS: [(&str, &str); 18] = [
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.quotePath", "false"),
    ("core.untrackedCache", "false"),
    // Larger files are told as binary: their differences are not for reading.
    ("core.bigFileThreshold", "8m"),
    ("color.ui", "false"),
    ("diff.external", ""),
    ("diff.orderFile", "/dev/null"),
    ("diff.noprefix", "false"),
    ("diff.mnemonicPrefix", "false"),
    ("diff.submodule", "short"),
    ("diff.ignoreSubmodules", "dirty"),
    ("log.showSignature", "false"),
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
    home: PathBuf,
    cwd: PathBuf,
    repository: Repository,
    filters: Vec<String>,
    until: Instant,
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
        let repository = Repository::of(&space.root)?;
        let program = program(std::env::var_os("PATH"), &repository.top).ok_or(Trouble::NoGit)?;
        let until = Instant::now() + TIME;
        let home = space.home.root().to_owned();
        let mut git = Self { program, home, cwd: space.root.clone(), repository, filters: Vec::new(), until };
        git.filters = git.named_filters().await?;
        Ok(git)
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
        let mut argv: Vec<OsString> =
            vec![self.program.clone().into(), "--no-pager".into(), "--no-optional-locks".into()];
        argv.extend(args.iter().map(OsString::from));
        let rules = Rules { home: self.home.clone(), ..Rules::default() };
        let options = Options { quiet, cwd: Some(self.cwd.clone()), rules: Some(rules), argv, ..Options::default() };
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

    /// The filters that the repository's configuration names: reading it runs nothing.
    async fn named_filters(&self) -> Result<Vec<String>, Trouble> {
        let args = ["config", "--includes", "--list", "--name-only", "-z"];
        let told = self.ask(&args, MAX_NAMES).await?;
        let mut names: Vec<String> = told.bytes.split(|byte| *byte == 0).filter_map(filter).collect();
        names.sort_unstable();
        names.dedup();
        if told.cut || names.len() > MAX_FILTERS {
            return Err(Trouble::Git("its configuration is too long".to_owned()));
        }
        Ok(names)
    }

    /// Git's words, without the places of this machine that they may name.
    fn reason(&self, words: &str) -> Trouble {
        if words.contains("not a git repository") {
            return Trouble::NoRepository;
        }
        let line = words.lines().find(|line| line.starts_with("fatal:") || line.starts_with("error:"));
        let line = line.or_else(|| words.lines().next()).unwrap_or("it ended without a word");
        Trouble::Git(protocol::text::head(line, 300).to_owned())
    }
}

/// The name of the filter that a key of the configuration is about.
fn filter(key: &[u8]) -> Option<String> {
    let key = std::str::from_utf8(key).ok()?;
    let (section, rest) = key.split_once('.')?;
    let (name, _) = rest.rsplit_once('.')?;
    section.eq_ignore_ascii_case("filter").then(|| name.to_owned())
}

/// The machine's git: never one that lies in the repository itself.
fn program(path: Option<OsString>, repository: &Path) -> Option<PathBuf> {
    let path = path.filter(|path| !path.is_empty()).unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let folders =
        path.as_bytes().split(|byte| *byte == b':').map(|folder| Path::new(std::ffi::OsStr::from_bytes(folder)));
    let programs = folders.filter(|folder| folder.is_absolute()).map(|folder| folder.join("git"));
    let usable = |program: &PathBuf| {
        let real = program.canonicalize().ok()?;
        (real.is_file() && !real.starts_with(repository)).then_some(())
    };
    programs.into_iter().find(|program| usable(program).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_known_by_its_key_however_it_is_called() {
        assert_eq!(filter(b"filter.lfs.clean").as_deref(), Some("lfs"));
        assert_eq!(filter(b"filter.a.b = c.process").as_deref(), Some("a.b = c"));
        assert_eq!(filter(b"filter..clean").as_deref(), Some(""));
        for other in [b"core.editor".as_slice(), b"filter.clean", b"filters.x.clean", b"\xff"] {
            assert_eq!(filter(other), None);
        }
    }

    #[test]
    fn no_git_of_the_repository_is_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("a folder");
        std::fs::create_dir_all(root.join("bin")).expect("made");
        std::fs::create_dir_all(root.join("repo/bin")).expect("made");
        for path in ["bin/git", "repo/bin/git", "repo/git"] {
            std::fs::write(root.join(path), "").expect("written");
        }
        let path = format!(".:repo/bin::{}:{}", root.join("repo/bin").display(), root.join("bin").display());
        assert_eq!(program(Some(path.into()), &root.join("repo")), Some(root.join("bin/git")));
        assert_eq!(program(Some(".:".into()), &root), None);
    }
}
