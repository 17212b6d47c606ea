//! The MCP servers that agents of a viber use.

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use protocol::{McpServerInfo, ViberId};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions::mcp_orders::{self, SeenTools},
    db,
    domain::{McpOrder, OrderState},
    error::{Error, Result},
    state::Board,
    web::api::{
        Answers,
        json::{JsonBody, OptionalJsonBody},
        shapes::{
            EmptyBody,
            mcp::{McpOrderResource, ViberMcpResource},
        },
    },
    web::{
        AsAdmin, AsOperator, AsViewer, Rejection,
        extract::{Id, Ids},
    },
};

/// Orders that are listed of a viber.
const MAX_LISTED_ORDERS: u64 = 50;

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(allow)).routes(routes!(test))
}

/// A server of a viber by its name.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its description is used")]
struct NamedServer {
    id: ViberId,
    #[param(min_length = 1, max_length = 32)]
    name: String,
}

/// The MCP servers of a viber as it reports them, and what people allowed of them.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/mcp", operation_id = "viberMcp.list", tag = "vibers", params(("id" = ViberId, Path)),
    responses((status = 200, body = ViberMcpResource), Answers))]
async fn list(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ViberId>,
) -> Result<Json<ViberMcpResource>, Rejection> {
    let mut tx = board.db.reader_of(&caller.team.id).await?;
    let viber = db::vibers::load(&mut tx, &id).await?.ok_or(Error::NotFound)?;
    let orders: Vec<McpOrder> = db::orders::newest(&mut tx, &id, MAX_LISTED_ORDERS).await?;
    let orders = orders.into_iter().map(McpOrderResource::from).collect();
    Ok(Json(ViberMcpResource { items: viber.mcp, orders }))
}

/// The tools that were seen.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "hash": "the hash of the tools" })))]
pub struct AllowMcp {
    /// `change.hash` of the server.
    hash: String,
}

/// Lets a server offer exactly the tools with this hash. Queued while the viber is away.
#[utoipa::path(post, path = "/api/v1/vibers/{id}/mcp/{name}/allow", operation_id = "viberMcp.allow", tag = "vibers",
    params(NamedServer), request_body = AllowMcp, responses(
    (status = 200, body = McpOrderResource, description = "The viber has answered"),
    (status = 202, body = McpOrderResource, description = "The viber has not answered yet"), Answers))]
async fn allow(
    State(board): State<Board>,
    caller: AsAdmin,
    Ids((id, name)): Ids<(ViberId, String)>,
    JsonBody(said): JsonBody<AllowMcp>,
) -> Result<Response, Rejection> {
    let seen = SeenTools { name, hash: said.hash };
    let order = mcp_orders::allow(&board, &caller.team.id, &caller.by, &id, seen).await?;
    let status = if order.state == OrderState::Queued { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, Json(McpOrderResource::from(order))).into_response())
}

/// Has a viber connect to one of its servers, and says how it fares.
#[utoipa::path(post, path = "/api/v1/vibers/{id}/mcp/{name}/test", operation_id = "viberMcp.test", tag = "vibers",
    params(NamedServer), request_body(content = Option<EmptyBody>),
    responses((status = 200, body = McpServerInfo), Answers))]
async fn test(
    State(board): State<Board>,
    caller: AsOperator,
    Ids((id, name)): Ids<(ViberId, String)>,
    OptionalJsonBody(EmptyBody {}): OptionalJsonBody<EmptyBody>,
) -> Result<Json<McpServerInfo>, Rejection> {
    Ok(Json(mcp_orders::test(&board, &caller.team.id, &id, &name).await?))
}
