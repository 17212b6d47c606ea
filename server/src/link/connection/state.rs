//! The state machine of a connection: what a frame means and what is answered. Pure: it returns what is to be sent and
//! done, and is told the time and the outcomes.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use protocol::{
    BadFrame, Events, FromDaemon, Hello, Instant, Metrics, Running, ToDaemon, ViberId, ViberState, Welcome, Window,
    WorkspaceWritten,
    limits::{self, close},
};
use serde_json::Value;

use super::ingest_limits::IngestLimits;
use crate::{
    actions::{reconcile::Welcomed, record::Answers},
    domain::Heard,
};

/// An attempt that the daemon no longer names is settled after this time, milliseconds: its own report of the loss, or of
/// the end, may be under way.
const GRACE: i64 = 5000;
/// A viber that says nothing for so long is gone, milliseconds: a little less than 30 s, after which everybody has to know.
const SILENCE: i64 = limits::SILENCE_SECONDS.cast_signed() * 1000 - 1500;
/// Numbers stay exact in every JSON reader (2^53), and there is room above them.
const MAX_CMD_SEQ: u64 = 1 << 53;
/// Refusals within a minute that end a connection.
const STRIKES: usize = 3;
const MINUTE: i64 = 60_000;
/// False claims of one connection that are written down.
const CLAIMS: usize = 16;

/// A connection whose credential is good and that has not said hello.
#[derive(Debug)]
pub struct Unidentified {
    /// Whose credential it showed.
    pub viber: ViberId,
}

/// Why a connection ends: the close code, and a word for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    pub code: u16,
    pub reason: String,
}

impl Close {
    pub fn new(code: u16, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }
}

/// Something only the loop can do.
#[derive(Debug)]
pub enum Work {
    Record(Events),
    /// The daemon has all commands up to here on disk.
    Acked(u64),
    Lists(Box<ViberState>),
    /// Attempts that a heartbeat names and nobody knows here.
    Claims(Vec<Running>),
    /// Attempts that the daemon no longer has.
    Settle(Vec<Running>),
    Answer {
        id: u64,
        outcome: Result<Value, String>,
    },
    Fares(Metrics),
    /// A file of its workspace is another one now.
    Heard(Heard),
    /// What became of a change of a file.
    Written(WorkspaceWritten),
}

/// What follows from a frame or a moment.
#[derive(Debug, Default)]
pub struct Step {
    pub send: Vec<ToDaemon>,
    pub work: Vec<Work>,
    pub close: Option<Close>,
}

impl Step {
    fn close(code: u16, reason: impl Into<String>) -> Self {
        Self { close: Some(Close::new(code, reason)), ..Self::default() }
    }
}

impl Unidentified {
    /// The first frame must be a hello of the viber whose credential was shown.
    pub fn hello(self, text: &str) -> Result<Hello, Close> {
        let hello = match FromDaemon::parse(text) {
            Ok(FromDaemon::Hello(hello)) => *hello,
            Ok(_) | Err(BadFrame::Unknown(_)) => return Err(Close::new(close::PROTOCOL, "hello comes first")),
            Err(bad) => return Err(refusal(bad)),
        };
        if hello.viber_id != self.viber {
            return Err(Close::new(close::FORBIDDEN, "the credential is another viber's"));
        }
        if hello.last_cmd_seq >= MAX_CMD_SEQ {
            // The counter is raised to it: what cannot be counted on from would end the viber's commands for good.
            return Err(Close::new(close::PROTOCOL, "lastCmdSeq is out of range"));
        }
        if hello.protocol[0] > limits::PROTOCOL[1] || hello.protocol[1] < limits::PROTOCOL[0] {
            let [low, high] = limits::PROTOCOL;
            return Err(Close::new(close::PROTOCOL, format!("protocol {low} to {high} is spoken here")));
        }
        Ok(hello)
    }
}

/// Tells a hello that comes twice from a second one. Who finds another with the same print fools only itself.
fn fingerprint(hello: &Hello) -> u64 {
    let mut hasher = DefaultHasher::new();
    serde_json::to_string(hello).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}

/// What a daemon says of a file, if it is one: a path that is none, a hash that is none, are not kept.
fn heard(path: String, hash: Option<String>, size: u64, mtime: Option<Instant>, by: &str) -> Option<Heard> {
    let known = |hash: &str| {
        let digits = hash.strip_prefix('~').unwrap_or(hash);
        matches!(digits.len(), 32 | 64) && digits.bytes().all(|b| b.is_ascii_hexdigit())
    };
    protocol::path::file(&path).ok()?;
    if !hash.as_deref().is_none_or(known) {
        return None;
    }
    let by = ["board", "agent"].into_iter().find(|word| *word == by).unwrap_or("file").to_owned();
    Some(Heard { path, hash, size, mtime, by })
}

