//! Starting a step: what lies before it is brought together first, then its task is submitted in the change that says so.

use std::sync::Arc;

use protocol::{PlaybookTask, RunId, TeamId, ViberId, agent, playbook::StepViber};

use super::{
    advance::{RefusedMove, refusal},
    hand_over::{Handover, gather},
    play::Play,
    snapshot, start,
};
use crate::{
    actions::{
        AfterCommit,
        tasks::{self, NewTask, RunTask, placement},
    },
    db::{self, Change, vibers::Candidate},
    domain::{
        By, PlaybookRun, RunEventKind, RunMove, RunSnapshot, RunStep, Session, StepPlace, Task, TaskState,
        playbook_run::{goal, plan},
    },
    error::{Error, Result},
    state::Board,
};

/// Starts a step beside everything else, unless that is under way.
pub(super) fn spawn(board: &Board, team: &TeamId, id: &RunId, label: String) {
    let Some(turn) = board.runs.begin(id, Some(&label)) else { return };
    let (board, team, id) = (board.clone(), team.clone(), id.clone());
    let shutdown = board.shutdown.clone();
    shutdown.spawn(async move {
        let begun = begin(&board, &team, &id, &label).await;
        drop(turn);
        match begun {
            Ok(()) => board.runs.poke(&team, &id),
            Err(error @ Error::Offline { .. }) => {
                tracing::info!(run.id = %id, step = %label, %error, "a step waits for files of the steps before it");
            }
            Err(error) => tracing::warn!(run.id = %id, step = %label, %error, "a step is not started yet"),
        }
    });
}

/// Starts a step, or fails it when that is refused.
async fn begin(board: &Board, team: &TeamId, id: &RunId, label: &str) -> Result<()> {
    let next = RunMove::Start(label.to_owned());
    let (now, again) = {
        let at = board.clock.now();
        let mut tx = board.db.reader_of(team).await?;
        let Some(now) = snapshot(&mut tx, id, at).await?.filter(|now| plan::moves(now).contains(&next)) else {
            return Ok(());
        };
        let step = now.step(label).cloned().ok_or(Error::NotFound)?;
        let again = may_go_on(&mut tx, &step).await?;
        (now, again)
    };
    let handed = match again {
        // What it was given before is still there.
        true => Ok(None),
        false => tokio::select! {
            // The next Board begins it again.
            () = board.shutdown.soft.cancelled() => return Ok(()),
            handed = gather(board, team, &now, label) => refusal(handed.map(Some)),
        },
    };
    let made = match handed {
        Ok(handed) => refusal(submit(board, team, id, (next.clone(), handed)).await),
        Err(refused) => Err(refused),
    };
    let after = match made {
        Ok(after) => after,
        Err(RefusedMove::Why(why)) => fail(board, team, id, (next, why)).await?,
        Err(RefusedMove::Failed(error)) => return Err(error),
    };
    crate::fault::at("playbooks::after_start");
    if let Some(after) = after {
        after.publish(board, team);
    }
    Ok(())
}

/// Whether the step's newest task can be started over: then the step goes on as another attempt of it. Not one whose viber was
/// revoked: the step begins anew, elsewhere if the playbook lets it.
async fn may_go_on(tx: &mut db::TeamTx<'_>, step: &RunStep) -> Result<bool> {
    let Some(task) = &step.task_id else { return Ok(false) };
    let Some(task) = db::tasks::load(tx, task).await? else { return Ok(false) };
    let is_over = matches!(task.state, TaskState::Error | TaskState::Stopped);
    Ok(is_over && db::vibers::candidate(tx, &task.viber_id).await?.is_some())
}

async fn submit(
    board: &Board,
    team: &TeamId,
    id: &RunId,
    next: (RunMove, Option<Handover>),
) -> Result<Option<AfterCommit>> {
    let wanted = Arc::new((id.clone(), next));
    let submitting = board.change(team, &By::board(), move |tx| {
        let wanted = wanted.clone();
        Box::pin(async move {
            let (id, (next, handed)) = &*wanted;
            let RunMove::Start(label) = next else { return Ok(None) };
            let Some(mut play) = Play::of(tx, id, next).await? else { return Ok(None) };
            play.start(label, handed.as_ref()).await?;
            Ok::<_, Error>(Some(play.after))
        })
    });
    submitting.await
}

async fn fail(board: &Board, team: &TeamId, id: &RunId, next: (RunMove, String)) -> Result<Option<AfterCommit>> {
    let wanted = Arc::new((id.clone(), next));
    let failing = board.change(team, &By::board(), move |tx| {
        let wanted = wanted.clone();
        Box::pin(async move {
            let (id, (next, why)) = &*wanted;
            let Some(mut play) = Play::of(tx, id, next).await? else { return Ok(None) };
            play.refuse(next, why).await?;
            Ok::<_, Error>(Some(play.after))
        })
    });
    failing.await
}

