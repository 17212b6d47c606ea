//! The I/O loop of one connection; `state` decides what it does.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures_util::{FutureExt, SinkExt, StreamExt, stream::SplitSink};
use protocol::{
    BadFrame, EditId, FromDaemon, NumberedCommand, ToDaemon, ViberState,
    limits::{HEARTBEAT_SECONDS, SILENCE_SECONDS, close},
};
use serde_json::Value;
use tokio::{
    sync::{Semaphore, mpsc},
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::{CloseFrame, frame::coding::CloseCode},
};
use tokio_util::sync::CancellationToken;

use super::state::{ConnectionState, ConnectionStep, OversizedFrame};
use crate::{
    adapters::board::{
        Identity, backoff::ConnectionEnd, dial::BoardSocket, metrics::MetricsSampler, requests, standing,
    },
    journal::JournalError,
    mesh::Mesh,
    workspace::FileChange,
};

/// Frames that may wait for the socket.
const MAX_OUTGOING_FRAMES: usize = 16;
/// A write that takes longer than this means that the Board no longer reads.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the last events may take to be acknowledged when the daemon ends.
const FINAL_ACK_TIMEOUT: Duration = Duration::from_secs(5);
/// Frames that are handled together, so that their commands share an fsync.
const MAX_FRAME_BATCH: usize = 64;
/// Commands that may wait for an earlier one before the connection is given up. The Board sends all of them again on
/// the next one.
const MAX_EARLY_COMMANDS: usize = 64;
/// How long they may wait before the connection is given up.
const EARLY_COMMAND_TIMEOUT: Duration = Duration::from_secs(5);
/// Changed files that are reported in one go; events of tasks are sent in between.
const MAX_FILE_BATCH: usize = MAX_OUTGOING_FRAMES / 2;
/// Time between two such batches.
const FILE_BATCH_INTERVAL: Duration = Duration::from_millis(5);
/// Requests of the Board that are answered at the same time.
const MAX_CONCURRENT_REQUESTS: usize = 8;

/// The outcome of a connection.
pub struct ConnectionOutcome {
    pub end: ConnectionEnd,
    /// When the Board sent its welcome.
    pub welcomed: Option<std::time::Instant>,
    /// The frame that the Board probably rejected as too large.
    pub too_large: Option<OversizedFrame>,
}

/// Serves one connection until it ends.
pub async fn serve(
    socket: BoardSocket,
    mesh: &Mesh,
    identity: &Identity,
    (metrics, frame): (&mut MetricsSampler, u64),
    finish: &CancellationToken,
) -> ConnectionOutcome {
    let (sink, mut stream) = socket.split();
    let (out, waiting) = mpsc::channel(MAX_OUTGOING_FRAMES);
    let gone = CancellationToken::new();
    let writer = tokio::spawn(write(sink, waiting, gone.clone()));
    let (state, hello) = ConnectionState::open(identity.hello(mesh), frame);
    let requests = Arc::new(Semaphore::new(MAX_CONCURRENT_REQUESTS));
    let mut connection = Connection {
        state,
        mesh,
        identity,
        out,
        welcomed: None,
        closed: false,
        early: BTreeMap::new(),
        since: Instant::now(),
        requests,
        reported_edits: BTreeSet::new(),
        reported_outcomes: BTreeSet::new(),
        metrics,
    };
    let end = connection.run(&mut stream, hello, &gone, finish).await;
    let welcomed = connection.welcomed;
    let size = matches!(end, ConnectionEnd::Closed { code: close::TOO_LARGE, .. });
    let too_large = if size && connection.closed { connection.state.largest() } else { None };
    if let (ConnectionEnd::Closed { code, reason }, false) = (&end, connection.closed) {
        let frame = CloseFrame { code: CloseCode::from(*code), reason: protocol::text::head(reason, 120).into() };
        let _ = timeout(Duration::from_secs(1), connection.out.send(Message::Close(Some(frame)))).await;
    }
    drop(connection);
    // The writer ends once it has sent what is queued; it may be blocked by the socket.
    if timeout(Duration::from_secs(2), writer).await.is_err() {
        tracing::debug!("the socket did not take the last frames");
    }
    ConnectionOutcome { end, welcomed, too_large }
}

