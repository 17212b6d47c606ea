//! A viber that reports all the time and comes back whenever it is hung up on: what it says never changes with its seq,
//! so that whatever was acknowledged can be compared.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use board_tests::{
    Board, FakeDaemon, Person,
    fake_daemon::{Heard, accepted, completed, started, text},
    tasks::id,
};
use protocol::{AttemptRef, EventBody, OutboxRange, TaskId, ToDaemon};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// What the goals of talkers begin with.
pub const TALK_GOAL: &str = "talk: ";
/// Events in a frame, as far as they fit.
const FRAME_EVENTS: u64 = 10;
/// What fits a frame, bytes.
const FRAME_BYTES: u64 = 220_000;

/// A talking viber.
pub struct Talker {
    pub task: String,
    pub bytes: usize,
    acked: Arc<AtomicU64>,
    stop: CancellationToken,
    work: JoinHandle<()>,
}

impl Talker {
    /// Enrols, takes a task and begins to talk, `bytes` an event.
    pub async fn begin(board: &Board, operator: &Person, bytes: usize) -> Self {
        let mut viber = FakeDaemon::connected(board, &format!("talker-{}", uuid::Uuid::new_v4().simple())).await;
        let goal = format!("{TALK_GOAL}{}", viber.name);
        let task = id(&operator.submit(viber.id.as_ref(), &goal).await, "id").to_owned();
        let submit = viber.submitted().await;
        viber.report(&submit.task_id, 1, 1, vec![accepted(), started()]).await;
        let (acked, stop) = (Arc::new(AtomicU64::new(2)), CancellationToken::new());
        let talk = Talk { viber, task: submit.task_id, bytes, acked: acked.clone(), stop: stop.clone(), last: None };
        Self { task, bytes, acked, stop, work: tokio::spawn(talk.run()) }
    }

    /// Up to where the Board has acknowledged.
    pub fn acked(&self) -> u64 {
        self.acked.load(Ordering::SeqCst)
    }

    /// Ends its task and waits until the Board has all of it; then panics unless the Board shows exactly what was said.
    pub async fn finish(self, operator: &Person) {
        self.stop.cancel();
        self.work.await.expect("the talker is well");
        operator.task_in(&self.task, "completed").await;
        said(&operator.events(&self.task).await, self.acked.load(Ordering::SeqCst), self.bytes);
    }
}

/// Panics unless `events` are those of a talker: all up to `acked` at least, without a hole, each as it was sent.
pub fn said(events: &[serde_json::Value], acked: u64, bytes: usize) {
    assert!(events.len() as u64 >= acked, "{} of {acked} acknowledged events are there", events.len());
    for (event, seq) in events.iter().zip(1_u64..) {
        assert_eq!(event["seq"], seq, "{event}");
        if event["type"] == "task:progress" {
            assert_eq!(event["event"]["content"], word(seq, bytes), "{seq} is as it was sent");
        }
    }
}

fn word(seq: u64, bytes: usize) -> String {
    format!("word {seq} {}", ".".repeat(bytes))
}

struct Talk {
    viber: FakeDaemon,
    task: TaskId,
    bytes: usize,
    acked: Arc<AtomicU64>,
    stop: CancellationToken,
    /// The seq of its ending, once that was chosen.
    last: Option<u64>,
}

impl Talk {
    async fn run(mut self) {
        let mut connected = true;
        let mut sent = self.acked.load(Ordering::SeqCst);
        loop {
            let acked = self.acked.load(Ordering::SeqCst);
            if self.last.is_some_and(|last| acked >= last) {
                return;
            }
            if !connected {
                tokio::time::sleep(Duration::from_millis(100)).await;
                connected = self.dial().await;
                sent = self.acked.load(Ordering::SeqCst);
                continue;
            }
            if sent <= acked {
                sent = self.say(acked + 1).await;
            }
            connected = self.hear(&mut sent).await;
        }
    }

    fn together(&self) -> u64 {
        (FRAME_BYTES / (self.bytes as u64 + 200)).clamp(1, FRAME_EVENTS)
    }

    /// Sends the next events; the last seq of them.
    async fn say(&mut self, from: u64) -> u64 {
        if self.stop.is_cancelled() && self.last.is_none() {
            self.last = Some(from + self.together() - 1);
        }
        let to = from + self.together() - 1;
        let body = |seq: u64| -> EventBody {
            if self.last == Some(seq) { completed("said it all") } else { text(&word(seq, self.bytes)) }
        };
        let to = self.last.map_or(to, |last| last.min(to));
        let bodies = (from..=to).map(body).collect();
        let events = board_tests::fake_daemon::events(&self.task, 1, from, bodies);
        let frame = serde_json::to_string(&protocol::FromDaemon::Events(events)).expect("JSON");
        self.viber.try_send_text(frame).await;
        to
    }

    /// Takes what the Board says next. False when it has hung up.
    async fn hear(&mut self, sent: &mut u64) -> bool {
        match self.viber.next_within(Duration::from_secs(5)).await {
            Some(Heard::Frame(ToDaemon::AckEvents { acks })) => {
                for ack in acks.iter().filter(|ack| ack.task_id == self.task) {
                    assert!(ack.seq <= *sent, "the Board has acknowledged what was not sent");
                    self.acked.fetch_max(ack.seq, Ordering::SeqCst);
                }
                true
            }
            Some(Heard::Frame(ToDaemon::Nack { expect, .. })) => {
                assert!(expect > self.acked.load(Ordering::SeqCst), "the Board has lost what it had acknowledged");
                *sent = expect - 1;
                true
            }
            Some(Heard::Frame(ToDaemon::Error { code, of })) => panic!("refused: {code} {of:?}"),
            Some(Heard::Frame(_)) => true,
            Some(Heard::Closed { .. }) => false,
            // The daemon's heartbeat.
            None => {
                let running = vec![AttemptRef { task_id: self.task.clone(), attempt: 1 }];
                let beat = protocol::FromDaemon::Heartbeat { running, metrics: None };
                self.viber.try_send_text(serde_json::to_string(&beat).expect("JSON")).await;
                true
            }
        }
    }

    /// Dials in again. False when that does not work yet.
    async fn dial(&mut self) -> bool {
        let acked = self.acked.load(Ordering::SeqCst);
        let (task_id, attempt) = (self.task.clone(), 1);
        self.viber.running = vec![AttemptRef { task_id: task_id.clone(), attempt }];
        self.viber.outbox =
            vec![OutboxRange { task_id, attempt, first_seq: acked + 1, last_seq: acked + self.together() }];
        let dialled = tokio::time::timeout(Duration::from_secs(5), self.viber.dial()).await;
        if !dialled.is_ok_and(|dialled| dialled.is_ok()) {
            return false;
        }
        let hello = protocol::FromDaemon::Hello(Box::new(self.viber.hello_frame()));
        self.viber.try_send_text(serde_json::to_string(&hello).expect("JSON")).await;
        let Some(Heard::Frame(ToDaemon::Welcome(welcome))) = self.viber.next_within(Duration::from_secs(10)).await
        else {
            return false;
        };
        let known = welcome.acked.iter().find(|ack| ack.task_id == self.task).map_or(0, |ack| ack.seq);
        assert!(known >= acked, "the Board has lost what it had acknowledged: {known} < {acked}");
        self.acked.store(known, Ordering::SeqCst);
        true
    }
}
