//! A daemon that speaks the protocol rightly, or wrongly on command. It has no disk: what it keeps is what the test keeps.

mod line;

use std::{sync::Arc, time::Duration};

use futures_util::{SinkExt, StreamExt};
use protocol::{
    Acked, AttemptRef, BootId, Command, Event, EventBody, Events, FromDaemon, Hello, Instant, MCP_CAPABILITY,
    MESH_CAPABILITY, NumberedCommand, OutboxRange, PLAYBOOKS_CAPABILITY, SKILLS_CAPABILITY, TaskId, TaskSubmit,
    ToDaemon, ViberId, ViberState, Welcome, limits,
};
use serde_json::{Value, json, value::RawValue};
use tokio_tungstenite::tungstenite::{self, Message, client::IntoClientRequest};

use self::line::Line;
use crate::{
    board::{Board, HOME},
    ledger::Ledger,
    person::{Answer, Person},
    wait::EVENT_TIMEOUT,
};

/// Where its agent says that it works.
pub const SPACE: &str = "/srv/app";

/// An enrolled viber without a machine.
#[derive(Debug)]
pub struct FakeDaemon {
    pub id: ViberId,
    pub name: String,
    pub credential: String,
    pub boot: BootId,
    /// The highest command it has seen, as its journal would have it.
    pub last_cmd: u64,
    /// What the next `hello` reports.
    pub running: Vec<AttemptRef>,
    pub outbox: Vec<OutboxRange>,
    /// What people can do with a task of its agent while it runs.
    pub capabilities: Vec<protocol::Capability>,
    /// The freest mode that its machine allows.
    pub max_mode: Option<protocol::AgentMode>,
    /// Ids of its agents beside `default`.
    pub agents: Vec<String>,
    /// MCP servers that it reports.
    pub mcp: Vec<protocol::McpServerInfo>,
    board: String,
    ledger: Arc<Ledger>,
    line: Option<Line>,
}

/// What the Board sent.
#[derive(Debug)]
pub enum Heard {
    Frame(ToDaemon),
    Closed { code: u16, reason: String },
}

impl FakeDaemon {
    /// Enrols in the Board's first team.
    pub async fn enrol(board: &Board, name: &str) -> Self {
        Self::enrol_in(board, HOME, name).await
    }

    /// Enrols in `team`.
    pub async fn enrol_in(board: &Board, team: &str, name: &str) -> Self {
        let token = board.join_token(team).await;
        let body = Self::join(&board.anon(), &token, name).await.expect(201).json();
        Self::enrolled(board, &body, name)
    }

    /// The viber that the answer to an enrolment is about.
    pub fn enrolled(board: &Board, joined: &Value, name: &str) -> Self {
        board.ledger().secret("a viber's credential", joined["credential"].as_str().expect("a credential"));
        Self {
            id: joined["viberId"].as_str().and_then(|id| id.parse().ok()).expect("a viber's id"),
            name: name.to_owned(),
            credential: joined["credential"].as_str().expect("a credential").to_owned(),
            boot: BootId::new(1),
            last_cmd: 0,
            running: Vec::new(),
            outbox: Vec::new(),
            capabilities: Vec::new(),
            max_mode: None,
            agents: Vec::new(),
            mcp: Vec::new(),
            board: board.url.clone(),
            ledger: board.ledger().clone(),
            line: None,
        }
    }

    /// The enrolment request alone.
    pub async fn join(anon: &Person, token: &str, name: &str) -> Answer {
        let body = json!({
            "token": token, "name": name, "labels": {}, "hostname": "lab", "platform": "linux/x86_64", "version": "0.1.0",
        });
        anon.post("/api/daemon/join", &body).await
    }

    /// Enrols and connects.
    pub async fn connected(board: &Board, name: &str) -> Self {
        let mut daemon = Self::enrol(board, name).await;
        daemon.connect().await;
        daemon
    }

    /// Enrols in `team` and connects.
    pub async fn connected_in(board: &Board, team: &str, name: &str) -> Self {
        let mut daemon = Self::enrol_in(board, team, name).await;
        daemon.connect().await;
        daemon
    }

    /// Dials `url` from now on: a proxy before the Board.
    pub fn dial_at(&mut self, url: &str) {
        url.clone_into(&mut self.board);
    }

    /// Dials in, says hello, and answers the Board's welcome.
    pub async fn connect(&mut self) -> Welcome {
        self.dial().await.unwrap_or_else(|error| panic!("the upgrade was refused: {error}"));
        self.hello().await;
        match self.next().await {
            Heard::Frame(ToDaemon::Welcome(welcome)) => *welcome,
            other => panic!("expected a welcome: {other:?}"),
        }
    }

