//! A viewer that always comes back: it follows a task's events, resumes with `Last-Event-ID` whenever the stream breaks,
//! and keeps all that it saw as one list.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::Value;
use tokio::task::JoinHandle;

use crate::person::Person;

/// Between two tries.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// The running viewer; ends with this value.
#[derive(Debug)]
pub struct ReconnectingViewer {
    seen: Arc<Mutex<Vec<(String, String)>>>,
    work: JoinHandle<()>,
}

impl ReconnectingViewer {
    /// Follows `task` until its end.
    pub fn of(person: Arc<Person>, task: &str) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = seen.clone();
        let path = format!("/api/v1/tasks/{task}/events");
        let work = tokio::spawn(async move {
            while !follow(&person, &path, &kept).await {
                tokio::time::sleep(RECONNECT_PAUSE).await;
            }
        });
        Self { seen, work }
    }

    /// Waits until the task is over; answers the events as they came, each with its id.
    pub async fn all(mut self) -> Vec<(String, Value)> {
        let done = tokio::time::timeout(Duration::from_secs(120), &mut self.work).await;
        done.expect("the task's stream ends").expect("no panic");
        let seen = self.seen.lock().expect("not poisoned");
        seen.iter().map(|(id, data)| (id.clone(), serde_json::from_str(data).expect("JSON"))).collect()
    }
}

impl Drop for ReconnectingViewer {
    fn drop(&mut self) {
        self.work.abort();
    }
}

/// One connection; `true` when the task is over.
async fn follow(person: &Person, path: &str, seen: &Mutex<Vec<(String, String)>>) -> bool {
    let last = seen.lock().expect("not poisoned").last().map(|(id, _)| id.clone());
    let Some(mut stream) = person.try_stream(path, last.as_deref()).await else { return false };
    while let Ok(Some(frame)) = tokio::time::timeout(Duration::from_secs(60), stream.read()).await {
        if frame.event == "end" {
            return frame.json()["reason"] != "shutdown";
        }
        if frame.event == "reset" {
            seen.lock().expect("not poisoned").clear();
        }
        if let Some(id) = frame.id {
            seen.lock().expect("not poisoned").push((id, frame.data));
        }
    }
    false
}
