//! Starts attempts, and ends those that work at shutdown.

mod children;
mod registry;

use std::{
    collections::{BTreeSet, VecDeque},
    path::PathBuf,
    time::Duration,
};

use protocol::{AttemptRef, EventBody, TaskError, TaskId, TaskSubmit};
use tokio::time::sleep;

pub(super) use children::AskedFor;

use super::{FetchError, LiveAttempt, Mesh, MeshState, RunningTask, attempt_of};
use crate::{
    fault,
    memory::TaskSummary,
    report::{Children, Inbox, PauseSwitch, Place, Question, Rest, activity::Pulse},
    task::{self, StopCause, StopSwitch, Work},
};

/// Time between two attempts at something that the disk or the network refused.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// How long an entry in the daily log may take.
const DAILY_LOG_TIMEOUT: Duration = Duration::from_secs(10);

impl Mesh {
    /// Lets attempts go on and starts waiting ones, up to the limit `maxTasks`; also called after a change of the
    /// configuration, which may have changed that limit.
    pub fn pump(&self) {
        loop {
            let most = self.shared.context.files.borrow().config.max_tasks;
            let next = {
                let mut state = self.state();
                if state.closing || state.paused {
                    return;
                }
                state.give_places(most);
                let next = state.next_queued(most);
                // Behind the same lock, so that no command misses it.
                next.map(|submit| (self.register(&mut state, &submit, Origin::of(&submit), Place::Taken), submit))
            };
            let Some((begun, submit)) = next else { return };
            self.spawn(begun, Work::New(Box::new(submit)), Vec::new());
        }
    }

    /// Starts an attempt of this machine now.
    pub(super) fn start_local(&self, submit: TaskSubmit, space: Option<PathBuf>) {
        let begun = self.register(&mut self.state(), &submit, Origin::Machine(space), Place::Taken);
        self.spawn(begun, Work::New(Box::new(submit)), Vec::new());
    }

    /// Makes an attempt one that runs: commands reach it from now on.
    pub(super) fn register(
        &self,
        state: &mut MeshState,
        submit: &TaskSubmit,
        origin: Origin,
        place: Place,
    ) -> RegisteredAttempt {
        let (attempt, stop) = (attempt_of(submit), StopSwitch::default());
        let rest = self.rest_of(&attempt, place);
        let (children, pulse) = (self.children_of(submit), Pulse::default());
        let (local, counts, space) = match origin {
            Origin::Board => (false, true, None),
            Origin::Machine(space) => (true, false, space),
            Origin::Agent { counts } => (true, counts, None),
        };
        let live = LiveAttempt {
            agent_id: submit.agent_id.clone(),
            session_id: submit.session_id.clone(),
            title: protocol::text::title(&submit.goal),
            since: self.clock().now(),
            stop: stop.clone(),
            rest: rest.clone(),
            children: children.clone(),
            pulse: pulse.clone(),
            local,
            counts,
        };
        state.running.insert(attempt.clone(), live);
        if let Some(place) = submit.parent.as_ref().filter(|place| place.local) {
            let (place, agent_id) = (place.clone(), submit.agent_id.clone());
            let asked = AskedFor { place, agent_id, title: protocol::text::title(&submit.goal) };
            state.asked_for.insert(attempt.clone(), asked);
        }
        let inbox = state.inboxes.entry(attempt.clone()).or_default().clone();
        let pause = state.pauses.entry(attempt.clone()).or_default().clone();
        RegisteredAttempt { attempt, stop, rest, children, pulse, inbox, pause, local, space }
    }

    /// Runs an attempt to its end. Its questions that are open already stay so until its engine has them.
    pub(super) fn spawn(&self, registered: RegisteredAttempt, work: Work, open: Vec<Question>) {
        self.ring();
        let mesh = self.clone();
        self.shared.tracker.spawn(async move {
            let attempt = registered.attempt.clone();
            let (ending, task_summary) = mesh.run_attempt(registered, work).await;
            drop(open);
            mesh.end(&attempt, ending, task_summary).await;
        });
    }

