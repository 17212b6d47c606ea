//! Which viber and agent a new task goes to.

use std::collections::BTreeMap;

use protocol::{AgentMode, Capability, LimitPolicy, ViberId};

use crate::{
    db::{self, TeamTx, vibers::Candidate},
    domain::{ApprovalSettings, TeamPrices},
    error::{Error, Result},
};

/// The agent when none is named.
const DEFAULT_AGENT: &str = "default";

/// Models that a refusal names, and bytes of the refused one.
const MAX_NAMED_MODELS: usize = 20;
const MAX_NAMED_MODEL_BYTES: usize = 120;

/// Longest leash, calls of tools.
const MAX_LEASH_CALLS: u32 = 10_000;

/// Vibers without work that are looked at for the best one; if none of them has all labels, all vibers are.
const MAX_READY: u64 = 100;

/// The named viber, or the best one with the labels: connected vibers first, then the least busy, then the one heard last.
/// A drained viber is chosen only by name.
pub(in crate::actions) async fn viber(
    tx: &mut TeamTx<'_>,
    named: Option<&ViberId>,
    labels: &BTreeMap<String, String>,
) -> Result<Candidate> {
    if let Some(named) = named {
        return db::vibers::candidate(tx, named).await?.ok_or_else(|| no_such(named));
    }
    if let Some(found) = labeled(tx, labels, |_| true).await? {
        return Ok(found);
    }
    let no_viber = |message: String| Err(Error::unacceptable("no_viber", message));
    if db::vibers::list(tx, None, 1).await?.is_empty() {
        return no_viber("this team has no viber yet: add one first".into());
    }
    if labels.is_empty() {
        return no_viber("every viber of this team is drained".into());
    }
    no_viber(format!("no viber that takes tasks has the labels {}", words(labels)))
}

/// The best viber with the labels, as [`viber`] chooses it, among those that have an agent.
pub(in crate::actions) async fn viber_with_agent(
    tx: &mut TeamTx<'_>,
    labels: &BTreeMap<String, String>,
    named: &str,
) -> Result<Candidate> {
    let none = || {
        let message = format!("no viber that takes tasks has the labels {} and an agent {named:?}", words(labels));
        Error::unacceptable("no_viber", message)
    };
    labeled(tx, labels, |viber| agent(viber, Some(named)).is_ok()).await?.ok_or_else(none)
}

/// The best one of those that fit: one without work is found without a look at all.
async fn labeled(
    tx: &mut TeamTx<'_>,
    labels: &BTreeMap<String, String>,
    fits: impl Fn(&Candidate) -> bool,
) -> Result<Option<Candidate>> {
    match best(db::vibers::ready(tx, labels, MAX_READY).await?, labels, &fits) {
        Some(ready) => Ok(Some(ready)),
        None => Ok(best(db::vibers::candidates(tx, labels).await?, labels, &fits)),
    }
}

fn words(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
}

/// The same, with what the team decided for all its tasks.
pub(super) async fn viber_and_rules(
    tx: &mut TeamTx<'_>,
    named: Option<&ViberId>,
    labels: &BTreeMap<String, String>,
) -> Result<(Candidate, (ApprovalSettings, TeamPrices))> {
    let rules = db::team_rules::load_query();
    let Some(named) = named else {
        let viber = viber(tx, None, labels).await?;
        return Ok((viber, tx.query(rules).await?));
    };
    let (viber, rules) = tx.query_two(db::vibers::candidate_query(named), rules).await?;
    Ok((viber.ok_or_else(|| no_such(named))?, rules))
}

/// Unknown and foreign look alike; as part of a body it is not the page that is missing.
fn no_such(viber: &ViberId) -> Error {
    Error::unacceptable("viber_not_found", format!("there is no viber {viber} in this team"))
}

/// The best of the vibers that are not drained, have all labels, and fit.
fn best(
    all: Vec<Candidate>,
    labels: &BTreeMap<String, String>,
    fits: impl Fn(&Candidate) -> bool,
) -> Option<Candidate> {
    let takes_it =
        |viber: &Candidate| !viber.drained && labels.iter().all(|(key, value)| viber.labels.get(key) == Some(value));
    let rank = |viber: &Candidate| (!viber.connected, viber.busy, std::cmp::Reverse(viber.seen_at), viber.id.clone());
    all.into_iter().filter(|viber| takes_it(viber) && fits(viber)).min_by_key(rank)
}

/// The named agent, else the default; refused when the viber has reported its agents and has no such one.
pub(in crate::actions) fn agent(viber: &Candidate, named: Option<&str>) -> Result<String> {
    let agent = named.unwrap_or(DEFAULT_AGENT);
    if !protocol::agent::is_id(agent) {
        let message = "an agent's id has letters, digits, - and _, at most 64";
        return Err(Error::unacceptable("unknown_agent", message));
    }
    if viber.agents.is_empty() || viber.agents.iter().any(|known| known.id == agent) {
        return Ok(agent.to_owned());
    }
    let known = viber.agents.iter().map(|known| known.id.as_str()).collect::<Vec<_>>().join(", ");
    let message = format!("this viber has no agent {agent:?}; it has: {known}");
    Err(Error::unacceptable("unknown_agent", message))
}

