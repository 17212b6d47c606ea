//! A Board as a daemon sees it: it answers rightly, refuses, or hangs up, and keeps when which daemon did what. It has no
//! database: what it recorded is what the test asks for.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use futures_util::{SinkExt, StreamExt};
use protocol::{
    Acked, AttemptRef, Command, Event, FromDaemon, NumberedCommand, SessionId, TaskId, TaskSubmit, ToDaemon, ViberId,
    Welcome, Window, limits, parse_event,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async,
    tungstenite::{
        Message,
        handshake::server::{ErrorResponse, Request, Response},
        http::HeaderValue,
    },
};
use tokio_util::sync::CancellationToken;

use crate::{viber::Viber, wait::EVENT_TIMEOUT};

/// How it treats whoever dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// As a Board does.
    Serve,
    /// Answers the upgrade with this status.
    Refuse(u16),
    /// Closes the connection without a word.
    HangUp,
}

/// A running fake.
#[derive(Debug)]
pub struct FakeBoard {
    /// As a credential names it.
    pub url: String,
    shared: Arc<Shared>,
    end: CancellationToken,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<BoardState>,
    /// Rings when there are new commands.
    bell: watch::Sender<()>,
    /// Rings when a request was answered.
    answered: watch::Sender<()>,
}

#[derive(Debug)]
struct BoardState {
    behaviour: Behaviour,
    dials: Vec<Instant>,
    beats: Vec<(Instant, Vec<AttemptRef>)>,
    epoch: u64,
    commands: Vec<NumberedCommand>,
    events: BTreeMap<AttemptRef, Vec<Event>>,
    /// Requests that were not sent yet, how many there were, and what was answered.
    asks: Vec<ToDaemon>,
    asked: u64,
    answers: BTreeMap<u64, Result<Value, String>>,
}

impl FakeBoard {
    /// Listens on a free port.
    pub async fn start(behaviour: Behaviour) -> Self {
        Self::start_on(0, behaviour).await
    }

    /// Listens on `port`.
    pub async fn start_on(port: u16, behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let state = BoardState {
            behaviour,
            dials: Vec::new(),
            beats: Vec::new(),
            epoch: 0,
            commands: Vec::new(),
            events: BTreeMap::new(),
            asks: Vec::new(),
            asked: 0,
            answers: BTreeMap::new(),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            bell: watch::Sender::new(()),
            answered: watch::Sender::new(()),
        });
        let end = CancellationToken::new();
        tokio::spawn(end.clone().run_until_cancelled_owned(accept(listener, shared.clone(), end.clone())));
        Self { url, shared, end }
    }

    /// Gives `viber` a credential of this Board.
    pub fn enrol(&self, viber: &Viber) {
        credential(viber, &self.url);
    }

    /// From now on it treats whoever dials like this.
    pub fn set_behaviour(&self, behaviour: Behaviour) {
        self.shared.state().behaviour = behaviour;
    }

    /// When somebody dialled.
    pub fn dials(&self) -> Vec<Instant> {
        self.shared.state().dials.clone()
    }

    /// When heartbeats came, and which attempts they named.
    pub fn beats(&self) -> Vec<(Instant, Vec<AttemptRef>)> {
        self.shared.state().beats.clone()
    }

    /// Gives the viber a task.
    pub fn submit(&self, goal: &str) -> AttemptRef {
        let attempt = AttemptRef { task_id: TaskId::new(ID_TIME_MS), attempt: 1 };
        let submit = json!({
            "taskId": attempt.task_id, "attempt": 1, "sessionId": SessionId::new(ID_TIME_MS), "agentId": "default", "goal": goal,
        });
        let submit: TaskSubmit = serde_json::from_value(submit).expect("a task");
        self.command(Command::Submit(Box::new(submit)));
        attempt
    }

    /// Gives the viber a command.
    pub fn command(&self, command: Command) {
        let mut state = self.shared.state();
        let cmd_seq = state.commands.len() as u64 + 1;
        state.commands.push(NumberedCommand { cmd_seq, command });
        drop(state);
        self.shared.bell.send_replace(());
    }

    /// What the viber answers to a request.
    pub async fn ask(&self, method: &str, params: Value) -> Result<Value, String> {
        let id = {
            let mut state = self.shared.state();
            state.asked += 1;
            let id = state.asked;
            state.asks.push(ToDaemon::Request { id, method: method.to_owned(), params });
            id
        };
        self.shared.bell.send_replace(());
        let mut answered = self.shared.answered.subscribe();
        let answer = async {
            loop {
                if let Some(answer) = self.shared.state().answers.remove(&id) {
                    return answer;
                }
                answered.changed().await.expect("the Board lives");
            }
        };
        tokio::time::timeout(EVENT_TIMEOUT, answer).await.unwrap_or_else(|_| panic!("no answer to {method}"))
    }

    /// What the viber has reported of an attempt, in order.
    pub fn events(&self, attempt: &AttemptRef) -> Vec<Event> {
        self.shared.state().events.get(attempt).cloned().unwrap_or_default()
    }
}

