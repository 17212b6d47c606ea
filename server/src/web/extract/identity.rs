//! Reading credentials: a cookie's login, a token, a team's slug. What was read is cached for two seconds.

use std::sync::Arc;

use axum::{
    RequestPartsExt as _,
    extract::RawPathParams,
    http::{HeaderMap, header, request::Parts},
};
use protocol::{Instant, LoginId, OperatorId};

use crate::{
    actions::accounts,
    db,
    domain::{Login, Operator, Role, Team, Token},
    error::Error,
    guard::jwt,
    state::Board,
    web::cookie::Cookie,
};

use super::rotation;

/// How often the use of a credential is noted, milliseconds.
const USE_NOTED_EVERY_MS: i64 = 60_000;

/// The secret of an `Authorization: Bearer` header. Another scheme, or two headers, is an invalid credential.
pub fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Error> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    match (all.next(), all.next()) {
        (None, _) => Ok(None),
        (Some(one), None) => {
            let text = one.to_str().map_err(|_| Error::Unauthenticated)?;
            let (scheme, secret) = text.split_once(' ').ok_or(Error::Unauthenticated)?;
            if scheme.eq_ignore_ascii_case("bearer") { Ok(Some(secret.trim())) } else { Err(Error::Unauthenticated) }
        }
        _ => Err(Error::Unauthenticated),
    }
}

/// The login of a request's cookie; adds the next cookie to the answer when it is due.
pub async fn signed_in(parts: &Parts, board: &Board) -> Result<Arc<(Login, Operator)>, Error> {
    let token = Cookie::Login.read(&parts.headers, &board.config).ok_or(Error::Unauthenticated)?;
    let claims = jwt::read(&board.guard.keys(), token, board.clock.now()).ok_or(Error::Unauthenticated)?;
    let found = login(board, &claims.login).await?.ok_or(Error::Unauthenticated)?;
    if found.1.id != claims.operator {
        return Err(Error::Unauthenticated);
    }
    rotation::admit(parts, board, found, claims.generation).await
}

/// Why the login of a request's genuine cookie was ended, if not by its owner.
pub async fn why_ended(board: &Board, headers: &HeaderMap) -> Result<Option<String>, Error> {
    let claims = Cookie::Login.read(headers, &board.config);
    let claims = claims.and_then(|token| jwt::read(&board.guard.keys(), token, board.clock.now()));
    let Some(claims) = claims else { return Ok(None) };
    Ok(db::logins::end_reason(&mut *board.db.reader().await?, &claims.login).await?)
}

/// A valid login. Notes its use, at most once a minute.
pub async fn login(board: &Board, id: &LoginId) -> Result<Option<Arc<(Login, Operator)>>, Error> {
    let cache = &board.guard.logins;
    let now = board.clock.now();
    let begun = match cache.look(id, board.clock.monotonic()) {
        // Its end may have come since it was read.
        Ok(found) => return Ok(found.filter(|found| found.0.is_valid(now))),
        Err(begun) => begun,
    };
    let found = db::logins::load_valid(&mut *board.db.reader().await?, id, now).await?;
    let found = found.map(Arc::new);
    cache.keep(begun, id.clone(), board.clock.monotonic(), found.clone());
    if let Some(found) = &found
        && now.0 - found.0.seen_at.0 >= USE_NOTED_EVERY_MS
    {
        let (note, id) = (board.clone(), id.clone());
        board.shutdown.spawn(async move {
            if let Err(error) = accounts::seen(&note, &id, Instant(now.0 - USE_NOTED_EVERY_MS)).await {
                tracing::warn!(%error, "the use of a login could not be noted");
            }
        });
    }
    Ok(found)
}

/// The team of this slug, if the operator is in it.
pub async fn member(board: &Board, operator: &OperatorId, slug: &str) -> Result<Option<Arc<(Team, Role)>>, Error> {
    let cache = &board.guard.members;
    let key = (operator.clone(), slug.to_owned());
    let begun = match cache.look(&key, board.clock.monotonic()) {
        Ok(found) => return Ok(found),
        Err(begun) => begun,
    };
    let found = db::members::of_slug(&mut *board.db.reader().await?, operator, slug).await?;
    let found = found.map(Arc::new);
    cache.keep(begun, key, board.clock.monotonic(), found.clone());
    Ok(found)
}

/// The token with this hash. Notes its use, at most once a minute.
pub async fn token(board: &Board, hash: &str) -> Result<Option<Arc<(Team, Token)>>, Error> {
    let cache = &board.guard.tokens;
    let key = hash.to_owned();
    let begun = match cache.look(&key, board.clock.monotonic()) {
        Ok(found) => return Ok(found),
        Err(begun) => begun,
    };
    let found = db::tokens::by_hash(&mut *board.db.reader().await?, hash).await?;
    let found = found.map(Arc::new);
    cache.keep(begun, key, board.clock.monotonic(), found.clone());
    let now = board.clock.now();
    if let Some(found) = found.as_deref()
        && found.1.seen_at.is_none_or(|seen| now.0 - seen.0 >= USE_NOTED_EVERY_MS)
    {
        let (note, team, id) = (board.clone(), found.0.id.clone(), found.1.id.clone());
        board.shutdown.spawn(async move {
            if let Err(error) =
                crate::actions::tokens::seen(&note, &team, &id, Instant(now.0 - USE_NOTED_EVERY_MS)).await
            {
                tracing::warn!(%error, "the use of a token could not be noted");
            }
        });
    }
    Ok(found)
}

/// The team a request names: `{team}` of a page's path, `X-Team` of an API call.
pub async fn slug(parts: &mut Parts) -> Result<String, Error> {
    let text = if parts.uri.path().starts_with("/api/") {
        let header =
            parts.headers.get("x-team").ok_or_else(|| Error::Malformed("the header X-Team is required".into()))?;
        header.to_str().map_err(|_| Error::NotFound)?.to_owned()
    } else {
        // No route answers to an unknown path, which then has no parameters.
        let unrouted =
            parts.uri.path().strip_prefix("/t/").map(|rest| rest.split('/').next().unwrap_or(rest).to_owned());
        match parts.extract::<RawPathParams>().await {
            Ok(path) => path.iter().find(|(name, _)| *name == "team").map(|(_, value)| value.to_owned()).or(unrouted),
            Err(_) => unrouted,
        }
        .ok_or(Error::NotFound)?
    };
    if crate::domain::input::is_slug(&text) { Ok(text) } else { Err(Error::NotFound) }
}
