//! One viber: what it is, what it runs, which agents, skills, MCP servers and providers it has, and what an admin can change.

use std::collections::BTreeMap;

use askama::Template;
use axum::{
    Form,
    extract::State,
    http::StatusCode,
    response::{Html, IntoResponse, Redirect, Response},
};
use protocol::{AgentInfo, ConfinedState, Confinement, ViberId};
use serde::Deserialize;

use crate::{
    actions, db,
    domain::{ContactState, Role, Task, Viber},
    error::{Error, Result},
    state::Board,
    web::pages::{
        mcp::ViberMcpSection,
        preflight::{self, Fact},
        providers::ProvidersSection,
        skills::of_viber::ViberSkillsSection,
        vibers::{self, Meter},
    },
    web::{
        AsAdmin, AsOperator, AsViewer, Rejection,
        extract::{Caller, Id},
        html, html_with, urls,
        view::{Badge, PageLocation, Shell, filters},
    },
};

/// Tasks of the viber that its page lists.
const MAX_LISTED_TASKS: u64 = 20;

/// The page.
#[derive(Template)]
#[template(path = "fleet/vibers/show.html")]
pub(super) struct Page {
    shell: Shell,
    slug: String,
    state: StateView,
    viber: Viber,
    facts: Vec<Fact>,
    agents: Vec<AgentView>,
    /// Why no agent was added.
    pub(super) agent_refused: Option<String>,
    /// Templates of agents, and what they are good for.
    templates: &'static [(&'static str, &'static str)],
    pub(super) providers: ProvidersSection,
    pub(super) skills: ViberSkillsSection,
    pub(super) mcp: ViberMcpSection,
    confinement: Option<ConfinementView>,
    tasks: Vec<TaskLine>,
    labels: String,
    error: Option<String>,
    may_act: bool,
    may_change: bool,
}

impl Page {
    fn verb(&self, verb: &str) -> String {
        urls::viber_verb(&self.slug, &self.viber.id, verb)
    }

    /// Where all its tasks are, by session.
    fn sessions(&self) -> String {
        urls::sessions_with(&self.slug, &[("steps", "1"), ("viber", self.viber.id.as_str())])
    }
}

/// The facts that change by themselves: a region of the live stream.
#[derive(Clone, Debug, Template)]
#[template(path = "fleet/vibers/_state.html")]
pub struct StateView {
    now: protocol::Instant,
    viber: Viber,
    badge: Badge,
    meters: Vec<Meter>,
    read_at: Option<protocol::Instant>,
}

impl StateView {
    /// As it is now.
    pub fn of(board: &Board, viber: Viber) -> Self {
        let (meters, read_at) = vibers::meters(board, &viber);
        Self { now: board.clock.now(), badge: vibers::state(&viber), meters, read_at, viber }
    }

    /// In short, for the row of facts; `None` when nothing was reported yet.
    fn confinement(&self) -> Option<(&'static str, String)> {
        Some(match (self.viber.is_confined()?, self.viber.left_open().as_slice()) {
            (false, _) => ("wait", "unconfined".to_owned()),
            (true, []) => ("", "confined".to_owned()),
            (true, left) => ("wait", format!("confined, except {}", left.join(", "))),
        })
    }

    fn is_offline(&self) -> bool {
        self.viber.contact.state != ContactState::Connected
    }
}

/// An agent, with a sentence about when it asks before acting.
#[derive(Clone, Debug)]
struct AgentView {
    agent: AgentInfo,
    conduct: String,
    /// Whom it may call and who is not there.
    unknown: Vec<String>,
}

/// What commands can access on the machine, by subject.
#[derive(Clone, Debug, Template)]
#[template(path = "fleet/vibers/_confinement.html")]
struct ConfinementView {
    reported: Confinement,
}

impl ConfinementView {
    fn word(&self, state: &ConfinedState) -> &'static str {
        match state {
            ConfinedState::Kept => "kept",
            ConfinedState::Partly => "partly",
            ConfinedState::Open => "open",
        }
    }

    /// What was granted besides the spaces of its agents.
    fn granted(&self) -> Vec<(&'static str, String)> {
        let granted = &self.reported.granted;
        let list = |paths: &[String]| paths.join(", ");
        let mut given: Vec<(&'static str, String)> = vec![
            ("Write access", list(&granted.write)),
            ("Read access to hidden files", list(&granted.read)),
            ("Sockets", list(&granted.sockets)),
        ];
        given.retain(|(_, list)| !list.is_empty());
        given
    }
}

/// A task in a list.
#[derive(Clone, Debug)]
struct TaskLine {
    task: Task,
    badge: Badge,
    title: String,
}

/// `GET /t/{team}/vibers/{id}`
pub async fn show(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ViberId>,
) -> Result<Html<String>, Rejection> {
    html(&page(&board, &caller, &id).await?)
}

