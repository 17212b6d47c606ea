//! What is done with a session's conversation: compacted, undone, noted, begun anew.

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use protocol::{MessageId, SessionId, TaskId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions::tasks::compact::{self, Compacting, CompactionOutcome, NewCompaction},
    db,
    domain::{TaskKind, context::compaction::Carried},
    error::Error,
    state::Board,
    web::api::{Answers, json::JsonBody},
    web::{AsOperator, Rejection, extract::Id},
};

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new()
        .routes(routes!(compact))
        .routes(routes!(uncompact))
        .routes(routes!(flush))
        .routes(routes!(reset))
}

/// How a conversation is compacted. `summary` and `basis` together apply a summary that a preview made, as it was edited.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schema(examples(json!({ "instructions": "Keep the names of the endpoints", "keep": 4 })))]
pub struct CompactSession {
    /// What the summary should heed.
    #[schema(max_length = 4096)]
    instructions: Option<String>,
    /// Newest turns that stay as they are; 6 when absent, or fewer, down to 2, where 6 make too little room.
    #[schema(minimum = 1, maximum = 1000)]
    keep: Option<usize>,
    /// The summary is made and shown, but nothing is changed.
    preview: bool,
    #[schema(max_length = 65536)]
    summary: Option<String>,
    /// The `basis` of the preview.
    basis: Option<TaskId>,
}

/// A compaction.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionCompaction {
    /// Null: there is nothing to compact.
    summary: Option<String>,
    /// Tokens of the next request without it, and with it; estimated.
    tokens_before: u64,
    tokens_after: u64,
    /// What an edited summary is applied with.
    basis: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<TaskId>,
    /// Absent when nothing was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<MessageId>,
}

/// A task that goes on.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartedCompaction {
    task_id: TaskId,
}

/// Has the session's model summarize the older turns, and puts the summary in their place. The turns themselves stay, and
/// it can be undone.
#[utoipa::path(post, path = "/api/v1/sessions/{id}/compact", operation_id = "context.compact", tag = "sessions",
    params(("id" = SessionId, Path)), request_body = CompactSession,
    responses((status = 200, body = SessionCompaction), (status = 202, description = "It has not ended within 30 s.", body = StartedCompaction), Answers))]
async fn compact(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    JsonBody(asked): JsonBody<CompactSession>,
) -> Result<Response, Rejection> {
    let (team, by) = (&caller.team.id, &caller.by);
    let applied = match (asked.summary, asked.basis) {
        (Some(summary), Some(basis)) => compact::apply_edited(&board, team, by, (&id, &basis), &summary).await?,
        (None, None) => {
            let kind = TaskKind::Compact;
            let CompactSession { instructions, keep, preview, .. } = asked;
            let new = NewCompaction { instructions, keep, preview, ..NewCompaction::of(kind) };
            match outcome(&board, &caller, &id, new).await? {
                CompactionOutcome::Nothing { tokens } => {
                    return Ok(Json(SessionCompaction::nothing(tokens)).into_response());
                }
                CompactionOutcome::Going { task } => return Ok(going(task)),
                CompactionOutcome::Applied(applied) => *applied,
                CompactionOutcome::Noted { .. } | CompactionOutcome::Began { .. } => {
                    return Err(Error::Internal("no summary".into()).into());
                }
            }
        }
        _ => return Err(Error::unacceptable("bad_compaction", "summary and basis go together").into()),
    };
    let mut tx = board.db.reader_of(team).await?;
    let attempt = db::attempts::load(&mut tx, &applied.task.id, applied.task.attempt).await?;
    Ok(Json(SessionCompaction {
        summary: Some(applied.summary),
        tokens_before: applied.tokens_before,
        tokens_after: applied.tokens_after,
        basis: Some(applied.task.id.clone()),
        message_id: attempt.and_then(|attempt| attempt.message_id).filter(|_| applied.stands),
        task_id: Some(applied.task.id),
    })
    .into_response())
}

impl SessionCompaction {
    fn nothing(tokens: u64) -> Self {
        Self {
            summary: None,
            tokens_before: tokens,
            tokens_after: tokens,
            basis: None,
            task_id: None,
            message_id: None,
        }
    }
}

async fn outcome(
    board: &Board,
    caller: &AsOperator,
    id: &SessionId,
    new: NewCompaction,
) -> Result<CompactionOutcome, Rejection> {
    let made = compact::start_and_wait(board, &caller.team.id, &caller.by, id, new).await?;
    let task = match made {
        Compacting::Nothing { tokens } => return Ok(CompactionOutcome::Nothing { tokens }),
        Compacting::Task(task) => task,
    };
    Ok(compact::outcome(board, &caller.team.id, &task).await?)
}

