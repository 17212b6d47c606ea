//! The life of one attempt: admitted, given to an engine, bounded, stopped, ended.
//!
//! Owns an attempt from *begun* to its ending. Does not decide which attempt runs when: that is up to `mesh`.

mod resume;

use std::{panic::AssertUnwindSafe, path::PathBuf, sync::Arc, time::Duration};

use futures_util::FutureExt;
use protocol::{
    AttemptRef, Capability, ErrorCode, EventBody, Instant, LimitPolicy, ReportedDetail, TaskError, TaskSubmit,
    limits::MAX_GOAL_BYTES,
};
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    artifacts::Collector,
    clock::Clock,
    config::{Agent, ConfigSnapshot},
    engine::{self, Engine, EngineRun, limits, waiting::Resumed},
    home::Home,
    mcp::McpServers,
    memory::{Memory, TaskSummary},
    outbox::{EventFitter, Outbox},
    report::{
        ActiveTime, Approvals, Children, EngineOutcome, Inbox, PauseSwitch, Reporter, Rest,
        activity::{ActivityRecorder, Pulse},
    },
    skills::Skills,
    space, tools,
};

/// How long an engine may take to end after a stop: `hold` needs at most 12 s for the processes.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// Models that a refusal names.
const MAX_NAMED_MODELS: usize = 20;

/// Why a running attempt has to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// It was stopped by request, for this reason.
    Stop(String),
    /// The daemon shuts down.
    Shutdown,
    /// It worked as long as `limits.minutes` allows.
    MinutesUsed(u32),
    /// Its deadline has passed.
    DeadlinePassed(Instant),
}

impl StopCause {
    /// The ending that this cause leads to.
    pub fn ending(self, killed: u32) -> EventBody {
        match self {
            Self::Stop(reason) => EventBody::Stopped { reason, killed },
            Self::Shutdown => error(
                ErrorCode::DaemonRestarted,
                "The daemon was shut down while the task ran.".to_owned(),
                Some("Retry the task when the viber is connected again."),
            ),
            Self::MinutesUsed(minutes) => error(
                ErrorCode::BudgetExceeded,
                format!("The task was ended: it reached `limits.minutes` ({minutes})."),
                Some("Give it more time (`limits.minutes`) or a smaller goal."),
            ),
            Self::DeadlinePassed(at) => error(
                ErrorCode::Timeout,
                format!("The task was ended: its deadline {at} has passed."),
                Some("Give it more time or a smaller goal."),
            ),
        }
    }
}

/// Signals a running attempt to end; the first cause counts.
#[derive(Clone, Default)]
pub struct StopSwitch {
    token: CancellationToken,
    cause: Arc<std::sync::OnceLock<StopCause>>,
}

impl StopSwitch {
    /// Ends the attempt.
    pub fn stop(&self, cause: StopCause) {
        let _ = self.cause.set(cause);
        self.token.cancel();
    }

    /// Cancelled when the attempt is to end.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Why it is to end.
    pub fn cause(&self) -> Option<StopCause> {
        self.cause.get().cloned()
    }
}

/// What an attempt runs with.
pub struct RunContext {
    pub home: Home,
    pub outbox: Outbox,
    pub memory: Memory,
    pub skills: Skills,
    pub mcp: McpServers,
    pub files: Arc<ConfigSnapshot>,
    pub stop: StopSwitch,
    pub approvals: Approvals,
    /// Tasks that it asks others for.
    pub children: Children,
    /// What it is busy with, for others to see.
    pub pulse: Pulse,
    /// What people say to the attempt.
    pub inbox: Inbox,
    /// Where people want it to be held, if they do.
    pub pause: PauseSwitch,
    /// Whether it is at rest.
    pub rest: Rest,
    /// Whether it began on this machine.
    pub local: bool,
    /// A folder that the person at this machine named for the task.
    pub space: Option<PathBuf>,
}

/// What an attempt begins with.
pub enum Work {
    New(Box<TaskSubmit>),
    /// It waited when a former process ended.
    Waiting(Box<Resumed>),
}

impl Work {
    /// What was requested.
    pub fn submit(&self) -> &TaskSubmit {
        match self {
            Self::New(submit) => submit,
            Self::Waiting(resumed) => &resumed.record.submit,
        }
    }
}

