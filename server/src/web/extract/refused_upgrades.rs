//! Sockets that another site tried to open: noted in the audit of every team that the credential opens.

use axum::http::{HeaderMap, header};
use protocol::TeamId;

use super::identity;
use crate::{
    actions::refusals,
    db,
    domain::{Actor, By},
    error::Result,
    guard::jwt,
    state::Board,
    web::cookie::Cookie,
};

/// Longest origin that is noted, bytes.
const MAX_ORIGIN_BYTES: usize = 200;

/// Notes a refused upgrade in every team that its credential opens. Without a valid credential there is only the log
/// line: strangers cannot fill the audit.
pub async fn note(board: &Board, headers: &HeaderMap, route: &str, address: &str) {
    if let Err(error) = noted(board, headers, route, address).await {
        tracing::warn!(%error, "a refused upgrade could not be noted");
    }
}

async fn noted(board: &Board, headers: &HeaderMap, route: &str, address: &str) -> Result<()> {
    let Some((actor, teams)) = concerned(board, headers).await? else { return Ok(()) };
    if !board.guard.login_limits.may_note(actor.id(), board.clock.monotonic()) {
        return Ok(());
    }
    let origins = headers.get_all(header::ORIGIN).iter().map(|origin| String::from_utf8_lossy(origin.as_bytes()));
    let origin = origins.collect::<Vec<_>>().join(", ");
    let (object, detail) =
        (format!("GET {route}"), format!("asked for by {}", protocol::text::head(&origin, MAX_ORIGIN_BYTES)));
    let by = By { actor, address: address.to_owned() };
    for team in teams {
        refusals::note(board, &team, &by, &object, &detail).await?;
    }
    Ok(())
}

/// Who would have been admitted, and the teams they act in.
async fn concerned(board: &Board, headers: &HeaderMap) -> Result<Option<(Actor, Vec<TeamId>)>> {
    if let Some(secret) = identity::bearer(headers).ok().flatten() {
        let hash = crate::secret::hash(secret);
        let found = db::vibers::by_credential(&mut *board.db.reader().await?, &hash).await?;
        if let Some((team, id, name)) = found {
            return Ok(Some((Actor::Viber { id, name }, vec![team])));
        }
        if let Some(found) = identity::token(board, &hash).await? {
            let (team, token) = &*found;
            let actor = Actor::Token { id: token.id.clone(), name: token.name.clone() };
            return Ok(Some((actor, vec![team.id.clone()])));
        }
    }
    let cookie = Cookie::Login.read(headers, &board.config);
    let Some(claims) = cookie.and_then(|token| jwt::read(&board.guard.keys(), token, board.clock.now())) else {
        return Ok(None);
    };
    let Some(login) = identity::login(board, &claims.login).await? else { return Ok(None) };
    let teams = db::teams::of_operator(&mut *board.db.reader().await?, &login.1.id).await?;
    let teams = teams.into_iter().map(|(team, _)| team.id).collect();
    Ok(Some((super::actor(&login), teams)))
}
