//! The files a page needs, embedded in the binary and served for ever under a name that changes with the content.
//!
//! Owns `/static/{hash}/{name}`. Refuses everything that is not in its list.

use std::sync::LazyLock;

use axum::{
    Router,
    extract::Path,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::state::Board;

/// The style sheet's layers, in the order in which they are joined.
const STYLE_SHEETS: &[&str] = &[
    include_str!("../../../static/css/tokens.css"),
    include_str!("../../../static/css/base.css"),
    include_str!("../../../static/css/frame.css"),
    include_str!("../../../static/css/parts.css"),
    include_str!("../../../static/css/rail.css"),
    include_str!("../../../static/css/talk.css"),
    include_str!("../../../static/css/pane.css"),
    include_str!("../../../static/css/pages.css"),
    include_str!("../../../static/css/files.css"),
    include_str!("../../../static/css/gate.css"),
    include_str!("../../../static/css/settings.css"),
    include_str!("../../../static/css/artifacts.css"),
];

/// One file, its address and what a browser is told about it.
struct Asset {
    name: &'static str,
    /// `/static/{hash}/{name}`.
    path: String,
    etag: String,
    media: &'static str,
    body: Bytes,
}

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    let text = "text/javascript; charset=utf-8";
    vec![
        asset("board.css", "text/css; charset=utf-8", Bytes::from(STYLE_SHEETS.concat())),
        asset("icons.svg", "image/svg+xml", Bytes::from_static(include_bytes!("../../../static/icons.svg"))),
        asset("favicon.svg", "image/svg+xml", Bytes::from_static(include_bytes!("../../../static/favicon.svg"))),
        asset("board.js", text, Bytes::from_static(include_bytes!("../../../static/board.js"))),
        asset("live.js", text, Bytes::from_static(include_bytes!("../../../static/live.js"))),
        asset("htmx.js", text, Bytes::from_static(include_bytes!(env!("HTMX_JS")))),
    ]
});

fn asset(name: &'static str, media: &'static str, body: Bytes) -> Asset {
    let hash: String = Sha256::digest(&body).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Asset { name, path: format!("/static/{hash}/{name}"), etag: format!("\"{hash}\""), media, body }
}

/// The address of an embedded file. Asking for one that does not exist is our mistake and shows as a missing file.
pub fn path(name: &str) -> &'static str {
    ASSETS.iter().find(|asset| asset.name == name).map_or("/static/missing", |asset| &asset.path)
}

/// The routes of the embedded files: open to everybody.
pub fn routes() -> Router<Board> {
    Router::new().route("/static/{hash}/{name}", get(serve))
}

async fn serve(Path((hash, name)): Path<(String, String)>, headers: HeaderMap) -> Response {
    let path = format!("/static/{hash}/{name}");
    let Some(asset) = ASSETS.iter().find(|asset| asset.path == path) else {
        return (StatusCode::NOT_FOUND, "not found").into_response();
    };
    let always = [
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (header::ETAG, asset.etag.as_str()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    if headers.get(header::IF_NONE_MATCH).is_some_and(|value| value.as_bytes() == asset.etag.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, always).into_response();
    }
    (always, [(header::CONTENT_TYPE, asset.media)], asset.body.clone()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_an_address_of_its_own() {
        for asset in ASSETS.iter() {
            assert_eq!(path(asset.name), asset.path);
            assert!(!asset.body.is_empty(), "{} is empty", asset.name);
        }
        assert_eq!(path("no-such-file"), "/static/missing");
    }

    /// The policy allows no inline style and no remote file; the sheet must not need them.
    #[test]
    fn the_sheet_keeps_to_the_policy() {
        let sheet = STYLE_SHEETS.concat();
        assert!(!sheet.contains("url("), "the sheet loads something");
        assert!(!sheet.contains("@import"));
        assert_eq!(sheet.matches('{').count(), sheet.matches('}').count(), "unbalanced braces");
    }
}
