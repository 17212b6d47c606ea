//! The CLI adapter: `state/daemon.sock`, where `task` and `status` talk to a running daemon.
//!
//! One JSON line asks, JSON lines answer. Only this machine's user reaches it: the socket is 0600 in a folder 0700.

use std::{
    fs, io,
    os::{fd::AsRawFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
};

use protocol::{Running, parse_event};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::watch,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::CommandCenterAdapter;
use crate::{adapters::board::status, mesh::Mesh, outbox::Outbox, task::Cause};

/// Longest line that is read: a goal with everything around it.
const MAX_LINE: u64 = 1024 * 1024;

/// What a command of this machine asks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase")]
pub enum Ask {
    Status,
    /// Begins a task; its events follow, one a line, until its ending. Closing the connection stops it.
    Task {
        goal: String,
        agent: String,
    },
}

/// A path to the socket that fits the kernel's 108 bytes, however deep the home lies: by its folder's descriptor.
struct Near {
    path: PathBuf,
    _folder: Option<fs::File>,
}

impl Near {
    fn to(path: &Path) -> io::Result<Self> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        if path.as_os_str().len() < 100 {
            return Ok(Self { path: path.to_owned(), _folder: None });
        }
        let folder = fs::File::open(folder)?;
        let near = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
        Ok(Self { path: near, _folder: Some(folder) })
    }
}

/// The adapter of the commands of this machine.
pub struct Cli {
    listener: UnixListener,
    path: PathBuf,
}

impl Cli {
    /// Listens at `path`. Whoever holds the home's lock may take the place of a socket that was left behind.
    pub fn listen(path: PathBuf) -> io::Result<Self> {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let near = Near::to(&path)?;
        let listener = UnixListener::bind(&near.path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(Self { listener, path })
    }
}

impl CommandCenterAdapter for Cli {
    fn id(&self) -> &'static str {
        "cli"
    }

    async fn serve(self, mesh: Mesh, finish: CancellationToken) -> Result<(), String> {
        let visitors = TaskTracker::new();
        while let Some(visit) = finish.run_until_cancelled(self.listener.accept()).await {
            match visit {
                Ok((stream, _)) => {
                    let (mesh, finish) = (mesh.clone(), finish.clone());
                    visitors.spawn(async move {
                        if let Some(Err(error)) = finish.run_until_cancelled(receive(stream, mesh)).await {
                            tracing::debug!("a visitor of the socket left: {error}");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!("the socket takes no visitor: {error}");
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
            }
        }
        let _ = fs::remove_file(&self.path);
        visitors.close();
        visitors.wait().await;
        Ok(())
    }
}

async fn receive(stream: UnixStream, mesh: Mesh) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    let mut reader = BufReader::new(reader.take(MAX_LINE));
    reader.read_line(&mut line).await?;
    match serde_json::from_str(&line) {
        Ok(Ask::Status) => say(&mut writer, &status(&mesh)).await,
        Ok(Ask::Task { goal, agent }) => {
            let attempt = mesh.begin_local("cli", &agent, &goal);
            let gone = async {
                // Nothing more is said by a visitor; the end of its input is its leaving.
                let mut rest = Vec::new();
                let _ = reader.read_to_end(&mut rest).await;
            };
            let tell = async {
                let mut events = Follower::new(mesh.outbox(), &attempt);
                while let Some(items) = events.next().await {
                    for item in items {
                        say(&mut writer, &item).await?;
                    }
                }
                Ok(())
            };
            let told = tokio::select! {
                told = tell => told,
                () = gone => Err(io::Error::from(io::ErrorKind::ConnectionAborted)),
            };
            if told.is_err() {
                mesh.stop(&Cause::Stop("the command was interrupted".to_owned()), |running, _| *running == attempt);
            }
            told
        }
        Err(error) => say(&mut writer, &json!({ "error": error.to_string() })).await,
    }
}

/// Reads an attempt's events as they come, until its ending.
pub struct Follower<'a> {
    outbox: &'a Outbox,
    attempt: &'a Running,
    bell: watch::Receiver<u64>,
    next: u64,
    ended: bool,
}

impl<'a> Follower<'a> {
    /// A reader at the first event.
    pub fn new(outbox: &'a Outbox, attempt: &'a Running) -> Self {
        Self { outbox, attempt, bell: outbox.bell(), next: 1, ended: false }
    }

    /// What is new; `None` after the ending.
    pub async fn next(&mut self) -> Option<Vec<Box<RawValue>>> {
        while !self.ended {
            self.bell.mark_unchanged();
            if let Some(batch) = self.outbox.read(self.attempt, self.next, 64 * 1024) {
                self.next = batch.to + 1;
                let last = batch.items.last().and_then(|item| parse_event(item).ok());
                self.ended = last.is_some_and(|event| event.body.is_terminal());
                return Some(batch.items);
            }
            // No log: it was sent, acknowledged and forgotten before it was read here.
            self.ended = self.outbox.next(self.attempt) == 0 || self.bell.changed().await.is_err();
        }
        None
    }
}

async fn say<T: Serialize + ?Sized>(writer: &mut (impl AsyncWriteExt + Unpin), value: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    writer.write_all(&line).await
}

/// Asks a running daemon; `None` when none listens. Every line of the answer is handed to `take`.
pub async fn ask(path: &Path, ask: &Ask, mut take: impl FnMut(Value)) -> io::Result<Option<()>> {
    let near = match Near::to(path) {
        Ok(near) => near,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut stream = match UnixStream::connect(&near.path).await {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    say(&mut stream, ask).await?;
    let mut lines = BufReader::new(stream).lines();
    while let Some(line) = lines.next_line().await? {
        take(serde_json::from_str(&line)?);
    }
    Ok(Some(()))
}