impl Drop for FakeBoard {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

/// An instant for ids: what they say of time matters to nobody here.
const ID_TIME_MS: i64 = 1_790_000_000_000;

/// Gives `viber` a credential for a Board at `url`, as `daemon-agent join` would have.
pub fn credential(viber: &Viber, url: &str) {
    let credential = json!({ "viberId": ViberId::new(ID_TIME_MS), "credential": format!("vbc_{}", "7".repeat(43)), "boardUrl": url });
    viber.write("state/credential", &credential.to_string());
    let path = viber.home().join("state/credential");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("a closed file");
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, BoardState> {
        self.state.lock().expect("not poisoned")
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, end: CancellationToken) {
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let behaviour = {
            let mut state = shared.state();
            state.dials.push(Instant::now());
            state.behaviour
        };
        let shared = shared.clone();
        tokio::spawn(end.clone().run_until_cancelled_owned(async move {
            match behaviour {
                Behaviour::HangUp => drop(stream),
                Behaviour::Refuse(status) => refuse(stream, status).await,
                Behaviour::Serve => serve(stream, &shared).await,
            }
        }));
    }
}

/// Reads the head of the request and answers it. The client may be gone.
async fn refuse(mut stream: TcpStream, status: u16) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let answer = format!("HTTP/1.1 {status} Refused\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let _ = stream.write_all(answer.as_bytes()).await;
}

async fn serve(stream: TcpStream, shared: &Shared) {
    #[expect(clippy::result_large_err, reason = "the library's callback has this shape")]
    let choose = |_: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
        let name = HeaderValue::from_static(limits::SUBPROTOCOL);
        response.headers_mut().insert("sec-websocket-protocol", name);
        Ok(response)
    };
    let Ok(mut socket) = accept_hdr_async(stream, choose).await else { return };
    let mut bell = shared.bell.subscribe();
    // The last command that was sent; `None` before the greeting.
    let mut sent: Option<u64> = None;
    loop {
        let text = tokio::select! {
            message = socket.next() => match message {
                Some(Ok(Message::Text(text))) => Some(text),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => None,
            },
            _ = bell.changed() => None,
        };
        let answers = text.map(|text| shared.hear(&text, &mut sent)).unwrap_or_default();
        for frame in answers.into_iter().chain(shared.news(&mut sent)) {
            if say(&mut socket, &frame).await.is_err() {
                return;
            }
        }
    }
}

async fn say(socket: &mut WebSocketStream<TcpStream>, frame: &ToDaemon) -> Result<(), ()> {
    let text = serde_json::to_string(frame).expect("a frame is JSON");
    socket.send(Message::text(text)).await.map_err(drop)
}

impl Shared {
    /// Takes note of a frame; what is answered.
    fn hear(&self, text: &str, sent: &mut Option<u64>) -> Vec<ToDaemon> {
        let frame = FromDaemon::parse(text).unwrap_or_else(|error| panic!("{error:?} in {text}"));
        let mut state = self.state();
        match frame {
            FromDaemon::Hello(hello) => {
                state.epoch += 1;
                *sent = Some(hello.last_cmd_seq);
                vec![ToDaemon::Welcome(Box::new(state.welcome(hello.last_cmd_seq)))]
            }
            FromDaemon::Heartbeat { running, .. } => {
                state.beats.push((Instant::now(), running));
                vec![ToDaemon::Heartbeat { server_time: protocol::Instant(ID_TIME_MS) }]
            }
            FromDaemon::Events(events) => {
                let attempt = AttemptRef { task_id: events.task_id.clone(), attempt: events.attempt };
                let known = state.events.entry(attempt).or_default();
                let mut last = known.last().map_or(0, |event| event.seq);
                for item in &events.items {
                    let event = parse_event(item).unwrap_or_else(|error| panic!("{error:?} in {item}"));
                    if event.seq <= last {
                        continue;
                    }
                    assert!(first_seq(&event) == last + 1, "a gap after {last} that nobody named: {item}");
                    last = event.seq;
                    known.push(event);
                }
                let acked = Acked { task_id: events.task_id, attempt: events.attempt, seq: last };
                vec![ToDaemon::AckEvents { acks: vec![acked] }]
            }
            FromDaemon::Response { id, ok, result, error } => {
                let answer = if ok { Ok(result) } else { Err(error.unwrap_or_default()) };
                state.answers.insert(id, answer);
                self.answered.send_replace(());
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Commands that were not sent on this connection yet.
    fn news(&self, sent: &mut Option<u64>) -> Vec<ToDaemon> {
        let Some(last) = sent else { return Vec::new() };
        let mut state = self.state();
        let asks = std::mem::take(&mut state.asks);
        let fresh: Vec<NumberedCommand> =
            state.commands.iter().filter(|command| command.cmd_seq > *last).cloned().collect();
        *last = fresh.last().map_or(*last, |command| command.cmd_seq);
        fresh.into_iter().map(ToDaemon::Command).chain(asks).collect()
    }
}

impl BoardState {
    fn welcome(&self, last_cmd: u64) -> Welcome {
        let acked = self.events.iter().filter_map(|(attempt, events)| {
            let (task_id, attempt) = (attempt.task_id.clone(), attempt.attempt);
            Some(Acked { task_id, attempt, seq: events.last()?.seq })
        });
        Welcome {
            protocol: limits::PROTOCOL[1],
            conn_epoch: self.epoch,
            server_time: protocol::Instant(ID_TIME_MS),
            heartbeat_seconds: limits::HEARTBEAT_SECONDS,
            max_frame_bytes: limits::MAX_FRAME_BYTES as u64,
            window: Window { events: limits::WINDOW_EVENTS, bytes: limits::WINDOW_BYTES },
            acked: acked.collect(),
            fence: Vec::new(),
            over: Vec::new(),
            stopped: Vec::new(),
            cmds_from: last_cmd + 1,
            team_rules: None,
        }
    }
}

/// The first seq that an event stands for.
pub fn first_seq(event: &Event) -> u64 {
    match &event.body {
        protocol::EventBody::Progress {
            event: protocol::AgentEvent { event: protocol::AgentStreamEvent::Gap { from, .. }, .. },
        } => *from,
        _ => event.seq,
    }
}
