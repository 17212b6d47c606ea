//! The daemon's side of the protocol as a state machine: frames in, steps out. No I/O, no clock of its own.
//!
//! Owns what may be sent next: cursors into each attempt's log, the window, and where to go back to after a nack.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use protocol::{
    Acked, EditId, Events, FromDaemon, Hello, Numbered, Running, ToDaemon, Welcome, Window,
    limits::{WINDOW_BYTES, WINDOW_EVENTS, close},
};
use serde_json::Value;

use crate::outbox::{Batch, Outbox};

/// Aim for the bytes of a frame of events: far enough below the limit for one large event more.
pub const FRAME: u64 = 96 * 1024;
/// After a refusal, so long until something else that may be refused is sent: the third in a minute ends the connection.
const CAUTION: Duration = Duration::from_secs(31);
/// Nacks of frames that were under way when the first one came say nothing new for so long.
const ECHO: Duration = Duration::from_secs(2);

/// Frames that may overtake the welcome.
const EARLY: usize = 64;

/// Where events are read from.
pub trait Logs {
    /// All attempts that have a log.
    fn attempts(&self) -> Vec<Running>;
    /// Whether there is something at `from`.
    fn has(&self, attempt: &Running, from: u64) -> bool;
    /// Events from `from` on.
    fn read(&self, attempt: &Running, from: u64, max_bytes: u64) -> Option<Batch>;
}

impl Logs for Outbox {
    fn attempts(&self) -> Vec<Running> {
        self.attempts().into_iter().map(|(attempt, _)| attempt).collect()
    }

    fn has(&self, attempt: &Running, from: u64) -> bool {
        self.has(attempt, from)
    }

    fn read(&self, attempt: &Running, from: u64, max_bytes: u64) -> Option<Batch> {
        self.read(attempt, from, max_bytes)
    }
}

/// What the loop is to do.
#[derive(Debug)]
pub enum Step {
    /// Reconcile: fences, what is recorded, what was lost in a restart.
    Welcomed(Box<Welcome>),
    Command(Numbered),
    /// These events are the Board's now.
    Acked(Vec<(Running, u64)>),
    /// The Board knows what became of these changes of files.
    Heard(Vec<EditId>),
    /// The Board will never take what these attempts have to say.
    Refused(Vec<Running>),
    Answer {
        id: u64,
        method: String,
        params: Value,
    },
    Send(FromDaemon),
    Close {
        code: u16,
        reason: String,
    },
}

/// One connection.
pub struct Link {
    welcomed: bool,
    /// What the Board calls this connection.
    epoch: Option<u64>,
    /// What came before the welcome.
    early: Vec<ToDaemon>,
    window: Window,
    /// Bytes of events to aim for in a frame.
    frame: u64,
    cursors: BTreeMap<Running, Cursor>,
    under_way: Window,
    /// Tasks of which the Board wants to hear nothing.
    refused: BTreeSet<String>,
    /// Attempts from before this connection that the Board did not name: one frame of one of them at a time, until it
    /// has taken one.
    unproven: BTreeSet<Running>,
    /// None of the unproven before this.
    rest: Option<Instant>,
    /// Whose turn it was last: attempts take turns.
    last: Option<Running>,
}

/// A frame of events that may have been too large for the Board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    pub attempt: Running,
    /// Its last event.
    pub seq: u64,
    /// It holds no other.
    pub alone: bool,
}

struct Cursor {
    next: u64,
    flight: VecDeque<Flight>,
    /// The last nack that was followed, and when.
    rewound: Option<(u64, Instant)>,
}

struct Flight {
    to: u64,
    events: u64,
    bytes: u64,
}

