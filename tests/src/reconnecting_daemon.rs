//! A fake daemon that works by itself: it takes every task, streams words, keeps what was not acknowledged as a real one's
//! disk would, and comes back whenever the connection ends.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use protocol::{Acked, AttemptRef, Command, EventBody, FromDaemon, NumberedCommand, OutboxRange, ToDaemon};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    fake_daemon::{FakeDaemon, Heard, accepted, completed, events, started, stopped, text},
    wait::EVENT_TIMEOUT,
};

/// Between two tries to come back: short, because what is measured is the Board.
const RECONNECT_PAUSE: Duration = Duration::from_millis(200);
/// Heartbeats, as the welcome asks for them.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);
/// Most events of one frame.
const FRAME_EVENTS: usize = 200;

/// How its tasks go.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Words of a task.
    pub words: u64,
    /// Between two words of each task.
    pub pause: Duration,
}

/// The running daemon; ends with this value.
#[derive(Debug)]
pub struct ReconnectingDaemon {
    pub id: String,
    seen: Arc<Seen>,
    end: CancellationToken,
    work: Option<JoinHandle<FakeDaemon>>,
}

#[derive(Debug, Default)]
struct Seen {
    welcomes: AtomicU64,
    ended: AtomicU64,
    closes: Mutex<Vec<(u16, String)>>,
    /// From the end of a connection to the next welcome, the longest.
    longest: Mutex<Duration>,
}

/// One attempt with what is kept of it.
struct Task {
    bodies: Vec<EventBody>,
    sent: usize,
    acked: usize,
    words: u64,
    ended: bool,
}

type Tasks = BTreeMap<(protocol::TaskId, u32), Task>;

impl ReconnectingDaemon {
    /// An enrolled daemon goes to work.
    pub fn start(daemon: FakeDaemon, work: Work) -> Self {
        let (seen, end) = (Arc::new(Seen::default()), CancellationToken::new());
        let id = daemon.id.to_string();
        let run = Run { daemon, work, tasks: Tasks::new(), seen: seen.clone(), end: end.clone() };
        Self { id, seen, end, work: Some(tokio::spawn(run.run())) }
    }

    /// How many connections had a welcome.
    pub fn welcomes(&self) -> u64 {
        self.seen.welcomes.load(Ordering::Relaxed)
    }

    /// How many tasks it has ended, acknowledged.
    pub fn ended(&self) -> u64 {
        self.seen.ended.load(Ordering::Relaxed)
    }

    /// How its connections were closed.
    pub fn closes(&self) -> Vec<(u16, String)> {
        self.seen.closes.lock().expect("not poisoned").clone()
    }

    /// The longest it was without a Board.
    pub fn longest_away(&self) -> Duration {
        *self.seen.longest.lock().expect("not poisoned")
    }

    /// Stops working and answers the daemon.
    pub async fn finish(mut self) -> FakeDaemon {
        self.end.cancel();
        self.work.take().expect("it works").await.expect("it did not panic")
    }
}

impl Drop for ReconnectingDaemon {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

struct Run {
    daemon: FakeDaemon,
    work: Work,
    tasks: Tasks,
    seen: Arc<Seen>,
    end: CancellationToken,
}

impl Run {
    async fn run(mut self) -> FakeDaemon {
        let mut gone = Instant::now();
        while !self.end.is_cancelled() {
            if !self.meet().await {
                self.daemon.cut();
                tokio::time::sleep(RECONNECT_PAUSE).await;
                continue;
            }
            if self.seen.welcomes.fetch_add(1, Ordering::Relaxed) > 0 {
                let mut longest = self.seen.longest.lock().expect("not poisoned");
                *longest = longest.max(gone.elapsed());
            }
            self.converse().await;
            self.daemon.cut();
            gone = Instant::now();
        }
        self.daemon
    }

