//! Rollouts of skills, and what came of their orders.

use protocol::{RolloutId, TeamId};

use crate::{
    args,
    db::{Change, DbError, Row, TeamTx, Tx, json},
    domain::{LabelProgress, OrderState, RolloutCounts, RolloutState, SkillRollout},
};

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT r.rollout_id, r.skill_id, r.name, r.version, r.digest, r.labels, r.agents, r.state, r.stage, r.reached, ",
            "r.why, r.begun_by, r.beginner, r.begun_at, r.ended_at, r.settled FROM skill_rollouts r ",
            $rest
        )
    };
}

/// Adds a rollout.
pub async fn insert(tx: &mut Change<'_>, rollout: &SkillRollout) -> Result<(), DbError> {
    let sql = "INSERT INTO skill_rollouts (team_id, rollout_id, skill_id, name, version, digest, labels, agents, state, \
               begun_by, beginner, begun_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    let args = args![
        &rollout.id,
        &rollout.skill_id,
        &rollout.name,
        rollout.version.clone(),
        &rollout.digest,
        json(&rollout.labels)?,
        rollout.agents.as_ref().map(json).transpose()?,
        rollout.state.as_str(),
        &rollout.begun_by,
        &rollout.beginner,
        rollout.begun_at
    ];
    tx.execute(sql, args).await.map(drop)
}

/// One rollout.
pub async fn load(tx: &mut TeamTx<'_>, id: &RolloutId) -> Result<Option<SkillRollout>, DbError> {
    let sql = select!("WHERE r.team_id = $1 AND r.rollout_id = $2");
    tx.row(sql, args![id]).await?.as_ref().map(rollout).transpose()
}

/// Rollouts, the newest first, after `after`.
pub async fn list(tx: &mut TeamTx<'_>, after: Option<&RolloutId>, limit: u64) -> Result<Vec<SkillRollout>, DbError> {
    let sql = select!("WHERE r.team_id = $1 AND r.rollout_id < $2 ORDER BY r.rollout_id DESC LIMIT $3 + 0");
    // Behind every rollout when there is no cursor.
    let after = after.map_or("rol_g", RolloutId::as_str);
    tx.rows(sql, args![after, limit]).await?.iter().map(rollout).collect()
}

/// Those of one skill, the newest first.
pub async fn of_name(tx: &mut TeamTx<'_>, name: &str, limit: u64) -> Result<Vec<SkillRollout>, DbError> {
    let sql = select!("WHERE r.team_id = $1 AND r.name = $2 ORDER BY r.rollout_id DESC LIMIT $3 + 0");
    tx.rows(sql, args![name, limit]).await?.iter().map(rollout).collect()
}

/// The one of this skill that runs.
pub async fn running_of(tx: &mut TeamTx<'_>, name: &str) -> Result<Option<SkillRollout>, DbError> {
    let sql = select!("WHERE r.team_id = $1 AND r.name = $2 AND r.state = 'running'");
    tx.row(sql, args![name]).await?.as_ref().map(rollout).transpose()
}

/// How many of the team are not settled, counted up to `limit`.
pub async fn open_count(tx: &mut TeamTx<'_>, limit: u64) -> Result<u64, DbError> {
    let sql = "SELECT COUNT(*) AS n FROM (SELECT r.rollout_id FROM skill_rollouts r WHERE r.team_id = $1 AND r.settled = 0 \
               LIMIT $2 + 0) AS under_way";
    tx.row(sql, args![limit]).await?.map_or(Ok(0), |row| row.count("n"))
}

/// Those of all teams that are not suspended with which something is left to do, after `after`.
pub async fn open_of_all(
    tx: &mut Tx,
    after: Option<&(TeamId, RolloutId)>,
    limit: u64,
) -> Result<Vec<(TeamId, RolloutId)>, DbError> {
    let sql = "SELECT r.team_id, r.rollout_id FROM skill_rollouts r JOIN teams t ON t.team_id = r.team_id \
               AND t.deleted_at IS NULL AND t.suspended_at IS NULL WHERE r.settled = 0 \
               AND (r.team_id, r.rollout_id) > ($1, $2) ORDER BY r.team_id, r.rollout_id LIMIT $3 + 0";
    let (team, id) = after.map_or(("", ""), |(team, id)| (team.as_str(), id.as_str()));
    let rows = tx.rows(sql, args![team, id, limit]).await?;
    rows.iter().map(|row| Ok((row.parse("team_id")?, row.parse("rollout_id")?))).collect()
}

/// Records which label it is at, and the last viber of it that it was ordered for.
pub async fn move_to(tx: &mut Change<'_>, id: &RolloutId, stage: u64, reached: &str) -> Result<(), DbError> {
    let sql = "UPDATE skill_rollouts SET stage = $3, reached = $4 WHERE team_id = $1 AND rollout_id = $2";
    tx.execute(sql, args![id, stage, reached]).await.map(drop)
}

