//! A viber that stays connected: it completes every task at once, or hands tasks over to whoever plays them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use tokio::{sync::mpsc, task::JoinHandle};

use super::{
    link::{self, Link, Seen},
    load::SentEvents,
    stage::{EnrolledViber, Stage},
};

/// Frames that wait for the socket; a player waits when there are more.
const QUEUED_FRAMES: usize = 1024;

/// What a task that nobody plays says.
pub const ANSWER_TEXT: &str = "done, and nothing else was to be said";

/// A connected viber. Its connection ends when it is dropped.
#[derive(Debug)]
pub struct BenchViber {
    pub id: String,
    orders: mpsc::Sender<String>,
    /// Tasks that were begun, when they are played by hand.
    begun: mpsc::Receiver<(String, u32)>,
    sent: Arc<Mutex<HashMap<String, Arc<SentEvents>>>>,
    talk: JoinHandle<()>,
}

/// What the viber does with a task that it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskHandling {
    /// Reports accepted and started in one frame, text and result in a second one.
    Completes,
    /// Reports accepted and started; the caller sends the rest by [`BenchViber::say`].
    StartsOnly,
}

impl BenchViber {
    /// Connects as one of the enrolled vibers of the stage.
    pub async fn connect(stage: &Stage, enrolled: &EnrolledViber, handling: TaskHandling) -> Self {
        let (link, _) = Link::dial(&stage.host, enrolled, r#""lastCmdSeq":0"#).await.expect("a welcome");
        let (orders, ordered) = mpsc::channel(QUEUED_FRAMES);
        let (begin, begun) = mpsc::channel(QUEUED_FRAMES);
        let sent: Arc<Mutex<HashMap<String, Arc<SentEvents>>>> = Arc::default();
        let talk = tokio::spawn(converse(link, ordered, begin, sent.clone(), handling));
        Self { id: enrolled.id.clone(), orders, begun, sent, talk }
    }

    /// The next task that was begun; its acknowledgements are kept in `sent`.
    pub async fn begun(&mut self, sent: &Arc<SentEvents>) -> (String, u32) {
        let begun = self.begun.recv().await.expect("the viber is connected");
        self.sent.lock().expect("not poisoned").insert(begun.0.clone(), sent.clone());
        begun
    }

    /// Sends a frame.
    pub async fn say(&self, frame: String) {
        self.orders.send(frame).await.expect("the viber is connected");
    }

    /// A way to send frames.
    pub fn frame_sender(&self) -> mpsc::Sender<String> {
        self.orders.clone()
    }
}

impl Drop for BenchViber {
    fn drop(&mut self) {
        self.talk.abort();
    }
}

async fn converse(
    mut link: Link,
    mut ordered: mpsc::Receiver<String>,
    begin: mpsc::Sender<(String, u32)>,
    sent: Arc<Mutex<HashMap<String, Arc<SentEvents>>>>,
    handling: TaskHandling,
) {
    loop {
        tokio::select! {
            seen = link.next() => {
                let seen = seen.expect("the Board keeps the connection");
                for frame in answer(&seen, &sent, handling) {
                    link.send(frame).await.expect("the Board takes it");
                }
                if seen.kind == "task:submit" && handling == TaskHandling::StartsOnly {
                    begin.send((seen.task_id, seen.attempt)).await.expect("somebody plays it");
                }
            }
            Some(order) = ordered.recv() => link.send(order).await.expect("the Board takes it"),
        }
    }
}

fn answer(seen: &Seen, sent: &Mutex<HashMap<String, Arc<SentEvents>>>, handling: TaskHandling) -> Vec<String> {
    match seen.kind.as_str() {
        "task:submit" => {
            let (task, attempt) = (&seen.task_id, seen.attempt);
            let mut frames = vec![
                link::ack_command(seen.cmd_seq),
                link::events(task, attempt, 1, &[link::accepted(1), link::started(2)]),
            ];
            if handling == TaskHandling::Completes {
                frames.push(link::events(
                    task,
                    attempt,
                    3,
                    &[link::text(3, ANSWER_TEXT), link::completed(4, ANSWER_TEXT)],
                ));
            }
            frames
        }
        "ack:events" => {
            let sent = sent.lock().expect("not poisoned");
            for ack in &seen.acks {
                if let Some(sent) = sent.get(&ack.task_id) {
                    sent.acked(ack.seq);
                }
            }
            Vec::new()
        }
        "nack" | "error" => panic!("the Board refused a frame: {seen:?}"),
        _ => Vec::new(),
    }
}
