//! Adapters: modules that connect operators to the runtime, all behind one trait.
//!
//! An adapter passes commands to the mesh, and streams events by reading the outbox with a cursor of its own: the
//! outbox on disk is the only queue between an agent and an operator.

pub mod board;
pub mod cli;

use std::future::Future;

use tokio_util::sync::CancellationToken;

use crate::mesh::Mesh;

/// A way for operators to reach the agents of this machine.
pub trait CommandCenterAdapter: Send {
    /// Connects and serves until `finish` is cancelled (it may then send its last events) or until it cannot go on,
    /// which returns the reason.
    fn serve(self, mesh: Mesh, finish: CancellationToken) -> impl Future<Output = Result<(), String>> + Send;
}
