//! The part *Make room* of the tab: compaction with a draft that can be edited, undo, notes, a new session, and when it
//! happens by itself.

use axum::{
    extract::{Form, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use protocol::{SessionId, TaskId};
use serde::Deserialize;

use super::super::{Tab, answer};
use crate::{
    actions::tasks::compact::{self, Compacting, CompactionOutcome, NewCompaction},
    db::{self, DbError, TeamTx, sessions::ContinuedSession},
    domain::{
        Session, TaskKind, TaskState,
        context::compaction::{Carried, Compaction},
    },
    error::Error,
    state::Board,
    web::{AsOperator, Rejection, extract::Id, pages::Wants, urls},
};

/// What the database holds for this part.
#[derive(Clone, Debug, Default)]
pub struct CompactPane {
    /// The session's newest task drafted a summary that nobody applied yet.
    pub draft: Option<SummaryDraft>,
    /// The session that this one goes on from, and those that go on from this one.
    pub continued: Vec<ContinuedSession>,
    /// Nothing is at work in it.
    pub is_idle: bool,
    /// Chosen for this session alone.
    pub own_percent: Option<u64>,
}

/// A summary that was drafted.
#[derive(Clone, Debug)]
pub struct SummaryDraft {
    pub basis: TaskId,
    pub text: String,
    pub before: u64,
    pub after: u64,
}

impl CompactPane {
    pub(super) async fn read(tx: &mut TeamTx<'_>, session: &Session) -> Result<Self, DbError> {
        let (newest, continued, own_percent) = tx
            .query_three(
                db::tasks::newest_of_session_query(&session.id),
                db::sessions::continued_query(&session.id),
                db::sessions::own_percent_query(&session.id),
            )
            .await?;
        let is_idle = newest.as_ref().is_none_or(|task| task.state.is_final());
        let drafted = newest.filter(|task| task.kind == TaskKind::Compact && task.state == TaskState::Completed);
        let mut draft = None;
        if let Some(task) = drafted {
            let compaction: Option<Compaction> =
                task.payload.get("compact").and_then(|kept| serde_json::from_value(kept.clone()).ok());
            let applied = db::messages::summaries::load(tx, &session.id, &task.id).await?;
            draft = compaction.filter(|compaction| !compaction.applies && applied.is_none()).map(|compaction| {
                let text = task.result.map(|result| result.text).unwrap_or_default();
                SummaryDraft { basis: task.id, before: compaction.before, after: compaction.after(&text), text }
            });
        }
        Ok(Self { draft, continued, is_idle, own_percent })
    }
}

/// How a conversation is compacted, or a draft is applied.
#[derive(Debug, Deserialize)]
pub struct CompactForm {
    #[serde(default)]
    instructions: String,
    /// There when it is only to be drafted.
    preview: Option<String>,
    /// Newest turns that stand; as many as leave enough room when absent.
    keep: Option<usize>,
    /// The summary of the draft, as it was edited.
    summary: Option<String>,
    basis: Option<TaskId>,
    /// From which share on it happens by itself, percent; `team`: as the team says.
    at: Option<String>,
}

/// `POST /t/{team}/sessions/{id}/compact`
pub async fn compact(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    wants: Wants,
    Form(form): Form<CompactForm>,
) -> Result<Response, Rejection> {
    let (team, by) = (&caller.team.id, &caller.by);
    if let Some(at) = &form.at {
        let percent = at.parse().ok();
        compact::set_percent(&board, team, by, &id, percent).await?;
    } else if let (Some(summary), Some(basis)) = (&form.summary, &form.basis) {
        compact::apply_edited(&board, team, by, (&id, basis), &summary.replace("\r\n", "\n")).await?;
    } else {
        let new = NewCompaction {
            instructions: Some(form.instructions),
            preview: form.preview.is_some(),
            keep: form.keep,
            ..NewCompaction::of(TaskKind::Compact)
        };
        start(&board, &caller, &id, new).await?;
    }
    answer(&board, &caller, &id, wants, Tab::Context).await
}

/// Starts it; that there is nothing to do is said.
pub async fn start(board: &Board, caller: &AsOperator, id: &SessionId, new: NewCompaction) -> Result<(), Error> {
    let kind = new.kind;
    match compact::start(board, &caller.team.id, &caller.by, id, new).await? {
        Compacting::Task(_) => Ok(()),
        Compacting::Nothing { .. } if kind == TaskKind::Flush => {
            Err(Error::conflict("nothing", "Everything in this conversation was noted before."))
        }
        Compacting::Nothing { .. } => {
            Err(Error::conflict("nothing", "There is nothing to compact yet: the newest turns stay as they are."))
        }
    }
}

/// Begins a session with a summary of another: its address. `None`: it is not there yet, or never will be, which the
/// conversation says. A browser that would show nothing meanwhile is not kept waiting.
pub async fn begin_afresh(
    board: &Board,
    caller: &AsOperator,
    id: &SessionId,
    (new, wants): (NewCompaction, Wants),
) -> Result<Option<String>, Error> {
    if wants == Wants::Page {
        return start(board, caller, id, new).await.map(|()| None);
    }
    let made = compact::start_and_wait(board, &caller.team.id, &caller.by, id, new).await?;
    let Compacting::Task(task) = made else { return Ok(None) };
    match compact::outcome(board, &caller.team.id, &task).await {
        Ok(CompactionOutcome::Began { session, .. }) => Ok(Some(urls::session(&caller.team.slug, &session))),
        Ok(_) | Err(Error::Conflict { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Which compaction is undone; the newest one when none is named.
#[derive(Debug, Deserialize)]
pub struct UncompactForm {
    task: Option<TaskId>,
}

/// `POST /t/{team}/sessions/{id}/uncompact`
pub async fn uncompact(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    wants: Wants,
    Form(form): Form<UncompactForm>,
) -> Result<Response, Rejection> {
    compact::undo(&board, &caller.team.id, &caller.by, &id, form.task.as_ref()).await?;
    answer(&board, &caller, &id, wants, Tab::Context).await
}

/// `POST /t/{team}/sessions/{id}/flush`
pub async fn flush(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    wants: Wants,
) -> Result<Response, Rejection> {
    start(&board, &caller, &id, NewCompaction::of(TaskKind::Flush)).await?;
    answer(&board, &caller, &id, wants, Tab::Context).await
}

/// What a new session takes along.
#[derive(Debug, Deserialize)]
pub struct ResetForm {
    plan: Option<String>,
    artifacts: Option<String>,
}

/// `POST /t/{team}/sessions/{id}/reset`
pub async fn reset(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    wants: Wants,
    Form(form): Form<ResetForm>,
) -> Result<Response, Rejection> {
    let carried = [(form.plan, Carried::Plan), (form.artifacts, Carried::Artifacts)];
    let carries = carried.into_iter().filter_map(|(chosen, what)| chosen.map(|_| what)).collect();
    let new = NewCompaction { carries, ..NewCompaction::of(TaskKind::Transfer) };
    if let Some(begun) = begin_afresh(&board, &caller, &id, (new, wants)).await? {
        return Ok((StatusCode::NO_CONTENT, [("hx-redirect", begun)]).into_response());
    }
    answer(&board, &caller, &id, wants, Tab::Context).await
}