/// Runs an attempt that was recorded as begun. Returns its ending and its summary; reports go to the outbox.
pub async fn run(work: Work, context: &RunContext, now: Instant) -> (EventBody, Option<TaskSummary>) {
    let admitted = match &work {
        Work::New(submit) => admit(submit, &context.files)
            .map(|agent| context.space.as_ref().map_or_else(|| agent.clone(), |space| agent.working_in(space))),
        Work::Waiting(resumed) => resume::admit(&resumed.record, &context.files).await,
    };
    let agent = match admitted {
        Ok(agent) => agent,
        // Nothing was done, so there is no summary.
        Err(error) => return (EventBody::Error { error }, None),
    };
    let (submit, activity) = match &work {
        Work::New(submit) => (TaskSubmit::clone(submit), ActivityRecorder::default()),
        Work::Waiting(resumed) => {
            (resumed.record.submit.clone(), ActivityRecorder::of(resumed.record.activity.clone()))
        }
    };
    let ending = recorded(work, agent, context, now, &activity).await;
    let task_summary = activity.task_summary(&submit, &ending);
    (ending, task_summary)
}

async fn recorded(
    work: Work,
    agent: Arc<Agent>,
    context: &RunContext,
    now: Instant,
    activity: &ActivityRecorder,
) -> EventBody {
    let (mut submit, resumed) = match work {
        Work::New(submit) => (*submit, None),
        Work::Waiting(resumed) => (resumed.record.submit.clone(), Some(resumed)),
    };
    let attempt = AttemptRef { task_id: submit.task_id.clone(), attempt: submit.attempt };
    submit.limits = limits::of_task(&submit, &agent, context.local);
    let stream = narrower(submit.stream, agent.stream);
    if resumed.is_none() {
        let begins = space::remember(&context.home, &submit.session_id, &agent, now);
        if context.stop.token().run_until_cancelled(begins).await.is_none() {
            return context.stop.cause().unwrap_or(StopCause::Shutdown).ending(0);
        }
    }
    let engine = Engine::of(&agent);
    if resumed.is_none() {
        let name = engine.name().to_owned();
        context.outbox.append(&attempt, EventBody::Started { pid: None, model: agent.model.clone(), engine: name });
    }
    let shaper = EventFitter::new(context.home.clone(), submit.task_id.clone());
    let done = CancellationToken::new();
    let _done = done.clone().drop_guard();
    let reporter = Reporter::start(attempt, &agent.id, stream, (context.outbox.clone(), shaper.clone()), done);
    let worked = match &resumed {
        Some(resumed) => resumed.record.worked_until(now),
        None => worked_before(&submit),
    };
    let bounds = TimeBounds::of(&submit, &agent, now, ActiveTime::counted(worked));
    let sink = context.pulse.beside(activity.beside(reporter.sink()));
    if agent.capabilities().is_empty() || submit.compact.is_some() {
        context.inbox.close();
    } else {
        let reporter = reporter.clone();
        context.inbox.open(move |event| reporter.take(event));
    }
    let stop = context.stop.token();
    let collector = Collector::new(context.home.clone(), submit.task_id.clone(), Clock::system(), sink.clone(), stop);
    let readable = tools::ReadableFiles::of(&agent, &context.home);
    let run = EngineRun {
        submit,
        agent,
        config: context.files.config.clone(),
        home: context.home.clone(),
        memory: context.memory.clone(),
        skills: context.skills.clone(),
        mcp: context.mcp.clone(),
        sink,
        collector: collector.clone(),
        stop: stop.clone(),
        approvals: context.approvals.clone(),
        children: context.children.clone(),
        inbox: context.inbox.clone(),
        pause: context.pause.clone(),
        rest: context.rest.clone(),
        resumed,
        space: context.space.clone(),
        activity: activity.clone(),
        active_time: bounds.active_time.clone(),
        local: context.local,
    };
    let mut outcome = watched(engine, run, &context.stop, &bounds).await;
    context.inbox.close();
    let closing = async {
        match &mut outcome {
            Some(EngineOutcome::Completed(result)) => {
                collector.finish(result, |path| readable.open(path).map_err(|failure| failure.message)).await
            }
            _ => collector.look().await,
        }
    };
    // Artifacts are kept, but large files are not read beyond the attempt's time.
    let time_is_up = async {
        bounds.passed().await;
        collector.hurry();
        std::future::pending::<()>().await
    };
    tokio::select! {
        () = closing => {}
        () = time_is_up => {}
    }
    reporter.flush();
    match outcome {
        Some(EngineOutcome::Completed(result)) => EventBody::Completed { result: shaper.result(result, now) },
        Some(EngineOutcome::Failed(error)) => EventBody::Error { error: shaper.error(error) },
        Some(EngineOutcome::Stopped { killed }) => {
            context.stop.cause().unwrap_or(StopCause::Stop("the engine stopped by itself".to_owned())).ending(killed)
        }
        None => internal("The engine failed; the daemon's log has the details."),
    }
}

