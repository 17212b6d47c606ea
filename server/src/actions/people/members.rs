//! The members of a team and their roles. A team never loses its last owner.

use std::sync::Arc;

use protocol::{OperatorId, TeamId};

use crate::{
    actions::{
        accounts::{self, NewOperator},
        teams,
    },
    db::{self, audit::Entry},
    domain::{
        Actor, By, Operator, Role, Team,
        input::{check_email, is_slug},
    },
    error::{Error, Result},
    hub::{Changed, Revoked},
    state::Board,
};

/// A person to add to a team at the console.
#[derive(Clone, Debug)]
pub struct NewMember {
    /// The team's slug; made when it is new.
    pub team: String,
    pub email: String,
    /// Name and password are used only when the account is new.
    pub name: String,
    pub password: String,
    pub role: Role,
}

/// A person who was added to a team.
#[derive(Clone, Debug)]
pub struct AddedMember {
    pub team: Team,
    pub operator: Operator,
    /// The account was made.
    pub is_new: bool,
}

/// Adds a person to a team; makes the team and the account if they do not exist.
pub async fn add(board: &Board, by: &By, addition: NewMember) -> Result<AddedMember> {
    let NewMember { team, email, name, password, role } = addition;
    let email = check_email(&email)?;
    if !is_slug(&team) {
        return Err(Error::unacceptable("bad_slug", format!("{team:?} cannot be a team's slug")));
    }
    let found = db::operators::by_email(&mut *board.db.reader().await?, &email).await?;
    let (operator, hash) = match found {
        Some((operator, _)) => (operator, None),
        None => {
            let (operator, hash) = accounts::prepare(board, NewOperator { email, name, password }).await?;
            (operator, Some(hash))
        }
    };
    let is_new = hash.is_some();
    let (all, now) = (Arc::new((team, operator.clone(), hash, by.clone())), board.clock.now());
    let done = board.db.write(move |tx| {
        let all = all.clone();
        Box::pin(async move {
            let (slug, operator, hash, by) = &*all;
            let team = match db::teams::by_slug(tx, slug).await? {
                Some(team) => team,
                None => {
                    let team = teams::new(now, slug, slug);
                    db::teams::insert(tx, &team).await?;
                    team
                }
            };
            let tx = &mut tx.change(&team.id, by, now);
            db::teams::lock(tx).await?;
            if let Some(hash) = hash {
                db::operators::insert(tx.without_team(), operator, hash).await?;
            }
            match db::members::load(tx, &operator.id).await? {
                Some(member) if member.role == role => return Ok(team),
                Some(member) => {
                    let message = format!("{} is in the team as {}; use: operator role", operator.email, member.role);
                    return Err(Error::conflict("member_already", message));
                }
                None => db::members::insert(tx, &operator.id, role).await?,
            }
            if role == Role::Owner {
                db::teams::claim(tx).await?;
            }
            let (id, after) = (operator.id.as_str(), format!("{} {role}", operator.email));
            db::audit::append(tx, Entry::new("member.add", id).detail(&after).after(after.as_str())).await?;
            Ok(team)
        })
    });
    let team = done.await?;
    board.guard.forget();
    board.hub.notify(&team.id, Changed::Team);
    Ok(AddedMember { team, operator, is_new })
}

/// Who asks for a change, and their role in the team.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'a> {
    pub by: &'a By,
    pub role: Role,
}

/// Gives a member another role. Only owners make owners or change them.
pub async fn set_role(board: &Board, team: &TeamId, maker: Requester<'_>, who: &OperatorId, role: Role) -> Result<()> {
    change(board, team, maker, who, Some(role)).await
}

/// Removes a member. Everybody may leave; only owners remove owners.
pub async fn remove(board: &Board, team: &TeamId, maker: Requester<'_>, who: &OperatorId) -> Result<()> {
    change(board, team, maker, who, None).await
}

async fn change(
    board: &Board,
    team: &TeamId,
    maker: Requester<'_>,
    who: &OperatorId,
    role: Option<Role>,
) -> Result<()> {
    let (id, let_in_as) = (who.clone(), maker.role);
    let changed = board.change(team, maker.by, move |tx| {
        let id = id.clone();
        Box::pin(async move {
            // The lock comes first: two admins who demote each other wait for one another here.
            db::teams::lock(tx).await?;
            let was = db::members::load(tx, &id).await?.ok_or(Error::NotFound)?;
            let actor = tx.by.actor.clone();
            // The request was admitted with the role of that moment; the role behind the lock decides.
            let maker = match &actor {
                Actor::Operator { id, .. } => {
                    let member = db::members::load(tx, id).await?.ok_or(Error::NotFound)?;
                    let_in_as.min(member.role)
                }
                _ => let_in_as,
            };
            let leaves = role.is_none() && actor.id() == id.as_str();
            if !leaves && maker < Role::Admin {
                return Err(Error::Forbidden("this needs the role admin in the team"));
            }
            if maker < Role::Owner && !leaves && (was.role == Role::Owner || role == Some(Role::Owner)) {
                return Err(Error::Forbidden("only owners change owners"));
            }
            let before = format!("{} {}", was.operator.email, was.role);
            match role {
                Some(role) => db::members::set_role(tx, &id, role).await?,
                None => db::members::delete(tx, &id).await?,
            }
            if was.role == Role::Owner && role != Some(Role::Owner) && db::members::owners(tx).await? == 0 {
                return Err(accounts::last_owner());
            }
            let after = role.map(|role| format!("{} {role}", was.operator.email));
            let action = if role.is_some() { "member.role" } else { "member.remove" };
            let detail = after.as_ref().unwrap_or(&before);
            let entry = Entry::new(action, id.as_str()).detail(detail).before(before.as_str()).after(after.as_deref());
            Ok(db::audit::append(tx, entry).await?)
        })
    });
    changed.await?;
    board.guard.forget();
    board.hub.notify(team, Changed::Revoked(Revoked::Operator(who.clone())));
    board.hub.notify(team, Changed::Team);
    Ok(())
}
