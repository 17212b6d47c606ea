//! Versions of files: the one that a request names (`If-Match`, `If-None-Match`), and the refusal if it is not current.

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

/// The headers by which a request that writes names a version.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its description is used")]
pub struct IfVersion {
    /// The version that the author saw, in double quotes.
    #[param(rename = "If-Match", pattern = "^\"[^\",]{0,65}\"$")]
    if_match: Option<String>,
    /// `*`: nothing must be there yet.
    #[param(rename = "If-None-Match", pattern = "^[*]$")]
    if_none_match: Option<String>,
}

/// The header by which a request that reads names the versions it has.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its description is used")]
pub struct IfChanged {
    /// The versions that the caller has, each in double quotes: 304 when it is one of them.
    #[param(rename = "If-None-Match")]
    if_none_match: Option<String>,
}

/// The version that a request names.
#[derive(Debug)]
pub enum Base {
    /// The one it saw.
    Seen(String),
    /// The file does not exist.
    New,
    /// None is named: then the file must not exist.
    Unspecified,
}

fn base(headers: &HeaderMap) -> Result<Base> {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("").trim().to_owned());
    match (text(header::IF_MATCH), text(header::IF_NONE_MATCH)) {
        (Some(tag), None) => {
            let hash = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
            let hash = hash.filter(|hash| hash.len() <= 65 && !hash.contains(['"', ',']));
            let bad = || Error::Malformed("If-Match has to name one version, in double quotes".to_owned());
            Ok(Base::Seen(hash.ok_or_else(bad)?.to_owned()))
        }
        (None, Some(star)) if star == "*" => Ok(Base::New),
        (None, None) => Ok(Base::Unspecified),
        _ => Err(Error::Malformed("give If-Match: \"hash\", or If-None-Match: *".to_owned())),
    }
}

/// The version that a request names, and the request id.
#[derive(Debug)]
pub struct NamedVersion {
    pub base: Base,
    pub number: RequestId,
}

impl NamedVersion {
    /// The same where versions are numbers that begin with 0; `None`: whichever is current.
    pub fn count(&self) -> Option<u64> {
        match &self.base {
            // No version has the number of a tag that is none.
            Base::Seen(tag) => Some(tag.parse().unwrap_or(u64::MAX)),
            Base::New => Some(0),
            Base::Unspecified => None,
        }
    }
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
        Base::Unspecified => (StatusCode::PRECONDITION_REQUIRED, None),
    };
    refusal(status, Some((current, seen)), number)
}

/// The refusal itself; `versions` are the one that is there and the one that was named, when both are known.
pub fn refusal(status: StatusCode, versions: Option<(Option<String>, Option<String>)>, number: &RequestId) -> Response {
    let (code, title, detail) = match status {
        StatusCode::PRECONDITION_FAILED => ("stale", "The version is not current", "it has changed since that version"),
        _ => ("version_required", "A version is required", "name the current version in If-Match"),
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
