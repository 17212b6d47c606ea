//! What is to be done next about a run: a pure function of its rows and of the states of its tasks. It asks for nothing twice,
//! because what was done shows in them.

use protocol::{ApprovalId, Instant, TaskId, Usage, playbook::GatePoint};

use super::{calls, gates};
use crate::domain::{PlaybookRun, RunNeed, RunState, RunStep, StepPhase, SupervisorCall, TaskState};

/// Steps of one run that run at the same time.
pub const MAX_RUNNING_STEPS: usize = 8;
/// How often a supervisor is started by itself, with the first time.
pub const MAX_SUPERVISOR_ATTEMPTS: u32 = 5;
/// How long each attempt of a supervisor waits after the one before it, milliseconds.
const SUPERVISOR_PAUSES_MS: [i64; 4] = [1_000, 10_000, 30_000, 60_000];
/// The same of a step's second attempt, milliseconds: twice as long before each one after it.
const FIRST_STEP_PAUSE_MS: i64 = 1_000;
/// The longest pause before an attempt, milliseconds.
pub const MAX_PAUSE_MS: i64 = 60_000;

/// A run as it is now.
#[derive(Clone, Debug)]
pub struct RunSnapshot {
    /// When it was looked at.
    pub at: Instant,
    pub run: PlaybookRun,
    /// In order.
    pub steps: Vec<RunStep>,
    /// Of the supervisor, and of steps that run, failed, or wait to be started again. One that is not there was deleted.
    pub tasks: Vec<ChildTask>,
    /// Calls of the supervisor that wait for an answer, in order.
    pub calls: Vec<SupervisorCall>,
}

/// A task of a run, as far as the run goes on by it.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildTask {
    pub id: TaskId,
    pub state: TaskState,
    /// The newest attempt's number.
    pub attempt: u32,
    /// Why it failed.
    pub error: Option<String>,
    /// When its newest attempt ended.
    pub ended_at: Option<Instant>,
    /// What it said at its end, in short.
    pub summary: String,
    /// Of the newest attempt.
    pub usage: Usage,
}

/// Something that is to be done. Steps go by their labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunMove {
    /// Not all steps of the playbook are stored.
    StoreSteps,
    /// The supervisor is to be started, or started again.
    Supervise,
    /// A step's task has ended, or was deleted.
    NoteEnd(String),
    /// The task of a step that failed was completed after all, or runs again.
    TakeUp(String),
    OpenGate(String),
    /// All that a step waits for is there.
    Start(String),
    /// A call of the supervisor is carried out, or refused.
    Answer(ApprovalId),
    /// Nobody waits for the answers to some calls any more.
    CloseCalls,
    /// All steps are done or skipped.
    Complete,
    /// A task that nobody wants any more still runs.
    Halt(TaskId),
    /// Steps that will not begin any more are to be marked.
    StopSteps,
    /// What of the run waits for a person is something else now.
    Need(Option<RunNeed>),
    /// Its viber is to get the ledger.
    SendLedger,
    /// Nothing is left to do.
    Settle,
}

impl RunSnapshot {
    /// A step by its label.
    pub fn step(&self, label: &str) -> Option<&RunStep> {
        self.steps.iter().find(|step| step.label == label)
    }

    /// A task of the run, unless it was deleted.
    pub fn task(&self, id: Option<&TaskId>) -> Option<&ChildTask> {
        self.tasks.iter().find(|task| Some(&task.id) == id)
    }

    /// Whether a task of the step has not ended, also of one that failed: a person may have started it over in its session.
    pub fn is_at_work(&self, step: &RunStep) -> bool {
        self.task(step.task_id.as_ref()).is_some_and(|task| !task.state.is_final())
    }

    /// The supervisor, while it works.
    pub fn supervisor(&self) -> Option<&ChildTask> {
        self.task(self.run.supervisor.as_ref()).filter(|task| !task.state.is_final())
    }

    /// Whether the attempt that made a call still waits for its answer.
    pub fn is_waited_for(&self, call: &SupervisorCall) -> bool {
        let supervisor = self.supervisor();
        !self.run.state.is_final()
            && supervisor.is_some_and(|task| task.id == call.task_id && task.attempt == call.attempt)
    }

