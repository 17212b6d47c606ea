//! The daemons' endpoints: enrolment, the WebSocket, and payloads that are too large for it.
//!
//! Authenticates and hands over to `link`. A credential counts only in the `Authorization` header.

pub mod install;
use std::collections::BTreeMap;

use axum::{
    Json, Router,
    extract::{FromRequestParts, Query, State, WebSocketUpgrade},
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
    routing::{delete, get, post},
};
use protocol::{
    EditId, RunId, TaskId, TeamId, ViberId,
    limits::{MAX_FRAME_BYTES, SUBPROTOCOL},
};
use serde::{Deserialize, Serialize};

use super::{
    Rejection,
    api::{json, named_call},
    extract::{self, Id, Ids, identity::bearer, refused_upgrades},
    layers::bodies::WholeBody,
    urls,
};
use crate::{
    actions::{self, enrol, playbooks::SentPlaybook},
    db,
    domain::{Actor, By},
    error::Error,
    link::{self, AuthenticatedViber},
    secret,
    state::Board,
};

/// Bytes read from a daemon's socket at a time, and kept for it: of a connection at rest this is the largest part. A frame
/// of most kinds fits; a larger one, of which few come in a second, takes more reads.
const READ_BUFFER_BYTES: usize = 1024;
/// Frames are written at once: nothing is buffered.
const WRITE_BUFFER_BYTES: usize = 0;
/// Bytes that one frame may leave unwritten in the library; our own queue is bounded before it.
const MAX_WRITE_BUFFER_BYTES: usize = 2 * 1024 * 1024;

/// Where runs of playbooks are started.
const PLAYBOOK_RUNS: &str = "/api/daemon/playbook-runs";

/// Its routes.
pub fn routes() -> Router<Board> {
    Router::new()
        .route("/ws/daemon", get(socket))
        .route("/api/daemon/join", post(join))
        .route("/api/daemon/enrolment", delete(leave))
        .route("/api/daemon/tasks/{id}/{attempt}", get(payload))
        .route("/api/daemon/edits/{id}", get(edit))
        .route("/api/daemon/skills/{digest}", get(skill))
        .route("/api/daemon/mesh", get(mesh))
        .route(PLAYBOOK_RUNS, post(start_run))
}

/// The viber whose credential a request carries.
#[derive(Clone, Debug)]
pub struct ViberAuth {
    pub team: TeamId,
    pub viber: ViberId,
    pub name: String,
    pub address: String,
}

impl ViberAuth {
    fn by(&self) -> By {
        let actor = Actor::Viber { id: self.viber.clone(), name: self.name.clone() };
        By { actor, address: self.address.clone() }
    }
}

impl FromRequestParts<Board> for ViberAuth {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, board: &Board) -> Result<Self, Rejection> {
        let credential = bearer(&parts.headers).ok().flatten().ok_or(Rejection(Error::Unauthenticated))?;
        let hash = secret::hash(credential);
        let found = db::vibers::by_credential(&mut *board.db.reader().await?, &hash).await?;
        let (team, viber, name) = found.ok_or(Rejection(Error::Unauthenticated))?;
        Ok(Self { team, viber, name, address: extract::address(parts) })
    }
}

/// Refuses browsers: they always send `Origin`, and nothing else protects an upgrade against other sites.
struct NoBrowser;

impl FromRequestParts<Board> for NoBrowser {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, board: &Board) -> Result<Self, Rejection> {
        if parts.headers.contains_key(header::ORIGIN) {
            refused_upgrades::note(board, &parts.headers, parts.uri.path(), &extract::address(parts)).await;
            return Err(Rejection(Error::CsrfFailed));
        }
        Ok(Self)
    }
}

async fn socket(
    _: NoBrowser,
    viber: ViberAuth,
    State(board): State<Board>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    if board.shutdown.soft.is_cancelled() {
        return Rejection(Error::Unavailable { what: "the Board", retry_after: 2 }).into_response();
    }
    let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|line| line.to_str().ok());
    if !offered.flat_map(|line| line.split(',')).any(|name| name.trim() == SUBPROTOCOL) {
        let message = format!("Sec-WebSocket-Protocol has to offer {SUBPROTOCOL}");
        return Rejection(Error::Malformed(message)).into_response();
    }
    let peer = AuthenticatedViber { team: viber.team, viber: viber.viber, name: viber.name, address: viber.address };
    upgrade
        .protocols([SUBPROTOCOL])
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_write_buffer_size(MAX_WRITE_BUFFER_BYTES)
        .max_message_size(MAX_FRAME_BYTES)
        .max_frame_size(MAX_FRAME_BYTES)
        .on_upgrade(async move |socket| {
            let talk = link::serve(board.clone(), socket, peer);
            board.shutdown.spawn(talk);
        })
}

