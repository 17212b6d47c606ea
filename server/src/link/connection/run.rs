//! The I/O loop of one connection: reads, writes, and does what `state` decides. Everything it waits for is bounded.

use std::{
    collections::HashMap,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use axum::extract::ws::{Message, WebSocket};
use futures_util::{
    FutureExt, StreamExt,
    future::{self, OptionFuture},
    stream::{SplitSink, SplitStream},
};
use protocol::{Events, TeamId, ToDaemon, ViberId, limits::close};
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_util::sync::WaitForCancellationFuture;

use super::{
    close::{CloseReason, GOODBYE_TIMEOUT, LAST_WORK_TIMEOUT, goodbye, lost},
    state::{AwaitingHello, ConnectionState, ConnectionStep, StepEffect},
};
use crate::{
    actions::{
        file_reports, reconcile,
        record::{self, RecordReply},
    },
    domain::Connection,
    error::{Error, Result},
    hub::{LinkMessage, Registration, Reply, RequestError},
    link::{
        batching::{AckedCommands, DELTA_TICK, DeltaBatch},
        compose,
        pending::{BoxedWork, Pending, PendingWork, RETRY_AFTER, WorkOutcome},
        send_queue::SendQueue,
    },
    state::Board,
};

/// How long a new connection may take to send its hello: below ten seconds even with a busy machine's delay.
const HELLO_TIMEOUT: Duration = Duration::from_secs(9);
/// Events that may wait for the recording in progress, bytes; beyond that reading pauses.
const MAX_INBOX_BYTES: usize = 1024 * 1024;
/// What is due later than this is due on a grid of this width: one turn of the runtime serves all links, and a link that
/// gets a frame now and then moves its alarm before it fires.
const ALARM_GRID: Duration = Duration::from_millis(500);
/// The shortest alarm.
const MIN_ALARM: Duration = Duration::from_millis(5);
/// The Board's requests under way on one connection.
const MAX_OPEN_REQUESTS: usize = 32;
/// Frames that are read before the work that they ask for is started.
const MAX_FRAME_BATCH: usize = 32;

/// The viber that dialled in, by its credential.
#[derive(Clone, Debug)]
pub struct AuthenticatedViber {
    pub team: TeamId,
    pub viber: ViberId,
    pub name: String,
    pub address: String,
}

struct Socket {
    sink: SplitSink<WebSocket, Message>,
    stream: SplitStream<WebSocket>,
}

type RecordOutcome = (Result<Option<RecordReply>>, Arc<[Events]>);

/// Serves a connection until either side ends it. Its beginning and end are boxed: the memory that they need is not held by
/// thousands of idle connections.
pub async fn serve(board: Board, socket: WebSocket, peer: AuthenticatedViber) {
    let (sink, stream) = socket.split();
    let mut socket = Socket { sink, stream };
    let viber = peer.viber.clone();
    let close = match Box::pin(greet(board, &mut socket, peer)).await {
        Ok(mut link) => {
            let close = link.run(&mut socket).await;
            Box::pin(part(link, socket, &close)).await;
            close
        }
        Err(close) => {
            Box::pin(goodbye(socket.sink, &close)).await;
            close
        }
    };
    tracing::info!(viber.id = %viber, code = close.code, reason = close.reason, "a viber's connection ended");
}

/// Gives up the connection's registration, says goodbye, and records that contact is lost. What was begun is ended: a change
/// is made though nobody waits for it, and others are to hear of it.
async fn part(mut link: Box<Link>, socket: Socket, close: &CloseReason) {
    let (board, connection) = (link.board.clone(), link.connection.clone());
    let begun = future::join(OptionFuture::from(link.recording.take()), OptionFuture::from(link.working.take()));
    drop(link);
    board.shutdown.spawn(timeout(LAST_WORK_TIMEOUT, begun).map(drop));
    tokio::join!(goodbye(socket.sink, close), lost(&board, &connection));
}

/// Waits for the hello and answers it with the welcome.
async fn greet(board: Board, socket: &mut Socket, peer: AuthenticatedViber) -> Result<Box<Link>, CloseReason> {
    let first = tokio::select! {
        () = board.shutdown.soft.cancelled() => return Err(CloseReason::draining(&peer.viber)),
        first = timeout(HELLO_TIMEOUT, first_text(&mut socket.stream)) => first,
    };
    let text = first.map_err(|_| CloseReason::new(close::TIMEOUT, "no hello"))??;
    let hello = AwaitingHello { viber: peer.viber.clone() }.hello(&text)?;
    let wall = board.clock.now();
    let cloned = board.hub.note_boot(&peer.viber, &hello.boot_id, board.hub.lease_time(board.clock.monotonic()));
    let AuthenticatedViber { team, viber, name, address } = peer;
    let connection = Connection { team, viber, name, address, epoch: 0 };
    let epoch = reconcile::accept(&board, &connection, &hello, cloned).await;
    let epoch = epoch.map_err(|error| CloseReason::of_refusal(&connection.viber, error))?;
    // At once: who sees the viber connected may ask it something, which waits for the welcome.
    let connection = Connection { epoch, ..connection };
    let registration = board.hub.register(&connection.team, &connection.viber, epoch, wall.0);
    let registration = registration.ok_or_else(|| CloseReason::new(close::SUPERSEDED, "a newer connection is here"))?;
    let welcomed = reconcile::welcome(&board, &connection, &hello).await;
    if welcomed.is_err() {
        lost(&board, &connection).await;
    }
    let welcomed = welcomed.map_err(|error| CloseReason::of_refusal(&connection.viber, error))?;
    // The link reads its first commands: one of these may have been withdrawn meanwhile.
    registration.forget_inline();
    let now = board.hub.lease_time(board.clock.monotonic());
    let (state, welcome) = ConnectionState::new(&hello, &welcomed, now, wall);
    let mut link = Box::new(Link {
        board,
        connection,
        state,
        registration,
        queue: SendQueue::default(),
        inbox: Vec::new(),
        inbox_bytes: 0,
        batch: DeltaBatch::new(Instant::now()),
        recording: None,
        acked: AckedCommands::default(),
        pending: PendingWork::default(),
        working: None,
        sent: welcomed.cmds_from.saturating_sub(1),
        requests: HashMap::new(),
        next_request: 1,
    });
    link.pending.add(Pending::Commands);
    link.queue.push(&welcome);
    link.queue.pump(&mut socket.sink).await.map_err(|_| CloseReason::gone())?;
    link.board.shutdown.spawn(file_reports::catch_up(link.board.clone(), link.connection.clone()));
    tracing::info!(viber.id = %link.connection.viber, epoch = link.connection.epoch, "a viber is connected");
    Ok(link)
}

/// The first text frame.
async fn first_text(stream: &mut SplitStream<WebSocket>) -> Result<axum::extract::ws::Utf8Bytes, CloseReason> {
    loop {
        match stream.next().await {
            Some(Ok(Message::Text(text))) => return Ok(text),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Binary(_))) => return Err(CloseReason::new(close::PROTOCOL, "hello comes first")),
            Some(Err(error)) => return Err(CloseReason::of_error(&error)),
            Some(Ok(Message::Close(_))) | None => return Err(CloseReason::gone()),
        }
    }
}

