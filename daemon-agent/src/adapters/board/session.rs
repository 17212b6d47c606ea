//! One connection: the loop that does the I/O for `link`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures_util::{FutureExt, SinkExt, StreamExt, stream::SplitSink};
use protocol::{
    BadFrame, EditId, FromDaemon, Numbered, ToDaemon,
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

use super::{
    Identity,
    backoff::End,
    dial::Socket,
    link::{Link, Step, Suspect},
    machine::Gauge,
    requests,
};
use crate::{journal::Refused, mesh::Mesh, workspace::Changed};

/// Frames that may wait for the socket.
const OUT: usize = 16;
/// A write that takes longer: the Board does not read any more.
const WRITE: Duration = Duration::from_secs(30);
/// At the end, so long for the last events to be acknowledged.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Frames taken together, so that their commands share an fsync.
const TOGETHER: usize = 64;
/// Commands that may wait for an earlier one, and how long, before the connection is given up: the Board sends all of
/// them again on the next one.
const EARLY: (usize, Duration) = (64, Duration::from_secs(5));
/// Changed files that are told at once, and how long until the next ones: events of tasks go between.
const FILES: (usize, Duration) = (OUT / 2, Duration::from_millis(5));
/// Requests of the Board that are worked on at once.
const REQUESTS: usize = 8;

/// What a connection was.
pub struct Ended {
    pub end: End,
    /// When the Board greeted us.
    pub welcomed: Option<std::time::Instant>,
    /// The Board found a frame too large: this one, it seems.
    pub too_large: Option<Suspect>,
}

/// Serves one connection until it ends.
pub async fn serve(
    socket: Socket,
    mesh: &Mesh,
    identity: &Identity,
    gauge: &mut Gauge,
    frame: u64,
    finish: &CancellationToken,
) -> Ended {
    let (sink, mut stream) = socket.split();
    let (out, waiting) = mpsc::channel(OUT);
    let gone = CancellationToken::new();
    let writer = tokio::spawn(write(sink, waiting, gone.clone()));
    let (link, hello) = Link::open(identity.hello(mesh), frame);
    let requests = Arc::new(Semaphore::new(REQUESTS));
    let mut session = Session {
        link,
        mesh,
        identity,
        out,
        welcomed: None,
        closed: false,
        early: BTreeMap::new(),
        since: Instant::now(),
        requests,
        told: BTreeSet::new(),
        gauge,
    };
    let end = session.run(&mut stream, hello, &gone, finish).await;
    let welcomed = session.welcomed;
    let size = matches!(end, End::Closed { code: close::TOO_LARGE, .. });
    let too_large = if size && session.closed { session.link.largest() } else { None };
    if let (End::Closed { code, reason }, false) = (&end, session.closed) {
        let frame = CloseFrame { code: CloseCode::from(*code), reason: protocol::text::head(reason, 120).into() };
        let _ = timeout(Duration::from_secs(1), session.out.send(Message::Close(Some(frame)))).await;
    }
    drop(session);
    // The writer ends when it has sent what waits, or when the socket is stuck.
    if timeout(Duration::from_secs(2), writer).await.is_err() {
        tracing::debug!("the socket did not take the last frames");
    }
    Ended { end, welcomed, too_large }
}

struct Session<'a> {
    link: Link,
    mesh: &'a Mesh,
    identity: &'a Identity,
    out: mpsc::Sender<Message>,
    welcomed: Option<std::time::Instant>,
    /// The Board closed the connection, not we.
    closed: bool,
    /// Commands that overtook an earlier one, and since when there are any.
    early: BTreeMap<u64, Numbered>,
    since: Instant,
    requests: Arc<Semaphore>,
    /// Changes of files whose outcome was told on this connection.
    told: BTreeSet<EditId>,
    gauge: &'a mut Gauge,
}

type Stream = futures_util::stream::SplitStream<Socket>;

