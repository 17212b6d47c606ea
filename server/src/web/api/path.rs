//! The `{id}` of an address. What is no identifier names nothing: 404, like anything unknown.

use std::str::FromStr;

use axum::{
    RequestPartsExt,
    extract::{FromRequestParts, RawPathParams},
    http::request::Parts,
};

use crate::{error::Error, web::Rejection};

/// The `{id}` of the route, well formed.
#[derive(Debug)]
pub struct Id<T>(pub T);

impl<S: Send + Sync, T: FromStr> FromRequestParts<S> for Id<T> {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Rejection> {
        let path = parts.extract::<RawPathParams>().await.map_err(|_| Error::NotFound)?;
        let id = path.iter().find(|(name, _)| *name == "id").and_then(|(_, text)| text.parse().ok());
        Ok(Self(id.ok_or(Error::NotFound)?))
    }
}
