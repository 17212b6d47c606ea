//! Invitations: a link that makes its bearer a member, once, within seven days.

use std::sync::Arc;

use protocol::{Instant, InvitationId, TeamId};

use super::accounts::{self, NewOperator};
use crate::{
    db,
    domain::{Actor, By, Invitation, Login, Operator, Role, Team},
    error::{Error, Result},
    hub::News,
    secret::{self, Secret},
    state::Board,
};

/// An invitation stands so long: seven days, milliseconds.
const LIFE_MS: i64 = 7 * 24 * 3600 * 1000;

/// Makes an invitation. `email` may be empty: then anyone with the link may take it. The secret is shown once.
pub async fn invite(
    board: &Board,
    team: &TeamId,
    by: &By,
    maker: Role,
    email: &str,
    role: Role,
) -> Result<(Secret, Invitation)> {
    if role > maker {
        return Err(Error::Forbidden("nobody can invite to a role above their own"));
    }
    let email = if email.trim().is_empty() { String::new() } else { accounts::check_email(email)? };
    let now = board.clock.now();
    let invitation = Invitation {
        id: InvitationId::new(now.0),
        email,
        role,
        invited_by: by.actor.id().to_owned(),
        created_at: now,
        expires_at: Instant(now.0 + LIFE_MS),
        used_at: None,
        revoked_at: None,
    };
    let secret = Secret::new("vbi_");
    let (made, hash, team_id, by) = (invitation.clone(), secret.hash(), team.clone(), by.clone());
    board
        .db
        .write(move |tx| {
            let (row, hash, team, by) = (made.clone(), hash.clone(), team_id.clone(), by.clone());
            Box::pin(async move {
                db::invitations::insert(tx, &team, &row, &hash).await?;
                let (id, detail) = (row.id.as_str(), format!("{} as {}", row.email, row.role));
                db::audit::append(tx, &team, now, &by, "invitation.create", id, &detail, None, Some(&detail)).await
            })
        })
        .await?;
    board.hub.ring(team, News::Team);
    Ok((secret, invitation))
}

/// Withdraws an open invitation.
pub async fn revoke(board: &Board, team: &TeamId, by: &By, id: &InvitationId) -> Result<()> {
    let (team_id, invitation, by, now) = (team.clone(), id.clone(), by.clone(), board.clock.now());
    board
        .db
        .write(move |tx| {
            let (team, invitation, by) = (team_id.clone(), invitation.clone(), by.clone());
            Box::pin(async move {
                if !db::invitations::revoke(tx, &team, &invitation, now).await? {
                    return Err(Error::NotFound);
                }
                let id = invitation.as_str();
                Ok(db::audit::append(tx, &team, now, &by, "invitation.revoke", id, "", Some(id), None).await?)
            })
        })
        .await?;
    board.hub.ring(team, News::Team);
    Ok(())
}

/// The team and invitation behind a code that works now.
pub async fn open(board: &Board, code: &str) -> Result<(Team, Invitation)> {
    let hash = secret::hash(code);
    let found = board.db.read(move |tx| Box::pin(async move { db::invitations::by_hash(tx, &hash).await })).await?;
    let now = board.clock.now();
    let good = |i: &Invitation| i.used_at.is_none() && i.revoked_at.is_none() && i.expires_at > now;
    found.filter(|(team, invitation)| good(invitation) && team.suspended_at.is_none()).ok_or(Error::NotFound)
}

/// Takes an invitation with an account that exists.
pub async fn accept(board: &Board, code: &str, operator: &Operator, by: &By) -> Result<Team> {
    let (team, invitation) = open(board, code).await?;
    fits(&invitation, &operator.email)?;
    take(board, team, invitation, Arc::new((operator.clone(), None)), by.clone()).await
}

/// Takes an invitation by making an account, and signs it in.
pub async fn accept_new(
    board: &Board,
    code: &str,
    new: NewOperator,
    address: String,
    user_agent: String,
) -> Result<(Team, Operator, Login)> {
    let (team, invitation) = open(board, code).await?;
    fits(&invitation, &accounts::check_email(&new.email)?)?;
    let (operator, hash) = accounts::prepare(board, new).await?;
    let login = accounts::new_login(board.clock.now(), &operator.id, address.clone(), user_agent);
    let actor = Actor::Operator { id: operator.id.clone(), name: operator.name.clone(), login: login.id.clone() };
    let made = Arc::new((operator.clone(), Some((hash, login.clone()))));
    let team = take(board, team, invitation, made, By { actor, address }).await.map_err(|error| match error {
        Error::Conflict { code: "taken", .. } => {
            Error::unacceptable("email_taken", "There is an account with this address already: sign in instead.")
        }
        other => other,
    })?;
    Ok((team, operator, login))
}

/// An operator, and its password's hash and first login when it is new.
type Taker = Arc<(Operator, Option<(String, Login)>)>;

async fn take(board: &Board, team: Team, invitation: Invitation, taker: Taker, by: By) -> Result<Team> {
    let now = board.clock.now();
    let all = Arc::new((team, invitation, taker, by));
    let kept = all.clone();
    board
        .db
        .write(move |tx| {
            let all = all.clone();
            Box::pin(async move {
                let (team, invitation, taker, by) = &*all;
                let (operator, new) = &**taker;
                db::teams::lock(tx, &team.id).await?;
                if !db::invitations::take(tx, &team.id, &invitation.id, &operator.id, now).await? {
                    return Err(Error::NotFound);
                }
                if let Some((hash, login)) = new {
                    db::operators::insert(tx, operator, hash).await?;
                    db::logins::insert(tx, login).await?;
                }
                if db::members::load(tx, &team.id, &operator.id).await?.is_some() {
                    return Err(Error::unacceptable("member_already", "You are in this team already."));
                }
                db::members::insert(tx, &team.id, &operator.id, invitation.role, now).await?;
                if invitation.role == Role::Owner {
                    db::teams::claim(tx, &team.id, now).await?;
                }
                let after = format!("{} {}", operator.email, invitation.role);
                let (action, id) = ("member.join", operator.id.as_str());
                Ok(db::audit::append(tx, &team.id, now, by, action, id, &after, None, Some(&after)).await?)
            })
        })
        .await?;
    board.guard.forget();
    board.hub.ring(&kept.0.id, News::Team);
    Ok(kept.0.clone())
}

fn fits(invitation: &Invitation, email: &str) -> Result<()> {
    if invitation.email.is_empty() || invitation.email == email {
        return Ok(());
    }
    let message = format!("This invitation is for {}. Sign in with that address.", invitation.email);
    Err(Error::unacceptable("other_email", message))
}
