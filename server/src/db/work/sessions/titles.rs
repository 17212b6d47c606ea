//! The titles of sessions whose ids are known already: those that name folders of a workspace.

use std::collections::HashMap;

use protocol::{SessionId, ViberId};

use crate::{
    args,
    db::{Arg, DbError, TeamTx},
};

/// Ids that one statement asks for.
const IDS_PER_STATEMENT: usize = 16;

/// The titles of those of these sessions that work on a viber and were not deleted.
pub async fn titles(
    tx: &mut TeamTx<'_>,
    viber: &ViberId,
    ids: &[SessionId],
) -> Result<HashMap<SessionId, String>, DbError> {
    let sql = "SELECT session_id, title FROM sessions WHERE team_id = $1 AND viber_id = $2 AND deleted_at IS NULL \
               AND session_id IN ($3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)";
    let mut found = HashMap::new();
    for some in ids.chunks(IDS_PER_STATEMENT) {
        let mut args = args![viber].to_vec();
        args.extend(some.iter().map(Arg::from));
        // No session is called like this.
        args.resize(1 + IDS_PER_STATEMENT, Arg::from(""));
        for row in tx.rows(sql, &args).await? {
            found.insert(row.parse("session_id")?, row.text("title")?);
        }
    }
    Ok(found)
}
