//! A session's plan, as Markdown and as `{goal, steps}`, and what its agent proposes for it.

use axum::{
    Extension, Json,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use protocol::{
    Instant, ProposalId, SessionId,
    plan::{Step, Steps, markdown_of},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Answers,
    json::Body,
    path::Id,
    query::Asked,
    shapes::List,
    workspace::{Base, base, stale},
};
use crate::{
    actions::{files, plan, proposals},
    db,
    domain::{Edit, EditState, Proposal, ProposalState, plan::ProposalKind},
    error::{Error, Result},
    state::Board,
    web::{Operating, Rejection, Viewing, layers::RequestId},
};

/// Proposals of a session in one answer.
const PROPOSALS: u64 = 200;

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new().routes(routes!(read, write)).routes(routes!(list)).routes(routes!(decide))
}

/// A session's plan as it stands.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    markdown: String,
    goal: String,
    #[schema(value_type = Vec<Object>)]
    steps: Vec<Step>,
    /// Of the text; also the `ETag`.
    hash: String,
    /// Who wrote it: `operator`, `agent` or `file`.
    source: &'static str,
    #[schema(value_type = String, format = DateTime)]
    at: Instant,
    /// Since when this may be old; null: it is so on the machine now.
    #[schema(value_type = Option<String>, format = DateTime)]
    as_of: Option<Instant>,
    /// `applied`, or `queued` until the viber is back.
    state: &'static str,
}

/// The plan of a session.
#[utoipa::path(get, path = "/api/v1/sessions/{id}/plan", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = Plan), (status = 304, description = "As `If-None-Match` names it"), Answers))]
async fn read(
    State(board): State<Board>,
    caller: Viewing,
    Id(id): Id<SessionId>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    let now = plan::now(&board, &caller.team.id, &id).await?.ok_or(Error::NotFound)?;
    let tag = format!("\"{}\"", now.hash);
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    if known.is_some_and(|known| known.split(',').any(|one| one.trim() == tag)) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response());
    }
    let Steps { goal, steps } = Steps::of(&now.markdown);
    let plan = Plan {
        markdown: now.markdown,
        goal,
        steps,
        hash: now.hash,
        source: now.source.as_str(),
        at: now.at,
        as_of: now.as_of,
        state: if now.queued { "queued" } else { "applied" },
    };
    Ok(([(header::ETAG, tag)], Json(plan)).into_response())
}

/// A plan: Markdown, or a goal and steps.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    markdown: Option<String>,
    goal: Option<String>,
    /// `[{id?, title, status?, todos?: [{title, status?}]}]`.
    #[schema(value_type = Option<Vec<Object>>)]
    steps: Option<Vec<Value>>,
}

impl Wanted {
    /// The text that it means, where `now` stands.
    fn text(self, now: &str) -> Result<String> {
        let refused = |why: protocol::plan::Refused| Error::unacceptable("bad_plan", why.to_string());
        match (self.markdown, self.goal, self.steps) {
            (Some(markdown), None, None) => protocol::plan::fits(markdown).map_err(refused),
            (None, goal, steps) if goal.is_some() || steps.is_some() => {
                let known = Steps::of(now);
                let steps = steps.map_or_else(|| json!(known.steps), Value::Array);
                markdown_of(&json!({ "goal": goal.unwrap_or(known.goal), "steps": steps }), now).map_err(refused)
            }
            _ => Err(Error::unacceptable("bad_plan", "send `markdown`, or `goal` and `steps`")),
        }
    }
}

/// What became of a change.
#[derive(Debug, Serialize, ToSchema)]
pub struct Written {
    /// The version that there is now, or will be.
    hash: Option<String>,
    /// `applied`, or `queued` until the viber is back.
    state: &'static str,
}

/// Writes the plan: the version that `If-Match` names, or a first one.
#[utoipa::path(put, path = "/api/v1/sessions/{id}/plan", tag = "sessions", params(("id" = String, Path)),
    request_body = Wanted, responses((status = 200, body = Written),
        (status = 412, description = "It is another version: `{current, base}`"),
        (status = 428, description = "There is one: name the version"), Answers))]
async fn write(
    State(board): State<Board>,
    caller: Operating,
    Id(id): Id<SessionId>,
    headers: HeaderMap,
    Extension(number): Extension<RequestId>,
    Body(wanted): Body<Wanted>,
) -> Result<Response, Rejection> {
    let base = base(&headers)?;
    let now = plan::now(&board, &caller.team.id, &id).await?;
    let there = now.as_ref().map(|now| now.hash.clone());
    let seen = match &base {
        Base::Seen(hash) => Some(hash.clone()),
        Base::New | Base::Unsaid => None,
    };
    if seen != there {
        return Ok(stale(&base, there, &number));
    }
    let text = wanted.text(now.as_ref().map_or("", |now| now.markdown.as_str()))?;
    let edit = plan::put(&board, &caller.team.id, &caller.by, &id, seen, text).await?;
    if matches!(edit.state, EditState::Conflict | EditState::Settled) {
        // Whoever asked is told: nobody else has to decide.
        files::settle(&board, &caller.team.id, &caller.by, &edit, None).await?;
        return Ok(stale(&base, edit.theirs_hash, &number));
    }
    let Edit { hash, state, .. } = edit;
    let tag = format!("\"{}\"", hash.as_deref().unwrap_or_default());
    Ok(([(header::ETAG, tag)], Json(Written { hash, state: state.as_str() })).into_response())
}

