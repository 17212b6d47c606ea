//! What a review shows beside the version itself: what it is compared with, the versions before, and the vibers that have one
//! of them, or could.

use super::{
    giver,
    places::{SkillPlacement, SkillPlaces, approved},
    review::MAX_TARGETS,
    rollouts::{self, RolloutView},
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
    /// The newest rollouts of its name.
    pub rollouts: Vec<RolloutView>,
    /// The viber that it was taken from.
    pub giver: Option<String>,
}

impl Surroundings {
    /// Of a version that is compared with the one named by `from`, else with the newest approved one.
    pub async fn load(board: &Board, caller: &Caller, skill: &LibrarySkill, from: &str) -> Result<Self> {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let mut places = SkillPlaces::load(&mut tx, Some(&skill.name)).await?;
        let mut found = places.find(&mut tx, &[skill.name.clone()].into()).await?;
        let mut others: Vec<SkillVersion> = places.versions.remove(&skill.name).unwrap_or_default();
        others.retain(|other| other.id != skill.id);
        let base = match others.iter().find(|other| other.id.as_str() == from).or_else(|| approved(&others)) {
            Some(base) => {
                let contents = db::skills::contents(&mut tx, &base.id).await?;
                db::skills::load(&mut tx, &base.id).await?.zip(contents)
            }
            None => None,
        };
        let mut choices = db::vibers::taking_skills(&mut tx, MAX_TARGETS as u64 + 1).await?;
        let has_more_choices = choices.len() > MAX_TARGETS;
        choices.truncate(MAX_TARGETS);
        Ok(Self {
            base,
            history: db::skills::of_name(&mut tx, &skill.name, MAX_HISTORY).await?,
            placements: found.placements.remove(&skill.name).unwrap_or_default(),
            choices,
            has_more_choices,
            rollouts: rollouts::newest(&mut tx, caller, &skill.name).await?,
            giver: giver(&mut tx, skill).await?,
        })
    }
}
