//! What models cost the team, where their provider does not say it.

use axum::{
    Json,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use protocol::ModelPrice;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions::{VersionedChange, prices},
    db,
    domain::TeamPrices,
    state::Board,
    web::api::{
        Answers,
        json::JsonBody,
        versions::{IfVersion, NamedVersion, stale},
    },
    web::{AsAdmin, AsViewer, Rejection},
};

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new().routes(routes!(read, write))
}

/// The team's prices. The first one that matches a model is its price.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "prices": [{ "model": "acme/m1", "input": 3.0, "output": 15.0, "cachedInput": 0.3 }] })))]
pub struct PriceList {
    #[schema(max_items = 100)]
    prices: Vec<PriceOfModel>,
}

/// What a model's tokens cost, USD for a million.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PriceOfModel {
    /// `provider/model`, or a model of whatever provider; `*` stands for any characters.
    #[schema(min_length = 1, max_length = 200)]
    model: String,
    #[schema(minimum = 0, maximum = 1000000)]
    input: f64,
    #[schema(minimum = 0, maximum = 1000000)]
    output: f64,
    /// Of input that the provider had kept; like other input when absent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(minimum = 0, maximum = 1000000)]
    cached_input: Option<f64>,
}

impl From<ModelPrice> for PriceOfModel {
    fn from(price: ModelPrice) -> Self {
        let ModelPrice { model, input, output, cached } = price;
        Self { model, input, output, cached_input: cached }
    }
}

impl From<PriceOfModel> for ModelPrice {
    fn from(price: PriceOfModel) -> Self {
        let PriceOfModel { model, input, output, cached_input: cached } = price;
        Self { model, input, output, cached }
    }
}

fn answer(found: TeamPrices) -> Response {
    let prices = found.list.into_iter().map(PriceOfModel::from).collect();
    ([(header::ETAG, format!("\"{}\"", found.version))], Json(PriceList { prices })).into_response()
}

/// What models cost the team where their provider does not say it; sent with each task.
#[utoipa::path(get, path = "/api/v1/prices", operation_id = "prices.read", tag = "team", responses(
    (status = 200, body = PriceList, headers(("ETag" = String, description = "Its version"))), Answers))]
async fn read(State(board): State<Board>, caller: AsViewer) -> Result<Response, Rejection> {
    Ok(answer(db::prices::load(&mut board.db.reader_of(&caller.team.id).await?).await?))
}

/// Replaces the team's prices: the version that `If-Match` names, or whichever is there. Tasks that are sent from now on carry
/// them.
#[utoipa::path(put, path = "/api/v1/prices", operation_id = "prices.write", tag = "team", params(IfVersion),
    request_body = PriceList, responses(
    (status = 200, body = PriceList, headers(("ETag" = String, description = "Its version"))), Answers))]
async fn write(
    State(board): State<Board>,
    caller: AsAdmin,
    named: NamedVersion,
    JsonBody(said): JsonBody<PriceList>,
) -> Result<Response, Rejection> {
    let list = said.prices.into_iter().map(ModelPrice::from).collect();
    match prices::change(&board, &caller.team.id, &caller.by, list, named.count()).await? {
        VersionedChange::Made(now) => Ok(answer(now)),
        VersionedChange::Stale(now) => Ok(stale(&named.base, Some(now.version.to_string()), &named.number)),
    }
}
