//! Command Center Adapters: modules that connect operators to the runtime, all behind one trait.
//!
//! An adapter puts messages and interrupts into the mesh and streams events by reading the outbox with a cursor of its
//! own: no queue stands between an agent and an operator but the disk.

pub mod board;
pub mod cli;

use std::future::Future;

use tokio_util::sync::CancellationToken;

use crate::mesh::Mesh;

/// A way for operators to reach the agents of this machine.
pub trait CommandCenterAdapter: Send {
    /// Its name in logs and in `origin` of what it begins.
    fn id(&self) -> &'static str;

    /// Connects and serves until `finish` is cancelled (then it may say its last events) or it cannot go on: the reason.
    fn serve(self, mesh: Mesh, finish: CancellationToken) -> impl Future<Output = Result<(), String>> + Send;
}
