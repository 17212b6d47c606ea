//! The state machine of a connection: what a frame means and how it is answered. Pure: it returns what has to be sent and
//! done, and gets the time and the outcomes as arguments.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use protocol::{
    AttemptRef, BadFrame, CommandDone, Events, FromDaemon, Hello, Instant, Metrics, ToDaemon, ViberId, ViberState,
    Welcome, Window, WorkspaceWritten,
    limits::{self, close},
};
use serde_json::Value;

use super::close::CloseReason;
use crate::{
    actions::{reconcile::Welcomed, record::RecordReply},
    domain::FileReport,
    link::ingest_limits::IngestLimits,
};

/// An attempt that the daemon no longer names is settled after this time, milliseconds: the daemon's own report of its
/// loss or end may be under way.
const SETTLE_GRACE_MS: i64 = 5000;
/// A viber that sends nothing for this long counts as gone, milliseconds: a little less than the 30 s after which it has to
/// be shown as disconnected.
const MAX_SILENCE_MS: i64 = limits::SILENCE_SECONDS.cast_signed() * 1000 - 1500;
/// Command numbers stay below 2^53: exact in every JSON reader, with room to count on.
const MAX_CMD_SEQ: u64 = 1 << 53;
/// Refusals within [`REFUSAL_WINDOW_MS`] that end a connection.
const MAX_REFUSALS: usize = 3;
const REFUSAL_WINDOW_MS: i64 = 60_000;
/// Claims of one connection that are looked up.
const MAX_CLAIMS: usize = 16;
/// Longest reason of a command's failure that is kept, bytes.
const MAX_ERROR_BYTES: usize = 500;

/// A connection with a valid credential that has not sent its hello.
#[derive(Debug)]
pub struct AwaitingHello {
    /// The viber whose credential was shown.
    pub viber: ViberId,
}

/// Something that only the I/O loop can do.
#[derive(Debug)]
pub enum StepEffect {
    Record(Events),
    /// The daemon has all commands up to here on disk.
    Acked(u64),
    Lists(Box<ViberState>),
    /// Attempts that a heartbeat names and the connection does not know.
    Claims(Vec<AttemptRef>),
    /// Attempts that the daemon no longer has.
    Settle(Vec<AttemptRef>),
    /// The daemon has answered a request.
    Response {
        id: u64,
        outcome: Result<Value, String>,
    },
    Metrics(Metrics),
    /// A file of the workspace changed.
    Heard(FileReport),
    /// The outcome of an edit of a file.
    Written(WorkspaceWritten),
    /// The outcome of a command that has one of its own.
    Done(CommandDone),
}

/// What follows from a frame, an outcome or the passing of time.
#[derive(Debug, Default)]
pub struct ConnectionStep {
    pub send: Vec<ToDaemon>,
    pub effects: Vec<StepEffect>,
    pub close: Option<CloseReason>,
}

impl ConnectionStep {
    pub fn close(code: u16, reason: impl Into<String>) -> Self {
        Self::end(CloseReason::new(code, reason))
    }

    pub fn end(close: CloseReason) -> Self {
        Self { close: Some(close), ..Self::default() }
    }

    pub fn send(frame: ToDaemon) -> Self {
        Self { send: vec![frame], ..Self::default() }
    }
}

impl AwaitingHello {
    /// The first frame must be a hello of the viber whose credential was shown.
    pub fn hello(self, text: &str) -> Result<Hello, CloseReason> {
        let hello = match FromDaemon::parse(text) {
            Ok(FromDaemon::Hello(hello)) => *hello,
            Ok(_) | Err(BadFrame::Unknown(_)) => return Err(CloseReason::new(close::PROTOCOL, "hello comes first")),
            Err(bad) => return Err(refusal(bad)),
        };
        if hello.viber_id != self.viber {
            return Err(CloseReason::new(close::FORBIDDEN, "the credential is another viber's"));
        }
        if hello.last_cmd_seq >= MAX_CMD_SEQ {
            // The Board's counter is raised to it: a number with nothing above it would end the viber's commands for good.
            return Err(CloseReason::new(close::PROTOCOL, "lastCmdSeq is out of range"));
        }
        if hello.protocol[0] > limits::PROTOCOL[1] || hello.protocol[1] < limits::PROTOCOL[0] {
            let [low, high] = limits::PROTOCOL;
            return Err(CloseReason::new(close::PROTOCOL, format!("protocol {low} to {high} is spoken here")));
        }
        Ok(hello)
    }
}

