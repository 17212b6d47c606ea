//! What every call of the API passes before its handler: the caller, the rate limit, and the idempotency key.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use axum::{
    body::{Body, Bytes, to_bytes},
    extract::{FromRequestParts, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use protocol::TeamId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::json::MAX_BODY_BYTES;
use crate::{
    actions::idempotency,
    db,
    domain::idempotency::{EarlierCall, IdempotentCall, KeptAnswer},
    error::{Error, Result},
    guard::seal,
    secret,
    state::Board,
    web::{
        Rejection,
        extract::AsViewer,
        layers::{api_limits::ApiLimits, bodies},
        urls,
    },
};

/// The header that identifies a call, so that it can be sent again safely.
const KEY_HEADER: &str = "idempotency-key";
/// Longest key, bytes.
const MAX_KEY_BYTES: usize = 255;

/// What the gate remembers. Cheap to clone.
#[derive(Clone)]
pub struct Gate {
    board: Board,
    limits: Arc<ApiLimits>,
    /// Calls in progress by team, actor and key: a second call waits for the answer of the first.
    under_way: Arc<Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>>,
}

impl Gate {
    /// A gate with no calls in progress.
    pub fn new(board: &Board, limits: Arc<ApiLimits>) -> Self {
        Self { board: board.clone(), limits, under_way: Arc::default() }
    }

    fn turn(&self, name: String) -> Arc<tokio::sync::Mutex<()>> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.retain(|_, turn| turn.strong_count() > 0);
        let slot = under_way.entry(name).or_default();
        slot.upgrade().unwrap_or_else(|| {
            let turn = Arc::new(tokio::sync::Mutex::new(()));
            *slot = Arc::downgrade(&turn);
            turn
        })
    }
}

/// The layer. Handlers find the `Arc<ApiLimits>` in the request's extensions; those that submit also find the idempotency key,
/// so that a Board which is killed between the change and the storing of its answer does not do it twice.
pub async fn pass(State(gate): State<Gate>, request: Request, next: Next) -> Result<Response, Rejection> {
    let (mut parts, body) = request.into_parts();
    let caller = AsViewer::from_request_parts(&mut parts, &gate.board).await?;
    let actor = caller.by.actor.id();
    let now = gate.board.clock.monotonic();
    gate.limits.call(actor, now).map_err(|retry_after| Error::Throttled { retry_after })?;
    parts.extensions.insert(gate.limits.clone());
    // Tools take their keys as arguments: a kept answer would hold back a stream, and refusals of tools are answers.
    let key = if parts.uri.path() == urls::MCP { None } else { key(&parts.method, &parts.headers)? };
    let Some(key) = key else { return Ok(next.run(Request::from_parts(parts, body)).await) };
    let bytes = bodies::read(body, MAX_BODY_BYTES).await?;
    let place = parts.uri.path_and_query().map_or(parts.uri.path(), |whole| whole.as_str());
    let once = IdempotentCall { key, asks: asks(&parts.method, place, &bytes) };
    let path = parts.uri.path();
    if parts.method == Method::POST && (super::SUBMIT_PATHS.contains(&path) || path.ends_with("/messages")) {
        parts.extensions.insert(once.clone());
    }
    // Submit stores rows of its own under the plain name of the actor.
    let actor = format!("{actor} answer");
    let team = &caller.team.id;
    let turn = gate.turn(format!("{team} {actor} {}", once.key));
    let _turn = turn.lock().await;
    if let Some(answer) = before(&gate.board, team, &actor, &once).await? {
        return Ok(answer);
    }
    let response = next.run(Request::from_parts(parts, Body::from(bytes))).await;
    Ok(keep(&gate.board, team, &actor, &once, response).await?)
}

/// The key of an unsafe call.
fn key(method: &Method, headers: &HeaderMap) -> Result<Option<String>> {
    if method.is_safe() {
        return Ok(None);
    }
    let mut given = headers.get_all(KEY_HEADER).iter();
    let Some(value) = given.next() else { return Ok(None) };
    let text = value.to_str().unwrap_or("").trim();
    if given.next().is_some() || text.is_empty() || text.len() > MAX_KEY_BYTES {
        return Err(Error::unacceptable(
            "bad_idempotency_key",
            "Idempotency-Key is a single value of 1 to 255 characters",
        ));
    }
    Ok(Some(text.to_owned()))
}

/// A call with the key in its headers, if it has one.
pub fn named_call(headers: &HeaderMap, place: &str, body: &[u8]) -> Result<Option<IdempotentCall>> {
    let key = key(&Method::POST, headers)?;
    Ok(key.map(|key| IdempotentCall { key, asks: asks(&Method::POST, place, body) }))
}

/// A call whose key is one of its fields. `place` says which call it is.
pub(super) fn keyed_call(key: &str, place: &str, body: &[u8]) -> Result<IdempotentCall> {
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        return Err(Error::unacceptable("bad_idempotency_key", "a key has 1 to 255 bytes"));
    }
    // Apart from the keys in headers, which name other calls.
    Ok(IdempotentCall { key: format!("{place} {key}"), asks: asks(&Method::POST, place, body) })
}

/// The hash of what the call asks for: two calls with the same hash are the same call.
fn asks(method: &Method, place: &str, body: &[u8]) -> String {
    let mut hasher = Sha256::new();
    hasher.update(format!("{method} {place}\n"));
    hasher.update(body);
    secret::hex(&hasher.finalize())
}

