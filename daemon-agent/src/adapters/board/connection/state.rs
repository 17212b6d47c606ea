//! The daemon's side of the protocol as a state machine: frames in, steps out. It does no I/O and has no clock.
//!
//! Owns what may be sent next: cursors into each attempt's log, the window, and where to resume after a nack.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use protocol::{
    Acked, AttemptRef, EditId, Events, FromDaemon, Hello, NumberedCommand, ToDaemon, Welcome, Window,
    limits::{WINDOW_BYTES, WINDOW_EVENTS, close},
};
use serde_json::Value;

use crate::outbox::{EventBatch, Outbox};

/// Target size of a frame of events: far enough below the protocol's limit to leave room for one more large event.
pub const TARGET_FRAME_BYTES: u64 = 96 * 1024;
/// How long to wait after a refusal before sending something else that may be refused: the third refusal within a
/// minute ends the connection.
const REFUSAL_PAUSE: Duration = Duration::from_secs(31);
/// Further nacks within this time concern frames that were already under way when the first one arrived, and are
/// ignored.
const NACK_ECHO_TIME: Duration = Duration::from_secs(2);

/// Frames that may arrive before the welcome.
const MAX_EARLY_FRAMES: usize = 64;

/// Where events are read from.
pub trait EventLogs {
    /// All attempts that have a log.
    fn attempts(&self) -> Vec<AttemptRef>;
    /// Whether there is an event at `from`.
    fn has(&self, attempt: &AttemptRef, from: u64) -> bool;
    /// Events starting at `from`.
    fn read(&self, attempt: &AttemptRef, from: u64, max_bytes: u64) -> Option<EventBatch>;
}

impl EventLogs for Outbox {
    fn attempts(&self) -> Vec<AttemptRef> {
        self.attempts().into_iter().map(|(attempt, _)| attempt).collect()
    }

    fn has(&self, attempt: &AttemptRef, from: u64) -> bool {
        self.has(attempt, from)
    }

    fn read(&self, attempt: &AttemptRef, from: u64, max_bytes: u64) -> Option<EventBatch> {
        self.read(attempt, from, max_bytes)
    }
}

/// A step for the I/O loop to perform.
#[derive(Debug)]
pub enum ConnectionStep {
    /// Reconcile: fences, what the Board has recorded, what a restart lost.
    Welcomed(Box<Welcome>),
    Command(NumberedCommand),
    /// The Board has recorded these events.
    Acked(Vec<(AttemptRef, u64)>),
    /// The Board has acknowledged the outcomes of these file edits.
    EditsAcknowledged(Vec<EditId>),
    /// The Board has acknowledged the outcomes of these commands.
    OutcomesAcknowledged(Vec<u64>),
    /// The Board will never accept events of these attempts.
    Refused(Vec<AttemptRef>),
    Answer {
        id: u64,
        method: String,
        params: Value,
    },
    Close {
        code: u16,
        reason: String,
    },
}

/// The state of one connection.
pub struct ConnectionState {
    welcomed: bool,
    /// The Board's number for this connection.
    epoch: Option<u64>,
    /// Frames that arrived before the welcome.
    early: Vec<ToDaemon>,
    window: Window,
    /// Target size of a frame of events, bytes.
    frame: u64,
    cursors: BTreeMap<AttemptRef, LogCursor>,
    under_way: Window,
    /// Tasks that the Board refuses events of.
    refused: BTreeSet<String>,
    /// Attempts from before this connection that the Board did not name. Until it has accepted a frame of one, only one
    /// frame at a time is sent for all of them.
    unproven: BTreeSet<AttemptRef>,
    /// No unproven attempt is sent before this time.
    rest: Option<Instant>,
    /// The attempt that was sent last: attempts take turns.
    last: Option<AttemptRef>,
}

/// A frame of events that may have been too large for the Board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OversizedFrame {
    pub attempt: AttemptRef,
    /// Its last event.
    pub seq: u64,
    /// Whether it is the only event in the frame.
    pub alone: bool,
}

struct LogCursor {
    next: u64,
    flight: VecDeque<InFlight>,
    /// The last nack that was followed, and when.
    rewound: Option<(u64, Instant)>,
}

struct InFlight {
    to: u64,
    events: u64,
    bytes: u64,
}

