//! Operators: people with an account. They belong to no team; `members` connects them.

use protocol::{Instant, OperatorId};

use crate::{
    args,
    db::{DbError, Row, Tx},
    domain::Operator,
};

/// The operator in a row, its columns named as below.
pub(in crate::db) fn operator(row: &Row) -> Result<Operator, DbError> {
    Ok(Operator {
        id: row.parse("operator_id")?,
        email: row.text("email")?,
        name: row.text("operator_name")?,
        theme: row.text("theme")?,
        disabled_at: row.optional_instant("disabled_at")?,
        created_at: row.instant("operator_created_at")?,
    })
}

/// An operator by id.
pub async fn load(tx: &mut Tx, id: &OperatorId) -> Result<Option<Operator>, DbError> {
    let sql = "SELECT operator_id, email, name AS operator_name, theme, disabled_at, created_at AS operator_created_at \
               FROM operators WHERE operator_id = $1";
    tx.row(sql, args![id]).await?.as_ref().map(operator).transpose()
}

/// An operator by e-mail (lower case), with its password's hash.
pub async fn by_email(tx: &mut Tx, email: &str) -> Result<Option<(Operator, String)>, DbError> {
    let sql = "SELECT operator_id, email, name AS operator_name, theme, disabled_at, created_at AS operator_created_at, \
               password_hash FROM operators WHERE email = $1";
    let row = tx.row(sql, args![email]).await?;
    row.map(|row| Ok((operator(&row)?, row.text("password_hash")?))).transpose()
}

/// A new operator.
pub async fn insert(tx: &mut Tx, operator: &Operator, password_hash: &str) -> Result<(), DbError> {
    let sql = "INSERT INTO operators (operator_id, email, name, password_hash, theme, password_changed_at, created_at) \
               VALUES ($1, $2, $3, $4, $5, $6, $6)";
    let args =
        args![&operator.id, &operator.email, &operator.name, password_hash, &operator.theme, operator.created_at];
    tx.execute(sql, args).await.map(drop)
}

/// Changes an operator's name and theme.
pub async fn update_profile(tx: &mut Tx, id: &OperatorId, name: &str, theme: &str) -> Result<(), DbError> {
    tx.execute("UPDATE operators SET name = $2, theme = $3 WHERE operator_id = $1", args![id, name, theme])
        .await
        .map(drop)
}

/// A new password.
pub async fn set_password(tx: &mut Tx, id: &OperatorId, hash: &str, now: Instant) -> Result<(), DbError> {
    let sql = "UPDATE operators SET password_hash = $2, password_changed_at = $3 WHERE operator_id = $1";
    tx.execute(sql, args![id, hash, now]).await.map(drop)
}

/// Disables an operator, or enables it again.
pub async fn disable(tx: &mut Tx, id: &OperatorId, at: Option<Instant>) -> Result<(), DbError> {
    tx.execute("UPDATE operators SET disabled_at = $2 WHERE operator_id = $1", args![id, at]).await.map(drop)
}
