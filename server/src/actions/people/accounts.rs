//! Accounts and the devices they are signed in on.

use std::sync::Arc;

use protocol::{Instant, LoginId, OperatorId, TeamId};

use crate::{
    db::{self, DbError, Tx, audit::Entry},
    domain::{
        By, CookieState, Login, Operator, Role,
        input::{check_email, check_name, fold_email},
    },
    error::{Error, Result},
    guard::{jwt, passwords},
    hub::{Changed, Revoked},
    state::Board,
};

/// How long an unused login stays valid, milliseconds.
pub const LOGIN_IDLE_MS: i64 = jwt::MAX_LIFE_MS;
/// How long a login stays valid however much it is used, milliseconds: 90 days.
pub const MAX_LOGIN_MS: i64 = 90 * 24 * 3600 * 1000;

/// What a person enters to make an account.
#[derive(Clone, Debug)]
pub struct NewOperator {
    pub email: String,
    pub name: String,
    pub password: String,
}

/// An attempt to sign in.
#[derive(Clone, Debug)]
pub struct SignInAttempt {
    pub email: String,
    pub password: String,
    pub address: String,
    pub user_agent: String,
}

/// Signs in. The refusal is the same whether the account is unknown or disabled, or the password is wrong.
pub async fn sign_in(board: &Board, attempt: SignInAttempt) -> Result<(Login, Operator)> {
    if attempt.password.len() > passwords::MAX_PASSWORD_BYTES {
        return Err(too_long());
    }
    let email = fold_email(&attempt.email);
    let (found, known) = {
        let mut tx = board.db.reader().await?;
        let known = db::logins::known_address(&mut tx, &email, &attempt.address).await?;
        (db::operators::by_email(&mut tx, &email).await?, known)
    };
    let charged = board.guard.login_limits.attempt(&email, &attempt.address, known, board.clock.monotonic());
    let charged = charged.map_err(|retry_after| {
        tracing::warn!(client.address = attempt.address, "sign-in throttled");
        Error::Throttled { retry_after }
    })?;
    let usable = found.filter(|(operator, _)| operator.disabled_at.is_none());
    let hash = usable.as_ref().map(|(_, hash)| hash.clone());
    let right = match board.guard.passwords.check(attempt.password, hash).await {
        Ok(right) => right,
        Err(passwords::Busy) => {
            board.guard.login_limits.refund(charged);
            return Err(Error::Throttled { retry_after: 1 });
        }
    };
    let Some((operator, _)) = usable.filter(|_| right) else {
        tracing::info!(client.address = attempt.address, "sign-in refused");
        return Err(Error::unacceptable("bad_credentials", "That did not match. Check the address and the password."));
    };
    board.guard.login_limits.refund(charged);
    let login = new_login(board.clock.now(), &operator.id, attempt.address, attempt.user_agent);
    let row = Arc::new(login.clone());
    let ended = board
        .db
        .write(move |tx| {
            let row = row.clone();
            Box::pin(async move {
                let ended = db::logins::make_room(tx, &row.operator_id, row.created_at).await?;
                db::logins::insert(tx, &row).await?;
                Ok::<_, Error>(ended)
            })
        })
        .await?;
    for id in ended {
        revoked(board, &operator.id, Revoked::Login(id)).await?;
    }
    tracing::info!(operator.id = %operator.id, login.id = %login.id, "signed in");
    Ok((login, operator))
}

/// A new login of an operator, not stored yet.
pub fn new_login(now: Instant, operator: &OperatorId, address: String, user_agent: String) -> Login {
    Login {
        id: LoginId::new(now.0),
        operator_id: operator.clone(),
        user_agent,
        address,
        created_at: now,
        seen_at: now,
        expires_at: Instant(now.0 + LOGIN_IDLE_MS),
        ends_at: Instant(now.0 + MAX_LOGIN_MS),
        ended_at: None,
        cookie: CookieState::first(now),
    }
}

