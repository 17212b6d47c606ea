//! Writes the ledgers of playbooks' runs into the workspace, for people to read there. The Board has what they say: what cannot
//! be written is tried again with the next one, and after a restart.

use protocol::RunId;

use super::Mesh;
use crate::{
    journal::PendingLedger,
    workspace::{Author, WorkspaceError},
};

/// The folder of ledgers, beneath the workspace.
const LEDGER_FOLDER: &str = "playbooks/runs";

impl Mesh {
    /// Writes every ledger that the journal has and no file yet.
    pub(in crate::mesh) fn write_ledgers(&self) {
        let mesh = self.clone();
        self.shared.tracker.spawn(async move { mesh.write_pending_ledgers().await });
    }

    pub(in crate::mesh) async fn write_pending_ledgers(&self) {
        // One after another: an older one must not come after a newer one of its run.
        let _turn = self.shared.ledger_turn.lock().await;
        for pending in self.shared.context.journal.pending_ledgers() {
            let (cmd_seq, run) = (pending.cmd_seq, pending.ledger.run_id.clone());
            // A full disk, or something that somebody put in its place: they may take it away, and it may be the run's last one.
            if let Err(error) = self.write_ledger(pending).await {
                tracing::warn!(run.id = %run, "the ledger of a run cannot be written yet: {error}");
                continue;
            }
            if let Err(error) = self.blocking(move |journal| journal.ledger_written(cmd_seq)).await.flatten() {
                tracing::warn!("the journal cannot be written: {error}");
            }
        }
    }

    async fn write_ledger(&self, PendingLedger { ledger, .. }: PendingLedger) -> Result<(), WorkspaceError> {
        let workspace = self.workspace();
        let writing = tokio::task::spawn_blocking(move || {
            workspace.replace(&ledger_path(&ledger.run_id), ledger.text.as_bytes(), Author::Board)
        });
        writing.await.unwrap_or_else(|error| Err(WorkspaceError::Disk(std::io::Error::other(error))))
    }
}

/// Where the ledger of a run lies, beneath the workspace.
fn ledger_path(run: &RunId) -> String {
    format!("{LEDGER_FOLDER}/{run}.md")
}
