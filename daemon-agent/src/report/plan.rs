//! The plan of the session that a task belongs to: a file of the workspace, changed by the agent as the session's policy
//! allows.
//!
//! Owns how a change becomes a new version of the file or a proposal, and what is reported of it. Refuses to know Markdown
//! (`protocol::plan`) and how a file is written safely (`workspace`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::{
    AgentStreamEvent, Policy, TaskSubmit,
    limits::MAX_EVENT,
    plan::{self, Status, Steps},
};
use serde_json::{Value, json};

use super::Sink;
use crate::workspace::{By, State, Workspace};

/// The name of a plan's file: in its session's folder, or in the workspace for sessions that began on the machine.
pub const OWN: &str = "task.md";
/// A change is made anew on what somebody else wrote meanwhile, so often.
const TRIES: usize = 4;
/// Largest report of a plan, bytes of JSON.
const EVENT: usize = MAX_EVENT - 8 * 1024;
/// Longest note of a proposal, bytes.
const MAX_NOTE: usize = 1000;

/// The plan of one attempt's session. Cheap to clone.
#[derive(Clone)]
pub struct PlanEditor(Arc<Desk>);

struct Desk {
    workspace: Workspace,
    /// Beneath the workspace.
    path: String,
    folder: String,
    policy: Mutex<Policy>,
    /// Used when there is no file: what the Board sent.
    sent: String,
    sink: Sink,
    /// What this attempt proposed last: later changes go on from it.
    proposed: Mutex<Option<String>>,
    /// One change after the other.
    turn: tokio::sync::Mutex<()>,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Became {
    /// It says what it said before.
    Same,
    Applied,
    Proposed,
    /// Ticks were made, the rest is proposed.
    Both,
}

/// A text as it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    pub markdown: String,
    /// Of the file; `None`: there is none.
    pub hash: Option<String>,
}

impl PlanEditor {
    /// The editor of the attempt `submit`; `local` says that it began on this machine.
    pub async fn open(submit: &TaskSubmit, workspace: Workspace, sink: Sink, local: bool) -> Self {
        let folder = format!("sessions/{}", submit.session_id);
        let session = format!("{folder}/{OWN}");
        let sent = submit.plan.as_ref().and_then(|value| plan::markdown_of(value, "").ok()).unwrap_or_default();
        let own = local && sent.is_empty() && look(&workspace, &session).await.hash.is_none();
        let editor = Self(Arc::new(Desk {
            workspace,
            path: if own { OWN.to_owned() } else { session },
            folder,
            policy: Mutex::new(submit.plan_policy),
            sent,
            sink,
            proposed: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }));
        editor.take_over(submit).await;
        editor
    }

    /// A plan that came without the hash of a known version is an operator's own words for this run: it is written.
    async fn take_over(&self, submit: &TaskSubmit) {
        let fresh = submit.plan.as_ref().is_some_and(|plan| plan.get("hash").is_none_or(Value::is_null));
        if !fresh || self.0.sent.trim().is_empty() {
            return;
        }
        let now = look(&self.0.workspace, &self.0.path).await;
        if let Ok(Some(hash)) = self.put(now.hash.as_deref(), &self.0.sent, By::Board).await {
            self.tell(&self.0.sent, &hash).await;
        }
    }

    /// The plan's file, beneath the workspace.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// Where the session's files lie, beneath the workspace.
    pub fn folder(&self) -> &str {
        &self.0.folder
    }

    /// The plan as it stands: the file, else what the Board sent.
    pub async fn now(&self) -> Standing {
        let found = look(&self.0.workspace, &self.0.path).await;
        if found.hash.is_none() { Standing { markdown: self.0.sent.clone(), hash: None } } else { found }
    }

    /// The plan as a model is shown it, with the place of its file; `None` when there is none.
    pub async fn shown(&self) -> Option<Value> {
        let now = self.now().await.markdown;
        let file = &self.0.path;
        (!now.trim().is_empty()).then(|| Value::String(format!("(in the workspace's file {file})\n\n{}", now.trim())))
    }

    /// `result.plan` of the task: what is in force at its end.
    pub async fn result(&self) -> Option<Value> {
        let now = self.now().await;
        let hash = now.hash.filter(|_| now.markdown.len() <= plan::MAX_PLAN);
        hash.map(|hash| json!({ "markdown": now.markdown, "hash": hash }))
    }

    /// How changes are treated from here on.
    pub fn treat(&self, policy: Policy) {
        *held(&self.0.policy) = policy;
    }

    /// Whether changes become proposals.
    pub fn proposes(&self) -> bool {
        *held(&self.0.policy) == Policy::Propose
    }