impl ConnectionState {
    /// Opens a connection; `hello` is its first frame. Frames of events aim for `frame` bytes.
    pub fn open(hello: Hello, frame: u64) -> (Self, FromDaemon) {
        let announced = hello.outbox.iter().map(|range| (range.task_id.clone(), range.attempt));
        let unproven = announced.map(|(task_id, attempt)| AttemptRef { task_id, attempt }).collect();
        let state = Self {
            welcomed: false,
            epoch: None,
            early: Vec::new(),
            window: Window { events: WINDOW_EVENTS, bytes: WINDOW_BYTES },
            frame,
            cursors: BTreeMap::new(),
            under_way: Window { events: 0, bytes: 0 },
            refused: BTreeSet::new(),
            unproven,
            rest: None,
            last: None,
        };
        (state, FromDaemon::Hello(Box::new(hello)))
    }

    /// Whether events may be sent.
    pub fn is_open(&self) -> bool {
        self.welcomed
    }

    /// Handles a frame from the Board.
    pub fn frame(&mut self, frame: ToDaemon, now: Instant) -> Vec<ConnectionStep> {
        match (self.welcomed, frame) {
            (false, ToDaemon::Welcome(welcome)) => self.welcome(welcome, now),
            (false, ToDaemon::Error { code, of }) => vec![broken(format!("{code} {}", of.unwrap_or_default()))],
            (false, frame) if self.early.len() < MAX_EARLY_FRAMES => {
                self.early.push(frame);
                Vec::new()
            }
            (false, _) => vec![broken("too many frames before welcome".to_owned())],
            // A repeated welcome changes nothing.
            (true, ToDaemon::Welcome(welcome)) if Some(welcome.conn_epoch) == self.epoch => Vec::new(),
            (true, ToDaemon::Welcome(_)) => vec![broken("a second welcome".to_owned())],
            (true, ToDaemon::AckEvents { acks }) => vec![ConnectionStep::Acked(self.acked(acks))],
            (true, ToDaemon::AckWritten { edit_ids }) => vec![ConnectionStep::EditsAcknowledged(edit_ids)],
            (true, ToDaemon::AckDone { cmd_seqs }) => vec![ConnectionStep::OutcomesAcknowledged(cmd_seqs)],
            (true, ToDaemon::Nack { task_id, attempt, expect }) => {
                self.nacked(AttemptRef { task_id, attempt }, expect, now)
            }
            (true, ToDaemon::Command(numbered)) => vec![ConnectionStep::Command(numbered)],
            (true, ToDaemon::Request { id, method, params }) => vec![ConnectionStep::Answer { id, method, params }],
            (true, ToDaemon::Error { code, of }) => {
                tracing::warn!(code, of, "the Board refused a frame");
                match (code.as_str(), of) {
                    ("forbidden_task" | "seq_conflict" | "attempt_ended", Some(task)) => self.refuse(task, now),
                    _ => Vec::new(),
                }
            }
            (true, ToDaemon::Heartbeat { .. } | ToDaemon::Response { .. } | ToDaemon::Unsupported { .. }) => Vec::new(),
        }
    }

    /// The next events that may be sent.
    pub fn events(&mut self, logs: &impl EventLogs, now: Instant) -> Option<Events> {
        if !self.welcomed || self.under_way.events >= self.window.events || self.under_way.bytes >= self.window.bytes {
            return None;
        }
        let mut attempts = logs.attempts();
        attempts.retain(|attempt| !self.refused.contains(attempt.task_id.as_str()));
        let turn = self.last.as_ref().map_or(0, |last| attempts.partition_point(|attempt| attempt <= last));
        attempts.rotate_left(turn);
        let asking = |attempt: &AttemptRef| self.cursors.get(attempt).is_some_and(|cursor| !cursor.flight.is_empty());
        let caution = self.rest.is_some_and(|rest| now < rest) || self.unproven.iter().any(asking);
        attempts.retain(|attempt| !caution || !self.unproven.contains(attempt));
        for attempt in attempts {
            let cursor = self.cursors.entry(attempt.clone()).or_insert_with(|| LogCursor::at(1));
            if !logs.has(&attempt, cursor.next) {
                continue;
            }
            let room = (self.window.bytes - self.under_way.bytes).min(self.frame);
            let Some(batch) = logs.read(&attempt, cursor.next, room) else { continue };
            let (events, bytes) = (batch.items.len() as u64, batch.bytes);
            cursor.flight.push_back(InFlight { to: batch.to, events, bytes });
            cursor.next = batch.to + 1;
            self.under_way.events += events;
            self.under_way.bytes += bytes;
            self.last = Some(attempt.clone());
            let AttemptRef { task_id, attempt } = attempt;
            return Some(Events { task_id, attempt, from: batch.from, items: batch.items });
        }
        None
    }

