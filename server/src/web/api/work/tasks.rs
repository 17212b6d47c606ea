//! Tasks: submitting, reading, stopping, holding and retrying them.

use std::collections::BTreeMap;

use axum::{
    Extension, Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use protocol::{
    AgentMode, ArtifactId, ArtifactRef, PausePoint, Policy, ReportedDetail, SessionId, TaskId, TaskLimits, ViberId,
    limits::MAX_GOAL_BYTES,
};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions::{self, tasks::children},
    db,
    domain::{self, TaskState, idempotency::IdempotentCall},
    error::{Error, Result},
    state::Board,
    web::api::{
        Answers, PREFIX,
        json::{JsonBody, OptionalJsonBody},
        page::{Page, cursor},
        plan::SentPlan,
        query::StrictQuery,
        shapes::{self, EmptyBody, Labels, List},
    },
    web::{AsOperator, AsViewer, Rejection, extract::Id},
};

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new()
        .routes(routes!(list, submit))
        .routes(routes!(read))
        .routes(routes!(tree))
        .routes(routes!(stop))
        .routes(routes!(retry))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(crate::web::api::events::events))
}

/// A goal and how to work on it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(examples(json!({ "goal": "Find out why the build is slow", "viberId": "vib_0192d1c7a0f07a3cb1f0c6f8d1f1a2b3",
    "limits": { "minutes": 30 } })))]
pub struct SubmitTask {
    /// The goal, at most 256 KiB.
    #[schema(min_length = 1, max_length = 262144)]
    goal: String,
    /// The viber to run on; must be the session's when both are given.
    viber_id: Option<ViberId>,
    /// Labels that the viber must have, when neither a viber nor a session is given.
    #[schema(value_type = Option<Labels>)]
    labels: Option<BTreeMap<String, String>>,
    /// When absent, the session's agent, or `default` for a new session. Another agent of the session's viber answers in the
    /// session from this task on.
    agent_id: Option<String>,
    /// `provider/model` for this task, one of the `models` that the viber reports with its providers; the agent's own
    /// when absent.
    #[schema(max_length = 250)]
    model: Option<String>,
    /// When absent, a new session is started.
    session_id: Option<SessionId>,
    /// Attachments that wait for the session's next task; all of them when absent.
    #[schema(value_type = Option<Vec<ArtifactId>>)]
    attachments: Option<Vec<Value>>,
    /// Passed on to the agent unchanged.
    context: Option<Value>,
    plan: Option<SentPlan>,
    /// The artifacts of the session when absent.
    artifacts: Option<Vec<ArtifactRef>>,
    /// Memory excerpts, `{path, title?, text}`, instead of those that the viber would find itself.
    memory: Option<Vec<Value>>,
    /// The agent's configured mode when absent.
    mode: Option<AgentMode>,
    /// `full` when absent.
    stream: Option<ReportedDetail>,
    limits: Option<TaskLimits>,
    /// The agent checks in after so many calls of tools: it asks whether to go on. For agents with the capability `pause`.
    #[schema(minimum = 1, maximum = 10000)]
    leash: Option<u32>,
    /// Sets the session's policy for changes to the plan: `apply` (at once) or `propose`.
    plan_policy: Option<Policy>,
    /// The same for `MEMORY.md`.
    memory_policy: Option<Policy>,
    /// The agent plans first and waits for an approval.
    approve_first: Option<bool>,
}

impl SubmitTask {
    /// The parts that the Board only passes on, as the database stores them.
    fn payload(&mut self) -> Option<Value> {
        let list = |items: Option<Vec<Value>>| items.filter(|items| !items.is_empty()).map(Value::Array);
        let fields = [
            ("attachments", list(self.attachments.take())),
            ("context", self.context.take()),
            ("plan", self.plan.take().map(|plan| plan.0)),
            ("artifacts", list(self.artifacts.take().map(|all| all.into_iter().map(|one| json!(one)).collect()))),
            ("memory", list(self.memory.take())),
        ];
        let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let given: serde_json::Map<_, _> = given.filter(|(_, value)| !value.is_null()).collect();
        (!given.is_empty()).then_some(Value::Object(given))
    }
}

/// Submits a task. Repeating the call with the same `Idempotency-Key` within 24 hours returns the same task.
#[utoipa::path(post, path = "/api/v1/tasks", operation_id = "tasks.submit", tag = "tasks", request_body = SubmitTask,
    responses((status = 201, body = shapes::TaskResource,
        headers(("Location" = String, description = "URL of the new resource"))), Answers))]