#[derive(Deserialize)]
struct Join {
    token: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    hostname: String,
    #[serde(default)]
    platform: String,
    #[serde(default)]
    version: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Joined {
    viber_id: ViberId,
    credential: String,
    team: String,
    board_url: String,
}

async fn join(
    State(board): State<Board>,
    address: PeerAddress,
    headers: HeaderMap,
    WholeBody(body): WholeBody,
) -> Result<Response, Rejection> {
    check_json(&headers)?;
    let join: Join = json::parse(&body)?;
    let limits = &board.guard.login_limits;
    let charged = limits.join(&address.0, board.clock.monotonic());
    let charged = charged.map_err(|retry_after| Rejection(Error::Throttled { retry_after }))?;
    let joining = enrol::JoinRequest {
        token: join.token,
        name: join.name,
        labels: join.labels,
        hostname: join.hostname,
        platform: join.platform,
        version: join.version,
    };
    let joined = enrol::join(&board, joining, &address.0).await.map_err(Rejection)?;
    limits.refund(charged);
    let board_url = board.config.public_url.clone().unwrap_or_else(|| here(&board, &headers));
    let answer = Joined {
        viber_id: joined.viber,
        credential: joined.credential.reveal().to_owned(),
        team: joined.team,
        board_url,
    };
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}

fn check_json(headers: &HeaderMap) -> Result<(), Rejection> {
    let media = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let essence = media.and_then(|kind| kind.split(';').next()).map(str::trim);
    if essence == Some("application/json") { Ok(()) } else { Err(Rejection(Error::WrongMedia("application/json"))) }
}

/// The agents beyond a viber that its own may call: each `place` is the name of a viber, or `label=value`.
async fn mesh(
    viber: ViberAuth,
    State(board): State<Board>,
    Query(asked): Query<Vec<(String, String)>>,
) -> Result<Response, Rejection> {
    let places: Vec<String> = asked.into_iter().filter(|(key, _)| key == "place").map(|(_, place)| place).collect();
    let listed = actions::mesh_settings::directory(&board, &viber.team, &places).await.map_err(Rejection)?;
    Ok(Json(listed).into_response())
}

/// A viber ends its own enrolment; its credential is of no use from then on.
async fn leave(viber: ViberAuth, State(board): State<Board>) -> Result<StatusCode, Rejection> {
    actions::ending::revoke_viber(&board, &viber.team, &viber.by(), &viber.viber).await.map_err(Rejection)?;
    Ok(StatusCode::NO_CONTENT)
}

/// The address that the machine used, when the Board was not told its own. The host was checked on the way in.
fn here(board: &Board, headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let listen = board.config.listen.to_string();
    let scheme = if board.config.tls.is_some() { "https" } else { "http" };
    format!("{scheme}://{}", host.unwrap_or(&listen))
}

/// The address a request comes from.
struct PeerAddress(String);

impl FromRequestParts<Board> for PeerAddress {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, _: &Board) -> Result<Self, Rejection> {
        Ok(Self(extract::address(parts)))
    }
}

async fn payload(
    viber: ViberAuth,
    State(board): State<Board>,
    Ids((id, attempt)): Ids<(TaskId, u32)>,
) -> Result<Response, Rejection> {
    let whole = link::payload(&board, &viber.team, &viber.viber, &id, attempt).await.map_err(Rejection)?;
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let body = serde_json::to_vec(&whole).map_err(|error| Rejection(Error::Internal(error.to_string())))?;
    Ok((kind, body).into_response())
}

/// A playbook that somebody on the machine starts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StartSentRun {
    playbook: String,
    text: String,
    #[serde(default)]
    inputs: BTreeMap<String, String>,
    supervised: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StartedRun {
    run_id: RunId,
    /// Below the Board's address, unless it knows that.
    url: String,
}

/// Starts a run of a playbook of the machine, on this machine alone; once for an `Idempotency-Key`.
async fn start_run(
    viber: ViberAuth,
    State(board): State<Board>,
    headers: HeaderMap,
    WholeBody(body): WholeBody,
) -> Result<Response, Rejection> {
    check_json(&headers)?;
    let once = named_call(&headers, PLAYBOOK_RUNS, &body)?;
    let StartSentRun { playbook, text, inputs, supervised } = json::parse(&body)?;
    let sent = SentPlaybook { playbook, text, inputs, supervised, once };
    let run = actions::playbooks::start_sent(&board, &viber.team, &viber.by(), &viber.viber, sent).await?;
    let team = db::teams::load(&mut *board.db.reader().await?, &viber.team).await?.ok_or(Error::NotFound)?;
    let page = urls::playbook_run(&team.slug, &run.id);
    let url = format!("{}{page}", board.config.public_url.as_deref().unwrap_or_default().trim_end_matches('/'));
    Ok((StatusCode::CREATED, Json(StartedRun { run_id: run.id, url })).into_response())
}

/// The text of a change that was too large for a frame.
async fn edit(viber: ViberAuth, State(board): State<Board>, Id(id): Id<EditId>) -> Result<Response, Rejection> {
    let found = db::edits::load(&mut board.db.reader_of(&viber.team).await?, &id).await?;
    let found = found.filter(|edit| edit.viber_id == viber.viber);
    let text = found.and_then(|edit| edit.content).ok_or(Error::NotFound)?;
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))];
    Ok((kind, text).into_response())
}

/// The files of a skill that a viber is to install: those that somebody of its team approved.
async fn skill(
    viber: ViberAuth,
    State(board): State<Board>,
    path: axum::extract::RawPathParams,
) -> Result<Response, Rejection> {
    let digest = path.iter().find(|(name, _)| *name == "digest").map(|(_, digest)| digest.to_owned());
    let digest = digest.ok_or(Error::NotFound)?;
    let (bytes, size) = actions::skills::approved_archive(&board, &viber.team, &digest).await?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar")),
        (header::CONTENT_LENGTH, HeaderValue::from(size)),
    ];
    Ok((headers, axum::body::Body::from_stream(bytes)).into_response())
}
