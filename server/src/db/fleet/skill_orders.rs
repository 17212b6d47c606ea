//! What people ordered of the skills of vibers.

use protocol::{CommandDone, RolloutId, ViberId};

use crate::{
    args,
    db::{Change, DbError, Row, TeamTx, json, vibers::named_viber},
    domain::{QueuedInstall, SkillOrder, SkillOrderState},
};

/// Longest reason that is kept, bytes.
const MAX_ERROR_BYTES: usize = 500;

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT o.viber_id, o.cmd_seq, o.op, o.name, o.digest, o.version, o.agents, o.state, o.error, o.ordered_by, ",
            "o.orderer, o.ordered_at, o.ended_at FROM skill_orders o ",
            $rest
        )
    };
}

/// Adds an order; `rollout` is the one that it belongs to, and the label there.
pub async fn insert(
    tx: &mut Change<'_>,
    order: &SkillOrder,
    rollout: Option<(&RolloutId, u64)>,
) -> Result<(), DbError> {
    let sql = "INSERT INTO skill_orders (team_id, viber_id, cmd_seq, op, name, digest, version, agents, state, ordered_by, \
               orderer, ordered_at, rollout_id, stage) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)";
    let agents = order.agents.as_ref().map(json).transpose()?;
    let args = args![
        &order.viber_id,
        order.cmd_seq,
        order.op.as_str(),
        &order.name,
        order.digest.clone(),
        order.version.clone(),
        agents,
        order.state.as_str(),
        &order.ordered_by,
        &order.orderer,
        order.ordered_at,
        rollout.map(|(id, _)| id),
        rollout.map(|(_, stage)| stage)
    ];
    tx.execute(sql, args).await.map(drop)
}

/// Records what its viber answered. `false`: it had ended, or is another viber's.
pub async fn end(tx: &mut Change<'_>, viber: &ViberId, done: &CommandDone) -> Result<bool, DbError> {
    let sql = "UPDATE skill_orders SET state = $4, error = $5, ended_at = $6 \
               WHERE team_id = $1 AND viber_id = $2 AND cmd_seq = $3 AND state = 'queued'";
    let state = if done.ok { SkillOrderState::Done } else { SkillOrderState::Failed };
    let error = done.error.as_deref().filter(|_| !done.ok);
    let error = error.map(|error| crate::db::clean(protocol::text::head(error, MAX_ERROR_BYTES)));
    Ok(tx.execute(sql, args![viber, done.cmd_seq, state.as_str(), error, tx.now]).await? > 0)
}

/// One order.
pub async fn load(tx: &mut TeamTx<'_>, viber: &ViberId, cmd_seq: u64) -> Result<Option<SkillOrder>, DbError> {
    let sql = select!("WHERE o.team_id = $1 AND o.viber_id = $2 AND o.cmd_seq = $3");
    tx.row(sql, args![viber, cmd_seq]).await?.as_ref().map(order).transpose()
}

/// The newest orders of a viber, the newest first.
pub async fn newest(tx: &mut TeamTx<'_>, viber: &ViberId, limit: u64) -> Result<Vec<SkillOrder>, DbError> {
    let sql = select!("WHERE o.team_id = $1 AND o.viber_id = $2 ORDER BY o.cmd_seq DESC LIMIT $3 + 0");
    tx.rows(sql, args![viber, limit]).await?.iter().map(order).collect()
}

/// The digest of the version of this name that was installed last on a viber.
pub async fn last_install(tx: &mut TeamTx<'_>, viber: &ViberId, name: &str) -> Result<Option<String>, DbError> {
    let sql = "SELECT o.digest FROM skill_orders o WHERE o.team_id = $1 AND o.viber_id = $2 AND o.name = $3 \
               AND o.op = 'install' AND o.state = 'done' ORDER BY o.cmd_seq DESC LIMIT 1";
    let row = tx.row(sql, args![viber, name]).await?;
    row.map_or(Ok(None), |row| row.optional_text("digest"))
}

/// How many orders a viber has not answered, at most `limit`.
pub async fn queued_count(tx: &mut TeamTx<'_>, viber: &ViberId, limit: u64) -> Result<u64, DbError> {
    let sql = "SELECT COUNT(*) AS n FROM (SELECT o.cmd_seq FROM skill_orders o WHERE o.team_id = $1 AND o.viber_id = $2 \
               AND o.state = 'queued' LIMIT $3 + 0) AS waiting";
    tx.row(sql, args![viber, limit]).await?.map_or(Ok(0), |row| row.count("n"))
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

/// Deletes ended orders of a viber but for the newest `most`, and for the last installation of each skill: it says what is
/// put back.
pub async fn forget(tx: &mut Change<'_>, viber: &ViberId, most: u64) -> Result<(), DbError> {
    let sql = "DELETE FROM skill_orders WHERE team_id = $1 AND viber_id = $2 AND state <> 'queued' AND cmd_seq < \
               COALESCE((SELECT MIN(n.cmd_seq) FROM (SELECT o.cmd_seq FROM skill_orders o WHERE o.team_id = $1 \
               AND o.viber_id = $2 ORDER BY o.cmd_seq DESC LIMIT $3 + 0) n), 0) AND cmd_seq <> \
               COALESCE((SELECT MAX(i.cmd_seq) FROM skill_orders i WHERE i.team_id = $1 AND i.viber_id = $2 \
               AND i.name = skill_orders.name AND i.op = 'install' AND i.state = 'done'), -1)";
    tx.execute(sql, args![viber, most]).await.map(drop)
}

fn order(row: &Row) -> Result<SkillOrder, DbError> {
    let agents = row.optional_text("agents")?;
    let agents = agents.map(|text| serde_json::from_str(&text)).transpose();
    Ok(SkillOrder {
        viber_id: row.parse("viber_id")?,
        cmd_seq: row.count("cmd_seq")?,
        op: row.parse("op")?,
        name: row.text("name")?,
        digest: row.optional_text("digest")?,
        version: row.optional_text("version")?,
        agents: agents.map_err(|error| DbError::Broken(format!("an order's agents: {error}")))?,
        state: row.parse("state")?,
        error: row.optional_text("error")?,
        ordered_by: row.text("ordered_by")?,
        orderer: row.text("orderer")?,
        ordered_at: row.instant("ordered_at")?,
        ended_at: row.optional_instant("ended_at")?,
    })
}
