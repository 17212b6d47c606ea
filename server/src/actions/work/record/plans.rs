//! What a run reports about plans and memory: new versions, and proposals of changes.

use protocol::{AgentStreamEvent, EventBody, ProposalId, plan::MAX_PLAN_BYTES, text::head};
use serde_json::Value;

use super::Recording;
use crate::{
    actions::plan,
    db,
    domain::{File, FileText, PlanSource, Proposal, ProposalState, TaskKind, plan::ProposalKind},
    error::Result,
    secret,
};

impl Recording<'_, '_> {
    /// Stores the proposals and revisions of the plan that the run reports.
    pub(super) async fn record_proposals(&mut self) -> Result<()> {
        let Self { task, held, run, .. } = *self;
        let mut locked = false;
        for report in &run.reports {
            let Some(EventBody::Progress { event }) = &report.body else { continue };
            let (kind, value) = match &event.event {
                AgentStreamEvent::Plan { plan } => (ProposalKind::Plan, plan),
                AgentStreamEvent::Memory { memory } => (ProposalKind::Memory, memory),
                _ => continue,
            };
            if !std::mem::replace(&mut locked, true) {
                db::sessions::lock(self.tx, &held.session_id).await?;
            }
            if let Some(proposal) = self.proposal(kind, report.seq, value) {
                if self.is_of_draft().await? {
                    let kept = Proposal { state: ProposalState::Superseded, ..proposal };
                    db::proposals::insert(self.tx, &kept).await?;
                } else if db::proposals::insert(self.tx, &proposal).await? {
                    db::proposals::supersede(self.tx, &proposal).await?;
                    self.book.remembers |= kind == ProposalKind::Memory;
                }
            } else if let Some(text) = value["markdown"].as_str().filter(|_| kind == ProposalKind::Plan) {
                let text = db::clean(text);
                let hash = secret::hash(&text);
                // A late report: the file has changed since, and its newer version counts.
                let file = db::files::load(self.tx, &self.connection.viber, &plan::path(&held.session_id)).await?;
                let later =
                    |file: &File| file.hash.as_ref() != Some(&hash) && file.mtime > report.at && report.at.is_some();
                if file.as_ref().is_some_and(later) {
                    continue;
                }
                let fresh = db::plans::NewRevision {
                    hash: &hash,
                    markdown: &text,
                    source: PlanSource::Agent,
                    author: &held.agent_id,
                    task: Some(task),
                };
                db::plans::add(self.tx, &held.session_id, &fresh).await?;
                if value["hash"] == hash.as_str() && value["path"] == plan::path(&held.session_id).as_str() {
                    // If the file still has this version, its text need not be fetched.
                    let path = plan::path(&held.session_id);
                    let text = FileText { content: text, hash, at: self.tx.now };
                    db::files::keep_text(self.tx, &self.connection.viber, &path, &text).await?;
                }
            }
            self.book.after.session(&held.session_id);
        }
        Ok(())
    }

    /// People are asked about what a draft proposes when they apply it.
    async fn is_of_draft(&mut self) -> Result<bool> {
        if self.held.kind != TaskKind::Compact {
            return Ok(false);
        }
        Ok(db::tasks::load(self.tx, self.task).await?.is_some_and(|task| task.is_draft()))
    }

    fn proposal(&self, kind: ProposalKind, seq: u64, value: &Value) -> Option<Proposal> {
        let content = value["proposal"].as_str().filter(|text| text.len() <= 2 * MAX_PLAN_BYTES)?;
        Some(Proposal {
            id: ProposalId::new(self.tx.now.0),
            kind,
            session_id: self.held.session_id.clone(),
            task_id: self.task.clone(),
            attempt: self.attempt,
            seq,
            base_hash: value["base"].as_str().map(|hash| head(hash, 80).to_owned()),
            base: None,
            content: db::clean(content),
            note: db::clean(head(value["note"].as_str().unwrap_or_default(), 2000)),
            state: ProposalState::Pending,
            decided_by: None,
            created_at: self.tx.now,
            decided_at: None,
        })
    }
}
