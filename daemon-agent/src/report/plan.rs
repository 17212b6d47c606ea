//! The plan of a task's session: a file in the workspace that the agent changes as the session's policy allows.
//!
//! Owns how a change becomes a new version of the file or a proposal, and what is reported of it. Does not know
//! Markdown (`protocol::plan`) and how a file is written safely (`workspace`).

mod authorship;

use std::{
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use protocol::{
    AgentStreamEvent, Policy, TaskSubmit,
    limits::MAX_EVENT_BYTES,
    plan::{self, Status, Steps},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::authorship::{AgentLines, PlanLines, replaces};
use super::Sink;
use crate::{
    fault,
    home::Home,
    workspace::{Author, LocalWriteState, Workspace},
};

/// The name of a plan's file: in its session's folder, or in the workspace for sessions that began on the machine.
pub const PLAN_FILE: &str = "task.md";
/// Most attempts to apply a change when somebody else keeps writing to the file.
const MAX_WRITE_ATTEMPTS: usize = 4;
/// Largest report of a plan, bytes of JSON.
const MAX_CONTENT_BYTES: usize = MAX_EVENT_BYTES - 8 * 1024;
/// Longest note of a proposal, bytes.
const MAX_NOTE_BYTES: usize = 1000;
/// The note of a proposal that the policy did not ask for.
const REPLACING_NOTE: &str = "This would replace what a person wrote.";
/// The note of a proposal for text that appeared in the file without a tool.
pub const FOUND_NOTE: &str = "Written into the file while a command ran.";

/// The plan of one attempt's session. Cheap to clone.
#[derive(Clone)]
pub struct PlanEditor(Arc<Inner>);

struct Inner {
    workspace: Workspace,
    /// Beneath the workspace.
    path: String,
    folder: String,
    policy: Mutex<Policy>,
    /// What of it the agent wrote.
    own: AgentLines,
    /// The plan that the Board sent, used if there is no file.
    sent: String,
    sink: Sink,
    /// What this attempt proposed last: later changes are based on it.
    proposed: Mutex<Option<String>>,
    /// Held during a change, so that changes are made one after another.
    turn: tokio::sync::Mutex<()>,
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanOutcome {
    /// The plan said that already.
    Same,
    Applied,
    Proposed,
    /// Steps were ticked, and the rest is proposed.
    Both,
}

/// A plan's current text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanText {
    pub markdown: String,
    /// The file's hash; `None` if there is no file.
    pub hash: Option<String>,
}

impl PlanEditor {
    /// The editor for the attempt `submit`; `local` says that it began on this machine.
    pub async fn open(submit: &TaskSubmit, home: &Home, workspace: Workspace, sink: Sink, local: bool) -> Self {
        let folder = format!("sessions/{}", submit.session_id);
        let session = format!("{folder}/{PLAN_FILE}");
        let sent = submit.plan.as_ref().and_then(|value| plan::markdown_of(value, "").ok()).unwrap_or_default();
        let own = local && sent.is_empty() && look(&workspace, &session).await.hash.is_none();
        let editor = Self(Arc::new(Inner {
            workspace,
            own: AgentLines::of(home, if own { "machine" } else { submit.session_id.as_str() }),
            path: if own { PLAN_FILE.to_owned() } else { session },
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

    /// Writes a plan that came without the hash of a known version: it is an operator's own text for this run.
    async fn take_over(&self, submit: &TaskSubmit) {
        let fresh = submit.plan.as_ref().is_some_and(|plan| plan.get("hash").is_none_or(Value::is_null));
        if !fresh || self.0.sent.trim().is_empty() {
            return;
        }
        let now = look(&self.0.workspace, &self.0.path).await;
        if let Ok(Some(hash)) = self.put(now.hash.as_deref(), &self.0.sent, Author::Board).await {
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

    /// The current plan: the file, or else what the Board sent.
    pub async fn now(&self) -> PlanText {
        let found = look(&self.0.workspace, &self.0.path).await;
        if found.hash.is_none() { PlanText { markdown: self.0.sent.clone(), hash: None } } else { found }
    }

    /// The plan as it is shown to a model, with its file's path; `None` if there is none.
    pub async fn shown(&self) -> Option<Value> {
        let (now, file) = (self.now().await.markdown, &self.0.path);
        let head = format!("(in the workspace's file {file}, which no tool but `update_plan` writes)");
        (!now.trim().is_empty()).then(|| Value::String(format!("{head}\n\n{}", now.trim())))
    }

    /// `result.plan` of the task: the plan in force at its end.
    pub async fn result(&self) -> Option<Value> {
        let now = self.now().await;
        let hash = now.hash.filter(|_| now.markdown.len() <= plan::MAX_PLAN_BYTES);
        hash.map(|hash| json!({ "markdown": now.markdown, "hash": hash }))
    }

    /// What this attempt proposed last.
    pub fn proposed(&self) -> Option<String> {
        held(&self.0.proposed).clone()
    }

    /// Goes on from what this attempt proposed before a restart.
    pub fn go_on_from(&self, proposed: Option<String>) {
        *held(&self.0.proposed) = proposed;
    }

    /// Sets how changes are treated from now on.
    pub fn treat(&self, policy: Policy) {
        *held(&self.0.policy) = policy;
    }

    /// Whether changes become proposals.
    pub fn proposes(&self) -> bool {
        *held(&self.0.policy) == Policy::Propose
    }

    /// The files, beneath the workspace, that file tools and commands must not write, whatever the policy: the session's
    /// plan, and the one of sessions that began on the machine. What was written past this editor would be nobody's.
    pub fn closed_files(&self) -> [String; 2] {
        [PLAN_FILE.to_owned(), format!("{}/{PLAN_FILE}", self.0.folder)]
    }

    /// Changes the plan for the agent: `change` makes the new text from the current one. What a person wrote is replaced
    /// by a proposal alone.
    pub async fn change(
        &self,
        note: &str,
        change: impl Fn(&str) -> Result<String, plan::PlanError> + Send,
    ) -> Result<PlanOutcome, String> {
        self.change_by(Author::Agent, note, change).await
    }

    /// Makes `text` the plan, which was found in the file while a command ran and was put back. Like a change by the agent,
    /// but nobody knows whose hand it was: its lines are not recorded as the agent's, so they count as a person's.
    pub async fn take_up(&self, text: &str) -> Result<PlanOutcome, String> {
        self.change_by(Author::File, FOUND_NOTE, |_| Ok(text.to_owned())).await
    }

    async fn change_by(
        &self,
        by: Author,
        note: &str,
        change: impl Fn(&str) -> Result<String, plan::PlanError> + Send,
    ) -> Result<PlanOutcome, String> {
        let is_agents = by == Author::Agent;
        let _turn = self.0.turn.lock().await;
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let now = self.now().await;
            let proposed = held(&self.0.proposed).clone().filter(|_| is_agents);
            let from = proposed.unwrap_or_else(|| now.markdown.clone());
            let wanted = change(&from).and_then(plan::fits).map_err(|why| why.to_string())?;
            if wanted == from {
                return Ok(PlanOutcome::Same);
            }
            let persons = self.persons_lines(&now.markdown).await;
            let replaces = replaces(&persons, &wanted);
            let apply = if replaces || self.proposes() { ticked(&now.markdown, &wanted) } else { wanted.clone() };
            let (mut hash, moved) = (now.hash.clone(), apply != now.markdown);
            if moved {
                let base = now.hash.as_deref();
                let written = if is_agents {
                    self.put_own(base, &apply, &persons).await?
                } else {
                    self.put(base, &apply, by).await?
                };
                // Another writer changed the file in between: try again with the current content.
                let Some(written) = written else { continue };
                // What others write is reported with the workspace's changes.
                if is_agents {
                    self.tell(&apply, &written).await;
                }
                hash = Some(written);
            }
            if apply == wanted {
                held(&self.0.proposed).take();
                return Ok(PlanOutcome::Applied);
            }
            let unasked = replaces && !self.proposes() && note.trim().is_empty();
            self.propose(&wanted, hash, if unasked { REPLACING_NOTE } else { note }).await?;
            if is_agents {
                self.remember(move |own| own.proposed(&wanted, &persons)).await;
            }
            return Ok(if moved { PlanOutcome::Both } else { PlanOutcome::Proposed });
        }
        Err("another writer keeps changing the plan's file; read it and try again".to_owned())
    }

    /// Writes a version of the agent's. Its lines are recorded before the file is written, those of the version before
    /// are forgotten after it: a crash in between makes none of them a person's.
    async fn put_own(&self, base: Option<&str>, text: &str, persons: &PlanLines) -> Result<Option<String>, String> {
        let (begun, theirs) = (text.to_owned(), persons.clone());
        let before = self.remember(move |own| own.begins(&begun, &theirs)).await;
        let written = self.put(base, text, Author::Agent).await;
        fault::at("plan::written");
        match (&written, before) {
            (Ok(Some(_)), _) => {
                let (text, theirs) = (text.to_owned(), persons.clone());
                self.remember(move |own| own.wrote(&text, &theirs)).await;
            }
            (Ok(None) | Err(_), Some(before)) => _ = self.remember(move |own| own.left(before)).await,
            (Ok(None) | Err(_), None) => {}
        }
        written
    }

    /// The lines of the plan that a person wrote.
    async fn persons_lines(&self, plan: &str) -> PlanLines {
        let (own, plan) = (self.0.own.clone(), plan.to_owned());
        tokio::task::spawn_blocking(move || own.persons_lines(&plan)).await.unwrap_or_default()
    }

    /// Keeps which lines are the agent's. Where that fails, they count as a person's.
    async fn remember<T: Send + fmt::Debug + 'static>(
        &self,
        change: impl FnOnce(&AgentLines) -> io::Result<T> + Send + 'static,
    ) -> Option<T> {
        let own = self.0.own.clone();
        match tokio::task::spawn_blocking(move || change(&own)).await {
            Ok(Ok(done)) => Some(done),
            failed => {
                tracing::warn!(plan = self.0.path, ?failed, "which lines of a plan are its agent's is not kept");
                None
            }
        }
    }

    async fn propose(&self, wanted: &str, base: Option<String>, note: &str) -> Result<(), String> {
        let mut plan = json!({ "proposal": wanted, "base": base });
        if !note.trim().is_empty() {
            plan["note"] = protocol::text::head(note.trim(), MAX_NOTE_BYTES).into();
        }
        if plan.to_string().len() > MAX_CONTENT_BYTES {
            return Err("the plan contains too many control characters to be reported".to_owned());
        }
        *held(&self.0.proposed) = Some(wanted.to_owned());
        self.0.sink.emit(AgentStreamEvent::Plan { plan }).await;
        Ok(())
    }

    /// Writes a file of the session beside its plan, replacing what is there. Returns its hash.
    pub async fn write_beside(&self, name: &str, text: &str) -> Result<String, String> {
        let path = format!("{}/{name}", self.0.folder);
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let now = look(&self.0.workspace, &path).await;
            if let Some(hash) = put(&self.0.workspace, &path, now.hash.as_deref(), text, Author::Agent).await? {
                return Ok(hash);
            }
        }
        Err(format!("another writer keeps changing {path}"))
    }

    /// A file of the session beside its plan.
    pub async fn beside(&self, name: &str) -> PlanText {
        look(&self.0.workspace, &format!("{}/{name}", self.0.folder)).await
    }

    async fn put(&self, base: Option<&str>, text: &str, by: Author) -> Result<Option<String>, String> {
        put(&self.0.workspace, &self.0.path, base, text, by).await
    }

    async fn tell(&self, markdown: &str, hash: &str) {
        let plan = json!({ "markdown": markdown, "hash": hash, "path": self.0.path });
        // Escaping may turn one byte into six: then only the hash is reported.
        let plan = if plan.to_string().len() <= MAX_CONTENT_BYTES { plan } else { json!({ "hash": hash }) };
        self.0.sink.emit(AgentStreamEvent::Plan { plan }).await;
    }
}

/// `now` with only the statuses of its steps taken from `wanted`.
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

/// The file; empty if it does not exist or cannot be read as text.
async fn look(workspace: &Workspace, path: &str) -> PlanText {
    let (workspace, path) = (workspace.clone(), path.to_owned());
    match tokio::task::spawn_blocking(move || workspace.text(&path)).await {
        Ok(Ok(Some((markdown, hash)))) => PlanText { markdown, hash: Some(hash) },
        _ => PlanText::default(),
    }
}

/// Writes a version; `None` if the file is not `base` any more.
async fn put(
    workspace: &Workspace,
    path: &str,
    base: Option<&str>,
    text: &str,
    by: Author,
) -> Result<Option<String>, String> {
    let (workspace, path) = (workspace.clone(), path.to_owned());
    let (base, text) = (base.map(str::to_owned), text.to_owned());
    let written = tokio::task::spawn_blocking(move || workspace.put(&path, base.as_deref(), text.as_bytes(), by)).await;
    match written {
        Ok(Ok(written)) => Ok(written.hash.filter(|_| written.state == LocalWriteState::Applied)),
        Ok(Err(refused)) => Err(format!("the plan's file cannot be written: {refused}")),
        Err(error) => Err(format!("the plan's file cannot be written: {error}")),
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Parses a status as models write it.
pub fn status(word: &str) -> Option<Status> {
    serde_json::from_value(Value::String(word.trim().to_lowercase().replace(' ', "_"))).ok()
}

#[cfg(test)]
mod tests;
