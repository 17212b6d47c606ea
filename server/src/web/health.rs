//! Whether the process lives (`/healthz`), whether it can serve (`/readyz`), and what it measures (`/metrics`).

use std::time::Duration;

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use subtle::ConstantTimeEq;

use crate::{db, measure, state::Board};

/// A database that takes longer than this to answer is not ready.
const READY_TIMEOUT: Duration = Duration::from_secs(2);

/// The routes of the main listener.
pub fn routes() -> Router<Board> {
    Router::new().route("/healthz", get(alive)).route("/readyz", get(ready)).route("/metrics", get(metrics_by_token))
}

/// The routes of `--metrics-listen`, which is for the administrator's own network.
pub fn metrics_routes() -> Router<Board> {
    Router::new().route("/healthz", get(alive)).route("/readyz", get(ready)).route("/metrics", get(metrics))
}

/// The process runs: nothing else is asked, so that a slow database never restarts the Board.
async fn alive() -> &'static str {
    "ok\n"
}

async fn ready(State(board): State<Board>) -> Response {
    if board.shutdown.soft.is_cancelled() {
        return unready("the Board is shutting down\n");
    }
    let reason = match tokio::time::timeout(READY_TIMEOUT, db::version(&board.db)).await {
        Ok(Ok(version)) if version == db::newest() => return "ready\n".into_response(),
        Ok(Ok(_)) => "the database's schema is not this version's\n",
        Ok(Err(_)) => "the database is not available\n",
        Err(_) => "the database does not answer\n",
    };
    unready(reason)
}

fn unready(reason: &'static str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "2")], reason).into_response()
}

/// On the main listener the figures are for whoever holds the configured token; without one they are not there.
async fn metrics_by_token(State(board): State<Board>, headers: HeaderMap) -> Response {
    let now = board.reloadable.load();
    let Some(token) = &now.metrics_token else {
        return (StatusCode::NOT_FOUND, "not found\n").into_response();
    };
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or("");
    let given = given.strip_prefix("Bearer ").unwrap_or("");
    if bool::from(given.as_bytes().ct_eq(token.as_bytes())) {
        metrics(State(board)).await
    } else {
        (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], "not signed in\n").into_response()
    }
}

async fn metrics(State(board): State<Board>) -> Response {
    let media = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (media, measure::render(board.hub.connected())).into_response()
}
