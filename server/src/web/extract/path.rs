//! What an address names. What is no identifier names nothing: 404, like anything unknown.

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

/// All that the route names behind its team, in its order and well formed.
#[derive(Debug)]
pub struct Ids<T>(pub T);

impl<S: Send + Sync, T: Several> FromRequestParts<S> for Ids<T> {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Rejection> {
        let path = parts.extract::<RawPathParams>().await.map_err(|_| Error::NotFound)?;
        let named = path.iter().filter(|(name, _)| *name != "team").map(|(_, text)| text);
        Ok(Self(T::parse(named).ok_or(Error::NotFound)?))
    }
}

/// What several texts of an address are read as.
pub trait Several: Sized {
    /// `None` when one of them is not well formed, or not there.
    fn parse<'p>(named: impl Iterator<Item = &'p str>) -> Option<Self>;
}

impl<A: FromStr, B: FromStr> Several for (A, B) {
    fn parse<'p>(mut named: impl Iterator<Item = &'p str>) -> Option<Self> {
        Some((read(&mut named)?, read(&mut named)?))
    }
}

impl<A: FromStr, B: FromStr, C: FromStr> Several for (A, B, C) {
    fn parse<'p>(mut named: impl Iterator<Item = &'p str>) -> Option<Self> {
        Some((read(&mut named)?, read(&mut named)?, read(&mut named)?))
    }
}

fn read<'p, T: FromStr>(named: &mut impl Iterator<Item = &'p str>) -> Option<T> {
    named.next()?.parse().ok()
}