/// One connection after its welcome.
struct Link {
    board: Board,
    connection: Connection,
    state: ConnectionState,
    registration: Registration,
    queue: SendQueue,
    /// Events that wait for the recording in progress.
    inbox: Vec<Events>,
    inbox_bytes: usize,
    batch: DeltaBatch,
    recording: Option<BoxedWork<RecordOutcome>>,
    acked: AckedCommands,
    pending: PendingWork,
    /// The piece of pending work in progress.
    working: Option<BoxedWork<WorkOutcome>>,
    /// The number of the last command that was sent.
    sent: u64,
    requests: HashMap<u64, Reply>,
    next_request: u64,
}

/// What the loop waits for in every turn. Kept over all turns: a new wait in every turn would queue for a lock that all
/// links share.
struct Timers<'a, 'soft> {
    alarm: Pin<&'a mut Sleep>,
    drain: Pin<&'a mut WaitForCancellationFuture<'soft>>,
}

impl Link {
    fn now(&self) -> i64 {
        self.board.hub.lease_time(self.board.clock.monotonic())
    }

    async fn run(&mut self, socket: &mut Socket) -> CloseReason {
        let alarm = pin!(sleep_until(Instant::now()));
        let soft = self.board.shutdown.soft.clone();
        let drain = pin!(soft.cancelled());
        let mut timers = Timers { alarm, drain };
        loop {
            crate::fault::at("link::turn");
            if let Some(close) = self.read_ready(&mut socket.stream) {
                self.finish(&mut socket.sink).await;
                return close;
            }
            let waits_until = self.start_work();
            let reads = self.set_alarm(timers.alarm.as_mut(), waits_until);
            let step = match self.wait(socket, &mut timers, reads).await {
                Ok(step) => step,
                Err(close) => return close,
            };
            let close = self.apply(step);
            // Nearly always everything leaves at once.
            let sent = if self.queue.is_empty() { None } else { self.queue.pump(&mut socket.sink).now_or_never() };
            match sent {
                Some(Err(_)) => return CloseReason::gone(),
                Some(Ok(())) => {
                    crate::fault::at("link::after_send");
                }
                None => {}
            }
            if let Some(close) = close {
                self.finish(&mut socket.sink).await;
                return close;
            }
        }
    }

