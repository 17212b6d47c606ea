//! The loop of a connection: reads, writes, and does what the machine says. Everything it waits for is bounded.

use std::{collections::HashMap, pin::pin, sync::Arc, time::Duration};

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use futures_util::{
    FutureExt, SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use protocol::{Events, TeamId, ToDaemon, ViberId, limits::close};
use tokio::time::{Instant, sleep_until};

use super::{
    batching::DeltaBatch,
    compose,
    machine::{Close, Identified, Step, Unidentified, Work},
    pending::{Done, Pending, PendingWork, RETRY_AFTER, Task},
    queue::Queue,
};
use crate::{
    actions::{
        files, reconcile,
        record::{self, Answers},
    },
    domain::Connection,
    error::{Error, Result},
    hub::{Entrance, Order, Reply, RequestError},
    state::Board,
};

/// How long a new connection may take to say hello: with a busy machine's delay, below ten seconds.
const HELLO: Duration = Duration::from_secs(9);
/// How long a close frame may take to leave.
const GOODBYE: Duration = Duration::from_secs(1);
/// Events that wait for the change in progress, bytes; beyond it reading rests.
const INBOX: usize = 1024 * 1024;
/// What is due later than this is due on a grid of this width: one turn of the runtime is there for all links, and the
/// frames of a link that says something every now and then move its alarm away before it rings.
const GRID: Duration = Duration::from_millis(500);
/// Requests of the Board under way on one connection.
const REQUESTS: usize = 32;
/// Frames that are read before what they ask for is begun.
const TOGETHER: usize = 32;
/// The longest delay a draining Board asks for, seconds: daemons come back spread over it.
const SPREAD: u64 = 10;

/// Who dialled in, by its credential.
#[derive(Clone, Debug)]
pub struct Guest {
    pub team: TeamId,
    pub viber: ViberId,
    pub name: String,
    pub address: String,
}

type Outcome = (Result<Option<Answers>>, Arc<[Events]>);

/// Talks with a daemon until either side ends it. Beginning and end are boxed: what they need is not kept by thousands of
/// connections that are at rest between them.
pub async fn converse(board: Board, socket: WebSocket, guest: Guest) {
    let (mut sink, mut stream) = socket.split();
    let viber = guest.viber.clone();
    let close = match Box::pin(meet(board, &mut sink, &mut stream, guest)).await {
        Ok(mut link) => {
            let close = link.run(&mut sink, &mut stream).await;
            Box::pin(part(link, sink, &close)).await;
            close
        }
        Err(close) => {
            Box::pin(goodbye(sink, &close)).await;
            close
        }
    };
    tracing::info!(viber.id = %viber, code = close.code, reason = close.reason, "a viber's connection ended");
}

/// Gives up the place of the connection, says goodbye, and notes that contact is lost.
async fn part(link: Box<Link>, sink: SplitSink<WebSocket, Message>, close: &Close) {
    let (board, Connection { team, viber, epoch, .. }) = (link.board.clone(), link.connection.clone());
    drop(link);
    let over = reconcile::disconnected(&board, &team, &viber, epoch);
    if let ((), Err(error)) = tokio::join!(goodbye(sink, close), over) {
        // The scheduler does it later.
        tracing::warn!(viber.id = %viber, %error, "the end of a connection could not be kept");
    }
}

async fn goodbye(mut sink: SplitSink<WebSocket, Message>, close: &Close) {
    if close.code == 0 {
        // A close of theirs is answered by the library, when it is given time.
        drop(tokio::time::timeout(GOODBYE, sink.flush()).await);
        return;
    }
    let frame = CloseFrame { code: close.code, reason: protocol::text::head(&close.reason, 120).into() };
    let sent = async {
        // The peer is not waited for: it may be the one who does not answer.
        drop(sink.send(Message::Close(Some(frame))).await);
    };
    drop(tokio::time::timeout(GOODBYE, sent).await);
}

/// The other side is gone; there is nobody to say goodbye to.
fn gone() -> Close {
    Close { code: 0, reason: "gone".into() }
}

/// Hello and welcome.
async fn meet(
    board: Board,
    sink: &mut SplitSink<WebSocket, Message>,
    stream: &mut SplitStream<WebSocket>,
    guest: Guest,
) -> Result<Box<Link>, Close> {
    let first = async {
        loop {
            match stream.next().await {
                Some(Ok(Message::Text(text))) => return Ok(text),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Binary(_))) => return Err(Close::new(close::PROTOCOL, "hello comes first")),
                Some(Err(error)) => return Err(broken(&error)),
                Some(Ok(Message::Close(_))) | None => return Err(gone()),
            }
        }
    };
    let first = tokio::select! {
        () = board.shutdown.soft.cancelled() => return Err(draining(&guest.viber)),
        first = tokio::time::timeout(HELLO, first) => first,
    };
    let text = first.map_err(|_| Close::new(close::TIMEOUT, "no hello"))??;
    let hello = Unidentified { viber: guest.viber.clone() }.hello(&text)?;
    let wall = board.clock.now();
    let cloned = board.hub.boot(&guest.viber, &hello.boot_id, board.hub.lease_time(board.clock.monotonic()));
    let Guest { team, viber, name, address } = guest;
    let mut connection = Connection { team, viber, name, address, epoch: 0 };
    let welcomed = reconcile::welcome(&board, &connection, &hello, cloned).await.map_err(|error| match error {
        Error::Unauthenticated => Close::new(close::AUTH, "the viber was revoked"),
        Error::Unavailable { retry_after, .. } => Close::new(close::DRAINING, format!("retry-after={retry_after}")),
        other => {
            tracing::error!(viber.id = %connection.viber, error = %other, "a hello could not be answered");
            Close::new(close::DRAINING, "retry-after=30")
        }
    })?;
    connection.epoch = welcomed.epoch;
    let entrance = board.hub.enter(&connection.team, &connection.viber, welcomed.epoch, wall.0);
    let entrance = entrance.ok_or_else(|| Close::new(close::SUPERSEDED, "a newer connection is here"))?;
    let now = board.hub.lease_time(board.clock.monotonic());
    let (machine, welcome) = Identified::new(&hello, &welcomed, now, wall);
    let mut link = Box::new(Link {
        board,
        connection,
        machine,
        entrance,
        queue: Queue::default(),
        inbox: Vec::new(),
        inbox_bytes: 0,
        batch: DeltaBatch::new(Instant::now()),
        pending: PendingWork::default(),
        sent: hello.last_cmd_seq,
        requests: HashMap::new(),
        next_request: 1,
    });
    link.pending.add(Pending::Commands);
    link.queue.push(&welcome);
    link.queue.pump(sink).await.map_err(|_| gone())?;
    link.board.shutdown.spawn(files::catch_up(link.board.clone(), link.connection.clone()));
    tracing::info!(viber.id = %link.connection.viber, epoch = link.connection.epoch, "a viber is connected");
    Ok(link)
}