struct Connection<'a> {
    state: ConnectionState,
    mesh: &'a Mesh,
    identity: &'a Identity,
    out: mpsc::Sender<Message>,
    welcomed: Option<std::time::Instant>,
    /// Whether the Board closed the connection, rather than this side.
    closed: bool,
    /// Commands that arrived before an earlier one.
    early: BTreeMap<u64, NumberedCommand>,
    since: Instant,
    requests: Arc<Semaphore>,
    /// File edits whose outcome was reported on this connection.
    reported_edits: BTreeSet<EditId>,
    /// Commands whose outcome was reported on this connection.
    reported_outcomes: BTreeSet<u64>,
    metrics: &'a mut MetricsSampler,
}

type SocketStream = futures_util::stream::SplitStream<BoardSocket>;

impl Connection<'_> {
    async fn run(
        &mut self,
        stream: &mut SocketStream,
        hello: FromDaemon,
        gone: &CancellationToken,
        finish: &CancellationToken,
    ) -> ConnectionEnd {
        if let Err(end) = self.send(hello).await {
            return end;
        }
        let mut bell = self.mesh.outbox().bell();
        let (mut outcomes, mut changed) = (self.mesh.outcomes_bell(), self.mesh.workspace().changes_bell());
        let mut files = self.mesh.files();
        files.mark_unchanged();
        let mut skills = self.mesh.skills().changes();
        let mut mcp = self.mesh.mcp().changes();
        let mut adapters = self.mesh.adapter_changes();
        let mut beat = interval(Duration::from_secs(HEARTBEAT_SECONDS));
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let silence = Duration::from_secs(SILENCE_SECONDS);
        let mut heard = Instant::now();
        let mut last_words: Option<Instant> = None;
        loop {
            if let Err(end) = self.events().await {
                return end;
            }
            let more_files = match self.files().await {
                Ok(more) => more,
                Err(end) => return end,
            };
            if let Some(until) = last_words
                && (Instant::now() >= until || self.state.is_settled(self.mesh.outbox()))
            {
                return ConnectionEnd::Closed { code: 1000, reason: "the daemon ends".to_owned() };
            }
            let more = self.state.is_open();
            let step = tokio::select! {
                biased;
                frame = stream.next() => {
                    heard = Instant::now();
                    self.frames(frame, stream).await
                }
                () = gone.cancelled() => Err(ConnectionEnd::Lost("the connection was lost".to_owned())),
                () = sleep_until(heard + silence) => Err(ConnectionEnd::Lost(format!("the Board was silent for {SILENCE_SECONDS} s"))),
                () = sleep_until(last_words.unwrap_or(heard + silence)), if last_words.is_some() => Ok(()),
                () = finish.cancelled(), if last_words.is_none() => {
                    last_words = Some(Instant::now() + FINAL_ACK_TIMEOUT);
                    Ok(())
                }
                () = sleep_until(self.since + EARLY_COMMAND_TIMEOUT), if !self.early.is_empty() => self.hand_over(Vec::new()).await,
                _ = beat.tick(), if more => self.beat().await,
                changed = files.changed(), if more => match changed {
                    Ok(()) => {
                        self.mesh.pump();
                        files.mark_unchanged();
                        self.send(FromDaemon::State(Box::new(self.mesh.viber_state()))).await
                    }
                    Err(_) => Err(ConnectionEnd::Lost("the daemon ends".to_owned())),
                },
                Ok(()) = adapters.changed(), if more => {
                    self.send(FromDaemon::State(Box::new(self.mesh.viber_state()))).await
                }
                Ok(()) = mcp.changed(), if more => {
                    let servers = ViberState { mcp: Some(self.mesh.mcp().report()), ..ViberState::default() };
                    self.send(FromDaemon::State(Box::new(servers))).await
                }
                Ok(()) = skills.changed(), if more => {
                    self.send(FromDaemon::State(Box::new(self.mesh.viber_state()))).await
                }
                _ = bell.changed(), if more => Ok(()),
                _ = outcomes.changed(), if more => Ok(()),
                _ = changed.changed(), if more => Ok(()),
                () = tokio::time::sleep(FILE_BATCH_INTERVAL), if more_files => Ok(()),
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    /// Sends what the window allows, as long as the socket accepts it.
    async fn events(&mut self) -> Result<(), ConnectionEnd> {
        while self.out.capacity() > MAX_OUTGOING_FRAMES / 2 {
            let Some(events) = self.state.events(self.mesh.outbox(), std::time::Instant::now()) else { return Ok(()) };
            self.send(FromDaemon::Events(events)).await?;
        }
        Ok(())
    }

    /// Reports changed files and the outcomes of what the Board asked for. Returns whether there is more to report.
    async fn files(&mut self) -> Result<bool, ConnectionEnd> {
        if !self.state.is_open() {
            return Ok(false);
        }
        for written in self.mesh.written() {
            if self.reported_edits.insert(written.edit_id.clone()) {
                self.send(FromDaemon::WorkspaceWritten(written)).await?;
            }
        }
        let mut done = self.mesh.commands_done();
        done.retain(|done| self.reported_outcomes.insert(done.cmd_seq));
        if !done.is_empty() {
            // The Board hears what the skills are before it hears that they are so.
            self.send(FromDaemon::State(Box::new(self.mesh.viber_state()))).await?;
        }
        for done in done {
            self.send(FromDaemon::CommandDone(done)).await?;
        }
        if self.out.capacity() <= MAX_OUTGOING_FRAMES / 2 {
            return Ok(true);
        }
        let news = self.mesh.workspace().take_changes(MAX_FILE_BATCH);
        let more = news.len() == MAX_FILE_BATCH;
        for FileChange { path, hash, size, mtime, by } in news {
            let by = by.as_str().to_owned();
            self.send(FromDaemon::WorkspaceChanged { path, hash, size, mtime, by }).await?;
        }
        Ok(more)
    }

    /// Handles a frame and those that arrived with it.
    async fn frames(
        &mut self,
        first: Option<Result<Message, tokio_tungstenite::tungstenite::Error>>,
        stream: &mut SocketStream,
    ) -> Result<(), ConnectionEnd> {
        let mut commands: Vec<NumberedCommand> = Vec::new();
        let mut next = Some(first);
        let mut taken = 0;
        let mut result = Ok(());
        while let Some(frame) = next {
            result = self.frame(frame, &mut commands).await;
            taken += 1;
            next = if result.is_ok() && taken < MAX_FRAME_BATCH { stream.next().now_or_never() } else { None };
        }
        // Commands that arrived before a broken frame are still taken.
        self.hand_over(commands).await?;
        result
    }

    /// Journals the commands whose turn it is and acknowledges them.
    async fn hand_over(&mut self, commands: Vec<NumberedCommand>) -> Result<(), ConnectionEnd> {
        let commands = self.due(commands);
        if !commands.is_empty() {
            // Commands known beyond these have to be sent again before they can be acknowledged.
            let sent = commands.last().map_or(0, |last| last.cmd_seq);
            match self.mesh.take(commands).await {
                Ok(cmd_seq) => {
                    let cmd_seq = cmd_seq.min(sent);
                    crate::fault::at("link::before_ack");
                    self.send(FromDaemon::AckCommand { cmd_seq }).await?;
                }
                Err(error @ JournalError::Gap { .. }) => {
                    return Err(ConnectionEnd::Closed { code: close::PROTOCOL, reason: error.to_string() });
                }
                Err(error @ JournalError::Disk(_)) => return Err(ConnectionEnd::Lost(error.to_string())),
            }
        }
        Ok(())
    }

    /// Returns the commands whose turn it is and keeps the others waiting. When too many wait, all are handed over as
    /// they are, which refuses them.
    fn due(&mut self, commands: Vec<NumberedCommand>) -> Vec<NumberedCommand> {
        if self.early.is_empty() {
            self.since = Instant::now();
        }
        self.early.extend(commands.into_iter().map(|command| (command.cmd_seq, command)));
        let gives_up = self.early.len() > MAX_EARLY_COMMANDS || self.since.elapsed() >= EARLY_COMMAND_TIMEOUT;
        let mut next = self.mesh.last_cmd_seq() + 1;
        let mut due = Vec::new();
        while let Some(first) = self.early.first_entry().filter(|first| *first.key() <= next || gives_up) {
            next = next.max(first.key() + 1);
            due.push(first.remove());
        }
        due
    }

    async fn frame(
        &mut self,
        frame: Option<Result<Message, tokio_tungstenite::tungstenite::Error>>,
        commands: &mut Vec<NumberedCommand>,
    ) -> Result<(), ConnectionEnd> {
        let text = match frame {
            None => return Err(ConnectionEnd::Lost("the connection was lost".to_owned())),
            Some(Err(error)) => return Err(ConnectionEnd::Lost(format!("the connection was lost: {error}"))),
            Some(Ok(Message::Close(Some(frame)))) => {
                self.closed = true;
                return Err(ConnectionEnd::Closed { code: frame.code.into(), reason: frame.reason.to_string() });
            }
            Some(Ok(Message::Close(None))) => {
                return Err(ConnectionEnd::Lost("the Board closed the connection".to_owned()));
            }
            Some(Ok(Message::Text(text))) => text,
            // Binary frames are not used yet; pings are answered by the library.
            Some(Ok(_)) => return Ok(()),
        };
        match ToDaemon::parse(&text) {
            Ok(frame) => {
                for step in self.state.frame(frame, std::time::Instant::now()) {
                    self.step(step, commands).await?;
                }
                Ok(())
            }
            Err(BadFrame::Unknown(of)) => self.send(FromDaemon::Unsupported { of }).await,
            Err(BadFrame::Malformed(reason)) => Err(ConnectionEnd::Closed { code: close::PROTOCOL, reason }),
            Err(BadFrame::TooLarge) => Err(ConnectionEnd::Closed { code: close::TOO_LARGE, reason: String::new() }),
        }
    }

    async fn step(&mut self, step: ConnectionStep, commands: &mut Vec<NumberedCommand>) -> Result<(), ConnectionEnd> {
        match step {
            ConnectionStep::Welcomed(welcome) => {
                self.welcomed = Some(std::time::Instant::now());
                if let Err(error) = self.mesh.replayed_from(welcome.cmds_from).await {
                    return Err(ConnectionEnd::Lost(format!("the journal cannot be written: {error}")));
                }
                self.mesh.pause(false);
                self.mesh.welcomed(&welcome).await;
                tracing::info!(epoch = welcome.conn_epoch, "connected to the Board");
                self.mesh.contact(standing(self.mesh, true, None));
            }
            ConnectionStep::Command(numbered) => commands.push(numbered),
            ConnectionStep::Acked(acked) => self.mesh.acknowledged(acked).await,
            ConnectionStep::EditsAcknowledged(edits) => self.mesh.edits_acknowledged(edits).await,
            ConnectionStep::OutcomesAcknowledged(cmd_seqs) => self.mesh.outcomes_acknowledged(cmd_seqs).await,
            ConnectionStep::Refused(attempts) => self.mesh.refused(attempts).await,
            ConnectionStep::Close { code, reason } => return Err(ConnectionEnd::Closed { code, reason }),
            ConnectionStep::Answer { id, method, params } => {
                let Ok(turn) = self.requests.clone().try_acquire_owned() else {
                    let error = Some("too many requests at once".to_owned());
                    return self.send(FromDaemon::Response { id, ok: false, result: Value::Null, error }).await;
                };
                let (mesh, identity, out) = (self.mesh.clone(), self.identity.clone(), self.out.clone());
                tokio::spawn(async move {
                    let answer = requests::answer(&mesh, &identity, id, &method, &params).await;
                    // The Board hears of a changed key before the answer that promises it.
                    let state = || FromDaemon::State(Box::new(mesh.viber_state()));
                    let news = method.starts_with(requests::PROVIDER_KEYS).then(state);
                    for message in news.iter().chain([&answer]).filter_map(|frame| encode(frame).ok()) {
                        let _ = out.send(message).await;
                    }
                    drop(turn);
                });
            }
        }
        Ok(())
    }

    async fn beat(&mut self) -> Result<(), ConnectionEnd> {
        let metrics = self.metrics.measure(std::time::Instant::now());
        self.send(FromDaemon::Heartbeat { running: self.mesh.unsettled(), metrics }).await
    }

    async fn send(&mut self, frame: FromDaemon) -> Result<(), ConnectionEnd> {
        let message = encode(&frame)?;
        self.out.send(message).await.map_err(|_| ConnectionEnd::Lost("the connection was lost".to_owned()))
    }
}

fn encode(frame: &FromDaemon) -> Result<Message, ConnectionEnd> {
    serde_json::to_string(frame)
        .map(Message::text)
        .map_err(|error| ConnectionEnd::Lost(format!("a frame cannot be written: {error}")))
}

/// Writes frames one by one, so that reading continues while the Board is slow to take them.
async fn write(
    mut sink: SplitSink<BoardSocket, Message>,
    mut waiting: mpsc::Receiver<Message>,
    gone: CancellationToken,
) {
    let _gone = gone.drop_guard();
    while let Some(message) = waiting.recv().await {
        let last = matches!(message, Message::Close(_));
        match timeout(WRITE_TIMEOUT, sink.send(message)).await {
            Ok(Ok(())) if !last => {}
            _ => return,
        }
    }
    let _ = timeout(Duration::from_secs(1), sink.close()).await;
}