    /// Reads the frames that are there already: what arrived together becomes durable together, in one commit.
    fn read_ready(&mut self, stream: &mut SplitStream<WebSocket>) -> Option<CloseReason> {
        for _ in 0..MAX_FRAME_BATCH {
            if self.state.rest(self.now()) > 0 || self.inbox_bytes >= MAX_INBOX_BYTES {
                break;
            }
            let Some(frame) = stream.next().now_or_never() else { break };
            let step = self.read(frame);
            if let Some(close) = self.apply(step) {
                return Some(close);
            }
        }
        None
    }

    /// Starts a recording and a piece of pending work, unless one is in progress. Returns until when something waits for
    /// what may follow it.
    fn start_work(&mut self) -> Option<Instant> {
        let (now, mut until) = (Instant::now(), None);
        if self.recording.is_none() && !self.inbox.is_empty() {
            until = self.batch.waits_until(now);
            if until.is_none() {
                self.recording = Some(self.record());
            }
        }
        if let Some(cmd_seq) = self.acked.take_due(now) {
            self.pending.add(Pending::Acked(cmd_seq));
        }
        if self.working.is_none() {
            self.working = self.pending.next(&self.board, &self.connection, self.sent, self.queue.has_room());
        }
        until.into_iter().chain(self.acked.until()).min()
    }

    /// Sets the alarm to the next moment at which something is due. Returns whether frames are read until then.
    fn set_alarm(&mut self, mut alarm: Pin<&mut Sleep>, waits_until: Option<Instant>) -> bool {
        let now = self.now();
        let rest = self.state.rest(now);
        let is_full = self.inbox_bytes >= MAX_INBOX_BYTES;
        if is_full {
            // It is the Board that does not read; the daemon is not silent.
            self.state.excuse_silence(now);
        }
        let due = self.due(now, rest);
        let due = waits_until.map_or(due, |until| due.min(until));
        // Moving an alarm to a later time costs a store; one that fires in vain costs a turn of the loop.
        if due != alarm.deadline() || alarm.is_elapsed() {
            alarm.as_mut().reset(due);
        }
        rest == 0 && !is_full
    }

    /// Waits for the next thing to happen, and returns what follows from it; `Err` when the socket is broken.
    async fn wait(
        &mut self,
        socket: &mut Socket,
        timers: &mut Timers<'_, '_>,
        reads: bool,
    ) -> Result<ConnectionStep, CloseReason> {
        let step = tokio::select! {
            frame = socket.stream.next(), if reads => self.read(frame),
            sent = self.queue.pump(&mut socket.sink), if !self.queue.is_empty() => {
                crate::fault::at("link::after_send");
                if let Err(error) = sent {
                    let timed_out = error.to_string().contains("timed out");
                    return Err(if timed_out { CloseReason::of_error(&error) } else { CloseReason::gone() });
                }
                ConnectionStep::default()
            }
            Some(outcome) = end_of(&mut self.recording) => {
                self.recording = None;
                self.recorded(outcome)
            }
            Some(done) = end_of(&mut self.working) => {
                self.working = None;
                self.done(done)
            }
            message = self.registration.next_message() => self.handle_message(message),
            () = &mut timers.alarm => {
                let now = self.now();
                self.state.tick(now)
            }
            () = &mut timers.drain => ConnectionStep::end(CloseReason::draining(&self.connection.viber)),
        };
        Ok(step)
    }

