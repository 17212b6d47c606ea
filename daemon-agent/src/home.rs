//! Where everything of a viber lies: `~/.openviber/`, or `OPENVIBER_HOME`.
//!
//! Owns paths and permissions: folders 0700, files 0600. Does not know what the files contain.

mod edited_text;

use std::{
    fs::{self, OpenOptions, Permissions},
    io::{self, Read, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use protocol::AttemptRef;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock};

pub use self::edited_text::replace_text;

/// The folder for damaged files, in `state/` and in the outbox.
pub const DAMAGED_FOLDER: &str = "damaged";
/// Longest part of a key, a credential or `.env` that is read, bytes.
const MAX_SMALL_FILE_BYTES: u64 = 1024 * 1024;

/// The root folder and the paths below it.
#[derive(Clone, Debug)]
pub struct Home {
    root: PathBuf,
}

/// Allows one daemon per home: held while the process lives, released by the kernel when it dies.
#[derive(Debug)]
pub struct HomeLock {
    _file: fs::File,
}

impl Home {
    /// A home at `root`; creates nothing yet.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The home from the environment: `OPENVIBER_HOME`, else `~/.openviber`.
    pub fn of_environment() -> io::Result<Self> {
        let named = std::env::var_os("OPENVIBER_HOME").filter(|root| !root.is_empty()).map(PathBuf::from);
        let root = match named {
            Some(root) => std::path::absolute(root)?,
            None => user_home()
                .ok_or_else(|| io::Error::other("neither OPENVIBER_HOME nor HOME is set"))?
                .join(".openviber"),
        };
        Ok(Self::at(root))
    }

    /// Creates missing folders and restricts those that only the daemon may read.
    pub fn open(&self) -> io::Result<()> {
        let folders = [
            self.root.clone(),
            self.workspace(),
            self.state(),
            self.waiting(),
            self.secrets(),
            self.agents(),
            self.skills(),
            self.root.join("artifacts"),
        ];
        for folder in &folders {
            private_folder(folder).map_err(|error| at(folder, &error))?;
        }
        for folder in [self.state(), self.secrets()] {
            if fs::metadata(&folder)?.permissions().mode() & 0o077 != 0 {
                fs::set_permissions(&folder, Permissions::from_mode(0o700)).map_err(|error| at(&folder, &error))?;
            }
        }
        Ok(())
    }

    /// Restricts permissions again that a command loosened where the kernel does not prevent that: otherwise the daemon
    /// would refuse its credential at the next start. Returns the paths that were open to others.
    pub fn close_again(&self) -> Vec<PathBuf> {
        let closed = [(self.state(), 0o700), (self.secrets(), 0o700), (self.credential(), 0o600)];
        let open = closed.into_iter().filter(|(path, _)| open_to_others(path));
        let done = open.filter(|(path, mode)| fs::set_permissions(path, Permissions::from_mode(*mode)).is_ok());
        done.map(|(path, _)| path).collect()
    }

    /// Takes the lock of this home; `None` if another daemon holds it.
    pub fn lock(&self) -> io::Result<Option<HomeLock>> {
        let path = self.state().join("lock");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600)).map_err(|error| at(&path, &error.into()))?;
        let kind = rustix::fs::fstat(&file).map(|stat| FileType::from_raw_mode(stat.st_mode));
        // Opening a pipe of that name would block forever.
        if kind != Ok(FileType::RegularFile) {
            return Err(at(&path, &io::Error::new(io::ErrorKind::InvalidInput, "is not a file")));
        }
        let file = fs::File::from(file);
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(HomeLock { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(at(&path, &error.into())),
        }
    }

    /// The root folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Context that people see: plan, memory, bootstrap files.
    pub fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    /// Credential, journal, outbox, lock: for the daemon only (0700).
    pub fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    /// This viber's identity at its Board (0600).
    pub fn credential(&self) -> PathBuf {
        self.state().join("credential")
    }

    /// Events that the Board has not acknowledged yet.
    pub fn outbox(&self) -> PathBuf {
        self.state().join("outbox")
    }

    /// Commands of the Board.
    pub fn journal(&self) -> PathBuf {
        self.state().join("journal")
    }

    /// Damaged files of `state/`; those of the outbox lie in a folder beside it.
    pub fn damaged(&self) -> PathBuf {
        self.state().join(DAMAGED_FOLDER)
    }

    /// Attempts that only wait: what each needs to go on (0600).
    pub fn waiting(&self) -> PathBuf {
        self.state().join("waiting")
    }

    /// The record of one of them.
    pub fn waiting_record(&self, attempt: &AttemptRef) -> PathBuf {
        self.waiting().join(format!("{}.{}", attempt.task_id, attempt.attempt))
    }

    /// What was found out about models (0600).
    pub fn models(&self) -> PathBuf {
        self.state().join("models.json")
    }

    /// What the team decided for all its tasks, as the Board told it last (0600).
    pub fn team_rules(&self) -> PathBuf {
        self.state().join("team.json")
    }

    /// The commits at which a session's work in the spaces began.
    pub fn heads(&self, session: &str) -> PathBuf {
        self.state().join("heads").join(format!("{session}.json"))
    }

    /// Which lines of a plan its agent wrote; `name` is the session's id, or `machine`.
    pub fn plan_authorship(&self, name: &str) -> PathBuf {
        self.state().join("plans").join(format!("{name}.json"))
    }

    /// What people said through adapters, until it is done with (0600).
    pub fn said(&self) -> PathBuf {
        self.state().join("said")
    }

    /// What an adapter keeps over a restart.
    pub fn adapter_state(&self, adapter: &str) -> PathBuf {
        self.state().join("adapters").join(adapter)
    }

    /// The token that programs of this machine show at its WebSocket (0600).
    pub fn websocket_token(&self) -> PathBuf {
        self.state().join("websocket.token")
    }

    /// The socket through which `task` and `status` reach a running daemon (0600).
    pub fn socket(&self) -> PathBuf {
        self.state().join("daemon.sock")
    }

    /// The key that `task` and `status` show at the socket; new at each start of the daemon (0600).
    pub fn socket_key(&self) -> PathBuf {
        self.state().join("daemon.key")
    }

    /// Provider keys written by `key set` (0700, files 0600).
    pub fn secrets(&self) -> PathBuf {
        self.root.join("secrets")
    }

    /// Providers and defaults of this machine.
    pub fn config(&self) -> PathBuf {
        self.root.join("config.yaml")
    }

    /// What this machine denies its agents, or has asked.
    pub fn policy(&self) -> PathBuf {
        self.root.join("policy.yaml")
    }

    /// Agent files and session logs.
    pub fn agents(&self) -> PathBuf {
        self.root.join("agents")
    }

    /// The predecessor's agent files.
    pub fn vibers(&self) -> PathBuf {
        self.root.join("vibers")
    }

    /// Skills of all agents.
    pub fn skills(&self) -> PathBuf {
        self.root.join("skills")
    }

    /// Which of them were installed, and what people accepted (0600).
    pub fn skills_lock(&self) -> PathBuf {
        self.skills().join("skills.lock")
    }

    /// The same once more, where nothing but the daemon reads or writes (0600).
    pub fn skills_lock_copy(&self) -> PathBuf {
        self.state().join("skills.lock")
    }

    /// Skills of one agent.
    pub fn agent_skills(&self, agent: &str) -> PathBuf {
        self.agents().join(agent).join("skills")
    }

    /// How often skills were used (0600).
    pub fn skill_uses(&self) -> PathBuf {
        self.state().join("skills.json")
    }

    /// The skills that a session has loaded (0600).
    pub fn loaded_skills(&self, session: &str) -> PathBuf {
        self.state().join("skills").join(format!("{session}.json"))
    }

    /// The tools of an MCP server that may be offered (0600).
    pub fn mcp_tools(&self, server: &str) -> PathBuf {
        self.state().join("mcp").join(format!("{server}.json"))
    }

    /// What somebody got when they signed in to an MCP server (0600).
    pub fn mcp_sign_in(&self, server: &str) -> PathBuf {
        self.secrets().join("mcp").join(format!("{server}.json"))
    }

    /// Artifacts of a task.
    pub fn artifacts(&self, task: &str) -> PathBuf {
        self.root.join("artifacts").join(task)
    }

    /// Where an agent finds a file that came with its task's goal; `None` if the name is not a plain one.
    pub fn attachment(&self, task: &str, name: &str) -> Option<PathBuf> {
        is_file_name(name).then(|| self.workspace().join("attachments").join(task).join(name))
    }

    /// The same of a file that came with a message to a running task.
    pub fn message_file(&self, task: &str, message: &str, name: &str) -> Option<PathBuf> {
        is_file_name(name).then(|| self.workspace().join("attachments").join(task).join(message).join(name))
    }

    /// A file among the daemon's own that has no name any more: what arrives from outside, until it was verified.
    pub fn nameless_file(&self) -> io::Result<fs::File> {
        let folder = self.state();
        private_folder(&folder)?;
        let path = folder.join(format!("arriving.{}", uuid::Uuid::now_v7().simple()));
        let mut options = fs::OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        fs::remove_file(path)?;
        Ok(file)
    }

    /// The session's log, one line per completed part: `agents/{agent}/sessions/{session}.jsonl`.
    pub fn session_log(&self, agent: &str, session: &str) -> PathBuf {
        self.agents().join(agent).join("sessions").join(format!("{session}.jsonl"))
    }
}

