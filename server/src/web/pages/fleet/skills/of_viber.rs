//! The skills of one viber, on its page: whether each can be used, which agents it is offered to, and what was ordered.

use askama::Template;
use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use axum_extra::extract::Form;
use protocol::{
    ConfigError, Instant, SKILLS_CAPABILITY, SkillCheck, SkillInfo, SkillKind, SkillScope, SkillState, ViberId,
};
use serde::Deserialize;

use super::{
    places::{SkillPlaces, SkillStanding, approved, known, standing},
    refusal, words,
};
use crate::{
    actions::{
        skill_orders::{self, SkillChange},
        skills,
    },
    db,
    domain::{
        ContactState, HeldSkill, OrderState, Role, SkillOp, SkillOrder, SkillVersion, Viber, open_orders,
        skills::marked,
    },
    error::{Error, Result},
    state::Board,
    web::pages::viber,
    web::{
        AsAdmin, Rejection,
        extract::{Caller, Id},
        html_with, urls,
        view::{Badge, filters},
    },
};

/// Skills that are shown.
const MAX_SKILLS: usize = 100;
/// Orders that are looked at, as many as may wait, and those that are shown.
const MAX_ORDERS: u64 = 200;
const MAX_SHOWN_ORDERS: usize = 10;
/// Agents that one skill is offered to.
const MAX_AGENTS: usize = 50;

/// The section.
#[derive(Clone, Debug, Template)]
#[template(path = "fleet/skills/_of_viber.html")]
pub struct ViberSkillsSection {
    slug: String,
    now: Instant,
    action: String,
    viber: ViberId,
    /// Why nothing was done.
    pub refused: Option<String>,
    skills: Vec<ViberSkillView>,
    omitted: usize,
    orders: Vec<OrderView>,
    more_orders: usize,
    /// Whether its daemon takes orders about skills.
    is_able: bool,
    is_connected: bool,
    may_change: bool,
}

/// A skill that lies there.
#[derive(Clone, Debug)]
struct ViberSkillView {
    info: SkillInfo,
    badge: Badge,
    version: String,
    digest: String,
    source: String,
    /// The page of its files as they lie there.
    look: String,
    /// The page of the version with these files.
    known: Option<String>,
    /// The approved version that it is not on, and its page.
    newer: Option<(String, String)>,
    /// Agents of the viber, and whether it is offered to each.
    agents: Vec<(String, bool)>,
    /// How many more agents there are, none of which has it.
    more_agents: usize,
    is_installed: bool,
}

impl ViberSkillView {
    /// What it is, and why: `Tool: a script: 1 sh block in its text`.
    fn kind(&self) -> String {
        let (kind, why) = match self.info.kind {
            SkillKind::Tool => ("Tool", self.info.runs.as_str()),
            SkillKind::Instructions => {
                ("Instructions", self.info.runs.strip_prefix("instructions: ").unwrap_or(&self.info.runs))
            }
        };
        if why.is_empty() { kind.to_owned() } else { format!("{kind}: {}", marked(why)) }
    }

    /// Its file is broken, and what it said before that is in use.
    fn is_former_in_use(&self) -> bool {
        self.info.error.is_some() && self.info.state == SkillState::Ready
    }

    fn calls(&self) -> String {
        format!("called {} {}", self.info.calls, if self.info.calls == 1 { "time" } else { "times" })
    }

    fn is_open(&self) -> bool {
        self.info.error.is_some() || !matches!(self.info.state, SkillState::Ready | SkillState::Shadowed)
    }

    fn is_changed(&self) -> bool {
        self.info.state == SkillState::Modified
    }

    fn can_be_accepted(&self) -> bool {
        matches!(self.info.state, SkillState::Modified | SkillState::Untrusted) && self.info.digest.len() == 64
    }

    /// The files that are meant by a form, unless the viber has told what the version before them was.
    fn told_digest(&self) -> &str {
        if self.info.error.is_some() { "" } else { &self.info.digest }
    }

    fn is_shadowed(&self) -> bool {
        self.info.state == SkillState::Shadowed
    }
}

/// An order that waits, or that its viber refused.
#[derive(Clone, Debug)]
struct OrderView {
    order: SkillOrder,
    what: String,
}

impl OrderView {
    fn of(order: SkillOrder) -> Self {
        Self { what: what(&order), order }
    }

    fn is_queued(&self) -> bool {
        self.order.state == OrderState::Queued
    }
}

