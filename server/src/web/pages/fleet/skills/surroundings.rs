//! What a review shows beside the version itself: what it is compared with, the versions before, and the vibers that have one
//! of them, or could.

use super::{
    decide::orders::OrderList,
    files::SkillReviewQuery,
    giver,
    places::{SkillPlacement, SkillPlaces, approved},
    review::MAX_TARGETS,
    rollouts::RolloutList,
};
use crate::{
    db,
    domain::{LibrarySkill, NamedViber, SkillContents, SkillVersion},
    error::Result,
    state::Board,
    web::extract::Caller,
};

/// Versions that the history shows.
const MAX_HISTORY: u64 = 50;

/// Agents whose ids the forms propose.
const MAX_KNOWN_AGENTS: usize = 50;

/// All of it.
pub struct Surroundings {
    /// What the version is compared with.
    pub base: Option<(LibrarySkill, SkillContents)>,
    /// The newest versions of its name.
    pub history: Vec<LibrarySkill>,
    /// What vibers have of it.
    pub placements: Vec<SkillPlacement>,
    /// Vibers that it can be installed on, and whether there are more.
    pub choices: Vec<NamedViber>,
    pub has_more_choices: bool,
    /// Ids of agents that it can be offered to.
    pub agents: Vec<String>,
    /// The newest rollouts of its name.
    pub rollouts: RolloutList,
    /// Orders that the address names.
    pub orders: OrderList,
    /// Whoever reads added it, and by the team's settings somebody else approves it.
    pub is_own: bool,
    /// The viber that it was taken from.
    pub giver: Option<String>,
}

impl Surroundings {
    /// Of a version that is compared with the one that was asked for, else with the newest approved one.
    pub async fn load(board: &Board, caller: &Caller, skill: &LibrarySkill, asked: &SkillReviewQuery) -> Result<Self> {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let mut places = SkillPlaces::load(&mut tx, Some(&skill.name)).await?;
        let mut found = places.find(&mut tx, &[skill.name.clone()].into()).await?;
        let mut others: Vec<SkillVersion> = places.versions.remove(&skill.name).unwrap_or_default();
        others.retain(|other| other.id != skill.id);
        let base = match others.iter().find(|other| other.id.as_str() == asked.from).or_else(|| approved(&others)) {
            Some(base) => {
                let contents = db::skills::contents(&mut tx, &base.id).await?;
                db::skills::load(&mut tx, &base.id).await?.zip(contents)
            }
            None => None,
        };
        let mut choices = db::vibers::taking_skills(&mut tx, MAX_TARGETS as u64 + 1).await?;
        let has_more_choices = choices.len() > MAX_TARGETS;
        choices.truncate(MAX_TARGETS);
        let agents = db::vibers::agents_taking_skills(&mut tx, MAX_TARGETS as u64).await?;
        Ok(Self {
            base,
            history: db::skills::of_name(&mut tx, &skill.name, MAX_HISTORY).await?,
            placements: found.placements.remove(&skill.name).unwrap_or_default(),
            choices,
            has_more_choices,
            agents: agents.into_iter().take(MAX_KNOWN_AGENTS).collect(),
            rollouts: RolloutList::load(&mut tx, caller, &skill.name, board.clock.now()).await?,
            orders: OrderList::load(&mut tx, &caller.team.slug, skill, &asked.ordered).await?,
            is_own: skill.added_by == caller.by.actor.id()
                && db::approvals::settings::load(&mut tx).await?.not_requester,
            giver: giver(&mut tx, skill).await?,
        })
    }
}