async fn submit(
    State(board): State<Board>,
    caller: AsOperator,
    once: Option<Extension<IdempotentCall>>,
    JsonBody(mut asked): JsonBody<SubmitTask>,
) -> Result<Response, Rejection> {
    if asked.goal.len() > MAX_GOAL_BYTES {
        return Err(Error::TooLarge("a goal is at most 256 KiB").into());
    }
    let payload = asked.payload();
    let submit = actions::tasks::NewTask {
        goal: asked.goal,
        session: asked.session_id,
        viber: asked.viber_id,
        agent: asked.agent_id,
        model: asked.model,
        labels: asked.labels.unwrap_or_default(),
        stream: asked.stream.unwrap_or_default(),
        mode: asked.mode,
        limits: asked.limits.unwrap_or_default(),
        leash: asked.leash,
        payload,
        policies: domain::PolicyChange {
            plan: asked.plan_policy,
            memory: asked.memory_policy,
            approve_first: asked.approve_first,
        },
        once: once.map(|Extension(once)| once),
        ..Default::default()
    };
    let task =
        actions::tasks::submit(&board, &caller.team.id, &caller.by, submit).await.map_err(crate::web::api::foreign)?;
    let place = format!("{PREFIX}/tasks/{}", task.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, place)], Json(shapes::TaskResource::from(task))).into_response())
}

/// Filters of the list of tasks.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListTasksQuery {
    /// The `next` of the previous page.
    #[param(max_length = 512)]
    cursor: Option<String>,
    #[param(value_type = Option<u32>, minimum = 1, maximum = 200)]
    limit: Option<String>,
    /// With `viberId` and `completed`, a page may hold fewer items than its limit, or none, and still have a `next`: a request
    /// looks at some thousands of tasks at most.
    state: Option<TaskState>,
    session_id: Option<SessionId>,
    viber_id: Option<ViberId>,
}

/// The team's tasks, the newest first.
#[utoipa::path(get, path = "/api/v1/tasks", operation_id = "tasks.list", tag = "tasks", params(ListTasksQuery), responses(
    (status = 200, body = List<shapes::TaskResource>), Answers))]
async fn list(
    State(board): State<Board>,
    caller: AsViewer,
    StrictQuery(which): StrictQuery<ListTasksQuery>,
) -> Result<Json<List<shapes::TaskResource>>, Rejection> {
    let page = Page::read(which.cursor, which.limit.as_deref())?;
    let after = page.after_id::<TaskId>("tasks")?;
    let filter = db::tasks::TaskFilter { state: which.state, session: which.session_id, viber: which.viber_id };
    let team = &caller.team.id;
    let found = db::tasks::list(&mut board.db.reader_of(team).await?, &filter, after.as_ref(), page.fetch()).await?;
    let List { items, next } = page.list("tasks", found.tasks, |task| vec![task.id.to_string()]);
    let behind = found.goes_on_behind.map(|id| cursor("tasks", &[id.to_string()]));
    Ok(Json(List { items, next: next.or(behind) }))
}

/// One task.
#[utoipa::path(get, path = "/api/v1/tasks/{id}", operation_id = "tasks.read", tag = "tasks", params(("id" = TaskId, Path)), responses(
    (status = 200, body = shapes::TaskResource), Answers))]
async fn read(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<TaskId>,
) -> Result<Json<shapes::TaskResource>, Rejection> {
    let task = load(&board, &caller, id).await?;
    let tree = children::tree_of(&board, &caller.team.id, &task.id).await?;
    let children = tree.iter().flat_map(|tree| tree.children(&task.id)).map(shapes::task::TaskChild::from).collect();
    Ok(Json(shapes::TaskResource { children, ..task.into() }))
}

/// The tree that a task belongs to: what agents asked of each other, from the task that it begins with. One that is in none is a
/// tree by itself.
#[utoipa::path(get, path = "/api/v1/tasks/{id}/tree", operation_id = "tasks.tree", tag = "tasks", params(("id" = TaskId, Path)),
    responses((status = 200, body = shapes::task::TreeResource), Answers))]
