//! Rotating the cookies of a login, and ending the login when an old cookie is reused (`domain::login` decides when).

use protocol::{Instant, LoginId};

use crate::{
    actions::accounts,
    db::{self, DbError, Tx, TxFuture, audit::Entry},
    domain::{Actor, By, Login, Operator},
    error::{Error, Result},
    hub::Revoked,
    state::Board,
};

/// Makes the next cookie of a login; returns its generation, or that of one another request just made. `None`: the login
/// has ended.
pub async fn rotate(board: &Board, login: &Login) -> Result<Option<u64>> {
    let (id, generation, now) = (login.id.clone(), login.cookie.generation, board.clock.now());
    let rotated = board.db.write(move |tx| {
        let id = id.clone();
        Box::pin(async move { db::logins::rotate(tx, &id, generation, now).await })
    });
    let rotated = rotated.await?;
    crate::fault::at("cookies::rotated");
    board.guard.logins.forget_one(&login.id);
    Ok(rotated)
}

/// The cookie of this generation came back.
pub async fn confirm(board: &Board, login: &LoginId, generation: u64) -> Result<()> {
    change(board, login, generation, |tx, id, generation, now| Box::pin(db::logins::confirm(tx, id, generation, now)))
        .await
}

/// Moves the row of a login, which comes from a backup, up to a genuine newer cookie of this generation.
pub async fn catch_up(board: &Board, login: &LoginId, generation: u64) -> Result<()> {
    change(board, login, generation, |tx, id, generation, now| Box::pin(db::logins::catch_up(tx, id, generation, now)))
        .await
}

/// Ends a login everywhere when the cookie of this generation is a copy that somebody kept, with a row in the audit of each
/// of its owner's teams. Returns whether it was ended.
pub async fn end_reused(
    board: &Board,
    (login, operator): &(Login, Operator),
    generation: u64,
    address: &str,
) -> Result<bool> {
    let (id, who, now) = (login.id.clone(), operator.id.clone(), board.clock.now());
    let actor = Actor::Operator { id: who.clone(), name: operator.name.clone(), login: id.clone() };
    let by = By { actor, address: address.to_owned() };
    let detail = format!(
        "cookie {generation} was used from {address} after cookie {} had taken its place; signed in from {}",
        login.cookie.seen, login.address
    );
    let ended = board.db.write(move |tx| {
        let (id, who, by, detail) = (id.clone(), who.clone(), by.clone(), detail.clone());
        Box::pin(async move {
            if !db::logins::end_reused(tx, &id, generation, now).await? {
                return Ok(false);
            }
            for (team, _) in db::teams::of_operator(tx, &who).await? {
                let entry = Entry::new("login.reused", id.as_str()).detail(&detail);
                db::audit::append(&mut tx.change(&team.id, &by, now), entry).await?;
            }
            Ok::<_, Error>(true)
        })
    });
    let ended = ended.await?;
    if ended {
        tracing::warn!(operator.id = %operator.id, login.id = %login.id, client.address = address, "a cookie was used again after it had been replaced: the login is ended");
        accounts::revoked(board, &operator.id, Revoked::Login(login.id.clone())).await?;
    }
    Ok(ended)
}

async fn change(
    board: &Board,
    login: &LoginId,
    generation: u64,
    work: for<'a> fn(&'a mut Tx, &'a LoginId, u64, Instant) -> TxFuture<'a, Result<(), DbError>>,
) -> Result<()> {
    let (id, now) = (login.clone(), board.clock.now());
    let changed = board.db.write(move |tx| {
        let id = id.clone();
        Box::pin(async move { work(tx, &id, generation, now).await })
    });
    changed.await?;
    board.guard.logins.forget_one(login);
    Ok(())
}
