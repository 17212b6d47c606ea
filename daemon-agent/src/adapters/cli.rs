//! The CLI adapter: `state/daemon.sock`, through which `chat`, `task` and `status` talk to a running daemon.
//!
//! A request is two JSON lines, the socket's key and a [`DaemonRequest`]; the answer is a series of JSON lines. After
//! `chat` both sides go on with lines as [`super::client`] has them. The socket is 0600 in a 0700 folder. Agents' commands
//! run as the same user, so [`auth`] tells them apart.

mod auth;
mod chat;
mod request;

use std::{
    fs, io,
    os::{fd::AsRawFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use protocol::{AttemptRef, parse_event};
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};
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

pub use request::{DaemonConnection, ask, connect};

use super::{
    Callbacks,
    client::{LocalClient, expire},
};
use crate::{
    adapters::board::status,
    home::Home,
    mesh::{LocalTask, Mesh},
    outbox::Outbox,
};
use auth::SocketKey;
use chat::{LineSink, LineSource};

/// The adapter's name.
pub const CLI: &str = "cli";
/// Longest request line that is read, bytes: a goal with everything that comes with it.
pub const MAX_LINE_BYTES: u64 = 1024 * 1024;
/// How long a client may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Clients that are served at the same time; further ones wait in the kernel's queue.
const MAX_CLIENTS: usize = 64;
/// Shortest time between two log lines about refused clients.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// A request from a command on this machine.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase")]
pub enum DaemonRequest {
    Status,
    /// Begins a task; its events follow, one per line, until it ends. Closing the connection stops it.
    Task(LocalTask),
    /// Lines of a client follow, in both directions, until one side closes.
    Chat,
    /// Lets the MCP server `name` offer the list of tools with this hash.
    AllowMcp {
        name: String,
        hash: String,
    },
    /// Connects to an MCP server.
    TestMcp {
        name: String,
    },
    /// How MCP servers fare.
    ListMcp,
    /// Who lives here, and what they do.
    Agents,
}

/// A path to the socket that fits the kernel's 108 bytes however deep the home lies: through its folder's descriptor.
struct SocketPath {
    path: PathBuf,
    _folder: Option<fs::File>,
}

impl SocketPath {
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

/// Serves the commands of this machine.
pub struct CliAdapter {
    listener: UnixListener,
    key: Arc<SocketKey>,
    home: Home,
}

impl CliAdapter {
    /// Listens on the home's socket with a new key. The holder of the home's lock may replace a socket that was left
    /// behind.
    pub fn listen(home: &Home) -> io::Result<Self> {
        let path = home.socket();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Before anybody can connect, so that every client finds the key it is asked for.
        let key = Arc::new(SocketKey::create(&home.socket_key())?);
        let near = SocketPath::to(&path)?;
        let listener = UnixListener::bind(&near.path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(Self { listener, key, home: home.clone() })
    }

    /// Accepts the next client once there is room for it.
    async fn next(&self, room: &Arc<Semaphore>) -> io::Result<(UnixStream, OwnedSemaphorePermit)> {
        let place = room.clone().acquire_owned().await.map_err(io::Error::other)?;
        Ok((self.listener.accept().await?.0, place))
    }
}

impl CliAdapter {
    /// Serves clients until `finish` is cancelled. A client that chats is an adapter of its own.
    pub async fn serve(self, mesh: Mesh, finish: CancellationToken) {
        let tasks = TaskTracker::new();
        tasks.spawn(expire(mesh.outbox().clone(), finish.clone()));
        let room = Arc::new(Semaphore::new(MAX_CLIENTS));
        // At most one refusal waits for the log; more are not needed.
        let (refused, refusals) = mpsc::channel(1);
        tasks.spawn(warn(refusals));
        while let Some(visit) = finish.run_until_cancelled(self.next(&room)).await {
            match visit {
                Ok((stream, place)) => {
                    let (mesh, finish, key, refused) =
                        (mesh.clone(), finish.clone(), self.key.clone(), refused.clone());
                    tasks.spawn(async move {
                        let _place = place;
                        let ends = finish.clone();
                        let visit = async {
                            match listen_to(stream, &key).await? {
                                Ok(peer) => return answer(peer, Callbacks::of(CLI, mesh, finish.clone())).await,
                                Err(why) => drop(refused.try_send(why)),
                            }
                            io::Result::Ok(())
                        };
                        if let Some(Err(error)) = ends.run_until_cancelled(visit).await {
                            tracing::debug!("a client of the socket left: {error}");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!("the socket cannot accept a client: {error}");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
        drop(refused);
        let _ = fs::remove_file(self.home.socket());
        let _ = fs::remove_file(self.home.socket_key());
        tasks.close();
        tasks.wait().await;
    }
}

/// Logs refused clients, at a limited rate.
async fn warn(mut refusals: mpsc::Receiver<&'static str>) {
    let mut last: Option<Instant> = None;
    while let Some(why) = refusals.recv().await {
        if last.is_none_or(|last| last.elapsed() >= WARNING_INTERVAL) {
            tracing::warn!("a client of the socket was refused: {why}");
            last = Some(Instant::now());
        }
    }
}

/// A client that was authenticated, and its request.
struct Peer {
    wish: serde_json::Result<DaemonRequest>,
    reader: BufReader<Take<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
}

/// Reads a client's request, or returns why the client may not give commands. What it sent is never repeated.
async fn listen_to(stream: UnixStream, key: &SocketKey) -> io::Result<Result<Peer, &'static str>> {
    let admitted = auth::admit(&stream).await;
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader.take(MAX_LINE_BYTES));
    let why = match admitted {
        Ok(()) => {
            let heard = async {
                let (mut shown, mut wish) = (String::new(), String::new());
                reader.read_line(&mut shown).await?;
                reader.read_line(&mut wish).await?;
                io::Result::Ok((shown, wish))
            };
            let (shown, wish) = timeout(REQUEST_TIMEOUT, heard).await??;
            if serde_json::from_str(&shown).is_ok_and(|shown| key.opens(&shown)) {
                return Ok(Ok(Peer { wish: serde_json::from_str(&wish), reader, writer }));
            }
            "it did not present the current key"
        }
        Err(why) => why,
    };
    // The client may be gone already; a failure does not matter.
    let _ = say(&mut writer, &json!({ "error": format!("refused: {why}") })).await;
    Ok(Err(why))
}

async fn answer(peer: Peer, callbacks: Callbacks) -> io::Result<()> {
    let Peer { wish, mut reader, mut writer } = peer;
    let mesh = callbacks.mesh.clone();
    match wish {
        Ok(DaemonRequest::Status) => say(&mut writer, &status(&mesh)).await,
        Ok(DaemonRequest::Agents) => say(&mut writer, &json!({ "items": mesh.registry() })).await,
        Ok(DaemonRequest::ListMcp) => say(&mut writer, &json!({ "items": mesh.mcp().report() })).await,
        Ok(DaemonRequest::TestMcp { name }) => match mesh.mcp().test(&name).await {
            // Its own `error` is no failure of the request.
            Ok(info) => say(&mut writer, &json!({ "server": info })).await,
            Err(why) => say(&mut writer, &json!({ "error": why })).await,
        },
        Ok(DaemonRequest::AllowMcp { name, hash }) => {
            let mcp = mesh.mcp().clone();
            let allowed = tokio::task::spawn_blocking(move || mcp.allow(&name, &hash)).await;
            match allowed.map_err(io::Error::other)? {
                Ok(()) => say(&mut writer, &json!({})).await,
                Err(why) => say(&mut writer, &json!({ "error": why })).await,
            }
        }
        Ok(DaemonRequest::Chat) => {
            // Who got here is no command of an agent.
            let client = LocalClient::new(CLI, true, LineSource(reader), LineSink(writer));
            client.serve(callbacks).await.map_err(io::Error::other)
        }
        Ok(DaemonRequest::Task(asked)) => {
            let attempt = mesh.begin_local(CLI, asked).await;
            let gone = async {
                // A client sends nothing more; the end of its input means that it left.
                let mut rest = Vec::new();
                let _ = reader.read_to_end(&mut rest).await;
            };
            let send = async {
                let mut events = EventFollower::new(mesh.outbox(), &attempt);
                while let Some(items) = events.next().await {
                    for item in items {
                        say(&mut writer, &item).await?;
                    }
                }
                Ok(())
            };
            let sent = tokio::select! {
                sent = send => sent,
                () = gone => Err(io::Error::from(io::ErrorKind::ConnectionAborted)),
            };
            if sent.is_err() {
                mesh.abandon(&attempt).await;
            }
            sent
        }
        Err(error) => say(&mut writer, &json!({ "error": error.to_string() })).await,
    }
}

/// Reads an attempt's events as they are recorded, until it ends.
pub struct EventFollower<'a> {
    outbox: &'a Outbox,
    attempt: &'a AttemptRef,
    bell: watch::Receiver<u64>,
    next: u64,
    ended: bool,
}

impl<'a> EventFollower<'a> {
    /// A reader at the first event.
    pub fn new(outbox: &'a Outbox, attempt: &'a AttemptRef) -> Self {
        Self { outbox, attempt, bell: outbox.bell(), next: 1, ended: false }
    }

    /// The new events; `None` once the attempt has ended.
    pub async fn next(&mut self) -> Option<Vec<Box<RawValue>>> {
        while !self.ended {
            self.bell.mark_unchanged();
            if let Some(batch) = self.outbox.read(self.attempt, self.next, 64 * 1024) {
                self.next = batch.to + 1;
                let last = batch.items.last().and_then(|item| parse_event(item).ok());
                self.ended = last.is_some_and(|event| event.body.is_terminal());
                return Some(batch.items);
            }
            // No log: it was sent, acknowledged and deleted before it was read here.
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
