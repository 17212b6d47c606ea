//! API tokens: a program's way in, of one team and one role.

use protocol::{Instant, TeamId, TokenId};

use super::accounts::check_name;
use crate::{
    db,
    domain::{By, Role, Token},
    error::{Error, Result},
    hub::{News, Revoked},
    secret::Secret,
    state::Board,
};

/// Makes a token. Its role is at most its maker's. The secret is shown once.
pub async fn create(
    board: &Board,
    team: &TeamId,
    by: &By,
    maker: Role,
    name: &str,
    role: Role,
) -> Result<(Secret, Token)> {
    if role > maker {
        return Err(Error::Forbidden("a token cannot do more than the one who makes it"));
    }
    let now = board.clock.now();
    let token = Token {
        id: TokenId::new(now.0),
        name: check_name(name)?,
        role,
        created_by: by.actor.id().to_owned(),
        created_at: now,
        seen_at: None,
        revoked_at: None,
    };
    let secret = Secret::new("vbt_");
    let (made, hash, team_id, by) = (token.clone(), secret.hash(), team.clone(), by.clone());
    board
        .db
        .write(move |tx| {
            let (token, hash, team, by) = (made.clone(), hash.clone(), team_id.clone(), by.clone());
            Box::pin(async move {
                db::tokens::insert(tx, &team, &token, &hash).await?;
                let (id, detail) = (token.id.as_str(), format!("{} as {}", token.name, token.role));
                db::audit::append(tx, &team, now, &by, "token.create", id, &detail, None, Some(&detail)).await
            })
        })
        .await?;
    board.hub.ring(team, News::Team);
    Ok((secret, token))
}

/// Revokes a token: its calls are refused from now on, and its streams end.
pub async fn revoke(board: &Board, team: &TeamId, by: &By, id: &TokenId) -> Result<()> {
    let (team_id, token, by, now) = (team.clone(), id.clone(), by.clone(), board.clock.now());
    board
        .db
        .write(move |tx| {
            let (team, token, by) = (team_id.clone(), token.clone(), by.clone());
            Box::pin(async move {
                if !db::tokens::revoke(tx, &team, &token, now).await? {
                    return Err(Error::NotFound);
                }
                let id = token.as_str();
                Ok(db::audit::append(tx, &team, now, &by, "token.revoke", id, "", Some(id), None).await?)
            })
        })
        .await?;
    board.guard.forget();
    board.hub.ring(team, News::Revoked(Revoked::Token(id.clone())));
    Ok(())
}

/// The token was used.
pub async fn seen(board: &Board, team: &TeamId, id: &TokenId, before: Instant) -> Result<()> {
    let (team, id, now) = (team.clone(), id.clone(), board.clock.now());
    board
        .db
        .write(move |tx| {
            let (team, id) = (team.clone(), id.clone());
            Box::pin(async move { db::tokens::seen(tx, &team, &id, now, before).await.map_err(Error::from) })
        })
        .await
}
