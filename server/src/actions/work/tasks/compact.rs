//! Compaction: a task that is no work has its viber's model summarize a session's older turns, note what should be kept for
//! long, or write what another session begins with. The Board applies the summary; people can undo it.

mod ahead;
mod ended;
mod percent;

use std::{sync::Arc, time::Duration};

use protocol::{Capability, SessionId, TaskId, TeamId, tokens};
use serde_json::json;

use self::ahead::{DecidedAhead, PastBasis};
use super::submit::NewTask;
use crate::{
    actions::{AfterCommit, dispatch},
    db::{
        self, Change,
        audit::Entry,
        contexts::{ALL_SEQS, PastExtent},
        messages::summaries,
    },
    domain::{
        By, Session, Task, TaskKind,
        context::{
            PlanSettings, SessionPast, Summary,
            compaction::{self, Carried, Compaction, RestOfRequest, StandingTurns},
            plan,
        },
    },
    error::{Error, Result},
    hub::Changed,
    state::Board,
};

pub(in crate::actions) use ahead::{ComingTask, Foreseen, compact_first, foresee};
pub(super) use ended::check_stands;
pub use ended::{Applied, apply_edited, outcome, undo};
pub(in crate::actions) use ended::{compaction_ended, transfer_failed};
pub use percent::{set_percent, set_team_percent};

/// How long whoever asked waits for the end.
const END_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest instructions, bytes.
const MAX_INSTRUCTIONS_BYTES: usize = 4 * 1024;
/// Most turns that are let stand.
const MAX_STANDING_TURNS: usize = 1_000;

/// What somebody wants done with a conversation.
#[derive(Clone, Debug)]
pub struct NewCompaction {
    /// Not `Work`.
    pub kind: TaskKind,
    /// What the summary should heed.
    pub instructions: Option<String>,
    /// Newest turns that stand; as many as leave enough room when absent.
    pub keep: Option<usize>,
    /// The summary is only shown.
    pub preview: bool,
    /// What a new session takes along beside the summary.
    pub carries: Vec<Carried>,
    /// The task whose question a new session asks again.
    pub resubmits: Option<TaskId>,
    /// Nobody asked for it.
    pub automatic: bool,
}

impl NewCompaction {
    /// Of the whole conversation, as usual.
    pub fn of(kind: TaskKind) -> Self {
        Self {
            kind,
            instructions: None,
            keep: None,
            preview: false,
            carries: Vec::new(),
            resubmits: None,
            automatic: false,
        }
    }
}

/// What becomes of it.
#[derive(Clone, Debug)]
pub enum Compacting {
    /// There is nothing to compact: the next request has so many tokens.
    Nothing {
        tokens: u64,
    },
    Task(Box<Task>),
}

/// What is to be done for somebody who wants something done with a conversation.
#[derive(Clone, Debug)]
enum StartDecision {
    /// Nothing was said.
    Empty,
    Nothing {
        tokens: u64,
    },
    Do(Box<Compaction>),
}

/// What a compaction has come to.
#[derive(Clone, Debug)]
pub enum CompactionOutcome {
    Nothing {
        tokens: u64,
    },
    /// It has not ended.
    Going {
        task: TaskId,
    },
    Applied(Box<Applied>),
    /// Notes were taken, in words.
    Noted {
        task: TaskId,
        text: String,
    },
    /// Another session began with it.
    Began {
        task: TaskId,
        session: SessionId,
    },
}

/// Starts it. While one of its kind runs there is no second one: its task is returned, also where it has ended just now.
pub async fn start(
    board: &Board,
    team: &TeamId,
    by: &By,
    session: &SessionId,
    asked: NewCompaction,
) -> Result<Compacting> {
    let bad = |why: &str| Error::unacceptable("bad_compaction", why);
    if asked.instructions.as_ref().is_some_and(|text| text.len() > MAX_INSTRUCTIONS_BYTES || text.contains('\0')) {
        return Err(bad("instructions are at most 4 KiB, without U+0000"));
    }
    if asked.keep.is_some_and(|keep| !(1..=MAX_STANDING_TURNS).contains(&keep)) {
        return Err(bad("keep is 1 to 1,000 turns"));
    }
    let newest = board.db.reader_of(team).await?.query(db::tasks::newest_of_session_query(session)).await?;
    // The first that may have been asked for at the same time.
    let since = newest.as_ref().map_or(0, |task| task.message_seq + u64::from(task.state.is_final()));
    let (decides, model) = (asked.clone(), newest.as_ref().and_then(Task::model_asked).map(str::to_owned));
    let decide = move |now: &SessionPast, noted| decides.decided(now, noted);
    let decided = ahead::look(board, team, session, model, decide).await?;
    let asked = Arc::new((session.clone(), asked, (decided, since)));
    let (made, after) = board
        .change(team, by, move |tx| {
            let asked = asked.clone();
            Box::pin(async move { asked.1.run(tx, &asked.0, &asked.2).await })
        })
        .await?;
    after.publish(board, team);
    Ok(made)
}

