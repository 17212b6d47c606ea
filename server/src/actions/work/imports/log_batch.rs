//! Writing a batch of a machine's log in many short changes; what is here already stays as it is. A task is written
//! together with its end; the changes after that add the parts of a long answer, and one attempt after the other.

use std::sync::Arc;

use protocol::{LogPlace, MessageId, ReportedDetail, SessionId, SessionPiece, TaskId, TeamId, ViberId};
use serde_json::json;

use crate::{
    actions::{AfterCommit, tasks::question},
    db::{self, Change, TeamTx, audit::Entry, tasks::TaskCompletion},
    domain::{
        By, Contact, ContactState, Delivery, Message, Policies, Session, Task, TaskKind, TaskState,
        context::compaction::Compaction,
        logbook::{Ending, LoggedAttempt, LoggedTask},
    },
    error::{Error, Result},
    state::Board,
};

/// The origin of imported tasks.
const LOG_ORIGIN: &str = "log";
/// Parts written between two checks whether the change is full.
const PARTS_PER_STEP: usize = 20;

/// Tasks of a log, up to a place in it.
pub(super) struct LogBatch {
    viber: ViberId,
    session: SessionId,
    agent: String,
    title: String,
    to: LogPlace,
    tasks: Vec<LoggedTask>,
}

/// What was imported so far.
#[derive(Clone, Debug, Default)]
pub(super) struct ImportTally {
    pub tasks: u64,
    /// Tasks whose ids belong to others.
    pub refused: u64,
    /// Attempts that were new here.
    pub attempts: usize,
    /// The task that was counted last: its attempts may come in many pieces.
    last: Option<TaskId>,
    /// The audit has a row about this import.
    audited: bool,
    /// The session existed: if it does not any more, somebody deleted it.
    begun: bool,
}

impl ImportTally {
    /// Nothing yet, for a session that exists.
    pub fn of_known() -> Self {
        Self { begun: true, ..Self::default() }
    }

    /// Counts a task once. `false`: it was counted.
    fn is_next(&mut self, task: &TaskId) -> bool {
        self.last.replace(task.clone()).as_ref() != Some(task)
    }
}

/// How far a task was imported.
enum TaskImport {
    /// All of it: the number of new attempts.
    Added(usize),
    /// Its id is somebody else's.
    Refused,
    /// There is more of it than fits: the number of new attempts so far.
    More(usize),
}

impl LogBatch {
    pub fn new(of: (&ViberId, &SessionId), piece: &SessionPiece, to: LogPlace, tasks: Vec<LoggedTask>) -> Self {
        let (agent, title) = (piece.agent_id.clone(), piece.title.clone());
        Self { viber: of.0.clone(), session: of.1.clone(), agent, title, to, tasks }
    }

    /// Writes the batch, and adds to the tally.
    pub async fn write(self, board: &Board, team: &TeamId, by: &By, tally: &mut ImportTally) -> Result<()> {
        let (batch, mut next) = (Arc::new(self), Some(0));
        while let Some(from) = next {
            let (batch, before) = (batch.clone(), tally.clone());
            let (after_it, so_far, after) = board
                .piece(team, by, move |tx| {
                    let (batch, before) = (batch.clone(), before.clone());
                    Box::pin(async move { batch.run(tx, from, before).await })
                })
                .await?;
            after.publish(board, team);
            (next, *tally) = (after_it, so_far);
        }
        Ok(())
    }

    /// Makes the session and records that its import is requested, because reading its first task takes long.
    pub async fn announce(self, board: &Board, team: &TeamId, by: &By, tally: &mut ImportTally) -> Result<()> {
        let (batch, begun) = (Arc::new(self), tally.begun);
        let said = batch.clone();
        let change = board.piece(team, by, move |tx| {
            let batch = batch.clone();
            Box::pin(async move { batch.begin(tx, begun).await })
        });
        change.await?;
        tally.begun = true;
        let mut after = AfterCommit::default();
        after.session(&said.session);
        after.viber(&said.viber);
        after.publish(board, team);
        Ok(())
    }

