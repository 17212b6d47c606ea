//! Sessions that a machine remembers and the Board does not.

use axum::{Json, extract::State};
use protocol::{Instant, SessionId, ViberId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions::imports::{self, OnMachine},
    state::Board,
    web::api::{
        Answers,
        json::MaybeBody,
        page,
        query::StrictQuery,
        shapes::{self, EmptyBody, List},
    },
    web::{
        Operating, Rejection, Viewing,
        extract::{Id, Ids},
    },
};

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(import))
}

/// ListLoggedSessionsQuery part of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListLoggedSessionsQuery {
    /// The `next` of the page before.
    #[param(pattern = "^[0-9]{0,20}$")]
    cursor: Option<String>,
}

/// A session that a machine has a log of.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoggedSession {
    session_id: SessionId,
    agent_id: String,
    title: String,
    /// When it was written to last.
    at: Option<Instant>,
    lines: Option<u64>,
    bytes: u64,
    /// The Board has it, but not its last task.
    behind: bool,
}

impl From<OnMachine> for LoggedSession {
    fn from(one: OnMachine) -> Self {
        let OnMachine { logged, behind, .. } = one;
        Self {
            session_id: logged.session_id,
            agent_id: logged.agent_id,
            title: logged.title,
            at: logged.at,
            lines: logged.lines,
            bytes: logged.bytes,
            behind,
        }
    }
}

/// Sessions on a machine that the Board does not have, or not to their end, the newest first; the viber has to be there.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/sessions", operation_id = "loggedSessions.list", tag = "vibers", params(("id" = ViberId, Path), ListLoggedSessionsQuery),
    responses((status = 200, body = List<LoggedSession>), Answers))]
async fn list(
    State(board): State<Board>,
    caller: Viewing,
    Id(id): Id<ViberId>,
    StrictQuery(which): StrictQuery<ListLoggedSessionsQuery>,
) -> Result<Json<List<LoggedSession>>, Rejection> {
    let from = page::number_of(which.cursor.as_deref())?;
    let (found, next) = imports::list(&board, &caller.team.id, &id, from).await?;
    let items = found.into_iter().map(LoggedSession::from).collect();
    Ok(Json(List { items, next: next.map(|next| next.to_string()) }))
}

/// What was taken over.
#[derive(Debug, Serialize, ToSchema)]
pub struct ImportedSession {
    session: shapes::Session,
    /// Tasks that were not here before.
    tasks: u64,
    /// Tasks that were left out, because their ids belong to others.
    refused: u64,
    /// The log is long: the rest of it is being taken over. Calling again waits for it.
    more: bool,
}

/// Takes a session over from its machine's log. Doing it again adds what came since, and nothing twice.
#[utoipa::path(post, path = "/api/v1/vibers/{id}/sessions/{session}/import", operation_id = "loggedSessions.import", tag = "vibers",
    params(("id" = ViberId, Path), ("session" = SessionId, Path)), request_body(content = Option<EmptyBody>),
    responses((status = 200, body = ImportedSession), Answers))]
async fn import(
    State(board): State<Board>,
    caller: Operating,
    Ids((id, session)): Ids<(ViberId, SessionId)>,
    MaybeBody(EmptyBody {}): MaybeBody<EmptyBody>,
) -> Result<Json<ImportedSession>, Rejection> {
    let taken = imports::import(&board, &caller.team.id, &caller.by, &id, &session).await?;
    let imports::Taken { session, tasks, refused, more } = taken;
    Ok(Json(ImportedSession { session: session.into(), tasks, refused, more }))
}
