//! JSON bodies, parsed strictly: an unknown or invalid field is refused by name, never guessed.

mod strict;
mod unique_keys;

use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
    http::header::CONTENT_TYPE,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, error::Category};

use self::{strict::StrictValue, unique_keys::UniqueKeys};
use crate::{
    error::{Error, Result},
    web::{Rejection, layers::bodies},
};

/// Largest body of an API call, bytes.
pub const MAX_BODY_BYTES: usize = 1024 * 1024;

/// A JSON body. Every `T` refuses unknown fields, so that a caller learns of a misspelt or privileged one.
#[derive(Debug)]
pub struct JsonBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Rejection;

    async fn from_request(request: Request, _: &S) -> Result<Self, Rejection> {
        let (json, bytes) = whole(request).await?;
        if !json {
            return Err(Error::WrongMedia("application/json").into());
        }
        Ok(Self(parse(&bytes)?))
    }
}

/// An optional JSON body: the default when nothing is sent.
#[derive(Debug)]
pub struct OptionalJsonBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for OptionalJsonBody<T> {
    type Rejection = Rejection;

    async fn from_request(request: Request, _: &S) -> Result<Self, Rejection> {
        let (json, bytes) = whole(request).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        if !json {
            return Err(Error::WrongMedia("application/json").into());
        }
        Ok(Self(parse(&bytes)?))
    }
}

/// Whether the request declares JSON, and its body within the limit.
pub(super) async fn whole(request: Request) -> Result<(bool, Bytes)> {
    let media = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let json = is_json(media);
    Ok((json, bodies::read(request.into_body(), MAX_BODY_BYTES).await?))
}

fn is_json(media: &str) -> bool {
    let essence = media.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// Parses a body: 400 with the position when it is not JSON (or deeper than 128 levels), 422 with the field when a
/// value is wrong.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let UniqueKeys(value) = serde_json::from_slice(bytes).map_err(refused)?;
    if has_nul(bytes) {
        return Err(Error::unacceptable("nul", "text may not contain U+0000"));
    }
    from_value(value)
}

/// The same of a part of a body that was parsed before.
pub(super) fn from_value<T: DeserializeOwned>(value: Value) -> Result<T> {
    T::deserialize(StrictValue(value)).map_err(refused)
}

fn refused(error: serde_json::Error) -> Error {
    let mut message = error.to_string();
    message.truncate(message.floor_char_boundary(300));
    match error.classify() {
        Category::Data => Error::unacceptable("invalid_body", message),
        Category::Syntax | Category::Eof | Category::Io => Error::Malformed(message),
    }
}

