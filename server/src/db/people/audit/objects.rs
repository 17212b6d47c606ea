//! What rows of the audit are about, by name: where it still exists and belongs to the team.

use crate::{
    args,
    db::{DbError, TeamTx},
};

/// Something that a row is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditObject {
    /// The row.
    pub seq: u64,
    /// `session`, `viber`, `former viber`, `member`, `token`, `task` (then the session's id) or `artifact`.
    pub kind: String,
    pub id: String,
    pub name: String,
}

/// The rows of the same page as [`super::page`].
macro_rules! rows {
    ($columns:literal, $($joins:tt)+) => {
        concat!(
            "SELECT a.seq, ", $columns, " FROM (SELECT seq, object FROM audit WHERE team_id = $1 AND seq > 0 AND seq < $2 \
             ORDER BY seq DESC LIMIT $3 + 0) a ", $($joins)+
        )
    };
}

/// What the rows of a page are about, all in one query.
pub async fn objects(tx: &mut TeamTx<'_>, before: Option<u64>, limit: u64) -> Result<Vec<AuditObject>, DbError> {
    let sql = concat!(
        rows!(
            "'session' AS kind, s.session_id AS id, s.title AS name",
            "JOIN sessions s ON s.team_id = $1 AND s.session_id = a.object AND s.deleted_at IS NULL"
        ),
        " UNION ALL ",
        rows!(
            "CASE WHEN v.revoked_at IS NULL THEN 'viber' ELSE 'former viber' END, v.viber_id, v.name",
            "JOIN vibers v ON v.team_id = $1 AND v.viber_id = a.object"
        ),
        " UNION ALL ",
        rows!(
            "'member', o.operator_id, o.name",
            "JOIN members m ON m.team_id = $1 AND m.operator_id = a.object JOIN operators o ON o.operator_id = m.operator_id"
        ),
        " UNION ALL ",
        rows!("'token', t.token_id, t.name", "JOIN api_tokens t ON t.team_id = $1 AND t.token_id = a.object"),
        " UNION ALL ",
        rows!(
            "'task', s.session_id, s.title",
            "JOIN tasks t ON t.team_id = $1 AND t.task_id = a.object \
             JOIN sessions s ON s.team_id = $1 AND s.session_id = t.session_id AND s.deleted_at IS NULL"
        ),
        " UNION ALL ",
        rows!(
            "'artifact', r.artifact_id, r.title",
            "JOIN artifacts r ON r.team_id = $1 AND r.artifact_id = a.object \
             JOIN sessions s ON s.team_id = $1 AND s.session_id = r.session_id AND s.deleted_at IS NULL"
        )
    );
    let rows = tx.rows(sql, args![before.unwrap_or(u64::MAX), limit]).await?;
    let object = |row: &crate::db::Row| {
        let text = |column| row.text(column);
        Ok(AuditObject { seq: row.count("seq")?, kind: text("kind")?, id: text("id")?, name: text("name")? })
    };
    rows.iter().map(object).collect()
}