    /// The steps that have to be done or skipped before this one begins, and are not.
    pub fn missing_before<'s>(&self, step: &'s RunStep) -> Vec<&'s str> {
        let is_open = |label: &&String| self.step(label).is_none_or(|before| !before.phase.is_over());
        step.after.iter().filter(is_open).map(String::as_str).collect()
    }

    /// What of the run waits for a person.
    pub fn need(&self) -> Option<RunNeed> {
        let has = |phase| self.steps.iter().any(|step| step.phase == phase);
        if self.run.state.is_final() {
            None
        } else if has(StepPhase::Gate) {
            Some(RunNeed::Gate)
        } else if !self.run.supervised {
            has(StepPhase::Failed).then_some(RunNeed::Step)
        } else {
            self.is_abandoned().then_some(RunNeed::Supervisor)
        }
    }

    fn are_all_over(&self) -> bool {
        self.steps.iter().all(|step| step.phase.is_over())
    }

    /// Why the supervisor works no more.
    pub fn supervisor_end(&self) -> String {
        let task = self.task(self.run.supervisor.as_ref());
        match task.map(|task| task.state) {
            Some(TaskState::Error) => {
                task.and_then(|task| task.error.clone()).unwrap_or_else(|| "its task failed".to_owned())
            }
            Some(TaskState::Stopped) => "somebody stopped it".to_owned(),
            Some(_) => "it ended without `finish`".to_owned(),
            None => "its task was deleted".to_owned(),
        }
    }

    /// When the supervisor may be started again, if it is to be; `None` within: at once.
    fn next_supervisor(&self) -> Option<Option<Instant>> {
        let attempts = self.run.supervisor_attempts as usize;
        let pause = attempts.checked_sub(1).map(|n| SUPERVISOR_PAUSES_MS.get(n).copied().unwrap_or(MAX_PAUSE_MS));
        let ended = self.task(self.run.supervisor.as_ref()).and_then(|task| task.ended_at);
        self.wants_supervisor().then(|| after_pause(ended, pause?, self.at))
    }

    /// When a step may begin, if it is due; `None` within: at once.
    fn next_start(&self, step: &RunStep) -> Option<Option<Instant>> {
        let doublings = step.attempt.saturating_sub(1).min(6);
        let pause = (FIRST_STEP_PAUSE_MS << doublings).min(MAX_PAUSE_MS);
        self.is_due(step).then(|| after_pause(step.ended_at, pause, self.at))
    }

    /// When something is to be done next that only waits for its time.
    pub fn next_at(&self) -> Option<Instant> {
        if self.run.state.is_final() || self.run.paused {
            return None;
        }
        let starts = self.steps.iter().filter_map(|step| self.next_start(step));
        starts.chain(self.next_supervisor()).flatten().min()
    }

    /// Whether the supervisor is to be started, as soon as its pause is over.
    fn wants_supervisor(&self) -> bool {
        self.run.supervised && self.supervisor().is_none() && self.run.supervisor_attempts < self.most_attempts()
    }

    /// How often the supervisor may be started. One that a person stopped is not started again by itself.
    fn most_attempts(&self) -> u32 {
        let newest = self.task(self.run.supervisor.as_ref());
        if newest.is_some_and(|task| task.state == TaskState::Stopped) { 1 } else { MAX_SUPERVISOR_ATTEMPTS }
    }

    /// Whether no supervisor works, and none is started by itself any more.
    fn is_abandoned(&self) -> bool {
        self.run.supervised && self.supervisor().is_none() && !self.wants_supervisor() && !self.are_all_over()
    }

    /// Whether a step is to begin as soon as there is room, and its pause is over.
    fn is_due(&self, step: &RunStep) -> bool {
        let is_asked_for = !self.run.supervised || step.wanted || gates::is_let(&self.run, step);
        // What goes on by itself is not started.
        let is_new = !comes_back(step, self.task(step.task_id.as_ref()));
        step.phase == StepPhase::Pending && is_asked_for && is_new && self.missing_before(step).is_empty()
    }
}

/// When a pause after an end is over; `None`: it is. A clock that was put back lengthens none.
fn after_pause(ended: Option<Instant>, pause_ms: i64, at: Instant) -> Option<Instant> {
    let ended = ended?;
    let has_passed = at.0.saturating_sub(ended.0);
    (0..pause_ms).contains(&has_passed).then(|| Instant(ended.0.saturating_add(pause_ms)))
}

/// Everything that can be done now, what comes first in front. After one of them the others may be wrong.
pub fn moves(now: &RunSnapshot) -> Vec<RunMove> {
    let mut moves = Vec::new();
    if !now.run.settled {
        if now.run.state.is_final() {
            wind_up(now, &mut moves);
        } else {
            go_on(now, &mut moves);
        }
    }
    // What is written down is what came of all that.
    if moves.iter().all(|one| matches!(one, RunMove::Start(_))) && now.run.ledger_version < now.run.version {
        moves.push(RunMove::SendLedger);
    }
    if moves.is_empty() && now.run.state.is_final() && !now.run.settled {
        moves.push(RunMove::Settle);
    }
    moves
}

