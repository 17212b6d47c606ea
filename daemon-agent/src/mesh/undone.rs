//! What commands of a former process did against their session's policy, and what could be undone at this start only: told
//! and proposed in the name of their attempts, before these are ended.

use protocol::{AgentEvent, AgentStreamEvent, EventBody, NoticeLevel, Policy, Running, limits::MAX_EVENT};
use serde_json::json;

use super::Mesh;
use crate::{
    journal::HeldAttempt,
    memory::CURATED,
    report::{Sink, memory::MemoryEditor, plan},
    workspace::{Overstep, Undone},
};

/// Largest report of a plan, bytes of JSON.
const EVENT: usize = MAX_EVENT - 8 * 1024;
/// What a proposal says of text that came into the file and not from a tool.
const WRITTEN: &str = "Written into the file while a command ran.";

impl Mesh {
    /// Logs what was put back, and keeps it for those who asked for the tasks.
    pub fn tell_of(&self, undone: Vec<Undone>) {
        for Undone { attempt, over } in undone {
            let task = attempt.as_ref().map(|attempt| attempt.task_id.to_string()).unwrap_or_default();
            for one in &over {
                tracing::warn!(task.id = task, "while a command ran and the daemon ended: {}", one.words());
            }
            if let Some(attempt) = attempt {
                self.state().undone.entry(attempt).or_default().extend(over);
            }
        }
    }

    /// Reports it in the log of an attempt that has not ended.
    pub(super) async fn report_undone(&self, attempt: &Running, held: &HeldAttempt) {
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

    async fn propose(&self, held: &HeldAttempt, sink: &Sink, one: &Overstep) -> Option<Result<(), String>> {
        let (submit, text) = (&held.submit, one.wrote.as_deref()?);
        let memory = MemoryEditor::open(submit, self.memory().clone(), sink.clone());
        if CURATED.contains(&one.path.as_str()) && memory.proposes() {
            return Some(memory.propose_written(&one.path, text).await);
        }
        let plan = format!("sessions/{}/{}", submit.session_id, plan::OWN);
        if one.path != plan || submit.plan_policy != Policy::Propose {
            return None;
        }
        let workspace = self.workspace();
        let now = tokio::task::spawn_blocking(move || workspace.text(&plan)).await;
        let base = now.ok().and_then(Result::ok).flatten().map(|(_, hash)| hash);
        let plan = json!({ "proposal": text, "base": base, "note": WRITTEN });
        if text.len() > protocol::plan::MAX_PLAN || plan.to_string().len() > EVENT {
            return Some(Err("it is too long for a plan".to_owned()));
        }
        sink.emit(AgentStreamEvent::Plan { plan }).await;
        Some(Ok(()))
    }
}
