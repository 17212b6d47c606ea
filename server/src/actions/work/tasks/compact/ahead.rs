//! What is decided about a conversation before a change: its past may be long, and nobody else's change is to wait while it is
//! read and planned. It holds as long as what it rests on does.

use protocol::{Instant, SessionId, TaskId, TeamId, tokens};

use super::{can_compact, insert};
use crate::{
    actions::AfterCommit,
    db::{
        self, Change, TeamTx,
        contexts::{ALL_SEQS, CompactionCause, PastExtent},
        messages::summaries,
    },
    domain::{
        By, Session, TaskKind,
        context::{
            PlanReason, PlanSettings, SessionPast,
            compaction::{self, Compaction, StandingTurns},
            plan,
        },
    },
    error::{Error, Result},
    state::Board,
};

/// What a decision about a session's past rests on while none of its tasks runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PastBasis {
    /// Each task and each attempt reserves a seq.
    last_seq: u64,
    agent: String,
    standing: Option<(TaskId, Instant)>,
    reported: Option<(TaskId, u32, Instant)>,
    percent: u64,
    pub(super) noted: u64,
}

impl PastBasis {
    pub(super) async fn of(tx: &mut TeamTx<'_>, session: &Session) -> Result<Self> {
        let now = Instant(i64::MAX);
        let (standing, reported, percent) = tx
            .query_three(
                summaries::standing_query(&session.id, ALL_SEQS, now),
                db::contexts::load_query(&session.id),
                summaries::percent_query(&session.id),
            )
            .await?;
        Ok(Self {
            last_seq: session.last_seq,
            agent: session.agent_id.clone(),
            standing: standing.map(|standing| (standing.task, standing.at)),
            reported: reported.map(|reported| (reported.task_id, reported.attempt, reported.at)),
            percent,
            noted: summaries::noted(tx, &session.id).await?,
        })
    }
}

/// Something that was decided, and what it rests on.
#[derive(Clone, Debug)]
pub(in crate::actions) struct DecidedAhead<T> {
    basis: PastBasis,
    decided: T,
}

impl<T: Clone> DecidedAhead<T> {
    /// What was decided, unless something else is so now.
    pub(super) fn on(&self, now: &PastBasis) -> Option<T> {
        (self.basis == *now).then(|| self.decided.clone())
    }
}

/// Reads the whole past of a session and decides, given also up to which seq notes were taken. `None`: it has to be decided in
/// the change, if at all.
pub(super) async fn look<T: Send + 'static>(
    board: &Board,
    team: &TeamId,
    id: &SessionId,
    model: Option<String>,
    decide: impl FnOnce(&SessionPast, u64) -> T + Send + 'static,
) -> Result<Option<DecidedAhead<T>>> {
    let (basis, now) = {
        let mut tx = board.db.reader_of(team).await?;
        let Some(session) = db::sessions::load(&mut tx, id).await? else { return Ok(None) };
        if db::tasks::is_busy(&mut tx, id).await? {
            return Ok(None);
        }
        let basis = PastBasis::of(&mut tx, &session).await?;
        let extent = (PastExtent::Compaction, ALL_SEQS);
        (basis, db::contexts::session_past(&mut tx, &session, extent, model.as_deref()).await?)
    };
    let noted = basis.noted;
    let decided = tokio::task::spawn_blocking(move || decide(&now, noted)).await;
    let decided = decided.map_err(|error| Error::Internal(format!("a decision about a conversation: {error}")))?;
    Ok(Some(DecidedAhead { basis, decided }))
}

/// A task that is about to be sent.
#[derive(Clone, Copy, Debug)]
pub(in crate::actions) struct ComingTask<'a> {
    pub goal: &'a str,
    /// `provider/model`, if one was chosen.
    pub model: Option<&'a str>,
    /// What was said before this seq comes before it.
    pub below: u64,
}

/// What was found out about a session before the change that submits its next task.
#[derive(Clone, Debug)]
pub(in crate::actions) enum Foreseen {
    /// Nothing has to be compacted.
    Fits,
    /// Something may have to be.
    Full(Option<DecidedAhead<Option<Box<Compaction>>>>),
}

