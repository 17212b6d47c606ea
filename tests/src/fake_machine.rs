//! A simulated machine: a daemon's side of the wire, with files, logs and a memory that the test provides. It answers
//! the Board's requests and makes the changes that the Board sends.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use protocol::{
    AttemptRef, Capability, Command, CommandDone, EventBody, FilePiece, FromDaemon, LogPlace, LoggedLine, McpKind,
    McpServerInfo, NumberedCommand, SessionId, TaskId, TaskSubmit, ToDaemon, ViberId, WorkspaceWrite, WorkspaceWritten,
    WriteState, limits::MAX_ENTRIES,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use crate::{
    board::{Board, HOME},
    fake_daemon::{FakeDaemon, Heard},
    wait::eventually,
};

/// Between two signs of life.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// Its files, its answers, and the requests that it got.
#[derive(Debug, Default)]
pub struct MachineState {
    /// The workspace.
    pub files: BTreeMap<String, String>,
    /// Logs: agent, session, lines as they stand in the file.
    pub logs: Vec<(String, SessionId, Vec<String>)>,
    /// Number of log lines in one answer; 0 means three.
    pub at_once: usize,
    /// How long it takes to answer with a piece of a log, or with more of a folder.
    pub slow: Duration,
    /// Attempts that are said to be still running.
    pub open: Vec<AttemptRef>,
    /// The answer to `memory.search`; an error when it is a text.
    pub found: Value,
    /// Answers that are given instead of the right ones, by method.
    pub lies: BTreeMap<String, Value>,
    /// Requests as they came.
    pub asked: Vec<(String, Value)>,
    /// What its agents made, by the artifact's id: it is put when the Board asks for it.
    pub artifacts: BTreeMap<String, Vec<u8>>,
    /// Commands that are neither a task nor a change, as they came.
    pub told: VecDeque<Command>,
    submitted: VecDeque<TaskSubmit>,
}

enum Order {
    Report(TaskId, u32, u64, Vec<EventBody>),
    Changed(String),
    Leave,
    Return,
}

/// The machine. Ends with its value.
#[derive(Debug)]
pub struct FakeMachine {
    pub id: ViberId,
    pub credential: String,
    state: Arc<Mutex<MachineState>>,
    orders: mpsc::Sender<Order>,
}

impl FakeMachine {
    /// A connected one in the Board's first team.
    pub async fn connected(board: &Board, name: &str) -> Self {
        Self::connected_in(board, HOME, name).await
    }

    /// The same in `team`.
    pub async fn connected_in(board: &Board, team: &str, name: &str) -> Self {
        Self::with_agents(board, team, name, &[]).await
    }

    /// The same with agents of these ids beside `default`.
    pub async fn with_agents(board: &Board, team: &str, name: &str, agents: &[&str]) -> Self {
        let mut daemon = FakeDaemon::enrol_in(board, team, name).await;
        daemon.agents = agents.iter().map(ToString::to_string).collect();
        daemon.capabilities = vec![Capability::Steer, Capability::Queue, Capability::Approve, Capability::Pause];
        daemon.mcp = vec![McpServerInfo { name: "fs".to_owned(), kind: McpKind::Stdio, ..McpServerInfo::default() }];
        daemon.connect().await;
        let (id, state) = (daemon.id.clone(), Arc::<Mutex<MachineState>>::default());
        let credential = daemon.credential.clone();
        let (orders, mut waiting) = mpsc::channel(16);
        let mut connection = Connection { daemon, board: board.url.clone(), state: state.clone(), here: true };
        tokio::spawn(async move {
            let mut beat = tokio::time::interval(HEARTBEAT_INTERVAL);
            loop {
                tokio::select! {
                    order = waiting.recv() => match order {
                        Some(order) => connection.follow(order).await,
                        None => return,
                    },
                    heard = connection.daemon.next_within(HEARTBEAT_INTERVAL), if connection.here => {
                        if let Some(heard) = heard {
                            connection.hear(heard).await;
                        }
                    }
                    _ = beat.tick(), if connection.here => {
                        let running = connection.daemon.running.clone();
                        connection.send(&FromDaemon::Heartbeat { running, metrics: None }).await;
                    }
                }
            }
        });
        Self { id, credential, state, orders }
    }

