//! Applies edits that people made on the Board: one after another, each once. The outcome is kept until the Board has
//! acknowledged it. Ledgers of playbooks' runs are written beside them.

mod ledgers;

use protocol::{EditId, FOLDER_VERSION, WorkspaceWrite, WorkspaceWritten, WriteOp, WriteState};
use tokio::{sync::watch, time::sleep};

use super::{FetchError, Mesh, attempts::RETRY_INTERVAL};
use crate::{
    fault,
    workspace::{Author, LocalWriteState, Workspace, WorkspaceError, WriteOutcome},
};

impl Mesh {
    /// Applies an edit, which is in the journal already, after those that arrived before it.
    pub(super) fn write(&self, write: Box<WorkspaceWrite>) {
        let first = {
            let mut state = self.state();
            if state.writes.iter().any(|known| known.edit_id == write.edit_id) {
                return;
            }
            state.writes.push_back(write);
            state.writes.len() == 1
        };
        if first {
            let mesh = self.clone();
            self.shared.tracker.spawn(async move { mesh.write_all().await });
        }
    }

    /// Outcomes of edits that the Board has not acknowledged yet.
    pub fn written(&self) -> Vec<WorkspaceWritten> {
        self.shared.context.journal.unacknowledged_edits()
    }

    /// Notifies when there are more of them, or of the outcomes of other commands.
    pub fn outcomes_bell(&self) -> watch::Receiver<u64> {
        self.shared.outcomes.subscribe()
    }

    /// The Board has acknowledged the outcomes of these edits.
    pub async fn edits_acknowledged(&self, edits: Vec<EditId>) {
        if let Err(error) = self.blocking(move |journal| journal.edits_acknowledged(&edits)).await.flatten() {
            tracing::warn!("the journal cannot be written: {error}");
        }
    }

    async fn write_all(&self) {
        loop {
            let next = self.state().writes.front().cloned();
            let Some(write) = next else { return };
            let written = self.write_one(*write).await;
            fault::at("writes::before_written");
            loop {
                let outcome = written.clone();
                match self.blocking(move |journal| journal.written(outcome)).await.flatten() {
                    Ok(()) => break,
                    Err(error) => tracing::warn!("the journal cannot be written: {error}"),
                }
                sleep(RETRY_INTERVAL).await;
            }
            self.shared.outcomes.send_modify(|n| *n = n.wrapping_add(1));
            let mut state = self.state();
            state.writes.pop_front();
            if state.writes.is_empty() {
                return;
            }
        }
    }

    async fn write_one(&self, mut write: WorkspaceWrite) -> WorkspaceWritten {
        let (edit_id, path) = (write.edit_id.clone(), write.path.clone());
        let outcome = match self.content(&mut write).await {
            Ok(()) => {
                let workspace = self.workspace();
                let made = tokio::task::spawn_blocking(move || make(&workspace, &write)).await;
                made.unwrap_or_else(|error| Err(error.to_string()))
            }
            Err(why) => Err(why),
        };
        let (state, hash, reason) = match outcome {
            Ok(WriteOutcome { state: LocalWriteState::Applied, hash }) => (WriteState::Applied, hash, None),
            Ok(WriteOutcome { state: LocalWriteState::Conflict, hash }) => (WriteState::Conflict, hash, None),
            Err(why) => (WriteState::Refused, None, Some(why)),
        };
        tracing::info!(edit.id = %edit_id, path, ?state, reason, "a change of the workspace");
        WorkspaceWritten { edit_id, path, state, hash, reason }
    }

    /// Fetches the new text if it did not fit into the command.
    async fn content(&self, write: &mut WorkspaceWrite) -> Result<(), String> {
        let Some(path) = write.content_url.take() else { return Ok(()) };
        loop {
            match (self.shared.context.fetch)(path.clone()).await {
                Ok(bytes) => {
                    write.content = Some(String::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?);
                    return Ok(());
                }
                Err(FetchError::Never(why)) => {
                    return Err(format!("its text could not be fetched from the Board: {why}"));
                }
                Err(FetchError::Later(why)) => {
                    tracing::warn!(edit.id = %write.edit_id, "the text of an edit could not be fetched yet: {why}");
                    sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }
}

/// Applies the edit, or returns why it could not.
fn make(workspace: &Workspace, write: &WorkspaceWrite) -> Result<WriteOutcome, String> {
    let base = write.base_hash.as_deref();
    let describe = |error: WorkspaceError| format!("{}: {error}", error.code());
    match (write.op, base, &write.content, &write.to) {
        (WriteOp::Put, base, Some(content), _) => workspace.put(&write.path, base, content.as_bytes(), Author::Board),
        (WriteOp::Delete, Some(FOLDER_VERSION), ..) => workspace.delete_folder(&write.path, Author::Board),
        (WriteOp::Rename, Some(FOLDER_VERSION), _, Some(to)) => workspace.rename_folder(&write.path, to, Author::Board),
        (WriteOp::Delete, Some(base), ..) => workspace.delete(&write.path, base, Author::Board),
        (WriteOp::Rename, Some(base), _, Some(to)) => workspace.rename(&write.path, to, base, Author::Board),
        _ => return Err("the change is not complete".to_owned()),
    }
    .map_err(describe)
}
