//! The review of one version: what it may do, every file exactly, what stands out, and what can be decided about it.

use std::collections::BTreeMap;

use askama::Template;
use axum::{
    extract::{Query, State},
    response::Html,
};
use protocol::{SkillId, ViberId};

use super::{
    decide::orders::{OrderList, OrderOutcome},
    files::{self, FindingView, SkillFileLinks, SkillFilesView, SkillReviewQuery},
    permissions::PermissionsView,
    places::SkillPlacement,
    rollouts::RolloutList,
    surroundings::Surroundings,
    text::LinePiece,
    words,
};
use crate::{
    actions::skills,
    domain::{
        LibrarySkill, Role, SkillContents, SkillReviewState,
        skills::{SkillBundle, marked},
    },
    error::{Error, Result},
    state::Board,
    web::{
        AsViewer, Rejection,
        extract::{Caller, Id},
        html, urls,
        view::{Badge, PageLocation, Shell, filters},
    },
};

/// Vibers that one form installs on.
pub const MAX_TARGETS: usize = 200;

/// What somebody just sent, and what came of it.
#[derive(Default)]
pub struct ReviewOutcome {
    pub decide_error: Option<String>,
    pub note: String,
    pub install_error: Option<String>,
    pub label: String,
    pub agents: String,
    pub orders: Vec<OrderOutcome>,
    pub rollout_error: Option<String>,
    pub rollout_labels: String,
    pub rollout_agents: String,
}

/// Another version of the name.
struct VersionLine {
    skill: LibrarySkill,
    badge: Badge,
    version: String,
    digest: String,
    href: String,
    /// This version against it.
    compare: String,
    is_this: bool,
    /// Vibers that have these files.
    on: usize,
}

impl VersionLine {
    fn places(&self) -> String {
        match self.on {
            0 => "on no viber".to_owned(),
            n => format!("on {}", words::count(n, "viber", "vibers")),
        }
    }
}

/// A viber that it can be installed on.
struct InstallChoice {
    viber: ViberId,
    name: String,
    has: String,
    is_away: bool,
}

/// The page.
#[derive(Template)]
#[template(path = "fleet/skills/show.html")]
pub struct Page {
    shell: Shell,
    slug: String,
    skill: LibrarySkill,
    contents: SkillContents,
    badge: Badge,
    origin: String,
    /// What it is compared with.
    base: Option<LibrarySkill>,
    permissions: PermissionsView,
    files: Option<SkillFilesView>,
    /// Why there are no files.
    trouble: Option<&'static str>,
    findings: Vec<FindingView>,
    history: Vec<VersionLine>,
    choices: Vec<InstallChoice>,
    has_more_choices: bool,
    /// Ids of agents that the forms propose.
    agents: Vec<String>,
    rollouts: RolloutList,
    orders: OrderList,
    said: ReviewOutcome,
    is_admin: bool,
    /// Whoever reads may not approve it: the team's settings leave that to somebody else than whoever added it.
    is_own: bool,
}

impl Page {
    fn version(&self) -> String {
        words::version(self.skill.version.as_deref(), &self.skill.digest)
    }

    fn base_version(&self) -> String {
        self.base.as_ref().map(|base| words::version(base.version.as_deref(), &base.digest)).unwrap_or_default()
    }

    fn verb(&self, verb: &str) -> String {
        urls::skill_verb(&self.slug, &self.skill.id, verb)
    }

    fn is_approved(&self) -> bool {
        self.skill.review.state == SkillReviewState::Approved
    }
}

impl SkillFileLinks for Page {
    fn link(&self, parameters: &[(&str, &str)]) -> String {
        let from = self.base.as_ref().map(|base| base.id.to_string()).unwrap_or_default();
        let mut all = vec![("from", from.as_str())];
        all.extend(parameters);
        urls::skill_with(&self.slug, &self.skill.id, &all)
    }
}

/// `GET /t/{team}/skills/{id}`
pub async fn show(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<SkillId>,
    Query(asked): Query<SkillReviewQuery>,
) -> Result<Html<String>, Rejection> {
    html(&page(&board, &caller, &id, asked, ReviewOutcome::default()).await?)
}