impl Session<'_> {
    async fn run(
        &mut self,
        stream: &mut Stream,
        hello: FromDaemon,
        gone: &CancellationToken,
        finish: &CancellationToken,
    ) -> End {
        if let Err(end) = self.send(hello).await {
            return end;
        }
        let mut bell = self.mesh.outbox().bell();
        let (mut written, mut changed) = (self.mesh.written_bell(), self.mesh.workspace().news_bell());
        let mut files = self.mesh.files();
        files.mark_unchanged();
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
                && (Instant::now() >= until || self.link.is_settled(self.mesh.outbox()))
            {
                return End::Closed { code: 1000, reason: "the daemon ends".to_owned() };
            }
            let more = self.link.is_open();
            let step = tokio::select! {
                biased;
                frame = stream.next() => {
                    heard = Instant::now();
                    self.frames(frame, stream).await
                }
                () = gone.cancelled() => Err(End::Lost("the connection broke off".to_owned())),
                () = sleep_until(heard + silence) => Err(End::Lost(format!("the Board was silent for {SILENCE_SECONDS} s"))),
                () = sleep_until(last_words.unwrap_or(heard + silence)), if last_words.is_some() => Ok(()),
                () = finish.cancelled(), if last_words.is_none() => {
                    last_words = Some(Instant::now() + LAST_WORDS);
                    Ok(())
                }
                () = sleep_until(self.since + EARLY.1), if !self.early.is_empty() => self.hand_over(Vec::new()).await,
                _ = beat.tick(), if more => self.beat().await,
                changed = files.changed(), if more => match changed {
                    Ok(()) => {
                        self.mesh.pump();
                        let state = Box::new(files.borrow_and_update().state());
                        self.send(FromDaemon::State(state)).await
                    }
                    Err(_) => Err(End::Lost("the daemon ends".to_owned())),
                },
                _ = bell.changed(), if more => Ok(()),
                _ = written.changed(), if more => Ok(()),
                _ = changed.changed(), if more => Ok(()),
                () = tokio::time::sleep(FILES.1), if more_files => Ok(()),
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    /// Sends what the window allows, as long as the socket takes it.
    async fn events(&mut self) -> Result<(), End> {
        while self.out.capacity() > OUT / 2 {
            let Some(events) = self.link.events(self.mesh.outbox(), std::time::Instant::now()) else { return Ok(()) };
            self.send(FromDaemon::Events(events)).await?;
        }
        Ok(())
    }

    /// Tells of changes of files, and of what became of those that the Board asked for; whether there is more to tell.
    async fn files(&mut self) -> Result<bool, End> {
        if !self.link.is_open() {
            return Ok(false);
        }
        for written in self.mesh.written() {
            if self.told.insert(written.edit_id.clone()) {
                self.send(FromDaemon::WorkspaceWritten(written)).await?;
            }
        }
        if self.out.capacity() <= OUT / 2 {
            return Ok(true);
        }
        let news = self.mesh.workspace().take_news(FILES.0);
        let more = news.len() == FILES.0;
        for Changed { path, hash, size, mtime, by } in news {
            let by = by.as_str().to_owned();
            self.send(FromDaemon::WorkspaceChanged { path, hash, size, mtime, by }).await?;
        }
        Ok(more)
    }

    /// Takes a frame and those that came with it.
    async fn frames(
        &mut self,
        first: Option<Result<Message, tokio_tungstenite::tungstenite::Error>>,
        stream: &mut Stream,
    ) -> Result<(), End> {
        let mut commands: Vec<Numbered> = Vec::new();
        let mut next = Some(first);
        let mut taken = 0;
        let mut result = Ok(());
        while let Some(frame) = next {
            result = self.frame(frame, &mut commands).await;
            taken += 1;
            next = if result.is_ok() && taken < TOGETHER { stream.next().now_or_never() } else { None };
        }
        // Also what came before a broken frame is taken.
        self.hand_over(commands).await?;
        result
    }

    /// Journals the commands whose turn it is, and says so.
    async fn hand_over(&mut self, commands: Vec<Numbered>) -> Result<(), End> {
        let commands = self.due(commands);
        if !commands.is_empty() {
            // What is known beyond them already has to be sent again before it can be acknowledged.
            let sent = commands.last().map_or(0, |last| last.cmd_seq);
            match self.mesh.take(commands).await {
                Ok(cmd_seq) => {
                    let cmd_seq = cmd_seq.min(sent);
                    crate::fault::at("link::before_ack");
                    self.send(FromDaemon::AckCommand { cmd_seq }).await?;
                }
                Err(error @ Refused::Gap { .. }) => {
                    return Err(End::Closed { code: close::PROTOCOL, reason: error.to_string() });
                }
                Err(error @ Refused::Disk(_)) => return Err(End::Lost(error.to_string())),
            }
        }
        Ok(())
    }

    /// The commands whose turn it is; the others wait. When too many do, they are handed over as they are, and refused.
    fn due(&mut self, commands: Vec<Numbered>) -> Vec<Numbered> {
        if self.early.is_empty() {
            self.since = Instant::now();
        }
        self.early.extend(commands.into_iter().map(|command| (command.cmd_seq, command)));
        let gives_up = self.early.len() > EARLY.0 || self.since.elapsed() >= EARLY.1;
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
        commands: &mut Vec<Numbered>,
    ) -> Result<(), End> {
        let text = match frame {
            None => return Err(End::Lost("the connection broke off".to_owned())),
            Some(Err(error)) => return Err(End::Lost(format!("the connection broke off: {error}"))),
            Some(Ok(Message::Close(Some(frame)))) => {
                self.closed = true;
                return Err(End::Closed { code: frame.code.into(), reason: frame.reason.to_string() });
            }
            Some(Ok(Message::Close(None))) => return Err(End::Lost("the Board closed the connection".to_owned())),
            Some(Ok(Message::Text(text))) => text,
            // Terminal bytes come later; pings are answered below us.
            Some(Ok(_)) => return Ok(()),
        };
        match ToDaemon::parse(&text) {
            Ok(frame) => {
                for step in self.link.frame(frame, std::time::Instant::now()) {
                    self.step(step, commands).await?;
                }
                Ok(())
            }
            Err(BadFrame::Unknown(of)) => self.send(FromDaemon::Unsupported { of }).await,
            Err(BadFrame::Malformed(reason)) => Err(End::Closed { code: close::PROTOCOL, reason }),
            Err(BadFrame::TooLarge) => Err(End::Closed { code: close::TOO_LARGE, reason: String::new() }),
        }
    }

    async fn step(&mut self, step: Step, commands: &mut Vec<Numbered>) -> Result<(), End> {
        match step {
            Step::Welcomed(welcome) => {
                self.welcomed = Some(std::time::Instant::now());
                if let Err(error) = self.mesh.replayed_from(welcome.cmds_from).await {
                    return Err(End::Lost(format!("the journal cannot be written: {error}")));
                }
                self.mesh.pause(false);
                self.mesh.welcomed(&welcome).await;
                tracing::info!(epoch = welcome.conn_epoch, "connected to the Board");
                self.mesh.contact(super::standing(self.mesh, true, None));
            }
            Step::Command(numbered) => commands.push(numbered),
            Step::Acked(acked) => self.mesh.acknowledged(acked).await,
            Step::Heard(edits) => self.mesh.heard(edits).await,
            Step::Refused(attempts) => self.mesh.refused(attempts).await,
            Step::Send(frame) => self.send(frame).await?,
            Step::Close { code, reason } => return Err(End::Closed { code, reason }),
            Step::Answer { id, method, params } => {
                let Ok(turn) = self.requests.clone().try_acquire_owned() else {
                    let error = Some("too many requests at once".to_owned());
                    return self.send(FromDaemon::Response { id, ok: false, result: Value::Null, error }).await;
                };
                let (mesh, identity, out) = (self.mesh.clone(), self.identity.clone(), self.out.clone());
                tokio::spawn(async move {
                    let answer = requests::answer(&mesh, &identity, id, &method, &params).await;
                    if let Ok(message) = encode(&answer) {
                        let _ = out.send(message).await;
                    }
                    drop(turn);
                });
            }
        }
        Ok(())
    }

    async fn beat(&mut self) -> Result<(), End> {
        let metrics = self.gauge.measure(std::time::Instant::now());
        self.send(FromDaemon::Heartbeat { running: self.mesh.unsettled(), metrics }).await
    }

    async fn send(&mut self, frame: FromDaemon) -> Result<(), End> {
        let message = encode(&frame)?;
        self.out.send(message).await.map_err(|_| End::Lost("the connection broke off".to_owned()))
    }
}

fn encode(frame: &FromDaemon) -> Result<Message, End> {
    serde_json::to_string(frame)
        .map(Message::text)
        .map_err(|error| End::Lost(format!("a frame cannot be written: {error}")))
}

/// Writes frames one by one, so that reading goes on while the Board is slow to take them.
async fn write(mut sink: SplitSink<Socket, Message>, mut waiting: mpsc::Receiver<Message>, gone: CancellationToken) {
    let _gone = gone.drop_guard();
    while let Some(message) = waiting.recv().await {
        let last = matches!(message, Message::Close(_));
        match timeout(WRITE, sink.send(message)).await {
            Ok(Ok(())) if !last => {}
            _ => return,
        }
    }
    let _ = timeout(Duration::from_secs(1), sink.close()).await;
}
