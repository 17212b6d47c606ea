//! Work: giving it, watching it, stepping in.

use std::collections::BTreeMap;

use axum::{
    Extension, Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use protocol::{Limits, Mode, Policy, SessionId, Stream, TaskId, ViberId, limits::MAX_GOAL};
use serde::Deserialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Answers, PREFIX,
    json::{Body, MaybeBody},
    page::Page,
    path::Id,
    query::Asked,
    shapes::{self, List},
};
use crate::{
    actions, db,
    domain::{self, TaskState, once::Once},
    error::{Error, Result},
    state::Board,
    web::{Operating, Rejection, Viewing},
};

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new()
        .routes(routes!(list, submit))
        .routes(routes!(read))
        .routes(routes!(stop))
        .routes(routes!(retry))
        .routes(routes!(super::events::events))
}

/// A goal and how to work on it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Submit {
    /// At most 256 KiB.
    goal: String,
    /// Where it runs; must be the session's when both are given.
    #[schema(value_type = Option<String>)]
    viber_id: Option<ViberId>,
    /// Without a viber and a session: what the chosen viber must have.
    labels: Option<BTreeMap<String, String>>,
    /// The session's when absent, else `default`.
    agent_id: Option<String>,
    /// A new session when absent.
    #[schema(value_type = Option<String>)]
    session_id: Option<SessionId>,
    #[schema(value_type = Option<Vec<Object>>)]
    attachments: Option<Vec<Value>>,
    #[schema(value_type = Option<Object>)]
    context: Option<Value>,
    #[schema(value_type = Option<Object>)]
    plan: Option<Value>,
    #[schema(value_type = Option<Vec<Object>>)]
    artifacts: Option<Vec<Value>>,
    #[schema(value_type = Option<Vec<Object>>)]
    memory: Option<Vec<Value>>,
    /// `always_ask`, `viber_decides` or `always_execute`; the agent's own when absent.
    #[schema(value_type = Option<String>)]
    mode: Option<Mode>,
    /// `none`, `text` or `full`, which is the default.
    #[schema(value_type = Option<String>)]
    stream: Option<Stream>,
    /// `{steps?, toolCalls?, tokens?, costUsd?, minutes?}`.
    #[schema(value_type = Option<Object>)]
    limits: Option<Limits>,
    /// The session's from here on: `apply` (at once) or `propose`: the agent's changes of the plan.
    #[schema(value_type = Option<String>)]
    plan_policy: Option<Policy>,
    /// The same for `MEMORY.md`.
    #[schema(value_type = Option<String>)]
    memory_policy: Option<Policy>,
    /// The agent plans first and waits for an approval.
    approve_first: Option<bool>,
}

impl Submit {
    /// What rides along unread, as the database keeps it.
    fn payload(&mut self) -> Option<Value> {
        let list = |items: Option<Vec<Value>>| items.filter(|items| !items.is_empty()).map(Value::Array);
        let fields = [
            ("attachments", list(self.attachments.take())),
            ("context", self.context.take()),
            ("plan", self.plan.take()),
            ("artifacts", list(self.artifacts.take())),
            ("memory", list(self.memory.take())),
        ];
        let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let given: serde_json::Map<_, _> = given.filter(|(_, value)| !value.is_null()).collect();
        (!given.is_empty()).then_some(Value::Object(given))
    }
}

/// Gives a viber a goal. With an `Idempotency-Key` the same call answers the same task for 24 h.
#[utoipa::path(post, path = "/api/v1/tasks", tag = "tasks", request_body = Submit,
    params(("Idempotency-Key" = Option<String>, Header, description = "Names this call: sent again it is answered again and nothing is done")),
    responses((status = 201, body = shapes::Task), Answers))]
