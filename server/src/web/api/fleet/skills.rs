//! The team's library of skills, and the skills of its vibers.

mod diff;
mod rollouts;

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use protocol::{SkillId, ViberId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions::{
        skill_orders::{self, SkillChange},
        skills::{self, SkillDecision, SkillOnViber},
    },
    db,
    domain::{OrderState, SkillOrder, SkillReviewState},
    error::{Error, Result},
    state::Board,
    web::api::{
        Answers, PREFIX,
        json::{self, JsonBody, OptionalJsonBody},
        page::{Page, PageQuery},
        shapes::{
            EmptyBody, List,
            skill::{SkillOrderResource, SkillResource, ViberSkillsResource, WholeSkillResource},
        },
    },
    web::{
        AsAdmin, AsOperator, AsViewer, Rejection,
        extract::{Id, Ids},
        layers::bodies,
    },
};

/// Orders that are listed of a viber.
const MAX_LISTED_ORDERS: u64 = 50;

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(read, remove))
        .routes(routes!(review))
        .routes(routes!(file))
        .routes(routes!(diff::diff))
        .routes(routes!(of_viber, install))
        .routes(routes!(enable, uninstall))
        .routes(routes!(accept))
        .routes(routes!(restore))
        .routes(routes!(check))
        .routes(routes!(rollouts::list, rollouts::begin))
        .routes(routes!(rollouts::read))
        .routes(routes!(rollouts::stop))
}

/// Routes whose bodies may be as large as a skill.
pub fn uploads() -> OpenApiRouter<Board> {
    OpenApiRouter::new().routes(routes!(add))
}

/// The versions in the team's library, the newest first.
#[utoipa::path(get, path = "/api/v1/skills", operation_id = "skills.list", tag = "skills", params(PageQuery), responses(
    (status = 200, body = List<SkillResource>), Answers))]
async fn list(
    State(board): State<Board>,
    caller: AsViewer,
    page: Page,
) -> Result<Json<List<SkillResource>>, Rejection> {
    let after = page.after_id::<SkillId>("skills")?;
    let rows = db::skills::list(&mut board.db.reader_of(&caller.team.id).await?, after.as_ref(), page.fetch()).await?;
    Ok(Json(page.list("skills", rows, |skill| vec![skill.id.to_string()])))
}

/// A skill that is not sent: one that lies on a viber, or one that the registry has.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(examples(
    json!({ "viberId": "vib_0192d1c7a0f07a3cb1f0c6f8d1f1a2b3", "name": "git-commit" }),
    json!({ "source": "clawhub:release-notes@1.4.2" })
))]
pub struct NamedSource {
    /// The viber that has it, with `name`.
    viber_id: Option<ViberId>,
    name: Option<String>,
    /// Of several skills of this name on the viber the one with these files; absent: the one in use.
    digest: Option<String>,
    /// `clawhub:SLUG@VERSION`, or `clawhub:@OWNER/SLUG@VERSION` where several publishers have a skill of this name: of the
    /// registry that the Board's administrator named.
    source: Option<String>,
}

/// Adds a skill: a zip or tar.gz with its files as the body, one that lies on a viber, or one of the registry. It is stored by
/// the digest of its files; the same files under the same name are there once. A hostile archive is refused whole: 422
/// `bad_bundle`.
#[utoipa::path(post, path = "/api/v1/skills", operation_id = "skills.add", tag = "skills",
    request_body(content((NamedSource = "application/json"), (Vec<u8> = "application/zip"), (Vec<u8> = "application/gzip"))),
    responses((status = 201, body = WholeSkillResource,
        headers(("Location" = String, description = "URL of the new resource"))), Answers))]
