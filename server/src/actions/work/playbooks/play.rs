//! One move of a run, made inside a change.

use protocol::{PLAYBOOKS_CAPABILITY, RunId, TaskId, playbook::GatePoint, text::head};
use serde_json::json;

use super::{locked, start};
use crate::{
    actions::{AfterCommit, dispatch, tasks},
    db::{self, Change, commands::NewCommand},
    domain::{
        ArtifactOrigin, PlaybookRun, RunEvent, RunEventKind, RunMove, RunNeed, RunSnapshot, RunState, RunStep,
        playbook_run::{
            ledger::cost,
            plan::{self, MAX_SUPERVISOR_ATTEMPTS, StepEnd},
        },
    },
    error::{Error, Result},
};

/// Rows of a run that one change marks.
const ROWS_PER_CHANGE: u64 = 100;
/// Artifacts of a step that are looked at for what it has to give.
const MAX_ARTIFACTS: u64 = 1_000;
/// Longest reason of a failure that is kept, bytes.
pub(super) const MAX_FAILURE_BYTES: usize = 4 * 1024;

/// A run behind its lock, while one move is made.
pub(super) struct Play<'a, 't> {
    pub tx: &'a mut Change<'t>,
    pub now: RunSnapshot,
    pub after: AfterCommit,
}

impl<'a, 't> Play<'a, 't> {
    /// Locks a run; `None` when this is not to be done with it any more.
    pub async fn of(tx: &'a mut Change<'t>, id: &RunId, next: &RunMove) -> Result<Option<Self>> {
        let Some(now) = locked(tx, id).await? else { return Ok(None) };
        let is_next = plan::moves(&now).contains(next);
        Ok(is_next.then(|| Self { tx, now, after: AfterCommit::default() }))
    }

    /// Locks a run for what a person wants of it.
    pub async fn open(tx: &'a mut Change<'t>, id: &RunId) -> Result<Self> {
        let now = locked(tx, id).await?.ok_or(Error::NotFound)?;
        Ok(Self { tx, now, after: AfterCommit::default() })
    }

    /// Makes the move. What it refuses is to be rolled back, and then refused.
    pub async fn make(&mut self, next: &RunMove) -> Result<()> {
        match next {
            RunMove::StoreSteps => {
                start::store_steps(self.tx, &self.now.run, &self.now.steps).await?;
                self.save().await
            }
            RunMove::Supervise => self.supervise().await,
            RunMove::NoteEnd(label) => {
                let end = self.step_end(label).await?;
                self.conclude(label, end).await
            }
            RunMove::TakeUp(label) => self.take_up(label).await,
            RunMove::OpenGate(label) => self.open_gate(label).await,
            RunMove::Answer(id) => self.answer(id).await,
            RunMove::CloseCalls => {
                let waits = self.now.supervisor().filter(|_| !self.now.run.state.is_final());
                let waits = waits.map(|task| (&task.id, task.attempt));
                db::playbook_runs::close_calls(self.tx, &self.now.run.id, waits, ROWS_PER_CHANGE).await?;
                Ok(())
            }
            RunMove::Complete => self.complete().await,
            RunMove::Halt(task) => self.halt(task).await,
            RunMove::StopSteps => {
                db::playbook_runs::stop_steps(self.tx, &self.now.run.id, ROWS_PER_CHANGE).await?;
                self.save().await
            }
            RunMove::Need(_) => self.save().await,
            RunMove::SendLedger => self.send_ledger().await,
            RunMove::Settle => Ok(db::playbook_runs::settle(self.tx, &self.now.run.id).await?),
            RunMove::Start(_) => Err(Error::Internal("a step is started with its files".into())),
        }
    }

