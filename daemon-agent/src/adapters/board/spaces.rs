//! The Board's requests about spaces: `space.list {space, path, from}`, `space.read {space, path, offset, limit}`,
//! `space.status {space, session?}`, `space.diff {space, path, from?, session?, offset}` and `space.log {space, from,
//! limit, session?}`.

use protocol::{SessionId, limits::MAX_PIECE_BYTES, space::MAX_COMMITS};
use serde::Serialize;
use serde_json::Value;

use super::files;
use crate::{
    mesh::Mesh,
    space::{DiffQuery, Space, SpaceError},
};

/// Answers a request about a space.
pub async fn answer(mesh: &Mesh, method: &str, params: &Value) -> Result<Value, String> {
    let number = |name: &str| params[name].as_u64();
    let text = |name: &str| params[name].as_str().unwrap_or_default().to_owned();
    let session: Option<SessionId> = params["session"].as_str().and_then(|id| id.parse().ok());
    let (home, declared, wanted) = (mesh.home().clone(), mesh.files().borrow().clone(), text("space"));
    // On a thread of its own, so that a folder on a slow disk blocks nothing else.
    let found = tokio::task::spawn_blocking(move || Space::find(&declared, &home, &wanted)).await;
    let space = with_code(found.map_err(|error| error.to_string())?)?;
    let path = text("path");
    match method {
        "space.list" => {
            let from = number("from").unwrap_or(0);
            let listed = tokio::task::spawn_blocking(move || files::shape(space.list(&path, from)));
            listed.await.map_err(|error| error.to_string())?
        }
        "space.read" => {
            let (offset, limit) = (number("offset").unwrap_or(0), number("limit").unwrap_or(MAX_PIECE_BYTES));
            let read = tokio::task::spawn_blocking(move || files::shape(space.read(&path, offset, limit)));
            read.await.map_err(|error| error.to_string())?
        }
        "space.status" => shape(space.status(session.as_ref()).await),
        "space.diff" => {
            let from = params["from"].as_str().map(str::to_owned);
            shape(space.diff(&DiffQuery { path, from, session }, number("offset").unwrap_or(0)).await)
        }
        "space.log" => {
            let limit = number("limit").unwrap_or(MAX_COMMITS as u64);
            shape(space.log(number("from").unwrap_or(0), limit, session.as_ref()).await)
        }
        _ => Err(format!("{} is not built on this viber", protocol::text::head(method, 64))),
    }
}

fn shape(looked: Result<impl Serialize, SpaceError>) -> Result<Value, String> {
    serde_json::to_value(with_code(looked)?).map_err(|error| error.to_string())
}

fn with_code<T>(result: Result<T, SpaceError>) -> Result<T, String> {
    result.map_err(|error| format!("{}: {error}", error.code()))
}
