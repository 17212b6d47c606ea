//! Messages and calls that people pinned.

use axum::{Json, extract::State};
use protocol::{MessageId, SessionId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions::sessions::pins::{self, PinChange},
    state::Board,
    web::api::{Answers, json::JsonBody, shapes::List},
    web::{AsOperator, AsViewer, Rejection, extract::Id},
};

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new().routes(routes!(list, set))
}

/// A message that stays in its session's requests, or one of its calls with the result.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContextPin {
    message_id: MessageId,
    /// Absent: the message with all its calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<String>,
}

/// What is pinned, or not any more.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(examples(json!({ "messageId": "msg_0192d1c7a0f07a3cb1f0c6f8d1f1a2b3", "pinned": true })))]
pub struct SetContextPin {
    message_id: MessageId,
    /// A call of the message; the message with all its calls when absent.
    #[schema(max_length = 200)]
    call_id: Option<String>,
    pinned: bool,
}

/// What people pinned of a session: it stays in its requests, however old it is. At most 64.
#[utoipa::path(get, path = "/api/v1/sessions/{id}/pins", operation_id = "pins.list", tag = "sessions", params(("id" = SessionId, Path)),
    responses((status = 200, body = List<ContextPin>), Answers))]
async fn list(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<SessionId>,
) -> Result<Json<List<ContextPin>>, Rejection> {
    let pins = pins::list(&board, &caller.team.id, &id).await?;
    let items = pins.into_iter().map(|pin| ContextPin { message_id: pin.message, call_id: pin.call }).collect();
    Ok(Json(List { items, next: None }))
}

/// Pins a message or one of its calls, or takes the pin away, and tells all pins.
#[utoipa::path(post, path = "/api/v1/sessions/{id}/pins", operation_id = "pins.set", tag = "sessions", params(("id" = SessionId, Path)), request_body = SetContextPin,
    responses((status = 200, body = List<ContextPin>), Answers))]
async fn set(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    JsonBody(asked): JsonBody<SetContextPin>,
) -> Result<Json<List<ContextPin>>, Rejection> {
    let change = PinChange { message: asked.message_id, call: asked.call_id, pinned: asked.pinned };
    pins::set(&board, &caller.team.id, &caller.by, &id, change).await?;
    list(State(board), AsViewer(caller.0), Id(id)).await
}