    async fn run_attempt(&self, registered: RegisteredAttempt, work: Work) -> (EventBody, Option<TaskSummary>) {
        let RegisteredAttempt { attempt, stop, rest, children, pulse, inbox, pause, local, space } = registered;
        let is_new = matches!(work, Work::New(_));
        let work = match work {
            Work::New(submit) => match self.prepared(*submit, &attempt, &stop).await {
                Ok(submit) => Work::New(Box::new(submit)),
                Err(ending) => return (ending, None),
            },
            waiting @ Work::Waiting(_) => waiting,
        };
        let context = task::RunContext {
            home: self.shared.context.home.clone(),
            outbox: self.outbox().clone(),
            memory: self.memory().clone(),
            skills: self.skills().clone(),
            mcp: self.mcp().clone(),
            files: self.shared.context.files.borrow().clone(),
            stop,
            approvals: self.shared.approvals.clone(),
            children,
            pulse,
            inbox,
            pause,
            rest,
            local,
            space,
        };
        let agent = &work.submit().agent_id;
        let word = if is_new { "a task begins" } else { "a task goes on" };
        tracing::info!(task.id = %attempt.task_id, attempt = attempt.attempt, agent.id = agent, "{word}");
        if is_new {
            fault::at("task::before_spawn");
            fault::note("begin", &attempt.task_id, attempt.attempt, std::process::id());
        }
        let ended = task::run(work, &context, self.clock().now()).await;
        fault::at("task::before_end");
        ended
    }

    /// The task with its complete content, once it is recorded as begun; or its ending.
    async fn prepared(
        &self,
        submit: TaskSubmit,
        attempt: &AttemptRef,
        stop: &StopSwitch,
    ) -> Result<TaskSubmit, EventBody> {
        let token = stop.token().clone();
        let fetched = token.run_until_cancelled(async { self.carried(self.whole(submit).await?).await }).await;
        let submit = match fetched {
            Some(Ok(submit)) => submit,
            Some(Err(error)) => return Err(EventBody::Error { error }),
            None => return Err(ended_early(stop)),
        };
        fault::at("task::before_begun");
        let begun = token.run_until_cancelled(self.begun(attempt)).await;
        begun.map(|()| submit).ok_or_else(|| ended_early(stop))
    }

    /// Adds the task's entry to the daily log. A failure does not affect the task.
    pub(super) async fn add_daily_log_entry(&self, task_summary: Option<TaskSummary>) {
        let Some(mut task_summary) = task_summary else { return };
        let page = |board: &String| {
            let TaskSummary { session_id, attempt, .. } = &task_summary;
            format!("{}/s/{session_id}?task={}", board.trim_end_matches('/'), attempt.task_id)
        };
        task_summary.page = self.shared.context.board.as_ref().map(page);
        self.memory().logged(&task_summary.agent_id, &task_summary.session_id);
        if !self.shared.context.files.borrow().config.daily_log {
            return;
        }
        let entered = match tokio::time::timeout(DAILY_LOG_TIMEOUT, self.memory().log_task(&task_summary)).await {
            Ok(entered) => entered.map(drop),
            Err(_) => Err("the file system does not respond".to_owned()),
        };
        fault::at("memory::after_entry");
        if let Err(why) = entered {
            tracing::warn!(task.id = %task_summary.attempt.task_id, "a task has no entry in the daily log: {why}");
        }
    }

