//! Programs that use the API: one submits and waits for results, others look at a task's stream.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde::Deserialize;
use tokio::{sync::Notify, task::JoinHandle};

use super::{
    http::{ConnectionError, Frames, Http, seq},
    load::{Latencies, SentEvents},
    stage::Stage,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Submitted {
    id: String,
    session_id: String,
}

/// Where a task runs.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// A new session of a viber.
    Viber(&'a str),
    /// A session of a viber.
    Session(&'a str, &'a str),
    /// A new session of whichever viber has these labels, as JSON.
    Labels(&'a str),
}

/// Submits a goal; answers the ids of the task and its session.
pub async fn submit(http: &mut Http, target: Target<'_>, goal: &str) -> Result<(String, String), ConnectionError> {
    let target = match target {
        Target::Viber(viber) => format!(r#""viberId":"{viber}""#),
        Target::Session(viber, session) => format!(r#""viberId":"{viber}","sessionId":"{session}""#),
        Target::Labels(labels) => format!(r#""labels":{labels}"#),
    };
    let body = format!(r#"{{"goal":"{goal}",{target}}}"#);
    let (status, answer) = http.ask("POST", "/api/v1/tasks", &body).await?;
    if status != 201 {
        return Err(ConnectionError(format!("{status}: {}", String::from_utf8_lossy(&answer))));
    }
    let submitted: Submitted = serde_json::from_slice(&answer).map_err(|error| ConnectionError(error.to_string()))?;
    Ok((submitted.id, submitted.session_id))
}

/// Submits a task and reads its stream to the end; answers how long its result took, and its session.
pub async fn round_trip(http: &mut Http, target: Target<'_>) -> Result<(Duration, String), ConnectionError> {
    let began = Instant::now();
    let (task, session) = submit(http, target, "Say that it is done.").await?;
    let head = http.open(&format!("/api/v1/tasks/{task}/events")).await?;
    let (mut frames, mut took) = (Frames::default(), None);
    http.body(head, |piece| {
        frames.feed(piece, |frame| {
            if took.is_none() && frame.windows(14).any(|word| word == b"task:completed") {
                took = Some(began.elapsed());
            }
        });
    })
    .await?;
    took.map(|took| (took, session)).ok_or_else(|| ConnectionError("the stream ended without a result".into()))
}

/// Somebody who looks at a task's stream.
#[derive(Debug)]
pub struct Viewer {
    reading: JoinHandle<ViewerResult>,
    /// The last seq that was shown.
    reached: Arc<AtomicU64>,
}

/// What a viewer saw.
#[derive(Debug, Default)]
pub struct ViewerResult {
    pub latencies: Latencies,
    /// Events that were shown.
    pub seen: u64,
    /// Events that were left out or came twice.
    pub lost: u64,
    last: u64,
}

/// Opens `count` streams of a task and waits until each has begun. What is sent is looked up in `sent`.
pub async fn look(stage: &Stage, count: usize, task: &str, sent: &Arc<SentEvents>) -> Vec<Viewer> {
    let (begun, news) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let mut viewers = Vec::with_capacity(count);
    for n in 0..count {
        let mut http = Http::connect(&stage.host, stage.token(n)).await.expect("the Board listens");
        let head = http.open(&format!("/api/v1/tasks/{task}/events")).await.expect("a stream");
        let reached = Arc::new(AtomicU64::new(0));
        let (sent, begun, news, progress) = (sent.clone(), begun.clone(), news.clone(), reached.clone());
        let reading = tokio::spawn(async move {
            let (mut frames, mut seeing, mut first) = (Frames::default(), ViewerResult::default(), true);
            let read = http.body(head, |piece| {
                frames.feed(piece, |frame| seeing.frame(frame, &sent));
                progress.store(seeing.last, Ordering::Relaxed);
                if std::mem::take(&mut first) {
                    begun.fetch_add(1, Ordering::Relaxed);
                    news.notify_one();
                }
            });
            read.await.unwrap_or_else(|error| panic!("a viewer's stream broke: {error:?}"));
            seeing
        });
        viewers.push(Viewer { reading, reached });
    }
    while begun.load(Ordering::Relaxed) < count {
        news.notified().await;
    }
    viewers
}

impl Viewer {
    /// Hangs up.
    pub fn leave(self) {
        self.reading.abort();
    }

    /// The last seq that it has seen so far.
    pub fn reached(&self) -> u64 {
        self.reached.load(Ordering::Relaxed)
    }

    /// What it saw when the stream has ended.
    pub async fn end(self) -> ViewerResult {
        self.reading.await.expect("a viewer does not panic")
    }
}

impl ViewerResult {
    fn frame(&mut self, frame: &[u8], sent: &SentEvents) {
        let Some(seq) = seq(frame) else { return };
        self.seen += 1;
        if seq != self.last + 1 {
            self.lost += seq.abs_diff(self.last + 1);
        }
        self.last = seq;
        if let Some(age) = sent.age(seq) {
            self.latencies.micros(age);
        }
    }

    /// With what stands between the last seen seq and the last sent one.
    pub fn missing(&self, last: u64) -> u64 {
        self.lost + last.saturating_sub(self.last)
    }
}
