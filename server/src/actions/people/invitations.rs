//! Invitations: a link that makes its bearer a member, once, within seven days.

use std::sync::Arc;

use protocol::{Instant, InvitationId, TeamId};

use crate::{
    actions::{
        accounts::{self, NewOperator},
        members::Requester,
    },
    db::{self, audit::Entry},
    domain::{Actor, By, Invitation, Login, Operator, Role, Team, input::check_email},
    error::{Error, Result},
    hub::Changed,
    secret::{self, Secret},
    state::Board,
};

/// How long an invitation can be accepted, milliseconds: seven days.
const INVITATION_LIFETIME_MS: i64 = 7 * 24 * 3600 * 1000;

/// Makes an invitation. With an empty `email` anyone with the link may accept it. The secret is returned only here.
pub async fn invite(
    board: &Board,
    team: &TeamId,
    maker: Requester<'_>,
    email: &str,
    role: Role,
) -> Result<(Secret, Invitation)> {
    if role > maker.role {
        return Err(Error::Forbidden("nobody can invite to a role above their own"));
    }
    let email = if email.trim().is_empty() { String::new() } else { check_email(email)? };
    let now = board.clock.now();
    let invitation = Invitation {
        id: InvitationId::new(now.0),
        email,
        role,
        invited_by: maker.by.actor.id().to_owned(),
        created_at: now,
        expires_at: Instant(now.0 + INVITATION_LIFETIME_MS),
        used_at: None,
        revoked_at: None,
    };
    let secret = Secret::new("vbi_");
    let (made, hash) = (invitation.clone(), secret.hash());
    let kept = board.db.change(team, maker.by, now, move |tx| {
        let (row, hash) = (made.clone(), hash.clone());
        Box::pin(async move {
            db::invitations::insert(tx, &row, &hash).await?;
            let (id, detail) = (row.id.as_str(), format!("{} as {}", row.email, row.role));
            let entry = Entry::new("invitation.create", id).detail(&detail).after(detail.as_str());
            db::audit::append(tx, entry).await
        })
    });
    kept.await?;
    board.hub.notify(team, Changed::Team);
    Ok((secret, invitation))
}

/// Withdraws an open invitation.
pub async fn revoke(board: &Board, team: &TeamId, by: &By, id: &InvitationId) -> Result<()> {
    let invitation = id.clone();
    let revoked = board.change(team, by, move |tx| {
        let invitation = invitation.clone();
        Box::pin(async move {
            if !db::invitations::revoke(tx, &invitation).await? {
                return Err(Error::NotFound);
            }
            let id = invitation.as_str();
            Ok(db::audit::append(tx, Entry::new("invitation.revoke", id).before(id)).await?)
        })
    });
    revoked.await?;
    board.hub.notify(team, Changed::Team);
    Ok(())
}

/// The team and invitation behind a valid code.
pub async fn open(board: &Board, code: &str) -> Result<(Team, Invitation)> {
    let hash = secret::hash(code);
    let found = db::invitations::by_hash(&mut *board.db.reader().await?, &hash).await?;
    let now = board.clock.now();
    let good = |i: &Invitation| i.used_at.is_none() && i.revoked_at.is_none() && i.expires_at > now;
    found.filter(|(team, invitation)| good(invitation) && team.suspended_at.is_none()).ok_or(Error::NotFound)
}

/// Accepts an invitation with an existing account.
pub async fn accept(board: &Board, code: &str, operator: &Operator, by: &By) -> Result<Team> {
    let (team, invitation) = open(board, code).await?;
    fits(&invitation, &operator.email)?;
    take(board, team, invitation, (operator.clone(), None), by).await
}

/// Accepts an invitation by making an account, and signs it in.
pub async fn accept_new(
    board: &Board,
    code: &str,
    new: NewOperator,
    address: String,
    user_agent: String,
) -> Result<(Team, Operator, Login)> {
    let (team, invitation) = open(board, code).await?;
    fits(&invitation, &check_email(&new.email)?)?;
    let (operator, hash) = accounts::prepare(board, new).await?;
    let login = accounts::new_login(board.clock.now(), &operator.id, address.clone(), user_agent);
    let actor = Actor::Operator { id: operator.id.clone(), name: operator.name.clone(), login: login.id.clone() };
    let made = (operator.clone(), Some((hash, login.clone())));
    let team = take(board, team, invitation, made, &By { actor, address }).await.map_err(|error| match error {
        Error::Conflict { code: "taken", .. } => {
            Error::unacceptable("email_taken", "There is an account with this address already: sign in instead.")
        }
        other => other,
    })?;
    Ok((team, operator, login))
}

/// An operator, and its password's hash and first login when it is new.
type Taker = (Operator, Option<(String, Login)>);

async fn take(board: &Board, team: Team, invitation: Invitation, taker: Taker, by: &By) -> Result<Team> {
    let all = Arc::new((invitation, taker));
    let taken = board.change(&team.id, by, move |tx| {
        let all = all.clone();
        Box::pin(async move {
            let (invitation, (operator, new)) = &*all;
            db::teams::lock(tx).await?;
            if !db::invitations::take(tx, &invitation.id, &operator.id).await? {
                return Err(Error::NotFound);
            }
            if let Some((hash, login)) = new {
                db::operators::insert(tx.without_team(), operator, hash).await?;
                db::logins::insert(tx.without_team(), login).await?;
            }
            if db::members::load(tx, &operator.id).await?.is_some() {
                return Err(Error::unacceptable("member_already", "You are in this team already."));
            }
            db::members::insert(tx, &operator.id, invitation.role).await?;
            if invitation.role == Role::Owner {
                db::teams::claim(tx).await?;
            }
            let after = format!("{} {}", operator.email, invitation.role);
            let entry = Entry::new("member.join", operator.id.as_str()).detail(&after).after(after.as_str());
            Ok(db::audit::append(tx, entry).await?)
        })
    });
    taken.await?;
    board.guard.forget();
    board.hub.notify(&team.id, Changed::Team);
    Ok(team)
}

fn fits(invitation: &Invitation, email: &str) -> Result<()> {
    if invitation.email.is_empty() || invitation.email == email {
        return Ok(());
    }
    let message = format!("This invitation is for {}. Sign in with that address.", invitation.email);
    Err(Error::unacceptable("other_email", message))
}