/// The engine's outcome, or `None` if it panicked. It ends within `bounds`, and soon after a stop.
async fn watched(engine: Engine, run: EngineRun, stop: &StopSwitch, bounds: &TimeBounds) -> Option<EngineOutcome> {
    let work = AssertUnwindSafe(engine.run(run)).catch_unwind();
    tokio::pin!(work);
    tokio::select! {
        biased;
        outcome = &mut work => return settled(outcome.ok(), stop),
        () = stop.token().cancelled() => {}
        cause = bounds.passed() => stop.stop(cause),
    }
    match timeout(STOP_TIMEOUT, work).await {
        Ok(outcome) => settled(outcome.ok(), stop),
        Err(_) => {
            tracing::error!("an engine did not end within {} s of its stop", STOP_TIMEOUT.as_secs());
            Some(EngineOutcome::Stopped { killed: 0 })
        }
    }
}

/// After a stop nothing is completed, whatever the engine managed to say.
fn settled(outcome: Option<EngineOutcome>, stop: &StopSwitch) -> Option<EngineOutcome> {
    match (outcome, stop.cause()) {
        (Some(EngineOutcome::Completed(_) | EngineOutcome::Failed(_)), Some(_)) => {
            Some(EngineOutcome::Stopped { killed: 0 })
        }
        (outcome, _) => outcome,
    }
}

/// The agent that runs this task, or why the task is refused.
fn admit(submit: &TaskSubmit, files: &ConfigSnapshot) -> Result<Arc<Agent>, TaskError> {
    let bad = |message: String, suggestion: &str| {
        let suggestion = Some(suggestion.to_owned());
        TaskError { code: ErrorCode::BadRequest, message, retryable: false, suggestion, details: None }
    };
    let id = &submit.agent_id;
    let agent = match files.agent(id) {
        None => {
            let known = files.agents.keys().cloned().collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "none".to_owned() } else { known };
            let message = format!("This viber has no agent {id:?}; its agents are: {known}.");
            return Err(TaskError {
                code: ErrorCode::NotFound,
                ..bad(message, "Choose another agent or write its file.")
            });
        }
        Some(Err(error)) => {
            let message =
                format!("The agent {id:?} cannot be used: {} line {}: {}", error.file, error.line, error.message);
            return Err(bad(message, "Fix the file on the viber; `daemon-agent config validate` checks it."));
        }
        Some(Ok(agent)) => agent,
    };
    if agent.is_echo()
        && let Some(why) = engine::echo::restriction(submit, &agent, &files.config.policy)
    {
        return Err(bad(format!("The echo asks nobody, and {why}."), "Choose an agent with a model."));
    }
    if submit.goal.trim().is_empty() || submit.goal.len() > MAX_GOAL_BYTES {
        return Err(bad(format!("A goal has 1 to {MAX_GOAL_BYTES} bytes."), "Write a goal."));
    }
    if let Some(model) = submit.model.as_ref().filter(|model| **model != agent.model) {
        let offered = files.offered_models();
        if !offered.contains(model) {
            let offered = offered.into_iter().take(MAX_NAMED_MODELS).collect::<Vec<_>>().join(", ");
            let model = protocol::text::head(model, 120);
            let message = format!("This viber does not offer the model {model:?}; it offers: {offered}.");
            let suggestion = "Choose another model, or list it in `providers` of config.yaml on the viber.";
            return Err(TaskError { code: ErrorCode::NotFound, ..bad(message, suggestion) });
        }
        return Ok(agent.with_model(model));
    }
    Ok(agent)
}

