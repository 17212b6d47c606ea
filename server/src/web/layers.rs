//! What every request passes on its way in and out, from the outside: its number, the log line, safety headers, the
//! form of refusals, panics, the host, the origin, the address, limits, a renewed cookie.

pub mod api_limits;
pub mod bodies;
mod client;
mod compression;
pub mod limits;
mod origin;

use std::{
    any::Any,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use axum::{
    Router,
    extract::{ConnectInfo, MatchedPath, Request, State},
    http::{HeaderName, HeaderValue, Method, StatusCode, Version, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use tower_http::{catch_panic::CatchPanicLayer, csrf::CsrfLayer, limit::RequestBodyLimitLayer};
use tracing::Instrument;

use self::client::UntrustedProxies;
use super::{cookie::Cookie, extract::refused_upgrades, respond, socket};
use crate::{error::Error, measure::METRICS, state::Board};

/// No script, style, frame or connection but our own; `manifest` and fonts are not used.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The number of a request: in its log lines, in its refusals, in `x-request-id`.
#[derive(Clone, Debug)]
pub struct RequestId(pub String);

/// The address of a request's sender: the peer's, or the one that a trusted proxy names.
#[derive(Clone, Debug, Default)]
pub struct ClientAddress(pub String);

/// Where an extractor leaves the cookie that renews a login.
#[derive(Clone, Debug, Default)]
pub struct Renewal(Arc<Mutex<Option<HeaderValue>>>);

impl Renewal {
    /// The answer will carry this cookie.
    pub fn set(&self, cookie: HeaderValue) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(cookie);
    }
}

/// Wraps the routes in all layers; routes with `large` bodies limit them themselves. A request meets the last layer
/// first.
pub fn around(routes: Router<Board>, large: Router<Board>, board: &Board) -> Router<Board> {
    let mut own_pages = CsrfLayer::new();
    for origin in board.config.origins() {
        own_pages = own_pages.add_trusted_origin(&origin).expect("the configuration was checked");
    }
    routes
        .layer(middleware::from_fn(bodies::forms))
        .layer(middleware::from_fn(limits::require_progress))
        .layer(RequestBodyLimitLayer::new(limits::MAX_BODY_BYTES))
        .layer(middleware::from_fn(limits::discard_oversized))
        .merge(large.layer(middleware::from_fn(limits::require_progress)))
        .layer(own_pages.with_rejection_response(|_| respond::Rejection(Error::CsrfFailed).into_response()))
        .layer(middleware::from_fn_with_state((board.clone(), Arc::default()), guard))
        .layer(middleware::from_fn_with_state(board.clone(), carry_out))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(board.clone(), respond::render))
        .layer(compression::layer())
        .layer(middleware::from_fn(compression::own_site_only))
        .layer(middleware::from_fn(safety_headers))
        .layer(middleware::from_fn(number))
        .layer(middleware::from_fn(close_after))
}

/// Host, origin, address, renewal.
async fn guard(
    State((board, untrusted)): State<(Board, Arc<UntrustedProxies>)>,
    mut request: Request,
    next: Next,
) -> Response {
    let config = &board.config;
    // A small compressed body may unpack to a large one: no body is decompressed.
    let packed = |coding: &HeaderValue| !coding.as_bytes().eq_ignore_ascii_case(b"identity");
    if request.headers().get_all(header::CONTENT_ENCODING).iter().any(packed) {
        return respond::Rejection(Error::WrongMedia("bodies without a Content-Encoding")).into_response();
    }
    // Probes use any host name or address; they learn only that the Board is up.
    let probe = is_probe(request.uri().path());
    if !probe && let Err(bad) = origin::check_host(request.uri(), request.headers(), &config.hosts()) {
        return match bad {
            origin::BadHost::Malformed => StatusCode::BAD_REQUEST,
            origin::BadHost::Foreign => StatusCode::MISDIRECTED_REQUEST,
        }
        .into_response();
    }
    if !probe && board.shutdown.soft.is_cancelled() {
        // A connection that was open before may still ask: the next Board will answer.
        return respond::Rejection(Error::Unavailable { what: "the Board", retry_after: 2 }).into_response();
    }
    let asked = origin::Request {
        method: request.method(),
        headers: request.headers(),
        cookie: Cookie::Login.is_in(request.headers(), config),
        bearer: origin::is_call(request.uri(), request.headers()),
    };
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip());
    let address = peer.map_or_else(String::new, |peer| {
        let reloadable = board.reloadable.load();
        untrusted.note(peer, request.headers(), &reloadable);
        client::address(peer, request.headers(), &reloadable).to_string()
    });
    if origin::is_foreign(asked, &config.origins()) {
        tracing::warn!(client.address = address, "refused a request that another site may have caused");
        if request.headers().contains_key(header::UPGRADE) {
            let route = request.extensions().get::<MatchedPath>().map_or("-", MatchedPath::as_str).to_owned();
            refused_upgrades::note(&board, request.headers(), &route, &address).await;
        }
        return respond::Rejection(Error::CsrfFailed).into_response();
    }
    let renewal = Renewal::default();
    request.extensions_mut().insert(ClientAddress(address));
    request.extensions_mut().insert(renewal.clone());
    crate::fault::at("web::handler");
    let mut response = next.run(request).await;
    let renewed = renewal.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(cookie) = renewed
        && !response.headers().contains_key(header::SET_COOKIE)
    {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// Carries out to its end what may change something, also when whoever asked for it is gone meanwhile: the change is made all
/// the same, and others are to hear of it.
async fn carry_out(State(board): State<Board>, request: Request, next: Next) -> Response {
    if request.method().is_safe() {
        return next.run(request).await;
    }
    let hard = board.shutdown.hard.clone();
    let work = async move { hard.run_until_cancelled(next.run(request)).await };
    match board.shutdown.tracker.spawn(work.in_current_span()).await {
        Ok(Some(response)) => response,
        Ok(None) => respond::Rejection(Error::Unavailable { what: "the Board", retry_after: 2 }).into_response(),
        Err(error) => panicked(Box::new(error)),
    }
}

/// Whether somebody only asks whether the Board is up.
fn is_probe(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

/// Closes the connection after a request whose end [`socket`] cannot determine, because what follows would pass
/// unchecked, after one that was malformed or meant for another host, because what follows probably is too, and
/// after one whose body was too large: its rest stays unread, so a next request could not be told from it.
async fn close_after(request: Request, next: Next) -> Response {
    let opaque = request.headers().keys().any(|name| socket::is_last(name.as_str().as_bytes()));
    let version = request.version();
    let mut response = next.run(request).await;
    let over = match response.status() {
        StatusCode::SWITCHING_PROTOCOLS => false,
        StatusCode::BAD_REQUEST | StatusCode::MISDIRECTED_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => true,
        _ => opaque,
    };
    // HTTP/2 delimits requests itself and has no such header.
    if over && version <= Version::HTTP_11 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn panicked(_: Box<dyn Any + Send>) -> Response {
    // The panic hook has logged what and where; the answer tells neither.
    respond::Rejection(Error::Internal("a handler panicked".into())).into_response()
}

async fn safety_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let mut put = |name: HeaderName, value: &'static str| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    put(header::CONTENT_SECURITY_POLICY, PAGE_POLICY);
    put(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    // Not `no-referrer`: browsers would then send `Origin: null` with our own forms.
    put(header::REFERRER_POLICY, "same-origin");
    put(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    put(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    put(HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()");
    put(header::CACHE_CONTROL, "no-store");
    response
}

/// Numbers a request and writes its one log line. Addresses are logged as routes: some carry secrets.
async fn number(mut request: Request, next: Next) -> Response {
    let id = uuid::Uuid::now_v7().simple().to_string();
    let method: Method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or("-", MatchedPath::as_str).to_owned();
    let is_probe = is_probe(request.uri().path());
    request.extensions_mut().insert(RequestId(id.clone()));
    let span = tracing::info_span!("request", request.id = %id, %method, route = %route);
    let label = known(&method);
    let began = Instant::now();
    async move {
        let mut response = next.run(request).await;
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        // Probes come every few seconds: they would bury everything else.
        if is_probe && response.status().is_success() {
            tracing::debug!(status = response.status().as_u16(), duration_ms, "answered");
        } else {
            tracing::info!(status = response.status().as_u16(), duration_ms, "answered");
        }
        METRICS.requests.with_label_values(&[label, &route, response.status().as_str()]).inc();
        METRICS.request_seconds.with_label_values(&[label, &route]).observe(began.elapsed().as_secs_f64());
        let value = HeaderValue::from_str(&id).expect("hexadecimal digits");
        response.headers_mut().insert("x-request-id", value);
        response
    }
    .instrument(span)
    .await
}

/// A method as a metric's label: clients can invent methods, and every label costs memory.
fn known(method: &Method) -> &'static str {
    let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    known.into_iter().find(|name| method.as_str() == *name).unwrap_or("other")
}