/// Refuses a model that this viber does not offer.
pub(in crate::actions) async fn check_model(tx: &mut TeamTx<'_>, viber: &ViberId, model: &str) -> Result<()> {
    let viber = db::vibers::load(tx, viber).await?;
    let viber = viber.ok_or_else(|| Error::conflict("viber_revoked", "the viber of this session was revoked"))?;
    if viber.models().any(|offered| offered == model) {
        return Ok(());
    }
    let offered: Vec<String> = viber.models().take(MAX_NAMED_MODELS).collect();
    let model = protocol::text::head(model, MAX_NAMED_MODEL_BYTES);
    let message = match offered.is_empty() {
        true => format!("{} offers no choice of models: leave the agent's own", viber.name),
        false => format!("{} does not offer the model {model:?}; it offers: {}", viber.name, offered.join(", ")),
    };
    Err(Error::unacceptable("unknown_model", message))
}

/// How closely people want to follow a task.
#[derive(Clone, Copy, Debug)]
pub(in crate::actions) struct WantedControl {
    pub mode: Option<AgentMode>,
    /// Calls of tools until the agent checks in.
    pub leash: Option<u32>,
    pub on_limit: Option<LimitPolicy>,
}

/// Refuses a mode that is freer than the agent's machine allows, and a leash or a word about limits that the agent would not
/// understand.
pub(in crate::actions) async fn check_control(
    tx: &mut TeamTx<'_>,
    viber: &ViberId,
    agent: &str,
    wanted: WantedControl,
) -> Result<()> {
    let viber = db::vibers::candidate(tx, viber).await?;
    let viber = viber.ok_or_else(|| Error::conflict("viber_revoked", "the viber of this session was revoked"))?;
    let known = viber.agents.iter().find(|known| known.id == agent);
    let most = known.and_then(|known| known.max_mode);
    if let Some((mode, most)) = wanted.mode.zip(most).filter(|(mode, most)| mode > most) {
        let message = format!("this machine allows no more than {}: {} is freer", most.as_str(), mode.as_str());
        return Err(Error::unacceptable("mode_not_allowed", message));
    }
    if wanted.leash.is_some_and(|leash| !(1..=MAX_LEASH_CALLS).contains(&leash)) {
        return Err(Error::unacceptable("bad_leash", format!("a leash is 1 to {MAX_LEASH_CALLS} calls")));
    }
    if wanted.leash.is_some() && known.is_none_or(|known| !known.capabilities.contains(&Capability::Pause)) {
        return Err(Error::unacceptable("no_leash", "this agent does not check in by itself: leave the leash out"));
    }
    if wanted.on_limit.is_some() && known.is_none_or(|known| !known.capabilities.contains(&Capability::Approve)) {
        return Err(Error::unacceptable(
            "no_on_limit",
            "this agent asks for no more than its limits: leave onLimit out",
        ));
    }
    Ok(())
}

/// Refuses an agent whose daemon is known not to keep the team's rules for calls of tools, while there are such rules.
pub(in crate::actions) async fn check_rules(
    tx: &mut TeamTx<'_>,
    viber: &ViberId,
    agent: &str,
    settings: &ApprovalSettings,
) -> Result<()> {
    if !settings.is_restrictive() {
        return Ok(());
    }
    let Some(viber) = db::vibers::load(tx, viber).await? else { return Ok(()) };
    let known = viber.agents.iter().find(|known| known.id == agent);
    if known.is_some_and(|known| !known.capabilities.contains(&Capability::Approve)) {
        let message = format!(
            "the daemon of {} does not know the team's rules for calls of tools, and would not keep them: update it, or \
             choose another viber",
            viber.name
        );
        return Err(Error::unacceptable("rules_unknown", message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::AgentInfo;

    use super::*;

    #[test]
    fn an_unknown_agent_is_refused_with_the_known_ones_once_they_are_known() {
        let mut viber = Candidate {
            id: ViberId::new(1),
            labels: BTreeMap::new(),
            agents: Vec::new(),
            drained: false,
            connected: true,
            busy: 0,
            seen_at: None,
        };
        assert_eq!(agent(&viber, None).expect("not known yet"), "default");
        viber.agents = vec![AgentInfo { id: "coder".into(), ..AgentInfo::default() }];
        assert_eq!(agent(&viber, Some("coder")).expect("known"), "coder");
        viber.agents.clear();
        for path in ["../../.ssh/authorized_keys", "a/b", ".", "", " default", "a\u{2215}b", &"a".repeat(65)] {
            assert!(agent(&viber, Some(path)).is_err(), "{path}");
        }
        viber.agents = vec![AgentInfo { id: "coder".into(), ..AgentInfo::default() }];
        let refused = agent(&viber, Some("poet")).expect_err("unknown");
        assert!(refused.to_string().contains("coder"), "{refused}");
    }
}
