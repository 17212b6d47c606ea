//! How the bytes of an artifact are served: as a download, as media without scripts, or in a sandbox. A declared type
//! never becomes a header.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

use crate::actions::artifacts::{OpenedArtifact, RequestedRange};

/// What may run in a download that somebody opens all the same: nothing.
const DOWNLOAD_POLICY: &str = "sandbox; default-src 'none'; frame-ancestors 'none'";
/// HTML and SVG as pictures of themselves: no script, no origin, nothing from elsewhere.
const SANDBOX_POLICY: &str = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; \
                       media-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'self'";
/// Media, shown by the Board's own pages.
const MEDIA_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; media-src 'self'; \
                     object-src 'self'; frame-ancestors 'self'";

/// How the bytes are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedAs {
    Download,
    /// A media type that cannot run scripts.
    Media(&'static str),
    /// HTML or SVG, without scripts and without an origin.
    Sandboxed(&'static str),
}

/// Which bytes a request asks for. More than one range, and what is no range, is answered with everything.
pub fn wanted(headers: &HeaderMap) -> RequestedRange {
    let Some(range) = headers.get(header::RANGE).and_then(|range| range.to_str().ok()) else {
        return RequestedRange::All;
    };
    let Some((from, to)) = range.trim().strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
        return RequestedRange::All;
    };
    let number = |text: &str| text.trim().parse::<u64>().ok();
    match (from.trim(), to.trim()) {
        ("", last) => number(last).map_or(RequestedRange::All, RequestedRange::Last),
        (from, "") => number(from).map_or(RequestedRange::All, RequestedRange::From),
        (from, to) => match (number(from), number(to)) {
            (Some(from), Some(to)) if from <= to => RequestedRange::Span(from, to),
            _ => RequestedRange::All,
        },
    }
}

/// The same for a client that resumes: everything, when `If-Range` names another version than this one.
pub fn resumed(headers: &HeaderMap, version: Option<&str>) -> RequestedRange {
    let condition = headers.get(header::IF_RANGE).map(|value| value.as_bytes());
    match condition {
        Some(condition) if version.is_none_or(|hash| condition != format!("\"{hash}\"").as_bytes()) => {
            RequestedRange::All
        }
        _ => wanted(headers),
    }
}

/// The answer.
pub fn answer(opened: OpenedArtifact, form: ServedAs) -> Response {
    let (range, size) = (opened.range, opened.size);
    let mut headers = HeaderMap::new();
    let mut put = |name: HeaderName, value: String| {
        // Made of numbers, hashes and what was cleaned: always fit for a header.
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    };
    let (kind, policy) = match form {
        ServedAs::Download => ("application/octet-stream", DOWNLOAD_POLICY),
        ServedAs::Media(kind) => (kind, MEDIA_POLICY),
        ServedAs::Sandboxed(kind) => (kind, SANDBOX_POLICY),
    };
    put(header::CONTENT_TYPE, kind.to_owned());
    put(header::CONTENT_SECURITY_POLICY, policy.to_owned());
    put(header::CONTENT_DISPOSITION, disposition(form == ServedAs::Download, &opened.artifact.file_name()));
    put(header::CONTENT_LENGTH, (range.end - range.start).to_string());
    put(header::ACCEPT_RANGES, "bytes".to_owned());
    put(header::CACHE_CONTROL, "private, no-cache".to_owned());
    if let Some(sha256) = &opened.artifact.sha256 {
        put(header::ETAG, format!("\"{sha256}\""));
    }
    let mut status = StatusCode::OK;
    if range != (0..size) {
        put(header::CONTENT_RANGE, format!("bytes {}-{}/{size}", range.start, range.end - 1));
        status = StatusCode::PARTIAL_CONTENT;
    }
    (status, headers, Body::from_stream(opened.bytes)).into_response()
}

/// As in RFC 6266: a name for old readers, and the whole one.
pub fn disposition(download: bool, name: &str) -> String {
    let form = if download { "attachment" } else { "inline" };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ' ' | '(' | ')' | '+');
    let ascii: String = name.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'~');
    let whole: String =
        name.bytes().map(|b| if bare(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect();
    format!("{form}; filename=\"{ascii}\"; filename*=UTF-8''{whole}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).expect("a value"))).collect()
    }

    #[test]
    fn ranges_are_read_as_they_are_written() {
        let range = |text| wanted(&headers(&[(header::RANGE, text)]));
        assert_eq!(range("bytes=0-0"), RequestedRange::Span(0, 0));
        assert_eq!(range("bytes=5-"), RequestedRange::From(5));
        assert_eq!(range("bytes=-5"), RequestedRange::Last(5));
        for odd in ["bytes=5-4", "bytes=a-b", "items=0-1", "bytes=0-1,3-4", "bytes=-", "bytes=99999999999999999999-"] {
            assert_eq!(range(odd), RequestedRange::All, "{odd}");
        }
        let resume = |tag| resumed(&headers(&[(header::RANGE, "bytes=5-"), (header::IF_RANGE, tag)]), Some("ab"));
        assert_eq!((resume("\"ab\""), resume("\"cd\"")), (RequestedRange::From(5), RequestedRange::All));
    }

    #[test]
    fn a_name_cannot_leave_its_header() {
        assert_eq!(disposition(true, "a b.txt"), "attachment; filename=\"a b.txt\"; filename*=UTF-8''a%20b.txt");
        let odd = disposition(false, "ä\"\r\nX: y;.md");
        assert_eq!(odd, "inline; filename=\"____X_ y_.md\"; filename*=UTF-8''%C3%A4%22%0D%0AX%3A%20y%3B.md");
    }
}
