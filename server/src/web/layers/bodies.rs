//! Bodies that are read whole, within the limit. Forms may not contain U+0000, which PostgreSQL cannot store.

use std::error::Error as _;

use axum::{
    body::{Body, Bytes, to_bytes},
    extract::{FromRequest, Request},
    http::header,
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::limits::MAX_BODY_BYTES;
use crate::{error::Error, web::respond::Rejection};

/// A whole body. One that is too large is refused as such, however its length was announced.
#[derive(Debug)]
pub struct WholeBody(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for WholeBody {
    type Rejection = Rejection;

    async fn from_request(request: Request, _: &S) -> Result<Self, Rejection> {
        Ok(Self(read(request.into_body(), MAX_BODY_BYTES).await?))
    }
}

/// Reads a whole body of at most `max_bytes`.
pub async fn read(body: Body, max_bytes: usize) -> Result<Bytes, Error> {
    to_bytes(body, max_bytes).await.map_err(|error| {
        // The limit's own error is wrapped in those of the layers that the body passed.
        let mut cause = error.source();
        let mut words = error.to_string();
        while let Some(next) = cause {
            words = next.to_string();
            cause = next.source();
        }
        if words.contains("length limit") {
            Error::TooLarge("the body is larger than 1 MiB")
        } else {
            Error::Malformed("the body ended early or arrived too slowly".into())
        }
    })
}

/// Reads a form's body whole, as every handler does, and refuses U+0000 in it.
pub async fn forms(request: Request, next: Next) -> Response {
    let media = request.headers().get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or("");
    if !media.trim_start().to_ascii_lowercase().starts_with("application/x-www-form-urlencoded") {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    match read(body, MAX_BODY_BYTES).await {
        Ok(bytes) if has_nul(&bytes) => {
            Rejection(Error::unacceptable("nul", "Text may not contain U+0000.")).into_response()
        }
        Ok(bytes) => next.run(Request::from_parts(parts, Body::from(bytes))).await,
        Err(error) => Rejection(error).into_response(),
    }
}

fn has_nul(form: &[u8]) -> bool {
    form.contains(&0) || form.windows(3).any(|three| three == b"%00")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nul_is_seen_in_either_spelling() {
        assert!(has_nul(b"a=b%00c") && has_nul(b"a=b\0c") && has_nul(b"%00=b"));
        // An escaped percent sign before two digits is none.
        assert!(!has_nul(b"a=b%2500c") && !has_nul(b"a=%0") && !has_nul(b""));
    }

    #[tokio::test]
    async fn a_body_that_is_too_large_is_called_so() {
        assert_eq!(
            read(Body::from(vec![b'x'; MAX_BODY_BYTES]), MAX_BODY_BYTES).await.expect("within the limit").len(),
            MAX_BODY_BYTES
        );
        let error = read(Body::from(vec![b'x'; MAX_BODY_BYTES + 1]), MAX_BODY_BYTES).await.expect_err("beyond it");
        assert!(matches!(error, Error::TooLarge(_)), "{error:?}");
        let broken = Body::from_stream(futures_util::stream::iter([Err::<Bytes, _>(std::io::Error::other("gone"))]));
        assert!(matches!(read(broken, MAX_BODY_BYTES).await.expect_err("broken off"), Error::Malformed(_)));
    }
}
