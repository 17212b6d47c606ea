//! The life of one attempt: admitted, given to an engine, bounded, stopped, ended.
//!
//! Owns an attempt from *begun* to its ending. Does not decide which attempt runs when: that is up to `mesh`.

use std::{panic::AssertUnwindSafe, path::PathBuf, sync::Arc, time::Duration};

use futures_util::FutureExt;
use protocol::{
    AgentMode, AttemptRef, ErrorCode, EventBody, Instant, ReportedDetail, TaskError, TaskSubmit, limits::MAX_GOAL_BYTES,
};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    artifacts::Collector,
    clock::Clock,
    config::{Agent, ConfigSnapshot},
    engine::{Engine, EngineRun},
    home::Home,
    memory::{Memory, TaskSummary},
    outbox::{EventFitter, Outbox},
    report::{Approvals, EngineOutcome, Reporter, activity::ActivityRecorder},
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
    /// It took longer than allowed; the limit that it reached.
    TooLong(String),
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
            Self::TooLong(bound) => error(
                ErrorCode::Timeout,
                format!("The task was ended: {bound}."),
                Some("Give it more time (`limits.minutes`) or a smaller goal."),
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
    pub files: Arc<ConfigSnapshot>,
    pub stop: StopSwitch,
    pub approvals: Approvals,
    /// Whether it began on this machine.
    pub local: bool,
    /// A folder that the person at this machine named for the task.
    pub space: Option<PathBuf>,
}

/// Runs an attempt that was recorded as begun. Returns its ending and its summary; reports go to the outbox.
pub async fn run(submit: TaskSubmit, context: &RunContext, now: Instant) -> (EventBody, Option<TaskSummary>) {
    let agent = match admit(&submit, &context.files) {
        Ok(agent) => context.space.as_ref().map_or_else(|| agent.clone(), |space| agent.working_in(space)),
        // Nothing was done, so there is no summary.
        Err(error) => return (EventBody::Error { error }, None),
    };
    let activity = ActivityRecorder::default();
    let ending = recorded(submit.clone(), agent, context, now, &activity).await;
    let task_summary = activity.task_summary(&submit, &ending);
    (ending, task_summary)
}

async fn recorded(
    mut submit: TaskSubmit,
    agent: Arc<Agent>,
    context: &RunContext,
    now: Instant,
    activity: &ActivityRecorder,
) -> EventBody {
    let attempt = AttemptRef { task_id: submit.task_id.clone(), attempt: submit.attempt };
    submit.limits.minutes = least(submit.limits.minutes, agent.limits.minutes);
    let stream = narrower(submit.stream, agent.stream);
    let begins = space::remember(&context.home, &submit.session_id, &agent, now);
    if context.stop.token().run_until_cancelled(begins).await.is_none() {
        return context.stop.cause().unwrap_or(StopCause::Shutdown).ending(0);
    }
    let engine = Engine::of(&agent);
    let name = engine.name().to_owned();
    context.outbox.append(&attempt, EventBody::Started { pid: None, model: agent.model.clone(), engine: name });
    let shaper = EventFitter::new(context.home.clone(), submit.task_id.clone());
    let done = CancellationToken::new();
    let _done = done.clone().drop_guard();
    let reporter = Reporter::start(attempt, &agent.id, stream, (context.outbox.clone(), shaper.clone()), done);
    let bound = bound(&submit, now);
    let sink = activity.beside(reporter.sink());
    let stop = context.stop.token();
    let collector = Collector::new(context.home.clone(), submit.task_id.clone(), Clock::system(), sink.clone(), stop);
    let readable = tools::ReadableFiles::of(&agent, &context.home);
    let run = EngineRun {
        submit,
        agent,
        config: context.files.config.clone(),
        home: context.home.clone(),
        memory: context.memory.clone(),
        sink,
        collector: collector.clone(),
        stop: stop.clone(),
        approvals: context.approvals.clone(),
        local: context.local,
    };
    let end = bound.as_ref().and_then(|(after, _)| tokio::time::Instant::now().checked_add(*after));
    let mut outcome = watched(engine, run, &context.stop, bound).await;
    let closing = async {
        match &mut outcome {
            Some(EngineOutcome::Completed(result)) => collector.finish(result, |path| readable.open(path)).await,
            _ => collector.look().await,
        }
    };
    // Artifacts are kept, but large files are not read beyond the attempt's time.
    let time_is_up = async {
        match end {
            Some(end) => tokio::time::sleep_until(end).await,
            None => std::future::pending().await,
        }
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

/// The engine's outcome, or `None` if it panicked. It ends within `bound`, and soon after a stop.
async fn watched(
    engine: Engine,
    run: EngineRun,
    stop: &StopSwitch,
    bound: Option<(Duration, String)>,
) -> Option<EngineOutcome> {
    let work = AssertUnwindSafe(engine.run(run)).catch_unwind();
    tokio::pin!(work);
    let time_is_up = async {
        match bound {
            Some((after, name)) => {
                sleep(after).await;
                name
            }
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        outcome = &mut work => return settled(outcome.ok(), stop),
        () = stop.token().cancelled() => {}
        name = time_is_up => stop.stop(StopCause::TooLong(name)),
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
    if let Some(refuses) = &agent.refuses {
        return Err(bad(
            format!("The agent {id:?} refuses tasks: {refuses}."),
            "Change the agent's file on the viber.",
        ));
    }
    if let Some(mode @ (AgentMode::AlwaysAsk | AgentMode::ViberDecides)) = submit.mode {
        let message = format!("The task asks for `mode: {}`, which this viber does not support yet.", mode.as_str());
        return Err(bad(message, "Send the task without that mode."));
    }
    if submit.limits.cost_usd.is_some() {
        let message = "The task asks for `limits.costUsd`, which this viber does not support yet.".to_owned();
        return Err(bad(message, "Bound it by `limits.tokens` instead."));
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

/// How long the attempt may take, and which limit says so.
fn bound(submit: &TaskSubmit, now: Instant) -> Option<(Duration, String)> {
    let minutes = submit.limits.minutes.map(|minutes| {
        (Duration::from_secs(u64::from(minutes) * 60), format!("it reached `limits.minutes` ({minutes})"))
    });
    let deadline = submit.deadline.map(|at| {
        let left = u64::try_from(at.millis() - now.millis()).unwrap_or(0);
        (Duration::from_millis(left), format!("its deadline {at} has passed"))
    });
    minutes.into_iter().chain(deadline).min_by_key(|(after, _)| *after)
}

fn least(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    a.into_iter().chain(b).min()
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
