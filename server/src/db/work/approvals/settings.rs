//! What a team has decided beforehand about calls of tools, who of it decides the rest, and what a task may use.

use protocol::rules::ApprovalRules;

use crate::{
    args,
    db::{Change, DbError, Query, Row, TeamTx, json},
    domain::ApprovalSettings,
};

/// The team's settings; the defaults when it has chosen none.
pub async fn load(tx: &mut TeamTx<'_>) -> Result<ApprovalSettings, DbError> {
    tx.query(load_query()).await
}

/// The same as a query, to be sent together with others.
pub fn load_query() -> Query<ApprovalSettings> {
    let sql = "SELECT deny, ask, allow, min_role, not_requester, expiry_minutes, limits, version FROM approval_settings \
               WHERE team_id = $1";
    Query::new(sql, &[], |answer| answer.row().map_or_else(|| Ok(ApprovalSettings::default()), read))
}

/// A team's settings, from a row of them.
pub(in crate::db) fn read(row: &Row) -> Result<ApprovalSettings, DbError> {
    let minutes = row.count("expiry_minutes")?;
    Ok(ApprovalSettings {
        rules: ApprovalRules {
            deny: row.json("deny")?,
            ask: row.json("ask")?,
            allow: row.json("allow")?,
            ..ApprovalRules::default()
        },
        min_role: row.parse("min_role")?,
        not_requester: row.flag("not_requester")?,
        expiry_minutes: u32::try_from(minutes).map_err(|_| DbError::Broken("expiry_minutes is too large".into()))?,
        limits: row.json("limits")?,
        version: row.count("version")?,
    })
}

/// Stores them.
pub async fn store(tx: &mut Change<'_>, settings: &ApprovalSettings) -> Result<(), DbError> {
    let sql = "INSERT INTO approval_settings (team_id, deny, ask, allow, min_role, not_requester, expiry_minutes, \
               limits, version) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (team_id) DO UPDATE SET deny = excluded.deny, \
               ask = excluded.ask, allow = excluded.allow, min_role = excluded.min_role, \
               not_requester = excluded.not_requester, expiry_minutes = excluded.expiry_minutes, \
               limits = excluded.limits, version = excluded.version";
    let ApprovalRules { deny, ask, allow, .. } = &settings.rules;
    let args = args![
        json(deny)?,
        json(ask)?,
        json(allow)?,
        settings.min_role,
        settings.not_requester,
        settings.expiry_minutes,
        json(&settings.limits)?,
        settings.version
    ];
    tx.execute(sql, args).await.map(drop)
}
