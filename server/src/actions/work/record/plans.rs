//! What a run reports about plans and memory: new versions, proposals of changes, and approvals that wait for a person.

use std::collections::BTreeMap;

use protocol::{AgentStreamEvent, ApprovalId, EventBody, ProposalId, plan::MAX_PLAN_BYTES, text::head};
use serde_json::Value;

use super::Recording;
use crate::{
    actions::plan,
    db,
    domain::{Approval, ApprovalState, File, FileText, PlanSource, Proposal, ProposalState, plan::ProposalKind},
    error::Result,
    secret,
};

/// Longest preview of an approval, bytes.
const MAX_PREVIEW_BYTES: usize = 64 * 1024;
/// Largest arguments of an approval, bytes of JSON.
const MAX_ARGS_BYTES: usize = 32 * 1024;

impl Recording<'_, '_> {
    /// Stores the proposals, revisions of the plan and approvals that the run reports.
    pub(super) async fn record_proposals(&mut self) -> Result<()> {
        let Self { task, held, run, .. } = *self;
        let mut locked = false;
        for report in &run.reports {
            let Some(EventBody::Progress { event }) = &report.body else { continue };
            let (kind, value) = match &event.event {
                AgentStreamEvent::Plan { plan } => (ProposalKind::Plan, plan),
                AgentStreamEvent::Memory { memory } => (ProposalKind::Memory, memory),
                AgentStreamEvent::ApprovalRequired(asked) => {
                    if let Some(approval) = self.approval(asked) {
                        db::approvals::expire(self.tx, task, Some(&approval.id)).await?;
                        db::approvals::insert(self.tx, &approval).await?;
                        self.book.after.session(&held.session_id);
                    }
                    continue;
                }
                _ => continue,
            };
            if !std::mem::replace(&mut locked, true) {
                db::sessions::lock(self.tx, &held.session_id).await?;
            }
            if let Some(proposal) = self.proposal(kind, report.seq, value) {
                if db::proposals::insert(self.tx, &proposal).await? {
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

    /// An approval as it is stored; `None` when it has no usable id.
    fn approval(&self, asked: &BTreeMap<String, Value>) -> Option<Approval> {
        let text = |key: &str, most: usize| {
            let text = asked.get(key).and_then(Value::as_str).unwrap_or_default();
            db::clean(head(text, most))
        };
        let id: ApprovalId = asked.get("approvalId")?.as_str()?.parse().ok()?;
        let args = asked.get("args").cloned().unwrap_or_default();
        let args = if args.to_string().len() <= MAX_ARGS_BYTES { args } else { Value::Null };
        Some(Approval {
            id,
            session_id: self.held.session_id.clone(),
            task_id: self.task.clone(),
            attempt: self.attempt,
            tool: text("tool", 200),
            digest: text("digest", 200),
            args,
            cwd: text("cwd", 2000),
            preview: text("preview", MAX_PREVIEW_BYTES),
            risk: text("risk", 2000),
            state: ApprovalState::Pending,
            scope: None,
            note: None,
            decided_by: None,
            created_at: self.tx.now,
            decided_at: None,
            expires_at: asked.get("expiresAt").and_then(|at| serde_json::from_value(at.clone()).ok()),
        })
    }
}