    /// Its state, to read or to change.
    pub fn state(&self) -> MutexGuard<'_, MachineState> {
        self.state.lock().expect("not poisoned")
    }

    /// A file of the workspace, as it is now.
    pub fn file(&self, path: &str) -> Option<String> {
        self.state().files.get(path).cloned()
    }

    /// Somebody on the machine writes a file; the Board is told.
    pub async fn write(&self, path: &str, text: &str) {
        self.state().files.insert(path.to_owned(), text.to_owned());
        self.order(Order::Changed(path.to_owned())).await;
    }

    /// The next task that came.
    pub async fn submitted(&self) -> TaskSubmit {
        eventually("a task comes", || async { self.state().submitted.pop_front() }).await
    }

    /// The first command that `pick` takes and that is neither a task nor a change. The others stay.
    pub async fn told<T>(&self, what: &str, pick: impl Fn(&Command) -> Option<T>) -> T {
        eventually(what, || async {
            let mut state = self.state();
            let (at, found) = state.told.iter().enumerate().find_map(|(at, command)| Some((at, pick(command)?)))?;
            state.told.remove(at);
            Some(found)
        })
        .await
    }

    /// Reports events from `from` on. That they are recorded is seen on the Board.
    pub async fn report(&self, task: &TaskId, attempt: u32, from: u64, bodies: Vec<EventBody>) {
        self.order(Order::Report(task.clone(), attempt, from, bodies)).await;
    }

    /// The line goes dead.
    pub async fn leave(&self) {
        self.order(Order::Leave).await;
    }

    /// It dials in again.
    pub async fn come_back(&self) {
        self.order(Order::Return).await;
    }

    /// A log of a session, its lines written as JSON with their numbers.
    pub fn log(&self, agent: &str, session: &SessionId, lines: &[Value]) {
        let text = lines.iter().map(Value::to_string).collect();
        self.state().logs.push((agent.to_owned(), session.clone(), text));
    }

    async fn order(&self, order: Order) {
        assert!(self.orders.send(order).await.is_ok(), "the machine's side of the wire has panicked");
    }
}

/// The name of a version of a text.
pub fn hash(text: &str) -> String {
    sha256(text.as_bytes())
}

/// SHA-256 in hex.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Connection {
    daemon: FakeDaemon,
    /// The Board's address.
    board: String,
    state: Arc<Mutex<MachineState>>,
    here: bool,
}

