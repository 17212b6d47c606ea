//! Playbooks of vibers, and runs of them.

use std::collections::BTreeMap;

use axum::{
    Extension, Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use protocol::{RunId, ViberId};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions::playbooks::{self, GateDecision, NewRun},
    db::{self, playbook_runs::RunFilter},
    domain::{PlaybookRun, idempotency::IdempotentCall},
    error::{Error, Result},
    state::Board,
    web::api::{
        Answers, PREFIX,
        json::{JsonBody, OptionalJsonBody},
        page::{Page, PageQuery, cursor},
        query::StrictQuery,
        shapes::{
            EmptyBody, List,
            playbook::{PlaybookFileResource, RunResource, WholeRunResource},
        },
    },
    web::{
        AsOperator, AsViewer, Rejection,
        extract::{Id, Ids},
    },
    words,
};

/// Events of a run that are shown.
const MAX_EVENTS: usize = 500;

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new()
        .routes(routes!(files))
        .routes(routes!(list, start))
        .routes(routes!(read))
        .routes(routes!(stop))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(decide))
}

/// The playbooks of a viber by name, with what is wrong with them. While the viber is away, as they were seen last.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/playbooks", operation_id = "playbooks.list", tag = "playbooks",
    params(("id" = ViberId, Path), PageQuery), responses((status = 200, body = List<PlaybookFileResource>), Answers))]
async fn files(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ViberId>,
    page: Page,
) -> Result<Json<List<PlaybookFileResource>>, Rejection> {
    let after: String = page.after_id("playbooks")?.unwrap_or_default();
    let found = playbooks::files_after(&board, (&caller.team.id, &id), &after, page.limit as usize).await?;
    let items = found.files.into_iter().map(PlaybookFileResource::from).collect();
    Ok(Json(List { items, next: found.next.map(|name| cursor("playbooks", &[name])) }))
}

/// Filters of the list of runs.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListRunsQuery {
    /// The `next` of the previous page.
    #[param(max_length = 512)]
    cursor: Option<String>,
    #[param(value_type = Option<u32>, minimum = 1, maximum = 200)]
    limit: Option<String>,
    /// Only runs of this viber's playbooks.
    viber_id: Option<ViberId>,
    /// Only runs of which something waits for a person.
    needing: Option<bool>,
}

/// The team's runs of playbooks, the newest first.
#[utoipa::path(get, path = "/api/v1/playbook-runs", operation_id = "playbookRuns.list", tag = "playbooks",
    params(ListRunsQuery), responses((status = 200, body = List<RunResource>), Answers))]
async fn list(
    State(board): State<Board>,
    caller: AsViewer,
    StrictQuery(which): StrictQuery<ListRunsQuery>,
) -> Result<Json<List<RunResource>>, Rejection> {
    let page = Page::read(which.cursor, which.limit.as_deref())?;
    let after = page.after_id::<RunId>("playbook-runs")?;
    let filter = RunFilter { viber: which.viber_id.as_ref(), needing: which.needing.unwrap_or_default() };
    let rows = {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        db::playbook_runs::filtered(&mut tx, filter, after.as_ref(), page.fetch()).await?
    };
    Ok(Json(page.list("playbook-runs", rows, |run: &PlaybookRun| vec![run.id.to_string()])))
}

/// A playbook and what it is given.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(examples(json!({ "viberId": "vib_0192d1c7a0f07a3cb1f0c6f8d1f1a2b3", "playbook": "release-feature",
    "inputs": { "version": "4.12.0" } })))]
pub struct StartRun {
    viber_id: ViberId,
    /// The name of its file, without `.md`.
    #[schema(min_length = 1, max_length = 120)]
    playbook: String,
    /// SHA-256 of the text that was seen; when the file has another one, nothing is started.
    #[schema(min_length = 64, max_length = 64)]
    hash: Option<String>,
    #[serde(default)]
    inputs: BTreeMap<String, String>,
    /// Whether a supervisor starts the steps; otherwise they run as they are written. `true` when absent.
    supervised: Option<bool>,
}

/// Starts a run of a playbook. Repeating the call with the same `Idempotency-Key` within 24 hours returns the same run.
#[utoipa::path(post, path = "/api/v1/playbook-runs", operation_id = "playbookRuns.start", tag = "playbooks",
    request_body = StartRun, responses((status = 201, body = RunResource,
        headers(("Location" = String, description = "URL of the new resource"))), Answers))]
async fn start(
    State(board): State<Board>,
    caller: AsOperator,
    once: Option<Extension<IdempotentCall>>,
    JsonBody(asked): JsonBody<StartRun>,
) -> Result<Response, Rejection> {
    let new = NewRun {
        viber: asked.viber_id,
        playbook: asked.playbook,
        hash: asked.hash,
        inputs: asked.inputs,
        supervised: asked.supervised.unwrap_or(true),
        once: once.map(|Extension(once)| once),
    };
    let run = playbooks::start(&board, &caller.team.id, &caller.by, new).await.map_err(crate::web::api::foreign)?;
    let place = format!("{PREFIX}/playbook-runs/{}", run.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, place)], Json(RunResource::from(run))).into_response())
}

/// One run with its steps.
#[utoipa::path(get, path = "/api/v1/playbook-runs/{id}", operation_id = "playbookRuns.read", tag = "playbooks",
    params(("id" = RunId, Path)), responses((status = 200, body = WholeRunResource), Answers))]