async fn add(
    State(board): State<Board>,
    caller: AsAdmin,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Rejection> {
    let media = headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or("");
    let essence = media.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    let (team, by) = (&caller.team.id, &caller.by);
    let skill = match essence.as_str() {
        "application/json" => {
            let named: NamedSource = json::parse(&bodies::read(body, json::MAX_BODY_BYTES).await?)?;
            match (named.viber_id, named.name, named.source) {
                (Some(viber), Some(name), None) => {
                    let wanted = SkillOnViber { viber: &viber, name: &name, digest: named.digest.as_deref() };
                    skills::take(&board, team, by, wanted).await?
                }
                (None, None, Some(source)) if named.digest.is_none() => {
                    skills::fetch(&board, team, by, &source).await?
                }
                _ => {
                    let why = "name either a viber and a skill that it has, or a source";
                    return Err(Error::unacceptable("bad_source", why).into());
                }
            }
        }
        "application/zip"
        | "application/x-zip-compressed"
        | "application/gzip"
        | "application/x-gzip"
        | "application/x-tar"
        | "application/octet-stream" => {
            skills::upload(&board, team, by, skills::receive(&board, body.into_data_stream()).await?).await?
        }
        _ => return Err(Error::WrongMedia("application/zip, application/gzip or application/json").into()),
    };
    let place = format!("{PREFIX}/skills/{}", skill.id);
    let whole = whole(&board, &caller.0.team.id, &skill.id).await?;
    Ok((StatusCode::CREATED, [(header::LOCATION, place)], Json(whole)).into_response())
}

async fn whole(board: &Board, team: &protocol::TeamId, id: &SkillId) -> Result<WholeSkillResource> {
    let (skill, contents) = skills::with_contents(board, team, id).await?;
    Ok(WholeSkillResource { skill: skill.into(), contents })
}

/// One version: its files, what it declares, and what stands out in it.
#[utoipa::path(get, path = "/api/v1/skills/{id}", operation_id = "skills.read", tag = "skills", params(("id" = SkillId, Path)), responses(
    (status = 200, body = WholeSkillResource), Answers))]
async fn read(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<SkillId>,
) -> Result<Json<WholeSkillResource>, Rejection> {
    Ok(Json(whole(&board, &caller.team.id, &id).await?))
}

/// Deletes a version from the library. Vibers that have it keep it.
#[utoipa::path(delete, path = "/api/v1/skills/{id}", operation_id = "skills.delete", tag = "skills", params(("id" = SkillId, Path)), responses(
    (status = 204), Answers))]
async fn remove(State(board): State<Board>, caller: AsAdmin, Id(id): Id<SkillId>) -> Result<StatusCode, Rejection> {
    skills::delete(&board, &caller.team.id, &caller.by, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A decision about a version.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "decision": "approve", "digest": "the digest of the skill" })))]
pub struct ReviewSkill {
    decision: SkillVerdict,
    /// Of the files that were seen.
    digest: String,
    note: Option<String>,
}

/// Whether it may be installed.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SkillVerdict {
    Approve,
    Reject,
}

/// Approves or rejects the files with this digest. What a viber has already stays there.
#[utoipa::path(post, path = "/api/v1/skills/{id}/review", operation_id = "skills.review", tag = "skills", params(("id" = SkillId, Path)),
    request_body = ReviewSkill, responses((status = 200, body = SkillResource), Answers))]
async fn review(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<SkillId>,
    JsonBody(said): JsonBody<ReviewSkill>,
) -> Result<Json<SkillResource>, Rejection> {
    let state = match said.decision {
        SkillVerdict::Approve => SkillReviewState::Approved,
        SkillVerdict::Reject => SkillReviewState::Rejected,
    };
    let decision = SkillDecision { state, digest: said.digest, note: said.note.unwrap_or_default() };
    Ok(Json(skills::review(&board, &caller.team.id, &caller.by, &id, decision).await?.into()))
}

/// Which file.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its description is used")]
struct SkillFilePath {
    /// Path of a file of the skill: `scripts/collect.sh`. Its slashes need no escaping.
    #[param(min_length = 1, max_length = 1024)]
    path: String,
}

/// A skill of a viber by its name.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its description is used")]
struct NamedSkill {
    id: ViberId,
    #[param(min_length = 1, max_length = 200)]
    name: String,
}

