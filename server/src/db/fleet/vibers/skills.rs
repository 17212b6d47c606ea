//! What the library of skills asks of vibers: of many at once, so it reads as little as that needs.

use std::collections::BTreeSet;

use protocol::{AgentInfo, SKILLS_CAPABILITY, ViberId};

use crate::{
    args,
    db::{DbError, Row, TeamTx},
    domain::{ContactState, NamedViber, SkillHolder, SkillRollout},
};

/// The columns of [`named_viber`].
macro_rules! named {
    ($more:literal, $($from:tt)+) => {
        concat!(
            "SELECT v.viber_id, v.name AS viber_name, v.contact, v.seen_at",
            $more,
            " FROM ",
            $($from)+
        )
    };
}

/// What the capabilities of a daemon contain that takes orders about skills, as a pattern.
fn takes_skills() -> String {
    format!("%\"{SKILLS_CAPABILITY}\"%")
}

/// Vibers that reported skills, in order of joining, after `cursor`, at most `limit`.
pub async fn skill_holders(
    tx: &mut TeamTx<'_>,
    cursor: Option<&ViberId>,
    limit: u64,
) -> Result<Vec<SkillHolder>, DbError> {
    let sql = named!(
        ", v.skills",
        "vibers v WHERE v.team_id = $1 AND v.revoked_at IS NULL AND v.viber_id > $2 AND v.skills <> '[]' \
         ORDER BY v.viber_id LIMIT $3 + 0"
    );
    let rows = tx.rows(sql, args![cursor.map_or("", ViberId::as_str), limit]).await?;
    rows.iter().map(|row| Ok(SkillHolder { viber: named_viber(row)?, skills: row.json("skills")? })).collect()
}

/// Vibers whose daemons take orders about skills, in order of joining, at most `limit`.
pub async fn taking_skills(tx: &mut TeamTx<'_>, limit: u64) -> Result<Vec<NamedViber>, DbError> {
    let sql = named!(
        "",
        "vibers v WHERE v.team_id = $1 AND v.revoked_at IS NULL AND v.capabilities LIKE $2 \
         ORDER BY v.viber_id LIMIT $3 + 0"
    );
    tx.rows(sql, args![takes_skills(), limit]).await?.iter().map(named_viber).collect()
}

/// The ids of their agents, of at most `limit` of them.
pub async fn agents_taking_skills(tx: &mut TeamTx<'_>, limit: u64) -> Result<BTreeSet<String>, DbError> {
    let sql = "SELECT v.agents FROM vibers v WHERE v.team_id = $1 AND v.revoked_at IS NULL AND v.capabilities LIKE $2 \
               ORDER BY v.viber_id LIMIT $3 + 0";
    let mut ids = BTreeSet::new();
    for row in tx.rows(sql, args![takes_skills(), limit]).await? {
        let agents: Vec<AgentInfo> = row.json("agents")?;
        ids.extend(agents.into_iter().map(|agent| agent.id));
    }
    Ok(ids)
}

/// Those among them that are connected.
pub async fn connected_taking_skills(tx: &mut TeamTx<'_>, limit: u64) -> Result<Vec<NamedViber>, DbError> {
    let sql = named!(
        "",
        "vibers v WHERE v.team_id = $1 AND v.revoked_at IS NULL AND v.contact = 'connected' \
         AND v.capabilities LIKE $2 ORDER BY v.viber_id LIMIT $3 + 0"
    );
    tx.rows(sql, args![takes_skills(), limit]).await?.iter().map(named_viber).collect()
}

/// Those among them that have this label, at most `limit`.
pub async fn labelled_taking_skills(
    tx: &mut TeamTx<'_>,
    (label, value): (&str, &str),
    limit: u64,
) -> Result<Vec<NamedViber>, DbError> {
    let sql = named!(
        "",
        "viber_labels l JOIN vibers v ON v.team_id = l.team_id AND v.viber_id = l.viber_id WHERE l.team_id = $1 \
         AND l.label = $2 AND l.value = $3 AND v.revoked_at IS NULL AND v.capabilities LIKE $4 \
         ORDER BY v.viber_id LIMIT $5 + 0"
    );
    tx.rows(sql, args![label, value, takes_skills(), limit]).await?.iter().map(named_viber).collect()
}

/// The next ones with this label of which a rollout has ordered nothing: behind the last one that it reached, at most `limit`.
pub async fn next_of_rollout(
    tx: &mut TeamTx<'_>,
    rollout: &SkillRollout,
    (label, value): (&str, &str),
    limit: u64,
) -> Result<Vec<NamedViber>, DbError> {
    let sql = named!(
        "",
        "viber_labels l JOIN vibers v ON v.team_id = l.team_id AND v.viber_id = l.viber_id WHERE l.team_id = $1 \
         AND l.label = $2 AND l.value = $3 AND l.viber_id > $4 AND v.revoked_at IS NULL AND v.capabilities LIKE $5 \
         AND NOT EXISTS (SELECT 1 FROM skill_orders o WHERE o.team_id = l.team_id AND o.rollout_id = $6 \
         AND o.viber_id = l.viber_id) ORDER BY l.viber_id LIMIT $7 + 0"
    );
    let args = args![label, value, &rollout.reached, takes_skills(), &rollout.id, limit];
    tx.rows(sql, args).await?.iter().map(named_viber).collect()
}

/// A viber that was not revoked, by its name.
pub async fn named(tx: &mut TeamTx<'_>, id: &ViberId) -> Result<Option<NamedViber>, DbError> {
    let sql = named!("", "vibers v WHERE v.team_id = $1 AND v.viber_id = $2 AND v.revoked_at IS NULL");
    tx.row(sql, args![id]).await?.as_ref().map(named_viber).transpose()
}

/// The viber of a row with `viber_id`, `viber_name`, `contact` and `seen_at`.
pub(in crate::db) fn named_viber(row: &Row) -> Result<NamedViber, DbError> {
    Ok(NamedViber {
        id: row.parse("viber_id")?,
        name: row.text("viber_name")?,
        is_connected: row.parse::<ContactState>("contact")? == ContactState::Connected,
        seen_at: row.optional_instant("seen_at")?,
    })
}