    /// Records the events that arrived before the end, unless a recording is in progress, and sends the answers that wait;
    /// both only within `GOODBYE_TIMEOUT`.
    async fn finish(&mut self, sink: &mut SplitSink<WebSocket, Message>) {
        if self.recording.is_none() && !self.inbox.is_empty() {
            self.recording = Some(self.record());
            if timeout(GOODBYE_TIMEOUT, OptionFuture::from(self.recording.as_mut())).await.is_ok() {
                self.recording = None;
            }
        }
        drop(timeout(GOODBYE_TIMEOUT, self.queue.pump(sink)).await);
    }

    fn read(&mut self, frame: Option<Result<Message, axum::Error>>) -> ConnectionStep {
        let now = self.now();
        match frame {
            Some(Ok(Message::Text(text))) => {
                let wall = self.board.clock.now();
                let step = self.state.frame(&text, now, wall);
                if step.close.is_none() {
                    self.registration.heard(wall.0);
                }
                if step.effects.iter().any(|effect| matches!(effect, StepEffect::Record(_))) {
                    self.inbox_bytes += text.len();
                }
                step
            }
            Some(Ok(Message::Binary(bytes))) => {
                let send = vec![ToDaemon::Unsupported { of: "binary".into() }];
                ConnectionStep { send, close: self.state.spend(bytes.len(), now), ..ConnectionStep::default() }
            }
            Some(Ok(Message::Ping(bytes) | Message::Pong(bytes))) => {
                ConnectionStep { close: self.state.spend(bytes.len(), now), ..ConnectionStep::default() }
            }
            Some(Ok(Message::Close(_))) | None => ConnectionStep::end(CloseReason::gone()),
            Some(Err(error)) => ConnectionStep::end(CloseReason::of_error(&error)),
        }
    }

    /// Sends and does what a step says.
    fn apply(&mut self, step: ConnectionStep) -> Option<CloseReason> {
        for frame in &step.send {
            if !self.queue.push(frame) {
                return Some(CloseReason::new(close::TIMEOUT, "the daemon does not read"));
            }
        }
        for effect in step.effects {
            match effect {
                StepEffect::Record(events) => {
                    self.batch.add(&events);
                    self.inbox.push(events);
                }
                StepEffect::Acked(cmd_seq) if cmd_seq > self.sent => {
                    return Some(CloseReason::new(close::PROTOCOL, "acknowledged a command that was never sent"));
                }
                StepEffect::Acked(cmd_seq) => {
                    self.acked.add(cmd_seq, self.board.hub.on_grid(Instant::now() + DELTA_TICK, DELTA_TICK));
                }
                StepEffect::Lists(state) => self.pending.add(Pending::Lists(state)),
                StepEffect::Claims(claims) => self.pending.add(Pending::Claims(claims)),
                StepEffect::Settle(lost) => self.pending.add(Pending::Settle(lost)),
                StepEffect::Heard(heard) => self.pending.add(Pending::heard(heard)),
                StepEffect::Written(written) => self.pending.add(Pending::Written(vec![written])),
                StepEffect::Done(done) => self.pending.add(Pending::Done(vec![done])),
                StepEffect::Metrics(metrics) => self.registration.set_metrics(metrics, self.board.clock.now().0),
                // The caller may have given up.
                StepEffect::Response { id, outcome } => {
                    let outcome = outcome.map_err(RequestError::Refused);
                    drop(self.requests.remove(&id).map(|reply| reply.send(outcome)));
                }
            }
        }
        step.close
    }

