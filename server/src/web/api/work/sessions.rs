//! Conversations and their messages.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use protocol::{Instant, Policy, SessionId, ViberId};
use serde::{Deserialize, Deserializer};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions, db,
    domain::{Message, PolicyChange, SessionState, context::overview::ContextOverview},
    error::Error,
    state::Board,
    web::api::{
        Answers, PREFIX,
        json::JsonBody,
        page::{Page, cursor, limit_of},
        query::StrictQuery,
        shapes::{self, Labels, List},
    },
    web::{AsOperator, AsViewer, Rejection, extract::Id},
};

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(read, change, delete))
        .routes(routes!(messages))
        .routes(routes!(context))
}

/// Filters of the list of sessions.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListSessionsQuery {
    /// The `next` of the previous page.
    #[param(max_length = 512)]
    cursor: Option<String>,
    #[param(value_type = Option<u32>, minimum = 1, maximum = 200)]
    limit: Option<String>,
    /// Only archived sessions, instead of the others.
    archived: Option<bool>,
    /// Only sessions on this viber.
    viber_id: Option<ViberId>,
    /// Only sessions with this agent.
    #[param(max_length = 200)]
    agent_id: Option<String>,
    /// Only sessions that this operator or token began, or that began on this viber's machine.
    #[param(max_length = 200)]
    created_by: Option<String>,
    /// Only sessions in this state: that of their task at work, else of their newest task. `unread`: something ended that the
    /// operator who asks has not seen.
    state: Option<SessionState>,
    /// Only sessions whose title contains this text; case is ignored. A page may hold fewer items than its limit, or none,
    /// and still have a `next`: a request reads some thousands of sessions at most.
    title: Option<String>,
}

/// The team's sessions, the most recently active first.
#[utoipa::path(get, path = "/api/v1/sessions", operation_id = "sessions.list", tag = "sessions", params(ListSessionsQuery), responses(
    (status = 200, body = List<shapes::SessionResource>), Answers))]
async fn list(
    State(board): State<Board>,
    caller: AsViewer,
    StrictQuery(which): StrictQuery<ListSessionsQuery>,
) -> Result<Json<List<shapes::SessionResource>>, Rejection> {
    let page = Page::read(which.cursor, which.limit.as_deref())?;
    let after = match page.after("sessions")? {
        None => None,
        Some(place) => match place.as_slice() {
            [at, id] => Some((
                Instant(at.parse().map_err(|_| crate::web::api::page::bad_cursor())?),
                id.parse::<SessionId>().map_err(|_| crate::web::api::page::bad_cursor())?,
            )),
            _ => return Err(crate::web::api::page::bad_cursor().into()),
        },
    };
    let filter = db::sessions::SessionFilter {
        archived: which.archived.unwrap_or(false),
        own: false,
        viber: which.viber_id,
        agent: which.agent_id,
        person: which.created_by,
        state: which.state,
    };
    let after = after.as_ref().map(|(at, id)| (*at, id));
    let title = which.title.unwrap_or_default();
    let found = {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        db::sessions::search(
            &mut tx,
            db::sessions::TitleSearch { reader: caller.reader(), filter: &filter, title: &title },
            after,
            page.limit as usize,
        )
        .await?
    };
    Ok(Json(List {
        items: found.lines.into_iter().map(|line| line.session.into()).collect(),
        next: found.next.map(|(at, id)| cursor("sessions", &[at.0.to_string(), id.to_string()])),
    }))
}

/// A session to start.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schema(examples(json!({ "viberId": "vib_0192d1c7a0f07a3cb1f0c6f8d1f1a2b3", "title": "The slow query", "memoryPolicy": "propose" })))]
pub struct StartSession {
    /// The viber to work on; when absent, the Board chooses one that has `labels`.
    viber_id: Option<ViberId>,
    #[schema(value_type = Labels)]
    labels: BTreeMap<String, String>,
    /// `default` when absent.
    agent_id: Option<String>,
    title: Option<String>,
    /// How the agent changes the plan: `apply` (at once) or `propose`.
    plan_policy: Option<Policy>,
    /// The same for `MEMORY.md`.
    memory_policy: Option<Policy>,
    /// The agent plans first and waits for an approval.
    approve_first: Option<bool>,
}