impl Connection {
    fn state(&self) -> MutexGuard<'_, MachineState> {
        self.state.lock().expect("not poisoned")
    }

    async fn send(&mut self, frame: &FromDaemon) {
        let text = serde_json::to_string(frame).expect("a frame is JSON");
        self.daemon.try_send_text(text).await;
    }

    async fn follow(&mut self, order: Order) {
        match order {
            Order::Report(task, attempt, from, bodies) => {
                self.note(&task, attempt, &bodies);
                self.daemon.report_unacked(&task, attempt, from, bodies).await;
            }
            Order::Changed(path) => {
                let text = self.state().files.get(&path).cloned();
                let (hash, size) = (text.as_deref().map(hash), text.as_ref().map_or(0, String::len) as u64);
                let changed = FromDaemon::WorkspaceChanged { path, hash, size, mtime: None, by: "file".to_owned() };
                if self.here {
                    self.send(&changed).await;
                }
            }
            Order::Leave => {
                self.daemon.cut();
                self.here = false;
            }
            Order::Return => {
                self.daemon.connect().await;
                self.here = true;
            }
        }
    }

    /// Follows what is under way: heartbeats and the next hello name it.
    fn note(&mut self, task: &TaskId, attempt: u32, bodies: &[EventBody]) {
        let reported = AttemptRef { task_id: task.clone(), attempt };
        self.daemon.running.retain(|running| *running != reported);
        if !bodies.iter().any(EventBody::is_terminal) {
            self.daemon.running.push(reported);
        }
    }

    async fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Frame(ToDaemon::Request { id, method, params }) => {
                let is_slow = method == "session.log" || (method == "workspace.list" && params["from"] != 0);
                let slow = if is_slow { self.state().slow } else { Duration::ZERO };
                tokio::time::sleep(slow).await;
                let answer = self.state().answer(&method, &params);
                let (ok, result, error) = match answer {
                    Ok(result) => (true, result, None),
                    Err(error) => (false, Value::Null, Some(error)),
                };
                self.send(&FromDaemon::Response { id, ok, result, error }).await;
                if method == "artifact.offer" && ok {
                    self.put(&params);
                }
            }
            Heard::Frame(ToDaemon::Command(NumberedCommand { cmd_seq, command })) => {
                self.daemon.last_cmd = self.daemon.last_cmd.max(cmd_seq);
                self.send(&FromDaemon::AckCommand { cmd_seq }).await;
                match command {
                    Command::Submit(submit) => self.state().submitted.push_back(*submit),
                    Command::Write(write) => {
                        let written = self.state().write(&write);
                        self.send(&FromDaemon::WorkspaceWritten(written)).await;
                    }
                    Command::InstallSkill(_)
                    | Command::RemoveSkill { .. }
                    | Command::AcceptSkill { .. }
                    | Command::EnableSkill { .. }
                    | Command::AllowMcp { .. } => {
                        let done = CommandDone { cmd_seq, ok: true, error: None };
                        self.send(&FromDaemon::CommandDone(done)).await;
                    }
                    other => self.state().told.push_back(other),
                }
            }
            Heard::Frame(_) => {}
            Heard::Closed { .. } => self.here = false,
        }
    }

    /// Puts the bytes that an offer asks for. The Board sees by itself whether they come.
    fn put(&self, offer: &Value) {
        let id = offer["artifactId"].as_str().unwrap_or_default();
        let bytes = self.state().artifacts.get(id).cloned().unwrap_or_default();
        let request = reqwest::Client::new()
            .put(format!("{}/api/daemon/blobs/{id}", self.board))
            .bearer_auth(&self.daemon.credential)
            .header("x-content-sha256", sha256(&bytes))
            .body(bytes);
        tokio::spawn(request.send());
    }
}

impl MachineState {
    fn write(&mut self, write: &WorkspaceWrite) -> WorkspaceWritten {
        let now = self.files.get(&write.path).map(|text| hash(text));
        let content = write.content.clone().unwrap_or_default();
        let applied = now == write.base_hash || now == Some(hash(&content));
        if applied {
            self.files.insert(write.path.clone(), content.clone());
        }
        let (state, hash) =
            if applied { (WriteState::Applied, Some(hash(&content))) } else { (WriteState::Conflict, now) };
        WorkspaceWritten { edit_id: write.edit_id.clone(), path: write.path.clone(), state, hash, reason: None }
    }

    fn answer(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        self.asked.push((method.to_owned(), params.clone()));
        if let Some(lie) = self.lies.get(method) {
            return Ok(lie.clone());
        }
        match method {
            "workspace.read" => self.read(params),
            "workspace.list" => Ok(self.folder(params)),
            "artifact.offer" => match self.artifacts.get(params["artifactId"].as_str().unwrap_or_default()) {
                Some(bytes) => Ok(json!({ "size": bytes.len() })),
                None => Err("gone: it is not there any more".to_owned()),
            },
            "workspace.hashes" => {
                let version = |path: &Value| {
                    let text = self.files.get(path.as_str()?)?;
                    Some((path.as_str()?.to_owned(), json!({ "hash": hash(text), "size": text.len() })))
                };
                let paths = params["paths"].as_array().map(Vec::as_slice).unwrap_or_default();
                Ok(json!({ "files": paths.iter().filter_map(version).collect::<BTreeMap<_, _>>() }))
            }
            "memory.search" => match &self.found {
                Value::String(why) => Err(why.clone()),
                found => Ok(found.clone()),
            },
            "session.list" => Ok(self.list()),
            "agents.add" => Ok(json!({ "template": params["template"], "needs": "" })),
            "session.log" => self.piece(params),
            other => Err(format!("{other} is not built on this viber")),
        }
    }