async fn tree(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<TaskId>,
) -> Result<Json<shapes::task::TreeResource>, Rejection> {
    let task = load(&board, &caller, id).await?;
    let found = children::tree_of(&board, &caller.team.id, &task.id).await?;
    let alone = || shapes::task::TreeResource {
        root: task.id,
        depth: 0,
        items: Vec::new(),
        more_refused: false,
        usage: task.usage,
    };
    Ok(Json(found.as_ref().map_or_else(alone, shapes::task::TreeResource::from)))
}

/// A task of the caller's team.
pub async fn load(board: &Board, caller: &AsViewer, id: TaskId) -> Result<domain::Task> {
    let found = db::tasks::load(&mut board.db.reader_of(&caller.team.id).await?, &id).await?;
    found.ok_or(Error::NotFound)
}

/// The reason for stopping a task.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(examples(json!({ "reason": "No longer needed" })))]
pub struct StopTask {
    reason: Option<String>,
}

/// Stops a task: it is `stopped` at once; `stopConfirmedAt` says when all its processes have ended.
#[utoipa::path(post, path = "/api/v1/tasks/{id}/stop", operation_id = "tasks.stop", tag = "tasks", params(("id" = TaskId, Path)),
    request_body(content = Option<StopTask>), responses((status = 200, body = shapes::TaskResource), Answers))]
async fn stop(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<TaskId>,
    OptionalJsonBody(stop): OptionalJsonBody<StopTask>,
) -> Result<Json<shapes::TaskResource>, Rejection> {
    let reason = stop.reason.unwrap_or_default();
    let task = actions::tasks::stop(&board, &caller.team.id, &caller.by, &id, &reason).await?;
    Ok(Json(task.into()))
}

/// How a task is run again.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(examples(json!({ "stop": false })))]
pub struct RetryTask {
    /// `provider/model` from now on, one that its viber offers; the one before when absent.
    #[schema(max_length = 200)]
    model: Option<String>,
    /// It is stopped first, if it has not ended.
    stop: bool,
    /// The attempt that the caller saw: another one is 409 `raced`.
    #[serde(rename = "seenAttempt")]
    #[schema(minimum = 1)]
    seen_attempt: Option<u32>,
}

/// Runs a task that has ended again, as a new attempt.
#[utoipa::path(post, path = "/api/v1/tasks/{id}/retry", operation_id = "tasks.retry", tag = "tasks", params(("id" = TaskId, Path)),
    request_body(content = Option<RetryTask>), responses((status = 200, body = shapes::TaskResource), Answers))]
async fn retry(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<TaskId>,
    OptionalJsonBody(RetryTask { model, stop, seen_attempt }): OptionalJsonBody<RetryTask>,
) -> Result<Json<shapes::TaskResource>, Rejection> {
    let how = actions::tasks::Retry { model, stop, attempt: seen_attempt };
    let task = actions::tasks::retry(&board, &caller.team.id, &caller.by, &id, how).await?;
    Ok(Json(task.into()))
}

/// Where a task is held.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(examples(json!({ "at": "step" })))]
pub struct PauseTask {
    /// Before the next model call when absent.
    at: PausePoint,
}

/// Holds a task before its next step; it waits for `paused` once it is held. Pausing it again changes nothing.
#[utoipa::path(post, path = "/api/v1/tasks/{id}/pause", operation_id = "tasks.pause", tag = "tasks", params(("id" = TaskId, Path)),
    request_body(content = Option<PauseTask>), responses((status = 200, body = shapes::TaskResource), Answers))]
async fn pause(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<TaskId>,
    OptionalJsonBody(pause): OptionalJsonBody<PauseTask>,
) -> Result<Json<shapes::TaskResource>, Rejection> {
    let task = actions::tasks::pause(&board, &caller.team.id, &caller.by, &id, pause.at).await?;
    Ok(Json(task.into()))
}

/// Lets a task go on that is held; one that is not held yet is not held any more.
#[utoipa::path(post, path = "/api/v1/tasks/{id}/resume", operation_id = "tasks.resume", tag = "tasks", params(("id" = TaskId, Path)),
    request_body(content = Option<EmptyBody>), responses((status = 200, body = shapes::TaskResource), Answers))]
async fn resume(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<TaskId>,
    OptionalJsonBody(EmptyBody {}): OptionalJsonBody<EmptyBody>,
) -> Result<Json<shapes::TaskResource>, Rejection> {
    let task = actions::tasks::resume(&board, &caller.team.id, &caller.by, &id).await?;
    Ok(Json(task.into()))
}