impl Link {
    /// A connection on which `hello` is the first frame.
    /// Frames of events aim for `frame` bytes.
    pub fn open(hello: Hello, frame: u64) -> (Self, FromDaemon) {
        let announced = hello.outbox.iter().map(|range| (range.task_id.clone(), range.attempt));
        let unproven = announced.map(|(task_id, attempt)| Running { task_id, attempt }).collect();
        let link = Self {
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
        (link, FromDaemon::Hello(Box::new(hello)))
    }

    /// Whether events may be sent.
    pub fn is_open(&self) -> bool {
        self.welcomed
    }

    /// Takes a frame of the Board.
    pub fn frame(&mut self, frame: ToDaemon, now: Instant) -> Vec<Step> {
        match (self.welcomed, frame) {
            (false, ToDaemon::Welcome(welcome)) => self.welcome(welcome, now),
            (false, ToDaemon::Error { code, of }) => vec![broken(format!("{code} {}", of.unwrap_or_default()))],
            (false, frame) if self.early.len() < EARLY => {
                self.early.push(frame);
                Vec::new()
            }
            (false, _) => vec![broken("too many frames before welcome".to_owned())],
            // The same once more says nothing.
            (true, ToDaemon::Welcome(welcome)) if Some(welcome.conn_epoch) == self.epoch => Vec::new(),
            (true, ToDaemon::Welcome(_)) => vec![broken("a second welcome".to_owned())],
            (true, ToDaemon::AckEvents { acks }) => vec![Step::Acked(self.acked(acks))],
            (true, ToDaemon::AckWritten { edit_ids }) => vec![Step::Heard(edit_ids)],
            (true, ToDaemon::Nack { task_id, attempt, expect }) => {
                self.nacked(Running { task_id, attempt }, expect, now)
            }
            (true, ToDaemon::Command(numbered)) => vec![Step::Command(numbered)],
            (true, ToDaemon::Request { id, method, params }) => vec![Step::Answer { id, method, params }],
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
    pub fn events(&mut self, logs: &impl Logs, now: Instant) -> Option<Events> {
        if !self.welcomed || self.under_way.events >= self.window.events || self.under_way.bytes >= self.window.bytes {
            return None;
        }
        let mut attempts = logs.attempts();
        attempts.retain(|attempt| !self.refused.contains(attempt.task_id.as_str()));
        let turn = self.last.as_ref().map_or(0, |last| attempts.partition_point(|attempt| attempt <= last));
        attempts.rotate_left(turn);
        let asking = |attempt: &Running| self.cursors.get(attempt).is_some_and(|cursor| !cursor.flight.is_empty());
        let caution = self.rest.is_some_and(|rest| now < rest) || self.unproven.iter().any(asking);
        attempts.retain(|attempt| !caution || !self.unproven.contains(attempt));
        for attempt in attempts {
            let cursor = self.cursors.entry(attempt.clone()).or_insert_with(|| Cursor::at(1));
            if !logs.has(&attempt, cursor.next) {
                continue;
            }
            let room = (self.window.bytes - self.under_way.bytes).min(self.frame);
            let Some(batch) = logs.read(&attempt, cursor.next, room) else { continue };
            let (events, bytes) = (batch.items.len() as u64, batch.bytes);
            cursor.flight.push_back(Flight { to: batch.to, events, bytes });
            cursor.next = batch.to + 1;
            self.under_way.events += events;
            self.under_way.bytes += bytes;
            self.last = Some(attempt.clone());
            let Running { task_id, attempt } = attempt;
            return Some(Events { task_id, attempt, from: batch.from, items: batch.items });
        }
        None
    }

    /// Whether everything there is has been sent and acknowledged.
    pub fn is_settled(&self, logs: &impl Logs) -> bool {
        self.under_way.events == 0
            && logs.attempts().iter().all(|attempt| {
                let next = self.cursors.get(attempt).map_or(1, |cursor| cursor.next);
                self.refused.contains(attempt.task_id.as_str()) || !logs.has(attempt, next)
            })
    }

    fn welcome(&mut self, welcome: Box<Welcome>, now: Instant) -> Vec<Step> {
        let [low, high] = protocol::limits::PROTOCOL;
        if !(low..=high).contains(&welcome.protocol) {
            return vec![broken(format!("protocol {} is not spoken here", welcome.protocol))];
        }
        (self.welcomed, self.epoch) = (true, Some(welcome.conn_epoch));
        self.window = Window { events: welcome.window.events.max(1), bytes: welcome.window.bytes.max(1) };
        self.frame = self.frame.min(welcome.max_frame_bytes / 2);
        for Acked { task_id, attempt, seq } in welcome.acked.clone() {
            let attempt = Running { task_id, attempt };
            self.unproven.remove(&attempt);
            self.cursors.insert(attempt, Cursor::at(seq.saturating_add(1)));
        }
        let mut steps = vec![Step::Welcomed(welcome)];
        for frame in std::mem::take(&mut self.early) {
            steps.extend(self.frame(frame, now));
        }
        steps
    }

    fn acked(&mut self, acks: Vec<Acked>) -> Vec<(Running, u64)> {
        let mut news = Vec::new();
        for Acked { task_id, attempt, seq } in acks {
            let attempt = Running { task_id, attempt };
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

    fn nacked(&mut self, attempt: Running, expect: u64, now: Instant) -> Vec<Step> {
        if expect == 0 {
            return vec![broken("a nack that expects 0".to_owned())];
        }
        self.unproven.remove(&attempt);
        let Some(cursor) = self.cursors.get_mut(&attempt) else { return Vec::new() };
        let echo = cursor.rewound.is_some_and(|(to, at)| to == expect && now.duration_since(at) < ECHO);
        if echo {
            return Vec::new();
        }
        for flight in cursor.flight.drain(..) {
            self.under_way.events -= flight.events;
            self.under_way.bytes -= flight.bytes;
        }
        (cursor.next, cursor.rewound) = (expect, Some((expect, now)));
        // What it does not expect any more it has.
        vec![Step::Acked(vec![(attempt, expect - 1)])]
    }

    fn refuse(&mut self, task: String, now: Instant) -> Vec<Step> {
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
        self.rest = Some(now + CAUTION);
        if attempts.is_empty() { Vec::new() } else { vec![Step::Refused(attempts)] }
    }

    /// The largest frame that is under way: what the Board found too large, when it says so.
    pub fn largest(&self) -> Option<Suspect> {
        let flights = self.cursors.iter().flat_map(|(of, cursor)| cursor.flight.iter().map(move |flight| (of, flight)));
        let (of, flight) = flights.max_by_key(|(_, flight)| flight.bytes)?;
        Some(Suspect { attempt: of.clone(), seq: flight.to, alone: flight.events == 1 })
    }
}

impl Cursor {
    fn at(next: u64) -> Self {
        Self { next, flight: VecDeque::new(), rewound: None }
    }
}

fn broken(reason: String) -> Step {
    Step::Close { code: close::PROTOCOL, reason }
}

#[cfg(test)]
mod tests;
