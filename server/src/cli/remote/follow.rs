//! Follows a task until it ends, across lost connections and restarts of the Board, and says how it ended.

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

use protocol::{Event, text::printable, transcript};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    super::{
        CliError,
        console::{is_json, put, remark, say},
    },
    client::{ApiClient, CallError},
    sse::{ServerEvent, SseReader},
};

/// The pause before a stream is opened again; it doubles with each failure.
const FIRST_RECONNECT_DELAY: Duration = Duration::from_millis(300);
/// Longest pause between two tries.
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(5);
/// How long the Board may be away before a script hears of it.
const MAX_ABSENCE: Duration = Duration::from_secs(300);

/// Why a stream is over.
enum StreamOutcome {
    /// All events of the task have come.
    Finished,
    /// The connection ended, or the Board is about to.
    Interrupted(String),
}

struct Follower {
    /// `{attempt}.{seq}` of the last event that was printed.
    after: Option<String>,
    /// When something last came from the Board.
    heard: Instant,
    /// Whether the last printed character ended a line.
    at_line_start: bool,
}

/// Prints a task's text, or with `--json` its events, and fails unless the task completes.
pub async fn follow(client: &ApiClient, id: &str, after: Option<String>) -> Result<(), CliError> {
    let mut follower = Follower { after, heard: Instant::now(), at_line_start: true };
    let mut delay = FIRST_RECONNECT_DELAY;
    let mut contact = follower.heard;
    loop {
        let why = match client.stream(id, follower.after.as_deref()).await {
            Ok(answer) => match follower.read(answer).await? {
                StreamOutcome::Finished => break,
                StreamOutcome::Interrupted(why) => why,
            },
            Err(CallError::Passing(why, least)) => {
                delay = delay.max(least.min(MAX_RECONNECT_DELAY));
                why
            }
            Err(refused) => return Err(refused.into()),
        };
        if follower.heard > contact {
            (contact, delay) = (follower.heard, FIRST_RECONNECT_DELAY);
        }
        if contact.elapsed() > MAX_ABSENCE {
            return Err(CliError::Failed(why));
        }
        sleep(delay).await;
        delay = (delay * 2).min(MAX_RECONNECT_DELAY);
    }
    if !is_json() && !follower.at_line_start {
        say("");
    }
    let task = client.get(&["tasks", id], &[]).await?;
    if is_json() {
        put(json!({ "type": "task", "task": task }));
    }
    ended(&task)
}

/// How the task ended, as the outcome of the command.
fn ended(task: &Value) -> Result<(), CliError> {
    match task["state"].as_str().unwrap_or_default() {
        "completed" => Ok(()),
        "error" => {
            let text = |name: &str| task["error"][name].as_str().unwrap_or_default();
            let suggestion = task["error"]["suggestion"].as_str().map(|text| format!("\n{text}")).unwrap_or_default();
            Err(CliError::Failed(format!("{}: {}{suggestion}", text("code"), text("message"))))
        }
        "stopped" => Err(CliError::Failed("the task was stopped".into())),
        state => Err(CliError::Failed(format!("the stream ended, but the task is {state}"))),
    }
}

impl Follower {
    /// Reads one stream to its end.
    async fn read(&mut self, mut answer: reqwest::Response) -> Result<StreamOutcome, CliError> {
        let mut reader = SseReader::default();
        loop {
            while let Some(event) = reader.next() {
                if let Some(end) = self.take(&event)? {
                    return Ok(end);
                }
            }
            match answer.chunk().await {
                Ok(Some(piece)) => {
                    self.heard = Instant::now();
                    if !reader.push(&piece) {
                        return Err(CliError::Failed("the Board sends an event that is too large".into()));
                    }
                }
                Ok(None) => return Ok(StreamOutcome::Interrupted("the Board ended the stream".to_owned())),
                Err(error) => {
                    return Ok(StreamOutcome::Interrupted(format!("the connection to the Board broke: {error}")));
                }
            }
        }
    }

    fn take(&mut self, event: &ServerEvent) -> Result<Option<StreamOutcome>, CliError> {
        match event.event.as_str() {
            "task" => {}
            "reset" => {
                remark("the Board does not know this cursor: the task is shown from its beginning");
                self.after = None;
            }
            "end" => {
                let end: Value = serde_json::from_str(&event.data).unwrap_or_default();
                return match end["reason"].as_str().unwrap_or_default() {
                    "terminal" => Ok(Some(StreamOutcome::Finished)),
                    "deleted" => Err(CliError::Failed("the task was deleted".into())),
                    "revoked" => Err(CliError::Failed("the token was revoked".into())),
                    reason => Ok(Some(StreamOutcome::Interrupted(format!("the Board ended the stream: {reason}")))),
                };
            }
            _ => {
                self.print(event);
                self.after.clone_from(&event.id);
            }
        }
        Ok(None)
    }

    /// Prints an event. A reader that went away (`| head`) changes nothing: the exit code still says how the task ended.
    fn print(&mut self, event: &ServerEvent) {
        if is_json() {
            return put(&event.data);
        }
        // What a later version sends is no reason to stop.
        let Ok(event) = serde_json::from_str::<Event>(&event.data) else { return };
        let text = printable(&transcript::plain(&event.body));
        if text.is_empty() {
            return;
        }
        self.at_line_start = text.ends_with('\n');
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
    }
}