pub(super) async fn page(board: &Board, caller: &Caller, id: &ViberId) -> Result<Page> {
    let (viber, tasks) = {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let viber = db::vibers::load(&mut tx, id).await?.ok_or(Error::NotFound)?;
        let filter = db::tasks::TaskFilter { viber: Some(id.clone()), ..Default::default() };
        (viber, db::tasks::list(&mut tx, &filter, None, MAX_LISTED_TASKS).await?.tasks)
    };
    let slug = caller.team.slug.clone();
    let may_act = caller.role >= Role::Operator;
    let line = |task: Task| TaskLine { badge: Badge::task(&task), title: protocol::text::title(&task.goal), task };
    let nobody = actions::mesh_settings::unknown_delegates(board, &caller.team.id, &viber).await?;
    let agent = |agent: &AgentInfo| AgentView {
        agent: agent.clone(),
        conduct: preflight::conduct(agent),
        unknown: agent.delegates.iter().filter(|entry| nobody.contains(*entry)).cloned().collect(),
    };
    Ok(Page {
        shell: Shell::load(board, caller).await?.at(PageLocation::Viber(viber.id.clone())),
        facts: preflight::facts(&slug, &viber, None).into_iter().filter(|fact| fact.tone != "mute").collect(),
        agents: viber.agents.iter().map(agent).collect(),
        agent_refused: None,
        templates: actions::agents::TEMPLATES,
        providers: ProvidersSection::of(caller, &viber),
        skills: ViberSkillsSection::load(board, caller, &viber).await?,
        mcp: ViberMcpSection::load(board, caller, &viber).await?,
        confinement: viber.confinement.clone().map(|reported| ConfinementView { reported }),
        tasks: tasks.into_iter().map(line).collect(),
        labels: write_labels(&viber.labels),
        state: StateView::of(board, viber.clone()),
        error: None,
        may_act,
        may_change: caller.role >= Role::Admin,
        slug,
        viber,
    })
}

/// `key=value` words, as one edits them.
fn write_labels(labels: &BTreeMap<String, String>) -> String {
    let word = |(key, value): (&String, &String)| if value.is_empty() { key.clone() } else { format!("{key}={value}") };
    labels.iter().map(word).collect::<Vec<_>>().join(", ")
}

fn read_labels(text: &str) -> BTreeMap<String, String> {
    let words = text.split([',', '\n']).map(str::trim).filter(|word| !word.is_empty());
    words
        .map(|word| word.split_once('=').unwrap_or((word, "")))
        .map(|(k, v)| (k.trim().into(), v.trim().into()))
        .collect()
}

/// What the forms of the page send.
#[derive(Debug, Default, Deserialize)]
pub struct ViberForm {
    #[serde(default)]
    name: String,
    #[serde(default)]
    labels: String,
}

/// `POST /t/{team}/vibers/{id}/rename`: name and labels.
pub async fn rename(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<ViberId>,
    Form(form): Form<ViberForm>,
) -> Result<Response, Rejection> {
    let (team, by) = (&caller.team.id, &caller.by);
    let named = actions::vibers::rename(&board, team, by, &id, &form.name).await;
    let done = match named {
        Ok(_) => actions::vibers::set_labels(&board, team, by, &id, &read_labels(&form.labels)).await,
        refused => refused,
    };
    match done {
        Ok(_) => Ok(Redirect::to(&urls::viber(&caller.team.slug, &id)).into_response()),
        Err(Error::Unacceptable { message, .. } | Error::Conflict { message, .. }) => {
            let mut page = page(&board, &caller, &id).await?;
            (page.viber.name, page.labels, page.error) = (form.name, form.labels, Some(message));
            html_with(StatusCode::UNPROCESSABLE_ENTITY, &page)
        }
        Err(error) => Err(error.into()),
    }
}

/// `POST /t/{team}/vibers/{id}/drain`
pub async fn drain(state: State<Board>, caller: AsAdmin, id: Id<ViberId>) -> Result<Redirect, Rejection> {
    set_drained(state, caller, id, true).await
}

/// `POST /t/{team}/vibers/{id}/undrain`
pub async fn undrain(state: State<Board>, caller: AsAdmin, id: Id<ViberId>) -> Result<Redirect, Rejection> {
    set_drained(state, caller, id, false).await
}

async fn set_drained(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<ViberId>,
    drained: bool,
) -> Result<Redirect, Rejection> {
    actions::vibers::drain(&board, &caller.team.id, &caller.by, &id, drained).await?;
    Ok(Redirect::to(&urls::viber(&caller.team.slug, &id)))
}

/// `POST /t/{team}/vibers/{id}/stop`: every task of it.
pub async fn stop(State(board): State<Board>, caller: AsOperator, Id(id): Id<ViberId>) -> Result<Redirect, Rejection> {
    actions::ending::stop_viber(&board, &caller.team.id, &caller.by, &id, "stopped by a person").await?;
    Ok(Redirect::to(&urls::viber(&caller.team.slug, &id)))
}

/// Asks for confirmation before a viber is revoked.
#[derive(Template)]
#[template(path = "fleet/vibers/revoke.html")]
struct Confirm {
    shell: Shell,
    slug: String,
    viber: Viber,
}

/// `GET /t/{team}/vibers/{id}/revoke`
pub async fn confirm_revoke(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<ViberId>,
) -> Result<Html<String>, Rejection> {
    let found = db::vibers::load(&mut board.db.reader_of(&caller.team.id).await?, &id).await?;
    let viber = found.ok_or(Error::NotFound)?;
    html(&Confirm { shell: Shell::load(&board, &caller).await?, slug: caller.team.slug.clone(), viber })
}

/// `POST /t/{team}/vibers/{id}/revoke`
pub async fn revoke(State(board): State<Board>, caller: AsAdmin, Id(id): Id<ViberId>) -> Result<Redirect, Rejection> {
    actions::ending::revoke_viber(&board, &caller.team.id, &caller.by, &id).await?;
    Ok(Redirect::to(&urls::vibers(&caller.team.slug)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_read_as_they_are_written() {
        let labels = read_labels("gpu, zone = eu ,\n os=linux");
        assert_eq!(write_labels(&labels), "gpu, os=linux, zone=eu");
    }
}
