//! One task's life: admitted, given to an engine, bounded, stopped, ended.
//!
//! Owns the way of an attempt from *begun* to its ending. Refuses to decide which attempt runs when: that is `mesh`.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use protocol::{ErrorCode, EventBody, Instant, Mode, Running, Stream, TaskError, TaskSubmit, limits::MAX_GOAL};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    artifacts::Shelf,
    clock::Clock,
    config::{Agent, Snapshot},
    engine::{Engine, Run},
    home::Home,
    memory::{Memory, Story},
    outbox::{Outbox, Shaper},
    report::{Approvals, Outcome, Reporter, activity::ActivityRecorder},
    space, tools,
};

/// Longest an engine may take to end after a stop: `hold` needs at most 12 s for the processes.
const GRACE: Duration = Duration::from_secs(15);

/// Why a running attempt is told to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Somebody wants it to stop, and why.
    Stop(String),
    /// The daemon ends.
    Shutdown,
    /// It took longer than allowed; which bound.
    TooLong(String),
}

impl Cause {
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

/// Tells a running attempt to end; the first cause counts.
#[derive(Clone, Default)]
pub struct StopSwitch {
    token: CancellationToken,
    cause: Arc<std::sync::OnceLock<Cause>>,
}

impl StopSwitch {
    /// Ends the attempt.
    pub fn stop(&self, cause: Cause) {
        let _ = self.cause.set(cause);
        self.token.cancel();
    }

    /// Cancelled when the attempt is to end.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Why it ends.
    pub fn cause(&self) -> Option<Cause> {
        self.cause.get().cloned()
    }
}

/// What an attempt runs with.
pub struct Ground {
    pub home: Home,
    pub outbox: Outbox,
    pub memory: Memory,
    pub files: Arc<Snapshot>,
    pub stop: StopSwitch,
    pub approvals: Approvals,
    /// It began on this machine.
    pub local: bool,
}

/// Runs an attempt that was journalled as begun, up to the ending it should have, and what there is to tell of it. Reports
/// go to the outbox.
pub async fn run(submit: TaskSubmit, ground: &Ground, now: Instant) -> (EventBody, Option<Story>) {
    let agent = match admit(&submit, &ground.files) {
        Ok(agent) => agent,
        // Nothing was done: there is nothing to tell.
        Err(error) => return (EventBody::Error { error }, None),
    };
    let activity = ActivityRecorder::default();
    let ending = recorded(submit.clone(), agent, ground, now, &activity).await;
    let story = activity.story(&submit, &ending);
    (ending, story)
}

async fn recorded(
    mut submit: TaskSubmit,
    agent: Arc<Agent>,
    ground: &Ground,
    now: Instant,
    activity: &ActivityRecorder,
) -> EventBody {
    let attempt = Running { task_id: submit.task_id.clone(), attempt: submit.attempt };
    submit.limits.minutes = least(submit.limits.minutes, agent.limits.minutes);
    let stream = narrower(submit.stream, agent.stream);
    let begins = space::remember(&ground.home, &submit.session_id, &agent, now);
    if ground.stop.token().run_until_cancelled(begins).await.is_none() {
        return ground.stop.cause().unwrap_or(Cause::Shutdown).ending(0);
    }
    let engine = Engine::of(&agent);
    let name = engine.name().to_owned();
    ground.outbox.append(&attempt, EventBody::Started { pid: None, model: agent.model.clone(), engine: name });
    let shaper = Shaper::new(ground.home.clone(), submit.task_id.clone());
    let done = CancellationToken::new();
    let _done = done.clone().drop_guard();
    let reporter = Reporter::start(attempt, &agent.id, stream, ground.outbox.clone(), shaper.clone(), done);
    let bound = bound(&submit, now);
    let sink = activity.beside(reporter.sink());
    let stop = ground.stop.token();
    let shelf = Shelf::new(ground.home.clone(), submit.task_id.clone(), Clock::system(), sink.clone(), stop);
    let readable = tools::Readable::of(&agent, &ground.home);
    let run = Run {
        submit,
        agent,
        config: ground.files.config.clone(),
        home: ground.home.clone(),
        memory: ground.memory.clone(),
        sink,
        shelf: shelf.clone(),
        stop: stop.clone(),
        approvals: ground.approvals.clone(),
        local: ground.local,
    };
    let end = bound.as_ref().and_then(|(after, _)| tokio::time::Instant::now().checked_add(*after));
    let mut outcome = watched(engine, run, &ground.stop, bound).await;
    let closing = async {
        match &mut outcome {
            Some(Outcome::Completed(result)) => shelf.finish(result, |path| readable.open(path)).await,
            _ => shelf.look().await,
        }
    };
    // What was produced stays; but large files are not read beyond the attempt's time.
    let time_is_up = async {
        match end {
            Some(end) => tokio::time::sleep_until(end).await,
            None => std::future::pending().await,
        }
        shelf.hurry();
        std::future::pending::<()>().await
    };
    tokio::select! {
        () = closing => {}
        () = time_is_up => {}
    }
    reporter.flush();
    match outcome {
        Some(Outcome::Completed(result)) => EventBody::Completed { result: shaper.result(result, now) },
        Some(Outcome::Failed(error)) => EventBody::Error { error: shaper.error(error) },
        Some(Outcome::Stopped { killed }) => {
            ground.stop.cause().unwrap_or(Cause::Stop("the engine stopped by itself".to_owned())).ending(killed)
        }
        None => internal("The engine broke down; the daemon's log says where."),
    }
}

/// The outcome of the engine, or `None` when it panicked. It ends within its bound and soon after a stop.
async fn watched(engine: Engine, run: Run, stop: &StopSwitch, bound: Option<(Duration, String)>) -> Option<Outcome> {
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
        name = time_is_up => stop.stop(Cause::TooLong(name)),
    }
    match timeout(GRACE, work).await {
        Ok(outcome) => settled(outcome.ok(), stop),
        Err(_) => {
            tracing::error!("an engine did not end within {} s of its stop", GRACE.as_secs());
            Some(Outcome::Stopped { killed: 0 })
        }
    }
}