    /// Files right in a folder, as many as one answer has.
    fn folder(&self, params: &Value) -> Value {
        let path = params["path"].as_str().unwrap_or_default();
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let file = |(path, text): (&String, &String)| {
            let name = path.strip_prefix(&prefix).filter(|name| !name.contains('/'))?;
            Some((name.to_owned(), text.len()))
        };
        let files: Vec<(String, usize)> = self.files.iter().filter_map(file).collect();
        let from = params["from"].as_u64().and_then(|from| usize::try_from(from).ok()).unwrap_or(0);
        let entry = |(name, size): &(String, usize)| json!({ "name": name, "kind": "file", "size": size });
        let entries: Vec<Value> = files.iter().skip(from).take(MAX_ENTRIES).map(entry).collect();
        let omitted = files.len().saturating_sub(from.saturating_add(entries.len()));
        json!({ "path": path, "from": from, "entries": entries, "omitted": omitted })
    }

    fn read(&self, params: &Value) -> Result<Value, String> {
        let path = params["path"].as_str().unwrap_or_default();
        let text = self.files.get(path).ok_or("not_found: there is no such file")?;
        let number = |name: &str| params[name].as_u64().and_then(|number| usize::try_from(number).ok());
        let from = number("offset").unwrap_or(0).min(text.len());
        let end = number("limit").map_or(text.len(), |most| from.saturating_add(most).min(text.len()));
        let piece = FilePiece {
            path: path.to_owned(),
            hash: hash(text),
            size: text.len() as u64,
            mtime: None,
            offset: from as u64,
            content: BASE64_STANDARD.encode(&text.as_bytes()[from..end]),
        };
        Ok(json!(piece))
    }

    fn list(&self) -> Value {
        let item = |(agent, session, lines): &(String, SessionId, Vec<String>)| {
            let read = |line: &String| serde_json::from_str::<Value>(line).unwrap_or_default();
            let last = lines.iter().rev().find_map(|line| read(line)["taskId"].as_str().map(str::to_owned));
            let last = last.filter(|id| id.parse::<TaskId>().is_ok());
            let title = lines.first().and_then(|line| read(line)["text"].as_str().map(protocol::text::title));
            let bytes: usize = lines.iter().map(|line| line.len() + 1).sum();
            json!({ "sessionId": session, "agentId": agent, "title": title.unwrap_or_default(),
                "at": "2026-03-01T10:00:00.000Z", "lines": lines.len(), "bytes": bytes, "lastTaskId": last })
        };
        json!({ "items": self.logs.iter().map(item).collect::<Vec<_>>() })
    }

    /// As the daemon tells a log: a few lines at a time, so that pieces are put together.
    fn piece(&self, params: &Value) -> Result<Value, String> {
        let log = self.logs.iter().find(|(_, session, _)| params["sessionId"] == session.as_str());
        let (agent, session, lines) = log.ok_or("not_found: this machine has no such log")?;
        let from: LogPlace = serde_json::from_value(params["from"].clone()).unwrap_or_default();
        let (mut told, mut place) = (Vec::new(), from);
        let at_once = if self.at_once == 0 { 3 } else { self.at_once };
        for text in lines.iter().skip(usize::try_from(from.line).expect("small")).take(at_once) {
            let bytes = text.len() as u64 + 1;
            place = LogPlace { line: place.line + 1, at: place.at + bytes };
            let line = serde_json::from_str(text).ok().filter(Value::is_object);
            told.push(LoggedLine { seq: place.line, end: place.at, bytes, line });
        }
        let next = (place.line < lines.len() as u64).then_some(place);
        let title = lines
            .first()
            .and_then(|line| serde_json::from_str::<Value>(line).ok()?["text"].as_str().map(protocol::text::title));
        let mut piece = json!({ "sessionId": session, "agentId": agent, "title": title.unwrap_or_default(),
            "lines": told, "open": self.open });
        if let Some(next) = next {
            piece["next"] = json!(next);
        }
        Ok(piece)
    }
}
