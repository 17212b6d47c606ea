//! The supervisor of a run: a task on the viber of the playbook. It is started over when it fails, with what was done before it.

use protocol::{PlaybookTask, text::head};
use serde_json::{Value, json};

use super::{
    ledger,
    play::{MAX_FAILURE_BYTES, Play},
    start,
};
use crate::{
    actions::tasks::{self, NewTask, RunTask},
    db,
    domain::{ChildTask, RunEvent, RunEventKind, Task, TaskState, playbook_run::goal},
    error::{Error, Result},
};

/// The agent that supervises, if the viber has it.
const SUPERVISOR_AGENT: &str = "supervisor";

impl Play<'_, '_> {
    /// Starts the supervisor, or starts it over.
    pub(super) async fn supervise(&mut self) -> Result<()> {
        let viber = db::vibers::load(self.tx, &self.now.run.viber_id).await?.ok_or(Error::NotFound)?;
        start::can_supervise(&viber)?;
        let before = self.now.task(self.now.run.supervisor.as_ref()).map(|task| (task.id.clone(), task.state));
        let is_first = self.now.run.supervisor.is_none();
        let why = self.now.supervisor_end();
        let task = match before {
            Some((id, TaskState::Error | TaskState::Stopped)) => {
                let mut task = db::tasks::load(self.tx, &id).await?.ok_or(Error::NotFound)?;
                task.payload["context"] = self.context().await?;
                db::tasks::set_payload(self.tx, &id, &task.payload).await?;
                tasks::begin_again(self.tx, &id, &tasks::Retry::default(), &mut self.after).await?
            }
            _ => self.submit_supervisor().await?,
        };
        let run = &mut self.now.run;
        self.after.follow(&run.id, &task.id);
        // What is known of its task is out of date.
        self.now.tasks.retain(|known| known.id != task.id);
        self.now.tasks.push(ChildTask {
            id: task.id.clone(),
            state: task.state,
            attempt: task.attempt,
            error: None,
            ended_at: None,
            summary: String::new(),
            usage: task.usage,
        });
        run.supervisor = Some(task.id);
        run.supervisor_session = Some(task.session_id);
        run.supervisor_attempts += 1;
        if !is_first {
            let why = head(&why, MAX_FAILURE_BYTES);
            let text = format!("The supervisor was started again, attempt {}, because: {why}", run.supervisor_attempts);
            let event = RunEvent::of_run(RunEventKind::SupervisorRetried, &text, None, self.tx.now);
            self.event(event).await?;
        }
        self.save().await
    }

    /// A new task: in the session of the one before it, if that ended without an end of the run.
    async fn submit_supervisor(&mut self) -> Result<Task> {
        let is_first = self.now.run.supervisor.is_none();
        let payload = if is_first { None } else { Some(json!({ "context": self.context().await? })) };
        let run = &self.now.run;
        let session = match run.supervisor_session.as_ref() {
            Some(session) => db::sessions::load(self.tx, session).await?,
            None => None,
        };
        let (goal, agent) = match &session {
            Some(session) => (goal::of_next_supervisor(run, &self.now.steps), session.agent_id.clone()),
            None => {
                let goal = goal::of_supervisor(run, &start::playbook_of(run)?, &self.now.steps);
                let viber = db::vibers::candidate(self.tx, &run.viber_id).await?;
                let agents = viber.map(|viber| viber.agents).unwrap_or_default();
                let has_own = agents.iter().any(|agent| agent.id == SUPERVISOR_AGENT);
                (goal, if has_own { SUPERVISOR_AGENT } else { "default" }.to_owned())
            }
        };
        let of_run = RunTask {
            playbook: PlaybookTask { run_id: run.id.clone(), step: None },
            started_by: run.started_by.clone(),
            files: Vec::new(),
        };
        let new = NewTask {
            goal,
            session: session.map(|session| session.id),
            viber: Some(run.viber_id.clone()),
            agent: Some(agent),
            payload,
            of_run: Some(of_run),
            ..NewTask::default()
        };
        let (task, after) = tasks::check(new)?.run_within(self.tx).await?;
        self.after = after;
        Ok(task)
    }

    /// What was done in the run until now, for a supervisor that goes on.
    async fn context(&mut self) -> Result<Value> {
        let text = ledger(self.tx, &self.now.run.id).await?;
        Ok(json!({ "ledger": text.unwrap_or_default() }))
    }
}
