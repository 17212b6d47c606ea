//! What a team decides beforehand: rules for calls of tools, who decides the rest, how long a question waits, and what a
//! task may use.

use protocol::{
    TaskLimits, TeamId,
    rules::{ApprovalRules, MAX_RULES},
};
use serde_json::json;

use crate::{
    actions::{VersionedChange, members::Requester, refusals, team_rules},
    db::{self, Change, audit::Entry},
    domain::{
        ApprovalSettings, Role,
        approval::{MAX_EXPIRY_MINUTES, MIN_EXPIRY_MINUTES},
    },
    error::{Error, Result},
    state::Board,
};

/// Largest rules of a team, bytes of JSON: they go with each task.
const MAX_RULES_BYTES: usize = 32 * 1024;
/// Largest amount of money as a limit, USD.
const MAX_LIMIT_USD: f64 = 1e6;

/// Replaces the team's settings; tasks that begin from now on have them. `base`: the version that the author saw, if they
/// say it.
pub async fn change(
    board: &Board,
    team: &TeamId,
    who: Requester<'_>,
    settings: ApprovalSettings,
    base: Option<u64>,
) -> Result<VersionedChange<ApprovalSettings>> {
    let (settings, role) = (check(settings)?, who.role);
    let stored = board.change(team, who.by, move |tx| {
        let settings = settings.clone();
        Box::pin(async move {
            // Two changes at once would lose one of them.
            db::teams::lock(tx).await?;
            let before = db::approvals::settings::load(tx).await?;
            if base.is_some_and(|base| base != before.version) {
                return Ok(VersionedChange::Stale(before));
            }
            if let Some(why) = loosens(&before, &settings).filter(|_| role < Role::Owner) {
                return Err(Error::Forbidden(why));
            }
            Ok(VersionedChange::Made(store(tx, &before, settings).await?))
        })
    });
    match stored.await {
        Err(Error::Forbidden(why)) => {
            refusals::note(board, team, who.by, team.as_str(), why).await?;
            Err(Error::Forbidden(why))
        }
        done => {
            if matches!(done, Ok(VersionedChange::Made(_))) {
                team_rules::tell(board, team);
            }
            done
        }
    }
}

/// Why a change is an owner's alone: somebody whom the settings keep from deciding would decide by it.
fn loosens(before: &ApprovalSettings, now: &ApprovalSettings) -> Option<&'static str> {
    let (old, new) = (&before.rules, &now.rules);
    let is_freer = new.allow.iter().any(|rule| !old.allow.contains(rule))
        || old.deny.iter().any(|rule| !new.deny.contains(rule))
        || old.ask.iter().any(|rule| !new.ask.contains(rule) && !new.deny.contains(rule));
    if now.min_role < before.min_role {
        Some("an owner alone may let lower roles decide")
    } else if before.not_requester && !now.not_requester {
        Some("an owner alone may let whoever gave a task decide what it asks")
    } else if before.min_role == Role::Owner && (is_freer || before.limits.smallest(&now.limits) != now.limits) {
        Some("while owners alone decide, they alone allow more, deny or ask less, and raise limits")
    } else {
        None
    }
}

/// Adds a rule to what the team allows, unless it is there.
pub(super) async fn allow(tx: &mut Change<'_>, before: ApprovalSettings, rule: &str) -> Result<()> {
    if before.rules.allow.iter().any(|known| known == rule) {
        return Ok(());
    }
    let mut settings = before.clone();
    settings.rules.allow.push(rule.to_owned());
    if settings.rules.allow.len() > MAX_RULES || size(&settings.rules) > MAX_RULES_BYTES {
        return Err(Error::conflict("too_many_rules", "the team has too many rules; remove some in its settings"));
    }
    store(tx, &before, settings).await.map(drop)
}

async fn store(tx: &mut Change<'_>, before: &ApprovalSettings, now: ApprovalSettings) -> Result<ApprovalSettings> {
    let stored = ApprovalSettings { version: before.version + 1, ..now };
    db::approvals::settings::store(tx, &stored).await?;
    let team = tx.team.clone();
    let (before, now) = (text(before), text(&stored));
    let entry = Entry::new("approval.rules", team.as_str()).before(before.as_str()).after(now.as_str());
    db::audit::append(tx, entry).await?;
    Ok(stored)
}

/// The settings in their canonical form; a refusal names what is wrong.
fn check(settings: ApprovalSettings) -> Result<ApprovalSettings> {
    let rules = settings.rules.read().map_err(|why| Error::unacceptable("bad_rule", why))?;
    if let Some((rule, why)) = rules.allow.iter().find_map(|rule| Some((rule, rule.is_too_wide()?))) {
        let message = format!("allow: “{}” is not written from here: {why}", rule.as_str());
        return Err(Error::unacceptable("rule_too_wide", message));
    }
    let list = |rules: &[protocol::rules::Rule]| {
        let mut texts: Vec<String> = Vec::with_capacity(rules.len());
        for rule in rules {
            if !texts.iter().any(|known| known == rule.as_str()) {
                texts.push(rule.as_str().to_owned());
            }
        }
        texts
    };
    let (deny, ask, allow) = (list(&rules.deny), list(&rules.ask), list(&rules.allow));
    let rules = ApprovalRules { deny, ask, allow, ..ApprovalRules::default() };
    if size(&rules) > MAX_RULES_BYTES {
        return Err(Error::unacceptable("rules_too_large", "all rules together have at most 32 KiB"));
    }
    if !(MIN_EXPIRY_MINUTES..=MAX_EXPIRY_MINUTES).contains(&settings.expiry_minutes) {
        let message = format!("a question waits {MIN_EXPIRY_MINUTES} to {MAX_EXPIRY_MINUTES} minutes");
        return Err(Error::unacceptable("bad_expiry", message));
    }
    let TaskLimits { steps, tool_calls, tokens, cost_usd, minutes, on_limit } = &settings.limits;
    let is_zero = [steps, tool_calls, minutes].iter().any(|limit| **limit == Some(0)) || *tokens == Some(0);
    if is_zero || cost_usd.is_some_and(|usd| !(usd > 0.0 && usd <= MAX_LIMIT_USD)) || on_limit.is_some() {
        let message =
            format!("a limit is a whole number above 0, and one of money above 0 and up to {MAX_LIMIT_USD} USD");
        return Err(Error::unacceptable("bad_limit", message));
    }
    // Viewers decide nothing.
    Ok(ApprovalSettings { rules, min_role: settings.min_role.max(Role::Operator), ..settings })
}

fn size(rules: &ApprovalRules) -> usize {
    serde_json::to_string(rules).map_or(usize::MAX, |json| json.len())
}

fn text(settings: &ApprovalSettings) -> String {
    let ApprovalSettings { rules, min_role, not_requester, expiry_minutes, limits, .. } = settings;
    json!({ "rules": rules, "minRole": min_role, "notRequester": not_requester, "expiryMinutes": expiry_minutes,
        "limits": limits })
    .to_string()
}
