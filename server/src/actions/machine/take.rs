//! Taking a part of a machine's log over, in one change: what is here already stays as it is.

use std::{ops::AddAssign, sync::Arc};

use protocol::{Instant, LogPlace, SessionId, SessionPiece, Stream, TaskId, TeamId, ViberId};
use serde_json::json;

use crate::{
    actions::{After, tasks::question},
    db::{self, Tx},
    domain::{
        By, Contact, ContactState, Delivery, Message, Policies, Session, Task, TaskState,
        logbook::{Ending, LoggedAttempt, LoggedTask},
    },
    error::{Error, Result},
    state::Board,
};

/// Where a task is said to have begun.
const ORIGIN: &str = "log";

/// Tasks of a log, up to a place in it.
pub(super) struct Batch {
    viber: ViberId,
    session: SessionId,
    agent: String,
    title: String,
    to: LogPlace,
    tasks: Vec<LoggedTask>,
}

/// How many attempts of how many tasks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Took {
    pub tasks: u64,
    /// Of tasks whose ids belong to others.
    pub refused: u64,
}

impl AddAssign for Took {
    fn add_assign(&mut self, other: Self) {
        self.tasks += other.tasks;
        self.refused += other.refused;
    }
}

impl Batch {
    pub fn new(of: (&ViberId, &SessionId), piece: &SessionPiece, to: LogPlace, tasks: Vec<LoggedTask>) -> Self {
        let (agent, title) = (piece.agent_id.clone(), piece.title.clone());
        Self { viber: of.0.clone(), session: of.1.clone(), agent, title, to, tasks }
    }

    /// Takes it over.
    pub async fn take(self, board: &Board, team: &TeamId, by: &By) -> Result<Took> {
        let now = board.clock.now();
        let (batch, team_id, by) = (Arc::new(self), team.clone(), by.clone());
        let (took, after) = board
            .db
            .write(move |tx| {
                let (batch, team, by) = (batch.clone(), team_id.clone(), by.clone());
                Box::pin(async move { batch.run(tx, &team, &by, now).await })
            })
            .await?;
        after.tell(board, team);
        Ok(took)
    }

    async fn run(&self, tx: &mut Tx, team: &TeamId, by: &By, now: Instant) -> Result<(Took, After)> {
        let (mut took, mut after) = (Took::default(), After::default());
        if self.tasks.is_empty() && db::sessions::load(tx, team, &self.session).await?.is_none() {
            return Ok((took, after));
        }
        self.begin(tx, team, now).await?;
        for logged in &self.tasks {
            match self.one(tx, team, logged, now).await? {
                Some(0) => {}
                Some(_) => {
                    took.tasks += 1;
                    after.task(&self.session, &logged.id);
                }
                None => took.refused += 1,
            }
        }
        let id = &self.session;
        db::imports::take(tx, team, id, &self.agent, self.to, now).await?;
        if took.tasks > 0 {
            let detail = format!("{} tasks from the log of {}", took.tasks, self.viber);
            db::audit::append(tx, team, now, by, "session.import", id.as_str(), &detail, None, None).await?;
        }
        after.session(id);
        after.viber(&self.viber);
        Ok((took, after))
    }