/// Starts a session without a task.
#[utoipa::path(post, path = "/api/v1/sessions", operation_id = "sessions.create", tag = "sessions", request_body = StartSession, responses(
    (status = 201, body = shapes::SessionResource,
        headers(("Location" = String, description = "URL of the new resource"))), Answers))]
async fn create(
    State(board): State<Board>,
    caller: AsOperator,
    JsonBody(start): JsonBody<StartSession>,
) -> Result<Response, Rejection> {
    let start = actions::sessions::NewSession {
        viber: start.viber_id,
        labels: start.labels,
        agent: start.agent_id,
        title: start.title,
        policies: PolicyChange {
            plan: start.plan_policy,
            memory: start.memory_policy,
            approve_first: start.approve_first,
        },
        about: String::new(),
    };
    let session = actions::sessions::create(&board, &caller.team.id, &caller.by, start)
        .await
        .map_err(crate::web::api::foreign)?;
    let place = format!("{PREFIX}/sessions/{}", session.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, place)], Json(shapes::SessionResource::from(session))).into_response())
}

/// One session.
#[utoipa::path(get, path = "/api/v1/sessions/{id}", operation_id = "sessions.read", tag = "sessions", params(("id" = SessionId, Path)), responses(
    (status = 200, body = shapes::SessionResource), Answers))]
async fn read(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<SessionId>,
) -> Result<Json<shapes::SessionResource>, Rejection> {
    let mut tx = board.db.reader_of(&caller.team.id).await?;
    let session = db::sessions::load(&mut tx, &id).await?.ok_or(Error::NotFound)?;
    let compact_at = Some(tx.query(db::sessions::own_percent_query(&id)).await?);
    Ok(Json(shapes::SessionResource { compact_at, ..session.into() }))
}

/// What fills the window of a session's model, what its next request is planned to carry, and what would make room.
#[utoipa::path(get, path = "/api/v1/sessions/{id}/context", operation_id = "sessions.context", tag = "sessions",
    params(("id" = SessionId, Path)), responses((status = 200, body = ContextOverview), Answers))]
async fn context(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<SessionId>,
) -> Result<Json<ContextOverview>, Rejection> {
    let (past, told) = {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let session = db::sessions::load(&mut tx, &id).await?.ok_or(Error::NotFound)?;
        db::contexts::overview(&mut tx, &session).await?
    };
    let made = tokio::task::spawn_blocking(move || ContextOverview::of(&past, told)).await;
    Ok(Json(made.map_err(|error| Error::Internal(format!("an overview of a context: {error}")))?))
}

/// The fields to change; absent fields keep their value.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(examples(json!({ "title": "The slow query, second part", "pinned": true })))]
pub struct ChangeSession {
    title: Option<String>,
    /// Pinned to the top of the list.
    pinned: Option<bool>,
    /// Archived.
    archived: Option<bool>,
    /// How the agent changes the plan: `apply` (at once) or `propose`.
    plan_policy: Option<Policy>,
    /// The same for `MEMORY.md`.
    memory_policy: Option<Policy>,
    /// The agent plans first and waits for an approval.
    approve_first: Option<bool>,
    /// From which share of what it may take it is compacted by itself: 30 to 70 percent, or 0 for never; null: as the team
    /// says.
    #[serde(default, deserialize_with = "named")]
    #[schema(value_type = Option<u64>, maximum = 70)]
    compact_at: Option<Option<u64>>,
}

/// A field that is there, be it null.
fn named<'de, D: Deserializer<'de>, T: Deserialize<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

/// Changes a session: renames, pins or archives it, or sets its policies.
#[utoipa::path(patch, path = "/api/v1/sessions/{id}", operation_id = "sessions.change", tag = "sessions", params(("id" = SessionId, Path)), request_body = ChangeSession,
    responses((status = 200, body = shapes::SessionResource), Answers))]