/// How long the attempts worked that this one goes on from.
fn worked_before(submit: &TaskSubmit) -> Duration {
    let seconds = submit.budget.as_ref().map_or(0, |budget| budget.worked_seconds);
    Duration::from_secs(u64::from(seconds))
}

/// What ends an attempt by its time, whatever it does then.
struct TimeBounds {
    active_time: ActiveTime,
    /// Of `active_time`; `None` without a limit, and where the engine asks a person for more.
    minutes: Option<u32>,
    /// When, and as it was said.
    deadline: Option<(tokio::time::Instant, Instant)>,
}

impl TimeBounds {
    fn of(submit: &TaskSubmit, agent: &Agent, now: Instant, active_time: ActiveTime) -> Self {
        let asks =
            submit.limits.on_limit == Some(LimitPolicy::Pause) && agent.capabilities().contains(&Capability::Pause);
        let deadline = submit.deadline.and_then(|at| {
            let left = u64::try_from(at.millis() - now.millis()).unwrap_or(0);
            Some((tokio::time::Instant::now().checked_add(Duration::from_millis(left))?, at))
        });
        let minutes = submit.limits.minutes.filter(|_| !asks);
        Self { active_time, minutes, deadline }
    }

    /// Waits until the first of them is reached.
    async fn passed(&self) -> StopCause {
        let worked = async {
            match self.minutes {
                Some(minutes) => {
                    self.active_time.reached(Duration::from_secs(u64::from(minutes) * 60)).await;
                    StopCause::MinutesUsed(minutes)
                }
                None => std::future::pending().await,
            }
        };
        let due = async {
            match self.deadline {
                Some((until, at)) => {
                    sleep_until(until).await;
                    StopCause::DeadlinePassed(at)
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            cause = worked => cause,
            cause = due => cause,
        }
    }
}

fn narrower(asked: ReportedDetail, allowed: Option<ReportedDetail>) -> ReportedDetail {
    match (asked, allowed.unwrap_or(ReportedDetail::Full)) {
        (ReportedDetail::None, _) | (_, ReportedDetail::None) => ReportedDetail::None,
        (ReportedDetail::Text, _) | (_, ReportedDetail::Text) => ReportedDetail::Text,
        (ReportedDetail::Full, ReportedDetail::Full) => ReportedDetail::Full,
    }
}

/// The ending after an internal error.
pub fn internal(message: &str) -> EventBody {
    error(ErrorCode::Internal, message.to_owned(), None)
}

fn error(code: ErrorCode, message: String, suggestion: Option<&str>) -> EventBody {
    let suggestion = suggestion.map(str::to_owned);
    EventBody::Error { error: TaskError { code, message, retryable: true, suggestion, details: None } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn used_minutes_and_a_passed_deadline_end_a_task_by_their_names() {
        let time = || ActiveTime::counted(Duration::from_secs(60));
        let used = TimeBounds { active_time: time(), minutes: Some(1), deadline: None };
        let cause = used.passed().await;
        assert_eq!(cause, StopCause::MinutesUsed(1));
        let EventBody::Error { error } = cause.ending(0) else { panic!("an error") };
        assert!(error.code == ErrorCode::BudgetExceeded && error.message.contains("limits.minutes"), "{error:?}");
        let at = Instant(1);
        let deadline = Some((tokio::time::Instant::now(), at));
        let late = TimeBounds { active_time: time(), minutes: Some(2), deadline };
        assert_eq!(late.passed().await, StopCause::DeadlinePassed(at));
    }

    #[test]
    fn the_time_that_the_attempts_before_worked_counts() {
        let base = serde_json::json!({ "taskId": protocol::TaskId::new(1), "attempt": 2, "agentId": "dev",
            "sessionId": protocol::SessionId::new(1), "goal": "x" });
        let mut submit: TaskSubmit = serde_json::from_value(base).expect("a task");
        assert_eq!(worked_before(&submit), Duration::ZERO);
        submit.budget = Some(protocol::BudgetProgress { worked_seconds: 90, ..Default::default() });
        assert_eq!(worked_before(&submit), Duration::from_secs(90));
    }
}