/// Starts it and waits up to 30 s for its end: the task as it is then.
pub async fn start_and_wait(
    board: &Board,
    team: &TeamId,
    by: &By,
    session: &SessionId,
    asked: NewCompaction,
) -> Result<Compacting> {
    let mut news = board.hub.subscribe(team);
    let task = match start(board, team, by, session, asked).await? {
        Compacting::Task(task) if !task.state.is_final() && board.hub.is_connected(&task.viber_id) => task,
        made => return Ok(made),
    };
    let ended = async {
        loop {
            match news.next().await {
                Changed::Task { task: changed, .. } if changed == task.id => {}
                Changed::Anything => {}
                _ => continue,
            }
            let now = db::tasks::load(&mut board.db.reader_of(team).await?, &task.id).await?.ok_or(Error::NotFound)?;
            if now.state.is_final() {
                return Ok(now);
            }
        }
    };
    match tokio::time::timeout(END_TIMEOUT, ended).await {
        Ok(now) => now.map(|now| Compacting::Task(Box::new(now))),
        Err(_) => Ok(Compacting::Task(task)),
    }
}

impl NewCompaction {
    async fn run(
        &self,
        tx: &mut Change<'_>,
        id: &SessionId,
        (decided, since): &(Option<DecidedAhead<StartDecision>>, u64),
    ) -> Result<(Compacting, AfterCommit)> {
        let mut after = AfterCommit::default();
        // Behind the session's lock no task begins meanwhile.
        if !db::sessions::lock(tx, id).await? {
            return Err(Error::NotFound);
        }
        let session = db::sessions::load(tx, id).await?.ok_or(Error::NotFound)?;
        if session.archived_at.is_some() {
            return Err(Error::conflict("archived", "the session is archived: bring it back first"));
        }
        let open = tx.query(db::tasks::open_of_session_query(id)).await?;
        if let Some(running) = open.iter().find(|task| task.kind == self.kind) {
            if !self.is_like(&of_task(running)?) {
                return Err(Error::conflict(
                    "running",
                    "another one runs that was asked for differently: wait for it, or stop it",
                ));
            }
            return Ok((Compacting::Task(Box::new(running.clone())), after));
        }
        if !open.is_empty() || db::tasks::is_busy(tx, id).await? {
            return Err(Error::conflict("running", "a task of the session has not ended: wait for it, or stop it"));
        }
        let newest = tx.query(db::tasks::newest_of_session_query(id)).await?;
        if let Some(other) = newest.as_ref().filter(|task| task.message_seq >= *since && task.kind == self.kind)
            && self.is_like(&of_task(other)?)
        {
            return Ok((Compacting::Task(Box::new(other.clone())), after));
        }
        can_compact(tx, &session).await?;
        let basis = PastBasis::of(tx, &session).await?;
        let decided = match decided.as_ref().and_then(|decided| decided.on(&basis)) {
            Some(decided) => decided,
            None => {
                let model = newest.as_ref().and_then(Task::model_asked);
                let extent = (PastExtent::Compaction, ALL_SEQS);
                let now = db::contexts::session_past(tx, &session, extent, model).await?;
                self.decided(&now, basis.noted)
            }
        };
        match decided {
            StartDecision::Empty => Err(Error::conflict("empty", "nothing was said in this session yet")),
            StartDecision::Nothing { tokens } => Ok((Compacting::Nothing { tokens }, after)),
            StartDecision::Do(compaction) => {
                let task = insert(tx, id, (self.kind, self.goal()), &compaction, &mut after).await?;
                Ok((Compacting::Task(Box::new(task)), after))
            }
        }
    }

    fn decided(&self, now: &SessionPast, noted: u64) -> StartDecision {
        if now.past.newest().is_none() {
            return StartDecision::Empty;
        }
        match self.decide(now, &now.settings, noted) {
            Some(compaction) => StartDecision::Do(Box::new(compaction)),
            None => {
                let tokens = now.settings.budget.fixed + plan(&now.past, &now.settings).total;
                StartDecision::Nothing { tokens }
            }
        }
    }

    /// Whether one that runs does what is asked for.
    fn is_like(&self, running: &Compaction) -> bool {
        let instructions = self.instructions.as_ref().filter(|text| !text.trim().is_empty());
        running.applies != self.preview
            && running.instructions.as_ref() == instructions
            && running.keep == self.keep
            && running.carries == self.carries
    }

