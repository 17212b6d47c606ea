//! Reports protected files that could be restored only at this start: a command that an earlier daemon process had
//! started wrote them against its session's policy. The report and the proposal are made in the name of the command's
//! attempt, before that attempt is ended.

use protocol::{AgentEvent, AgentStreamEvent, AttemptRef, EventBody, NoticeLevel, limits::MAX_EVENT_BYTES};
use serde_json::json;

use super::Mesh;
use crate::{
    journal::PendingAttempt,
    memory::CURATED_NAMES,
    report::{Sink, memory::MemoryEditor, plan},
    workspace::{LateRepair, Violation},
};

/// Largest report of a plan, bytes of JSON.
const MAX_CONTENT_BYTES: usize = MAX_EVENT_BYTES - 8 * 1024;
/// The note of a proposal for text that appeared in the file without a tool.
const PROPOSAL_NOTE: &str = "Written into the file while a command ran.";

impl Mesh {
    /// Logs what was restored, and keeps it for the reports of the attempts.
    pub fn report_late_repairs(&self, undone: Vec<LateRepair>) {
        for LateRepair { attempt, over } in undone {
            let task = attempt.as_ref().map(|attempt| attempt.task_id.to_string()).unwrap_or_default();
            for one in &over {
                tracing::warn!(task.id = task, "while a command ran and the daemon ended: {}", one.words());
            }
            if let Some(attempt) = attempt {
                self.state().undone.entry(attempt).or_default().extend(over);
            }
        }
    }

    /// Reports the violations of an attempt, which has not ended yet, in its log.
    pub(super) async fn report_undone(&self, attempt: &AttemptRef, held: &PendingAttempt) {
        let over = self.state().undone.remove(attempt).unwrap_or_default();
        let (outbox, to, agent_id) = (self.outbox().clone(), attempt.clone(), held.submit.agent_id.clone());
        let sink = Sink::new(move |event| {
            outbox.append(&to, EventBody::Progress { event: AgentEvent { agent_id: agent_id.clone(), event } });
            std::future::ready(())
        });
        for one in over {
            let proposed = match self.propose(held, &sink, &one).await {
                Some(Ok(())) => "; what was written there is proposed to the operators".to_owned(),
                Some(Err(why)) => format!("; what was written there is kept on the viber and not proposed: {why}"),
                None => String::new(),
            };
            let text = format!("While a command ran and the daemon ended: {}{proposed}.", one.words());
            sink.emit(AgentStreamEvent::Notice { level: NoticeLevel::Warning, text }).await;
        }
    }

    async fn propose(&self, held: &PendingAttempt, sink: &Sink, one: &Violation) -> Option<Result<(), String>> {
        let (submit, text) = (&held.submit, one.wrote.as_deref()?);
        let memory = MemoryEditor::open(submit, self.memory().clone(), sink.clone());
        if CURATED_NAMES.contains(&one.path.as_str()) && memory.proposes() {
            return Some(memory.propose_written(&one.path, text).await);
        }
        let plan = format!("sessions/{}/{}", submit.session_id, plan::PLAN_FILE);
        // It was closed by the policy, or because a person wrote in it.
        if one.path != plan {
            return None;
        }
        let workspace = self.workspace();
        let now = tokio::task::spawn_blocking(move || workspace.text(&plan)).await;
        let base = now.ok().and_then(Result::ok).flatten().map(|(_, hash)| hash);
        let plan = json!({ "proposal": text, "base": base, "note": PROPOSAL_NOTE });
        if text.len() > protocol::plan::MAX_PLAN_BYTES || plan.to_string().len() > MAX_CONTENT_BYTES {
            return Some(Err("it is too long for a plan".to_owned()));
        }
        sink.emit(AgentStreamEvent::Plan { plan }).await;
        Some(Ok(()))
    }
}
