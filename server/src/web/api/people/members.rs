//! Members, invitations, API tokens and the audit of a team.

use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use protocol::{InvitationId, OperatorId, TokenId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions, db, domain,
    domain::Role,
    error::Error,
    state::Board,
    web::api::{
        Answers,
        json::JsonBody,
        page::{self, Page, PageQuery},
        shapes::{self, List},
    },
    web::{AsAdmin, AsViewer, Rejection, extract::Id, urls},
};

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new()
        .routes(routes!(members, add_member))
        .routes(routes!(change_member, remove_member))
        .routes(routes!(invitations, invite))
        .routes(routes!(withdraw))
        .routes(routes!(tokens, make_token))
        .routes(routes!(revoke_token))
        .routes(routes!(audit))
}

/// The team's members, in the order they joined.
#[utoipa::path(get, path = "/api/v1/members", operation_id = "members.list", tag = "team", params(PageQuery), responses(
    (status = 200, body = List<shapes::MemberResource>), Answers))]
async fn members(
    State(board): State<Board>,
    caller: AsViewer,
    page: Page,
) -> Result<Json<List<shapes::MemberResource>>, Rejection> {
    let all = db::members::list(&mut board.db.reader_of(&caller.team.id).await?).await?;
    let place = |member: &domain::Member| (member.since.0, member.operator.id.to_string());
    let after = page.after("members")?.map(|after| two(&after)).transpose()?;
    let rows = all.into_iter().filter(|member| after.as_ref().is_none_or(|after| place(member) > *after));
    let rows = rows.take(page.fetch() as usize).collect();
    Ok(Json(page.list("members", rows, |member| vec![place(member).0.to_string(), place(member).1])))
}

fn two(after: &[String]) -> Result<(i64, String), Error> {
    match after {
        [at, id] => Ok((at.parse().map_err(|_| page::bad_cursor())?, id.clone())),
        _ => Err(page::bad_cursor()),
    }
}

/// The person to invite, and the role they get.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "email": "ada@example.org", "role": "operator" })))]
pub struct AddMember {
    #[schema(min_length = 3, max_length = 254)]
    email: String,
    role: Role,
}

/// Who may accept the invitation, and the role they get.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "email": "grace@example.org", "role": "viewer" })))]
pub struct MakeInvitation {
    /// When empty, anyone with the link may accept it.
    #[serde(default)]
    #[schema(max_length = 254)]
    email: String,
    /// At most the role of the caller.
    role: Role,
}

/// An invitation with its link, shown once.
#[derive(Debug, Serialize, ToSchema)]
pub struct MadeInvitation {
    #[serde(flatten)]
    invitation: shapes::InvitationResource,
    /// Can be used once, within 7 days.
    link: String,
}

/// Invites a person to the team: they become a member by opening the link, whether or not they have an account.
#[utoipa::path(post, path = "/api/v1/members", operation_id = "members.add", tag = "team", request_body = AddMember, responses(
    (status = 201, body = MadeInvitation), Answers))]
async fn add_member(
    State(board): State<Board>,
    caller: AsAdmin,
    JsonBody(asked): JsonBody<AddMember>,
) -> Result<Response, Rejection> {
    if asked.email.trim().is_empty() {
        return Err(Error::unacceptable("bad_email", "email is required").into());
    }
    let AddMember { email, role } = asked;
    invite(State(board), caller, JsonBody(MakeInvitation { email, role })).await
}

/// The fields to change; absent fields keep their value.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "role": "operator" })))]
pub struct ChangeMember {
    role: Option<Role>,
}

/// Changes a member's role.
#[utoipa::path(patch, path = "/api/v1/members/{id}", operation_id = "members.change", tag = "team", params(("id" = OperatorId, Path)),
    request_body = ChangeMember, responses((status = 200, body = shapes::MemberResource), Answers))]
async fn change_member(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<OperatorId>,
    JsonBody(change): JsonBody<ChangeMember>,
) -> Result<Json<shapes::MemberResource>, Rejection> {
    let team = &caller.team.id;
    if let Some(role) = change.role {
        actions::members::set_role(&board, team, caller.maker(), &id, role).await?;
    }
    let found = db::members::load(&mut board.db.reader_of(team).await?, &id).await?;
    Ok(Json(found.ok_or(Error::NotFound)?.into()))
}

/// Removes a member from the team.
#[utoipa::path(delete, path = "/api/v1/members/{id}", operation_id = "members.remove", tag = "team", params(("id" = OperatorId, Path)), responses(
    (status = 204), Answers))]
async fn remove_member(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<OperatorId>,
) -> Result<StatusCode, Rejection> {
    actions::members::remove(&board, &caller.team.id, caller.maker(), &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The team's invitations, the newest first.
#[utoipa::path(get, path = "/api/v1/invitations", operation_id = "invitations.list", tag = "team", params(PageQuery), responses(
    (status = 200, body = List<shapes::InvitationResource>), Answers))]
