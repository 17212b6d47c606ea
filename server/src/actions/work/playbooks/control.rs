//! What people do with a run and its steps. Each is one change of what there is; `advance` does what follows.

use std::sync::Arc;

use protocol::{RunId, TeamId, text::head};

use super::{
    advance,
    gates::{GateDecision, MAX_NOTE_BYTES, note_too_long, said},
    play::Play,
};
use crate::{
    actions::{members::Requester, refusals},
    db::{self, audit::Entry},
    domain::{By, PlaybookRun, Role, RunEvent, RunEventKind, RunState, SkippedStep, StepPhase},
    error::{Error, Result},
    state::Board,
};

/// Longest reason for leaving a step out, bytes.
const MAX_REASON_BYTES: usize = 2 * 1024;
/// Longest instruction of a step with what people added to it, bytes.
const MAX_INSTRUCTION_BYTES: usize = 128 * 1024;

/// Something that a person wants of a run, or of a step by its label.
#[derive(Clone, Debug)]
enum RunOrder {
    Stop,
    Pause,
    Resume,
    Retry { label: String, note: Option<String> },
    Skip { label: String, role: Role, reason: String },
    Decide { label: String, role: Role, decision: GateDecision },
}

/// Stops a run for good, with all its tasks. One that has ended stays as it is.
pub async fn stop(board: &Board, team: &TeamId, by: &By, id: &RunId) -> Result<PlaybookRun> {
    let run = order(board, team, by, id, RunOrder::Stop).await?;
    // At once, not only when the scheduler comes by. What it does not do that does.
    if let Err(error) = advance(board, team, id).await {
        tracing::warn!(run.id = %id, %error, "a stopped run still has tasks; they are stopped later");
    }
    Ok(run)
}

/// Lets nothing new start. What runs goes on.
pub async fn pause(board: &Board, team: &TeamId, by: &By, id: &RunId) -> Result<PlaybookRun> {
    order(board, team, by, id, RunOrder::Pause).await
}

/// Lets a run go on; also starts a supervisor again that was stopped, or failed too often.
pub async fn resume(board: &Board, team: &TeamId, by: &By, id: &RunId) -> Result<PlaybookRun> {
    order(board, team, by, id, RunOrder::Resume).await
}

/// Starts a failed step again, as soon as what it waits for is there. A note becomes a part of its instruction.
pub async fn retry_step(
    board: &Board,
    team: &TeamId,
    by: &By,
    (id, label): (&RunId, &str),
    note: Option<&str>,
) -> Result<PlaybookRun> {
    let note = said(note);
    if note.as_ref().is_some_and(|note| note.len() > MAX_NOTE_BYTES) {
        return Err(note_too_long());
    }
    order(board, team, by, id, RunOrder::Retry { label: label.to_owned(), note }).await
}

/// Leaves a step out that does not run, with a reason. One with a gate only those leave out who may decide about that: the
/// steps after it begin, as if somebody had let it pass.
pub async fn skip_step(
    board: &Board,
    team: &TeamId,
    who: Requester<'_>,
    (id, label): (&RunId, &str),
    reason: &str,
) -> Result<PlaybookRun> {
    let reason = db::clean(head(reason.trim(), MAX_REASON_BYTES));
    if reason.is_empty() {
        return Err(Error::unacceptable("reason_required", "say why the step is skipped"));
    }
    ordered(board, team, who, id, RunOrder::Skip { label: label.to_owned(), role: who.role, reason }).await
}

/// A decision about a step's gate by somebody with a role.
pub(super) async fn decide(
    board: &Board,
    team: &TeamId,
    who: Requester<'_>,
    (id, label): (&RunId, &str),
    decision: GateDecision,
) -> Result<PlaybookRun> {
    let wanted = RunOrder::Decide { label: label.to_owned(), role: who.role, decision };
    ordered(board, team, who, id, wanted).await
}

/// Does what somebody wants whose role matters; that it was refused is in the audit.
async fn ordered(
    board: &Board,
    team: &TeamId,
    who: Requester<'_>,
    id: &RunId,
    wanted: RunOrder,
) -> Result<PlaybookRun> {
    let done = order(board, team, who.by, id, wanted).await;
    if let Err(Error::Forbidden(why)) = done {
        refusals::note(board, team, who.by, id.as_str(), why).await?;
    }
    done
}

async fn order(board: &Board, team: &TeamId, by: &By, id: &RunId, wanted: RunOrder) -> Result<PlaybookRun> {
    let wanted = Arc::new((id.clone(), wanted));
    let ordering = board.change(team, by, move |tx| {
        let wanted = wanted.clone();
        Box::pin(async move {
            let (id, wanted) = &*wanted;
            let mut play = Play::open(tx, id).await?;
            play.obey(wanted).await?;
            let after = play.after;
            let run = db::playbook_runs::load(tx, id).await?.ok_or(Error::NotFound)?;
            Ok::<_, Error>((run, after))
        })
    });
    let (run, after) = ordering.await?;
    after.publish(board, team);
    Ok(run)
}

