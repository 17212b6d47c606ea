//! The JSON API, `/api/v1`: thin handlers over the same actions that the pages use, and the OpenAPI made from them. Beside
//! it, behind the same gate, the Board as an MCP server.

mod documents;
mod fleet;
mod people;
mod work;

use documents::{artifacts, memory, plan, proposals, versions};
pub(super) use documents::{spaces, workspace};
use fleet::{agents, mcp_servers, skills, vibers};
use people::{members, mesh, prices, quota};
pub(super) use work::bus;
use work::{approvals, compaction, events, imports, messages, pins, playbooks, search, sessions, tasks};

mod description;
mod gate;
pub(super) mod json;
mod mcp;
mod page;
mod query;
mod refusals;
pub mod shapes;

pub(super) use gate::named_call;

use std::sync::Arc;

use axum::{Router, middleware::from_fn_with_state};
use utoipa::{
    Modify, OpenApi,
    openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme},
};
use utoipa_axum::router::OpenApiRouter;

use crate::{domain, error::Error, state::Board, web::layers::api_limits::ApiLimits};

/// Where the API lives.
pub const PREFIX: &str = "/api/v1";
/// The calls whose stored responses are written in the transactions of their changes, as those are of what is said to tasks.
const SUBMIT_PATHS: [&str; 2] = ["/api/v1/tasks", "/api/v1/playbook-runs"];

/// The API's routes behind their gate with the public description, and the routes whose bodies may be large.
pub fn routes(board: &Board, limits: Arc<ApiLimits>) -> (Router<Board>, Router<Board>) {
    let gate = gate::Gate::new(board, limits);
    let gated = |calls: Router<Board>| calls.route_layer(from_fn_with_state(gate.clone(), gate::pass));
    // Each part's description is dropped before the next one is made: together they take 7 MiB, which hardly anybody reads.
    let calls = CALLS.iter().fold(mcp::routes(), |all, calls| all.merge(calls().split_for_parts().0));
    let open = description::routes().split_for_parts().0;
    let uploads = artifacts::uploads().split_for_parts().0.merge(skills::uploads().split_for_parts().0);
    (gated(calls).merge(open), gated(uploads))
}

/// An id in a body that the team does not have is answered with 404, like an unknown address. Only pages say which
/// field it was.
fn foreign(error: Error) -> Error {
    match error {
        Error::Unacceptable { code: "viber_not_found", .. } => Error::NotFound,
        other => other,
    }
}

/// The calls behind the gate. Whole paths, not nested ones: extractors tell an API call by its path.
const CALLS: [fn() -> OpenApiRouter<Board>; 24] = [
    vibers::routes,
    agents::routes,
    bus::routes,
    skills::routes,
    mcp_servers::routes,
    workspace::routes,
    spaces::routes,
    messages::routes,
    pins::routes,
    compaction::routes,
    sessions::routes,
    search::routes,
    tasks::routes,
    playbooks::routes,
    members::routes,
    quota::routes,
    prices::routes,
    mesh::routes,
    approvals::routes,
    artifacts::routes,
    plan::routes,
    proposals::routes,
    memory::routes,
    imports::routes,
];

/// Everything that the router has, as utoipa collects it from the handlers.
fn collected() -> utoipa::openapi::OpenApi {
    let others: [fn() -> OpenApiRouter<Board>; 3] = [artifacts::uploads, skills::uploads, description::routes];
    let all = CALLS.iter().chain(&others);
    all.fold(OpenApiRouter::with_openapi(Description::openapi()), |all, calls| all.merge(calls())).into_openapi()
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Viber Board",
        description = "Give work to vibers, watch it, step in. Lists answer `{items, next}`; errors are RFC 9457 with a \
                       stable `code`. An answer that is not described here is a fault of the Board.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    security(("token" = []), ("cookie" = [], "team" = [])),
    components(schemas(
        shapes::Problem, shapes::VersionProblem,
        protocol::ApprovalId, protocol::ArtifactId, protocol::InvitationId, protocol::OperatorId, protocol::ProposalId,
        protocol::RolloutId, protocol::RunId, protocol::SessionId, protocol::SkillId, protocol::TaskId,
        protocol::TokenId, protocol::ViberId, protocol::Instant,
        domain::ApprovalState, domain::ProposalState, domain::SessionState, domain::TaskState,
    )),
    modifiers(&Credentials)
)]
struct Description;

/// How a caller says who it is.
struct Credentials;

impl Modify for Credentials {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let components = openapi.components.get_or_insert_default();
        let token = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .bearer_format("vbt_…")
            .description(Some("An API token: one team, one role"));
        components.add_security_scheme("token", SecurityScheme::Http(token.build()));
        let cookie = ApiKeyValue::with_description("__Host-vb", "An operator's sign-in");
        components.add_security_scheme("cookie", SecurityScheme::ApiKey(ApiKey::Cookie(cookie)));
        let team = ApiKeyValue::with_description("X-Team", "The team's slug; required with the cookie");
        components.add_security_scheme("team", SecurityScheme::ApiKey(ApiKey::Header(team)));
    }
}

/// What every call may answer instead.
#[derive(utoipa::IntoResponses)]
#[expect(dead_code, reason = "only its description is used")]
enum Answers {
    /// Malformed
    #[response(status = 400, content_type = "application/problem+json")]
    Malformed(#[to_schema] shapes::Problem),
    /// Not signed in
    #[response(status = 401, content_type = "application/problem+json")]
    Unauthenticated(#[to_schema] shapes::Problem),
    /// The role is too low
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(#[to_schema] shapes::Problem),
    /// It does not exist, or belongs to another team
    #[response(status = 404, content_type = "application/problem+json")]
    NotFound(#[to_schema] shapes::Problem),
    /// The current state does not allow it
    #[response(status = 409, content_type = "application/problem+json")]
    Conflict(#[to_schema] shapes::Problem),
    /// Understood, but not acceptable
    #[response(status = 422, content_type = "application/problem+json")]
    Unacceptable(#[to_schema] shapes::Problem),
    /// Too many requests; `Retry-After` says when to retry
    #[response(status = 429, content_type = "application/problem+json")]
    Throttled(#[to_schema] shapes::Problem),
    /// A dependency is down; `Retry-After` says when to retry
    #[response(status = 503, content_type = "application/problem+json")]
    Unavailable(#[to_schema] shapes::Problem),
}