    /// Writes tasks from number `from` on, as many as fit; returns where to continue, the tally, and what to publish.
    async fn run(
        &self,
        tx: &mut Change<'_>,
        from: usize,
        mut tally: ImportTally,
    ) -> Result<(Option<usize>, ImportTally, AfterCommit)> {
        let (mut after, id) = (AfterCommit::default(), &self.session);
        if self.tasks.is_empty() && db::sessions::load(tx, id).await?.is_none() {
            return Ok((None, tally, after));
        }
        self.begin(tx, tally.begun).await?;
        tally.begun = true;
        let mut next = None;
        for (place, logged) in self.tasks.iter().enumerate().skip(from) {
            let (added, whole) = match self.one(tx, logged).await? {
                TaskImport::Added(added) => (added, true),
                TaskImport::More(added) => (added, false),
                TaskImport::Refused => {
                    tally.refused += u64::from(tally.is_next(&logged.id));
                    (0, true)
                }
            };
            if added > 0 {
                tally.attempts += added;
                tally.tasks += u64::from(tally.is_next(&logged.id));
                after.task(id, &logged.id);
            }
            if !whole || (tx.is_full() && place + 1 < self.tasks.len()) {
                next = Some(if whole { place + 1 } else { place });
                break;
            }
        }
        if next.is_none() {
            db::imports::set_position(tx, id, &self.agent, self.to).await?;
        }
        if tally.tasks > 0 && !tally.audited {
            tally.audited = true;
            let detail = format!("from the log of {}", self.viber);
            db::audit::append(tx, Entry::new("session.import", id.as_str()).detail(&detail)).await?;
        }
        after.session(id);
        after.viber(&self.viber);
        Ok((next, tally, after))
    }

    /// The session, locked: made when it is new and was not `begun`. One that belongs to others does not exist.
    async fn begin(&self, tx: &mut Change<'_>, begun: bool) -> Result<()> {
        let first = self.tasks.first();
        let goal = first.map_or("", |first| first.goal.as_str());
        let title = if self.title.trim().is_empty() { goal } else { &self.title };
        let fresh = Session {
            id: self.session.clone(),
            viber_id: self.viber.clone(),
            agent_id: self.agent.clone(),
            title: protocol::text::title(title),
            renamed_at: None,
            pinned_at: None,
            archived_at: None,
            last_seq: 0,
            // It began on the machine.
            created_by: self.viber.to_string(),
            created_at: first.map_or(tx.now, |first| first.at),
            active_at: tx.now,
            policies: Policies::default(),
        };
        if db::sessions::load(tx, &self.session).await?.is_none() {
            if db::purge::is_session_deleted(tx, &self.session).await? {
                let why = "the session was deleted here a moment ago; try again shortly";
                return Err(Error::conflict("being_deleted", why));
            }
            if begun {
                return Err(Error::NotFound);
            }
            db::sessions::insert_unless_taken(tx, &fresh).await?;
        }
        db::sessions::lock(tx, &self.session).await?;
        let session = db::sessions::load(tx, &self.session).await?;
        let session = session.filter(|session| session.viber_id == self.viber).ok_or(Error::NotFound)?;
        if session.agent_id != self.agent {
            return Err(Error::conflict("other_agent", "the session is with another agent here"));
        }
        // The position in the log, and that the rest is requested, are recorded from the beginning.
        db::imports::set_position(tx, &self.session, &self.agent, LogPlace::default()).await?;
        let by = tx.by.actor.id().to_owned();
        db::imports::set_requester_if_none(tx, &self.session, &by).await?;
        Ok(())
    }

