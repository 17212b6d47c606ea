//! What a team lets its agents ask of each other, and which agents of other vibers they are told of.

use std::collections::BTreeSet;

use protocol::{
    MeshDirectory, TeamId,
    mesh::{ListedAgent, ListedViber, MAX_CHILDREN_PER_TASK, MAX_TREE_DEPTH},
    text::head,
};
use serde_json::json;

use crate::{
    actions::VersionedChange,
    db::{self, TeamTx, audit::Entry},
    domain::{By, ContactState, MeshSettings, Viber},
    error::{Error, Result},
    state::Board,
};

/// Places that are looked up for a viber's agents at most, and vibers of one label.
const MAX_PLACES: usize = 64;
const MAX_LABELED_VIBERS: u64 = 50;
/// Agents of one viber that they are told of at most.
const MAX_LISTED_AGENTS: usize = 100;
/// Longest description of an agent, bytes.
const MAX_DESCRIPTION_BYTES: usize = 300;

/// What is to be changed of the settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct MeshChange {
    pub across_vibers: Option<bool>,
    pub max_depth: Option<u32>,
    pub max_children: Option<u32>,
}

/// Changes the team's settings. `base`: the version that the author saw, if they say it.
pub async fn change(
    board: &Board,
    team: &TeamId,
    by: &By,
    wanted: MeshChange,
    base: Option<u64>,
) -> Result<VersionedChange<MeshSettings>> {
    check(&wanted)?;
    let storing = board.change(team, by, move |tx| {
        Box::pin(async move {
            // Two changes at once would lose one of them.
            db::teams::lock(tx).await?;
            let before = db::mesh_settings::load(tx).await?;
            if base.is_some_and(|base| base != before.version) {
                return Ok(VersionedChange::Stale(before));
            }
            let now = MeshSettings {
                across_vibers: wanted.across_vibers.unwrap_or(before.across_vibers),
                max_depth: wanted.max_depth.unwrap_or(before.max_depth),
                max_children: wanted.max_children.unwrap_or(before.max_children),
                version: before.version + 1,
            };
            db::mesh_settings::store(tx, &now).await?;
            let team = tx.team.clone();
            let (old, new) = (words(&before), words(&now));
            let entry = Entry::new("mesh.change", team.as_str()).detail(&new);
            db::audit::append(tx, entry.before(old.as_str()).after(new.as_str())).await?;
            Ok::<_, Error>(VersionedChange::Made(now))
        })
    });
    storing.await
}

fn check(wanted: &MeshChange) -> Result<()> {
    let is_within = |value: Option<u32>, most: u32| value.is_none_or(|value| (1..=most).contains(&value));
    if !is_within(wanted.max_depth, MAX_TREE_DEPTH) {
        return Err(Error::unacceptable("bad_bound", format!("a tree is 1 to {MAX_TREE_DEPTH} deep")));
    }
    if !is_within(wanted.max_children, MAX_CHILDREN_PER_TASK) {
        return Err(Error::unacceptable("bad_bound", format!("a task asks for 1 to {MAX_CHILDREN_PER_TASK} others")));
    }
    Ok(())
}

fn words(settings: &MeshSettings) -> String {
    let MeshSettings { across_vibers, max_depth, max_children, .. } = settings;
    json!({ "acrossVibers": across_vibers, "maxDepth": max_depth, "maxChildren": max_children }).to_string()
}

/// The agents in places that those of a viber may call: names of vibers, and `label=value`. Nobody while the team keeps vibers
/// apart.
pub async fn directory(board: &Board, team: &TeamId, places: &[String]) -> Result<MeshDirectory> {
    let mut tx = board.db.reader_of(team).await?;
    if !db::mesh_settings::load(&mut tx).await?.across_vibers {
        return Ok(MeshDirectory::default());
    }
    let found = in_places(&mut tx, places).await?;
    let vibers = found.into_iter().map(|viber| ListedViber {
        labels: viber.labels.iter().map(|(key, value)| format!("{key}={value}")).collect(),
        connected: viber.contact.state == ContactState::Connected,
        open_tasks: viber.running.saturating_add(viber.queued),
        agents: viber
            .agents
            .iter()
            .filter(|agent| agent.error.is_none())
            .take(MAX_LISTED_AGENTS)
            .map(listed_agent)
            .collect(),
        name: viber.name,
    });
    Ok(MeshDirectory { across_vibers: true, vibers: vibers.collect() })
}

/// The vibers in places, each once.
async fn in_places(tx: &mut TeamTx<'_>, places: &[String]) -> Result<Vec<Viber>> {
    let mut found: Vec<Viber> = Vec::new();
    for place in places.iter().take(MAX_PLACES) {
        let more = match place.split_once('=') {
            Some((label, value)) => db::vibers::labeled(tx, (label.trim(), value.trim()), MAX_LABELED_VIBERS).await?,
            None => db::vibers::called(tx, place.trim()).await?.into_iter().collect(),
        };
        for one in more {
            if found.iter().all(|known| known.id != one.id) {
                found.push(one);
            }
        }
    }
    Ok(found)
}

/// What stands under `delegates` in the files of a viber's agents and names nobody, as it is written there.
pub async fn unknown_delegates(board: &Board, team: &TeamId, viber: &Viber) -> Result<BTreeSet<String>> {
    let written: BTreeSet<&String> = viber.agents.iter().flat_map(|agent| &agent.delegates).collect();
    let places: BTreeSet<&str> = written.iter().filter_map(|entry| Some(entry.split_once('@')?.1.trim())).collect();
    let places: Vec<String> = places.into_iter().take(MAX_PLACES).map(str::to_owned).collect();
    let there = in_places(&mut board.db.reader_of(team).await?, &places).await?;
    let has = |viber: &Viber, agent: &str| viber.agents.iter().any(|known| known.id == agent);
    let is_in = |viber: &Viber, place: &str| match place.split_once('=') {
        Some((label, value)) => viber.labels.get(label.trim()).is_some_and(|known| known == value.trim()),
        None => viber.name == place,
    };
    let is_known = |entry: &str| match entry.split_once('@').map(|(agent, place)| (agent.trim(), place.trim())) {
        None => has(viber, entry.trim()),
        // Of more places than are looked at nothing is said.
        Some((_, place)) if places.iter().all(|known| known != place) => true,
        Some((agent, place)) => there.iter().any(|other| is_in(other, place) && has(other, agent)),
    };
    Ok(written.into_iter().filter(|entry| !is_known(entry)).cloned().collect())
}

fn listed_agent(agent: &protocol::AgentInfo) -> ListedAgent {
    ListedAgent { id: agent.id.clone(), description: head(&agent.description, MAX_DESCRIPTION_BYTES).to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_every_tree() {
        let depth = |depth| MeshChange { max_depth: Some(depth), ..MeshChange::default() };
        let children = |children| MeshChange { max_children: Some(children), ..MeshChange::default() };
        assert!(check(&depth(1)).is_ok() && check(&depth(3)).is_ok() && check(&children(8)).is_ok());
        for wrong in [depth(0), depth(4), children(0), children(9)] {
            assert!(check(&wrong).is_err(), "{wrong:?}");
        }
        assert!(check(&MeshChange::default()).is_ok());
    }
}
