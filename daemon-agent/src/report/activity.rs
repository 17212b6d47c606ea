//! What an attempt did, gathered from its reports for the daily log.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use protocol::{
    ActivityState, AgentStreamEvent, AttemptRef, EventBody, Note, NoteKind, NoteOutcome, TaskSubmit, Usage, text::head,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Sink;
use crate::memory::{SummaryOutcome, TaskSummary};

/// Most items of one kind that are kept.
const MAX_ITEMS: usize = 100;
/// Longest item, bytes.
const MAX_ITEM_BYTES: usize = 1_000;

/// Observes the reports of one attempt. Cheap to clone.
#[derive(Clone, Default)]
pub struct ActivityRecorder(Arc<Mutex<Activity>>);

/// What an attempt is busy with, and what it has used. Cheap to clone.
#[derive(Clone, Default)]
pub struct Pulse(Arc<Mutex<PulseState>>);

#[derive(Default)]
struct PulseState {
    state: Option<ActivityState>,
    usage: Usage,
}

impl Pulse {
    /// A sink that forwards to `to` and is observed.
    pub fn beside(&self, to: Sink) -> Sink {
        let seen = self.0.clone();
        Sink::new(move |event| {
            match &event {
                AgentStreamEvent::StateChange { state, .. } => lock(&seen).state = Some(*state),
                AgentStreamEvent::Usage(more) => lock(&seen).usage.add(more),
                _ => {}
            }
            let to = to.clone();
            async move { to.emit(event).await }
        })
    }

    /// What it does now.
    pub fn state(&self) -> ActivityState {
        lock(&self.0).state.unwrap_or(ActivityState::Idle)
    }

    /// What this process saw it use.
    pub fn usage(&self) -> Usage {
        lock(&self.0).usage.clone()
    }
}

fn lock(state: &Mutex<PulseState>) -> std::sync::MutexGuard<'_, PulseState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What an attempt did until now.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Activity {
    /// Notes by the calls that asked for them, until their results arrive.
    asked: HashMap<String, String>,
    decisions: Vec<String>,
    artifacts: Vec<(String, String)>,
    plan: Option<String>,
}

impl ActivityRecorder {
    /// Goes on from what an attempt did before.
    pub fn of(activity: Activity) -> Self {
        Self(Arc::new(Mutex::new(activity)))
    }

