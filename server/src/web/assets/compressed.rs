//! Compressed forms of an embedded file: each is made once, when the first client asks for it, and kept.

use std::convert::Infallible;

use axum::{
    body::{Body, to_bytes},
    extract::Request,
    http::{HeaderMap, header},
    response::Response,
};
use bytes::Bytes;
use tokio::sync::OnceCell;
use tower::{Layer as _, ServiceExt as _};
use tower_http::{CompressionLevel, compression::CompressionLayer};

/// Smaller than by the fastest level by a fifth: worth it once, too slow for each answer.
const COMPRESSION_LEVEL: CompressionLevel = CompressionLevel::Precise(9);
/// Smaller files gain nothing, bytes.
const MIN_COMPRESSED_BYTES: usize = 1024;

/// A way to compress that every browser understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentCoding {
    Brotli,
    Gzip,
}

impl ContentCoding {
    /// Its name in `Content-Encoding`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    /// The best one that a client accepts.
    pub fn accepted(headers: &HeaderMap) -> Option<Self> {
        [Self::Brotli, Self::Gzip].into_iter().find(|coding| coding.is_accepted(headers))
    }

    fn is_accepted(self, headers: &HeaderMap) -> bool {
        let lines = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
        lines.flat_map(|line| line.split(',')).any(|coding| {
            let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
            let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
            name.trim().eq_ignore_ascii_case(self.word()) && weight.is_none_or(|weight| weight > 0.0)
        })
    }
}

/// The forms of one file.
#[derive(Debug, Default)]
pub struct CompressedForms {
    brotli: OnceCell<Bytes>,
    gzip: OnceCell<Bytes>,
}

impl CompressedForms {
    /// Whether a file is worth compressing.
    pub fn are_worth_it(body: &Bytes) -> bool {
        body.len() >= MIN_COMPRESSED_BYTES
    }

    /// The file `body`, compressed.
    pub async fn of(&self, body: &Bytes, coding: ContentCoding) -> Bytes {
        let form = match coding {
            ContentCoding::Brotli => &self.brotli,
            ContentCoding::Gzip => &self.gzip,
        };
        form.get_or_init(|| compress(body.clone(), coding)).await.clone()
    }
}

/// Compresses as the layer around all routes does, at another level.
async fn compress(body: Bytes, coding: ContentCoding) -> Bytes {
    let plain = tower::service_fn(move |_: Request| {
        let body = body.clone();
        async move { Ok::<_, Infallible>(Response::new(Body::from(body))) }
    });
    let mut asked = Request::new(Body::empty());
    asked.headers_mut().insert(header::ACCEPT_ENCODING, header::HeaderValue::from_static(coding.word()));
    let Ok(answer) = CompressionLayer::new().quality(COMPRESSION_LEVEL).layer(plain).oneshot(asked).await;
    to_bytes(Body::new(answer.into_body()), usize::MAX).await.expect("bytes in memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_coding_is_chosen_of_those_that_are_accepted() {
        let accepted = |said: &'static str| {
            let headers = [(header::ACCEPT_ENCODING, header::HeaderValue::from_static(said))].into_iter().collect();
            ContentCoding::accepted(&headers)
        };
        assert_eq!(accepted("gzip, deflate, br, zstd"), Some(ContentCoding::Brotli));
        assert_eq!(accepted("GZIP;q=0.5, br;q=0"), Some(ContentCoding::Gzip));
        assert_eq!(accepted("identity, deflate"), None);
        assert_eq!(ContentCoding::accepted(&HeaderMap::new()), None);
    }
}
