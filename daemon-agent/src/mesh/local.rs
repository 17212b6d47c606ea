//! Tasks that begin on this machine, by a person at its command line.

use std::path::PathBuf;

use protocol::{
    AttemptRef, EventBody, Policy, ReportedDetail, SessionId, TaskId, TaskLimits, TaskSubmit, rules::ApprovalRules,
};
use serde::{Deserialize, Serialize};

use super::{Mesh, attempt_of};
use crate::session_log;

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

impl Mesh {
    /// Starts a task of this machine at once, because a person waits for it. Returns its attempt.
    pub async fn begin_local(&self, origin: &str, asked: LocalTask) -> AttemptRef {
        let now = self.clock().now().millis();
        let LocalTask { goal, agent: agent_id, session, space } = asked;
        let messages = match &session {
            Some(session) => session_log::turns(self.home().session_log(&agent_id, session.as_str())).await,
            None => Vec::new(),
        };
        let session_id = session.unwrap_or_else(|| SessionId::new(now));
        let submit = TaskSubmit {
            task_id: TaskId::new(now),
            attempt: 1,
            session_id: session_id.clone(),
            agent_id: agent_id.clone(),
            goal: goal.clone(),
            messages,
            plan: None,
            artifacts: Vec::new(),
            memory: Vec::new(),
            context: None,
            attachments: Vec::new(),
            plan_policy: Policy::Apply,
            memory_policy: Policy::Propose,
            approve_first: false,
            stream: ReportedDetail::Full,
            mode: None,
            model: None,
            limits: TaskLimits::default(),
            rules: ApprovalRules::default(),
            // Without a Board nobody could answer.
            approval_minutes: self.shared.context.board.is_none().then_some(0),
            prices: Vec::new(),
            leash: None,
            deadline: None,
            payload_url: None,
        };
        let attempt = attempt_of(&submit);
        self.outbox().begin(&attempt, &agent_id);
        let goal = protocol::text::head_and_tail(&goal, MAX_ANNOUNCED_GOAL_BYTES);
        let announce = EventBody::Announce { origin: origin.to_owned(), agent_id, session_id, goal };
        self.outbox().append(&attempt, announce);
        self.start_local(submit, space);
        attempt
    }
}
