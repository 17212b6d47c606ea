//! What a team decided for all its tasks: its rules for calls of tools, its limits and its prices.

use super::prices;
use crate::{
    db::{Query, approvals::settings},
    domain::{ApprovalSettings, TeamPrices},
};

/// The query for both, to be sent together with others; the defaults for what the team has not chosen.
pub fn load_query() -> Query<(ApprovalSettings, TeamPrices)> {
    let sql = "SELECT a.deny, a.ask, a.allow, a.min_role, a.not_requester, a.expiry_minutes, a.limits, a.version, p.list, \
               p.version AS list_version, p.changed_by, p.changed_at FROM teams t \
               LEFT JOIN approval_settings a ON a.team_id = t.team_id LEFT JOIN prices p ON p.team_id = t.team_id \
               WHERE t.team_id = $1";
    Query::new(sql, &[], |answer| {
        let Some(row) = answer.row() else { return Ok(Default::default()) };
        let has = |column| row.optional_text(column).map(|text| text.is_some());
        Ok((
            if has("deny")? { settings::read(row)? } else { ApprovalSettings::default() },
            if has("list")? { prices::read(row)? } else { TeamPrices::default() },
        ))
    })
}
