//! The identifiers in an address. A malformed one is answered like an unknown one: with 404.

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

/// Everything that the route names after its team, in order and well formed.
#[derive(Debug)]
pub struct Ids<T>(pub T);

impl<S: Send + Sync, T: PathParams> FromRequestParts<S> for Ids<T> {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Rejection> {
        let path = parts.extract::<RawPathParams>().await.map_err(|_| Error::NotFound)?;
        let named = path.iter().filter(|(name, _)| *name != "team").map(|(_, text)| text);
        Ok(Self(T::parse(named).ok_or(Error::NotFound)?))
    }
}

/// What several texts of an address are read as.
pub trait PathParams: Sized {
    /// `None` when one of them is malformed or missing.
    fn parse<'p>(named: impl Iterator<Item = &'p str>) -> Option<Self>;
}

impl<A: FromStr, B: FromStr> PathParams for (A, B) {
    fn parse<'p>(mut named: impl Iterator<Item = &'p str>) -> Option<Self> {
        Some((read(&mut named)?, read(&mut named)?))
    }
}

impl<A: FromStr, B: FromStr, C: FromStr> PathParams for (A, B, C) {
    fn parse<'p>(mut named: impl Iterator<Item = &'p str>) -> Option<Self> {
        Some((read(&mut named)?, read(&mut named)?, read(&mut named)?))
    }
}

fn read<'p, T: FromStr>(named: &mut impl Iterator<Item = &'p str>) -> Option<T> {
    named.next()?.parse().ok()
}
