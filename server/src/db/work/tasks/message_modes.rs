//! When a running task is told what an operator sends with Enter: in one session, and in all others of the team.

use protocol::{InjectionPoint, OperatorId, SessionId};

use crate::{
    args,
    db::{Change, DbError, Row, TeamTx},
};

/// What an operator chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChosenModes {
    /// `None`: as everywhere.
    pub here: Option<InjectionPoint>,
    pub everywhere: InjectionPoint,
}

impl ChosenModes {
    /// What Enter does in the session.
    pub fn used(self) -> InjectionPoint {
        self.here.unwrap_or(self.everywhere)
    }
}

/// What an operator chose for a session and for all others.
pub async fn load(tx: &mut TeamTx<'_>, operator: &OperatorId, session: &SessionId) -> Result<ChosenModes, DbError> {
    let sql = "SELECT b.message_mode AS everywhere, (SELECT m.mode FROM message_modes m WHERE m.team_id = $1 \
               AND m.session_id = $3 AND m.operator_id = $2) AS here FROM members b \
               WHERE b.team_id = $1 AND b.operator_id = $2";
    let Some(row) = tx.row(sql, args![operator, session]).await? else { return Ok(ChosenModes::default()) };
    Ok(ChosenModes { here: mode(&row, "here")?, everywhere: mode(&row, "everywhere")?.unwrap_or_default() })
}

/// Records what an operator chose for one session.
pub async fn choose_here(
    tx: &mut Change<'_>,
    operator: &OperatorId,
    session: &SessionId,
    mode: InjectionPoint,
) -> Result<(), DbError> {
    let sql = "INSERT INTO message_modes (team_id, operator_id, session_id, mode) VALUES ($1, $2, $3, $4) \
               ON CONFLICT (team_id, session_id, operator_id) DO UPDATE SET mode = excluded.mode";
    tx.execute(sql, args![operator, session, mode.as_str()]).await.map(drop)
}

/// Records what an operator chose for all sessions; `session` has no choice of its own any more.
pub async fn choose_everywhere(
    tx: &mut Change<'_>,
    operator: &OperatorId,
    session: &SessionId,
    mode: InjectionPoint,
) -> Result<(), DbError> {
    let sql = "UPDATE members SET message_mode = $3 WHERE team_id = $1 AND operator_id = $2";
    tx.execute(sql, args![operator, mode.as_str()]).await?;
    let sql = "DELETE FROM message_modes WHERE team_id = $1 AND session_id = $3 AND operator_id = $2";
    tx.execute(sql, args![operator, session]).await.map(drop)
}

fn mode(row: &Row, column: &'static str) -> Result<Option<InjectionPoint>, DbError> {
    let word = row.optional_text(column)?;
    let mode = word.map(|word| serde_json::from_value(serde_json::Value::String(word))).transpose();
    mode.map_err(|error| DbError::Broken(error.to_string()))
}
