//! Who is in a team, as what. A team never loses its last owner.

use protocol::{OperatorId, TeamId};

use crate::{
    db,
    domain::{By, Role},
    error::{Error, Result},
    hub::{News, Revoked},
    state::Board,
};

/// Gives a member another role. `maker`: only owners make owners or change them.
pub async fn set_role(board: &Board, team: &TeamId, by: &By, maker: Role, who: &OperatorId, role: Role) -> Result<()> {
    change(board, team, by, maker, who, Some(role)).await
}

/// Takes a member out. Everybody may leave; only owners take owners out.
pub async fn remove(board: &Board, team: &TeamId, by: &By, maker: Role, who: &OperatorId) -> Result<()> {
    change(board, team, by, maker, who, None).await
}

async fn change(
    board: &Board,
    team: &TeamId,
    by: &By,
    maker: Role,
    who: &OperatorId,
    role: Option<Role>,
) -> Result<()> {
    let (team_id, by, id, now) = (team.clone(), by.clone(), who.clone(), board.clock.now());
    board
        .db
        .write(move |tx| {
            let (team, by, id) = (team_id.clone(), by.clone(), id.clone());
            Box::pin(async move {
                // First of all: two admins who demote each other wait for one another here.
                db::teams::lock(tx, &team).await?;
                let was = db::members::load(tx, &team, &id).await?.ok_or(Error::NotFound)?;
                let leaves = role.is_none() && by.actor.id() == id.as_str();
                if !leaves && maker < Role::Admin {
                    return Err(Error::Forbidden("this needs the role admin in the team"));
                }
                if maker < Role::Owner && !leaves && (was.role == Role::Owner || role == Some(Role::Owner)) {
                    return Err(Error::Forbidden("only owners change owners"));
                }
                let before = format!("{} {}", was.operator.email, was.role);
                match role {
                    Some(role) => db::members::set_role(tx, &team, &id, role).await?,
                    None => db::members::delete(tx, &team, &id).await?,
                }
                if was.role == Role::Owner && role != Some(Role::Owner) && db::members::owners(tx, &team).await? == 0 {
                    return Err(last_owner());
                }
                let after = role.map(|role| format!("{} {role}", was.operator.email));
                let action = if role.is_some() { "member.role" } else { "member.remove" };
                let detail = after.clone().unwrap_or_else(|| before.clone());
                let (before, after) = (Some(before.as_str()), after.as_deref());
                Ok(db::audit::append(tx, &team, now, &by, action, id.as_str(), &detail, before, after).await?)
            })
        })
        .await?;
    board.guard.forget();
    board.hub.ring(team, News::Revoked(Revoked::Operator(who.clone())));
    board.hub.ring(team, News::Team);
    Ok(())
}

pub(super) fn last_owner() -> Error {
    Error::conflict("last_owner", "A team keeps at least one owner. Make somebody else an owner first.")
}