    /// Whether all events have been sent and acknowledged.
    pub fn is_settled(&self, logs: &impl EventLogs) -> bool {
        self.under_way.events == 0
            && logs.attempts().iter().all(|attempt| {
                let next = self.cursors.get(attempt).map_or(1, |cursor| cursor.next);
                self.refused.contains(attempt.task_id.as_str()) || !logs.has(attempt, next)
            })
    }

    fn welcome(&mut self, welcome: Box<Welcome>, now: Instant) -> Vec<ConnectionStep> {
        let [low, high] = protocol::limits::PROTOCOL;
        if !(low..=high).contains(&welcome.protocol) {
            return vec![broken(format!("protocol {} is not supported", welcome.protocol))];
        }
        (self.welcomed, self.epoch) = (true, Some(welcome.conn_epoch));
        self.window = Window { events: welcome.window.events.max(1), bytes: welcome.window.bytes.max(1) };
        self.frame = self.frame.min(welcome.max_frame_bytes / 2);
        for Acked { task_id, attempt, seq } in welcome.acked.clone() {
            let attempt = AttemptRef { task_id, attempt };
            self.unproven.remove(&attempt);
            self.cursors.insert(attempt, LogCursor::at(seq.saturating_add(1)));
        }
        let mut steps = vec![ConnectionStep::Welcomed(welcome)];
        for frame in std::mem::take(&mut self.early) {
            steps.extend(self.frame(frame, now));
        }
        steps
    }

    fn acked(&mut self, acks: Vec<Acked>) -> Vec<(AttemptRef, u64)> {
        let mut news = Vec::new();
        for Acked { task_id, attempt, seq } in acks {
            let attempt = AttemptRef { task_id, attempt };
            self.unproven.remove(&attempt);
            if let Some(cursor) = self.cursors.get_mut(&attempt) {
                while let Some(flight) = cursor.flight.front().filter(|flight| flight.to <= seq) {
                    self.under_way.events -= flight.events;
                    self.under_way.bytes -= flight.bytes;
                    cursor.flight.pop_front();
                }
                cursor.next = cursor.next.max(seq.saturating_add(1));
            }
            news.push((attempt, seq));
        }
        news
    }

    fn nacked(&mut self, attempt: AttemptRef, expect: u64, now: Instant) -> Vec<ConnectionStep> {
        if expect == 0 {
            return vec![broken("a nack that expects 0".to_owned())];
        }
        self.unproven.remove(&attempt);
        let Some(cursor) = self.cursors.get_mut(&attempt) else { return Vec::new() };
        let echo = cursor.rewound.is_some_and(|(to, at)| to == expect && now.duration_since(at) < NACK_ECHO_TIME);
        if echo {
            return Vec::new();
        }
        for flight in cursor.flight.drain(..) {
            self.under_way.events -= flight.events;
            self.under_way.bytes -= flight.bytes;
        }
        (cursor.next, cursor.rewound) = (expect, Some((expect, now)));
        // The Board has everything before the event that it expects.
        vec![ConnectionStep::Acked(vec![(attempt, expect - 1)])]
    }

    fn refuse(&mut self, task: String, now: Instant) -> Vec<ConnectionStep> {
        let mut attempts = Vec::new();
        for (attempt, cursor) in self.cursors.iter_mut().filter(|(attempt, _)| attempt.task_id.as_str() == task) {
            if !cursor.flight.is_empty() {
                attempts.push(attempt.clone());
            }
            for flight in cursor.flight.drain(..) {
                self.under_way.events -= flight.events;
                self.under_way.bytes -= flight.bytes;
            }
        }
        self.refused.insert(task);
        self.rest = Some(now + REFUSAL_PAUSE);
        if attempts.is_empty() { Vec::new() } else { vec![ConnectionStep::Refused(attempts)] }
    }

    /// The largest frame under way: the likely culprit when the Board reports one as too large.
    pub fn largest(&self) -> Option<OversizedFrame> {
        let flights = self.cursors.iter().flat_map(|(of, cursor)| cursor.flight.iter().map(move |flight| (of, flight)));
        let (of, flight) = flights.max_by_key(|(_, flight)| flight.bytes)?;
        Some(OversizedFrame { attempt: of.clone(), seq: flight.to, alone: flight.events == 1 })
    }
}

impl LogCursor {
    fn at(next: u64) -> Self {
        Self { next, flight: VecDeque::new(), rewound: None }
    }
}

fn broken(reason: String) -> ConnectionStep {
    ConnectionStep::Close { code: close::PROTOCOL, reason }
}

#[cfg(test)]
mod tests;
