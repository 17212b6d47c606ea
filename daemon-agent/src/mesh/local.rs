//! What begins on this machine: tasks of people at its command line, and what people say through its adapters.

mod decide;
mod files;
mod resume;
mod say;
mod store;

use std::{io, path::PathBuf};

use protocol::{
    Attachment, AttemptRef, Command, EventBody, NumberedCommand, Policy, ReportedDetail, SessionId, TaskId, TaskSubmit,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{LiveAttempt, Mesh, StopCause, attempt_of};
use crate::session_log;

pub(super) use decide::LocalState;
pub use decide::{DecideError, Interrupted};
pub use say::{AcceptedMessage, SayError};
pub(super) use store::SaidStore;

/// Longest goal of an announced task, bytes: it fits an event however JSON escapes it.
const MAX_ANNOUNCED_GOAL_BYTES: usize = 20 * 1024;

/// What a person on this machine asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LocalTask {
    pub goal: String,
    pub agent: String,
    /// The session that it continues; a new one when absent.
    #[serde(default)]
    pub session: Option<SessionId>,
    /// A folder that the agent works in for this task, before its own spaces.
    #[serde(default)]
    pub space: Option<PathBuf>,
}

/// A task of this machine as it begins.
pub(super) struct BegunHere {
    /// The adapter that it came by.
    pub origin: String,
    /// Who asked for it, if that is for others to read.
    pub author: Option<String>,
    pub task_id: TaskId,
    pub session_id: SessionId,
    pub agent_id: String,
    pub goal: String,
    pub context: Option<Value>,
    pub attachments: Vec<Attachment>,
    pub space: Option<PathBuf>,
}

impl Mesh {
    /// Starts a task of this machine at once, because a person waits for it. Returns its attempt.
    pub async fn begin_local(&self, origin: &str, asked: LocalTask) -> AttemptRef {
        let now = self.clock().now().millis();
        let LocalTask { goal, agent: agent_id, session, space } = asked;
        let session_id = session.unwrap_or_else(|| SessionId::new(now));
        let begun = BegunHere {
            origin: origin.to_owned(),
            author: None,
            task_id: TaskId::new(now),
            session_id,
            agent_id,
            goal,
            context: None,
            attachments: Vec::new(),
            space,
        };
        self.begin_here(begun).await
    }

    /// Announces a task of this machine, and starts it.
    pub(super) async fn begin_here(&self, begun: BegunHere) -> AttemptRef {
        let BegunHere { origin, author, task_id, session_id, agent_id, goal, context, attachments, space } = begun;
        let messages = session_log::turns(self.home().session_log(&agent_id, session_id.as_str())).await;
        let team = self.team_rules().await;
        let submit = TaskSubmit {
            task_id,
            attempt: 1,
            session_id: session_id.clone(),
            agent_id: agent_id.clone(),
            goal: goal.clone(),
            messages,
            plan: None,
            artifacts: Vec::new(),
            memory: Vec::new(),
            context,
            attachments,
            plan_policy: Policy::Apply,
            memory_policy: Policy::Propose,
            approve_first: false,
            stream: ReportedDetail::Full,
            mode: None,
            model: None,
            limits: team.limits,
            rules: team.rules,
            approval_minutes: team.approval_minutes,
            prices: team.prices,
            leash: None,
            deadline: None,
            no_files: false,
            spent: None,
            budget: None,
            compact: None,
            playbook: None,
            parent: None,
            children: Vec::new(),
            payload_url: None,
        };
        let attempt = attempt_of(&submit);
        self.outbox().begin(&attempt, &agent_id);
        let goal = protocol::text::head_and_tail(&goal, MAX_ANNOUNCED_GOAL_BYTES);
        let announce = EventBody::Announce { origin, agent_id, session_id, goal, parent: None, author };
        self.outbox().append(&attempt, announce);
        self.start_local(submit, space);
        attempt
    }

    /// Stops a task of this machine because its person has left.
    pub async fn abandon(&self, attempt: &AttemptRef) {
        let reason = "the command was interrupted".to_owned();
        let runs = self.state().running.contains_key(attempt);
        if runs && let Err(error) = self.note_stop(vec![attempt.clone()], reason.clone()).await {
            tracing::warn!(task.id = %attempt.task_id, "the journal cannot be written: {error}");
        }
        self.stop(&StopCause::Stop(reason), |running, _| running == attempt);
    }

    /// Puts on disk which tasks of this machine are stopped by new commands that name no task. The journal knows only tasks
    /// that commands requested.
    pub(super) async fn note_stops(&self, commands: &[NumberedCommand]) -> io::Result<()> {
        for NumberedCommand { cmd_seq, command } in commands {
            let (agent, reason) = match command {
                Command::StopAll { reason } => ("*", reason),
                Command::Interrupt { target_agent_id, reason } => (target_agent_id.as_str(), reason),
                _ => continue,
            };
            if self.shared.context.journal.knows(*cmd_seq) {
                continue;
            }
            let is_hit = |live: &LiveAttempt| live.local && (agent == "*" || live.agent_id == agent);
            let hit = self
                .state()
                .running
                .iter()
                .filter(|(_, live)| is_hit(live))
                .map(|(attempt, _)| attempt.clone())
                .collect();
            self.note_stop(hit, reason.clone()).await?;
        }
        Ok(())
    }

    pub(super) async fn note_stop(&self, attempts: Vec<AttemptRef>, reason: String) -> io::Result<()> {
        if attempts.is_empty() {
            return Ok(());
        }
        self.blocking(move |journal| journal.stopped(&attempts, &reason)).await?
    }
}
