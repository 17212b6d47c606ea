//! Signed-in devices. The cookie's `sid` names a row here, and the row decides.

use protocol::{Instant, LoginId, OperatorId, TeamId};

use crate::{
    args,
    db::{DbError, Row, Tx, change_limits::DELETE_BATCH_ROWS, operators::operator},
    domain::{
        CookieState, Login, Operator,
        login::{GRACE_MS, MAX_LOGINS},
    },
};

fn login(row: &Row) -> Result<Login, DbError> {
    Ok(Login {
        id: row.parse("login_id")?,
        operator_id: row.parse("operator_id")?,
        user_agent: row.text("user_agent")?,
        address: row.text("address")?,
        created_at: row.instant("created_at")?,
        seen_at: row.instant("seen_at")?,
        expires_at: row.instant("expires_at")?,
        ends_at: row.instant("ends_at")?,
        cookie: CookieState {
            generation: row.count("generation")?,
            rotated_at: row.instant("rotated_at")?,
            seen: row.count("seen_generation")?,
            confirmed_at: row.instant("confirmed_at")?,
        },
        ended_at: row.optional_instant("ended_at")?,
    })
}

/// A login that is valid at `now`, of an enabled operator.
pub async fn load_valid(tx: &mut Tx, id: &LoginId, now: Instant) -> Result<Option<(Login, Operator)>, DbError> {
    let sql = "SELECT l.login_id, l.operator_id, l.user_agent, l.address, l.created_at, l.seen_at, l.expires_at, \
               l.ended_at, l.ends_at, l.generation, l.rotated_at, l.seen_generation, l.confirmed_at, o.email, o.name AS operator_name, o.theme, o.disabled_at, o.created_at AS operator_created_at \
               FROM logins l JOIN operators o ON o.operator_id = l.operator_id \
               WHERE l.login_id = $1 AND l.ended_at IS NULL AND l.expires_at > $2 AND l.ends_at > $2 AND o.disabled_at IS NULL";
    let row = tx.row(sql, args![id, now]).await?;
    row.map(|row| Ok((login(&row)?, operator(&row)?))).transpose()
}

/// The valid logins of an operator, the last seen first.
pub async fn of_operator(tx: &mut Tx, operator: &OperatorId, now: Instant) -> Result<Vec<Login>, DbError> {
    let sql = "SELECT login_id, operator_id, user_agent, address, created_at, seen_at, expires_at, ended_at, ends_at, \
               generation, rotated_at, seen_generation, confirmed_at FROM logins WHERE operator_id = $1 \
               AND ended_at IS NULL AND expires_at > $2 AND ends_at > $2 ORDER BY seen_at DESC, login_id LIMIT 200";
    tx.rows(sql, args![operator, now]).await?.iter().map(login).collect()
}

/// Whether the account behind an e-mail was ever signed in to from this address.
pub async fn known_address(tx: &mut Tx, email: &str, address: &str) -> Result<bool, DbError> {
    let sql = "SELECT l.login_id FROM logins l JOIN operators o ON o.operator_id = l.operator_id \
               WHERE o.email = $1 AND l.address = $2 LIMIT 1";
    Ok(tx.row(sql, args![email, address]).await?.is_some())
}

/// Makes room for one more login of an operator: ends those that were used longest ago; returns them.
pub async fn make_room(tx: &mut Tx, operator: &OperatorId, now: Instant) -> Result<Vec<LoginId>, DbError> {
    let sql = "SELECT login_id FROM logins WHERE operator_id = $1 AND ended_at IS NULL \
               ORDER BY seen_at DESC, login_id DESC LIMIT $2 + 0 OFFSET $3 + 0";
    let rows = tx.rows(sql, args![operator, DELETE_BATCH_ROWS, MAX_LOGINS - 1]).await?;
    let found: Vec<LoginId> = rows.iter().map(|row| row.parse("login_id")).collect::<Result<_, _>>()?;
    for id in &found {
        let sql = "UPDATE logins SET ended_at = $2, end_reason = 'crowded' WHERE login_id = $1 AND ended_at IS NULL";
        tx.execute(sql, args![id, now]).await?;
    }
    Ok(found)
}

/// A new login.
pub async fn insert(tx: &mut Tx, login: &Login) -> Result<(), DbError> {
    let sql = "INSERT INTO logins (login_id, operator_id, user_agent, address, created_at, seen_at, expires_at, ends_at, \
               rotated_at, confirmed_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    let args = args![
        &login.id,
        &login.operator_id,
        &login.user_agent,
        &login.address,
        login.created_at,
        login.seen_at,
        login.expires_at,
        login.ends_at,
        login.cookie.rotated_at,
        login.cookie.confirmed_at
    ];
    tx.execute(sql, args).await.map(drop)
}

/// Records that it was used, which extends it, but not beyond `ends_at`. A second write within the minute changes nothing.
pub async fn seen(tx: &mut Tx, id: &LoginId, now: Instant, before: Instant, expires: Instant) -> Result<(), DbError> {
    let sql = "UPDATE logins SET seen_at = $2, expires_at = CASE WHEN ends_at < $4 THEN ends_at ELSE $4 END \
               WHERE login_id = $1 AND ended_at IS NULL AND expires_at > $2 AND seen_at <= $3";
    tx.execute(sql, args![id, now, before, expires]).await.map(drop)
}