fn refusal(bad: BadFrame) -> Close {
    match bad {
        BadFrame::TooLarge => Close::new(close::TOO_LARGE, "the frame is too large"),
        BadFrame::Malformed(why) => Close::new(close::PROTOCOL, protocol::text::head(&why, 100)),
        BadFrame::Unknown(kind) => Close::new(close::PROTOCOL, kind),
    }
}

/// A connection that was welcomed.
#[derive(Debug)]
pub struct Identified {
    limits: IngestLimits,
    /// Fingerprint of the hello.
    hello: u64,
    /// Lease time of the last valid frame.
    heard: i64,
    /// Attempts that the daemon is known to hold, and since when it no longer names them.
    held: HashMap<Running, Option<i64>>,
    /// Announced outboxes that are not recorded yet, by their last seq: nothing is settled before they are.
    outbox: HashMap<Running, u64>,
    /// Claims that were looked up.
    claimed: Vec<Running>,
    strikes: Vec<i64>,
}

impl Identified {
    /// The welcome, and the state it starts from.
    pub fn new(hello: &Hello, welcomed: &Welcomed, now: i64, wall: Instant) -> (Self, ToDaemon) {
        let welcome = Welcome {
            protocol: limits::PROTOCOL[1],
            conn_epoch: welcomed.epoch,
            server_time: wall,
            heartbeat_seconds: limits::HEARTBEAT_SECONDS,
            max_frame_bytes: limits::MAX_FRAME as u64,
            window: Window { events: limits::WINDOW_EVENTS, bytes: limits::WINDOW_BYTES },
            acked: welcomed.acked.clone(),
            fence: welcomed.fence.clone(),
            over: welcomed.over.clone(),
            stopped: welcomed.stopped.clone(),
            cmds_from: hello.last_cmd_seq + 1,
        };
        let durable = |one: &Running| {
            let acked =
                welcomed.acked.iter().find(|acked| acked.task_id == one.task_id && acked.attempt == one.attempt);
            acked.map_or(0, |acked| acked.seq)
        };
        let range = |range: &protocol::OutboxRange| {
            (Running { task_id: range.task_id.clone(), attempt: range.attempt }, range.last_seq)
        };
        let announced: HashMap<Running, u64> = hello.outbox.iter().map(range).collect();
        let named = |one: &Running| hello.running.contains(one) || announced.contains_key(one);
        let held = welcomed.held.iter().map(|one| (one.clone(), (!named(one)).then_some(now))).collect();
        let outbox = announced.iter().filter(|(one, last)| durable(one) < **last).map(|(one, n)| (one.clone(), *n));
        let machine = Self {
            limits: IngestLimits::new(now),
            hello: fingerprint(hello),
            heard: now,
            held,
            outbox: outbox.collect(),
            claimed: Vec::new(),
            strikes: Vec::new(),
        };
        (machine, ToDaemon::Welcome(Box::new(welcome)))
    }

    /// How long reading rests, milliseconds.
    pub fn rest(&mut self, now: i64) -> u64 {
        self.limits.rest(now)
    }

    /// A frame that says nothing (a ping, bytes nobody asked for) costs like any other.
    pub fn spend(&mut self, bytes: usize, now: i64) -> Option<Close> {
        (!self.limits.spend(1, bytes, now)).then(|| Close::new(close::RATE, "far too fast"))
    }

    /// A text frame.
    pub fn frame(&mut self, text: &str, now: i64, wall: Instant) -> Step {
        let parsed = FromDaemon::parse(text);
        let events = match &parsed {
            Ok(FromDaemon::Events(events)) => events.items.len(),
            _ => 1,
        };
        if !self.limits.spend(events, text.len(), now) {
            return Step::close(close::RATE, "far too fast");
        }
        let frame = match parsed {
            Ok(frame) => frame,
            Err(BadFrame::Unknown(of)) => {
                self.heard = now;
                return Step { send: vec![ToDaemon::Unsupported { of }], ..Step::default() };
            }
            Err(bad) => return Step { close: Some(refusal(bad)), ..Step::default() },
        };
        self.heard = now;
        self.understood(frame, now, wall)
    }