async fn submit(
    State(board): State<Board>,
    caller: Operating,
    once: Option<Extension<Once>>,
    Body(mut asked): Body<Submit>,
) -> Result<Response, Rejection> {
    if asked.goal.len() > MAX_GOAL {
        return Err(Error::TooLarge("a goal may have at most 256 KiB").into());
    }
    let payload = asked.payload();
    let submit = actions::tasks::Submit {
        goal: asked.goal,
        session: asked.session_id,
        viber: asked.viber_id,
        agent: asked.agent_id,
        labels: asked.labels.unwrap_or_default(),
        stream: asked.stream.unwrap_or_default(),
        mode: asked.mode,
        limits: asked.limits.unwrap_or_default(),
        payload,
        policies: domain::PolicyChange {
            plan: asked.plan_policy,
            memory: asked.memory_policy,
            approve_first: asked.approve_first,
        },
        once: once.map(|Extension(once)| once),
        takes: None,
    };
    let task = actions::tasks::submit(&board, &caller.team.id, &caller.by, submit).await.map_err(super::foreign)?;
    let place = format!("{PREFIX}/tasks/{}", task.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, place)], Json(shapes::Task::from(task))).into_response())
}

/// Which tasks.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Which {
    cursor: Option<String>,
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
    #[param(value_type = Option<String>)]
    state: Option<TaskState>,
    #[param(value_type = Option<String>)]
    session_id: Option<SessionId>,
    #[param(value_type = Option<String>)]
    viber_id: Option<ViberId>,
}

/// The team's tasks, the newest first.
#[utoipa::path(get, path = "/api/v1/tasks", tag = "tasks", params(Which), responses(
    (status = 200, body = List<shapes::Task>), Answers))]
async fn list(
    State(board): State<Board>,
    caller: Viewing,
    Asked(which): Asked<Which>,
) -> Result<Json<List<shapes::Task>>, Rejection> {
    let page = Page::read(which.cursor, which.limit.as_deref())?;
    let after = page.after_id::<TaskId>("tasks")?;
    let filter = db::tasks::Filter { state: which.state, session: which.session_id, viber: which.viber_id };
    let (team, limit) = (caller.team.id.clone(), page.fetch());
    let rows = board
        .db
        .read(move |tx| Box::pin(async move { db::tasks::list(tx, &team, &filter, after.as_ref(), limit).await }))
        .await?;
    Ok(Json(page.list("tasks", rows, |task| vec![task.id.to_string()])))
}

/// One task.
#[utoipa::path(get, path = "/api/v1/tasks/{id}", tag = "tasks", params(("id" = String, Path)), responses(
    (status = 200, body = shapes::Task), Answers))]
async fn read(
    State(board): State<Board>,
    caller: Viewing,
    Id(id): Id<TaskId>,
) -> Result<Json<shapes::Task>, Rejection> {
    Ok(Json(load(&board, &caller, id).await?.into()))
}

/// A task of the caller's team.
pub async fn load(board: &Board, caller: &Viewing, id: TaskId) -> Result<domain::Task> {
    let team = caller.team.id.clone();
    let found = board.db.read(move |tx| Box::pin(async move { db::tasks::load(tx, &team, &id).await })).await?;
    found.ok_or(Error::NotFound)
}

/// Why a task is stopped.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Stop {
    reason: Option<String>,
}

/// Stops a task: it is `stopped` at once, `stopConfirmedAt` tells when everything of it is dead.
#[utoipa::path(post, path = "/api/v1/tasks/{id}/stop", tag = "tasks", params(("id" = String, Path)),
    request_body(content = Option<Stop>), responses((status = 200, body = shapes::Task), Answers))]
async fn stop(
    State(board): State<Board>,
    caller: Operating,
    Id(id): Id<TaskId>,
    MaybeBody(stop): MaybeBody<Stop>,
) -> Result<Json<shapes::Task>, Rejection> {
    let reason = stop.reason.unwrap_or_default();
    let task = actions::tasks::stop(&board, &caller.team.id, &caller.by, &id, &reason).await?;
    Ok(Json(task.into()))
}

/// Nothing to say: `{}`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Nothing {}

/// Tries a task that has ended once more, as a new attempt.
#[utoipa::path(post, path = "/api/v1/tasks/{id}/retry", tag = "tasks", params(("id" = String, Path)),
    request_body(content = Option<Nothing>), responses((status = 200, body = shapes::Task), Answers))]
async fn retry(
    State(board): State<Board>,
    caller: Operating,
    Id(id): Id<TaskId>,
    MaybeBody(Nothing {}): MaybeBody<Nothing>,
) -> Result<Json<shapes::Task>, Rejection> {
    let task = actions::tasks::retry(&board, &caller.team.id, &caller.by, &id).await?;
    Ok(Json(task.into()))
}
