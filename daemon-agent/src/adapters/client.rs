//! A program of this machine that talks to agents in JSON: a line of the command line's socket, or a frame of the WebSocket.
//! Each connection is an adapter of its own, with its cursors in the program's hands.
//!
//! Owns which attempts a connection follows and how far, and cuts one that does not read. Knows neither transport.

mod feed;
mod frame;
mod retention;

use std::{
    future::Future,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use protocol::{ApprovalResponse, InterruptSignal, UserMessage};
use serde_json::{Value, json};
use tokio::{sync::watch, time::timeout};

use super::{Callbacks, CommandCenterAdapter, StreamedEvent};
use crate::mesh::{AcceptedMessage, DecideError, SayError};
use feed::Followed;
pub(super) use feed::session_of;
use frame::ClientFrame;
pub use retention::{CLIENT_READER, expire};

/// How long a connection may not take what is written to it.
const STALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest name of whoever is at the connection, bytes.
const MAX_AUTHOR_BYTES: usize = 80;

/// Where a connection's JSON texts come from.
pub trait TextSource: Send {
    /// The next text; `None` at the end.
    fn next(&mut self) -> impl Future<Output = Option<String>> + Send;
}

/// Where they go.
pub trait TextSink: Send {
    /// Writes one text.
    fn send(&mut self, text: String) -> impl Future<Output = std::io::Result<()>> + Send;
}

/// One connection.
pub struct LocalClient<I, O> {
    origin: &'static str,
    author: String,
    /// Whether it may decide what agents ask.
    may_decide: bool,
    input: tokio::sync::Mutex<I>,
    output: tokio::sync::Mutex<O>,
    /// How long it may not take what is written to it.
    stall_timeout: Duration,
    followed: Mutex<Followed>,
    /// Rings when another attempt is followed.
    follows: watch::Sender<u64>,
}

impl<I: TextSource, O: TextSink> LocalClient<I, O> {
    /// A connection through the adapter `origin`.
    pub fn new(origin: &'static str, may_decide: bool, input: I, output: O) -> Self {
        let author = std::env::var("USER").ok().filter(|name| !name.trim().is_empty());
        let author = author.unwrap_or_else(|| "a person at the machine".to_owned());
        Self {
            origin,
            author: protocol::text::head(&author, MAX_AUTHOR_BYTES).to_owned(),
            may_decide,
            input: tokio::sync::Mutex::new(input),
            output: tokio::sync::Mutex::new(output),
            stall_timeout: STALL_TIMEOUT,
            followed: Mutex::default(),
            follows: watch::Sender::new(0),
        }
    }

    /// Serves it until it ends, or why it was cut.
    pub async fn serve(&self, callbacks: Callbacks) -> Result<(), String> {
        callbacks.mesh.outbox().keep_for(CLIENT_READER);
        tokio::select! {
            ended = self.connect(callbacks.clone()) => ended,
            cut = self.feed(&callbacks.mesh) => cut,
            () = callbacks.finish.cancelled() => Ok(()),
        }
    }

    /// Does what one text asks. Returns what is answered, and what is followed from then on.
    async fn obey(&self, text: &str, callbacks: &Callbacks) -> (Value, Option<AcceptedMessage>) {
        let answer = match ClientFrame::parse(text) {
            Ok(ClientFrame::Message(message)) => return self.say(message, callbacks).await,
            Ok(ClientFrame::Interrupt(signal)) => self.interrupt(signal, callbacks).await,
            Ok(ClientFrame::Decision(response)) => self.decide(*response, callbacks).await,
            Ok(ClientFrame::Subscribe { after }) => {
                let gone = self.followed().subscribe(callbacks.mesh.outbox(), &after);
                self.ring();
                json!({ "type": "subscribed", "gone": gone })
            }
            Err(why) => {
                json!({ "type": "refused", "id": frame::id_of(text), "code": "bad_frame", "message": why })
            }
        };
        (answer, None)
    }

    async fn say(&self, message: UserMessage, callbacks: &Callbacks) -> (Value, Option<AcceptedMessage>) {
        let id = message.id.clone();
        let refused = |code: &str, why: &str| json!({ "type": "refused", "id": id, "code": code, "message": why });
        match callbacks.on_message(&self.author, message).await {
            Ok(said) => {
                let accepted = json!({
                    "type": "accepted", "id": id, "taskId": said.task_id, "sessionId": said.session_id,
                    "agentId": said.agent_id, "messageId": said.message_id, "done": said.is_done,
                });
                (accepted, Some(said))
            }
            Err(SayError::Refused { code, message }) => (refused(code, &message), None),
            Err(error) => (refused("unavailable", &error.to_string()), None),
        }
    }

    async fn interrupt(&self, signal: InterruptSignal, callbacks: &Callbacks) -> Value {
        match callbacks.on_interrupt(signal).await {
            Ok(ended) => {
                let tasks: Vec<_> = ended.0.into_iter().map(|attempt| attempt.task_id).collect();
                json!({ "type": "interrupted", "tasks": tasks })
            }
            Err(error) => json!({ "type": "refused", "code": "unavailable", "message": error.to_string() }),
        }
    }

    async fn decide(&self, response: ApprovalResponse, callbacks: &Callbacks) -> Value {
        let id = response.approval_id.clone();
        let refused = |code: &str, message: &str| json!({ "type": "refused", "approvalId": id, "code": code, "message": message });
        if !self.may_decide {
            // Whoever can read the token may be an agent's own command.
            return refused("forbidden", "nothing confines commands on this machine: decide on the Board");
        }
        match callbacks.on_decision(&self.author, response).await {
            Ok(()) => json!({ "type": "decided", "approvalId": id }),
            Err(error) => {
                let code = match &error {
                    DecideError::NotPending => "not_pending",
                    DecideError::TooLong => "too_long",
                    DecideError::Disk(_) => "unavailable",
                };
                refused(code, &error.to_string())
            }
        }
    }

    async fn write(&self, json: &Value) -> Result<(), String> {
        let mut output = self.output.lock().await;
        match timeout(self.stall_timeout, output.send(json.to_string())).await {
            Ok(written) => written.map_err(|error| error.to_string()),
            Err(_) => Err(format!("it took nothing for {} s", self.stall_timeout.as_secs_f32())),
        }
    }

    fn ring(&self) {
        self.follows.send_modify(|n| *n = n.wrapping_add(1));
    }

    fn followed(&self) -> MutexGuard<'_, Followed> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<I: TextSource, O: TextSink> CommandCenterAdapter for LocalClient<I, O> {
    fn id(&self) -> &'static str {
        self.origin
    }

    async fn connect(&self, callbacks: Callbacks) -> Result<(), String> {
        let mut input = self.input.lock().await;
        while let Some(text) = input.next().await {
            if text.trim().is_empty() {
                continue;
            }
            let (answer, said) = self.obey(&text, &callbacks).await;
            self.write(&answer).await?;
            if let Some(said) = said {
                // Behind the answer, so that a program knows whose events these are.
                self.followed().follow_session(callbacks.mesh.outbox(), &said.session_id);
                self.followed().follow_task(&said.task_id);
                self.ring();
            }
        }
        Ok(())
    }

    async fn stream(&self, event: StreamedEvent) -> Result<(), String> {
        self.write(&event.json()).await
    }
}

#[cfg(test)]
mod tests;