/// What is left to do with a run that has ended.
fn wind_up(now: &RunSnapshot, moves: &mut Vec<RunMove>) {
    for step in &now.steps {
        match &step.task_id {
            Some(task) if now.is_at_work(step) => moves.push(RunMove::Halt(task.clone())),
            _ if step.phase == StepPhase::Running => moves.push(RunMove::NoteEnd(step.label.clone())),
            _ => {}
        }
    }
    // After the end that it asked for itself the supervisor ends as any task does.
    if let Some(supervisor) = now.supervisor().filter(|_| now.run.state == RunState::Stopped) {
        moves.push(RunMove::Halt(supervisor.id.clone()));
    }
    if now.steps.iter().any(|step| matches!(step.phase, StepPhase::Pending | StepPhase::Gate)) {
        moves.push(RunMove::StopSteps);
    }
    if !now.calls.is_empty() {
        moves.push(RunMove::CloseCalls);
    }
}

/// What is to be done with a run that goes on.
fn go_on(now: &RunSnapshot, moves: &mut Vec<RunMove>) {
    if now.steps.iter().filter(|step| !step.added).count() < now.run.step_count as usize {
        moves.push(RunMove::StoreSteps);
        return;
    }
    for step in &now.steps {
        let task = now.task(step.task_id.as_ref());
        let is_over = task.is_none_or(|task| task.state.is_final());
        match step.phase {
            StepPhase::Running if is_over => moves.push(RunMove::NoteEnd(step.label.clone())),
            StepPhase::Failed | StepPhase::Pending if comes_back(step, task) => {
                moves.push(RunMove::TakeUp(step.label.clone()));
            }
            _ => {}
        }
    }
    if now.calls.iter().any(|call| !now.is_waited_for(call)) {
        moves.push(RunMove::CloseCalls);
    }
    let is_to_be_answered =
        |call: &&SupervisorCall| now.is_waited_for(call) && calls::verdict(now, call) != calls::CallVerdict::Wait;
    moves.extend(now.calls.iter().filter(is_to_be_answered).map(|call| RunMove::Answer(call.id.clone())));
    if now.are_all_over() && now.supervisor().is_none() {
        moves.push(RunMove::Complete);
        return;
    }
    if !now.run.paused {
        if now.next_supervisor() == Some(None) {
            moves.push(RunMove::Supervise);
        }
        begin(now, moves);
    }
    if now.need() != now.run.needs {
        moves.push(RunMove::Need(now.need()));
    }
}

/// Whether a step that failed goes on by itself, also when it is to be started again: its task was completed after all, or a
/// person started it over.
fn comes_back(step: &RunStep, task: Option<&ChildTask>) -> bool {
    task.is_some_and(|task| !task.state.is_final() || (step.broke && task.state == TaskState::Completed))
}

/// The gates to be opened, and the steps to be started.
fn begin(now: &RunSnapshot, moves: &mut Vec<RunMove>) {
    let running = now.steps.iter().filter(|step| step.phase == StepPhase::Running).count();
    let due = now.steps.iter().filter(|step| now.next_start(step) == Some(None));
    let (passed, shut): (Vec<&RunStep>, Vec<&RunStep>) = due.partition(|step| gates::is_passed(&now.run, step));
    moves.extend(shut.into_iter().map(|step| RunMove::OpenGate(step.label.clone())));
    let room = MAX_RUNNING_STEPS.saturating_sub(running);
    moves.extend(passed.into_iter().take(room).map(|step| RunMove::Start(step.label.clone())));
}

/// What a step's ended task means for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepEnd {
    Done,
    /// A person decides whether it is done.
    Gate,
    /// It is started again by itself. `broke`: its task failed, and may be completed after all.
    Retry {
        why: String,
        broke: bool,
    },
    /// It failed, because of its task.
    Broke(String),
    /// It failed otherwise.
    Failed(String),
    /// Its run was stopped.
    Stopped,
}

/// The same. `absent`: files that it had to produce and did not.
pub fn step_end(now: &RunSnapshot, step: &RunStep, absent: &[String]) -> StepEnd {
    let task = now.task(step.task_id.as_ref());
    let is_retried = step.attempt <= step.retry && !now.run.state.is_final();
    match task.map(|task| task.state) {
        Some(TaskState::Completed) if !absent.is_empty() => {
            let why = format!("It did not hand over {}, which it has to give", absent.join(", "));
            if is_retried { StepEnd::Retry { why, broke: false } } else { StepEnd::Failed(why) }
        }
        Some(TaskState::Completed) if step.gate == Some(GatePoint::After) && !now.run.state.is_final() => StepEnd::Gate,
        Some(TaskState::Completed) => StepEnd::Done,
        _ if now.run.state.is_final() => StepEnd::Stopped,
        None => StepEnd::Failed("Its task was deleted".to_owned()),
        Some(TaskState::Error) => {
            let why = task.and_then(|task| task.error.clone()).unwrap_or_else(|| "Its task failed".to_owned());
            if is_retried { StepEnd::Retry { why, broke: true } } else { StepEnd::Broke(why) }
        }
        Some(_) => StepEnd::Failed("Its task was stopped".to_owned()),
    }
}
