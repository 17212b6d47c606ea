//! Sessions that need a person, however many newer ones there are.

use protocol::OperatorId;

use super::line;
use crate::{
    args,
    db::{DbError, TeamTx},
    domain::SessionLine,
};

/// Tasks that are looked at, of those that wait and of those that failed: the newest.
const MAX_LOOKED_AT: u64 = 100;

/// Statement of [`needing`]. Each half begins with an index that holds few tasks, and is bounded before anything is joined to
/// it; a join with an order and a limit would have PostgreSQL walk the sessions instead.
pub(in crate::db) const NEEDING_SQL: &str = lines!(
    "SELECT s.* FROM (SELECT n.session_id FROM (SELECT u.session_id, u.active_at FROM (SELECT x.session_id FROM tasks x \
     WHERE x.team_id = $1 AND x.waiting IS NOT NULL AND x.state = 'running' AND x.waiting NOT LIKE '{\"for\":\"rate_limit\"%' \
     AND x.waiting NOT LIKE '{\"for\":\"child\"%' ORDER BY x.task_id DESC LIMIT $3 + 0) w \
     CROSS JOIN sessions u WHERE u.team_id = $1 AND u.session_id = w.session_id \
     AND COALESCE(u.deleted_at, u.archived_at) IS NULL \
     UNION SELECT u.session_id, u.active_at FROM (SELECT x.session_id FROM tasks x WHERE x.team_id = $1 AND x.state = 'error' \
     AND x.origin <> 'playbook' AND x.origin <> 'agent' AND $2 IS NOT NULL ORDER BY x.task_id DESC LIMIT $3 + 0) f \
     CROSS JOIN sessions u WHERE u.team_id = $1 AND u.session_id = f.session_id \
     AND COALESCE(u.deleted_at, u.archived_at) IS NULL AND u.active_at > ",
    read_before!(),
    " AND COALESCE((SELECT r.at FROM read_marks r WHERE r.team_id = $1 AND r.operator_id = $2 \
     AND r.session_id = u.session_id), 0) < u.active_at AND NOT EXISTS (SELECT 1 FROM tasks y WHERE y.team_id = $1 \
     AND y.session_id = u.session_id AND y.state IN ('pending', 'running')) \
     AND 'error' = (SELECT y.state FROM tasks y \
     WHERE y.team_id = $1 AND y.session_id = u.session_id ORDER BY y.message_seq DESC LIMIT 1)) n \
     ORDER BY n.active_at DESC, n.session_id DESC LIMIT $4 + 0) k \
     CROSS JOIN sessions s WHERE s.team_id = $1 AND s.session_id = k.session_id"
);

/// Sessions in which something waits for a person, and those that failed unread, the most recently active first. A failed step of
/// a playbook is not among them, and no failed task that an agent asked for: its run asks for it, and whoever asked is told. Of very many tasks the newest 100 of either kind are looked at.
pub async fn needing(
    tx: &mut TeamTx<'_>,
    reader: Option<&OperatorId>,
    limit: u64,
) -> Result<Vec<SessionLine>, DbError> {
    tx.rows(NEEDING_SQL, args![reader, MAX_LOOKED_AT, limit]).await?.iter().map(line).collect()
}