    /// Does what follows from that a move was refused.
    pub async fn refuse(&mut self, next: &RunMove, why: &str) -> Result<()> {
        let at = self.tx.now;
        match next {
            RunMove::Supervise => {
                self.now.run.supervisor_attempts = MAX_SUPERVISOR_ATTEMPTS;
                let text = format!("The supervisor could not be started: {why}");
                self.event(RunEvent::of_run(RunEventKind::Failed, &text, None, at)).await?;
                // That is said already.
                self.now.run.needs = Some(RunNeed::Supervisor);
                self.save().await
            }
            RunMove::Start(label) => {
                let why = match &self.step(label)?.failure {
                    Some(failure) => {
                        format!("{}\nIt was not started again: {why}", head(failure, MAX_FAILURE_BYTES / 2))
                    }
                    None => why.to_owned(),
                };
                self.fail(label, why).await?;
                self.save().await
            }
            other => Err(Error::Internal(format!("{other:?} was refused: {why}"))),
        }
    }

    /// A step of the run.
    pub fn step(&self, label: &str) -> Result<&RunStep> {
        self.now.step(label).ok_or_else(|| Error::Internal(format!("the run has no step {label}")))
    }

    /// Changes a step, and stores it.
    pub async fn change(&mut self, label: &str, change: impl FnOnce(&mut RunStep, &PlaybookRun)) -> Result<()> {
        let RunSnapshot { run, steps, .. } = &mut self.now;
        let step = steps.iter_mut().find(|step| step.label == label);
        let step = step.ok_or_else(|| Error::Internal(format!("the run has no step {label}")))?;
        change(step, run);
        Ok(db::playbook_runs::save_step(self.tx, step).await?)
    }

    /// Adds a line to the ledger.
    pub async fn event(&mut self, event: RunEvent) -> Result<()> {
        Ok(db::playbook_runs::add_event(self.tx, &self.now.run.id, &event).await?)
    }

    /// Adds a line about a step.
    pub async fn step_event(&mut self, kind: RunEventKind, label: &str, what: &str, by: Option<&str>) -> Result<()> {
        let event = RunEvent::of_step(kind, self.step(label)?, what, by, self.tx.now);
        self.event(event).await
    }

    /// Stores the run as its next version.
    pub async fn save(&mut self) -> Result<()> {
        let need = self.now.need();
        if need == Some(RunNeed::Supervisor) && self.now.run.needs != need {
            let (attempts, why) = (self.now.run.supervisor_attempts, self.now.supervisor_end());
            let why = head(&why, MAX_FAILURE_BYTES);
            let text = format!("The supervisor is not started again after attempt {attempts}, because: {why}");
            self.event(RunEvent::of_run(RunEventKind::Failed, &text, None, self.tx.now)).await?;
        }
        self.now.run.needs = need;
        db::playbook_runs::save(self.tx, &self.now.run).await?;
        self.after.run(&self.now.run.id);
        Ok(())
    }

    async fn fail(&mut self, label: &str, why: String) -> Result<()> {
        let at = self.tx.now;
        let why = head(&why, MAX_FAILURE_BYTES).to_owned();
        let what = format!("failed, attempt {}: {why}", self.step(label)?.attempt.max(1));
        self.change(label, |step, _| step.fail(why, at)).await?;
        self.step_event(RunEventKind::StepFailed, label, &what, None).await
    }

    /// Notes what the ended task of a step took and said; returns what its end means.
    async fn step_end(&mut self, label: &str) -> Result<StepEnd> {
        let step = self.step(label)?.clone();
        let task = self.now.task(step.task_id.as_ref()).cloned();
        if let Some(task) = &task {
            self.change(label, |step, _| step.note_end(task)).await?;
        }
        let absent = self.absent(&step).await?;
        Ok(plan::step_end(&self.now, &step, &absent))
    }

    /// A step goes on that had failed.
    async fn take_up(&mut self, label: &str) -> Result<()> {
        let (step, at) = (self.step(label)?.clone(), self.tx.now);
        let task = self.now.task(step.task_id.as_ref()).cloned();
        if self.now.is_at_work(&step) {
            self.change(label, |step, _| step.rejoin(at)).await?;
            let what = format!("runs again, attempt {}", self.step(label)?.attempt);
            self.step_event(RunEventKind::StepRetried, label, &what, None).await?;
            return self.save().await;
        }
        self.change(label, |step, _| {
            step.broke = false;
            step.wanted = false;
            task.iter().for_each(|task| step.note_summary(task));
        })
        .await?;
        let absent = self.absent(&step).await?;
        let end = plan::step_end(&self.now, &step, &absent);
        self.conclude(label, end).await
    }