async fn change(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    JsonBody(change): JsonBody<ChangeSession>,
) -> Result<Json<shapes::SessionResource>, Rejection> {
    let (team, by) = (&caller.team.id, &caller.by);
    if let Some(title) = &change.title {
        actions::sessions::rename(&board, team, by, &id, title).await?;
    }
    let policies =
        PolicyChange { plan: change.plan_policy, memory: change.memory_policy, approve_first: change.approve_first };
    if policies != PolicyChange::default() {
        actions::sessions::set_policies(&board, team, by, &id, policies).await?;
    }
    if let Some(percent) = change.compact_at {
        actions::tasks::compact::set_percent(&board, team, by, &id, percent).await?;
    }
    match change.pinned {
        Some(true) => drop(actions::sessions::pin(&board, team, by, &id).await?),
        Some(false) => drop(actions::sessions::unpin(&board, team, by, &id).await?),
        None => {}
    }
    match change.archived {
        Some(true) => drop(actions::sessions::archive(&board, team, by, &id).await?),
        Some(false) => drop(actions::sessions::unarchive(&board, team, by, &id).await?),
        None => {}
    }
    read(State(board), AsViewer(caller.0), Id(id)).await
}

/// Deletes a session with its messages and tasks.
#[utoipa::path(delete, path = "/api/v1/sessions/{id}", operation_id = "sessions.delete", tag = "sessions", params(("id" = SessionId, Path)), responses(
    (status = 204), Answers))]
async fn delete(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
) -> Result<StatusCode, Rejection> {
    actions::sessions::delete(&board, &caller.team.id, &caller.by, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Which messages.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListMessagesQuery {
    /// Messages with a smaller seq; the newest when absent. `next` is the `before` of the page with older ones: a seq, or
    /// `{seq}.{part}` when the page began within a message.
    #[param(value_type = Option<String>)]
    before: Option<String>,
    #[param(value_type = Option<u32>, minimum = 1, maximum = 200)]
    limit: Option<String>,
}

/// Bytes of parts in a page of messages.
const MAX_MESSAGES_BYTES: u64 = 4 * 1024 * 1024;

/// A page of a session's messages, ascending by seq.
#[utoipa::path(get, path = "/api/v1/sessions/{id}/messages", operation_id = "messages.list", tag = "sessions", params(("id" = SessionId, Path), ListMessagesQuery),
    responses((status = 200, body = List<shapes::MessageResource>), Answers))]
async fn messages(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<SessionId>,
    StrictQuery(which): StrictQuery<ListMessagesQuery>,
) -> Result<Json<List<shapes::MessageResource>>, Rejection> {
    let limit = limit_of(which.limit.as_deref())?;
    let before = which.before.as_deref().map(message_end).transpose()?;
    let mut tx = board.db.reader_of(&caller.team.id).await?;
    db::sessions::load(&mut tx, &id).await?.ok_or(Error::NotFound)?;
    let found = db::messages::bounded::page(&mut tx, &id, before, u64::from(limit), MAX_MESSAGES_BYTES).await?;
    let omitted = Some(found.first_part).filter(|first| *first > 0);
    let oldest = found.messages.first().filter(|_| found.more).map(|oldest| oldest.seq);
    let next = oldest.map(|seq| omitted.map_or_else(|| seq.to_string(), |part| format!("{seq}.{part}")));
    let mut names = db::messages::author_names(&mut tx, &id, &found.messages).await?;
    let named = |message: Message| {
        let author_name = names.remove(&message.id);
        shapes::MessageResource { author_name, ..message.into() }
    };
    let mut items: Vec<shapes::MessageResource> = found.messages.into_iter().map(named).collect();
    if let Some(first) = items.first_mut() {
        first.omitted_parts = omitted;
    }
    Ok(Json(List { items, next }))
}

/// Where a page of messages ends: before a message, or before a part of one (`{seq}.{part}`).
fn message_end(text: &str) -> Result<(u64, Option<u64>), Error> {
    let number = |text| crate::web::api::page::number(text).ok_or_else(crate::web::api::page::bad_cursor);
    let (seq, part) = text.split_once('.').map_or((text, None), |(seq, part)| (seq, Some(part)));
    Ok((number(seq)?, part.map(number).transpose()?))
}