async fn invitations(
    State(board): State<Board>,
    caller: AsAdmin,
    page: Page,
) -> Result<Json<List<shapes::InvitationResource>>, Rejection> {
    let after = page.after_id::<InvitationId>("invitations")?;
    let mut all = db::invitations::list(&mut board.db.reader_of(&caller.team.id).await?).await?;
    all.sort_by(|a, b| b.id.cmp(&a.id));
    let rows = all.into_iter().filter(|one| after.as_ref().is_none_or(|after| one.id < *after));
    let rows = rows.take(page.fetch() as usize).collect();
    Ok(Json(page.list("invitations", rows, |one| vec![one.id.to_string()])))
}

/// Creates an invitation.
#[utoipa::path(post, path = "/api/v1/invitations", operation_id = "invitations.make", tag = "team", request_body = MakeInvitation, responses(
    (status = 201, body = MadeInvitation), Answers))]
async fn invite(
    State(board): State<Board>,
    caller: AsAdmin,
    JsonBody(asked): JsonBody<MakeInvitation>,
) -> Result<Response, Rejection> {
    let (team, maker) = (&caller.team.id, caller.maker());
    let (secret, invitation) = actions::invitations::invite(&board, team, maker, &asked.email, asked.role).await?;
    let link = format!("{}{}", board.config.base_url(), urls::invitation(secret.reveal()));
    let made = MadeInvitation { invitation: invitation.into(), link };
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], Json(made)).into_response())
}

/// Withdraws an invitation.
#[utoipa::path(delete, path = "/api/v1/invitations/{id}", operation_id = "invitations.withdraw", tag = "team", params(("id" = InvitationId, Path)), responses(
    (status = 204), Answers))]
async fn withdraw(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<InvitationId>,
) -> Result<StatusCode, Rejection> {
    actions::invitations::revoke(&board, &caller.team.id, &caller.by, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The team's valid API tokens, the newest first.
#[utoipa::path(get, path = "/api/v1/tokens", operation_id = "tokens.list", tag = "team", params(PageQuery), responses(
    (status = 200, body = List<shapes::TokenResource>), Answers))]
async fn tokens(
    State(board): State<Board>,
    caller: AsAdmin,
    page: Page,
) -> Result<Json<List<shapes::TokenResource>>, Rejection> {
    let after = page.after_id::<TokenId>("tokens")?;
    let mut all = db::tokens::list(&mut board.db.reader_of(&caller.team.id).await?).await?;
    all.sort_by(|a, b| b.id.cmp(&a.id));
    let rows = all.into_iter().filter(|one| after.as_ref().is_none_or(|after| one.id < *after));
    let rows = rows.take(page.fetch() as usize).collect();
    Ok(Json(page.list("tokens", rows, |one| vec![one.id.to_string()])))
}

/// An API token to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "name": "nightly build", "role": "operator" })))]
pub struct MakeToken {
    /// 1 to 80 characters on one line.
    #[schema(min_length = 1)]
    name: String,
    /// At most the role of the caller.
    role: Role,
}

/// A token with its secret, shown once.
#[derive(Debug, Serialize, ToSchema)]
pub struct MadeToken {
    #[serde(flatten)]
    about: shapes::TokenResource,
    /// The value for `Authorization: Bearer`.
    #[schema(pattern = "^vbt_")]
    token: String,
}

/// Creates an API token.
#[utoipa::path(post, path = "/api/v1/tokens", operation_id = "tokens.make", tag = "team", request_body = MakeToken, responses(
    (status = 201, body = MadeToken), Answers))]
async fn make_token(
    State(board): State<Board>,
    caller: AsAdmin,
    JsonBody(asked): JsonBody<MakeToken>,
) -> Result<Response, Rejection> {
    let (team, maker) = (&caller.team.id, caller.maker());
    let (secret, token) = actions::tokens::create(&board, team, maker, &asked.name, asked.role).await?;
    let made = MadeToken { about: token.into(), token: secret.reveal().to_owned() };
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], Json(made)).into_response())
}

/// Revokes an API token: its calls are refused at once, its streams end within 5 s.
#[utoipa::path(delete, path = "/api/v1/tokens/{id}", operation_id = "tokens.revoke", tag = "team", params(("id" = TokenId, Path)), responses(
    (status = 204), Answers))]
async fn revoke_token(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<TokenId>,
) -> Result<StatusCode, Rejection> {
    actions::tokens::revoke(&board, &caller.team.id, &caller.by, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The team's audit, newest first. Each row's hash covers the row before it.
#[utoipa::path(get, path = "/api/v1/audit", operation_id = "audit.list", tag = "team", params(PageQuery), responses(
    (status = 200, body = List<shapes::AuditEntry>), Answers))]
async fn audit(
    State(board): State<Board>,
    caller: AsAdmin,
    page: Page,
) -> Result<Json<List<shapes::AuditEntry>>, Rejection> {
    let before = page.after_id::<u64>("audit")?;
    let rows = actions::audit::page(&board, &caller.team.id, before, page.fetch()).await?;
    Ok(Json(page.list("audit", rows, |entry| vec![entry.seq.to_string()])))
}