/// One file of a version, as it is.
#[utoipa::path(get, path = "/api/v1/skills/{id}/files/{*path}", operation_id = "skills.file", tag = "skills",
    params(("id" = SkillId, Path), SkillFilePath),
    responses((status = 200, content_type = "application/octet-stream", description = "Its bytes"), Answers))]
async fn file(
    State(board): State<Board>,
    caller: AsViewer,
    Ids((id, path)): Ids<(SkillId, String)>,
) -> Result<Response, Rejection> {
    let (bytes, size) = skills::file(&board, &caller.team.id, &id, &path).await?;
    // Never shown by a browser: somebody else wrote it.
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox")),
        (header::CONTENT_LENGTH, HeaderValue::from(size)),
    ];
    Ok((headers, Body::from_stream(bytes)).into_response())
}

/// The skills of a viber as it reports them, and what was ordered of them.
#[utoipa::path(get, path = "/api/v1/vibers/{id}/skills", operation_id = "viberSkills.list", tag = "skills", params(("id" = ViberId, Path)),
    responses((status = 200, body = ViberSkillsResource), Answers))]
async fn of_viber(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ViberId>,
) -> Result<Json<ViberSkillsResource>, Rejection> {
    let mut tx = board.db.reader_of(&caller.team.id).await?;
    let viber = db::vibers::load(&mut tx, &id).await?.ok_or(Error::NotFound)?;
    let orders: Vec<SkillOrder> = db::orders::newest(&mut tx, &id, MAX_LISTED_ORDERS).await?;
    let orders = orders.into_iter().map(SkillOrderResource::from).collect();
    Ok(Json(ViberSkillsResource { items: viber.skills, orders }))
}

/// An approved version, and who it is offered to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(examples(json!({ "skillId": "skl_0192d1c7a0f07a3cb1f0c6f8d1f1a2b3", "digest": "the digest of the skill", "agents": ["default"] })))]
pub struct InstallSkill {
    skill_id: SkillId,
    digest: String,
    /// Ids of the viber's agents; absent: as before.
    agents: Option<Vec<String>>,
}

/// 200 with what the viber answered, 202 while it has not.
fn answer(order: SkillOrder) -> Response {
    let status = if order.state == OrderState::Queued { StatusCode::ACCEPTED } else { StatusCode::OK };
    (status, Json(SkillOrderResource::from(order))).into_response()
}

/// Installs an approved version on a viber, or puts it in the place of another one. Queued while the viber is away.
#[utoipa::path(post, path = "/api/v1/vibers/{id}/skills", operation_id = "viberSkills.install", tag = "skills", params(("id" = ViberId, Path)),
    request_body = InstallSkill, responses(
    (status = 200, body = SkillOrderResource, description = "The viber has answered"),
    (status = 202, body = SkillOrderResource, description = "The viber has not answered yet"), Answers))]
async fn install(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<ViberId>,
    JsonBody(said): JsonBody<InstallSkill>,
) -> Result<Response, Rejection> {
    let InstallSkill { skill_id: skill, digest, agents } = said;
    let change = SkillChange::Install { skill, digest, agents };
    Ok(answer(skill_orders::order(&board, &caller.team.id, &caller.by, &id, change).await?))
}

/// Who a skill is offered to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "agents": ["default"] })))]
pub struct EnableSkill {
    /// Ids of the viber's agents; the others are not offered it.
    agents: Vec<String>,
}

/// Offers a skill of a viber to these agents and no others.
#[utoipa::path(patch, path = "/api/v1/vibers/{id}/skills/{name}", operation_id = "viberSkills.enable", tag = "skills",
    params(NamedSkill), request_body = EnableSkill, responses(
    (status = 200, body = SkillOrderResource, description = "The viber has answered"),
    (status = 202, body = SkillOrderResource, description = "The viber has not answered yet"), Answers))]