/// Why a frame could not be read. Who breaks RFC 6455 hears it in the words of RFC 6455 (section 7.4.1).
fn broken(error: &axum::Error) -> Close {
    // tungstenite's words; it keeps the kinds of its errors from us.
    let words = error.to_string();
    match () {
        () if words.contains("too long") => Close::new(close::TOO_LARGE, "the frame is too large"),
        // Whoever takes too little of what is sent is cut below us (`web::socket`).
        () if words.contains("timed out") => Close::new(close::TIMEOUT, "the daemon does not read"),
        () if words.contains("UTF-8") => Close::new(close::NOT_TEXT, "not UTF-8"),
        () if words.contains("IO error") || words.contains("without closing handshake") => gone(),
        () => Close::new(close::MALFORMED, words),
    }
}

/// A spread that depends on the viber, so that not all come back at once.
fn draining(viber: &ViberId) -> Close {
    let mixed = viber.as_str().bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    Close::new(close::DRAINING, format!("retry-after={}", 1 + mixed % SPREAD))
}

/// One connection after its welcome.
struct Link {
    board: Board,
    connection: Connection,
    machine: Identified,
    entrance: Entrance,
    queue: Queue,
    /// Frames that wait for the change in progress.
    inbox: Vec<Events>,
    inbox_bytes: usize,
    batch: DeltaBatch,
    pending: PendingWork,
    /// The last command that was sent.
    sent: u64,
    requests: HashMap<u64, Reply>,
    next_request: u64,
}

impl Link {
    fn now(&self) -> i64 {
        self.board.hub.lease_time(self.board.clock.monotonic())
    }

