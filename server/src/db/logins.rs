//! Signed-in devices. The cookie's `sid` names a row here, and the row decides.

use protocol::{Instant, LoginId, OperatorId};

use super::{Error, Row, Tx, operators::operator};
use crate::{
    args,
    domain::{Login, Operator},
};

fn login(row: &Row) -> Result<Login, Error> {
    Ok(Login {
        id: row.parse("login_id")?,
        operator_id: row.parse("operator_id")?,
        user_agent: row.text("user_agent")?,
        address: row.text("address")?,
        created_at: row.instant("created_at")?,
        seen_at: row.instant("seen_at")?,
        expires_at: row.instant("expires_at")?,
        ended_at: row.optional_instant("ended_at")?,
    })
}

/// A login that stands at `now`, of an operator who may sign in.
pub async fn standing(tx: &mut Tx, id: &LoginId, now: Instant) -> Result<Option<(Login, Operator)>, Error> {
    let sql = "SELECT l.login_id, l.operator_id, l.user_agent, l.address, l.created_at, l.seen_at, l.expires_at, \
               l.ended_at, o.email, o.name AS operator_name, o.theme, o.disabled_at, o.created_at AS operator_created_at \
               FROM logins l JOIN operators o ON o.operator_id = l.operator_id \
               WHERE l.login_id = $1 AND l.ended_at IS NULL AND l.expires_at > $2 AND o.disabled_at IS NULL";
    let row = tx.row(sql, args![id, now]).await?;
    row.map(|row| Ok((login(&row)?, operator(&row)?))).transpose()
}

/// The standing logins of an operator, the last seen first.
pub async fn of_operator(tx: &mut Tx, operator: &OperatorId, now: Instant) -> Result<Vec<Login>, Error> {
    let sql = "SELECT login_id, operator_id, user_agent, address, created_at, seen_at, expires_at, ended_at FROM logins \
               WHERE operator_id = $1 AND ended_at IS NULL AND expires_at > $2 ORDER BY seen_at DESC, login_id LIMIT 200";
    tx.rows(sql, args![operator, now]).await?.iter().map(login).collect()
}

/// Whether the account behind an e-mail was ever signed in to from this address.
pub async fn known_address(tx: &mut Tx, email: &str, address: &str) -> Result<bool, Error> {
    let sql = "SELECT l.login_id FROM logins l JOIN operators o ON o.operator_id = l.operator_id \
               WHERE o.email = $1 AND l.address = $2 LIMIT 1";
    Ok(tx.row(sql, args![email, address]).await?.is_some())
}

/// A new login.
pub async fn insert(tx: &mut Tx, login: &Login) -> Result<(), Error> {
    let sql = "INSERT INTO logins (login_id, operator_id, user_agent, address, created_at, seen_at, expires_at) \
               VALUES ($1, $2, $3, $4, $5, $6, $7)";
    let args = args![
        &login.id,
        &login.operator_id,
        &login.user_agent,
        &login.address,
        login.created_at,
        login.seen_at,
        login.expires_at
    ];
    tx.execute(sql, args).await.map(drop)
}

/// It was used: pushes its end away. A second write within the minute changes nothing.
pub async fn seen(tx: &mut Tx, id: &LoginId, now: Instant, before: Instant, expires: Instant) -> Result<(), Error> {
    let sql = "UPDATE logins SET seen_at = $2, expires_at = $4 \
               WHERE login_id = $1 AND ended_at IS NULL AND expires_at > $2 AND seen_at <= $3";
    tx.execute(sql, args![id, now, before, expires]).await.map(drop)
}

/// Ends one login of an operator; says whether it stood.
pub async fn end(tx: &mut Tx, operator: &OperatorId, id: &LoginId, now: Instant) -> Result<bool, Error> {
    let sql = "UPDATE logins SET ended_at = $3 WHERE operator_id = $1 AND login_id = $2 AND ended_at IS NULL";
    Ok(tx.execute(sql, args![operator, id, now]).await? == 1)
}

/// Ends all logins of an operator but one; answers how many.
pub async fn end_others(
    tx: &mut Tx,
    operator: &OperatorId,
    keep: Option<&LoginId>,
    now: Instant,
) -> Result<u64, Error> {
    let sql = "UPDATE logins SET ended_at = $3 WHERE operator_id = $1 AND ended_at IS NULL AND login_id <> $2";
    tx.execute(sql, args![operator, keep.map_or("", LoginId::as_str), now]).await
}

/// Deletes what ended or expired before `before`, at most `limit`.
pub async fn sweep(tx: &mut Tx, before: Instant, limit: u64) -> Result<u64, Error> {
    let sql = "DELETE FROM logins WHERE login_id IN (SELECT login_id FROM logins \
               WHERE expires_at < $1 OR ended_at < $1 LIMIT $2 + 0)";
    tx.execute(sql, args![before, limit]).await
}