async fn read(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<RunId>,
) -> Result<Json<WholeRunResource>, Rejection> {
    let mut tx = board.db.reader_of(&caller.team.id).await?;
    let mut run = db::playbook_runs::load(&mut tx, &id).await?.ok_or(Error::NotFound)?;
    let steps = db::playbook_runs::steps(&mut tx, &id).await?;
    let mut events = db::playbook_runs::events(&mut tx, &id, MAX_EVENTS as u64 + 1).await?;
    let more_events = events.len() > MAX_EVENTS;
    events.truncate(MAX_EVENTS);
    Ok(Json(WholeRunResource {
        text: std::mem::take(&mut run.text),
        run: run.into(),
        steps: steps.into_iter().map(Into::into).collect(),
        events: events.into_iter().map(Into::into).collect(),
        more_events,
    }))
}

/// Stops a run for good, with all its tasks. One that has ended stays as it is.
#[utoipa::path(post, path = "/api/v1/playbook-runs/{id}/stop", operation_id = "playbookRuns.stop", tag = "playbooks",
    params(("id" = RunId, Path)), request_body(content = Option<EmptyBody>),
    responses((status = 200, body = RunResource), Answers))]
async fn stop(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<RunId>,
    OptionalJsonBody(EmptyBody {}): OptionalJsonBody<EmptyBody>,
) -> Result<Json<RunResource>, Rejection> {
    Ok(Json(playbooks::stop(&board, &caller.team.id, &caller.by, &id).await?.into()))
}

/// Lets nothing new start; what runs goes on.
#[utoipa::path(post, path = "/api/v1/playbook-runs/{id}/pause", operation_id = "playbookRuns.pause", tag = "playbooks",
    params(("id" = RunId, Path)), request_body(content = Option<EmptyBody>),
    responses((status = 200, body = RunResource), Answers))]
async fn pause(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<RunId>,
    OptionalJsonBody(EmptyBody {}): OptionalJsonBody<EmptyBody>,
) -> Result<Json<RunResource>, Rejection> {
    Ok(Json(playbooks::pause(&board, &caller.team.id, &caller.by, &id).await?.into()))
}

/// Lets a run go on; also starts a supervisor again that was stopped, or failed too often.
#[utoipa::path(post, path = "/api/v1/playbook-runs/{id}/resume", operation_id = "playbookRuns.resume", tag = "playbooks",
    params(("id" = RunId, Path)), request_body(content = Option<EmptyBody>),
    responses((status = 200, body = RunResource), Answers))]
async fn resume(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<RunId>,
    OptionalJsonBody(EmptyBody {}): OptionalJsonBody<EmptyBody>,
) -> Result<Json<RunResource>, Rejection> {
    Ok(Json(playbooks::resume(&board, &caller.team.id, &caller.by, &id).await?.into()))
}

words! {
    /// What is done with a step.
    RunStepAction as PlaybookStepAction {
        /// Starts a failed one again.
        Retry = "retry",
        /// Leaves one out that does not run.
        Skip = "skip",
        /// Lets it pass its gate.
        Allow = "allow",
        Deny = "deny",
    }
}

/// What a person does with a step.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "action": "allow", "digest": "the gateDigest of the step" })))]
pub struct DecideStep {
    action: RunStepAction,
    /// With `skip` the reason, which is required; with `retry` what its agent is told, with `deny` what its supervisor is told,
    /// with `allow` what people are.
    #[schema(max_length = 8192)]
    note: Option<String>,
    /// With `allow` and `deny`: the `gateDigest` that was seen.
    digest: Option<String>,
    /// With `allow` and `deny`: why an owner decides what the team's settings do not let them.
    #[schema(max_length = 8192)]
    reason: Option<String>,
}

/// Starts a step again, skips it, or decides about its gate. A decision about a gate counts for what has this digest alone.
#[utoipa::path(post, path = "/api/v1/playbook-runs/{id}/steps/{n}", operation_id = "playbookRuns.decide", tag = "playbooks",
    params(("id" = RunId, Path), ("n" = String, Path, description = "The label of the step, such as `3` or `3a`")),
    request_body = DecideStep, responses((status = 200, body = RunResource), Answers))]
async fn decide(
    State(board): State<Board>,
    caller: AsOperator,
    Ids((id, label)): Ids<(RunId, String)>,
    JsonBody(said): JsonBody<DecideStep>,
) -> Result<Json<RunResource>, Rejection> {
    let (team, step) = (&caller.team.id, (&id, label.as_str()));
    let DecideStep { action, note, digest, reason } = said;
    let run = match action {
        RunStepAction::Retry => playbooks::retry_step(&board, team, &caller.by, step, note.as_deref()).await?,
        RunStepAction::Skip => {
            playbooks::skip_step(&board, team, caller.maker(), step, note.as_deref().unwrap_or_default()).await?
        }
        RunStepAction::Allow | RunStepAction::Deny => {
            let missing = || Error::unacceptable("digest_required", "name the gateDigest of what you decide about");
            let allow = action == RunStepAction::Allow;
            let decision = GateDecision { allow, digest: digest.ok_or_else(missing)?, note, reason };
            playbooks::decide_gate(&board, team, caller.maker(), step, decision).await?
        }
    };
    Ok(Json(run.into()))
}