impl Play<'_, '_> {
    /// Submits a step's task and writes down that it is the step's, or starts the one that it has over. `handed` is for a new
    /// task: without it nothing is done if the one that there was is gone meanwhile.
    async fn start(&mut self, label: &str, handed: Option<&Handover>) -> Result<()> {
        let step = self.step(label)?.clone();
        let task = match (may_go_on(self.tx, &step).await?, handed) {
            (true, _) => {
                let id = step.task_id.as_ref().ok_or(Error::NotFound)?;
                tasks::begin_again(self.tx, id, &tasks::Retry::default(), &mut self.after).await?
            }
            (false, Some(handed)) => {
                let new = new_task(self.tx, &self.now, &step, handed).await?;
                let (task, after) = tasks::check(new)?.run_within(self.tx).await?;
                self.after = after;
                task
            }
            (false, None) => return Ok(()),
        };
        self.begun(label, task).await
    }

    async fn begun(&mut self, label: &str, task: Task) -> Result<()> {
        let (run, at) = (self.now.run.id.clone(), self.tx.now);
        self.after.follow(&run, &task.id);
        let viber = db::vibers::load(self.tx, &task.viber_id).await?.map(|viber| viber.name).unwrap_or_default();
        let agent = task.agent_id.clone();
        let place = StepPlace { task: task.id, session: task.session_id, viber: task.viber_id };
        self.change(label, |step, _| {
            step.agent_id = task.agent_id;
            step.begin(place, at);
        })
        .await?;
        let (kind, what) = match self.step(label)?.attempt {
            1 => (RunEventKind::StepStarted, format!("started: {agent} on {viber}")),
            attempt => (RunEventKind::StepRetried, format!("started again, attempt {attempt}: {agent} on {viber}")),
        };
        self.step_event(kind, label, &what, None).await?;
        self.save().await
    }
}

/// A step's task: in the session that the step has, else in a new one.
async fn new_task(tx: &mut Change<'_>, now: &RunSnapshot, step: &RunStep, handed: &Handover) -> Result<NewTask> {
    let run = &now.run;
    let playbook = start::playbook_of(run)?;
    let (viber, session, agent) = match session_of(tx, step).await? {
        Some(session) => (session.viber_id, Some(session.id), session.agent_id),
        None => {
            let (viber, agent) = place(tx, run, step).await?;
            (viber, None, agent)
        }
    };
    Ok(NewTask {
        goal: goal::of_step(run, &playbook, step, &handed.names),
        session,
        viber: Some(viber),
        agent: Some(agent),
        limits: step.limits.clone(),
        of_run: Some(RunTask {
            playbook: PlaybookTask { run_id: run.id.clone(), step: Some(step.label.clone()) },
            started_by: run.started_by.clone(),
            files: handed.files.clone(),
        }),
        ..NewTask::default()
    })
}

/// The session that a step has, unless it was deleted or its viber was revoked.
async fn session_of(tx: &mut Change<'_>, step: &RunStep) -> Result<Option<Session>> {
    let Some(session) = &step.session_id else { return Ok(None) };
    let Some(session) = db::sessions::load(tx, session).await? else { return Ok(None) };
    let is_here = db::vibers::candidate(tx, &session.viber_id).await?.is_some();
    Ok(is_here.then_some(session))
}

/// The viber that a step runs on, and its agent there.
async fn place(tx: &mut Change<'_>, run: &PlaybookRun, step: &RunStep) -> Result<(ViberId, String)> {
    let viber = match &step.target {
        // What is started on a machine stays there.
        Some(StepViber::Name(name)) if !run.by_viber => named(tx, name).await?,
        Some(StepViber::Labels(labels)) if !run.by_viber => placement::viber(tx, None, labels).await?,
        _ => placement::viber(tx, Some(&run.viber_id), &std::collections::BTreeMap::new()).await?,
    };
    let agent = agent_of(&viber, &step.agent_id)?;
    Ok((viber.id, agent))
}

/// The viber of this name.
pub(super) async fn named(tx: &mut Change<'_>, name: &str) -> Result<Candidate> {
    let unknown = || Error::unacceptable("viber_not_found", format!("there is no viber {name:?} in this team"));
    db::vibers::candidate_named(tx, name).await?.ok_or_else(unknown)
}

/// The agent that a playbook means there, which may be called otherwise by its capitals.
pub(super) fn agent_of(viber: &Candidate, name: &str) -> Result<String> {
    let known: Vec<&str> = viber.agents.iter().map(|known| known.id.as_str()).collect();
    let meant = protocol::playbook::agent_id(&known, name);
    // A daemon that has not told its agents knows them by itself.
    let meant = meant.or_else(|| Some(name.to_ascii_lowercase()).filter(|id| known.is_empty() && agent::is_id(id)));
    placement::agent(viber, Some(meant.as_deref().unwrap_or(name)))
}