/// Tells a repeated hello from a different one. A daemon that forges a collision fools only itself.
fn fingerprint(hello: &Hello) -> u64 {
    let mut hasher = DefaultHasher::new();
    serde_json::to_string(hello).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}

/// What a daemon reports about a file; `None` when the path or the hash is invalid.
fn heard(path: String, hash: Option<String>, size: u64, mtime: Option<Instant>, by: &str) -> Option<FileReport> {
    let known = |hash: &str| {
        let digits = hash.strip_prefix('~').unwrap_or(hash);
        matches!(digits.len(), 32 | 64) && digits.bytes().all(|b| b.is_ascii_hexdigit())
    };
    protocol::path::file(&path).ok()?;
    if !hash.as_deref().is_none_or(known) {
        return None;
    }
    let by = ["board", "agent"].into_iter().find(|word| *word == by).unwrap_or("file").to_owned();
    Some(FileReport { path, hash, size, mtime, by })
}

fn refusal(bad: BadFrame) -> CloseReason {
    match bad {
        BadFrame::TooLarge => CloseReason::new(close::TOO_LARGE, "the frame is too large"),
        BadFrame::Malformed(why) => CloseReason::new(close::PROTOCOL, protocol::text::head(&why, 100)),
        BadFrame::Unknown(kind) => CloseReason::new(close::PROTOCOL, kind),
    }
}

/// A connection that was welcomed.
#[derive(Debug)]
pub struct ConnectionState {
    limits: IngestLimits,
    /// Fingerprint of the hello.
    hello: u64,
    /// Lease time of the last valid frame.
    heard: i64,
    /// Attempts that the daemon is known to hold, and since when it no longer names them.
    held: HashMap<AttemptRef, Option<i64>>,
    /// Announced outboxes that are not recorded yet, with their last seq: nothing is settled before they are.
    outbox: HashMap<AttemptRef, u64>,
    /// Claims that were looked up.
    claimed: Vec<AttemptRef>,
    /// Lease times of the newest refusals.
    refusals: Vec<i64>,
}

impl ConnectionState {
    /// The welcome, and the state it starts from.
    pub fn new(hello: &Hello, welcomed: &Welcomed, now: i64, wall: Instant) -> (Self, ToDaemon) {
        let welcome = Welcome {
            protocol: limits::PROTOCOL[1],
            conn_epoch: welcomed.epoch,
            server_time: wall,
            heartbeat_seconds: limits::HEARTBEAT_SECONDS,
            max_frame_bytes: limits::MAX_FRAME_BYTES as u64,
            window: Window { events: limits::WINDOW_EVENTS, bytes: limits::WINDOW_BYTES },
            acked: welcomed.acked.clone(),
            fence: welcomed.fence.clone(),
            over: welcomed.over.clone(),
            stopped: welcomed.stopped.clone(),
            cmds_from: welcomed.cmds_from,
            team_rules: serde_json::to_value(&welcomed.team_rules).ok(),
        };
        let durable = |held: &AttemptRef| {
            let acked =
                welcomed.acked.iter().find(|acked| acked.task_id == held.task_id && acked.attempt == held.attempt);
            acked.map_or(0, |acked| acked.seq)
        };
        let range = |range: &protocol::OutboxRange| {
            (AttemptRef { task_id: range.task_id.clone(), attempt: range.attempt }, range.last_seq)
        };
        let announced: HashMap<AttemptRef, u64> = hello.outbox.iter().map(range).collect();
        let named = |held: &AttemptRef| hello.running.contains(held) || announced.contains_key(held);
        let held = welcomed.held.iter().map(|held| (held.clone(), (!named(held)).then_some(now))).collect();
        let outbox = announced.iter().filter(|(held, last)| durable(held) < **last);
        let state = Self {
            limits: IngestLimits::new(now),
            hello: fingerprint(hello),
            heard: now,
            held,
            outbox: outbox.map(|(held, last)| (held.clone(), *last)).collect(),
            claimed: Vec::new(),
            refusals: Vec::new(),
        };
        (state, ToDaemon::Welcome(Box::new(welcome)))
    }