    /// The task with its complete content.
    async fn whole(&self, submit: TaskSubmit) -> Result<TaskSubmit, TaskError> {
        let Some(path) = submit.payload_url.clone() else { return Ok(submit) };
        loop {
            match (self.shared.context.fetch)(path.clone()).await {
                Ok(bytes) => {
                    return match serde_json::from_slice::<TaskSubmit>(&bytes) {
                        Ok(whole) if attempt_of(&whole) == attempt_of(&submit) => {
                            Ok(TaskSubmit { payload_url: None, ..whole })
                        }
                        Ok(_) => Err(not_fetched("the Board answered with another task")),
                        Err(error) => Err(not_fetched(&format!("it cannot be parsed: {error}"))),
                    };
                }
                Err(FetchError::Never(why)) => return Err(not_fetched(&why)),
                Err(FetchError::Later(why)) => {
                    tracing::warn!(task.id = %submit.task_id, "the task's content could not be fetched yet: {why}");
                    sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }

    /// The task, with its files in place beside the workspace.
    async fn carried(&self, submit: TaskSubmit) -> Result<TaskSubmit, TaskError> {
        for file in &submit.attachments {
            let place = self.home().attachment(submit.task_id.as_str(), &file.name).ok_or_else(|| {
                not_fetched(&format!("an attachment has the name {:?}", protocol::text::head(&file.name, 100)))
            })?;
            loop {
                match (self.shared.context.carry)(file.clone(), place.clone()).await {
                    Ok(()) => break,
                    Err(FetchError::Never(why)) => return Err(not_fetched(&why)),
                    Err(FetchError::Later(why)) => {
                        tracing::warn!(task.id = %submit.task_id, "an attachment could not be fetched yet: {why}");
                        sleep(RETRY_INTERVAL).await;
                    }
                }
            }
        }
        Ok(submit)
    }

    /// Records in the journal that the engine is about to start, however long the disk takes.
    async fn begun(&self, attempt: &AttemptRef) {
        // Recorded in a second file as well, so that a damaged journal alone cannot cause a second start.
        let (outbox, named) = (self.outbox().clone(), attempt.clone());
        let noted = tokio::task::spawn_blocking(move || outbox.record_begun(&named));
        let journalled = self.journal_begun(attempt);
        let (noted, ()) = tokio::join!(noted, journalled);
        if let Err(error) = noted.map_err(std::io::Error::other).flatten() {
            tracing::warn!(task.id = %attempt.task_id, "the outbox could not record that the task begins: {error}");
        }
    }

    async fn journal_begun(&self, attempt: &AttemptRef) {
        loop {
            let named = attempt.clone();
            match self.blocking(move |journal| journal.begun(&named)).await.flatten() {
                Ok(()) => return,
                Err(error) => tracing::warn!(task.id = %attempt.task_id, "the journal cannot be written: {error}"),
            }
            sleep(RETRY_INTERVAL).await;
        }
    }

    /// The tasks that run now, the longest first.
    pub fn running(&self) -> Vec<RunningTask> {
        let state = self.state();
        let mut all: Vec<RunningTask> = state
            .running
            .iter()
            .map(|(attempt, live)| RunningTask {
                task_id: attempt.task_id.clone(),
                attempt: attempt.attempt,
                session_id: live.session_id.clone(),
                agent_id: live.agent_id.clone(),
                goal: live.title.clone(),
                since: live.since,
                local: live.local,
                state: live.pulse.state(),
            })
            .collect();
        all.sort_by_key(|task| task.since.millis());
        all
    }

    /// Ends the attempts, waiting and running, that `hit` selects by attempt and agent, and all that they asked for here.
    pub fn stop(&self, cause: &StopCause, hit: impl Fn(&AttemptRef, &str) -> bool) {
        let stopped: BTreeSet<TaskId> = {
            let state = self.state();
            let running = state.running.iter().map(|(attempt, live)| (attempt.clone(), live.agent_id.clone()));
            let queued = state.queue.iter().map(|submit| (attempt_of(submit), submit.agent_id.clone()));
            running.chain(queued).filter(|(attempt, agent)| hit(attempt, agent)).map(|(of, _)| of.task_id).collect()
        };
        self.stop_exactly(cause, &hit);
        self.stop_children(stopped);
    }

    /// The same without what they asked for.
    pub(super) fn stop_exactly(&self, cause: &StopCause, hit: impl Fn(&AttemptRef, &str) -> bool) {
        let waiting: Vec<AttemptRef> = {
            let mut state = self.state();
            for (attempt, live) in &state.running {
                if hit(attempt, &live.agent_id) {
                    live.stop.stop(cause.clone());
                }
            }
            let (out, kept): (VecDeque<TaskSubmit>, _) = std::mem::take(&mut state.queue)
                .into_iter()
                .partition(|submit| hit(&attempt_of(submit), &submit.agent_id));
            state.queue = kept;
            out.iter().map(attempt_of).collect()
        };
        for attempt in waiting {
            self.end_soon(attempt, cause.clone().ending(0));
        }
    }

    /// Starts nothing new, and returns once no attempt works any more. Those at rest stay there, for the next process.
    pub async fn finish_running(&self) {
        self.state().closing = true;
        let mut changes = self.changes();
        while self.working() > 0 {
            // Cannot fail: the sender lives in this mesh.
            let _ = changes.changed().await;
        }
    }

    /// Stops all attempts that work because the daemon shuts down. Waiting attempts stay in the journal.
    pub fn stop_running(&self) {
        let mut state = self.state();
        state.closing = true;
        for live in state.running.values_mut().filter(|live| live.rest.place() == Place::Taken) {
            live.stop.stop(StopCause::Shutdown);
        }
    }
}

/// Who requested an attempt.
pub(super) enum Origin {
    Board,
    /// A person at this machine, who may have named a folder.
    Machine(Option<PathBuf>),
    /// A task of this machine. `counts`: as one of those that may run at the same time.
    Agent {
        counts: bool,
    },
}

impl Origin {
    /// Who requested what waits for its turn.
    pub(super) fn of(submit: &TaskSubmit) -> Self {
        match submit.parent.as_ref().is_some_and(|place| place.local) {
            true => Self::Agent { counts: true },
            false => Self::Board,
        }
    }
}

/// An attempt that commands reach, before its engine starts.
pub(super) struct RegisteredAttempt {
    pub attempt: AttemptRef,
    stop: StopSwitch,
    rest: Rest,
    children: Children,
    pulse: Pulse,
    pub inbox: Inbox,
    pause: PauseSwitch,
    local: bool,
    space: Option<PathBuf>,
}

fn ended_early(stop: &StopSwitch) -> EventBody {
    stop.cause().unwrap_or(StopCause::Shutdown).ending(0)
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
