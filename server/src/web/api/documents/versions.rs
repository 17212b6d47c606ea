//! Versions of what is written: which one a call means (`If-Match`, `If-None-Match`), and what it is told when it is another.

use axum::{
    Json,
    extract::FromRequestParts,
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use utoipa::IntoParams;

use crate::{
    error::{Error, Result},
    state::Board,
    web::api::shapes::{Problem, VersionProblem},
    web::{Rejection, layers::RequestId},
};

/// How a call that writes names the version that it means.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its description is used")]
pub struct IfVersion {
    /// The version that its author saw, in double quotes.
    #[param(rename = "If-Match", pattern = "^\"[^\",]{0,65}\"$")]
    if_match: Option<String>,
    /// There must be none.
    #[param(rename = "If-None-Match", pattern = "^[*]$")]
    if_none_match: Option<String>,
}

/// How a call that reads says what it has.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its description is used")]
pub struct IfChanged {
    /// The versions that the caller has, each in double quotes: 304 when it is one of them.
    #[param(rename = "If-None-Match")]
    if_none_match: Option<String>,
}

/// Which version a caller means.
#[derive(Debug)]
pub enum Base {
    /// The one it saw.
    Seen(String),
    /// There is none.
    New,
    /// It does not say: then there must be none.
    Unsaid,
}

fn base(headers: &HeaderMap) -> Result<Base> {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("").trim().to_owned());
    match (text(header::IF_MATCH), text(header::IF_NONE_MATCH)) {
        (Some(tag), None) => {
            let hash = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
            let hash = hash.filter(|hash| hash.len() <= 65 && !hash.contains(['"', ',']));
            let bad = || Error::Malformed("If-Match names one version, in double quotes".to_owned());
            Ok(Base::Seen(hash.ok_or_else(bad)?.to_owned()))
        }
        (None, Some(star)) if star == "*" => Ok(Base::New),
        (None, None) => Ok(Base::Unsaid),
        _ => Err(Error::Malformed("give If-Match: \"hash\", or If-None-Match: *".to_owned())),
    }
}

/// The version that a request means, and the number by which it is known.
#[derive(Debug)]
pub struct NamedVersion {
    pub base: Base,
    pub number: RequestId,
}

impl FromRequestParts<Board> for NamedVersion {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, _: &Board) -> std::result::Result<Self, Rejection> {
        let number = parts.extensions.get::<RequestId>().cloned();
        let number = number.ok_or_else(|| Error::Internal("a request without a number".to_owned()))?;
        Ok(Self { base: base(&parts.headers)?, number })
    }
}

/// 412, or 428 to a caller that named no version.
pub fn stale(base: &Base, current: Option<String>, number: &RequestId) -> Response {
    let (status, seen) = match base {
        Base::Seen(hash) => (StatusCode::PRECONDITION_FAILED, Some(hash.clone())),
        Base::New => (StatusCode::PRECONDITION_FAILED, None),
        Base::Unsaid => (StatusCode::PRECONDITION_REQUIRED, None),
    };
    refusal(status, Some((current, seen)), number)
}

/// The refusal itself; `versions` are the one that is there and the one that was named, when both are known.
pub fn refusal(status: StatusCode, versions: Option<(Option<String>, Option<String>)>, number: &RequestId) -> Response {
    let (code, title, detail) = match status {
        StatusCode::PRECONDITION_FAILED => {
            ("stale", "Something else happened meanwhile", "the file is another version")
        }
        _ => ("version_required", "Name the version", "say by If-Match which version of the file is meant"),
    };
    let (current, base) = versions.unzip();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    let there = current.iter().flatten().next();
    if let Some(tag) = there.and_then(|hash| HeaderValue::from_str(&format!("\"{hash}\"")).ok()) {
        headers.insert(header::ETAG, tag);
    }
    let problem = Problem {
        r#type: "about:blank".to_owned(),
        title: title.to_owned(),
        status: status.as_u16(),
        detail: Some(detail.to_owned()),
        code: code.to_owned(),
        what: None,
        used: None,
        limit: None,
        request_id: number.0.clone(),
    };
    (status, headers, Json(VersionProblem { problem, current, base })).into_response()
}