/// Finds out whether a session has to be compacted before its next task.
pub(in crate::actions) async fn foresee(
    board: &Board,
    team: &TeamId,
    id: &SessionId,
    (goal, model): (&str, Option<&str>),
) -> Result<Foreseen> {
    let asked = tokens::estimate(goal);
    let may = db::contexts::may_need_compaction(&mut board.db.reader_of(team).await?, id, (asked, model)).await?;
    let Some(cause) = may else { return Ok(Foreseen::Fits) };
    let decide = move |now: &SessionPast, noted| needed(now, (asked, cause), noted).map(Box::new);
    Ok(Foreseen::Full(look(board, team, id, model.map(str::to_owned), decide).await?))
}

/// Compacts a session in which nothing runs when what is to be sent next does not fit as it should. `true`: the task has to wait
/// for that.
pub(in crate::actions) async fn compact_first(
    tx: &mut Change<'_>,
    id: &SessionId,
    coming: ComingTask<'_>,
    foreseen: Option<&Foreseen>,
    after: &mut AfterCommit,
) -> Result<bool> {
    let decided = match foreseen {
        Some(Foreseen::Fits) => return Ok(false),
        Some(Foreseen::Full(decided)) => decided.as_ref(),
        None => None,
    };
    let asked = tokens::estimate(coming.goal);
    let may = db::contexts::may_need_compaction(tx, id, (asked, coming.model)).await?;
    let Some(cause) = may else { return Ok(false) };
    if !db::sessions::lock(tx, id).await? {
        return Ok(false);
    }
    let Some(session) = db::sessions::load(tx, id).await? else { return Ok(false) };
    if db::tasks::is_busy(tx, id).await? || can_compact(tx, &session).await.is_err() {
        return Ok(false);
    }
    let basis = PastBasis::of(tx, &session).await?;
    let decided = match decided.and_then(|decided| decided.on(&basis)) {
        Some(decided) => decided,
        None => {
            let extent = (PastExtent::Compaction, coming.below);
            let now = db::contexts::session_past(tx, &session, extent, coming.model).await?;
            needed(&now, (asked, cause), basis.noted).map(Box::new)
        }
    };
    let Some(compaction) = decided else { return Ok(false) };
    let mut board = tx.by(&By::board());
    insert(&mut board, id, (TaskKind::Compact, "Compact the conversation"), &compaction, after).await?;
    Ok(true)
}

/// The compaction without which a request with so many tokens of a question does not fit as it should.
fn needed(now: &SessionPast, (asked, cause): (u64, CompactionCause), noted: u64) -> Option<Compaction> {
    let mut settings = now.settings.clone();
    (settings.threshold_percent, settings.asked) = (now.percent, asked);
    let usual = PlanSettings { asked, ..now.settings.clone() };
    let range = |settings: &PlanSettings, standing| {
        let is_full = match plan(&now.past, settings).why {
            PlanReason::Fits { .. } => false,
            PlanReason::LeftOut { .. } => true,
            _ => cause == CompactionCause::Threshold,
        };
        if is_full { compaction::range(&now.past, settings, standing) } else { None }
    };
    // It is decided for the share that people chose, which may be too small for any, and shown with what is sent.
    let chosen = match cause {
        CompactionCause::Threshold => range(&settings, StandingTurns::OnlyEnough),
        CompactionCause::LostTurns => None,
    };
    let range = chosen.or_else(|| range(&usual, StandingTurns::NoneLost))?.shown(&now.past, &usual);
    let compaction::CompactedRange { up_to, replaced, longest, before, rest } = range;
    Some(Compaction {
        up_to,
        base: now.standing.as_ref().map(|standing| standing.task.clone()),
        instructions: None,
        keep: None,
        notes_after: (up_to > noted).then_some(noted),
        applies: true,
        automatic: true,
        carries: Vec::new(),
        resubmits: None,
        replaced,
        longest,
        carried: Some(usual.summary_room()),
        pinned: None,
        before,
        rest,
    })
}