impl Play<'_, '_> {
    async fn obey(&mut self, wanted: &RunOrder) -> Result<()> {
        let is_over = self.now.run.state.is_final();
        match wanted {
            RunOrder::Stop if is_over => Ok(()),
            _ if is_over => {
                let message = format!("the run is {} already", self.now.run.state);
                Err(Error::conflict("run_over", message))
            }
            RunOrder::Stop => self.stop_run().await,
            RunOrder::Pause if self.now.run.paused => Ok(()),
            RunOrder::Pause => {
                self.now.run.paused = true;
                self.note(RunEventKind::Paused, "Paused", "playbook.pause").await
            }
            RunOrder::Resume => self.resume().await,
            RunOrder::Retry { label, note } => self.retry_by_person(label, note.as_deref()).await,
            RunOrder::Skip { label, role, reason } => self.skip_by_person(label, *role, reason).await,
            RunOrder::Decide { label, role, decision } => self.decide(label, *role, decision).await,
        }
    }

    /// Writes down what somebody did with the run, and stores it.
    async fn note(&mut self, kind: RunEventKind, text: &str, action: &str) -> Result<()> {
        let (by, at) = (self.tx.by.actor.name().to_owned(), self.tx.now);
        self.event(RunEvent::of_run(kind, text, Some(&by), at)).await?;
        let detail = self.now.run.playbook.clone();
        db::audit::append(self.tx, Entry::new(action, self.now.run.id.as_str()).detail(&detail)).await?;
        self.save().await
    }

    async fn stop_run(&mut self) -> Result<()> {
        let at = self.tx.now;
        self.now.run.end(RunState::Stopped, None, at);
        self.note(RunEventKind::Stopped, "Stopped", "playbook.stop").await
    }

    async fn resume(&mut self) -> Result<()> {
        let is_held = self.now.run.paused || self.now.supervisor().is_none() && self.now.run.supervised;
        if !is_held {
            return Ok(());
        }
        self.now.run.paused = false;
        if self.now.supervisor().is_none() {
            self.now.run.supervisor_attempts = 0;
        }
        self.note(RunEventKind::Resumed, "Resumed", "playbook.resume").await
    }

    async fn retry_by_person(&mut self, label: &str, note: Option<&str>) -> Result<()> {
        let step = self.step_of_person(label)?;
        if step.phase != StepPhase::Failed {
            let message = format!("step {label} is {}: only one that failed is started again", step.phase);
            return Err(Error::conflict("not_failed", message));
        }
        if self.now.is_at_work(step) {
            return Err(Error::conflict("step_running", format!("step {label} runs again already")));
        }
        let instruction = note.map(|note| format!("{}\n\n{} says: {note}", step.instruction, self.tx.by.actor.name()));
        if instruction.as_ref().is_some_and(|instruction| instruction.len() > MAX_INSTRUCTION_BYTES) {
            return Err(note_too_long());
        }
        if note.is_some() {
            self.note_author();
        }
        let told = note.map(|note| format!(": {}", head(note, 500))).unwrap_or_default();
        self.change(label, |step, _| step.want(instruction)).await?;
        let what = format!("is to be started again{told}");
        self.note_step((RunEventKind::StepRetried, label), &what, "playbook.retry").await
    }

    async fn skip_by_person(&mut self, label: &str, role: Role, reason: &str) -> Result<()> {
        let step = self.step_of_person(label)?;
        match step.phase {
            StepPhase::Running => return Err(running(label)),
            // Somebody started it over in its session.
            _ if self.now.is_at_work(step) => return Err(running(label)),
            StepPhase::Pending | StepPhase::Gate | StepPhase::Failed => {}
            StepPhase::Done | StepPhase::Skipped | StepPhase::Stopped => {
                return Err(Error::conflict("step_over", format!("step {label} is {} already", step.phase)));
            }
        }
        if step.gate.is_some() {
            let step = step.clone();
            self.check_decider(role, &step, Some(reason)).await?;
        }
        let (at, actor) = (self.tx.now, self.tx.by.actor.clone());
        let by = SkippedStep { by: actor.id().to_owned(), by_name: actor.name().to_owned(), reason: reason.to_owned() };
        // The agents of the steps after it read why.
        self.note_author();
        self.change(label, |step, _| step.skip(by, at)).await?;
        let what = format!("skipped: {reason}");
        self.note_step((RunEventKind::StepSkipped, label), &what, "playbook.skip").await
    }

    /// Writes down what somebody did with a step, and stores the run.
    pub(super) async fn note_step(
        &mut self,
        (kind, label): (RunEventKind, &str),
        what: &str,
        action: &str,
    ) -> Result<()> {
        let by = self.tx.by.actor.name().to_owned();
        self.step_event(kind, label, what, Some(&by)).await?;
        let detail = format!("{}, step {label} {what}", self.now.run.playbook);
        let entry = Entry::new(action, self.now.run.id.as_str()).detail(head(&detail, 300));
        db::audit::append(self.tx, entry).await?;
        self.save().await
    }

    /// A step that somebody named.
    pub(super) fn step_of_person(&self, label: &str) -> Result<&crate::domain::RunStep> {
        self.now.step(label).ok_or(Error::NotFound)
    }
}

fn running(label: &str) -> Error {
    Error::conflict("step_running", format!("step {label} runs: stop its task first"))
}