fn is_file_name(name: &str) -> bool {
    let plain = !name.is_empty() && !name.starts_with('.') && name.len() <= 255;
    plain && !name.chars().any(|c| c.is_control() || matches!(c, '/' | '\\'))
}

/// The user's home folder.
pub fn user_home() -> Option<PathBuf> {
    std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
}

/// Creates `folder` and missing folders above it, accessible to their owner only.
pub fn private_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Replaces `path` with `content`, readable only by its owner; after a crash there is either the old file or the new
/// one.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::other("a file needs a folder"))?;
    private_folder(folder)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = folder.join(name);
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    fs::File::open(folder)?.sync_all()
}

/// Removes the file at `path`; after a crash it does not come back. One that is not there is removed.
pub fn remove_private(path: &Path) -> io::Result<()> {
    match (fs::remove_file(path), path.parent()) {
        (Ok(()), Some(folder)) => fs::File::open(folder)?.sync_all(),
        (Ok(()), None) => Ok(()),
        // An earlier try may have removed it without syncing the folder.
        (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
            found(fs::File::open(folder)).and_then(|folder| folder.map_or(Ok(()), |folder| folder.sync_all()))
        }
        (Err(error), _) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(()),
        (Err(error), _) => Err(error),
    }
}

/// What was found; `None` if there is nothing.
fn found<T>(looked: io::Result<T>) -> io::Result<Option<T>> {
    match looked {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens the regular file at `path` for reading; the flags in `more` may refuse links. Anything else is examined, never
/// opened: a pipe would block forever without a writer, and opening a device may do anything.
pub fn open_plain(path: &Path, more: OFlags) -> io::Result<fs::File> {
    let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC | more, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a file"));
    }
    // Through the descriptor, whatever the path leads to by now.
    fs::File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

/// The text of a small regular file.
pub fn read_plain(path: &Path) -> io::Result<String> {
    io::read_to_string(open_plain(path, OFlags::empty())?.take(MAX_SMALL_FILE_BYTES))
}

/// Whether others than the owner can read `path`.
pub fn open_to_others(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0)
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_closed_and_has_one_daemon() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path().join("home"));
        home.open().expect("a home");
        for path in [home.state(), home.secrets()] {
            assert_eq!(fs::metadata(path).expect("there").permissions().mode() & 0o777, 0o700);
        }
        let held = home.lock().expect("lockable").expect("free");
        assert!(home.lock().expect("lockable").is_none());
        fs::write(home.credential(), "secret").expect("written");
        for (path, mode) in [(home.state(), 0o755), (home.credential(), 0o604)] {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
        }
        assert_eq!(home.close_again(), [home.state(), home.credential()]);
        assert!(home.close_again().is_empty() && !open_to_others(&home.credential()));
        drop(held);
        assert!(home.lock().expect("lockable").is_some());
    }

    #[test]
    fn a_lock_that_is_no_file_is_refused_by_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path().join("home"));
        home.open().expect("a home");
        let path = home.state().join("lock");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::from_raw_mode(0o600)).expect("a pipe");
        assert!(home.lock().expect_err("no file").to_string().contains("state/lock"));
        fs::remove_file(&path).expect("removed");
        std::os::unix::fs::symlink(home.credential(), &path).expect("linked");
        assert!(home.lock().expect_err("a link").to_string().contains("state/lock"));
        assert!(!home.credential().exists(), "nothing is made where it leads");
    }

    #[test]
    fn what_is_no_file_is_not_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "text").expect("a file");
        std::os::unix::fs::symlink(at("file"), at("link")).expect("a link");
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        assert_eq!(read_plain(&at("file")).expect("a file"), "text");
        assert_eq!(read_plain(&at("link")).expect("a file behind a link"), "text");
        assert!(open_plain(&at("link"), OFlags::NOFOLLOW).is_err());
        for name in ["pipe", "."] {
            assert_eq!(read_plain(&at(name)).expect_err(name).kind(), io::ErrorKind::InvalidInput);
        }
        assert_eq!(read_plain(Path::new("/dev/zero")).expect_err("a device").kind(), io::ErrorKind::InvalidInput);
        assert_eq!(read_plain(&at("nothing")).expect_err("nothing").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_written_file_is_closed_and_replaces_the_old_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a/b");
        write_private(&path, b"one").expect("written");
        write_private(&path, b"two").expect("written");
        assert_eq!(fs::read(&path).expect("there"), b"two");
        assert!(!open_to_others(&path));
    }
}