fn going(task_id: TaskId) -> Response {
    (StatusCode::ACCEPTED, Json(StartedCompaction { task_id })).into_response()
}

/// Which compaction is undone.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schema(examples(json!({ "messageId": "msg_0192d1c7a0f07a3cb1f0c6f8d1f1a2b3" })))]
pub struct UncompactSession {
    /// Its message; the newest compaction when absent.
    message_id: Option<MessageId>,
}

/// What was undone.
#[derive(Debug, Serialize, ToSchema)]
pub struct SessionUncompaction {
    /// How many compactions stood and do not any more.
    undone: u64,
}

/// Undoes a compaction and those that came after it: the turns are sent again.
#[utoipa::path(post, path = "/api/v1/sessions/{id}/uncompact", operation_id = "context.uncompact", tag = "sessions",
    params(("id" = SessionId, Path)), request_body = UncompactSession,
    responses((status = 200, body = SessionUncompaction), Answers))]
async fn uncompact(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    JsonBody(asked): JsonBody<UncompactSession>,
) -> Result<Json<SessionUncompaction>, Rejection> {
    let task = match &asked.message_id {
        Some(message) => {
            let mut tx = board.db.reader_of(&caller.team.id).await?;
            Some(db::messages::task_of(&mut tx, &id, message).await?.ok_or(Error::NotFound)?)
        }
        None => None,
    };
    let undone = compact::undo(&board, &caller.team.id, &caller.by, &id, task.as_ref()).await?;
    Ok(Json(SessionUncompaction { undone }))
}

/// What is noted.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schema(examples(json!({})))]
pub struct FlushSession {
    /// What to look for.
    #[schema(max_length = 4096)]
    instructions: Option<String>,
}

/// What was noted of a conversation.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionFlush {
    /// What became of it, in words; null: everything was noted before.
    text: Option<String>,
    task_id: Option<TaskId>,
}

/// Has the session's model note what should be kept for long, as proposals for `MEMORY.md` and in the daily log.
#[utoipa::path(post, path = "/api/v1/sessions/{id}/flush", operation_id = "context.flush", tag = "sessions",
    params(("id" = SessionId, Path)), request_body = FlushSession,
    responses((status = 200, body = SessionFlush), (status = 202, description = "It has not ended within 30 s.", body = StartedCompaction), Answers))]
async fn flush(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    JsonBody(asked): JsonBody<FlushSession>,
) -> Result<Response, Rejection> {
    let new = NewCompaction { instructions: asked.instructions, ..NewCompaction::of(TaskKind::Flush) };
    Ok(match outcome(&board, &caller, &id, new).await? {
        CompactionOutcome::Going { task } => going(task),
        CompactionOutcome::Noted { task, text } => {
            Json(SessionFlush { text: Some(text), task_id: Some(task) }).into_response()
        }
        _ => Json(SessionFlush { text: None, task_id: None }).into_response(),
    })
}

/// How a session is begun anew.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schema(examples(json!({ "carry": ["plan"] })))]
pub struct ResetSession {
    /// What the new session takes along beside the summary and the memory; everything when absent.
    carry: Option<Vec<Carried>>,
    /// What the summary should heed.
    #[schema(max_length = 4096)]
    instructions: Option<String>,
}

/// The session that goes on from another.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionReset {
    session_id: SessionId,
    task_id: TaskId,
}

/// Begins a new session with a summary of this one. Results of tools stay behind.
#[utoipa::path(post, path = "/api/v1/sessions/{id}/reset", operation_id = "context.reset", tag = "sessions",
    params(("id" = SessionId, Path)), request_body = ResetSession,
    responses((status = 201, body = SessionReset), (status = 202, description = "It has not ended within 30 s.", body = StartedCompaction), Answers))]
async fn reset(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    JsonBody(asked): JsonBody<ResetSession>,
) -> Result<Response, Rejection> {
    let new = NewCompaction {
        instructions: asked.instructions,
        carries: asked.carry.unwrap_or_else(|| vec![Carried::Plan, Carried::Artifacts]),
        ..NewCompaction::of(TaskKind::Transfer)
    };
    match outcome(&board, &caller, &id, new).await? {
        CompactionOutcome::Going { task } => Ok(going(task)),
        CompactionOutcome::Began { task, session } => {
            Ok((StatusCode::CREATED, Json(SessionReset { session_id: session, task_id: task })).into_response())
        }
        CompactionOutcome::Nothing { .. } => {
            Err(Error::conflict("empty", "nothing was said in this session yet").into())
        }
        _ => Err(Error::Internal("a reset began no session".into()).into()),
    }
}