    /// Records the whole inbox in one change.
    fn record(&mut self) -> BoxedWork<RecordOutcome> {
        let frames: Arc<[Events]> = std::mem::take(&mut self.inbox).into();
        let acked = self.pending.take_acked().max(self.acked.take());
        self.inbox_bytes = 0;
        self.batch = DeltaBatch::new(self.board.hub.on_grid(Instant::now(), DELTA_TICK));
        let (board, connection) = (self.board.clone(), self.connection.clone());
        Box::pin(async move {
            loop {
                let outcome = record::record(&board, &connection, frames.clone(), acked).await;
                match outcome {
                    // Nothing is acknowledged without a commit: the daemon keeps the events too.
                    Err(Error::Unavailable { .. } | Error::Conflict { .. }) => tokio::time::sleep(RETRY_AFTER).await,
                    outcome => return (outcome, frames),
                }
            }
        })
    }

    fn recorded(&mut self, (outcome, frames): RecordOutcome) -> ConnectionStep {
        match outcome {
            Ok(Some(answers)) => {
                crate::fault::at("link::before_ack");
                let now = self.now();
                self.state.recorded(answers, now)
            }
            Ok(None) => ConnectionStep::close(close::SUPERSEDED, "a newer connection is here"),
            Err(error) => {
                let tasks = frames.iter().map(|frame| frame.task_id.as_str()).collect::<Vec<_>>().join(" ");
                tracing::error!(viber.id = %self.connection.viber, tasks, %error, "events could not be recorded");
                ConnectionStep::close(close::DRAINING, "retry-after=30")
            }
        }
    }

    fn done(&mut self, done: WorkOutcome) -> ConnectionStep {
        match done {
            WorkOutcome::Nothing => ConnectionStep::default(),
            WorkOutcome::Retry(work) => {
                self.pending.restore(work);
                ConnectionStep::default()
            }
            WorkOutcome::Stored(ack) => ConnectionStep::send(ack),
            WorkOutcome::Commands(mut commands) => {
                // There may be more; the hub tells of those that come later.
                if commands.len() as u64 == compose::COMMANDS_PER_READ {
                    self.pending.add(Pending::Commands);
                }
                // Inline commands may have been sent meanwhile.
                commands.retain(|command| command.cmd_seq > self.sent);
                self.sent = commands.last().map_or(self.sent, |last| last.cmd_seq);
                let send = commands.into_iter().map(ToDaemon::Command).collect();
                ConnectionStep { send, ..ConnectionStep::default() }
            }
        }
    }

    fn handle_message(&mut self, message: LinkMessage) -> ConnectionStep {
        match message {
            LinkMessage::Close(code) => ConnectionStep::close(code, ""),
            LinkMessage::Commands { inline, mut more } => {
                let mut step = ConnectionStep::default();
                for command in inline {
                    if command.cmd_seq == self.sent + 1 && self.queue.has_room() {
                        self.sent = command.cmd_seq;
                        step.send.push(ToDaemon::Command(compose::inline(command)));
                    } else {
                        more |= command.cmd_seq > self.sent;
                    }
                }
                if more {
                    self.pending.add(Pending::Commands);
                }
                step
            }
            LinkMessage::Request { method, params, reply } => {
                self.requests.retain(|_, reply| !reply.is_closed());
                // Nobody hears the answer when whoever asked has gone.
                if reply.is_closed() || self.requests.len() >= MAX_OPEN_REQUESTS {
                    drop(reply.send(Err(RequestError::Busy)));
                    return ConnectionStep::default();
                }
                let id = self.next_request;
                self.next_request += 1;
                self.requests.insert(id, reply);
                ConnectionStep::send(ToDaemon::Request { id, method, params })
            }
        }
    }

    /// When something has to be looked at next. Reading pauses for `rest` milliseconds.
    fn due(&self, now: i64, rest: u64) -> Instant {
        let due = u64::try_from(self.state.due() - now).unwrap_or(0);
        let wait = Duration::from_millis(if rest > 0 { due.min(rest) } else { due }).max(MIN_ALARM);
        let at = Instant::now() + wait;
        if wait > ALARM_GRID { self.board.hub.on_grid(at, ALARM_GRID) } else { at }
    }
}

/// The result of what is in progress; never when nothing is.
async fn end_of<T>(task: &mut Option<BoxedWork<T>>) -> Option<T> {
    match task {
        Some(task) => Some(task.await),
        None => std::future::pending().await,
    }
}
