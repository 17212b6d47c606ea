//! The files a page needs, embedded in the binary and served for ever under a name that changes with the content.
//!
//! Owns `/static/{hash}/{name}`. Refuses everything that is not in its list.

mod compressed;

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
use compressed::{CompressedForms, ContentCoding};

/// The style sheet's layers, in the order in which they are joined.
const STYLE_SHEETS: &[&str] = &[
    include_str!("../../../static/css/tokens.css"),
    include_str!("../../../static/css/base.css"),
    include_str!("../../../static/css/frame.css"),
    include_str!("../../../static/css/parts.css"),
    include_str!("../../../static/css/rail.css"),
    include_str!("../../../static/css/talk.css"),
    include_str!("../../../static/css/asks.css"),
    include_str!("../../../static/css/pane.css"),
    include_str!("../../../static/css/context.css"),
    include_str!("../../../static/css/pages.css"),
    include_str!("../../../static/css/files.css"),
    include_str!("../../../static/css/gate.css"),
    include_str!("../../../static/css/settings.css"),
    include_str!("../../../static/css/artifacts.css"),
    include_str!("../../../static/css/cards.css"),
    include_str!("../../../static/css/composer.css"),
    include_str!("../../../static/css/skills.css"),
    include_str!("../../../static/css/playbooks.css"),
    include_str!("../../../static/css/children.css"),
];

/// One file, its address and what a browser is told about it.
struct Asset {
    name: &'static str,
    /// `/static/{hash}/{name}`.
    path: String,
    hash: String,
    media: &'static str,
    body: Bytes,
    compressed: CompressedForms,
}

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    let text = "text/javascript; charset=utf-8";
    vec![
        asset("board.css", "text/css; charset=utf-8", Bytes::from(style_sheet())),
        asset("icons.svg", "image/svg+xml", Bytes::from_static(include_bytes!("../../../static/icons.svg"))),
        asset("favicon.svg", "image/svg+xml", Bytes::from_static(include_bytes!("../../../static/favicon.svg"))),
        asset("board.js", text, Bytes::from_static(include_bytes!("../../../static/board.js"))),
        asset("palette.js", text, Bytes::from_static(include_bytes!("../../../static/palette.js"))),
        asset("changes.js", text, Bytes::from_static(include_bytes!("../../../static/changes.js"))),
        asset("cards.js", text, Bytes::from_static(include_bytes!("../../../static/cards.js"))),
        asset("composer.js", text, Bytes::from_static(include_bytes!("../../../static/composer.js"))),
        asset("bus.js", text, Bytes::from_static(include_bytes!("../../../static/bus.js"))),
        asset("queue.js", text, Bytes::from_static(include_bytes!("../../../static/queue.js"))),
        asset("pane.js", text, Bytes::from_static(include_bytes!("../../../static/pane.js"))),
        asset("live.js", text, Bytes::from_static(include_bytes!("../../../static/live.js"))),
        asset("htmx.js", text, Bytes::from_static(include_bytes!(env!("HTMX_JS")))),
    ]
});

/// The layers without their comments and indentation, which no browser needs.
fn style_sheet() -> String {
    let whole = STYLE_SHEETS.concat();
    let mut pieces = whole.split("/*");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        text.push_str(piece.split_once("*/").map_or("", |(_, rest)| rest));
    }
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

fn asset(name: &'static str, media: &'static str, body: Bytes) -> Asset {
    let hash: String = Sha256::digest(&body).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Asset { name, path: format!("/static/{hash}/{name}"), hash, media, body, compressed: CompressedForms::default() }
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
    let coding = ContentCoding::accepted(&headers).filter(|_| CompressedForms::are_worth_it(&asset.body));
    // Each form is other bytes, so it has another tag.
    let etag = match coding {
        Some(coding) => format!("\"{}-{}\"", asset.hash, coding.word()),
        None => format!("\"{}\"", asset.hash),
    };
    let always = [
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (header::ETAG, etag.as_str()),
        (header::VARY, "accept-encoding"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    if headers.get(header::IF_NONE_MATCH).is_some_and(|value| value.as_bytes() == etag.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, always).into_response();
    }
    let media = (header::CONTENT_TYPE, asset.media);
    match coding {
        // The layer around all routes leaves alone what is compressed already.
        Some(coding) => {
            let body = asset.compressed.of(&asset.body, coding).await;
            (always, [media, (header::CONTENT_ENCODING, coding.word())], body).into_response()
        }
        None => (always, [media], asset.body.clone()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn every_file_has_an_address_of_its_own() {
        for asset in ASSETS.iter() {
            assert_eq!(path(asset.name), asset.path);
            assert!(!asset.body.is_empty(), "{} is empty", asset.name);
        }
        assert_eq!(path("no-such-file"), "/static/missing");
    }

    #[tokio::test]
    async fn a_file_has_a_form_for_each_coding_and_a_tag_for_each_form() {
        let sheet = ASSETS.iter().find(|asset| asset.name == "board.css").expect("a style sheet");
        let ask = |accepted: &'static str, known: Option<HeaderValue>| {
            let accepted = (header::ACCEPT_ENCODING, HeaderValue::from_static(accepted));
            let known = known.map(|etag| (header::IF_NONE_MATCH, etag));
            let headers = std::iter::once(accepted).chain(known).collect();
            serve(Path((sheet.hash.clone(), sheet.name.to_owned())), headers)
        };
        let mut etags = Vec::new();
        for (accepted, coding) in [("gzip, br", Some("br")), ("gzip", Some("gzip")), ("identity", None)] {
            let answer = ask(accepted, None).await;
            let (head, body) = answer.into_parts();
            assert_eq!(
                head.headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes),
                coding.map(str::as_bytes)
            );
            assert_eq!(head.headers[header::VARY], "accept-encoding");
            let bytes = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
            assert_eq!(bytes.len() < sheet.body.len() / 2, coding.is_some(), "{accepted}: {} bytes", bytes.len());
            let etag = head.headers[header::ETAG].clone();
            assert!(!etags.contains(&etag), "{etag:?}");
            assert_eq!(ask(accepted, Some(etag.clone())).await.status(), StatusCode::NOT_MODIFIED);
            etags.push(etag);
        }
    }

    /// The policy allows no inline style and no remote file; the sheet must not need them.
    #[test]
    fn the_sheet_keeps_to_the_policy() {
        let sheet = style_sheet();
        assert!(sheet.lines().count() > 500 && !sheet.contains("/*") && !sheet.contains("*/"), "comments stay here");
        assert!(!sheet.contains("url("), "the sheet loads something");
        assert!(!sheet.contains("@import"));
        assert_eq!(sheet.matches('{').count(), sheet.matches('}').count(), "unbalanced braces");
    }
}