    /// How long reading pauses because of the rate limits, milliseconds.
    pub fn rest(&mut self, now: i64) -> u64 {
        self.limits.rest(now)
    }

    /// Charges a frame without content (a ping, unexpected bytes) like any other.
    pub fn spend(&mut self, bytes: usize, now: i64) -> Option<CloseReason> {
        (!self.limits.spend(1, bytes, now)).then(|| CloseReason::new(close::RATE, "far too fast"))
    }

    /// Handles a text frame.
    pub fn frame(&mut self, text: &str, now: i64, wall: Instant) -> ConnectionStep {
        let parsed = FromDaemon::parse(text);
        let events = match &parsed {
            Ok(FromDaemon::Events(events)) => events.items.len(),
            _ => 1,
        };
        if !self.limits.spend(events, text.len(), now) {
            return ConnectionStep::close(close::RATE, "far too fast");
        }
        let frame = match parsed {
            Ok(frame) => frame,
            Err(BadFrame::Unknown(of)) => {
                self.heard = now;
                return ConnectionStep { send: vec![ToDaemon::Unsupported { of }], ..ConnectionStep::default() };
            }
            Err(bad) => return ConnectionStep { close: Some(refusal(bad)), ..ConnectionStep::default() },
        };
        self.heard = now;
        self.understood(frame, now, wall)
    }

    fn understood(&mut self, frame: FromDaemon, now: i64, wall: Instant) -> ConnectionStep {
        let mut step = ConnectionStep::default();
        match frame {
            // A repeated hello says nothing new.
            FromDaemon::Hello(hello) if fingerprint(&hello) == self.hello => {}
            FromDaemon::Hello(_) => return ConnectionStep::close(close::PROTOCOL, "a second hello"),
            FromDaemon::Events(events) => {
                self.named(&events.task_id, events.attempt);
                step.effects.push(StepEffect::Record(events));
            }
            FromDaemon::AckCommand { cmd_seq } => step.effects.push(StepEffect::Acked(cmd_seq)),
            FromDaemon::Heartbeat { running, metrics } => {
                step.send.push(ToDaemon::Heartbeat { server_time: wall });
                step.effects.extend(metrics.map(StepEffect::Metrics));
                step.effects.extend(self.heartbeat(&running, now));
            }
            FromDaemon::State(state) => step.effects.push(StepEffect::Lists(state)),
            FromDaemon::Request { id, method, .. } => {
                let error = Some(format!("the Board does not answer {}", protocol::text::head(&method, 64)));
                step.send.push(ToDaemon::Response { id, ok: false, result: Value::Null, error });
            }
            FromDaemon::Response { id, ok, result, error } => {
                let outcome = if ok { Ok(result) } else { Err(error.unwrap_or_else(|| "the viber refused".into())) };
                step.effects.push(StepEffect::Response { id, outcome });
            }
            FromDaemon::Error { code, of } => {
                let of = of.unwrap_or_default();
                let (code, of) = (protocol::text::head(&code, 64), protocol::text::head(&of, 64));
                tracing::warn!(code, of, "the daemon refused a frame");
            }
            FromDaemon::Unsupported { of } => {
                tracing::warn!(of = protocol::text::head(&of, 64), "the daemon does not know a frame");
            }
            FromDaemon::WorkspaceChanged { path, hash, size, mtime, by } => {
                step.effects.extend(heard(path, hash, size, mtime, &by).map(StepEffect::Heard));
            }
            FromDaemon::WorkspaceWritten(written) => step.effects.push(StepEffect::Written(written)),
            // A number that no command has.
            FromDaemon::CommandDone(done) if done.cmd_seq >= MAX_CMD_SEQ => {}
            FromDaemon::CommandDone(mut done) => {
                let error = done.error.as_deref().map(|error| protocol::text::head(error, MAX_ERROR_BYTES).to_owned());
                done.error = error;
                step.effects.push(StepEffect::Done(done));
            }
        }
        step
    }