/// Records that a login was used.
pub async fn seen(board: &Board, id: &LoginId, before: Instant) -> Result<()> {
    let (id, now) = (id.clone(), board.clock.now());
    board
        .db
        .write(move |tx| {
            let id = id.clone();
            Box::pin(async move {
                db::logins::seen(tx, &id, now, before, Instant(now.0 + LOGIN_IDLE_MS)).await.map_err(Error::from)
            })
        })
        .await
}

/// Ends one login of an operator: signs this device out, or another one.
pub async fn end_login(board: &Board, operator: &OperatorId, id: &LoginId) -> Result<()> {
    let (who, login, now) = (operator.clone(), id.clone(), board.clock.now());
    let stood = board
        .db
        .write(move |tx| {
            let (who, login) = (who.clone(), login.clone());
            Box::pin(async move { db::logins::end(tx, &who, &login, now).await })
        })
        .await?;
    if !stood {
        return Err(Error::NotFound);
    }
    revoked(board, operator, Revoked::Login(id.clone())).await
}

/// Ends all other logins; returns how many.
pub async fn end_other_logins(board: &Board, operator: &OperatorId, keep: &LoginId) -> Result<u64> {
    let (who, keep, now) = (operator.clone(), keep.clone(), board.clock.now());
    let ended = board
        .db
        .write(move |tx| {
            let (who, keep) = (who.clone(), keep.clone());
            Box::pin(async move { db::logins::end_others(tx, &who, Some(&keep), now).await })
        })
        .await?;
    revoked(board, operator, Revoked::Operator(operator.clone())).await?;
    Ok(ended)
}

/// Changes a password, given the old one. All other devices are signed out.
pub async fn change_password(board: &Board, by: &By, login: &Login, old: String, new: String) -> Result<()> {
    check_password(&new)?;
    if old.len() > passwords::MAX_PASSWORD_BYTES {
        return Err(too_long());
    }
    let found = {
        let mut tx = board.db.reader().await?;
        match db::operators::load(&mut tx, &login.operator_id).await? {
            Some(operator) => db::operators::by_email(&mut tx, &operator.email).await?,
            None => None,
        }
    };
    let (operator, hash) = found.ok_or(Error::Unauthenticated)?;
    let charged = board.guard.login_limits.attempt(&operator.email, &login.address, true, board.clock.monotonic());
    let charged = charged.map_err(|retry_after| Error::Throttled { retry_after })?;
    let right = board.guard.passwords.check(old, Some(hash)).await.map_err(busy)?;
    if !right {
        return Err(Error::unacceptable("bad_credentials", "That is not your present password."));
    }
    board.guard.login_limits.refund(charged);
    set_password(board, by, &login.operator_id, new, Some(&login.id)).await
}

/// Sets an operator's password; ends all logins except `keep`.
pub async fn set_password(board: &Board, by: &By, id: &OperatorId, new: String, keep: Option<&LoginId>) -> Result<()> {
    check_password(&new)?;
    let hash = board.guard.passwords.hash(new).await.map_err(busy)?;
    let (who, keep, by, now) = (id.clone(), keep.cloned(), by.clone(), board.clock.now());
    board
        .db
        .write(move |tx| {
            let (who, keep, by, hash) = (who.clone(), keep.clone(), by.clone(), hash.clone());
            Box::pin(async move {
                db::operators::set_password(tx, &who, &hash, now).await?;
                db::logins::end_others(tx, &who, keep.as_ref(), now).await?;
                note(tx, &who, now, &by, "operator.password").await
            })
        })
        .await?;
    revoked(board, id, Revoked::Operator(id.clone())).await
}

