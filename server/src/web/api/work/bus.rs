//! The bus of a viber: what all its agents at work report, as one stream.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use futures_util::StreamExt;
use protocol::ViberId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

pub(in crate::web) use super::events::StreamRequest;
use crate::{
    db,
    error::Error,
    live::bus::{self, BusOf, BusPosition},
    state::Board,
    web::api::{Answers, page, query::StrictQuery},
    web::{AsViewer, Rejection, extract::Id, stream},
};

/// Longest id of an agent, bytes.
const MAX_AGENT_BYTES: usize = 200;

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new().routes(routes!(read))
}

/// What is read, and from where on.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BusQuery {
    /// Only of this agent.
    #[param(max_length = 200)]
    agent: Option<String>,
    /// The `id` of the last frame that is known, or an earlier `next`; what is reported from now on when absent.
    #[param(max_length = 4096)]
    after: Option<String>,
}

/// Where the bus is.
#[derive(Debug, Serialize, ToSchema)]
pub struct BusPlace {
    /// The `after` of a stream that begins here.
    next: String,
}

/// With `Accept: text/event-stream` what all agents of a viber that are at work report, as a stream, in order per attempt; else
/// where the bus is now. `event` is
/// the event's type, `data` is `{taskId, attempt, event}`, and `id` is where the reader is in every task that is at work:
/// sent back as `Last-Event-ID` or `after`, the stream goes on there. Frames without `id` are `task` (a task, when it begins
/// to be followed and whenever it changed), `over` (`{taskId, reason}`) and `end` (`{reason}`). A reader that is slow slows
/// no other.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/bus", operation_id = "bus.read", tag = "vibers", params(("id" = ViberId, Path), BusQuery,
    ("Last-Event-ID" = Option<String>, Header, description = "Resumes; goes before `after`")),
    responses((status = 200, content((BusPlace = "application/json"), (String = "text/event-stream"))), Answers))]
async fn read(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ViberId>,
    StrictQuery(asked): StrictQuery<BusQuery>,
    how: StreamRequest,
) -> Result<Response, Rejection> {
    let read = |text: &str| text.parse::<BusPosition>().map_err(|_| page::bad_cursor());
    let after = asked.after.as_deref().filter(|text| !text.is_empty()).map(read).transpose()?;
    let of = of_viber(&board, &caller.team.id, id, asked.agent).await?;
    if !how.is_wanted() {
        let next = bus::position(&board, &of).await.map_err(Error::from)?.to_string();
        return Ok(Json(BusPlace { next }).into_response());
    }
    let (place, last) = how.place_of(caller.by.actor.id())?;
    let from = last.as_deref().map(read).transpose()?.or(after);
    let revoked = crate::web::revoked(board.clone(), caller.0);
    let frames = bus::read(&board, of, from, revoked).await.map_err(Error::from)?;
    Ok(stream::answer_bytes(frames.map(move |frame| {
        let _held = &place;
        stream::encode_bus(&frame)
    })))
}

/// The bus of a viber of the team.
pub(in crate::web) async fn of_viber(
    board: &Board,
    team: &protocol::TeamId,
    viber: ViberId,
    agent: Option<String>,
) -> Result<BusOf, Error> {
    db::vibers::load(&mut board.db.reader_of(team).await?, &viber).await?.ok_or(Error::NotFound)?;
    // No agent has a longer id: of one that is asked for so nothing is read, rather than of all.
    let agent = agent.map(|agent| protocol::text::head(agent.trim(), MAX_AGENT_BYTES).to_owned());
    let agent = agent.filter(|agent| !agent.is_empty());
    Ok(BusOf { team: team.clone(), viber, agent })
}
