//! The Board's requests about the workspace: `workspace.list {path, from}`, `workspace.read {path, offset, limit}`,
//! `workspace.search {query}`, and `workspace.hashes {paths}`, with which a reconnecting Board learns what changed in
//! the meantime.

use std::collections::BTreeMap;

use protocol::limits::{MAX_ENTRIES, MAX_PIECE_BYTES};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    mesh::Mesh,
    workspace::{Workspace, WorkspaceError},
};

/// Answers a request about files.
pub async fn answer(mesh: &Mesh, method: &str, params: &Value) -> Result<Value, String> {
    let (workspace, method, params) = (mesh.workspace(), method.to_owned(), params.clone());
    tokio::task::spawn_blocking(move || look(&workspace, &method, &params)).await.map_err(|error| error.to_string())?
}

fn look(workspace: &Workspace, method: &str, params: &Value) -> Result<Value, String> {
    let path = params["path"].as_str().unwrap_or_default();
    let number = |name: &str| params[name].as_u64();
    match method {
        "workspace.list" => shape(workspace.list(path, number("from").unwrap_or(0))),
        "workspace.read" => {
            shape(workspace.read(path, number("offset").unwrap_or(0), number("limit").unwrap_or(MAX_PIECE_BYTES)))
        }
        "workspace.search" => shape(workspace.search(params["query"].as_str().unwrap_or_default())),
        _ => {
            let paths = params["paths"].as_array().map(Vec::as_slice).unwrap_or_default();
            let paths = paths.iter().filter_map(Value::as_str).take(MAX_ENTRIES);
            Ok(json!({ "files": paths.map(|path| (path, version(workspace, path))).collect::<BTreeMap<_, _>>() }))
        }
    }
}

/// `{hash, size, mtime}`, or null if there is no such file.
fn version(workspace: &Workspace, path: &str) -> Value {
    match workspace.read(path, 0, 0) {
        Ok(piece) => json!({ "hash": piece.hash, "size": piece.size, "mtime": piece.mtime }),
        Err(_) => Value::Null,
    }
}

pub(super) fn shape(looked: Result<impl Serialize, WorkspaceError>) -> Result<Value, String> {
    let found = looked.map_err(|refused| format!("{}: {refused}", refused.code()))?;
    serde_json::to_value(found).map_err(|error| error.to_string())
}
