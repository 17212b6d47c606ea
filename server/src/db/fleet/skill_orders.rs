//! What people ordered of the skills of vibers, beyond what is the same for all orders.

use protocol::{RolloutId, ViberId};

use crate::{
    args,
    db::{Change, DbError, Row, TeamTx, vibers::named_viber},
    domain::QueuedInstall,
};

/// The digest of the version of this name that was installed last on a viber.
pub async fn last_install(tx: &mut TeamTx<'_>, viber: &ViberId, name: &str) -> Result<Option<String>, DbError> {
    let sql = "SELECT o.digest FROM skill_orders o WHERE o.team_id = $1 AND o.viber_id = $2 AND o.name = $3 \
               AND o.op = 'install' AND o.state = 'done' ORDER BY o.cmd_seq DESC LIMIT 1";
    let row = tx.row(sql, args![viber, name]).await?;
    row.map_or(Ok(None), |row| row.optional_text("digest"))
}

/// Installations of one skill, or of all, that their vibers have not answered: the newest of each viber first.
pub async fn queued_installs(
    tx: &mut TeamTx<'_>,
    name: Option<&str>,
    limit: u64,
) -> Result<Vec<QueuedInstall>, DbError> {
    macro_rules! queued {
        ($of:literal) => {
            concat!(
                "SELECT v.viber_id, v.name AS viber_name, v.contact, v.seen_at, o.name, o.digest, o.version ",
                "FROM skill_orders o JOIN vibers v ON v.team_id = o.team_id AND v.viber_id = o.viber_id ",
                "WHERE o.team_id = $1 AND o.state = 'queued' AND o.op = 'install' ",
                $of,
                "AND v.revoked_at IS NULL ORDER BY o.viber_id, o.cmd_seq DESC LIMIT $2 + 0"
            )
        };
    }
    let install = |row: &Row| {
        Ok(QueuedInstall {
            viber: named_viber(row)?,
            name: row.text("name")?,
            digest: row.optional_text("digest")?,
            version: row.optional_text("version")?,
        })
    };
    let rows = match name {
        Some(name) => tx.rows(queued!("AND o.name = $3 "), args![limit, name]).await?,
        None => tx.rows(queued!(""), args![limit]).await?,
    };
    rows.iter().map(install).collect()
}

/// Ends orders of a rollout that no viber has got, at most `limit`; returns how many. What a viber has, or may just be given,
/// stays ordered.
pub async fn withdraw(tx: &mut Change<'_>, rollout: &RolloutId, why: &str, limit: u64) -> Result<u64, DbError> {
    let sql = "UPDATE skill_orders SET state = 'failed', error = $3, ended_at = $4 WHERE team_id = $1 \
               AND (viber_id, cmd_seq) IN (SELECT o.viber_id, o.cmd_seq FROM skill_orders o \
               JOIN vibers v ON v.team_id = o.team_id AND v.viber_id = o.viber_id JOIN commands c ON c.team_id = o.team_id \
               AND c.viber_id = o.viber_id AND c.cmd_seq = o.cmd_seq WHERE o.team_id = $1 AND o.rollout_id = $2 \
               AND o.state = 'queued' AND c.acked_at IS NULL AND v.contact <> 'connected' LIMIT $5 + 0)";
    tx.execute(sql, args![rollout, why, tx.now, limit]).await
}
