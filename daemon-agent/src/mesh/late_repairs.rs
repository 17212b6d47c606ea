//! Reports protected files that could be restored only at this start: a command that an earlier daemon process had
//! started wrote them against its session's policy. The report and the proposal are made in the name of the command's
//! attempt, before that attempt is ended.

use protocol::{AgentEvent, AgentStreamEvent, AttemptRef, EventBody, NoticeLevel, Policy, limits::MAX_EVENT_BYTES};
use serde_json::json;

use super::Mesh;
use crate::{
    memory::CURATED_NAMES,
    report::{Sink, memory::MemoryEditor, plan},
    workspace::{CommandOwner, LateRepair, Violation},
};

/// Largest report of a plan, bytes of JSON.
const MAX_CONTENT_BYTES: usize = MAX_EVENT_BYTES - 8 * 1024;

impl Mesh {
    /// Logs what was restored, and keeps it for the reports of the attempts.
    pub fn report_late_repairs(&self, undone: Vec<LateRepair>) {
        for LateRepair { owner, over } in undone {
            let task = owner.as_ref().map(|owner| owner.attempt.task_id.to_string()).unwrap_or_default();
            for one in &over {
                let (words, whereabouts) = (one.words(), one.whereabouts());
                tracing::warn!(task.id = task, "while a command ran and the daemon ended: {words}{whereabouts}");
            }
            if let Some(owner) = owner.filter(|owner| !owner.agent_id.is_empty()) {
                let attempt = owner.attempt.clone();
                self.state().undone.entry(attempt).or_insert_with(|| (owner, Vec::new())).1.extend(over);
            }
        }
    }

    /// Reports the violations of an attempt, which has not ended yet, in its log.
    pub(super) async fn report_undone(&self, attempt: &AttemptRef) {
        let Some((owner, over)) = self.state().undone.remove(attempt) else { return };
        let (outbox, to, agent_id) = (self.outbox().clone(), attempt.clone(), owner.agent_id.clone());
        let sink = Sink::new(move |event| {
            outbox.append(&to, EventBody::Progress { event: AgentEvent { agent_id: agent_id.clone(), event } });
            std::future::ready(())
        });
        for one in over {
            let proposed = match self.propose(&owner, &sink, &one).await {
                Some(Ok(())) => "; what was written there is proposed to the operators".to_owned(),
                Some(Err(why)) => format!("; what was written there is kept on the viber and not proposed: {why}"),
                None => one.whereabouts(),
            };
            let text = format!("While a command ran and the daemon ended: {}{proposed}.", one.words());
            sink.emit(AgentStreamEvent::Notice { level: NoticeLevel::Warning, text }).await;
        }
    }

    async fn propose(&self, owner: &CommandOwner, sink: &Sink, one: &Violation) -> Option<Result<(), String>> {
        let text = one.wrote.as_deref()?;
        if CURATED_NAMES.contains(&one.path.as_str()) && owner.proposes_memory {
            let memory = MemoryEditor::open(&owner.agent_id, Policy::Propose, self.memory().clone(), sink.clone());
            return Some(memory.propose_written(&one.path, text).await);
        }
        let plan = owner.plan.clone().filter(|plan| *plan == one.path)?;
        let workspace = self.workspace();
        let now = tokio::task::spawn_blocking(move || workspace.text(&plan)).await;
        let base = now.ok().and_then(Result::ok).flatten().map(|(_, hash)| hash);
        let plan = json!({ "proposal": text, "base": base, "note": plan::FOUND_NOTE });
        if text.len() > protocol::plan::MAX_PLAN_BYTES || plan.to_string().len() > MAX_CONTENT_BYTES {
            return Some(Err("it is too long for a plan".to_owned()));
        }
        sink.emit(AgentStreamEvent::Plan { plan }).await;
        Some(Ok(()))
    }
}