    /// The session, locked: made when it is new. One that belongs to others does not exist.
    async fn begin(&self, tx: &mut Tx, team: &TeamId, now: Instant) -> Result<()> {
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
            created_at: first.map_or(now, |first| first.at),
            active_at: now,
            policies: Policies::default(),
        };
        if db::sessions::load(tx, team, &self.session).await?.is_none() {
            db::sessions::insert(tx, team, &fresh).await?;
        }
        db::sessions::lock(tx, team, &self.session).await?;
        let session = db::sessions::load(tx, team, &self.session).await?;
        let session = session.filter(|session| session.viber_id == self.viber).ok_or(Error::NotFound)?;
        if session.agent_id != self.agent {
            return Err(Error::conflict("other_agent", "the session is with another agent here"));
        }
        Ok(())
    }

    /// Attempts of a task that were not here; `None`: its id is somebody else's.
    async fn one(&self, tx: &mut Tx, team: &TeamId, logged: &LoggedTask, now: Instant) -> Result<Option<usize>> {
        let known = db::tasks::load(tx, team, &logged.id).await?;
        if known.as_ref().is_some_and(|known| known.session_id != self.session) {
            return Ok(None);
        }
        if known.is_none() && db::tasks::is_taken(tx, &logged.id).await? {
            return Ok(None);
        }
        let messages = logged.messages(&self.session, &self.agent, self.viber.as_str(), 0);
        let mut newest = known.as_ref().map(|known| known.attempt);
        let mut added = 0;
        for attempt in &logged.attempts {
            let seq = match newest {
                // It was told before.
                Some(newest) if attempt.number <= newest => continue,
                Some(_) => {
                    if !db::imports::again(tx, team, &logged.id, attempt.number, attempt.from).await? {
                        // It is at work, or done.
                        break;
                    }
                    let seq = self.seqs(tx, team, 1, now).await?;
                    let of = (&logged.id, attempt.number);
                    db::attempts::insert(tx, team, of, &self.viber, seq, attempt.from).await?;
                    seq
                }
                None => {
                    let seq = self.seqs(tx, team, 2, now).await?;
                    let asked = messages.first().cloned().map(|asked| Message { seq, ..asked });
                    let asked = asked.ok_or_else(|| Error::Internal("a task without a question".to_owned()))?;
                    let task = self.task(logged, attempt, &asked);
                    if !question(tx, team, &asked, &task, now).await? {
                        return Ok(None);
                    }
                    seq + 1
                }
            };
            newest = Some(attempt.number);
            let said = messages.iter().find(|message| message.attempt == attempt.number);
            let said = said.map(|message| Message { seq, ..message.clone() });
            self.end(tx, team, &logged.id, attempt, said, now).await?;
            added += 1;
        }
        Ok(Some(added))
    }

    async fn seqs(&self, tx: &mut Tx, team: &TeamId, count: u64, now: Instant) -> Result<u64> {
        db::sessions::give_seqs(tx, team, &self.session, count, now).await?.ok_or(Error::NotFound)
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
            contact: Contact { state: ContactState::Connected, since: logged.at },
            attempt: attempt.number,
            stream: Stream::Full,
            mode: None,
            limits: protocol::Limits::default(),
            payload: json!({}),
            model: None,
            result: None,
            error: None,
            usage: protocol::Usage::default(),
            origin: ORIGIN.to_owned(),
            created_by: self.viber.to_string(),
            created_at: logged.at,
            offered_at: Some(logged.at),
            started_at: None,
            ended_at: None,
            stopped_by: None,
            stop_confirmed_at: None,
        }
    }

    /// What the attempt said, and its end.
    async fn end(
        &self,
        tx: &mut Tx,
        team: &TeamId,
        task: &TaskId,
        attempt: &LoggedAttempt,
        said: Option<Message>,
        now: Instant,
    ) -> Result<()> {
        let number = attempt.number;
        if let Some(said) = &said {
            db::messages::insert(tx, team, said).await?;
            // Complete since now: what is asked next is told all of it.
            db::messages::append(tx, team, &said.id, &said.parts, now).await?;
        }
        let advance = db::attempts::Advance {
            from: 1,
            to: 0,
            parts_seq: 0,
            message_id: said.as_ref().map(|said| &said.id),
            started_at: Some(attempt.from),
        };
        db::attempts::advance(tx, team, task, number, &advance).await?;
        db::imports::began(tx, team, task, attempt.model.as_deref(), attempt.from).await?;
        let (outcome, report) = match attempt.end() {
            Ending::Completed(result) => {
                db::tasks::spend(tx, team, task, number, &result.usage).await?;
                db::tasks::complete(tx, team, task, number, &result, false, attempt.to).await?;
                ("completed", json!(result))
            }
            Ending::Failed(error) => {
                db::tasks::fail(tx, team, task, number, &error, false, attempt.to).await?;
                ("error", json!(error))
            }
            Ending::Stopped => {
                let stop =
                    db::tasks::Stop { by: self.viber.as_str(), reason: "stopped on the machine", confirmed: true };
                db::tasks::stop(tx, team, task, number, stop, attempt.to).await?;
                ("stopped", json!({ "reason": "stopped on the machine", "killed": 0 }))
            }
        };
        let end = db::attempts::End { outcome, superseded: false, report: Some(report.to_string()) };
        db::attempts::end(tx, team, task, number, end, attempt.to).await?;
        Ok(())
    }
}