/// After a stop nothing is completed, whatever the engine managed to say.
fn settled(outcome: Option<Outcome>, stop: &StopSwitch) -> Option<Outcome> {
    match (outcome, stop.cause()) {
        (Some(Outcome::Completed(_) | Outcome::Failed(_)), Some(_)) => Some(Outcome::Stopped { killed: 0 }),
        (outcome, _) => outcome,
    }
}

/// The agent that may do this, or why not.
fn admit(submit: &TaskSubmit, files: &Snapshot) -> Result<Arc<Agent>, TaskError> {
    let bad = |message: String, suggestion: &str| {
        let suggestion = Some(suggestion.to_owned());
        TaskError { code: ErrorCode::BadRequest, message, retryable: false, suggestion, details: None }
    };
    let id = &submit.agent_id;
    let agent = match files.agent(id) {
        None => {
            let known = files.agents.keys().cloned().collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "none".to_owned() } else { known };
            let message = format!("This viber has no agent {id:?}; there is: {known}.");
            return Err(TaskError {
                code: ErrorCode::NotFound,
                ..bad(message, "Choose another agent or write its file.")
            });
        }
        Some(Err(error)) => {
            let message =
                format!("The agent {id:?} cannot work: {} line {}: {}", error.file, error.line, error.message);
            return Err(bad(message, "Mend the file on the viber; `daemon-agent config validate` checks it."));
        }
        Some(Ok(agent)) => agent,
    };
    if let Some(refuses) = &agent.refuses {
        return Err(bad(
            format!("The agent {id:?} refuses tasks: {refuses}."),
            "Change the agent's file on the viber.",
        ));
    }
    if let Some(mode @ (Mode::AlwaysAsk | Mode::ViberDecides)) = submit.mode {
        let message = format!("The task asks for `mode: {}`, which this viber cannot hold yet.", mode.as_str());
        return Err(bad(message, "Send the task without that mode."));
    }
    if submit.limits.cost_usd.is_some() {
        let message = "The task asks for `limits.costUsd`, which this viber cannot hold yet.".to_owned();
        return Err(bad(message, "Bound it by `limits.tokens` instead."));
    }
    if submit.goal.trim().is_empty() || submit.goal.len() > MAX_GOAL {
        return Err(bad(format!("A goal has 1 to {MAX_GOAL} bytes."), "Write a goal."));
    }
    Ok(agent)
}

/// How long the attempt may take, by which bound.
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

fn narrower(asked: Stream, allowed: Option<Stream>) -> Stream {
    match (asked, allowed.unwrap_or(Stream::Full)) {
        (Stream::None, _) | (_, Stream::None) => Stream::None,
        (Stream::Text, _) | (_, Stream::Text) => Stream::Text,
        (Stream::Full, Stream::Full) => Stream::Full,
    }
}

/// An ending for what should not happen.
pub fn internal(message: &str) -> EventBody {
    error(ErrorCode::Internal, message.to_owned(), None)
}

fn error(code: ErrorCode, message: String, suggestion: Option<&str>) -> EventBody {
    let suggestion = suggestion.map(str::to_owned);
    EventBody::Error { error: TaskError { code, message, retryable: true, suggestion, details: None } }
}