fn badge(info: &SkillInfo) -> Badge {
    match info.state {
        SkillState::Ready if info.error.is_some() => {
            Badge { state: "waiting", icon: "note", word: "Ready, with a broken edit" }
        }
        SkillState::Ready => Badge { state: "done", icon: "check", word: "Ready" },
        SkillState::NeedsSetup => Badge { state: "waiting", icon: "key", word: "Needs setup" },
        SkillState::Modified => Badge { state: "waiting", icon: "conflict", word: "Modified" },
        SkillState::Untrusted => Badge { state: "waiting", icon: "note", word: "Not accepted" },
        SkillState::Shadowed => Badge { state: "idle", icon: "stopped", word: "Shadowed" },
        SkillState::Error => Badge { state: "failed", icon: "failed", word: "Broken" },
    }
}

fn source(info: &SkillInfo) -> String {
    let what = match info.source.kind.as_str() {
        "library" => "library",
        "clawhub" => "ClawHub",
        "space" => "a space",
        _ => "its own files",
    };
    let scope = match info.scope {
        SkillScope::Agent => ", for one agent",
        SkillScope::Home => "",
        SkillScope::Space => ", where agents can write",
    };
    format!("{what}{scope}")
}

fn what(order: &SkillOrder) -> String {
    let name = &order.name;
    match order.subject.op {
        SkillOp::Install => {
            let (version, digest) = (order.subject.version.as_deref(), order.subject.digest.as_deref());
            let version = words::version(version, digest.unwrap_or(""));
            format!("Install {name} {version}")
        }
        SkillOp::Remove => format!("Remove {name}"),
        SkillOp::Accept => format!("Accept the files of {name}"),
        SkillOp::Enable => format!("Choose the agents of {name}"),
    }
}

impl ViberSkillsSection {
    /// As the viber reported them.
    pub async fn load(board: &Board, caller: &Caller, viber: &Viber) -> Result<Self> {
        let (places, orders) = {
            let mut tx = board.db.reader_of(&caller.team.id).await?;
            let places = match viber.skills.is_empty() {
                true => SkillPlaces::default(),
                false => SkillPlaces::load(&mut tx, None).await?,
            };
            (places, db::orders::newest(&mut tx, &viber.id, MAX_ORDERS).await?)
        };
        let slug = caller.team.slug.clone();
        let view = |info: &&SkillInfo| {
            let versions = places.versions.get(&info.name).map(Vec::as_slice).unwrap_or_default();
            view(&slug, viber, versions, info)
        };
        let (orders, more_orders) = open_orders(orders, MAX_SHOWN_ORDERS);
        Ok(Self {
            now: board.clock.now(),
            action: urls::viber_verb(&slug, &viber.id, "skills"),
            viber: viber.id.clone(),
            refused: None,
            skills: shown(&viber.skills).iter().map(view).collect(),
            omitted: viber.skills.len().saturating_sub(MAX_SKILLS),
            orders: orders.into_iter().map(OrderView::of).collect(),
            more_orders,
            is_able: viber.capabilities.iter().any(|word| word == SKILLS_CAPABILITY),
            is_connected: viber.contact.state == ContactState::Connected,
            may_change: caller.role >= Role::Admin,
            slug,
        })
    }

    /// Whether its forms are shown.
    fn has_forms(&self) -> bool {
        self.may_change && self.is_able
    }
}

/// The skills that are shown: of too many rather those that somebody has to look at.
fn shown(skills: &[SkillInfo]) -> Vec<&SkillInfo> {
    let mut all: Vec<&SkillInfo> = skills.iter().collect();
    if all.len() > MAX_SKILLS {
        all.sort_by_key(|info| match info.state {
            SkillState::Modified | SkillState::Untrusted => 0,
            SkillState::Error | SkillState::NeedsSetup => 1,
            SkillState::Ready => 2,
            SkillState::Shadowed => 3,
        });
        all.truncate(MAX_SKILLS);
    }
    all
}

fn view(slug: &str, viber: &Viber, versions: &[SkillVersion], info: &SkillInfo) -> ViberSkillView {
    let known = known(versions, &info.digest);
    let newer = match standing(versions, &HeldSkill::from(info)) {
        SkillStanding::Behind => approved(versions),
        _ => None,
    };
    let version = |skill: &SkillVersion| words::version(skill.version.as_deref(), &skill.digest);
    let (agents, more_agents) = offered(viber.agents.iter().map(|agent| agent.id.as_str()), &info.agents);
    ViberSkillView {
        badge: badge(info),
        version: known.map_or_else(|| marked(info.source.version.as_deref().unwrap_or_default()), version),
        digest: words::short_digest(&info.digest, 2),
        source: source(info),
        look: urls::viber_skill(slug, &viber.id, &info.name, &[("digest", &info.digest)]),
        known: known.map(|skill| urls::skill(slug, &skill.id)),
        newer: newer.map(|skill| (version(skill), format!("{}#install", urls::skill(slug, &skill.id)))),
        agents,
        more_agents,
        is_installed: matches!(info.source.kind.as_str(), "library" | "clawhub"),
        info: in_lines(info),
    }
}