    async fn run(&mut self, sink: &mut SplitSink<WebSocket, Message>, stream: &mut SplitStream<WebSocket>) -> Close {
        let mut recording: Option<Task<Outcome>> = None;
        let mut working: Option<Task<Done>> = None;
        let mut alarm = pin!(sleep_until(Instant::now()));
        // Kept: to wait anew in every turn is to stand in one list with all other links.
        let soft = self.board.shutdown.soft.clone();
        let mut drain = pin!(soft.cancelled());
        loop {
            crate::fault::at("link::turn");
            // What came together becomes durable together, in one commit.
            for _ in 0..TOGETHER {
                if self.machine.rest(self.now()) > 0 || self.inbox_bytes >= INBOX {
                    break;
                }
                let Some(frame) = stream.next().now_or_never() else { break };
                let step = self.read(frame);
                if let Some(close) = self.follow(step) {
                    self.finish(recording.is_some(), sink).await;
                    return close;
                }
            }
            let mut deltas = None;
            if recording.is_none() && !self.inbox.is_empty() {
                deltas = self.batch.waits_until(Instant::now());
                recording = deltas.is_none().then(|| self.record());
            }
            if working.is_none() {
                working = self.pending.next(&self.board, &self.connection, self.sent, self.queue.has_room());
            }
            let now = self.now();
            let rest = self.machine.rest(now);
            let reads = rest == 0 && self.inbox_bytes < INBOX;
            if self.inbox_bytes >= INBOX {
                // It is the Board that does not listen.
                self.machine.excuse(now);
            }
            let due = self.due(now, rest);
            let due = deltas.map_or(due, |until| due.min(until));
            // To move an alarm away costs a store; one that rings in vain costs a turn of the loop.
            if due != alarm.deadline() || alarm.is_elapsed() {
                alarm.as_mut().reset(due);
            }
            let step = tokio::select! {
                frame = stream.next(), if reads => self.read(frame),
                sent = self.queue.pump(sink), if !self.queue.is_empty() => {
                    crate::fault::at("link::after_send");
                    if let Err(error) = sent {
                        return if error.to_string().contains("timed out") { broken(&error) } else { gone() };
                    }
                    Step::default()
                }
                Some(outcome) = maybe(&mut recording) => {
                    recording = None;
                    self.recorded(outcome)
                }
                Some(done) = maybe(&mut working) => {
                    working = None;
                    self.done(done)
                }
                order = self.entrance.order() => self.ordered(order),
                () = &mut alarm => self.tick(),
                () = &mut drain => {
                    Step { close: Some(draining(&self.connection.viber)), ..Step::default() }
                }
            };
            let close = self.follow(step);
            // Nearly always it leaves at once.
            let sent = if self.queue.is_empty() { None } else { self.queue.pump(sink).now_or_never() };
            match sent {
                Some(Err(_)) => return gone(),
                Some(Ok(())) => {
                    crate::fault::at("link::after_send");
                }
                None => {}
            }
            if let Some(close) = close {
                self.finish(recording.is_some(), sink).await;
                return close;
            }
        }
    }

    /// What came before the end counts, unless something is being recorded (`busy`), and what was answered is worth
    /// sending; who does not read does not get it.
    async fn finish(&mut self, busy: bool, sink: &mut SplitSink<WebSocket, Message>) {
        if !busy && !self.inbox.is_empty() {
            drop(tokio::time::timeout(GOODBYE, self.record()).await);
        }
        drop(tokio::time::timeout(GOODBYE, self.queue.pump(sink)).await);
    }

    fn read(&mut self, frame: Option<Result<Message, axum::Error>>) -> Step {
        let now = self.now();
        let ends = |close| Step { close: Some(close), ..Step::default() };
        match frame {
            Some(Ok(Message::Text(text))) => {
                let wall = self.board.clock.now();
                let step = self.machine.frame(&text, now, wall);
                if step.close.is_none() {
                    self.entrance.heard(wall.0);
                }
                self.inbox_bytes +=
                    if step.work.iter().any(|work| matches!(work, Work::Record(_))) { text.len() } else { 0 };
                step
            }
            Some(Ok(Message::Binary(bytes))) => {
                let send = vec![ToDaemon::Unsupported { of: "binary".into() }];
                Step { send, close: self.machine.spend(bytes.len(), now), ..Step::default() }
            }
            Some(Ok(Message::Ping(bytes) | Message::Pong(bytes))) => {
                Step { close: self.machine.spend(bytes.len(), now), ..Step::default() }
            }
            Some(Ok(Message::Close(_))) | None => ends(gone()),
            Some(Err(error)) => ends(broken(&error)),
        }
    }

    /// Sends and does what a step says.
    fn follow(&mut self, step: Step) -> Option<Close> {
        for frame in &step.send {
            if !self.queue.push(frame) {
                return Some(Close::new(close::TIMEOUT, "the daemon does not read"));
            }
        }
        for work in step.work {
            match work {
                Work::Record(events) => {
                    self.batch.add(&events);
                    self.inbox.push(events);
                }
                Work::Acked(cmd_seq) if cmd_seq > self.sent => {
                    return Some(Close::new(close::PROTOCOL, "acknowledged a command that there is not"));
                }
                Work::Acked(cmd_seq) => self.pending.add(Pending::Acked(cmd_seq)),
                Work::Lists(state) => self.pending.add(Pending::Lists(state)),
                Work::Claims(claims) => self.pending.add(Pending::Claims(claims)),
                Work::Settle(lost) => self.pending.add(Pending::Settle(lost)),
                Work::Heard(heard) => self.pending.add(Pending::heard(heard)),
                Work::Written(written) => self.pending.add(Pending::Written(vec![written])),
                Work::Fares(metrics) => self.entrance.fares(metrics, self.board.clock.now().0),
                Work::Answer { id, outcome } => {
                    if let Some(reply) = self.requests.remove(&id) {
                        // Whoever asked may have given up.
                        drop(reply.send(outcome.map_err(RequestError::Refused)));
                    }
                }
            }
        }
        step.close
    }

