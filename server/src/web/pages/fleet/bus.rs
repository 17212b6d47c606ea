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
    db,
    domain::{Role, Task, Viber},
    error::Error,
    live::bus as live_bus,
    state::Board,
    web::{
        AsViewer, Rejection,
        api::bus as api_bus,
        extract::Id,
        html, stream, urls,
        view::{Badge, PageLocation, Shell, filters},
    },
};

/// Tasks at work that are listed.
const MAX_TASKS: u64 = 64;

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
    tasks: Vec<TaskAtWork>,
    /// Where the stream is.
    source: String,
    role: Role,
}

/// A task at work.
struct TaskAtWork {
    id: TaskId,
    badge: Badge,
    agent: String,
    title: String,
    href: String,
}

impl LivePage {
    fn action(&self) -> String {
        urls::viber_live(&self.slug, &self.viber.id)
    }

    fn may_give(&self) -> bool {
        self.role >= Role::Operator
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
    let agent = protocol::text::head(asked.agent.trim(), 200).to_owned();
    let (viber, tasks) = {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let viber = db::vibers::load(&mut tx, &id).await?.ok_or(Error::NotFound)?;
        let mut tasks = Vec::new();
        for task in db::tasks::at_work(&mut tx, &id, MAX_TASKS).await? {
            tasks.extend(db::tasks::load(&mut tx, &task).await?);
        }
        (viber, tasks)
    };
    let at_work = |task: Task| TaskAtWork {
        badge: Badge::task(&task),
        title: protocol::text::title(&task.goal),
        href: urls::session(&slug, &task.session_id),
        agent: task.agent_id,
        id: task.id,
    };
    let tasks = tasks.into_iter().filter(|task| agent.is_empty() || task.agent_id == agent).map(at_work).collect();
    let source = urls::viber_verb(&slug, &id, "bus");
    html(&LivePage {
        shell: Shell::load(&board, &caller).await?.at(PageLocation::Viber(viber.id.clone())),
        agents: viber.agents.iter().map(|agent| agent.id.clone()).collect(),
        source,
        role: caller.role,
        tasks,
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
    headers: axum::http::HeaderMap,
) -> Result<Response, Rejection> {
    if !api_bus::wants_stream(&headers) {
        return Ok(Redirect::to(&urls::viber_live(&caller.team.slug, &id)).into_response());
    }
    let of = api_bus::of_viber(&board, &caller.team.id, id, Some(asked.agent)).await?;
    let last = headers.get("last-event-id").and_then(|last| last.to_str().ok());
    let from = last.filter(|last| !last.is_empty()).and_then(|last| last.parse().ok());
    let revoked = crate::web::revoked(board.clone(), caller.0);
    let frames = live_bus::read(&board, of, from, revoked).await.map_err(Error::from)?;
    Ok(stream::answer_bytes(frames.map(|frame| stream::encode_bus(&frame))))
}
