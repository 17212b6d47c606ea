//! The Live tab of a viber: what its agents report, as it comes.

use askama::Template;
use axum::{
    extract::{Query, State},
    response::{Html, IntoResponse, Redirect, Response},
};
use futures_util::StreamExt;
use protocol::{TaskId, ViberId};
use serde::Deserialize;

use crate::{
    db::{self, tasks::TaskAtWork},
    domain::{Role, Viber},
    error::{Error, Result},
    live::bus as live_bus,
    state::Board,
    web::{
        AsViewer, Rejection,
        api::bus::{self as api_bus, StreamRequest},
        extract::{Caller, Id},
        html, stream, urls,
        view::{Badge, PageLocation, Shell, filters},
    },
};

/// Tasks at work that are listed.
const MAX_TASKS: u64 = 64;
/// Longest id of an agent that is asked for, bytes.
const MAX_AGENT_BYTES: usize = 200;

/// Whose reports are shown, and from where on.
#[derive(Debug, Default, Deserialize)]
pub struct BusPageQuery {
    /// Only of this agent.
    #[serde(default)]
    agent: String,
}

/// The page.
#[derive(Template)]
#[template(path = "fleet/vibers/live.html")]
struct LivePage {
    shell: Shell,
    slug: String,
    viber: Viber,
    /// What is chosen.
    agent: String,
    agents: Vec<String>,
    at_work: AtWork,
    /// Where the stream is.
    source: String,
}

impl LivePage {
    fn action(&self) -> String {
        urls::viber_live(&self.slug, &self.viber.id)
    }
}

/// What is at work: a region of the live stream.
#[derive(Clone, Debug, Template)]
#[template(path = "fleet/vibers/_at_work.html")]
pub struct AtWork {
    slug: String,
    viber: ViberId,
    agent: String,
    tasks: Vec<AtWorkLine>,
    has_more: bool,
    may_give: bool,
}

/// A task at work.
#[derive(Clone, Debug)]
struct AtWorkLine {
    id: TaskId,
    badge: Badge,
    agent: String,
    title: String,
    href: String,
}

impl AtWork {
    /// As it is now, of one agent or of all.
    pub async fn load(board: &Board, caller: &Caller, (viber, agent): (&ViberId, &str)) -> Result<Self> {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let only = Some(agent).filter(|agent| !agent.is_empty());
        let mut tasks = db::tasks::list_at_work(&mut tx, viber, only, MAX_TASKS + 1).await?;
        let slug = caller.team.slug.clone();
        let has_more = tasks.len() as u64 > MAX_TASKS;
        if has_more {
            tasks.pop();
        }
        let line = |at_work: TaskAtWork| AtWorkLine {
            badge: Badge::brief(&at_work.task, at_work.contact),
            title: protocol::text::title(&at_work.goal),
            href: urls::session(&slug, &at_work.session_id),
            agent: at_work.agent_id,
            id: at_work.task.id,
        };
        Ok(Self {
            tasks: tasks.into_iter().map(line).collect(),
            viber: viber.clone(),
            agent: agent.to_owned(),
            may_give: caller.role >= Role::Operator,
            has_more,
            slug,
        })
    }

    /// Where the others are listed, too.
    fn all(&self) -> String {
        let narrowed = [("steps", "1"), ("viber", self.viber.as_str()), ("agent", self.agent.as_str())];
        urls::sessions_with(&self.slug, &narrowed)
    }
}

/// `GET /t/{team}/vibers/{id}/live`
pub async fn show(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ViberId>,
    Query(asked): Query<BusPageQuery>,
) -> Result<Html<String>, Rejection> {
    let slug = caller.team.slug.clone();
    let agent = protocol::text::head(asked.agent.trim(), MAX_AGENT_BYTES).to_owned();
    let found = db::vibers::load(&mut board.db.reader_of(&caller.team.id).await?, &id).await?;
    let viber = found.ok_or(Error::NotFound)?;
    let here = PageLocation::Live(id.clone(), agent.clone());
    html(&LivePage {
        shell: Shell::load(&board, &caller).await?.at(here),
        at_work: AtWork::load(&board, &caller, (&id, agent.as_str())).await?,
        agents: viber.agents.iter().map(|agent| agent.id.clone()).collect(),
        source: urls::viber_verb(&slug, &id, "bus"),
        agent,
        slug,
        viber,
    })
}

/// `GET /t/{team}/vibers/{id}/bus`: the stream that the page reads, from now on.
pub async fn read(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ViberId>,
    Query(asked): Query<BusPageQuery>,
    how: StreamRequest,
) -> Result<Response, Rejection> {
    if !how.is_wanted() {
        return Ok(Redirect::to(&urls::viber_live(&caller.team.slug, &id)).into_response());
    }
    let of = api_bus::of_viber(&board, &caller.team.id, id, Some(asked.agent)).await?;
    let (place, last) = how.place_of(caller.by.actor.id())?;
    let from = last.and_then(|last| last.parse().ok());
    let revoked = crate::web::revoked(board.clone(), caller.0);
    let frames = live_bus::read(&board, of, from, revoked).await.map_err(Error::from)?;
    Ok(stream::answer_bytes(frames.map(move |frame| {
        let _held = &place;
        stream::encode_bus(&frame)
    })))
}