    /// What the attempt did until now.
    pub fn activity(&self) -> Activity {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A sink that forwards to `to` and is observed.
    pub fn beside(&self, to: Sink) -> Sink {
        let seen = self.0.clone();
        Sink::new(move |event| {
            seen.lock().unwrap_or_else(PoisonError::into_inner).hear(&event);
            let to = to.clone();
            async move { to.emit(event).await }
        })
    }

    /// The attempt's summary, once it has ended.
    pub fn task_summary(&self, submit: &TaskSubmit, ending: &EventBody) -> Option<TaskSummary> {
        let mut task_summary = task_summary(submit, ending)?;
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // What an answer suggested was heard by nobody.
        let heard = |note: &String| seen.decisions.iter().any(|decision| decision.starts_with(note.as_str()));
        task_summary.decisions.retain(|note| !heard(note));
        task_summary.decisions.splice(0..0, seen.decisions.iter().cloned());
        task_summary.artifacts = seen.artifacts.iter().map(|(_, line)| line.clone()).collect();
        task_summary.plan.clone_from(&seen.plan);
        Some(task_summary)
    }
}

/// The summary of an attempt that nobody observed.
pub fn task_summary(submit: &TaskSubmit, ending: &EventBody) -> Option<TaskSummary> {
    let outcome = match ending {
        EventBody::Completed { result } => SummaryOutcome::Completed(result.summary.clone()),
        EventBody::Error { error } => SummaryOutcome::Error(error.code.as_str().to_owned(), error.message.clone()),
        EventBody::Stopped { reason, .. } => SummaryOutcome::Stopped(reason.clone()),
        _ => return None,
    };
    let decisions = match ending {
        EventBody::Completed { result } => noted(result.memory.as_ref()),
        _ => Vec::new(),
    };
    Some(TaskSummary {
        attempt: AttemptRef { task_id: submit.task_id.clone(), attempt: submit.attempt },
        session_id: submit.session_id.to_string(),
        agent_id: submit.agent_id.clone(),
        goal: head(&submit.goal, MAX_ITEM_BYTES).to_owned(),
        outcome,
        decisions,
        artifacts: Vec::new(),
        plan: None,
        page: None,
    })
}

/// The notes for `MEMORY.md` that a result tells of, proposed or taken.
fn noted(memory: Option<&Value>) -> Vec<String> {
    let notes = memory.map(|memory| memory["notes"].clone()).unwrap_or_default();
    let notes: Vec<Note> = serde_json::from_value(notes).unwrap_or_default();
    let is_new = |became| matches!(became, NoteOutcome::Applied | NoteOutcome::Proposed);
    let new = notes.into_iter().filter(|note| note.kind == NoteKind::Memory && is_new(note.became));
    new.take(MAX_ITEMS).map(|note| head(&note.note, MAX_ITEM_BYTES).to_owned()).collect()
}

impl Activity {
    fn hear(&mut self, event: &AgentStreamEvent) {
        match event {
            AgentStreamEvent::ToolCall { call_id, tool, args } if tool == "remember" => {
                if let Some(note) = args["note"].as_str().filter(|_| self.asked.len() < MAX_ITEMS) {
                    self.asked.insert(call_id.clone(), head(note, MAX_ITEM_BYTES).to_owned());
                }
            }
            AgentStreamEvent::ToolResult { call_id, tool, ok, .. } if tool == "remember" => {
                let note = self.asked.remove(call_id).filter(|_| *ok && self.decisions.len() < MAX_ITEMS);
                self.decisions.extend(note);
            }
            // A command's whole output is no product.
            AgentStreamEvent::Artifact { artifact } if artifact.call_id.is_none() => {
                let title = artifact.title.as_deref().unwrap_or(&artifact.id);
                let place = artifact.reference.as_deref().map(|place| format!(" ({})", head(place, MAX_ITEM_BYTES)));
                let line = format!("{}{}", head(title, MAX_ITEM_BYTES), place.unwrap_or_default());
                // The same artifact again is a new version of it.
                self.artifacts.retain(|(id, _)| *id != artifact.id);
                if self.artifacts.len() < MAX_ITEMS {
                    self.artifacts.push((artifact.id.clone(), line));
                }
            }
            AgentStreamEvent::Plan { plan } if plan["hash"].is_string() => {
                let path = plan["path"].as_str().unwrap_or("task.md");
                self.plan = Some(head(path, MAX_ITEM_BYTES).to_owned());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::{ArtifactRef, SessionId, TaskId, TaskResult};
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn activity_tells_what_was_done_and_not_what_was_tried() {
        let heard = Arc::new(Mutex::new(0));
        let count = heard.clone();
        let activity = ActivityRecorder::default();
        let sink = activity.beside(Sink::new(move |_| {
            *count.lock().expect("no test panics with it") += 1;
            async {}
        }));
        for (id, ok) in [("a", true), ("b", false)] {
            let (call_id, tool) = (id.to_owned(), "remember".to_owned());
            let args = json!({ "note": format!("note {id}") });
            sink.emit(AgentStreamEvent::ToolCall { call_id: call_id.clone(), tool: tool.clone(), args }).await;
            sink.emit(AgentStreamEvent::ToolResult { call_id, tool, result: json!(""), ok, duration_ms: 1 }).await;
        }
        for title in ["Old", "New"] {
            let artifact = ArtifactRef {
                id: "r".to_owned(),
                title: Some(title.to_owned()),
                reference: Some("artifacts/t/r.md".to_owned()),
                ..ArtifactRef::default()
            };
            sink.emit(AgentStreamEvent::Artifact { artifact }).await;
        }
        sink.emit(AgentStreamEvent::Plan { plan: json!({ "proposal": "x" }) }).await;
        let base = json!({ "taskId": TaskId::new(1), "attempt": 1, "sessionId": SessionId::new(1), "agentId": "dev", "goal": "g" });
        let submit: TaskSubmit = serde_json::from_value(base).expect("a task");
        let note = |note: &str, became: &str| json!({ "note": note, "kind": "memory", "became": became });
        let memory =
            json!({ "notes": [note("note a", "applied"), note("note b", "refused"), note("note c", "proposed")] });
        let summary = "Done.".to_owned();
        let ending =
            EventBody::Completed { result: TaskResult { summary, memory: Some(memory), ..TaskResult::default() } };
        let task_summary = activity.task_summary(&submit, &ending).expect("a story");
        assert_eq!(task_summary.decisions, ["note a", "note c"], "what was suggested in words counts, too");
        assert_eq!(task_summary.artifacts, ["New (artifacts/t/r.md)"]);
        assert_eq!((task_summary.plan, task_summary.outcome), (None, SummaryOutcome::Completed("Done.".to_owned())));
        assert_eq!(*heard.lock().expect("no test panics with it"), 7, "everything is passed on");
        assert!(activity.task_summary(&submit, &EventBody::Accepted {}).is_none());
    }
}