async fn enable(
    State(board): State<Board>,
    caller: AsAdmin,
    Ids((id, name)): Ids<(ViberId, String)>,
    JsonBody(said): JsonBody<EnableSkill>,
) -> Result<Response, Rejection> {
    let change = SkillChange::Enable { name, agents: said.agents };
    Ok(answer(skill_orders::order(&board, &caller.team.id, &caller.by, &id, change).await?))
}

/// Removes a skill that was installed from the library.
#[utoipa::path(delete, path = "/api/v1/vibers/{id}/skills/{name}", operation_id = "viberSkills.remove", tag = "skills",
    params(NamedSkill), responses(
    (status = 200, body = SkillOrderResource, description = "The viber has answered"),
    (status = 202, body = SkillOrderResource, description = "The viber has not answered yet"), Answers))]
async fn uninstall(
    State(board): State<Board>,
    caller: AsAdmin,
    Ids((id, name)): Ids<(ViberId, String)>,
) -> Result<Response, Rejection> {
    let change = SkillChange::Remove { name };
    Ok(answer(skill_orders::order(&board, &caller.team.id, &caller.by, &id, change).await?))
}

/// The files that were seen.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "digest": "the digest of the skill" })))]
pub struct AcceptSkill {
    digest: String,
}

/// Lets a skill that lies in a space, or was changed since it was installed, be used with exactly these files.
#[utoipa::path(post, path = "/api/v1/vibers/{id}/skills/{name}/accept", operation_id = "viberSkills.accept", tag = "skills",
    params(NamedSkill), request_body = AcceptSkill, responses(
    (status = 200, body = SkillOrderResource, description = "The viber has answered"),
    (status = 202, body = SkillOrderResource, description = "The viber has not answered yet"), Answers))]
async fn accept(
    State(board): State<Board>,
    caller: AsAdmin,
    Ids((id, name)): Ids<(ViberId, String)>,
    JsonBody(said): JsonBody<AcceptSkill>,
) -> Result<Response, Rejection> {
    let change = SkillChange::Accept { name, digest: said.digest };
    Ok(answer(skill_orders::order(&board, &caller.team.id, &caller.by, &id, change).await?))
}

/// Puts the version back that was installed last, if the library still has it and it is approved.
#[utoipa::path(post, path = "/api/v1/vibers/{id}/skills/{name}/restore", operation_id = "viberSkills.restore", tag = "skills",
    params(NamedSkill), request_body(content = Option<EmptyBody>), responses(
    (status = 200, body = SkillOrderResource, description = "The viber has answered"),
    (status = 202, body = SkillOrderResource, description = "The viber has not answered yet"), Answers))]
async fn restore(
    State(board): State<Board>,
    caller: AsAdmin,
    Ids((id, name)): Ids<(ViberId, String)>,
    OptionalJsonBody(EmptyBody {}): OptionalJsonBody<EmptyBody>,
) -> Result<Response, Rejection> {
    let change = skill_orders::last_installed(&board, &caller.team.id, &id, &name).await?;
    Ok(answer(skill_orders::order(&board, &caller.team.id, &caller.by, &id, change).await?))
}

/// Has a viber look at its skills again: what they need of the machine may be there by now.
#[utoipa::path(post, path = "/api/v1/vibers/{id}/skills/{name}/check", operation_id = "viberSkills.check", tag = "skills",
    params(NamedSkill), request_body(content = Option<EmptyBody>),
    responses((status = 200, body = protocol::SkillInfo), Answers))]
async fn check(
    State(board): State<Board>,
    caller: AsOperator,
    Ids((id, name)): Ids<(ViberId, String)>,
    OptionalJsonBody(EmptyBody {}): OptionalJsonBody<EmptyBody>,
) -> Result<Json<protocol::SkillInfo>, Rejection> {
    let found = skills::check(&board, &caller.team.id, &id).await?;
    Ok(Json(found.into_iter().find(|skill| skill.name == name).ok_or(Error::NotFound)?))
}