    /// Changes the plan: `change` makes the new text from the one it goes on from.
    pub async fn change(
        &self,
        note: &str,
        change: impl Fn(&str) -> Result<String, plan::Refused> + Send,
    ) -> Result<Became, String> {
        let _turn = self.0.turn.lock().await;
        for _ in 0..TRIES {
            let now = self.now().await;
            let from = held(&self.0.proposed).clone().filter(|_| self.proposes());
            let from = from.unwrap_or_else(|| now.markdown.clone());
            let wanted = change(&from).and_then(plan::fits).map_err(|why| why.to_string())?;
            if wanted == from {
                return Ok(Became::Same);
            }
            let apply = if self.proposes() { ticked(&now.markdown, &wanted) } else { wanted.clone() };
            let (mut hash, moved) = (now.hash.clone(), apply != now.markdown);
            if moved {
                match self.put(now.hash.as_deref(), &apply, By::Agent).await? {
                    // Somebody wrote in between: once more, on what stands there now.
                    None => continue,
                    Some(written) => {
                        self.tell(&apply, &written).await;
                        hash = Some(written);
                    }
                }
            }
            if apply == wanted {
                held(&self.0.proposed).take();
                return Ok(Became::Applied);
            }
            self.propose(wanted, hash, note).await?;
            return Ok(if moved { Became::Both } else { Became::Proposed });
        }
        Err("the plan's file is being changed by somebody else; look at it and try again".to_owned())
    }

    async fn propose(&self, wanted: String, base: Option<String>, note: &str) -> Result<(), String> {
        let mut plan = json!({ "proposal": wanted, "base": base });
        if !note.trim().is_empty() {
            plan["note"] = protocol::text::head(note.trim(), MAX_NOTE).into();
        }
        if plan.to_string().len() > EVENT {
            return Err("the plan holds too many characters that are none".to_owned());
        }
        *held(&self.0.proposed) = Some(wanted);
        self.0.sink.emit(AgentStreamEvent::Plan { plan }).await;
        Ok(())
    }

    /// Writes a file of the session beside its plan, whatever stands there. Its hash.
    pub async fn write_beside(&self, name: &str, text: &str) -> Result<String, String> {
        let path = format!("{}/{name}", self.0.folder);
        for _ in 0..TRIES {
            let now = look(&self.0.workspace, &path).await;
            if let Some(hash) = put(&self.0.workspace, &path, now.hash.as_deref(), text, By::Agent).await? {
                return Ok(hash);
            }
        }
        Err(format!("{path} is being changed by somebody else"))
    }

    /// A file of the session beside its plan.
    pub async fn beside(&self, name: &str) -> Standing {
        look(&self.0.workspace, &format!("{}/{name}", self.0.folder)).await
    }

    async fn put(&self, base: Option<&str>, text: &str, by: By) -> Result<Option<String>, String> {
        put(&self.0.workspace, &self.0.path, base, text, by).await
    }

    async fn tell(&self, markdown: &str, hash: &str) {
        let plan = json!({ "markdown": markdown, "hash": hash, "path": self.0.path });
        // Escapes may make six bytes of one: then the file speaks for itself.
        let plan = if plan.to_string().len() <= EVENT { plan } else { json!({ "hash": hash }) };
        self.0.sink.emit(AgentStreamEvent::Plan { plan }).await;
    }
}

/// `now` with the steps that `wanted` has too as far as `wanted` has them, and nothing else of it.
fn ticked(now: &str, wanted: &str) -> String {
    let (mut steps, wanted) = (Steps::of(now), Steps::of(wanted));
    for step in &mut steps.steps {
        let same = wanted.steps.iter().find(|other| other.id == step.id && other.title == step.title);
        let Some(same) = same else { continue };
        step.status = same.status;
        for todo in step.todos.iter_mut().flatten() {
            let like = same.todos.iter().flatten().find(|other| other.title == todo.title);
            todo.status = like.map_or(todo.status, |like| like.status);
        }
    }
    steps.onto(now).unwrap_or_else(|_| now.to_owned())
}

/// The file, or nothing when it is not there or cannot be read as text.
async fn look(workspace: &Workspace, path: &str) -> Standing {
    let (workspace, path) = (workspace.clone(), path.to_owned());
    match tokio::task::spawn_blocking(move || workspace.text(&path)).await {
        Ok(Ok(Some((markdown, hash)))) => Standing { markdown, hash: Some(hash) },
        _ => Standing::default(),
    }
}

/// Writes a version; `None` when the file is not `base` any more.
async fn put(
    workspace: &Workspace,
    path: &str,
    base: Option<&str>,
    text: &str,
    by: By,
) -> Result<Option<String>, String> {
    let (workspace, path) = (workspace.clone(), path.to_owned());
    let (base, text) = (base.map(str::to_owned), text.to_owned());
    let written = tokio::task::spawn_blocking(move || workspace.put(&path, base.as_deref(), text.as_bytes(), by)).await;
    match written {
        Ok(Ok(written)) => Ok(written.hash.filter(|_| written.state == State::Applied)),
        Ok(Err(refused)) => Err(format!("the plan's file cannot be written: {refused}")),
        Err(error) => Err(format!("the plan's file cannot be written: {error}")),
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a status as models write it.
pub fn status(word: &str) -> Option<Status> {
    serde_json::from_value(Value::String(word.trim().to_lowercase().replace(' ', "_"))).ok()
}

#[cfg(test)]
mod tests;