    fn understood(&mut self, frame: FromDaemon, now: i64, wall: Instant) -> Step {
        let mut step = Step::default();
        match frame {
            // The same once more says nothing.
            FromDaemon::Hello(hello) if fingerprint(&hello) == self.hello => {}
            FromDaemon::Hello(_) => return Step::close(close::PROTOCOL, "a second hello"),
            FromDaemon::Events(events) => {
                self.named(&events.task_id, events.attempt);
                step.work.push(Work::Record(events));
            }
            FromDaemon::AckCommand { cmd_seq } => step.work.push(Work::Acked(cmd_seq)),
            FromDaemon::Heartbeat { running, metrics } => {
                step.send.push(ToDaemon::Heartbeat { server_time: wall });
                step.work.extend(metrics.map(Work::Fares));
                step.work.extend(self.heartbeat(&running, now));
            }
            FromDaemon::State(state) => step.work.push(Work::Lists(state)),
            FromDaemon::Request { id, method, .. } => {
                let error = Some(format!("the Board does not answer {}", protocol::text::head(&method, 64)));
                step.send.push(ToDaemon::Response { id, ok: false, result: Value::Null, error });
            }
            FromDaemon::Response { id, ok, result, error } => {
                let outcome = if ok { Ok(result) } else { Err(error.unwrap_or_else(|| "the viber refused".into())) };
                step.work.push(Work::Answer { id, outcome });
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
                step.work.extend(heard(path, hash, size, mtime, &by).map(Work::Heard));
            }
            FromDaemon::WorkspaceWritten(written) => step.work.push(Work::Written(written)),
        }
        step
    }

    fn named(&mut self, task: &protocol::TaskId, attempt: u32) {
        if let Some(missing) = self.held.get_mut(&Running { task_id: task.clone(), attempt }) {
            *missing = None;
        }
    }

    /// What the daemon says it holds, against what it is known to hold.
    fn heartbeat(&mut self, running: &[Running], now: i64) -> Option<Work> {
        for (one, missing) in &mut self.held {
            match (running.contains(one), &missing) {
                (true, _) => *missing = None,
                (false, None) if self.outbox.is_empty() => *missing = Some(now),
                _ => {}
            }
        }
        let unknown = running.iter().filter(|one| !self.held.contains_key(one) && !self.claimed.contains(one));
        let unknown: Vec<Running> = unknown.take(CLAIMS.saturating_sub(self.claimed.len())).cloned().collect();
        self.claimed.extend(unknown.iter().cloned());
        (!unknown.is_empty()).then_some(Work::Claims(unknown))
    }

    /// Frames are durable, or refused.
    pub fn recorded(&mut self, answers: Answers, now: i64) -> Step {
        let mut step = Step::default();
        for one in answers.held {
            self.held.insert(one, None);
        }
        for one in &answers.ended {
            self.held.remove(one);
            self.outbox.remove(one);
        }
        for acked in &answers.acks {
            let one = Running { task_id: acked.task_id.clone(), attempt: acked.attempt };
            if self.outbox.get(&one).is_some_and(|last| acked.seq >= *last) {
                self.outbox.remove(&one);
            }
        }
        if !answers.acks.is_empty() {
            step.send.push(ToDaemon::AckEvents { acks: answers.acks });
        }
        let nack =
            |nack: protocol::Acked| ToDaemon::Nack { task_id: nack.task_id, attempt: nack.attempt, expect: nack.seq };
        step.send.extend(answers.nacks.into_iter().map(nack));
        for (code, task) in answers.refused {
            // It is never recorded: nothing waits for it.
            self.outbox.retain(|one, _| one.task_id != task);
            step.send.push(ToDaemon::Error { code: code.to_owned(), of: Some(task.to_string()) });
            if self.strike(now) {
                let code_of = if code == "forbidden_task" { close::FORBIDDEN } else { close::PROTOCOL };
                step.close = Some(Close::new(code_of, code));
                break;
            }
        }
        step
    }

    /// Another refusal; `true` when it was one too many.
    fn strike(&mut self, now: i64) -> bool {
        self.strikes.retain(|at| now - at < MINUTE);
        self.strikes.push(now);
        self.strikes.len() >= STRIKES
    }

    /// Nothing could be heard up to now: the Board did not read.
    pub fn excuse(&mut self, now: i64) {
        self.heard = now;
    }

    /// Lease time when a tick has something to say, unless a frame comes before.
    pub fn due(&self) -> i64 {
        let silent = self.heard + SILENCE;
        let missing = self.held.values().flatten().min().filter(|_| self.outbox.is_empty());
        missing.map_or(silent, |since| silent.min(since + GRACE))
    }

    /// Time passes.
    pub fn tick(&mut self, now: i64) -> Step {
        if now - self.heard >= SILENCE {
            return Step::close(close::TIMEOUT, "silent");
        }
        let mut step = Step::default();
        if self.outbox.is_empty() {
            let gone = |missing: &Option<i64>| missing.is_some_and(|since| now - since >= GRACE);
            let lost: Vec<Running> = self.held.iter().filter(|(_, m)| gone(m)).map(|(one, _)| one.clone()).collect();
            for one in &lost {
                self.held.remove(one);
            }
            if !lost.is_empty() {
                step.work.push(Work::Settle(lost));
            }
        }
        step
    }
}

#[cfg(test)]
mod tests;