    /// Writes the new attempts of a task, as far as they fit.
    async fn one(&self, tx: &mut Change<'_>, logged: &LoggedTask) -> Result<TaskImport> {
        let known = db::tasks::load(tx, &logged.id).await?;
        if known.as_ref().is_some_and(|known| known.session_id != self.session) {
            return Ok(TaskImport::Refused);
        }
        if known.is_none() && db::tasks::is_taken(tx.without_team(), &logged.id).await? {
            return Ok(TaskImport::Refused);
        }
        let incomplete = self.incomplete_attempt(tx, &logged.id).await?;
        let mut newest = known.as_ref().map(|known| known.attempt);
        let here = newest.map_or(0, |newest| logged.attempts.partition_point(|attempt| attempt.number <= newest));
        let (known_attempts, fresh) = logged.attempts.split_at(here);
        // Known attempts were written before; at most one of them lacks parts.
        if let Some(attempt) = known_attempts.iter().find(|attempt| incomplete == Some(attempt.number)) {
            let whole = self.complete_attempt(tx, &logged.id, attempt).await?;
            if !whole || (tx.is_full() && !fresh.is_empty()) {
                return Ok(TaskImport::More(0));
            }
        }
        let (agent, viber) = (self.agent.as_str(), self.viber.as_str());
        for (added, attempt) in (1..).zip(fresh) {
            let seq = if newest.is_some() {
                if !db::imports::restart_task(tx, &logged.id, attempt.number, attempt.from).await? {
                    // It is running or completed.
                    return Ok(TaskImport::Added(added - 1));
                }
                let seq = self.seqs(tx, 1).await?;
                let of = (&logged.id, attempt.number);
                db::attempts::insert(&mut tx.at(attempt.from), of, &self.viber, seq, None).await?;
                seq
            } else {
                let seq = self.seqs(tx, 2).await?;
                let asked = logged.question(&self.session, viber, seq);
                if !question(tx, &asked, &self.task(logged, attempt, &asked)).await? {
                    return Ok(TaskImport::Refused);
                }
                seq + 1
            };
            newest = Some(attempt.number);
            let answer = logged.answer(attempt, &self.session, agent, seq);
            self.end(tx, &logged.id, attempt, answer.as_ref()).await?;
            let whole = match &answer {
                Some(answer) => {
                    let there = attempt.parts.len().min(PARTS_PER_STEP);
                    self.write_parts(tx, (&logged.id, attempt), (&answer.id, there)).await?
                }
                None => true,
            };
            // Each attempt is complete, or recorded as lacking parts: the next change continues after it.
            if !whole || (tx.is_full() && added < fresh.len()) {
                return Ok(TaskImport::More(added));
            }
        }
        Ok(TaskImport::Added(fresh.len()))
    }

    /// The number of the task's attempt of which parts are missing.
    async fn incomplete_attempt(&self, tx: &mut TeamTx<'_>, task: &TaskId) -> Result<Option<u32>> {
        let noted = db::imports::incomplete_attempt(tx, &self.session).await?;
        Ok(noted.and_then(|noted| noted.strip_prefix(task.as_str())?.strip_prefix(':')?.parse().ok()))
    }

    /// Writes the missing parts of an attempt that is here. `false`: there is more.
    async fn complete_attempt(&self, tx: &mut Change<'_>, task: &TaskId, attempt: &LoggedAttempt) -> Result<bool> {
        let held = db::attempts::load_with_task(tx, task, attempt.number).await?;
        if let Some(id) = held.and_then(|held| held.message_id) {
            let there = usize::try_from(db::messages::count(tx, &id).await?).unwrap_or(usize::MAX);
            if !self.write_parts(tx, (task, attempt), (&id, there)).await? {
                return Ok(false);
            }
        }
        db::imports::set_incomplete_attempt(tx, &self.session, None).await?;
        Ok(true)
    }

