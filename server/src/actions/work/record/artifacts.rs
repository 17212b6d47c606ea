//! Artifacts that a viber reports become rows: bounded plain text, belonging to the reporting task and no other.

use protocol::{AgentStreamEvent, ArtifactId, ArtifactRef, EventBody};

use super::Recording;
use crate::{
    db,
    domain::{Artifact, ArtifactOrigin, Contact, ContactState, name},
    error::Result,
};

/// Artifacts stored of one task; further ones are in its events only.
const MAX_ARTIFACTS_PER_TASK: u64 = 1_000;
/// Longest texts, characters.
const MAX_NAME_CHARS: usize = 200;
const MAX_TITLE_CHARS: usize = 300;
const MAX_TYPE_CHARS: usize = 100;
/// Longest reference, bytes.
const MAX_REFERENCE_BYTES: usize = 1024;

impl Recording<'_, '_> {
    /// Stores the artifacts that the run reports.
    pub(super) async fn record_artifacts(&mut self) -> Result<()> {
        let run = self.run;
        let mut kept = false;
        for reported in run.reports.iter().flat_map(|report| of(report.body.as_ref())) {
            let Some(new) = self.artifact(reported) else { continue };
            let (count, known) = db::artifacts::count_reported(self.tx, self.task, &new).await?;
            // An id that belongs to another owner makes no row.
            if count < MAX_ARTIFACTS_PER_TASK && !known {
                kept |= db::artifacts::insert(self.tx, &new).await?;
            }
        }
        if kept {
            self.book.after.session(&self.held.session_id);
        }
        Ok(())
    }

    /// The artifact as it is stored; `None` when it has no name, or an invalid reference.
    fn artifact(&self, reported: &ArtifactRef) -> Option<Artifact> {
        let words = |text: Option<&String>, max| text.and_then(|text| name::clean(text, max));
        let called = name::clean(&reported.id, MAX_NAME_CHARS)?;
        let reference = reported.reference.clone().unwrap_or_default();
        if reference.len() > MAX_REFERENCE_BYTES || reference.chars().any(char::is_control) {
            return None;
        }
        Some(Artifact {
            id: reported.artifact_id.clone().unwrap_or_else(|| ArtifactId::new(self.tx.now.0)),
            viber_id: self.connection.viber.clone(),
            session_id: self.held.session_id.clone(),
            task_id: Some(self.task.clone()),
            attempt: Some(self.attempt),
            title: words(reported.title.as_ref(), MAX_TITLE_CHARS).unwrap_or_else(|| called.clone()),
            name: called,
            claimed: words(reported.kind.as_ref(), MAX_TYPE_CHARS).unwrap_or_default(),
            sniffed: words(reported.sniffed.as_ref(), MAX_TYPE_CHARS).unwrap_or_default(),
            reference,
            size: reported.size.filter(|size| i64::try_from(*size).is_ok()),
            sha256: reported.sha256.clone().filter(|hash| crate::actions::artifacts::is_sha256(hash)),
            origin: ArtifactOrigin::Agent,
            created_by: self.held.agent_id.clone(),
            created_at: self.tx.now,
            gone_at: None,
            stored_at: None,
            contact: Contact { state: ContactState::Connected, since: self.tx.now },
        })
    }
}

fn of(body: Option<&EventBody>) -> &[ArtifactRef] {
    match body {
        Some(EventBody::Progress { event }) => match &event.event {
            AgentStreamEvent::Artifact { artifact } => std::slice::from_ref(artifact),
            _ => &[],
        },
        Some(EventBody::Completed { result }) => &result.artifact_refs,
        _ => &[],
    }
}
