//! Query strings, parsed strictly: an unknown or repeated key is refused by name.

use axum::{
    extract::{FromRequestParts, Query},
    http::request::Parts,
};
use serde::de::DeserializeOwned;

use crate::{error::Error, web::Rejection};

/// What stands behind the `?`. Every `T` refuses unknown fields.
#[derive(Debug)]
pub struct StrictQuery<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for StrictQuery<T> {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Rejection> {
        let read = Query::<T>::try_from_uri(&parts.uri);
        let Query(asked) = read.map_err(|error| {
            // axum puts a sentence of its own before what was wrong.
            let text = error.body_text();
            let why = text.split_once(": ").map_or(text.as_str(), |(_, why)| why);
            Error::unacceptable("bad_query", why)
        })?;
        if parts.uri.query().is_some_and(|query| query.contains("%00")) {
            return Err(Error::unacceptable("nul", "text may not contain U+0000").into());
        }
        Ok(Self(asked))
    }
}
