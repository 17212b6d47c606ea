//! A connection that lives as long as its daemon wants it to.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use protocol::{AttemptRef, FromDaemon, limits};
use tokio::net::TcpStream;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, tungstenite::Message};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;
type Sender = Arc<tokio::sync::Mutex<SplitSink<Socket, Message>>>;

/// A connection that is kept up: a heartbeat goes out every ten seconds, whatever the test does meanwhile. Nothing is read
/// before the test reads.
#[derive(Debug)]
pub(super) struct Line {
    pub receiver: SplitStream<Socket>,
    pub sender: Sender,
    /// What the heartbeats name: what was begun here and has not ended.
    at_work: Arc<Mutex<BTreeSet<AttemptRef>>>,
    /// Heartbeats of the line's own whose answers have not come: no test waits for those.
    unanswered: Arc<AtomicUsize>,
    beats: tokio::task::JoinHandle<()>,
}

impl Line {
    pub fn new(socket: Socket, running: &[AttemptRef]) -> Self {
        let (sender, receiver) = socket.split();
        let sender = Arc::new(tokio::sync::Mutex::new(sender));
        let at_work = Arc::new(Mutex::new(running.iter().cloned().collect::<BTreeSet<_>>()));
        let unanswered = Arc::new(AtomicUsize::new(0));
        // The sender is held only while a heartbeat goes out: whoever drops the line hangs up.
        let weak = Arc::downgrade(&sender);
        let (work, sent) = (at_work.clone(), unanswered.clone());
        let beats = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(limits::HEARTBEAT_SECONDS)).await;
                let Some(sender) = weak.upgrade() else { return };
                let running = work.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
                let beat = serde_json::to_string(&FromDaemon::Heartbeat { running, metrics: None });
                let beat = beat.expect("a frame is JSON");
                sent.fetch_add(1, Ordering::SeqCst);
                if sender.lock().await.send(Message::text(beat)).await.is_err() {
                    return;
                }
            }
        });
        Self { receiver, sender, at_work, unanswered, beats }
    }

    /// Whether a heartbeat's answer is for one of the line's own.
    pub fn answers_own(&self) -> bool {
        let one_less = |count: usize| count.checked_sub(1);
        self.unanswered.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
    }

    /// Follows what was begun and what has ended here.
    pub fn note(&self, attempt: AttemptRef, kind: &str) {
        let mut at_work = self.at_work.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(kind, "task:completed" | "task:error" | "task:stopped") {
            at_work.remove(&attempt);
        } else {
            at_work.insert(attempt);
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.beats.abort();
    }
}