    /// Dials, says what it holds, and goes on after what the Board has.
    async fn meet(&mut self) -> bool {
        let open = self.tasks.iter().filter(|(_, task)| !task.ended);
        self.daemon.running =
            open.map(|((id, attempt), _)| AttemptRef { task_id: id.clone(), attempt: *attempt }).collect();
        let held = self.tasks.iter().filter(|(_, task)| task.acked < task.bodies.len());
        self.daemon.outbox = held
            .map(|((id, attempt), task)| OutboxRange {
                task_id: id.clone(),
                attempt: *attempt,
                first_seq: task.acked as u64 + 1,
                last_seq: task.bodies.len() as u64,
            })
            .collect();
        if self.daemon.dial().await.is_err() {
            return false;
        }
        let hello = FromDaemon::Hello(Box::new(self.daemon.hello_frame()));
        self.daemon.try_send_text(serde_json::to_string(&hello).expect("a frame is JSON")).await;
        let Some(Heard::Frame(ToDaemon::Welcome(welcome))) = self.daemon.next_within(EVENT_TIMEOUT).await else {
            return false;
        };
        self.acked(&welcome.acked);
        self.tasks.values_mut().for_each(|task| task.sent = task.acked);
        true
    }

    async fn converse(&mut self) {
        let mut due = Instant::now() + self.work.pause;
        let mut heartbeat = Instant::now() + HEARTBEAT_INTERVAL;
        while !self.end.is_cancelled() {
            self.report().await;
            let now = Instant::now();
            if now >= heartbeat {
                let running = self.daemon.running.clone();
                let beat = FromDaemon::Heartbeat { running, metrics: None };
                self.daemon.try_send_text(serde_json::to_string(&beat).expect("a frame is JSON")).await;
                heartbeat = now + HEARTBEAT_INTERVAL;
            }
            if now >= due {
                self.say();
                due = (due + self.work.pause).max(now);
                continue;
            }
            match self.daemon.next_within(due - now).await {
                None => {}
                Some(Heard::Frame(frame)) => self.heard(frame).await,
                Some(Heard::Closed { code, reason }) => {
                    self.seen.closes.lock().expect("not poisoned").push((code, reason));
                    return;
                }
            }
        }
    }

    /// Each task's next word, or its end.
    fn say(&mut self) {
        for task in self.tasks.values_mut().filter(|task| !task.ended) {
            if task.words < self.work.words {
                task.words += 1;
                task.bodies.push(text(&format!("w{} ", task.words)));
            } else {
                task.ended = true;
                task.bodies.push(completed(&format!("{} words", task.words)));
            }
        }
    }

    /// Sends what was not sent on this connection.
    async fn report(&mut self) {
        for ((id, attempt), task) in &mut self.tasks {
            while task.sent < task.bodies.len() {
                let from = task.sent;
                let to = task.bodies.len().min(from + FRAME_EVENTS);
                let frame = FromDaemon::Events(events(id, *attempt, from as u64 + 1, task.bodies[from..to].to_vec()));
                self.daemon.try_send_text(serde_json::to_string(&frame).expect("a frame is JSON")).await;
                task.sent = to;
            }
        }
    }

    async fn heard(&mut self, frame: ToDaemon) {
        match frame {
            ToDaemon::AckEvents { acks } => self.acked(&acks),
            ToDaemon::Nack { task_id, attempt, expect } => {
                if let Some(task) = self.tasks.get_mut(&(task_id, attempt)) {
                    task.sent = usize::try_from(expect).expect("small").saturating_sub(1);
                }
            }
            ToDaemon::Command(NumberedCommand { cmd_seq, command }) => {
                let fresh = cmd_seq > self.daemon.last_cmd;
                self.daemon.last_cmd = self.daemon.last_cmd.max(cmd_seq);
                let ack = FromDaemon::AckCommand { cmd_seq: self.daemon.last_cmd };
                self.daemon.try_send_text(serde_json::to_string(&ack).expect("a frame is JSON")).await;
                if fresh {
                    self.obey(command);
                }
            }
            _ => {}
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit(submit) => {
                let bodies = vec![accepted(), started()];
                let task = Task { bodies, sent: 0, acked: 0, words: 0, ended: false };
                self.tasks.entry((submit.task_id, submit.attempt)).or_insert(task);
            }
            Command::Stop { task_id, attempt, .. } => {
                if let Some(task) = self.tasks.get_mut(&(task_id, attempt)).filter(|task| !task.ended) {
                    task.ended = true;
                    task.bodies.push(stopped());
                }
            }
            _ => {}
        }
    }

    fn acked(&mut self, acks: &[Acked]) {
        for ack in acks {
            let Some(task) = self.tasks.get_mut(&(ack.task_id.clone(), ack.attempt)) else { continue };
            let all = task.bodies.len();
            let before = task.acked;
            task.acked = task.acked.max(usize::try_from(ack.seq).expect("small"));
            if task.ended && before < all && task.acked >= all {
                self.seen.ended.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
