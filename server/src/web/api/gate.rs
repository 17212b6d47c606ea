//! What every call of the API passes before its handler: who asks, how often, and whether it was asked before.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use axum::{
    body::{Body, Bytes, to_bytes},
    extract::{FromRequestParts, Request, State},
    http::{HeaderMap, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use protocol::TeamId;
use sha2::{Digest, Sha256};

use super::json::MAX_BODY;
use crate::{
    actions::answers,
    db,
    domain::once::{Earlier, Kept, Once},
    error::{Error, Result},
    guard::seal,
    secret,
    state::Board,
    web::{Rejection, extract::Viewing, layers::bodies, pace::Pace},
};

/// The header that names a call which may be sent again.
const KEY: &str = "idempotency-key";
/// Longest key, bytes.
const MAX_KEY: usize = 255;

/// What the gate remembers. Cheap to clone.
#[derive(Clone)]
pub struct Gate {
    board: Board,
    pace: Arc<Pace>,
    /// Calls under way by team, actor and key: a second one waits for the first one's answer.
    under_way: Arc<Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>>,
}

impl Gate {
    /// A gate that has seen nobody.
    pub fn new(board: &Board) -> Self {
        Self { board: board.clone(), pace: Arc::default(), under_way: Arc::default() }
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

/// The layer. Handlers find the `Arc<Pace>` among the request's extensions; submit also finds the `Once`, so that a Board
/// which is killed between the change and the keeping of its answer still does not do it twice.
pub async fn pass(State(gate): State<Gate>, request: Request, next: Next) -> Result<Response, Rejection> {
    let (mut parts, body) = request.into_parts();
    let caller = Viewing::from_request_parts(&mut parts, &gate.board).await?;
    let actor = caller.by.actor.id();
    let now = gate.board.clock.monotonic();
    gate.pace.take(actor, now).map_err(|retry_after| Error::Throttled { retry_after })?;
    parts.extensions.insert(gate.pace.clone());
    let key = key(&parts.method, &parts.headers)?;
    let Some(key) = key else { return Ok(next.run(Request::from_parts(parts, body)).await) };
    let bytes = bodies::read(body, MAX_BODY).await?;
    let place = parts.uri.path_and_query().map_or(parts.uri.path(), |whole| whole.as_str());
    let once = Once { key, asks: asks(&parts.method, place, &bytes) };
    if parts.method == Method::POST && parts.uri.path() == super::SUBMIT {
        parts.extensions.insert(once.clone());
    }
    // Beside the rows that submit itself keeps under the actor's own name.
    let actor = format!("{actor} answer");
    let team = caller.team.id.clone();
    let turn = gate.turn(format!("{team} {actor} {}", once.key));
    let _turn = turn.lock().await;
    if let Some(answer) = before(&gate.board, &team, &actor, &once).await? {
        return Ok(answer);
    }
    let response = next.run(Request::from_parts(parts, Body::from(bytes))).await;
    Ok(keep(&gate.board, &team, &actor, &once, response).await?)
}

/// The key of an unsafe call.
fn key(method: &Method, headers: &HeaderMap) -> Result<Option<String>> {
    if method.is_safe() {
        return Ok(None);
    }
    let mut given = headers.get_all(KEY).iter();
    let Some(value) = given.next() else { return Ok(None) };
    let text = value.to_str().unwrap_or("").trim();
    if given.next().is_some() || text.is_empty() || text.len() > MAX_KEY {
        return Err(Error::unacceptable("bad_idempotency_key", "Idempotency-Key is one text of 1 to 255 characters"));
    }
    Ok(Some(text.to_owned()))
}

/// What the call asks for, in one hash: two calls with the same one are the same call.
fn asks(method: &Method, place: &str, body: &[u8]) -> String {
    let mut hasher = Sha256::new();
    hasher.update(format!("{method} {place}\n"));
    hasher.update(body);
    secret::hex(&hasher.finalize())
}

/// The answer to an earlier call with this key.
async fn before(board: &Board, team: &TeamId, actor: &str, once: &Once) -> Result<Option<Response>> {
    let now = board.clock.now();
    let args = (team.clone(), actor.to_owned(), once.clone());
    let earlier = board
        .db
        .read(move |tx| Box::pin(async move { db::idempotency::find(tx, &args.0, &args.1, &args.2, now).await }))
        .await?;
    match earlier {
        Earlier::No => Ok(None),
        Earlier::Other => Err(mismatch()),
        Earlier::Same(kept) => {
            let answer = seal::open(&board.guard.keys(), &once.key, &kept.answer, now).ok_or_else(|| {
                Error::conflict("idempotency_lost", "this call was made before, and its answer can no longer be read")
            })?;
            Ok(Some(again(kept.status, answer)))
        }
    }
}

/// The key was used for another call.
pub fn mismatch() -> Error {
    Error::unacceptable("idempotency_mismatch", "this Idempotency-Key was used for another call")
}

/// An answer as it was given before.
pub fn again(status: u16, answer: String) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let mut response = if answer.is_empty() {
        status.into_response()
    } else {
        (status, [(header::CONTENT_TYPE, "application/json")], answer).into_response()
    };
    response.headers_mut().insert("idempotency-replayed", header::HeaderValue::from_static("true"));
    response
}

/// Keeps a call's answer when it did something. One that failed may be tried again with the same key.
async fn keep(board: &Board, team: &TeamId, actor: &str, once: &Once, response: Response) -> Result<Response> {
    if !response.status().is_success() {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let bytes: Bytes = to_bytes(body, 4 * MAX_BODY).await.map_err(|error| Error::Internal(error.to_string()))?;
    let text = std::str::from_utf8(&bytes).map_err(|error| Error::Internal(error.to_string()))?;
    let answer = seal::seal(&board.guard.keys(), &once.key, text);
    let kept = Kept { status: parts.status.as_u16(), answer, at: board.clock.now() };
    if let Err(error) = answers::keep(board, team, actor, once, kept).await {
        tracing::warn!(%error, "the answer of a call with an Idempotency-Key could not be kept");
    }
    Ok(Response::from_parts(parts, Body::from(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(keys: &[&str]) -> HeaderMap {
        keys.iter().map(|key| (header::HeaderName::from_static(KEY), key.parse().expect("a value"))).collect()
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
    fn another_body_method_or_place_is_another_call() {
        let one = asks(&Method::POST, "/a", b"x");
        assert_eq!(one, asks(&Method::POST, "/a", b"x"));
        for other in [asks(&Method::POST, "/a", b"y"), asks(&Method::PUT, "/a", b"x"), asks(&Method::POST, "/b", b"x")]
        {
            assert_ne!(one, other);
        }
    }
}