/// Makes the cookie after `generation` the newest, unless another request just did; returns the newest generation.
pub async fn rotate(tx: &mut Tx, id: &LoginId, generation: u64, now: Instant) -> Result<Option<u64>, DbError> {
    let sql = "UPDATE logins SET generation = $2 + 1, rotated_at = $3 \
               WHERE login_id = $1 AND generation = $2 AND ended_at IS NULL";
    tx.execute(sql, args![id, generation, now]).await?;
    let sql = "SELECT generation FROM logins WHERE login_id = $1 AND ended_at IS NULL";
    tx.row(sql, args![id]).await?.map(|row| row.count("generation")).transpose()
}

/// Records that a cookie came back: older ones are no longer good.
pub async fn confirm(tx: &mut Tx, id: &LoginId, generation: u64, now: Instant) -> Result<(), DbError> {
    let sql = "UPDATE logins SET seen_generation = $2, confirmed_at = $3 \
               WHERE login_id = $1 AND seen_generation < $2 AND generation >= $2 AND ended_at IS NULL";
    tx.execute(sql, args![id, generation, now]).await.map(drop)
}

/// Moves a row from a backup up to a genuine newer cookie.
pub async fn catch_up(tx: &mut Tx, id: &LoginId, generation: u64, now: Instant) -> Result<(), DbError> {
    let sql = "UPDATE logins SET generation = $2, seen_generation = $2, rotated_at = $3, confirmed_at = $3 \
               WHERE login_id = $1 AND generation < $2 AND ended_at IS NULL";
    tx.execute(sql, args![id, generation, now]).await.map(drop)
}

/// Ends a login whose old cookie was used after a newer one had come back; returns whether that was so and it was valid.
pub async fn end_reused(tx: &mut Tx, id: &LoginId, generation: u64, now: Instant) -> Result<bool, DbError> {
    let sql = "UPDATE logins SET ended_at = $3, end_reason = 'reused' WHERE login_id = $1 AND ended_at IS NULL \
               AND seen_generation > $2 AND confirmed_at <= $4";
    Ok(tx.execute(sql, args![id, generation, now, Instant(now.0 - GRACE_MS)]).await? == 1)
}

/// Why a login was ended by someone other than its owner.
pub async fn end_reason(tx: &mut Tx, id: &LoginId) -> Result<Option<String>, DbError> {
    let sql = "SELECT end_reason FROM logins WHERE login_id = $1 AND ended_at IS NOT NULL";
    tx.row(sql, args![id]).await?.map_or(Ok(None), |row| row.optional_text("end_reason"))
}

/// Ends up to `limit` valid logins of a team's members, or of everybody; returns how many.
pub async fn revoke_some(tx: &mut Tx, team: Option<&TeamId>, limit: u64, now: Instant) -> Result<u64, DbError> {
    let sql = "UPDATE logins SET ended_at = $2, end_reason = 'revoked' WHERE login_id IN (SELECT login_id FROM logins \
               WHERE ended_at IS NULL AND ($1 = '' OR operator_id IN (SELECT operator_id FROM members WHERE team_id = $1)) \
               LIMIT $3 + 0)";
    tx.execute(sql, args![team.map_or("", TeamId::as_str), now, limit]).await
}

/// How many valid logins a team's members have, or everybody, and how many people that is.
pub async fn count(tx: &mut Tx, team: Option<&TeamId>, now: Instant) -> Result<(u64, u64), DbError> {
    let sql = "SELECT COUNT(*) AS logins, COUNT(DISTINCT operator_id) AS people FROM logins \
               WHERE ended_at IS NULL AND expires_at > $2 AND ends_at > $2 \
               AND ($1 = '' OR operator_id IN (SELECT operator_id FROM members WHERE team_id = $1))";
    let row = tx.row(sql, args![team.map_or("", TeamId::as_str), now]).await?;
    row.map_or(Ok((0, 0)), |row| Ok((row.count("logins")?, row.count("people")?)))
}

/// Ends one login of an operator; returns whether it was valid.
pub async fn end(tx: &mut Tx, operator: &OperatorId, id: &LoginId, now: Instant) -> Result<bool, DbError> {
    let sql = "UPDATE logins SET ended_at = $3 WHERE operator_id = $1 AND login_id = $2 AND ended_at IS NULL";
    Ok(tx.execute(sql, args![operator, id, now]).await? == 1)
}

/// Ends all logins of an operator except one; returns how many.
pub async fn end_others(
    tx: &mut Tx,
    operator: &OperatorId,
    keep: Option<&LoginId>,
    now: Instant,
) -> Result<u64, DbError> {
    let sql = "UPDATE logins SET ended_at = $3 WHERE operator_id = $1 AND ended_at IS NULL AND login_id <> $2";
    tx.execute(sql, args![operator, keep.map_or("", LoginId::as_str), now]).await
}

/// Deletes what ended or expired before `before`, at most `limit`.
pub async fn sweep(tx: &mut Tx, before: Instant, limit: u64) -> Result<u64, DbError> {
    let sql = "DELETE FROM logins WHERE login_id IN (SELECT login_id FROM logins \
               WHERE expires_at < $1 OR ended_at < $1 LIMIT $2 + 0)";
    tx.execute(sql, args![before, limit]).await
}
