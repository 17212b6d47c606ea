//! API tokens: each gives a program access to one team, with one role.

use protocol::{Instant, OperatorId, TeamId, TokenId};

use crate::{
    actions::members::Requester,
    db::{self, Change, audit::Entry},
    domain::{By, Role, Token, input::check_name},
    error::{Error, Result},
    hub::{Changed, Revoked},
    secret::Secret,
    state::Board,
};

/// How many tokens that made each other are followed to the person behind them.
const MAX_TOKEN_MAKERS: usize = 8;

/// Makes a token. Its role is at most that of its maker. The secret is returned only here.
pub async fn create(
    board: &Board,
    team: &TeamId,
    maker: Requester<'_>,
    name: &str,
    role: Role,
) -> Result<(Secret, Token)> {
    if role > maker.role {
        return Err(Error::Forbidden("a token cannot do more than the one who makes it"));
    }
    let now = board.clock.now();
    let token = Token {
        id: TokenId::new(now.0),
        name: check_name(name)?,
        role,
        created_by: maker.by.actor.id().to_owned(),
        created_at: now,
        seen_at: None,
        revoked_at: None,
    };
    let secret = Secret::new("vbt_");
    let (made, hash) = (token.clone(), secret.hash());
    let kept = board.db.change(team, maker.by, now, move |tx| {
        let (token, hash) = (made.clone(), hash.clone());
        Box::pin(async move {
            db::tokens::insert(tx, &token, &hash).await?;
            let (id, detail) = (token.id.as_str(), format!("{} as {}", token.name, token.role));
            db::audit::append(tx, Entry::new("token.create", id).detail(&detail).after(detail.as_str())).await
        })
    });
    kept.await?;
    board.hub.notify(team, Changed::Team);
    Ok((secret, token))
}

/// Revokes a token: its calls are refused from now on, and its streams end.
pub async fn revoke(board: &Board, team: &TeamId, by: &By, id: &TokenId) -> Result<()> {
    let token = id.clone();
    let revoked = board.change(team, by, move |tx| {
        let token = token.clone();
        Box::pin(async move {
            if !db::tokens::revoke(tx, &token).await? {
                return Err(Error::NotFound);
            }
            let id = token.as_str();
            Ok(db::audit::append(tx, Entry::new("token.revoke", id).before(id)).await?)
        })
    });
    revoked.await?;
    board.guard.forget();
    board.hub.notify(team, Changed::Revoked(Revoked::Token(id.clone())));
    Ok(())
}

/// Records that a token was used.
pub async fn seen(board: &Board, team: &TeamId, id: &TokenId, before: Instant) -> Result<()> {
    let id = id.clone();
    let written = board.change(team, &By::board(), move |tx| {
        let id = id.clone();
        Box::pin(async move { db::tokens::seen(tx, &id, before).await })
    });
    Ok(written.await?)
}

/// Whether whoever acts is one of these, with whatever token.
pub(in crate::actions) async fn is_one_of(tx: &mut Change<'_>, others: &[String]) -> Result<bool> {
    let actor = tx.by.actor.id().to_owned();
    let actor = person_behind(tx, &actor).await?;
    for other in others {
        if person_behind(tx, other).await? == actor {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The operator who made a token, or whoever acts by themselves.
async fn person_behind(tx: &mut Change<'_>, actor: &str) -> Result<String> {
    let mut actor = actor.to_owned();
    for _ in 0..MAX_TOKEN_MAKERS {
        let Ok(token) = actor.parse::<TokenId>() else { break };
        let maker = db::tokens::load(tx, &token).await?.map(|token| token.created_by);
        // The console is nobody in particular.
        let is_somebody = |maker: &String| maker.parse::<OperatorId>().is_ok() || maker.parse::<TokenId>().is_ok();
        let Some(maker) = maker.filter(is_somebody) else { break };
        actor = maker;
    }
    Ok(actor)
}