/// Whether a string of this (valid) JSON contains the escape of U+0000, which PostgreSQL cannot store.
fn has_nul(json: &[u8]) -> bool {
    let mut rest = json;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        let escape = &rest[at + 1..];
        if escape.starts_with(b"u0000") {
            return true;
        }
        rest = escape.get(1..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        goal: String,
        limits: Option<Bounds>,
        labels: Option<BTreeMap<String, String>>,
    }

    #[derive(Debug, Default, serde::Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Bounds {
        steps: Option<u32>,
        cost: Option<f64>,
        mode: Option<Mode>,
    }

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Mode {
        Fast,
    }

    fn refusal(body: &str) -> (&'static str, String) {
        match parse::<Asked>(body.as_bytes()) {
            Err(Error::Malformed(message)) => ("400", message),
            Err(Error::Unacceptable { code, message }) => (code, message),
            other => panic!("{body}: {other:?}"),
        }
    }

    #[test]
    fn a_broken_body_is_named_with_its_position() {
        let (status, message) = refusal("{\"goal\": \n nope}");
        assert_eq!(status, "400");
        assert!(message.contains("line 2 column"), "{message}");
        for body in ["", "{", "{\"goal\":\"a\"} x", "{\"goal\":\"\\ud800\"}", "{\"goal\":\"a\u{1}\"}"] {
            assert_eq!(refusal(body).0, "400", "{body}");
        }
        for deep in [format!("{{\"goal\":{}", "[".repeat(100_000)), "[".repeat(100_000), "{\"a\":".repeat(200)] {
            assert_eq!(refusal(&deep).0, "400", "deeper than 128 levels");
        }
    }

    #[test]
    fn an_unacceptable_body_is_named_by_its_field() {
        let (code, message) = refusal("{\"goal\":\"a\",\"role\":\"owner\"}");
        assert_eq!(code, "invalid_body");
        assert!(message.contains("`role`"), "{message}");
        assert!(refusal("{}").1.contains("`goal`"));
        assert_eq!(refusal("{\"goal\":1e400}").0, "400");
        assert_eq!(refusal("{\"goal\":7}").0, "invalid_body");
        assert_eq!(refusal("{\"goal\":\"a\",\"goal\":\"b\"}").0, "invalid_body");
    }

    #[test]
    fn a_list_is_no_object_at_any_depth() {
        for body in ["[]", "[\"a\"]", "[\"a\",null,null]", "null", "7", "\"a\""] {
            assert_eq!(refusal(body).0, "invalid_body", "{body}");
        }
        for limits in ["[]", "[5]", "[5,null,null]", "\"x\"", "{\"mode\":[]}", "{\"mode\":{\"fast\":null}}"] {
            let (code, message) = refusal(&format!("{{\"goal\":\"a\",\"limits\":{limits}}}"));
            assert!(code == "invalid_body" && message.contains("`limits"), "{limits}: {code} {message}");
        }
        let (_, message) = refusal("{\"goal\":\"a\",\"limits\":{\"steps\":\"5\"}}");
        assert!(message.starts_with("`limits.steps`: invalid type: string"), "{message}");
        assert_eq!(refusal("{\"goal\":\"a\",\"labels\":[[\"a\",\"b\"]]}").0, "invalid_body");
        let labels = parse::<Asked>(b"{\"goal\":\"a\",\"labels\":{\"a\":\"b\"}}").expect("good").labels;
        assert_eq!(labels, Some([("a".to_owned(), "b".to_owned())].into()));
    }

    #[test]
    fn numbers_and_nulls_are_what_they_are() {
        let bounds = |limits: &str| {
            parse::<Asked>(format!("{{\"goal\":\"a\",\"limits\":{limits}}}").as_bytes()).map(|asked| asked.limits)
        };
        let good = bounds("{\"steps\":4294967295,\"cost\":1,\"mode\":\"fast\"}").expect("good").expect("there");
        assert_eq!((good.steps, good.cost, good.mode), (Some(u32::MAX), Some(1.0), Some(Mode::Fast)));
        assert!(bounds("null").expect("absent").is_none());
        assert!(bounds("{\"steps\":null}").expect("absent").expect("there").steps.is_none());
        for odd in ["4294967296", "-1", "1.0", "1.5", "1e3", "99999999999999999999999", "true", "\"1\""] {
            assert!(bounds(&format!("{{\"steps\":{odd}}}")).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_key_stands_once_at_any_depth() {
        let twice = |body: &str| match parse::<serde_json::Value>(body.as_bytes()) {
            Err(Error::Unacceptable { code, message }) => Some((code, message)),
            _ => None,
        };
        let told = twice(r#"{"a":[{"b":{"c":1,"d":2,"c":3}}]}"#).expect("refused");
        assert!(told.0 == "invalid_body" && told.1.contains("duplicate field `c`"), "{told:?}");
        assert!(twice(r#"{"a":1,"\u0061":2}"#).is_some(), "however it is spelled");
        assert!(twice(r#"[{"a":1},{"a":2,"b":{"a":null}},true,-1,1.5,"x"]"#).is_none());
    }

    #[test]
    fn nul_is_refused_and_its_look_alikes_are_not() {
        assert_eq!(refusal("{\"goal\":\"a\\u0000\"}").0, "nul");
        assert_eq!(refusal("{\"goal\":\"\\\\\\u0000\"}").0, "nul");
        let kept: Asked = parse(b"{\"goal\":\"a\\\\u0000\"}").expect("a backslash and text");
        assert_eq!(kept.goal, "a\\u0000");
    }

    #[test]
    fn only_json_is_json() {
        for media in ["application/json", "Application/JSON; charset=utf-8", "application/merge-patch+json"] {
            assert!(is_json(media), "{media}");
        }
        for media in ["", "text/plain", "application/x-www-form-urlencoded", "text/json+json", "application/jsonx"] {
            assert!(!is_json(media), "{media}");
        }
    }
}