/// The agents of a viber that a skill's form names, whether each has it, and how many more there are. All that have it are among
/// them, because saving the form takes it from the others.
fn offered<'a>(agents: impl Iterator<Item = &'a str>, having: &[String]) -> (Vec<(String, bool)>, usize) {
    let all = agents.map(|id| (id.to_owned(), having.iter().any(|one| one == id)));
    let (with, mut without): (Vec<_>, Vec<_>) = all.partition(|(_, has_it)| *has_it);
    let room = MAX_AGENTS.saturating_sub(with.len());
    let more = without.len().saturating_sub(room);
    without.truncate(room);
    (with.into_iter().chain(without).collect(), more)
}

/// A skill whose error is one line: daemons of earlier versions report lines of the file with it.
fn in_lines(info: &SkillInfo) -> SkillInfo {
    let error = info.error.clone().map(|error| {
        let first = error.message.lines().next().unwrap_or_default().to_owned();
        ConfigError { message: first, ..error }
    });
    SkillInfo { error, ..info.clone() }
}

/// Whether what mends a check is a command, and no sentence about files and variables.
fn is_command(check: &SkillCheck) -> bool {
    matches!(check.kind.as_str(), "bin" | "anyBin" | "interpreter")
}

/// What is wanted of a skill.
#[derive(Debug, Deserialize)]
pub struct ViberSkillForm {
    /// `enable`, `accept`, `restore`, `remove` or `check`.
    #[serde(default)]
    action: String,
    #[serde(default)]
    name: String,
    /// Of the files that were seen.
    #[serde(default)]
    digest: String,
    #[serde(default)]
    agents: Vec<String>,
}

async fn act(board: &Board, caller: &Caller, id: &ViberId, form: ViberSkillForm) -> Result<()> {
    let (team, ViberSkillForm { action, name, digest, agents }) = (&caller.team.id, form);
    let change = match action.as_str() {
        "enable" => SkillChange::Enable { name, agents },
        "accept" => SkillChange::Accept { name, digest },
        "remove" => SkillChange::Remove { name },
        "restore" => skill_orders::last_installed(board, team, id, &name).await?,
        "check" => return skills::check(board, team, id).await.map(drop),
        _ => return Err(Error::unacceptable("no_action", "this page does not know what is wanted")),
    };
    skill_orders::order(board, team, &caller.by, id, change).await.map(drop)
}

/// `POST /t/{team}/vibers/{id}/skills`
pub async fn change(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<ViberId>,
    Form(form): Form<ViberSkillForm>,
) -> Result<Response, Rejection> {
    match act(&board, &caller, &id, form).await {
        Ok(()) => Ok(Redirect::to(&urls::viber_skills(&caller.team.slug, &id)).into_response()),
        Err(error) => {
            let (status, reason) = refusal(error)?;
            let mut page = viber::page(&board, &caller, &id).await?;
            page.skills.refused = Some(reason);
            html_with(status, &page)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_skills_those_that_wait_for_somebody_are_shown() {
        let info = |name: String, state| SkillInfo { name, state, ..SkillInfo::default() };
        let mut skills: Vec<_> = (0..150).map(|n| info(format!("skill-{n:03}"), SkillState::Ready)).collect();
        assert_eq!(shown(&skills[..100])[99].name, "skill-099");
        skills.push(info("changed".to_owned(), SkillState::Modified));
        let names: Vec<_> = shown(&skills).iter().map(|info| info.name.as_str()).collect();
        assert_eq!((names.len(), names[0], names[1], names[99]), (100, "changed", "skill-000", "skill-098"));
    }

    #[test]
    fn an_agent_that_has_a_skill_is_named_however_many_there_are() {
        let ids: Vec<String> = (0..60).map(|n| format!("a{n:02}")).collect();
        let (named, more) = offered(ids.iter().map(String::as_str), &["a59".to_owned()]);
        assert_eq!((named.len(), &named[0], more), (MAX_AGENTS, &("a59".to_owned(), true), 10));
        let (few, none) = offered(ids.iter().take(2).map(String::as_str), &[]);
        assert_eq!((few, none), (vec![("a00".to_owned(), false), ("a01".to_owned(), false)], 0));
    }

    #[test]
    fn what_is_broken_is_not_simply_ready_and_its_error_is_one_line() {
        let error = ConfigError { file: "SKILL.md".to_owned(), line: 4, message: "wrong\n4 | parameters:".to_owned() };
        let broken = SkillInfo { error: Some(error), ..SkillInfo::default() };
        assert_eq!(badge(&SkillInfo::default()).word, "Ready");
        assert_eq!(badge(&broken).word, "Ready, with a broken edit");
        assert_eq!(in_lines(&broken).error.map(|error| error.message).as_deref(), Some("wrong"));
    }
}
