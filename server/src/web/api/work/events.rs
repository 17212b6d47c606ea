//! A task's events: a JSON page, or a stream for whoever accepts one.

use std::sync::Arc;

use axum::{
    Json,
    extract::{FromRequestParts, State},
    http::{HeaderMap, header, request::Parts},
    response::{IntoResponse, Response},
};
use protocol::{TaskId, TeamId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use crate::{
    db,
    domain::Task,
    error::{Error, Result},
    live::{self, Cursor},
    state::Board,
    web::api::{Answers, page, query::StrictQuery, tasks},
    web::{
        AsViewer, Rejection,
        extract::Id,
        layers::api_limits::{ApiLimits, OpenStream},
        stream,
    },
};

/// Where to start.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListEventsQuery {
    /// `{attempt}.{seq}` of the last event that is known; from the start when absent.
    #[param(pattern = "^[0-9]+\\.[0-9]+$", max_length = 40)]
    after: Option<String>,
    /// Events of a page; a stream has no limit.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 200)]
    limit: Option<String>,
}

/// What a request says about a stream.
pub struct StreamRequest {
    /// Whether it wants one.
    wanted: bool,
    /// The last event that is known; an `EventSource` sends an empty one when it has none yet.
    last: Option<String>,
    limits: Arc<ApiLimits>,
}

impl FromRequestParts<Board> for StreamRequest {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, _: &Board) -> std::result::Result<Self, Rejection> {
        let last = parts.headers.get("last-event-id");
        let last = last.map(|value| value.to_str().unwrap_or("?").trim().to_owned()).filter(|text| !text.is_empty());
        let limits = parts.extensions.get::<Arc<ApiLimits>>().cloned();
        let limits = limits.ok_or_else(|| Error::Internal("a request without limits".to_owned()))?;
        Ok(Self { wanted: wants_stream(&parts.headers), last, limits })
    }
}

impl StreamRequest {
    /// Whether a stream is wanted.
    pub(in crate::web) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// A place among the caller's open streams, and the last event that is known.
    pub(in crate::web) fn place_of(self, who: &str) -> Result<(OpenStream, Option<String>)> {
        let place = self.limits.open_stream(who).ok_or(Error::Throttled { retry_after: 5 })?;
        Ok((place, self.last))
    }
}

/// A page of one attempt's events, byte for byte as the viber wrote them.
#[derive(Debug, Serialize, ToSchema)]
pub struct EventPage {
    #[schema(value_type = Vec<Object>)]
    items: Vec<Box<RawValue>>,
    /// The attempt that the items belong to.
    attempt: u32,
    /// The `after` of the next page; null when there is nothing more yet.
    next: Option<String>,
}

/// A task's events as a JSON page, or with `Accept: text/event-stream` as a stream. In the stream `id` is
/// `{attempt}.{seq}`, `event` the event's type, `data` the event; frames without `id` are `task` (the task, now and
/// whenever it changed), `reset` (the cursor is unknown: what follows starts at the beginning) and `end` (`{reason}`).
#[utoipa::path(get, path = "/api/v1/tasks/{id}/events", operation_id = "events.list", tag = "tasks", params(("id" = TaskId, Path), ListEventsQuery,
    ("Last-Event-ID" = Option<String>, Header, description = "Resumes a stream; goes before `after`")),
    responses((status = 200, content((EventPage = "application/json"), (String = "text/event-stream"))), Answers))]
pub async fn events(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<TaskId>,
    StrictQuery(asked): StrictQuery<ListEventsQuery>,
    how: StreamRequest,
) -> Result<Response, Rejection> {
    if !how.wanted {
        let task = tasks::load(&board, &caller, id).await?;
        let cursor = asked.after.as_deref().filter(|text| !text.is_empty()).map(str::parse::<Cursor>);
        let cursor = cursor.transpose().map_err(|_| page::bad_cursor())?.unwrap_or(Cursor::START);
        let limit = page::limit_of(asked.limit.as_deref())?;
        return Ok(Json(read(&board, &caller.team.id, &task, cursor, limit as usize).await?).into_response());
    }
    let place = how.limits.open_stream(caller.by.actor.id()).ok_or(Error::Throttled { retry_after: 5 })?;
    let from = how.last.or(asked.after.filter(|text| !text.is_empty()));
    let frames = live::open(&board, &caller.team.id, &id, from.map(|text| text.parse())).await?;
    let frames = frames.ok_or(Error::NotFound)?;
    let revoked = crate::web::revoked(board, caller.0);
    Ok(stream::answer(live::until(frames, revoked), place))
}

/// Whether the request accepts a stream.
pub(in crate::web) fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted
        .flat_map(|value| value.split(','))
        .any(|one| one.split(';').next().is_some_and(|media| media.trim().eq_ignore_ascii_case("text/event-stream")))
}

/// Runs read from the database at once: a run may be as large as a frame.
const RUNS_PER_READ: u64 = 25;

/// At most `limit` events after the cursor, all of one attempt.
async fn read(board: &Board, team: &TeamId, task: &Task, mut at: Cursor, limit: usize) -> Result<EventPage> {
    if at.attempt > task.attempt {
        return Err(page::bad_cursor());
    }
    let mut items = Vec::new();
    loop {
        let runs = {
            let mut tx = board.db.reader_of(team).await?;
            db::events::after(&mut tx, &task.id, at.attempt, at.seq, RUNS_PER_READ).await?
        };
        if runs.is_empty() {
            if !items.is_empty() || at.attempt == task.attempt {
                let next = (at.attempt < task.attempt).then(|| at.to_string());
                return Ok(EventPage { items, attempt: at.attempt, next });
            }
            at = Cursor { attempt: at.attempt + 1, seq: 0 };
            continue;
        }
        for item in runs.into_iter().flat_map(|run| run.items) {
            if items.len() == limit {
                return Ok(EventPage { items, attempt: at.attempt, next: Some(at.to_string()) });
            }
            at.seq = item.seq;
            let event = RawValue::from_string(item.json.to_string());
            items.push(event.map_err(|error| Error::Internal(error.to_string()))?);
        }
    }
}
