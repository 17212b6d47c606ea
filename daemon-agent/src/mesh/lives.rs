//! Beginning attempts, and ending all of them when the daemon ends.

use std::time::Duration;

use protocol::{EventBody, Running, TaskError, TaskSubmit};
use tokio::time::sleep;

use super::{Live, Mesh, Unfetched, attempt_of};
use crate::{
    fault,
    memory::Story,
    task::{self, Cause, StopSwitch},
};

/// Between two tries at something that the disk or the network refused.
pub(super) const AGAIN: Duration = Duration::from_secs(2);
/// An entry of the day's log takes no longer.
const ENTRY: Duration = Duration::from_secs(10);

impl Mesh {
    /// Begins what waits, as far as there is room: also asked when the files have changed how much there is.
    pub fn pump(&self) {
        loop {
            let most = self.shared.ground.files.borrow().config.max_tasks;
            let next = {
                let mut state = self.state();
                let room = state.running.values().filter(|live| !live.local).count() < most;
                if state.drained || state.closing || state.paused || !room { None } else { state.queue.pop_front() }
            };
            let Some(submit) = next else { return };
            self.start(submit, false);
        }
    }

    /// Begins an attempt now.
    pub(super) fn start(&self, submit: TaskSubmit, local: bool) {
        let (attempt, stop) = (attempt_of(&submit), StopSwitch::default());
        let live = Live { agent_id: submit.agent_id.clone(), stop: stop.clone(), local };
        self.state().running.insert(attempt.clone(), live);
        self.ring();
        let mesh = self.clone();
        self.shared.tracker.spawn(async move {
            let (ending, story) = mesh.live(submit, &attempt, stop).await;
            mesh.end(&attempt, ending, story).await;
        });
    }

    async fn live(&self, submit: TaskSubmit, attempt: &Running, stop: StopSwitch) -> (EventBody, Option<Story>) {
        let token = stop.token().clone();
        let fetched = token.run_until_cancelled(async { self.carried(self.whole(submit).await?).await }).await;
        let submit = match fetched {
            Some(Ok(submit)) => submit,
            Some(Err(error)) => return (EventBody::Error { error }, None),
            None => return (ended_early(&stop), None),
        };
        fault::at("task::before_begun");
        let begun = token.run_until_cancelled(self.begun(attempt)).await;
        if begun.is_none() {
            return (ended_early(&stop), None);
        }
        let ground = task::Ground {
            home: self.shared.ground.home.clone(),
            outbox: self.outbox().clone(),
            memory: self.memory().clone(),
            files: self.shared.ground.files.borrow().clone(),
            stop,
            approvals: self.shared.approvals.clone(),
            local: self.state().running.get(attempt).is_some_and(|live| live.local),
        };
        tracing::info!(task.id = %attempt.task_id, attempt = attempt.attempt, agent.id = submit.agent_id, "a task begins");
        fault::at("task::before_spawn");
        fault::note("begin", &attempt.task_id, attempt.attempt, std::process::id());
        let ended = task::run(submit, &ground, self.clock().now()).await;
        fault::at("task::before_end");
        ended
    }

    /// The task's entry in the log of its day. Nothing depends on it.
    pub(super) async fn enter(&self, story: Option<Story>) {
        let Some(story) = story else { return };
        self.memory().logged(&story.agent_id, &story.session_id);
        if !self.shared.ground.files.borrow().config.daily_log {
            return;
        }
        let entered = match tokio::time::timeout(ENTRY, self.memory().enter(&story)).await {
            Ok(entered) => entered.map(drop),
            Err(_) => Err("the file system does not answer".to_owned()),
        };
        fault::at("memory::after_entry");
        if let Err(why) = entered {
            tracing::warn!(task.id = %story.attempt.task_id, "the log of the day has no entry of a task: {why}");
        }
    }

    /// The task with everything in it.
    async fn whole(&self, submit: TaskSubmit) -> Result<TaskSubmit, TaskError> {
        let Some(path) = submit.payload_url.clone() else { return Ok(submit) };
        loop {
            match (self.shared.ground.fetch)(path.clone()).await {
                Ok(bytes) => {
                    return match serde_json::from_slice::<TaskSubmit>(&bytes) {
                        Ok(whole) if attempt_of(&whole) == attempt_of(&submit) => {
                            Ok(TaskSubmit { payload_url: None, ..whole })
                        }
                        Ok(_) => Err(not_fetched("the Board answered with another task")),
                        Err(error) => Err(not_fetched(&format!("it is not understood: {error}"))),
                    };
                }
                Err(Unfetched::Never(why)) => return Err(not_fetched(&why)),
                Err(Unfetched::Later(why)) => {
                    tracing::warn!(task.id = %submit.task_id, "the task's content is not here yet: {why}");
                    sleep(AGAIN).await;
                }
            }
        }
    }

    /// The same with its files beside the workspace's own.
    async fn carried(&self, submit: TaskSubmit) -> Result<TaskSubmit, TaskError> {
        for file in &submit.attachments {
            let place = self.home().attachment(submit.task_id.as_str(), &file.name).ok_or_else(|| {
                not_fetched(&format!("an attachment has the name {:?}", protocol::text::head(&file.name, 100)))
            })?;
            loop {
                match (self.shared.ground.carry)(file.clone(), place.clone()).await {
                    Ok(()) => break,
                    Err(Unfetched::Never(why)) => return Err(not_fetched(&why)),
                    Err(Unfetched::Later(why)) => {
                        tracing::warn!(task.id = %submit.task_id, "an attachment is not here yet: {why}");
                        sleep(AGAIN).await;
                    }
                }
            }
        }
        Ok(submit)
    }

    /// Journals that the engine is about to start, however long the disk takes.
    async fn begun(&self, attempt: &Running) {
        // A second witness, which stands in another file: the journal alone must not decide.
        let (outbox, named) = (self.outbox().clone(), attempt.clone());
        let noted = tokio::task::spawn_blocking(move || outbox.begins(&named));
        let journalled = self.journal_begun(attempt);
        let (noted, ()) = tokio::join!(noted, journalled);
        if let Err(error) = noted.map_err(std::io::Error::other).flatten() {
            tracing::warn!(task.id = %attempt.task_id, "the outbox does not say that the task begins: {error}");
        }
    }

    async fn journal_begun(&self, attempt: &Running) {
        loop {
            let named = attempt.clone();
            match self.blocking(move |journal| journal.begun(&named)).await.flatten() {
                Ok(()) => return,
                Err(error) => tracing::warn!(task.id = %attempt.task_id, "the journal cannot be written: {error}"),
            }
            sleep(AGAIN).await;
        }
    }

    /// Begins nothing new. Returns when nothing runs any more.
    pub async fn close(&self) {
        self.state().closing = true;
        let mut changes = self.changes();
        while self.load().0 > 0 {
            // The sender lives in this mesh.
            let _ = changes.changed().await;
        }
    }

    /// Ends everything that runs because the daemon ends. What waits stays in the journal.
    pub fn cut(&self) {
        let mut state = self.state();
        state.closing = true;
        for live in state.running.values_mut() {
            live.stop.stop(Cause::Shutdown);
        }
    }
}

fn ended_early(stop: &StopSwitch) -> EventBody {
    stop.cause().unwrap_or(Cause::Shutdown).ending(0)
}

fn not_fetched(why: &str) -> TaskError {
    TaskError {
        code: protocol::ErrorCode::BadRequest,
        message: format!("The task's content could not be fetched from the Board: {why}."),
        retryable: true,
        suggestion: None,
        details: None,
    }
}