    fn named(&mut self, task: &protocol::TaskId, attempt: u32) {
        if let Some(missing) = self.held.get_mut(&AttemptRef { task_id: task.clone(), attempt }) {
            *missing = None;
        }
    }

    /// Compares what the daemon says it holds with what it is known to hold.
    fn heartbeat(&mut self, running: &[AttemptRef], now: i64) -> Option<StepEffect> {
        for (held, missing) in &mut self.held {
            match (running.contains(held), &missing) {
                (true, _) => *missing = None,
                (false, None) if self.outbox.is_empty() => *missing = Some(now),
                _ => {}
            }
        }
        let is_unknown = |attempt: &&AttemptRef| !self.held.contains_key(attempt) && !self.claimed.contains(attempt);
        let unknown = running.iter().filter(is_unknown);
        let unknown: Vec<AttemptRef> = unknown.take(MAX_CLAIMS.saturating_sub(self.claimed.len())).cloned().collect();
        self.claimed.extend(unknown.iter().cloned());
        (!unknown.is_empty()).then_some(StepEffect::Claims(unknown))
    }

    /// Handles the outcome of a recording: frames are durable, or refused.
    pub fn recorded(&mut self, answers: RecordReply, now: i64) -> ConnectionStep {
        let mut step = ConnectionStep::default();
        for attempt in answers.held {
            self.held.insert(attempt, None);
        }
        for attempt in &answers.ended {
            self.held.remove(attempt);
            self.outbox.remove(attempt);
        }
        for acked in &answers.acks {
            let attempt = AttemptRef { task_id: acked.task_id.clone(), attempt: acked.attempt };
            if self.outbox.get(&attempt).is_some_and(|last| acked.seq >= *last) {
                self.outbox.remove(&attempt);
            }
        }
        if !answers.acks.is_empty() {
            step.send.push(ToDaemon::AckEvents { acks: answers.acks });
        }
        let nack =
            |nack: protocol::Acked| ToDaemon::Nack { task_id: nack.task_id, attempt: nack.attempt, expect: nack.seq };
        step.send.extend(answers.nacks.into_iter().map(nack));
        for (code, task) in answers.refused {
            // It will never be recorded, so nothing may wait for it.
            self.outbox.retain(|attempt, _| attempt.task_id != task);
            step.send.push(ToDaemon::Error { code: code.to_owned(), of: Some(task.to_string()) });
            if self.is_one_refusal_too_many(now) {
                let close = if code == "forbidden_task" { close::FORBIDDEN } else { close::PROTOCOL };
                step.close = Some(CloseReason::new(close, code));
                break;
            }
        }
        step
    }

    /// Counts a refusal; `true` when the connection has to end.
    fn is_one_refusal_too_many(&mut self, now: i64) -> bool {
        self.refusals.retain(|at| now - at < REFUSAL_WINDOW_MS);
        self.refusals.push(now);
        self.refusals.len() >= MAX_REFUSALS
    }

    /// Restarts the silence timer: the Board itself did not read up to now.
    pub fn excuse_silence(&mut self, now: i64) {
        self.heard = now;
    }

    /// Lease time of the next tick that has something to do, unless a frame comes before.
    pub fn due(&self) -> i64 {
        let silent = self.heard + MAX_SILENCE_MS;
        let missing = self.held.values().flatten().min().filter(|_| self.outbox.is_empty());
        missing.map_or(silent, |since| silent.min(since + SETTLE_GRACE_MS))
    }

    /// Handles the passing of time.
    pub fn tick(&mut self, now: i64) -> ConnectionStep {
        if now - self.heard >= MAX_SILENCE_MS {
            return ConnectionStep::close(close::TIMEOUT, "silent");
        }
        let mut step = ConnectionStep::default();
        if self.outbox.is_empty() {
            let gone = |missing: &Option<i64>| missing.is_some_and(|since| now - since >= SETTLE_GRACE_MS);
            let lost = self.held.iter().filter(|(_, missing)| gone(missing)).map(|(attempt, _)| attempt.clone());
            let lost: Vec<AttemptRef> = lost.collect();
            for attempt in &lost {
                self.held.remove(attempt);
            }
            if !lost.is_empty() {
                step.effects.push(StepEffect::Settle(lost));
            }
        }
        step
    }
}

#[cfg(test)]
mod tests;
