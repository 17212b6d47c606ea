//! What attempts kept of their calls' results goes when they are over: nobody else can read it.

use protocol::AttemptRef;

use super::Mesh;
use crate::tools::KeptResults;

impl Mesh {
    /// Removes what an attempt that is over kept.
    pub(super) async fn forget_results(&self, attempt: &AttemptRef) {
        let kept = KeptResults::of(self.home().artifacts(attempt.task_id.as_str()), attempt.attempt);
        let removed = tokio::task::spawn_blocking(move || kept.forget()).await;
        if let Err(error) = removed.map_err(std::io::Error::other).flatten() {
            tracing::warn!(task.id = %attempt.task_id, "results that were kept of a task's calls stay: {error}");
        }
    }

    /// Removes the same of attempts that were over before this process began. To be called once those are known that go on;
    /// nothing waits for it.
    pub(super) fn forget_results_before(&self) {
        let (mesh, artifacts) = (self.clone(), self.home().root().join("artifacts"));
        tokio::spawn(async move {
            let found = tokio::task::spawn_blocking(move || KeptResults::attempts(&artifacts)).await;
            for (folder, attempt) in found.unwrap_or_default() {
                let Ok(task_id) = folder.parse() else { continue };
                let attempt = AttemptRef { task_id, attempt };
                // One that began meanwhile is held, too.
                if !mesh.state().holds(&attempt) {
                    mesh.forget_results(&attempt).await;
                }
            }
        });
    }
}
