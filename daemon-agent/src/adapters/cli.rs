//! The CLI adapter: `state/daemon.sock`, where `task` and `status` talk to a running daemon.
//!
//! Two JSON lines ask, the key of this start and what is wanted; JSON lines answer. The socket is 0600 in a folder 0700,
//! and agents' commands, which run as the same user, are told apart by [`door`].

mod door;

use std::{
    fs, io,
    os::{fd::AsRawFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use protocol::{Running, parse_event};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Take},
    net::{
        UnixListener, UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
    time::{Instant, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::CommandCenterAdapter;
use crate::{
    adapters::board::status,
    home::Home,
    mesh::{Cause, Mesh},
    outbox::Outbox,
};
use door::Key;

/// Longest question that is read: a goal with everything around it, bytes.
const MAX_LINE: u64 = 1024 * 1024;
/// A visitor has said what it wants by then.
const MAX_SILENCE: Duration = Duration::from_secs(5);
/// Visitors at once; the next wait in the kernel's queue.
const MAX_VISITORS: usize = 64;
/// Between two lines in the log about visitors that were refused.
const MIN_BETWEEN_WARNINGS: Duration = Duration::from_secs(10);

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
    key: Arc<Key>,
    home: Home,
}

impl Cli {
    /// Listens at the home's socket, with a new key. Whoever holds the home's lock may take the place of a socket that was
    /// left behind.
    pub fn listen(home: &Home) -> io::Result<Self> {
        let path = home.socket();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Before anybody can connect: who does finds the key that is asked for.
        let key = Arc::new(Key::lay_down(&home.socket_key())?);
        let near = Near::to(&path)?;
        let listener = UnixListener::bind(&near.path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(Self { listener, key, home: home.clone() })
    }

    /// The next visitor, when there is room for one.
    async fn next(&self, room: &Arc<Semaphore>) -> io::Result<(UnixStream, OwnedSemaphorePermit)> {
        let place = room.clone().acquire_owned().await.map_err(io::Error::other)?;
        Ok((self.listener.accept().await?.0, place))
    }
}

impl CommandCenterAdapter for Cli {
    fn id(&self) -> &'static str {
        "cli"
    }

    async fn serve(self, mesh: Mesh, finish: CancellationToken) -> Result<(), String> {
        let visitors = TaskTracker::new();
        let room = Arc::new(Semaphore::new(MAX_VISITORS));
        // One waits for the log; more need not.
        let (refused, refusals) = mpsc::channel(1);
        visitors.spawn(warn(refusals));
        while let Some(visit) = finish.run_until_cancelled(self.next(&room)).await {
            match visit {
                Ok((stream, place)) => {
                    let (mesh, finish, key, refused) =
                        (mesh.clone(), finish.clone(), self.key.clone(), refused.clone());
                    visitors.spawn(async move {
                        let _place = place;
                        let visit = async {
                            match listen_to(stream, &key).await? {
                                Ok(visitor) => return answer(visitor, mesh).await,
                                Err(why) => drop(refused.try_send(why)),
                            }
                            io::Result::Ok(())
                        };
                        if let Some(Err(error)) = finish.run_until_cancelled(visit).await {
                            tracing::debug!("a visitor of the socket left: {error}");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!("the socket takes no visitor: {error}");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
        drop(refused);
        let _ = fs::remove_file(self.home.socket());
        let _ = fs::remove_file(self.home.socket_key());
        visitors.close();
        visitors.wait().await;
        Ok(())
    }
}

/// Tells the log of visitors that were refused, now and then.
async fn warn(mut refusals: mpsc::Receiver<&'static str>) {
    let mut told: Option<Instant> = None;
    while let Some(why) = refusals.recv().await {
        if told.is_none_or(|told| told.elapsed() >= MIN_BETWEEN_WARNINGS) {
            tracing::warn!("a visitor of the socket was refused: {why}");
            told = Some(Instant::now());
        }
    }
}

/// Somebody who may command, and what they want.
struct Visitor {
    wish: serde_json::Result<Ask>,
    reader: BufReader<Take<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
}

/// Hears a visitor; the reason when it may not command. What it said is told to nobody.
async fn listen_to(stream: UnixStream, key: &Key) -> io::Result<Result<Visitor, &'static str>> {
    let admitted = door::admit(&stream).await;
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader.take(MAX_LINE));
    let why = match admitted {
        Ok(()) => {
            let heard = async {
                let (mut shown, mut wish) = (String::new(), String::new());
                reader.read_line(&mut shown).await?;
                reader.read_line(&mut wish).await?;
                io::Result::Ok((shown, wish))
            };
            let (shown, wish) = timeout(MAX_SILENCE, heard).await??;
            if serde_json::from_str(&shown).is_ok_and(|shown| key.opens(&shown)) {
                return Ok(Ok(Visitor { wish: serde_json::from_str(&wish), reader, writer }));
            }
            "it does not show the key of this start"
        }
        Err(why) => why,
    };
    // Whether it still listens is of no interest.
    let _ = say(&mut writer, &json!({ "error": format!("refused: {why}") })).await;
    Ok(Err(why))
}

async fn answer(visitor: Visitor, mesh: Mesh) -> io::Result<()> {
    let Visitor { wish, mut reader, mut writer } = visitor;
    match wish {
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

/// Asks a running daemon; `None` when none listens. Every line of the answer is handed to `take`; a refusal is an error.
pub async fn ask(home: &Home, ask: &Ask, mut take: impl FnMut(Value)) -> io::Result<Option<()>> {
    let near = match Near::to(&home.socket()) {
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
    // After connecting: the daemon that listens has laid it down before.
    let path = home.socket_key();
    let key = Key::read(&path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    // One that refuses may have hung up before it was asked; what it said is read all the same.
    if say(&mut stream, &key).await.is_ok() {
        let _ = say(&mut stream, ask).await;
    }
    let mut lines = BufReader::new(stream).lines();
    while let Some(line) = lines.next_line().await? {
        let line: Value = serde_json::from_str(&line)?;
        match line["error"].as_str() {
            Some(why) => return Err(io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned())),
            None => take(line),
        }
    }
    Ok(Some(()))
}