/// Ends one that runs. `false`: it had ended.
pub async fn end(tx: &mut Change<'_>, id: &RolloutId, state: RolloutState, why: Option<&str>) -> Result<bool, DbError> {
    let sql = "UPDATE skill_rollouts SET state = $3, why = $4, ended_at = $5 \
               WHERE team_id = $1 AND rollout_id = $2 AND state = 'running'";
    Ok(tx.execute(sql, args![id, state.as_str(), why.map(crate::db::clean), tx.now]).await? > 0)
}

/// Nothing is left to do with it.
pub async fn settle(tx: &mut Change<'_>, id: &RolloutId) -> Result<(), DbError> {
    let sql = "UPDATE skill_rollouts SET settled = 1 WHERE team_id = $1 AND rollout_id = $2";
    tx.execute(sql, args![id]).await.map(drop)
}

/// What came of its orders, by their labels; of a label without orders nothing.
pub async fn counts(tx: &mut TeamTx<'_>, id: &RolloutId) -> Result<Vec<(u64, RolloutCounts)>, DbError> {
    let sql = "SELECT o.stage, o.state, COUNT(*) AS n FROM skill_orders o WHERE o.team_id = $1 AND o.rollout_id = $2 \
               GROUP BY o.stage, o.state ORDER BY o.stage";
    let mut all: Vec<(u64, RolloutCounts)> = Vec::new();
    for row in tx.rows(sql, args![id]).await? {
        let (stage, n) = (row.count("stage")?, row.count("n")?);
        if all.last().is_none_or(|(known, _)| *known != stage) {
            all.push((stage, RolloutCounts::default()));
        }
        let Some((_, counts)) = all.last_mut() else { continue };
        match row.parse("state")? {
            OrderState::Done => counts.done = n,
            OrderState::Failed => counts.failed = n,
            OrderState::Queued => counts.queued = n,
        }
    }
    Ok(all)
}

/// The first viber that reported a failure, by its name, and what it said.
pub async fn first_failure(tx: &mut TeamTx<'_>, id: &RolloutId) -> Result<Option<(String, String)>, DbError> {
    let sql = "SELECT v.name, o.error FROM skill_orders o JOIN vibers v ON v.team_id = o.team_id AND v.viber_id = o.viber_id \
               WHERE o.team_id = $1 AND o.rollout_id = $2 AND o.state = 'failed' ORDER BY o.stage, o.viber_id LIMIT 1";
    let failure = |row: Row| Ok((row.text("name")?, row.optional_text("error")?.unwrap_or_default()));
    tx.row(sql, args![id]).await?.map(failure).transpose()
}

/// How far one of its labels is.
pub async fn progress(tx: &mut TeamTx<'_>, id: &RolloutId, stage: u64) -> Result<LabelProgress, DbError> {
    let sql = "SELECT CASE WHEN EXISTS (SELECT 1 FROM skill_orders o WHERE o.team_id = $1 AND o.rollout_id = $2 \
               AND o.state = 'done' AND o.stage = $3) THEN 1 ELSE 0 END AS done, \
               CASE WHEN EXISTS (SELECT 1 FROM skill_orders o JOIN vibers v ON v.team_id = o.team_id \
               AND v.viber_id = o.viber_id WHERE o.team_id = $1 AND o.rollout_id = $2 AND o.state = 'queued' \
               AND o.stage = $3 AND v.revoked_at IS NULL) THEN 1 ELSE 0 END AS queued, \
               CASE WHEN EXISTS (SELECT 1 FROM skill_orders o JOIN vibers v ON v.team_id = o.team_id \
               AND v.viber_id = o.viber_id WHERE o.team_id = $1 AND o.rollout_id = $2 AND o.state = 'queued' \
               AND o.stage = $3 AND v.revoked_at IS NULL AND v.contact = 'connected') THEN 1 ELSE 0 END AS awaited";
    let Some(row) = tx.row(sql, args![id, stage]).await? else { return Ok(LabelProgress::default()) };
    Ok(LabelProgress {
        is_done_somewhere: row.flag("done")?,
        is_queued_somewhere: row.flag("queued")?,
        is_awaited: row.flag("awaited")?,
    })
}

fn rollout(row: &Row) -> Result<SkillRollout, DbError> {
    Ok(SkillRollout {
        id: row.parse("rollout_id")?,
        skill_id: row.parse("skill_id")?,
        name: row.text("name")?,
        version: row.optional_text("version")?,
        digest: row.text("digest")?,
        labels: row.json("labels")?,
        agents: row.optional_json("agents")?,
        state: row.parse("state")?,
        stage: row.count("stage")?,
        reached: row.text("reached")?,
        why: row.optional_text("why")?,
        begun_by: row.text("begun_by")?,
        beginner: row.text("beginner")?,
        begun_at: row.instant("begun_at")?,
        ended_at: row.optional_instant("ended_at")?,
        settled: row.flag("settled")?,
    })
}