    /// What is to be done; `None`: there is nothing to do.
    pub(super) fn decide(&self, now: &SessionPast, settings: &PlanSettings, noted: u64) -> Option<Compaction> {
        let newest = now.past.newest()?;
        let base = now.standing.as_ref().map(|standing| standing.task.clone());
        let all = Compaction {
            up_to: newest,
            base,
            instructions: self.instructions.clone().filter(|text| !text.trim().is_empty()),
            keep: self.keep,
            notes_after: Some(noted),
            applies: !self.preview,
            automatic: self.automatic,
            carries: self.carries.clone(),
            resubmits: self.resubmits.clone(),
            replaced: compaction::tokens_of_all(&now.past),
            longest: compaction::LONGEST_TRANSFER_TOKENS.min(settings.summary_room()).max(1),
            carried: Some(settings.summary_room()),
            pinned: None,
            before: settings.budget.fixed + plan(&now.past, settings).total,
            rest: RestOfRequest::bare(settings),
        };
        match self.kind {
            TaskKind::Flush => (newest > noted).then_some(all),
            TaskKind::Transfer => {
                let pinned = compaction::pinned(&now.past, all.longest / 2);
                let taken = pinned.as_ref().map_or(0, |pinned| tokens::estimate(pinned));
                // Where a request has no room for any summary, it may be as long as any.
                let room = all.carried.filter(|room| *room > 0).unwrap_or(compaction::LONGEST_TRANSFER_TOKENS);
                Some(Compaction {
                    notes_after: (newest > noted).then_some(noted),
                    // It stands for nothing that would be sent beside it, however short the conversation was.
                    replaced: all.replaced.max(2 * compaction::LONGEST_TRANSFER_TOKENS),
                    longest: all.longest.saturating_sub(taken).max(1),
                    carried: Some(room.saturating_sub(taken)),
                    pinned,
                    ..all
                })
            }
            TaskKind::Work | TaskKind::Compact => {
                let mut range = match self.keep {
                    Some(kept) => compaction::range(&now.past, settings, StandingTurns::Exactly(kept)),
                    None => compaction::on_request(&now.past, settings),
                }?;
                // Of a request that has to be smaller, people are shown what is sent otherwise.
                if *settings != now.settings {
                    range = range.shown(&now.past, &now.settings);
                }
                let notes_after = (range.up_to > noted).then_some(noted);
                let compaction::CompactedRange { up_to, replaced, longest, before, rest } = range;
                Some(Compaction { up_to, notes_after, replaced, longest, before, rest, ..all })
            }
        }
    }

    /// For people.
    pub(super) fn goal(&self) -> &'static str {
        match self.kind {
            TaskKind::Flush => "Note what should be kept from this conversation",
            TaskKind::Transfer => "Sum up this conversation for a new session",
            TaskKind::Work | TaskKind::Compact if self.preview => "Draft a summary of the older turns",
            TaskKind::Work | TaskKind::Compact => "Compact the conversation",
        }
    }
}

/// Refuses a session whose agent cannot summarize.
pub(super) async fn can_compact(tx: &mut Change<'_>, session: &Session) -> Result<()> {
    let viber = db::vibers::candidate(tx, &session.viber_id).await?;
    let viber = viber.ok_or_else(|| Error::conflict("viber_revoked", "the viber of this session was revoked"))?;
    let agent = viber.agents.iter().find(|agent| agent.id == session.agent_id);
    if agent.is_some_and(|agent| agent.capabilities.contains(&Capability::Compact)) {
        return Ok(());
    }
    Err(Error::unacceptable("no_compact", "the agent of this session cannot summarize: update its daemon"))
}

/// Stores the task and offers it. Nothing of the session runs.
pub(super) async fn insert(
    tx: &mut Change<'_>,
    session: &SessionId,
    (kind, goal): (TaskKind, &str),
    compaction: &Compaction,
    after: &mut AfterCommit,
) -> Result<Task> {
    let new = NewTask {
        goal: goal.to_owned(),
        session: Some(session.clone()),
        payload: Some(json!({ "compact": compaction })),
        ..NewTask::default()
    };
    let task = new.insert(tx, kind).await?;
    if !dispatch::command(tx, &task, task.attempt, after).await? {
        return Err(Error::conflict("viber_revoked", "the viber of this session was revoked"));
    }
    let detail = if compaction.automatic { format!("{session}, by itself") } else { session.to_string() };
    let verb = match kind {
        TaskKind::Work | TaskKind::Compact => "context.compact",
        TaskKind::Flush => "context.flush",
        TaskKind::Transfer => "context.reset",
    };
    db::audit::append(tx, Entry::new("task.submit", task.id.as_str()).after(task.goal.as_str())).await?;
    db::audit::append(tx, Entry::new(verb, task.id.as_str()).detail(&detail)).await?;
    after.task(session, &task.id);
    Ok(task)
}

/// What a compaction's viber is sent of the conversation.
pub(crate) fn of_task(task: &Task) -> Result<Compaction> {
    let kept = task.payload.get("compact").cloned().unwrap_or_default();
    serde_json::from_value(kept).map_err(|error| Error::Internal(format!("{} has no compaction: {error}", task.id)))
}

/// The summary that a compaction merges, as it was made.
pub(crate) async fn base_of(
    tx: &mut db::TeamTx<'_>,
    session: &SessionId,
    base: Option<&TaskId>,
) -> Result<Option<Summary>> {
    let Some(base) = base else { return Ok(None) };
    Ok(summaries::load(tx, session, base).await?.map(|applied| applied.summary))
}