/// What an agent would like to be changed.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Proposed {
    #[schema(value_type = String)]
    id: ProposalId,
    /// `pending`, `accepted`, `rejected` or `superseded`.
    state: &'static str,
    /// The version that the agent saw.
    base: Option<String>,
    /// The whole plan as it would be.
    markdown: String,
    note: String,
    #[schema(value_type = String)]
    task_id: protocol::TaskId,
    #[schema(value_type = String, format = DateTime)]
    created_at: Instant,
    decided_by: Option<String>,
    #[schema(value_type = Option<String>, format = DateTime)]
    decided_at: Option<Instant>,
    /// What became of the plan with the acceptance: `applied`, `queued`, or `conflict`, and then the proposal waits still.
    #[serde(skip_serializing_if = "Option::is_none")]
    edit: Option<&'static str>,
}

impl Proposed {
    fn of(proposal: Proposal, edit: Option<&Edit>) -> Self {
        Self {
            id: proposal.id,
            state: proposal.state.as_str(),
            base: proposal.base_hash,
            markdown: proposal.content,
            note: proposal.note,
            task_id: proposal.task_id,
            created_at: proposal.created_at,
            decided_by: proposal.decided_by,
            decided_at: proposal.decided_at,
            edit: edit.map(|edit| edit.state.as_str()),
        }
    }
}

/// Which proposals.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Which {
    /// Those in this state; all when absent.
    #[param(value_type = Option<String>)]
    pub(super) state: Option<ProposalState>,
}

/// What the session's agent proposes for the plan, the newest first.
#[utoipa::path(get, path = "/api/v1/sessions/{id}/plan/proposals", tag = "sessions",
    params(("id" = String, Path), Which), responses((status = 200, body = List<Proposed>), Answers))]
async fn list(
    State(board): State<Board>,
    caller: Viewing,
    Id(id): Id<SessionId>,
    Asked(which): Asked<Which>,
) -> Result<Json<List<Proposed>>, Rejection> {
    let team = caller.team.id.clone();
    let found = board
        .db
        .read(move |tx| {
            Box::pin(async move {
                db::sessions::load(tx, &team, &id).await?.ok_or(Error::NotFound)?;
                let kind = ProposalKind::Plan;
                Ok::<_, Error>(db::proposals::list(tx, &team, &id, kind, which.state, PROPOSALS).await?)
            })
        })
        .await?;
    let items = found.into_iter().map(|proposal| Proposed::of(proposal, None)).collect();
    Ok(Json(List { items, next: None }))
}

/// What a person decides.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// `accept` or `reject`.
    decision: Choice,
    /// With `accept`: this plan instead of the proposed one.
    markdown: Option<String>,
}

/// Yes or no.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    Accept,
    Reject,
}

/// Accepts or rejects a proposal.
#[utoipa::path(post, path = "/api/v1/sessions/{id}/plan/proposals/{proposal}", tag = "sessions",
    params(("id" = String, Path), ("proposal" = String, Path)), request_body = Verdict,
    responses((status = 200, body = Proposed), Answers))]
async fn decide(
    State(board): State<Board>,
    caller: Operating,
    Path((id, proposal)): Path<(String, String)>,
    Body(verdict): Body<Verdict>,
) -> Result<Json<Proposed>, Rejection> {
    let id: SessionId = id.parse().map_err(|_| Error::NotFound)?;
    let proposal: ProposalId = proposal.parse().map_err(|_| Error::NotFound)?;
    let verdict = match (verdict.decision, verdict.markdown) {
        (Choice::Accept, None) => proposals::Verdict::Accept,
        (Choice::Accept, Some(text)) => proposals::Verdict::Rewrite { text, of: None },
        (Choice::Reject, _) => proposals::Verdict::Reject,
    };
    let (team, by) = (&caller.team.id, &caller.by);
    let decided = proposals::decide(&board, team, by, ProposalKind::Plan, (&id, &proposal), verdict);
    let (proposal, edit) = decided.await?;
    if let Some(edit) = edit.as_ref().filter(|edit| edit.state == EditState::Conflict) {
        files::settle(&board, &caller.team.id, &caller.by, edit, None).await?;
        return Err(Error::conflict("plan_changed", "the plan was changed meanwhile; look at it again").into());
    }
    Ok(Json(Proposed::of(proposal, edit.as_ref())))
}
