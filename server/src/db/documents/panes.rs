//! Panes: what each operator last chose to see beside a conversation, and what the strip counts of it.

use protocol::{OperatorId, SessionId};

use crate::{
    args,
    db::{Change, DbError, Query},
};

/// Artifacts and files that are counted; a session with more has "more than that".
pub const MAX_COUNTED: u64 = 500;

/// What a pane's strip shows, and what decides whether the pane is open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PaneFacts {
    /// What the reader chose last.
    pub choice: Option<String>,
    /// By name; attachments that wait count each.
    pub artifacts: u64,
    pub files: u64,
    /// A plan waits for a decision.
    pub asks: bool,
    /// Tokens of the newest request, and of the window that it went into.
    pub context: Option<(u64, u64)>,
}

/// Records what an operator chose to see.
pub async fn choose(
    tx: &mut Change<'_>,
    operator: &OperatorId,
    session: &SessionId,
    pane: &str,
) -> Result<(), DbError> {
    let sql = "INSERT INTO pane_choices (team_id, operator_id, session_id, pane) VALUES ($1, $2, $3, $4) \
               ON CONFLICT (team_id, session_id, operator_id) DO UPDATE SET pane = excluded.pane";
    tx.execute(sql, args![operator, session, pane]).await.map(drop)
}

/// The query for them. `reader` is absent for a token, which has chosen nothing.
pub fn facts_query(reader: Option<&OperatorId>, session: &SessionId) -> Query<PaneFacts> {
    let sql = "SELECT (SELECT pane FROM pane_choices WHERE team_id = $1 AND session_id = $2 AND operator_id = $3) AS choice, \
               (SELECT COUNT(DISTINCT CASE WHEN a.origin = 'operator' AND a.task_id IS NULL THEN a.artifact_id \
               ELSE a.name END) FROM (SELECT origin, task_id, artifact_id, name FROM artifacts WHERE team_id = $1 \
               AND session_id = $2 ORDER BY artifact_id DESC LIMIT $4 + 0) a) AS artifacts, \
               (SELECT COUNT(*) FROM touched_files WHERE team_id = $1 AND session_id = $2 AND done = 1) AS files, \
               (SELECT COUNT(*) FROM (SELECT 1 AS one FROM tasks t CROSS JOIN approvals q WHERE t.team_id = $1 \
               AND t.session_id = $2 AND t.state IN ('pending', 'running') AND q.team_id = $1 AND q.task_id = t.task_id \
               AND q.state = 'pending' AND q.attempt = t.attempt AND q.kind = 'plan' LIMIT 1) o) AS asks, \
               (SELECT used_tokens FROM contexts WHERE team_id = $1 AND session_id = $2) AS used, \
               (SELECT window_tokens FROM contexts WHERE team_id = $1 AND session_id = $2) AS room";
    Query::new(sql, args![session, reader, MAX_COUNTED], |answer| {
        let Some(row) = answer.row() else { return Ok(PaneFacts::default()) };
        let tokens = |column| Ok::<_, DbError>(row.optional_int(column)?.and_then(|tokens| u64::try_from(tokens).ok()));
        Ok(PaneFacts {
            choice: row.optional_text("choice")?,
            artifacts: row.count("artifacts")?,
            files: row.count("files")?,
            asks: row.count("asks")? > 0,
            context: tokens("used")?.zip(tokens("room")?),
        })
    })
}
