//! A session's plan, as Markdown and as `{goal, steps}`.

use std::fmt;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use protocol::{
    Instant, SessionId,
    plan::{Status, Step, Steps, markdown_of},
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{Value, json};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{Object, OneOf, RefOr, Schema, schema::Type},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions::{files, plan},
    domain::{EditState, plan::PlanSource},
    error::{Error, Result},
    state::Board,
    web::api::{
        Answers,
        json::JsonBody,
        shapes::{EditDelivery, WriteOutcome},
        versions::{Base, IfChanged, IfVersion, NamedVersion, stale},
    },
    web::{AsOperator, AsViewer, Rejection, extract::Id},
};

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new().routes(routes!(read, write))
}

/// The current plan of a session.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    markdown: String,
    goal: String,
    steps: Vec<Step>,
    /// The hash of the text; also the `ETag`.
    hash: String,
    /// Who wrote it.
    source: PlanSource,
    at: Instant,
    /// When this was last known to be current; null when it is current.
    as_of: Option<Instant>,
    state: EditDelivery,
}

/// The plan of a session.
#[utoipa::path(get, path = "/api/v1/sessions/{id}/plan", operation_id = "plan.read", tag = "sessions",
    params(("id" = SessionId, Path), IfChanged), responses(
        (status = 200, body = Plan, headers(("ETag" = String, description = "Its version"))), (status = 304, description = "Unchanged: `If-None-Match` names the current version"), Answers))]
async fn read(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<SessionId>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    let now = plan::current(&board, &caller.team.id, &id).await?.ok_or(Error::NotFound)?;
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
        source: now.source,
        at: now.at,
        as_of: now.as_of,
        state: if now.queued { EditDelivery::Queued } else { EditDelivery::Applied },
    };
    Ok(([(header::ETAG, tag)], Json(plan)).into_response())
}

/// A plan: Markdown, or a goal and steps.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "goal": "A faster build", "steps": [{ "title": "Measure", "status": "done" }, { "title": "Cache" }] })))]
pub struct WritePlan {
    markdown: Option<String>,
    goal: Option<String>,
    /// When absent, the current steps are kept.
    steps: Option<Vec<WriteStep>>,
}

/// A step to write. Absent fields are taken from the current step with this id, or else with this title.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteStep {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    todos: Option<Vec<WriteTodo>>,
}

/// A to-do of a step, to write.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteTodo {
    title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

/// A plan that is sent with a task: Markdown, or fields.
#[derive(Debug)]
pub struct SentPlan(pub Value);

/// The fields of a plan that is sent with a task; a plan that was read can be sent back unchanged.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub struct SentPlanFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    markdown: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    goal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<Vec<WriteStep>>,
}

impl<'de> Deserialize<'de> for SentPlan {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct TextOrFields;

        impl<'de> Visitor<'de> for TextOrFields {
            type Value = SentPlan;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("Markdown, or an object")
            }

            fn visit_str<E>(self, text: &str) -> std::result::Result<SentPlan, E> {
                Ok(SentPlan(text.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> std::result::Result<SentPlan, A::Error> {
                SentPlanFields::deserialize(MapAccessDeserializer::new(fields)).map(|fields| SentPlan(json!(fields)))
            }
        }

        from.deserialize_any(TextOrFields)
    }
}

impl PartialSchema for SentPlan {
    fn schema() -> RefOr<Schema> {
        let text = Object::builder().schema_type(Type::String).description(Some("Markdown"));
        OneOf::builder().item(text).item(SentPlanFields::schema()).into()
    }
}

impl ToSchema for SentPlan {
    fn schemas(all: &mut Vec<(String, RefOr<Schema>)>) {
        SentPlanFields::schemas(all);
    }
}

impl WritePlan {
    /// The text that it means, where `now` stands.
    fn text(self, now: &str) -> Result<String> {
        let refused = |why: protocol::plan::PlanError| Error::unacceptable("bad_plan", why.to_string());
        match (self.markdown, self.goal, self.steps) {
            (Some(markdown), None, None) => protocol::plan::fits(markdown).map_err(refused),
            (None, goal, steps) if goal.is_some() || steps.is_some() => {
                let known = Steps::of(now);
                let steps = steps.map_or_else(|| json!(known.steps), |steps| json!(steps));
                markdown_of(&json!({ "goal": goal.unwrap_or(known.goal), "steps": steps }), now).map_err(refused)
            }
            _ => Err(Error::unacceptable("bad_plan", "send `markdown`, or `goal` and `steps`")),
        }
    }
}

/// Writes the plan: replaces the version that `If-Match` names, or creates the first one.
#[utoipa::path(put, path = "/api/v1/sessions/{id}/plan", operation_id = "plan.write", tag = "sessions",
    params(("id" = SessionId, Path), IfVersion), request_body = WritePlan, responses(
        (status = 200, body = WriteOutcome, headers(("ETag" = String, description = "The version that was written"))),
        Answers))]
async fn write(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    NamedVersion { base, number }: NamedVersion,
    JsonBody(wanted): JsonBody<WritePlan>,
) -> Result<Response, Rejection> {
    let now = plan::current(&board, &caller.team.id, &id).await?;
    let there = now.as_ref().map(|now| now.hash.clone());
    let seen = match &base {
        Base::Seen(hash) => Some(hash.clone()),
        Base::New | Base::Unspecified => None,
    };
    if seen != there {
        return Ok(stale(&base, there, &number));
    }
    let text = wanted.text(now.as_ref().map_or("", |now| now.markdown.as_str()))?;
    let edit = plan::put(&board, &caller.team.id, &caller.by, &id, plan::PlanDraft { base: seen, text }).await?;
    if matches!(edit.state, EditState::Conflict | EditState::Settled) {
        // Whoever asked is told: nobody else has to decide.
        files::settle(&board, &caller.team.id, &caller.by, &edit, None).await?;
        return Ok(stale(&base, edit.theirs_hash, &number));
    }
    let outcome = WriteOutcome::of(edit);
    let tag = format!("\"{}\"", outcome.hash.as_deref().unwrap_or_default());
    Ok(([(header::ETAG, tag)], Json(outcome)).into_response())
}