/// Changes name and theme.
pub async fn update_profile(board: &Board, id: &OperatorId, name: &str, theme: &str) -> Result<()> {
    let name = check_name(name)?;
    if !["system", "light", "dark"].contains(&theme) {
        return Err(Error::unacceptable("bad_theme", "The theme is system, light or dark."));
    }
    let (id, theme) = (id.clone(), theme.to_owned());
    board
        .db
        .write(move |tx| {
            let (id, name, theme) = (id.clone(), name.clone(), theme.clone());
            Box::pin(async move { db::operators::update_profile(tx, &id, &name, &theme).await })
        })
        .await?;
    board.guard.forget();
    Ok(())
}

/// Disables an account everywhere, or enables it again. Refused for the last owner of a team.
pub async fn disable(board: &Board, by: &By, id: &OperatorId, disabled: bool) -> Result<()> {
    let (who, by, now) = (id.clone(), by.clone(), board.clock.now());
    board
        .db
        .write(move |tx| {
            let (who, by) = (who.clone(), by.clone());
            Box::pin(async move {
                let teams = db::teams::of_operator(tx, &who).await?;
                for (team, _) in &teams {
                    db::teams::lock(&mut tx.of(&team.id)).await?;
                }
                db::operators::disable(tx, &who, disabled.then_some(now)).await?;
                for (team, role) in &teams {
                    let owns = disabled && *role == Role::Owner;
                    if owns && db::members::owners(&mut tx.of(&team.id)).await? == 0 {
                        return Err(last_owner());
                    }
                }
                if disabled {
                    db::logins::end_others(tx, &who, None, now).await?;
                }
                let action = if disabled { "operator.disable" } else { "operator.enable" };
                note(tx, &who, now, &by, action).await.map_err(Error::from)
            })
        })
        .await?;
    revoked(board, id, Revoked::Operator(id.clone())).await
}

pub(in crate::actions) fn last_owner() -> Error {
    Error::conflict("last_owner", "A team keeps at least one owner. Make somebody else an owner first.")
}

/// Checks what was entered and hashes the password; returns the account to insert.
pub(in crate::actions) async fn prepare(board: &Board, new: NewOperator) -> Result<(Operator, String)> {
    let email = check_email(&new.email)?;
    let name = check_name(&new.name)?;
    check_password(&new.password)?;
    let hash = board.guard.passwords.hash(new.password).await.map_err(busy)?;
    let now = board.clock.now();
    let theme = "system".to_owned();
    Ok((Operator { id: OperatorId::new(now.0), email, name, theme, disabled_at: None, created_at: now }, hash))
}

/// Writes an audit row about an operator into each of its teams.
async fn note(tx: &mut Tx, who: &OperatorId, now: Instant, by: &By, action: &str) -> Result<(), DbError> {
    for (team, _) in db::teams::of_operator(tx, who).await? {
        db::audit::append(&mut tx.change(&team.id, by, now), Entry::new(action, who.as_str())).await?;
    }
    Ok(())
}

/// Empties the caches, and notifies the open streams of the operator's teams.
pub(in crate::actions) async fn revoked(board: &Board, operator: &OperatorId, what: Revoked) -> Result<()> {
    board.guard.forget();
    let teams = db::teams::of_operator(&mut *board.db.reader().await?, operator).await?;
    let teams: Vec<TeamId> = teams.into_iter().map(|(team, _)| team.id).collect();
    for team in teams {
        board.hub.notify(&team, Changed::Revoked(what.clone()));
    }
    Ok(())
}

fn check_password(password: &str) -> Result<()> {
    if password.len() > passwords::MAX_PASSWORD_BYTES {
        return Err(too_long());
    }
    if password.chars().count() < passwords::MIN_PASSWORD_CHARS {
        return Err(Error::unacceptable("short_password", "A password has at least 8 characters."));
    }
    Ok(())
}

fn too_long() -> Error {
    Error::unacceptable("long_password", "A password has at most 1024 bytes.")
}

pub(in crate::actions) fn busy(_: passwords::Busy) -> Error {
    Error::Throttled { retry_after: 1 }
}
