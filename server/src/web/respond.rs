//! Error responses: a page, a fragment or problem+json, depending on the caller.
//!
//! A handler answers `Rejection`; the outermost layer, which knows the request, gives it its form. What axum itself
//! refuses (unknown paths, methods, bodies) gets the same forms.

pub(in crate::web) mod blobs;
pub(in crate::web) mod content;
pub mod stream;
use std::sync::Arc;

use askama::Template;
use axum::{
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    middleware::Next,
    response::{Html, IntoResponse, Response},
};

use super::{
    extract::Admitted,
    layers::RequestId,
    urls,
    view::{PageLocation, Shell, filters, markdown},
};
use crate::{error::Error, state::Board};

/// A handler's refusal: `?` turns errors into it.
#[derive(Debug)]
pub struct Rejection(pub Error);

impl<E: Into<Error>> From<E> for Rejection {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

/// Carries the error from the handler to the layer.
#[derive(Clone, Debug)]
struct Refused(Arc<Error>);

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let status = status(&self.0);
        (status, axum::Extension(Refused(Arc::new(self.0)))).into_response()
    }
}

/// The status of an error.
pub fn status(error: &Error) -> StatusCode {
    match error {
        Error::NotFound => StatusCode::NOT_FOUND,
        Error::Unauthenticated => StatusCode::UNAUTHORIZED,
        Error::Forbidden(_) | Error::CsrfFailed | Error::QuotaExceeded { .. } => StatusCode::FORBIDDEN,
        Error::Malformed(_) => StatusCode::BAD_REQUEST,
        Error::Unacceptable { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        Error::Conflict { .. } => StatusCode::CONFLICT,
        Error::Gone(_) => StatusCode::GONE,
        Error::BadRange { .. } => StatusCode::RANGE_NOT_SATISFIABLE,
        Error::WrongMedia(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Error::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        Error::Throttled { .. } => StatusCode::TOO_MANY_REQUESTS,
        Error::Unavailable { .. } | Error::Offline { .. } | Error::RegistryAway { .. } => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Error::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The stable code of an error.
pub fn code(error: &Error) -> &'static str {
    match error {
        Error::NotFound => "not_found",
        Error::Unauthenticated => "unauthenticated",
        Error::Forbidden(_) => "forbidden",
        Error::CsrfFailed => "csrf_failed",
        Error::QuotaExceeded { .. } => "quota_exceeded",
        Error::Malformed(_) => "malformed",
        Error::Unacceptable { code, .. } | Error::Conflict { code, .. } => code,
        Error::Gone(_) => "gone",
        Error::BadRange { .. } => "bad_range",
        Error::Offline { .. } => "viber_offline",
        Error::WrongMedia(_) => "unsupported_media_type",
        Error::TooLarge(_) => "too_large",
        Error::Throttled { .. } => "throttled",
        Error::Unavailable { .. } => "unavailable",
        Error::RegistryAway { .. } => "registry_away",
        Error::Internal(_) => "internal",
    }
}

/// The kind of caller, which decides the form of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Program,
    Fragment,
    Person,
}

fn reader(uri: &Uri, headers: &HeaderMap) -> Reader {
    let path = uri.path();
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let programs = ["/api/", "/ws/", "/healthz", "/readyz", "/metrics"];
    if programs.iter().any(|start| path.starts_with(start)) || path == urls::MCP {
        Reader::Program
    } else if headers.contains_key("hx-request") {
        Reader::Fragment
    } else if accepts.contains("json") && !accepts.contains("text/html") {
        Reader::Program
    } else {
        Reader::Person
    }
}

/// Renders every refusal in the form for its caller.
pub async fn render(State(board): State<Board>, mut request: Request, next: Next) -> Response {
    let reader = reader(request.uri(), request.headers());
    let (uri, method) = (request.uri().clone(), request.method().clone());
    let id = request.extensions().get::<RequestId>().map_or_else(String::new, |id| id.0.clone());
    let admitted = Admitted::default();
    request.extensions_mut().insert(admitted.clone());
    let response = next.run(request).await;
    let status = response.status();
    if !status.is_client_error() && !status.is_server_error() {
        return response;
    }
    let refused = response.extensions().get::<Refused>().cloned();
    let words = match (&refused, bare(&response)) {
        (Some(Refused(error)), _) => RefusalWords::of(error),
        (None, true) => RefusalWords::of_status(status, detail(response).await),
        // A page or document that a handler made itself.
        (None, false) => return response,
    };
    if let Some(Refused(error)) = &refused
        && let Error::Internal(reason) = &**error
    {
        tracing::error!(request.id = id, reason, "internal error");
    }
    // What is foreign and what does not exist must not differ in a letter; the header still has the number.
    let shown = if status == StatusCode::NOT_FOUND { "" } else { &id };
    let mut answer = match (reader, words.code) {
        (Reader::Person, "unauthenticated") => {
            let next = if method == Method::GET { uri.path_and_query().map(|p| p.as_str()) } else { None };
            axum::response::Redirect::to(&urls::sign_in(next)).into_response()
        }
        (Reader::Fragment, "unauthenticated") => {
            let to = HeaderValue::from_static("/login");
            (StatusCode::UNAUTHORIZED, [(header::HeaderName::from_static("hx-redirect"), to)]).into_response()
        }
        (Reader::Program, _) => problem(&words, status, &id),
        (Reader::Fragment, _) => page(status, &Fragment { words: &words, id: shown }),
        (Reader::Person, "not_found") => match team_frame(&board, &admitted).await {
            Some((shell, slug)) => page(status, &TeamPage { shell, slug, words: &words }),
            None => page(status, &Page { words: &words, id: shown }),
        },
        (Reader::Person, _) => page(status, &Page { words: &words, id: shown }),
    };
    if let Some(seconds) = words.retry_after {
        answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(Refused(error)) = &refused
        && let Error::BadRange { size } = &**error
        && let Ok(range) = HeaderValue::from_str(&format!("bytes */{size}"))
    {
        answer.headers_mut().insert(header::CONTENT_RANGE, range);
    }
    if status == StatusCode::UNAUTHORIZED && reader == Reader::Program {
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    answer
}

/// Whether nobody gave the refusal a form yet: axum's own are plain text or nothing.
fn bare(response: &Response) -> bool {
    response.headers().get(header::CONTENT_TYPE).is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"))
}

/// What axum says about a body it refused; about our own mistakes nothing.
async fn detail(response: Response) -> String {
    if response.status().is_server_error() {
        return String::new();
    }
    let bytes = to_bytes(response.into_body(), 4096).await.unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// The text of a refusal.
struct RefusalWords {
    code: &'static str,
    title: &'static str,
    detail: String,
    retry_after: Option<u64>,
    /// With `quota_exceeded`: the quota, its usage and its limit, bytes.
    quota: Option<(&'static str, u64, u64)>,
}

impl RefusalWords {
    fn of(error: &Error) -> Self {
        let mut words = Self::of_status(status(error), error.to_string());
        words.code = code(error);
        // Whoever asked for what is done already did nothing wrong.
        if words.code == "nothing" {
            words.title = "Nothing to do";
        }
        match error {
            Error::Throttled { retry_after }
            | Error::Unavailable { retry_after, .. }
            | Error::RegistryAway { retry_after, .. } => {
                words.retry_after = Some(*retry_after);
            }
            Error::Offline { .. } => words.retry_after = Some(30),
            Error::QuotaExceeded { what, used, limit } => words.quota = Some((what, *used, *limit)),
            Error::Internal(_) => words.detail = String::new(),
            _ => {}
        }
        words
    }

    fn of_status(status: StatusCode, detail: String) -> Self {
        let (code, title) = match status.as_u16() {
            400 => ("malformed", "This request could not be understood"),
            401 => ("unauthenticated", "Not signed in"),
            403 => ("forbidden", "Not allowed"),
            404 => ("not_found", "Not found"),
            405 => ("method_not_allowed", "Method not allowed"),
            408 => ("timeout", "The request took too long to arrive"),
            409 => ("conflict", "Conflict with the current state"),
            410 => ("gone", "No longer available"),
            413 => ("too_large", "Too large"),
            416 => ("bad_range", "Range not satisfiable"),
            415 => ("unsupported_media_type", "Unsupported media type"),
            421 => ("misdirected", "This Board does not serve that host name"),
            422 => ("unacceptable", "That cannot be done"),
            429 => ("throttled", "Too many requests"),
            503 => ("unavailable", "Not available right now"),
            500..=599 => ("internal", "Something went wrong here"),
            _ => ("refused", "Refused"),
        };
        let detail = if status == StatusCode::NOT_FOUND { String::new() } else { detail };
        Self { code, title, detail, retry_after: None, quota: None }
    }

    /// What a person can do now.
    fn advice(&self) -> &'static str {
        match self.code {
            "not_found" => "It does not exist, or it belongs to a team that you are not in.",
            "csrf_failed" => "Reload the page that you came from and try again.",
            "viber_offline" => "It becomes available when the viber reconnects.",
            "throttled" | "unavailable" => "Nothing was changed. Wait a moment, then try again.",
            "quota_exceeded" => {
                "Delete what is no longer needed, or ask the administrator of this Board to raise the limit."
            }
            "internal" => {
                "The change was made completely or not at all. The Board's log has the details under this number."
            }
            _ => "",
        }
    }
}

fn problem(words: &RefusalWords, status: StatusCode, id: &str) -> Response {
    let mut body = serde_json::json!({
        "type": "about:blank", "title": words.title, "status": status.as_u16(), "code": words.code, "requestId": id,
    });
    if let Some((what, used, limit)) = words.quota {
        (body["what"], body["used"], body["limit"]) = (what.into(), used.into(), limit.into());
    }
    if !words.detail.is_empty() {
        body["detail"] = words.detail.as_str().into();
    }
    (status, [(header::CONTENT_TYPE, "application/problem+json")], Body::from(body.to_string())).into_response()
}

fn page(status: StatusCode, template: &impl Template) -> Response {
    match template.render() {
        Ok(html) => (status, Html(html)).into_response(),
        Err(error) => {
            tracing::error!(%error, "the page of a refusal could not be rendered");
            status.into_response()
        }
    }
}

/// The frame of the team that the request was let into.
async fn team_frame(board: &Board, admitted: &Admitted) -> Option<(Shell, String)> {
    let caller = admitted.caller()?;
    match Shell::load(board, caller).await {
        Ok(shell) => Some((shell, caller.team.slug.clone())),
        Err(error) => {
            tracing::warn!(%error, "a refusal has no frame");
            None
        }
    }
}

/// What is not there, to a member of the team.
#[derive(Template)]
#[template(path = "error_in_team.html")]
struct TeamPage<'a> {
    shell: Shell,
    slug: String,
    words: &'a RefusalWords,
}

#[derive(Template)]
#[template(path = "error.html")]
struct Page<'a> {
    words: &'a RefusalWords,
    id: &'a str,
}

#[derive(Template)]
#[template(path = "_error.html")]
struct Fragment<'a> {
    words: &'a RefusalWords,
    id: &'a str,
}

/// Renders a page; a template that fails is our fault.
pub fn html(template: &impl Template) -> Result<Html<String>, Rejection> {
    if crate::fault::at("web::template") {
        return Err(Rejection(Error::Internal("a template: failpoint web::template".into())));
    }
    markdown::warm();
    template.render().map(Html).map_err(|error| Rejection(Error::Internal(format!("a template: {error}"))))
}

/// The same with a status: a form that comes back with its errors.
pub fn html_with(status: StatusCode, template: &impl Template) -> Result<Response, Rejection> {
    Ok((status, html(template)?).into_response())
}