    /// The upgrade alone, without a hello.
    pub async fn dial(&mut self) -> Result<(), tungstenite::Error> {
        self.dial_with(&[("authorization", &format!("Bearer {}", self.credential))]).await
    }

    /// The upgrade with these headers.
    pub async fn dial_with(&mut self, headers: &[(&'static str, &str)]) -> Result<(), tungstenite::Error> {
        self.dial_to("/ws/daemon", headers).await
    }

    /// The upgrade of any path with these headers and nothing else.
    pub async fn dial_to(&mut self, path: &str, headers: &[(&'static str, &str)]) -> Result<(), tungstenite::Error> {
        let mut request =
            format!("{}{path}", self.board.replacen("http", "ws", 1)).into_client_request().expect("an address");
        request.headers_mut().insert("sec-websocket-protocol", limits::SUBPROTOCOL.parse().expect("a header"));
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().expect("a header"));
        }
        let (socket, _) = tokio_tungstenite::connect_async(request).await?;
        self.line = Some(Line::new(socket, &self.running));
        Ok(())
    }

    /// Sends the hello of this daemon as it now is.
    pub async fn hello(&mut self) {
        let hello = self.hello_frame();
        self.send(&FromDaemon::Hello(Box::new(hello))).await;
    }

    /// The hello of this daemon as it now is.
    pub fn hello_frame(&self) -> Hello {
        let others = self.agents.iter().map(|id| (id.as_str(), id.as_str()));
        let agents = [("default", "Default")].into_iter().chain(others);
        Hello {
            protocol: limits::PROTOCOL,
            viber_id: self.id.clone(),
            boot_id: self.boot.clone(),
            version: "0.1.0".into(),
            platform: "linux/x86_64".into(),
            hostname: "lab".into(),
            capabilities: ["landlock", SKILLS_CAPABILITY, PLAYBOOKS_CAPABILITY, MCP_CAPABILITY, MESH_CAPABILITY]
                .map(Into::into)
                .into(),
            labels: std::collections::BTreeMap::new(),
            state: ViberState {
                agents: Some(agents.map(|(id, name)| self.agent(id, name)).collect()),
                mcp: Some(self.mcp.clone()),
                ..Default::default()
            },
            last_cmd_seq: self.last_cmd,
            running: self.running.clone(),
            outbox: self.outbox.clone(),
        }
    }

    fn agent(&self, id: &str, name: &str) -> protocol::AgentInfo {
        protocol::AgentInfo {
            id: id.into(),
            name: name.into(),
            model: "demo/tour".into(),
            spaces: vec![SPACE.into()],
            max_steps: 25,
            capabilities: self.capabilities.clone(),
            max_mode: self.max_mode,
            ..Default::default()
        }
    }

    /// Sends a frame.
    pub async fn send(&mut self, frame: &FromDaemon) {
        self.send_text(serde_json::to_string(frame).expect("a frame is JSON")).await;
    }

    /// Sends any text.
    pub async fn send_text(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.note_sent(&text);
        let sender = self.line.as_ref().expect("connected").sender.clone();
        sender.lock().await.send(Message::text(text)).await.expect("the Board takes it");
    }

    /// Sends any text to a Board that may have hung up meanwhile.
    pub async fn try_send_text(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.note_sent(&text);
        let sender = self.line.as_ref().expect("connected").sender.clone();
        // Whether it has is seen by reading.
        let _ = sender.lock().await.send(Message::text(text)).await;
    }

    /// The next frame or close; panics after a while of silence.
    pub async fn next(&mut self) -> Heard {
        self.next_within(EVENT_TIMEOUT).await.expect("the Board says something")
    }

    /// The next frame or close, or `None` when nothing comes within `limit`.
    pub async fn next_within(&mut self, limit: Duration) -> Option<Heard> {
        tokio::time::timeout(limit, self.read()).await.ok()
    }

    async fn read(&mut self) -> Heard {
        let line = self.line.as_mut().expect("connected");
        loop {
            match line.receiver.next().await {
                Some(Ok(Message::Text(text))) => {
                    let frame = ToDaemon::parse(&text).unwrap_or_else(|error| panic!("{error:?} in {text}"));
                    if matches!(frame, ToDaemon::Heartbeat { .. }) && line.answers_own() {
                        continue;
                    }
                    self.note_heard(&frame);
                    return Heard::Frame(frame);
                }
                Some(Ok(Message::Close(Some(frame)))) => {
                    return Heard::Closed { code: frame.code.into(), reason: frame.reason.to_string() };
                }
                Some(Ok(Message::Close(None))) | Some(Err(_)) | None => {
                    return Heard::Closed { code: 1006, reason: String::new() };
                }
                Some(Ok(_)) => {}
            }
        }
    }

    /// Writes down the events in a frame, if it is one that the Board can read.
    fn note_sent(&self, text: &str) {
        if let Ok(FromDaemon::Events(frame)) = FromDaemon::parse(text) {
            for item in &frame.items {
                let event: Value = serde_json::from_str(item.get()).unwrap_or_default();
                if let Some(seq) = event["seq"].as_u64() {
                    self.ledger.sent(frame.task_id.as_str(), frame.attempt, seq, item.get());
                }
                if let (Some(line), Some(kind)) = (&self.line, event["type"].as_str()) {
                    line.note(AttemptRef { task_id: frame.task_id.clone(), attempt: frame.attempt }, kind);
                }
            }
        }
    }

    fn note_heard(&self, frame: &ToDaemon) {
        let acks: &[Acked] = match frame {
            ToDaemon::AckEvents { acks } => acks,
            ToDaemon::Welcome(welcome) => &welcome.acked,
            ToDaemon::Command(NumberedCommand { cmd_seq, command: Command::Submit(submit) }) => {
                self.ledger.offered(submit.task_id.as_str(), submit.attempt, self.id.as_str(), *cmd_seq);
                &[]
            }
            _ => &[],
        };
        for ack in acks {
            self.ledger.acked(ack.task_id.as_str(), ack.attempt, ack.seq);
        }
    }

    /// Reads until `pick` takes a frame; the others are dropped. Panics when the connection closes first.
    pub async fn until<T>(&mut self, what: &str, mut pick: impl FnMut(&ToDaemon) -> Option<T>) -> T {
        loop {
            match self.next().await {
                Heard::Frame(frame) => {
                    if let Some(found) = pick(&frame) {
                        return found;
                    }
                }
                Heard::Closed { code, reason } => panic!("closed ({code} {reason}) while waiting for {what}"),
            }
        }
    }

    /// Reads until a frame is as wanted, or the Board hangs up.
    pub async fn until_closed_or(&mut self, mut wanted: impl FnMut(&ToDaemon) -> bool) {
        while let Heard::Frame(frame) = self.next().await {
            if wanted(&frame) {
                return;
            }
        }
    }

    /// Reads until the Board hangs up; answers code and reason.
    pub async fn closed(&mut self) -> (u16, String) {
        loop {
            if let Heard::Closed { code, reason } = self.next().await {
                self.line = None;
                return (code, reason);
            }
        }
    }

    /// The next command, acknowledged as journalled.
    pub async fn command(&mut self) -> Command {
        let command = self.command_unacked().await;
        self.ack_command(command.cmd_seq).await;
        command.command
    }

    /// The next command; the Board will send it again.
    pub async fn command_unacked(&mut self) -> NumberedCommand {
        self.until("a command", |frame| match frame {
            ToDaemon::Command(command) => Some(command.clone()),
            _ => None,
        })
        .await
    }

    /// The next command, which has to be a message to a task.
    pub async fn told(&mut self) -> protocol::TaskMessage {
        match self.command().await {
            Command::Message(message) => *message,
            other => panic!("expected a message: {other:?}"),
        }
    }

    /// The next command, which has to be a decision.
    pub async fn decided(&mut self) -> protocol::ApprovalResponse {
        match self.command().await {
            Command::Approval(response) => *response,
            other => panic!("expected a decision: {other:?}"),
        }
    }

    /// A heartbeat that names what the test says is running, and its answer.
    pub async fn beat(&mut self) {
        self.send(&FromDaemon::Heartbeat { running: self.running.clone(), metrics: None }).await;
        self.until("the heartbeat's answer", |frame| matches!(frame, ToDaemon::Heartbeat { .. }).then_some(())).await;
    }

    /// Says that commands up to `cmd_seq` are on disk.
    pub async fn ack_command(&mut self, cmd_seq: u64) {
        self.last_cmd = self.last_cmd.max(cmd_seq);
        self.send(&FromDaemon::AckCommand { cmd_seq }).await;
    }

    /// The next command, which has to be a task.
    pub async fn submitted(&mut self) -> TaskSubmit {
        match self.command().await {
            Command::Submit(submit) => *submit,
            other => panic!("expected a task: {other:?}"),
        }
    }

    /// Reports events of an attempt from `from` on and waits for the acknowledgement.
    pub async fn report(&mut self, task: &TaskId, attempt: u32, from: u64, bodies: Vec<EventBody>) {
        let last = from + bodies.len() as u64 - 1;
        self.report_unacked(task, attempt, from, bodies).await;
        self.acked(task, attempt, last).await;
    }

    /// Reports without waiting.
    pub async fn report_unacked(&mut self, task: &TaskId, attempt: u32, from: u64, bodies: Vec<EventBody>) {
        let frame = FromDaemon::Events(events(task, attempt, from, bodies));
        self.send(&frame).await;
    }

    /// Reports without waiting, to a Board that may have hung up meanwhile.
    pub async fn try_report(&mut self, task: &TaskId, attempt: u32, from: u64, bodies: Vec<EventBody>) {
        let frame = FromDaemon::Events(events(task, attempt, from, bodies));
        self.try_send_text(serde_json::to_string(&frame).expect("a frame is JSON")).await;
    }

    /// Waits until the Board has recorded the attempt's events up to `seq`.
    pub async fn acked(&mut self, task: &TaskId, attempt: u32, seq: u64) {
        self.until(&format!("ack of {task} {attempt}.{seq}"), |frame| match frame {
            ToDaemon::AckEvents { acks } => acks
                .iter()
                .any(|ack: &Acked| ack.task_id == *task && ack.attempt == attempt && ack.seq >= seq)
                .then_some(()),
            ToDaemon::Nack { expect, .. } => panic!("refused with nack {expect}"),
            ToDaemon::Error { code, .. } => panic!("refused with {code}"),
            _ => None,
        })
        .await;
    }

    /// Stays connected and has no answer to anything, until what this returns is dropped.
    pub fn attend(mut self) -> Attending {
        Attending(tokio::spawn(async move {
            loop {
                match self.read().await {
                    Heard::Frame(ToDaemon::Request { id, method, .. }) => {
                        let error = Some(format!("{method} is not built on this viber"));
                        let refusal = FromDaemon::Response { id, ok: false, result: Value::Null, error };
                        self.try_send_text(serde_json::to_string(&refusal).expect("a frame is JSON")).await;
                    }
                    Heard::Frame(_) => {}
                    Heard::Closed { .. } => return,
                }
            }
        }))
    }

    /// The line goes dead: no close frame, the connection is simply gone.
    pub fn cut(&mut self) {
        self.line = None;
    }

    /// Another process with the same credential and a boot of its own: a copied home, or the same machine after a restart.
    pub fn twin(&self) -> Self {
        Self {
            id: self.id.clone(),
            name: self.name.clone(),
            credential: self.credential.clone(),
            boot: BootId::new(2),
            last_cmd: self.last_cmd,
            running: Vec::new(),
            outbox: Vec::new(),
            capabilities: self.capabilities.clone(),
            max_mode: self.max_mode,
            agents: self.agents.clone(),
            mcp: self.mcp.clone(),
            board: self.board.clone(),
            ledger: self.ledger.clone(),
            line: None,
        }
    }
}

/// A daemon in the background; it hangs up when dropped.
#[derive(Debug)]
pub struct Attending(tokio::task::JoinHandle<()>);

impl Drop for Attending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A `task:events` body, numbered from `from`.
pub fn events(task: &TaskId, attempt: u32, from: u64, bodies: Vec<EventBody>) -> Events {
    let items = bodies
        .into_iter()
        .zip(from..)
        .map(|(body, seq)| {
            // The instant depends on the seq alone, so that a resend has the same bytes.
            let at = Instant(1_790_000_000_000 + i64::try_from(seq).expect("small"));
            let event = Event { seq, at, body };
            RawValue::from_string(serde_json::to_string(&event).expect("an event is JSON")).expect("JSON")
        })
        .collect();
    Events { task_id: task.clone(), attempt, from, items }
}

/// `task:accepted`.
pub fn accepted() -> EventBody {
    EventBody::Accepted {}
}

/// `task:started`.
pub fn started() -> EventBody {
    EventBody::Started { pid: None, model: "demo/tour".into(), engine: "fake".into() }
}

/// A piece of text.
pub fn text(content: &str) -> EventBody {
    progress(&json!({"type": "text-delta", "content": content}))
}

/// Any stream event of the agent `default`.
pub fn progress(event: &Value) -> EventBody {
    let mut event = event.clone();
    event["agentId"] = json!("default");
    EventBody::Progress { event: serde_json::from_value(event).expect("a stream event") }
}

/// `task:completed` with `text` as its result.
pub fn completed(text: &str) -> EventBody {
    let result = json!({"text": text, "summary": text});
    EventBody::Completed { result: serde_json::from_value(result).expect("a result") }
}

/// `task:stopped`.
pub fn stopped() -> EventBody {
    EventBody::Stopped { reason: "asked".into(), killed: 0 }
}