/// The bundle of a version; `Err` says why the store does not have it any more.
pub(super) async fn stored(
    board: &Board,
    caller: &Caller,
    skill: &LibrarySkill,
) -> Result<Result<SkillBundle, &'static str>> {
    match skills::bundle(board, &caller.team.id, skill).await {
        Ok(bundle) => Ok(Ok(bundle)),
        Err(Error::Gone(why)) => Ok(Err(why)),
        Err(error) => Err(error),
    }
}

pub async fn page(
    board: &Board,
    caller: &Caller,
    id: &SkillId,
    asked: SkillReviewQuery,
    mut said: ReviewOutcome,
) -> Result<Page> {
    let (skill, contents) = skills::with_contents(board, &caller.team.id, id).await?;
    let shell = Shell::load(board, caller).await?.at(PageLocation::Skill(id.clone(), asked.ordered.clone()));
    let around = Surroundings::load(board, caller, &skill, &asked).await?;
    let turn = skills::turn(&caller.team.id).await?;
    let new = stored(board, caller, &skill).await?;
    let old = match &around.base {
        Some((base, before)) if new.is_ok() => {
            stored(board, caller, base).await?.ok().map(|old| (old, before.permissions.clone()))
        }
        _ => None,
    };
    let base = around.base.map(|(base, _)| base).filter(|_| old.is_some());
    let trouble = new.as_ref().err().copied();
    let listed = contents.clone();
    let work = tokio::task::spawn_blocking(move || {
        let Ok(new) = new else { return (PermissionsView::of(&listed.permissions, None), None) };
        let old = old.as_ref().map(|(old, before)| (old, before));
        let (permissions, files) = files::compare((&new, &listed), old, &asked);
        (permissions, Some(files))
    });
    let (permissions, files) = work.await.map_err(|error| Error::Internal(error.to_string()))?;
    drop(turn);
    let slug = caller.team.slug.clone();
    let there: BTreeMap<&ViberId, &SkillPlacement> =
        around.placements.iter().map(|place| (&place.viber.id, place)).collect();
    let choices = around.choices.iter().map(|viber| InstallChoice {
        viber: viber.id.clone(),
        name: viber.name.clone(),
        has: there.get(&viber.id).map_or_else(|| "does not have it".to_owned(), |place| format!("has {}", place.words)),
        is_away: !viber.is_connected,
    });
    let history = around.history.iter().map(|other| version_line(&slug, other, &skill, &around.placements));
    let from = base.as_ref().map(|base| base.id.to_string()).unwrap_or_default();
    let link = |parameters: &[(&str, &str)], place: &str| {
        let parameters = [&[("from", from.as_str())][..], parameters].concat();
        format!("{}#{place}", urls::skill_with(&slug, &skill.id, &parameters))
    };
    Ok(Page {
        shell,
        badge: words::review_badge(skill.review.state),
        origin: words::origin(&skill, around.giver.as_deref()),
        permissions,
        files,
        trouble,
        findings: contents.findings.iter().map(|finding| FindingView::of(finding, link)).collect(),
        history: history.collect(),
        has_more_choices: around.has_more_choices,
        agents: around.agents,
        rollouts: around.rollouts,
        orders: match said.orders.is_empty() {
            true => around.orders,
            false => OrderList { orders: std::mem::take(&mut said.orders), more: 0 },
        },
        is_own: around.is_own,
        choices: choices.collect(),
        said,
        is_admin: caller.role >= Role::Admin,
        base,
        contents,
        skill,
        slug,
    })
}

fn version_line(slug: &str, other: &LibrarySkill, this: &LibrarySkill, placements: &[SkillPlacement]) -> VersionLine {
    VersionLine {
        badge: words::review_badge(other.review.state),
        version: words::version(other.version.as_deref(), &other.digest),
        digest: words::short_digest(&other.digest, 2),
        href: urls::skill(slug, &other.id),
        compare: urls::skill_with(slug, &this.id, &[("from", other.id.as_str())]),
        is_this: other.id == this.id,
        on: placements.iter().filter(|place| place.digest == other.digest).count(),
        skill: other.clone(),
    }
}
