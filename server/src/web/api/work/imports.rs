//! Imports: sessions in the logs of a machine that the Board does not have.

use axum::{Json, extract::State};
use protocol::{Instant, SessionId, ViberId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions::imports::{self, MachineSession},
    state::Board,
    web::api::{
        Answers,
        json::OptionalJsonBody,
        page,
        query::StrictQuery,
        shapes::{self, EmptyBody, List},
    },
    web::{
        AsOperator, AsViewer, Rejection,
        extract::{Id, Ids},
    },
};

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(import))
}

/// The page of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListLoggedSessionsQuery {
    /// The `next` of the previous page.
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
    /// When the log was last written.
    at: Option<Instant>,
    lines: Option<u64>,
    bytes: u64,
    /// The Board has the session, but not its last task.
    behind: bool,
}

impl From<MachineSession> for LoggedSession {
    fn from(one: MachineSession) -> Self {
        let MachineSession { logged, behind, .. } = one;
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

/// Sessions on a machine that the Board lacks, wholly or in part, the newest first; the viber has to be connected.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/sessions", operation_id = "loggedSessions.list", tag = "vibers", params(("id" = ViberId, Path), ListLoggedSessionsQuery),
    responses((status = 200, body = List<LoggedSession>), Answers))]
async fn list(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ViberId>,
    StrictQuery(which): StrictQuery<ListLoggedSessionsQuery>,
) -> Result<Json<List<LoggedSession>>, Rejection> {
    let from = page::number_of(which.cursor.as_deref())?;
    let (found, next) = imports::list(&board, &caller.team.id, &id, from).await?;
    let items = found.into_iter().map(LoggedSession::from).collect();
    Ok(Json(List { items, next: next.map(|next| next.to_string()) }))
}

/// The result of an import.
#[derive(Debug, Serialize, ToSchema)]
pub struct ImportedSession {
    session: shapes::SessionResource,
    /// Tasks that are new on the Board.
    tasks: u64,
    /// Tasks that were skipped, because their ids belong to other teams or sessions.
    refused: u64,
    /// The log is long, and the rest of it is being imported. Another call waits for it.
    more: bool,
}

/// Imports a session from its machine's log. Another call adds what is new, and nothing twice.
#[utoipa::path(post, path = "/api/v1/vibers/{id}/sessions/{session}/import", operation_id = "loggedSessions.import", tag = "vibers",
    params(("id" = ViberId, Path), ("session" = SessionId, Path)), request_body(content = Option<EmptyBody>),
    responses((status = 200, body = ImportedSession), Answers))]
async fn import(
    State(board): State<Board>,
    caller: AsOperator,
    Ids((id, session)): Ids<(ViberId, SessionId)>,
    OptionalJsonBody(EmptyBody {}): OptionalJsonBody<EmptyBody>,
) -> Result<Json<ImportedSession>, Rejection> {
    let taken = imports::import(&board, &caller.team.id, &caller.by, &id, &session).await?;
    let imports::ImportResult { session, tasks, refused, more } = taken;
    Ok(Json(ImportedSession { session: session.into(), tasks, refused, more }))
}
