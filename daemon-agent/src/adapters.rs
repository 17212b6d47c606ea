//! Adapters: modules that connect operators to the runtime, all behind one trait.
//!
//! What operators say comes in through [`Callbacks`]; what agents do goes out as [`StreamedEvent`]s, which a pump reads from
//! the outbox by a cursor: the outbox on disk is the only queue between an agent and an operator. An adapter owns its
//! transport and nothing else.

pub mod board;
pub mod cli;
mod client;
pub mod configured;
mod event;
mod pump;
mod slack;
mod websocket;

use std::future::Future;

use protocol::{ApprovalResponse, InterruptSignal, UserMessage};
use tokio_util::sync::CancellationToken;

pub use event::StreamedEvent;

use crate::mesh::{AcceptedMessage, DecideError, Interrupted, Mesh, SayError};

/// A way for operators to reach the agents of this machine (specification 3, §2.2). A connection of a program is one, too.
pub trait CommandCenterAdapter: Send + Sync {
    /// Its name: `board`, `cli`, `websocket` or `slack`.
    fn id(&self) -> &'static str;

    /// Connects, and passes on what operators say, until `callbacks.finish` is cancelled (it may then send its last events)
    /// or until it cannot go on, which returns the reason.
    fn connect(&self, callbacks: Callbacks) -> impl Future<Output = Result<(), String>> + Send;

    /// Takes what an agent did. The next event of the same attempt comes when this has returned; an error ends the stream of
    /// that attempt.
    fn stream(&self, event: StreamedEvent) -> impl Future<Output = Result<(), String>> + Send;
}

/// Hooks with which an adapter passes on what operators say. Cheap to clone.
#[derive(Clone)]
pub struct Callbacks {
    pub mesh: Mesh,
    /// Cancelled when the adapter is to end.
    pub finish: CancellationToken,
    origin: &'static str,
}

impl Callbacks {
    /// The hooks of the adapter with this id.
    pub fn of(origin: &'static str, mesh: Mesh, finish: CancellationToken) -> Self {
        Self { mesh, finish, origin }
    }

    /// Somebody called `author` says something. It is on disk when this returns, and the same `id` is the same message.
    pub async fn on_message(&self, author: &str, message: UserMessage) -> Result<AcceptedMessage, SayError> {
        self.mesh.say(self.origin, author, message).await
    }

    /// Somebody ends what agents are doing. Returns what that is.
    pub async fn on_interrupt(&self, signal: InterruptSignal) -> std::io::Result<Interrupted> {
        self.mesh.interrupt(signal).await
    }

    /// Somebody called `by` decides what an agent asks. The first one to decide, wherever that is, is followed.
    pub async fn on_decision(&self, by: &str, response: ApprovalResponse) -> Result<(), DecideError> {
        let adapter = Some(self.origin.to_owned());
        self.mesh.decide(ApprovalResponse { by: by.to_owned(), adapter, ..response }).await
    }
}