    async fn conclude(&mut self, label: &str, end: StepEnd) -> Result<()> {
        let at = self.tx.now;
        match end {
            StepEnd::Done => {
                self.change(label, |step, _| step.done(at)).await?;
                let what = format!("done{}", cost(self.step(label)?));
                self.step_event(RunEventKind::StepDone, label, &what, None).await?;
            }
            StepEnd::Gate => return self.open_gate(label).await,
            StepEnd::Retry { why, broke } => self.retry(label, &why, broke).await?,
            StepEnd::Broke(why) => {
                self.fail(label, why).await?;
                self.change(label, |step, _| step.broke = true).await?;
            }
            StepEnd::Failed(why) => self.fail(label, why).await?,
            StepEnd::Stopped => self.change(label, |step, _| step.stop(at)).await?,
        }
        self.save().await
    }

    /// A step is started again by itself, after a pause.
    async fn retry(&mut self, label: &str, why: &str, broke: bool) -> Result<()> {
        let (at, why) = (self.tx.now, head(why, MAX_FAILURE_BYTES).to_owned());
        let what = format!("failed, attempt {}: {why}", self.step(label)?.attempt);
        self.change(label, |step, _| step.retry_later(why, broke, at)).await?;
        self.step_event(RunEventKind::StepFailed, label, &what, None).await
    }

    /// The files that a step had to produce, and that its session does not have.
    async fn absent(&mut self, step: &RunStep) -> Result<Vec<String>> {
        let Some(session) = step.session_id.as_ref().filter(|_| !step.gives.is_empty()) else { return Ok(Vec::new()) };
        let made = db::artifacts::products(self.tx, session, MAX_ARTIFACTS).await?;
        let is_made = |file: &str| made.iter().any(|one| one.origin != ArtifactOrigin::Operator && one.is_file(file));
        Ok(step.gives.iter().filter(|file| !is_made(file)).cloned().collect())
    }

    async fn open_gate(&mut self, label: &str) -> Result<()> {
        let at = self.tx.now;
        self.change(label, |step, run| step.open_gate(run, at)).await?;
        let what = match self.step(label)?.gate {
            Some(GatePoint::After) => "has ended: a person decides whether it is done",
            _ => "is at its gate: a person decides whether it begins",
        };
        self.step_event(RunEventKind::GateOpened, label, what, None).await?;
        self.save().await
    }

    async fn complete(&mut self) -> Result<()> {
        let at = self.tx.now;
        let said = self.now.task(self.now.run.supervisor.as_ref()).map(|task| task.summary.clone());
        let said = said.filter(|said| !said.is_empty());
        let text = said.as_ref().map_or("Completed".to_owned(), |said| format!("Completed: {said}"));
        self.now.run.end(RunState::Completed, said, at);
        self.event(RunEvent::of_run(RunEventKind::Completed, &text, None, at)).await?;
        self.save().await
    }

    async fn halt(&mut self, id: &TaskId) -> Result<()> {
        let Some(task) = db::tasks::load(self.tx, id).await? else { return Ok(()) };
        if tasks::end(self.tx, &task, "the run of its playbook was stopped", &mut self.after).await? {
            dispatch::next(self.tx, &task.session_id, &mut self.after).await?;
        }
        Ok(())
    }

    /// Daemons that know no ledgers get none.
    async fn send_ledger(&mut self) -> Result<()> {
        let run = &self.now.run;
        let viber = db::vibers::load(self.tx, &run.viber_id).await?;
        if viber.is_some_and(|viber| viber.capabilities.iter().any(|known| known == PLAYBOOKS_CAPABILITY)) {
            // It is written when it is sent, as it is then.
            let body = json!({ "runId": run.id }).to_string();
            let command = NewCommand { kind: "playbook:ledger", attempt: None, body };
            if db::commands::enqueue(self.tx, &run.viber_id, command).await?.is_some() {
                self.after.command(&run.viber_id);
            }
        }
        Ok(db::playbook_runs::sent_ledger(self.tx, &run.id, run.version).await?)
    }
}