    /// Writes the parts of an attempt's answer after those that are `there`, as far as they fit. `false`: there is more, and
    /// that is recorded.
    async fn write_parts(
        &self,
        tx: &mut Change<'_>,
        (task, attempt): (&TaskId, &LoggedAttempt),
        (id, mut there): (&MessageId, usize),
    ) -> Result<bool> {
        while let Some(rest) = attempt.parts.get(there..).filter(|rest| !rest.is_empty()) {
            let some = &rest[..rest.len().min(PARTS_PER_STEP)];
            // A later task's history then contains all of it.
            db::messages::append(tx, id, some).await?;
            db::touched_files::note(tx, &self.session, some).await?;
            there += some.len();
            // Something was written, so the next change makes progress however slow this is.
            if tx.is_full() && there < attempt.parts.len() {
                let at = Some(format!("{task}:{}", attempt.number));
                db::imports::set_incomplete_attempt(tx, &self.session, at).await?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn seqs(&self, tx: &mut Change<'_>, count: u64) -> Result<u64> {
        db::sessions::reserve_seqs(tx, &self.session, count).await?.ok_or(Error::NotFound)
    }

    fn task(&self, logged: &LoggedTask, attempt: &LoggedAttempt, asked: &Message) -> Task {
        Task {
            id: logged.id.clone(),
            session_id: self.session.clone(),
            viber_id: self.viber.clone(),
            agent_id: self.agent.clone(),
            message_id: asked.id.clone(),
            message_seq: asked.seq,
            goal: logged.goal.clone(),
            state: TaskState::Pending,
            delivery: Some(Delivery::Accepted),
            waiting: None,
            pausing: None,
            smaller: Vec::new(),
            goes_on_from: None,
            kind: logged.kind,
            contact: Contact { state: ContactState::Connected, since: logged.at },
            attempt: attempt.number,
            stream: ReportedDetail::Full,
            mode: None,
            limits: protocol::TaskLimits::default(),
            payload: match logged.kind {
                TaskKind::Work => json!({}),
                _ => json!({ "compact": Compaction::unknown() }),
            },
            model: None,
            result: None,
            error: None,
            usage: protocol::Usage::default(),
            origin: LOG_ORIGIN.to_owned(),
            created_by: self.viber.to_string(),
            created_at: logged.at,
            offered_at: Some(logged.at),
            started_at: None,
            ended_at: None,
            stopped_by: None,
            stop_confirmed_at: None,
        }
    }

    /// Writes the beginning of an attempt's answer, and its end.
    async fn end(
        &self,
        tx: &mut Change<'_>,
        task: &TaskId,
        attempt: &LoggedAttempt,
        said: Option<&Message>,
    ) -> Result<()> {
        let number = attempt.number;
        if let Some(said) = said {
            db::messages::insert(tx, said).await?;
            let first = &attempt.parts[..attempt.parts.len().min(PARTS_PER_STEP)];
            db::messages::append(tx, &said.id, first).await?;
            db::touched_files::note(tx, &self.session, first).await?;
        }
        let advance = db::attempts::Advance {
            from: 1,
            to: 0,
            parts_seq: 0,
            open_weight: 0,
            message_id: said.map(|said| &said.id),
            started_at: Some(attempt.from),
            end: None,
        };
        db::attempts::advance(tx, task, number, advance).await?;
        db::imports::mark_running(tx, task, attempt.model.as_deref(), attempt.from).await?;
        let (outcome, report) = match attempt.end() {
            Ending::Completed(result) => {
                db::tasks::spend(tx, task, number, &result.usage).await?;
                let completion = TaskCompletion { result: &result, model: None, adopted: false };
                db::tasks::complete(&mut tx.at(attempt.to), task, number, completion).await?;
                ("completed", json!(result))
            }
            Ending::Failed(error) => {
                db::tasks::fail(&mut tx.at(attempt.to), task, number, &error, false).await?;
                ("error", json!(error))
            }
            Ending::Stopped => {
                let stop =
                    db::tasks::TaskStop { by: self.viber.as_str(), reason: "stopped on the machine", confirmed: true };
                db::tasks::stop(&mut tx.at(attempt.to), task, number, stop).await?;
                ("stopped", json!({ "reason": "stopped on the machine", "killed": 0 }))
            }
        };
        let end = db::attempts::AttemptEnd { outcome, superseded: false, report: Some(report.to_string()) };
        db::attempts::end(&mut tx.at(attempt.to), task, number, end).await?;
        Ok(())
    }
}
