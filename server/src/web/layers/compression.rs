//! Compressed answers: pages, fragments, JSON and files of text. Streams and the bytes of artifacts are never compressed:
//! an event must leave at once, and a download keeps its length.

use axum::{
    extract::Request,
    http::{Extensions, HeaderMap, HeaderValue, StatusCode, Version, header},
    middleware::Next,
    response::Response,
};
use tower_http::{
    CompressionLevel,
    compression::{
        CompressionLayer,
        predicate::{And, Predicate as _, SizeAbove},
    },
};

/// Smaller answers gain nothing, bytes.
const MIN_COMPRESSED_BYTES: u64 = 1024;
const COMPRESSED_MEDIA_TYPES: &[&str] =
    &["text/html", "application/json", "text/css", "text/javascript", "text/markdown", "image/svg+xml"];

type Condition = fn(StatusCode, Version, &HeaderMap, &Extensions) -> bool;

/// Compresses with what the client accepts, at the level that costs least.
pub(super) fn layer() -> CompressionLayer<And<SizeAbove, Condition>> {
    let condition: Condition = |_, _, headers, _| is_compressed(headers);
    CompressionLayer::new()
        .quality(CompressionLevel::Fastest)
        .compress_when(SizeAbove::new(MIN_COMPRESSED_BYTES).and(condition))
}

/// Compresses nothing for a request that another site caused. It could choose a part of the page, and whoever hears the
/// line would learn from the lengths whether the rest contains the same (BREACH).
pub(super) async fn own_site_only(mut request: Request, next: Next) -> Response {
    let foreign = |site: &HeaderValue| !matches!(site.as_bytes(), b"same-origin" | b"none");
    if request.headers().get_all("sec-fetch-site").iter().any(foreign) {
        request.headers_mut().remove(header::ACCEPT_ENCODING);
    }
    next.run(request).await
}

fn is_compressed(headers: &HeaderMap) -> bool {
    let media = headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim_end();
    let is_download = headers.contains_key(header::ACCEPT_RANGES) || headers.contains_key(header::CONTENT_DISPOSITION);
    COMPRESSED_MEDIA_TYPES.contains(&media) && !is_download
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_compressed_and_streams_and_downloads_are_not() {
        let answer = |lines: &[(header::HeaderName, &'static str)]| {
            is_compressed(&lines.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect())
        };
        assert!(answer(&[(header::CONTENT_TYPE, "text/html; charset=utf-8")]));
        assert!(answer(&[(header::CONTENT_TYPE, "application/json")]));
        assert!(!answer(&[(header::CONTENT_TYPE, "text/event-stream")]) && !answer(&[]));
        let ranges = (header::ACCEPT_RANGES, "bytes");
        assert!(!answer(&[(header::CONTENT_TYPE, "text/html"), ranges]));
    }
}