/// The answer to an earlier call with this key.
async fn before(board: &Board, team: &TeamId, actor: &str, once: &IdempotentCall) -> Result<Option<Response>> {
    let now = board.clock.now();
    let earlier = db::idempotency::find(&mut board.db.reader_of(team).await?, actor, once, now).await?;
    match earlier {
        EarlierCall::No => Ok(None),
        EarlierCall::Other => Err(mismatch()),
        EarlierCall::Same(kept) => {
            let answer = seal::open(&board.guard.keys(), &once.key, &kept.answer, now).ok_or_else(|| {
                Error::conflict(
                    "idempotency_lost",
                    "this call was made before, and its stored response can no longer be read",
                )
            })?;
            Ok(Some(Replay::read(answer).answer(kept.status)))
        }
    }
}

/// The key was used for another call.
pub fn mismatch() -> Error {
    Error::unacceptable("idempotency_mismatch", "this Idempotency-Key was used for another call")
}

/// Headers of an answer that are part of what it says.
const REPLAYED_HEADERS: [HeaderName; 3] = [header::CONTENT_TYPE, header::ETAG, header::LOCATION];

/// An answer as it is stored for repetitions of the call.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Replay {
    headers: BTreeMap<String, String>,
    body: String,
}

impl Replay {
    fn of(headers: &HeaderMap, body: &str) -> Self {
        let kept = REPLAYED_HEADERS
            .iter()
            .filter_map(|name| Some((name.to_string(), headers.get(name)?.to_str().ok()?.to_owned())));
        Self { headers: kept.collect(), body: body.to_owned() }
    }

    /// As it was stored; earlier versions stored only the JSON.
    fn read(kept: String) -> Self {
        serde_json::from_str(&kept).unwrap_or_else(|_| {
            let json = (!kept.is_empty()).then(|| (header::CONTENT_TYPE.to_string(), "application/json".to_owned()));
            Self { headers: json.into_iter().collect(), body: kept }
        })
    }

    fn answer(self, status: u16) -> Response {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
        let mut response = (status, Body::from(self.body)).into_response();
        let headers = response.headers_mut();
        for name in REPLAYED_HEADERS {
            if let Some(value) = self.headers.get(name.as_str()).and_then(|value| HeaderValue::from_str(value).ok()) {
                headers.insert(name, value);
            }
        }
        headers.insert("idempotency-replayed", HeaderValue::from_static("true"));
        response
    }
}

/// Stores the answer of a successful call. A call that failed may be repeated with the same key.
async fn keep(
    board: &Board,
    team: &TeamId,
    actor: &str,
    once: &IdempotentCall,
    response: Response,
) -> Result<Response> {
    if !response.status().is_success() {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let bytes: Bytes = to_bytes(body, 4 * MAX_BODY_BYTES).await.map_err(|error| Error::Internal(error.to_string()))?;
    let text = std::str::from_utf8(&bytes).map_err(|error| Error::Internal(error.to_string()))?;
    let replay = serde_json::to_string(&Replay::of(&parts.headers, text));
    let replay = replay.map_err(|error| Error::Internal(error.to_string()))?;
    let answer = seal::seal(&board.guard.keys(), &once.key, &replay);
    let kept = KeptAnswer { status: parts.status.as_u16(), answer, at: board.clock.now() };
    if let Err(error) = idempotency::keep(board, team, actor, once, kept).await {
        tracing::warn!(%error, "the answer of a call with an Idempotency-Key could not be kept");
    }
    Ok(Response::from_parts(parts, Body::from(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(keys: &[&str]) -> HeaderMap {
        keys.iter().map(|key| (header::HeaderName::from_static(KEY_HEADER), key.parse().expect("a value"))).collect()
    }

    #[test]
    fn a_key_counts_for_unsafe_calls_and_must_be_one_text() {
        assert_eq!(key(&Method::GET, &headers(&["a"])).expect("safe"), None);
        assert_eq!(key(&Method::POST, &headers(&[])).expect("none"), None);
        assert_eq!(key(&Method::POST, &headers(&[" a "])).expect("one"), Some("a".into()));
        for bad in [vec![""], vec!["a", "b"], vec![&*"k".repeat(256)]] {
            assert!(key(&Method::DELETE, &headers(&bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_answer_is_replayed_with_what_its_headers_say() {
        let mut headers = HeaderMap::new();
        for (name, value) in [(header::LOCATION, "/api/v1/tasks/x"), (header::CACHE_CONTROL, "no-store")] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let kept = serde_json::to_string(&Replay::of(&headers, "{}")).expect("JSON");
        let again = Replay::read(kept).answer(201);
        assert_eq!(again.status(), StatusCode::CREATED);
        assert_eq!(again.headers()[header::LOCATION], "/api/v1/tasks/x");
        assert!(!again.headers().contains_key(header::CACHE_CONTROL));
        let former = Replay::read("{\"id\":1}".into()).answer(200);
        assert_eq!(former.headers()[header::CONTENT_TYPE], "application/json");
        assert!(!Replay::read(String::new()).answer(204).headers().contains_key(header::CONTENT_TYPE));
    }

    #[test]
    fn another_body_method_or_place_is_another_call() {
        let one = asks(&Method::POST, "/a", b"x");
        assert_eq!(one, asks(&Method::POST, "/a", b"x"));
        for other in [asks(&Method::POST, "/a", b"y"), asks(&Method::PUT, "/a", b"x"), asks(&Method::POST, "/b", b"x")]
        {
            assert_ne!(one, other);
        }
    }
}