    /// Everything that waits, in one change.
    fn record(&mut self) -> Task<Outcome> {
        let frames: Arc<[Events]> = std::mem::take(&mut self.inbox).into();
        let acked = self.pending.take_acked();
        self.inbox_bytes = 0;
        self.batch.begin(Instant::now());
        let (board, connection) = (self.board.clone(), self.connection.clone());
        Box::pin(async move {
            loop {
                let outcome = record::record(&board, &connection, frames.clone(), acked).await;
                match outcome {
                    // No ack without a commit: the daemon keeps them too.
                    Err(Error::Unavailable { .. } | Error::Conflict { .. }) => tokio::time::sleep(RETRY_AFTER).await,
                    outcome => return (outcome, frames),
                }
            }
        })
    }

    fn recorded(&mut self, (outcome, frames): Outcome) -> Step {
        match outcome {
            Ok(Some(answers)) => {
                crate::fault::at("link::before_ack");
                self.machine.recorded(answers, self.now())
            }
            Ok(None) => {
                Step { close: Some(Close::new(close::SUPERSEDED, "a newer connection is here")), ..Step::default() }
            }
            Err(error) => {
                let tasks = frames.iter().map(|frame| frame.task_id.as_str()).collect::<Vec<_>>().join(" ");
                tracing::error!(viber.id = %self.connection.viber, tasks, %error, "events could not be recorded");
                Step { close: Some(Close::new(close::DRAINING, "retry-after=30")), ..Step::default() }
            }
        }
    }

    fn done(&mut self, done: Done) -> Step {
        match done {
            Done::Nothing => Step::default(),
            Done::Again(work) => {
                self.pending.restore(work);
                Step::default()
            }
            Done::Written(edit_ids) => Step { send: vec![ToDaemon::AckWritten { edit_ids }], ..Step::default() },
            Done::Commands(mut commands) => {
                // There may be more; of those that come later the bell tells.
                if commands.len() as u64 == compose::BATCH {
                    self.pending.add(Pending::Commands);
                }
                // New ones may have been sent meanwhile.
                commands.retain(|command| command.cmd_seq > self.sent);
                self.sent = commands.last().map_or(self.sent, |last| last.cmd_seq);
                Step { send: commands.into_iter().map(ToDaemon::Command).collect(), ..Step::default() }
            }
        }
    }

    fn ordered(&mut self, order: Order) -> Step {
        match order {
            Order::Close(code) => Step { close: Some(Close::new(code, "")), ..Step::default() },
            Order::Commands { first, mut more } => {
                let mut step = Step::default();
                for one in first {
                    if one.cmd_seq == self.sent + 1 && self.queue.has_room() {
                        self.sent = one.cmd_seq;
                        step.send.push(ToDaemon::Command(compose::first(one)));
                    } else {
                        more |= one.cmd_seq > self.sent;
                    }
                }
                if more {
                    self.pending.add(Pending::Commands);
                }
                step
            }
            Order::Request { method, params, reply } => {
                self.requests.retain(|_, reply| !reply.is_closed());
                if self.requests.len() >= REQUESTS {
                    drop(reply.send(Err(RequestError::Busy)));
                    return Step::default();
                }
                let id = self.next_request;
                self.next_request += 1;
                self.requests.insert(id, reply);
                Step { send: vec![ToDaemon::Request { id, method, params }], ..Step::default() }
            }
        }
    }

    /// Until when nothing has to be looked at. `rest`: reading pauses for so long, milliseconds.
    fn due(&self, now: i64, rest: u64) -> Instant {
        let due = u64::try_from(self.machine.due() - now).unwrap_or(0);
        let wait = Duration::from_millis(if rest > 0 { due.min(rest) } else { due }.max(5));
        let at = Instant::now() + wait;
        if wait > GRID { self.board.hub.on_grid(at, GRID) } else { at }
    }

    fn tick(&mut self) -> Step {
        let now = self.now();
        self.machine.tick(now)
    }
}

/// The end of what is under way, if anything is.
async fn maybe<T>(task: &mut Option<Task<T>>) -> Option<T> {
    match task {
        Some(task) => Some(task.await),
        None => std::future::pending().await,
    }
}
