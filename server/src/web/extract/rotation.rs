//! Judges a request's cookie by its generation, and issues the next one with the answer.
//!
//! A write happens when a cookie is made and when it first comes back, every few minutes of use, and never otherwise.

use std::sync::Arc;

use axum::http::request::Parts;

use super::{address, identity};
use crate::{
    actions::cookies,
    domain::{CookieVerdict, Login, Operator},
    error::Error,
    state::Board,
    web::{cookie::Cookie, layers::Renewal},
};

/// Admits a request with a cookie of this generation, or ends a login whose cookie was copied.
pub async fn admit(
    parts: &Parts,
    board: &Board,
    found: Arc<(Login, Operator)>,
    generation: u64,
) -> Result<Arc<(Login, Operator)>, Error> {
    let mut found = found;
    let mut verdict = found.0.judge(generation, board.clock.now());
    if matches!(verdict, CookieVerdict::Reused | CookieVerdict::Ahead) {
        // The cached login may be two seconds old: a cookie is not refused on that ground.
        board.guard.logins.forget_one(&found.0.id);
        found = identity::login(board, &found.0.id).await?.ok_or(Error::Unauthenticated)?;
        verdict = found.0.judge(generation, board.clock.now());
    }
    let done = match verdict {
        CookieVerdict::Newest { first, stale } => newest(parts, board, &found, first, stale).await,
        CookieVerdict::Unanswered => {
            give(parts, board, &found, found.0.cookie.generation);
            Ok(())
        }
        CookieVerdict::Late => Ok(()),
        CookieVerdict::Ahead => cookies::catch_up(board, &found.0.id, generation).await,
        CookieVerdict::Reused => {
            return match cookies::end_reused(board, &found, generation, &address(parts)).await? {
                true => Err(Error::Unauthenticated),
                // It ended otherwise meanwhile, or the database knows better.
                false => identity::login(board, &found.0.id).await?.ok_or(Error::Unauthenticated),
            };
        }
    };
    if let Err(error) = done {
        // The cookie is good. A database that is away exchanges it later.
        tracing::warn!(%error, login.id = %found.0.id, "a cookie could not be exchanged; it is tried again");
    }
    Ok(found)
}

async fn newest(
    parts: &Parts,
    board: &Board,
    found: &(Login, Operator),
    first: bool,
    stale: bool,
) -> Result<(), Error> {
    if first {
        cookies::confirm(board, &found.0.id, found.0.cookie.generation).await?;
    }
    if stale
        && parts.extensions.get::<Renewal>().is_some()
        && let Some(next) = cookies::rotate(board, &found.0).await?
    {
        give(parts, board, found, next);
    }
    Ok(())
}

/// The answer will carry the cookie of this generation.
fn give(parts: &Parts, board: &Board, (login, operator): &(Login, Operator), generation: u64) {
    if let Some(renewal) = parts.extensions.get::<Renewal>() {
        renewal.set(Cookie::Login.of(board, login, &operator.id, generation));
    }
}
