//! The search in a viber's memory.

use askama::Template;
use axum::{
    extract::{Query, State},
    response::Html,
};
use protocol::{Instant, MemoryRanking, MemorySearch, MemorySource, SessionId, ViberId};
use serde::Deserialize;

use crate::{
    actions::{files, memory},
    db,
    domain::{
        ContactState, Viber,
        memory::{MEMORY_FILE, MarkedText, marked},
    },
    error::{Error, Result},
    state::Board,
    web::pages::pane::memory::source,
    web::{
        AsViewer, Rejection,
        extract::{Caller, Id},
        html, urls,
        view::{PageLocation, Shell, filters},
    },
};

/// What is looked for.
#[derive(Debug, Default, Deserialize)]
pub struct MemoryQuery {
    #[serde(default)]
    q: String,
    /// The agent whose memory is searched; the viber's first agent when absent.
    #[serde(default)]
    agent: String,
}

/// The page.
#[derive(Template)]
#[template(path = "documents/memory/show.html")]
struct Page {
    shell: Shell,
    slug: String,
    viber: Viber,
    agent: String,
    agents: Vec<String>,
    q: String,
    found: Vec<Found>,
    /// The ranking, and the number of known passages; `None` without a search.
    of: Option<(MemoryRanking, u64)>,
    /// Why the viber could not be asked.
    trouble: Option<String>,
}

/// A passage in the results.
#[derive(Clone, Debug)]
struct Found {
    /// Its icon, and its source in words.
    source: (&'static str, &'static str),
    href: Option<String>,
    path: String,
    title: Vec<MarkedText>,
    excerpt: Vec<MarkedText>,
    at: Option<Instant>,
}

impl Page {
    fn file(&self) -> String {
        urls::file(&self.slug, &self.viber.id, MEMORY_FILE)
    }

    fn folder(&self) -> String {
        urls::folder(&self.slug, &self.viber.id, "memory")
    }

    fn action(&self) -> String {
        urls::viber_verb(&self.slug, &self.viber.id, "memory")
    }

    fn is_offline(&self) -> bool {
        self.viber.contact.state != ContactState::Connected
    }
}

/// `GET /t/{team}/vibers/{id}/memory`
pub async fn search(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ViberId>,
    Query(asked): Query<MemoryQuery>,
) -> Result<Html<String>, Rejection> {
    let found = db::vibers::load(&mut board.db.reader_of(&caller.team.id).await?, &id).await?;
    let viber = found.ok_or(Error::NotFound)?;
    let agents: Vec<String> = viber.agents.iter().map(|agent| agent.id.clone()).collect();
    let agent = Some(asked.agent).filter(|agent| !agent.is_empty() && agent.len() <= 100);
    let agent = agent.or_else(|| agents.first().cloned()).unwrap_or_else(|| "default".to_owned());
    let q = asked.q.trim().to_owned();
    let mut page = Page {
        shell: Shell::load(&board, &caller).await?.at(PageLocation::Elsewhere),
        slug: caller.team.slug.clone(),
        viber,
        agents,
        agent,
        q,
        found: Vec::new(),
        of: None,
        trouble: None,
    };
    if !page.q.is_empty() {
        let asked =
            MemorySearch { agent_id: page.agent.clone(), query: page.q.clone(), limit: Some(memory::DEFAULT_RESULTS) };
        match memory::search(&board, &caller.team.id, &id, asked).await {
            Ok(found) => {
                page.of = Some((found.ranking, found.known));
                for item in found.items {
                    page.found.push(passage(&board, &caller, &id, &page.q, item).await?);
                }
            }
            Err(error) => page.trouble = Some(trouble(error)?),
        }
    }
    html(&page)
}

/// Why a viber did not answer, for people.
pub(in crate::web::pages) fn trouble(error: Error) -> Result<String> {
    match error {
        Error::Conflict { code: files::VIBER_AWAY, .. } => Ok("The viber is offline.".to_owned()),
        Error::Conflict { code: "viber_silent", .. } => Ok("The viber did not answer in time. Try again.".to_owned()),
        Error::Conflict { message, .. } | Error::Unacceptable { message, .. } => Ok(message),
        error => Err(error),
    }
}

async fn passage(
    board: &Board,
    caller: &Caller,
    viber: &ViberId,
    query: &str,
    item: protocol::RecalledPassage,
) -> Result<Found> {
    let slug = &caller.team.slug;
    let href = match item.session_id.as_deref().and_then(|id| id.parse::<SessionId>().ok()) {
        Some(session) => {
            let found = db::sessions::load(&mut board.db.reader_of(&caller.team.id).await?, &session).await?;
            match found.filter(|found| found.viber_id == *viber) {
                Some(_) => Some(urls::session(slug, &session)),
                None => Some(urls::machine_session(slug, viber, &session)),
            }
        }
        None => source(slug, viber, &item.path),
    };
    Ok(Found {
        source: match item.source {
            MemorySource::Curated => ("pin", "MEMORY.md"),
            MemorySource::Daily => ("log", "Daily log"),
            MemorySource::Session => ("chat", "Session"),
        },
        href,
        title: marked(&item.title, query),
        excerpt: marked(&item.excerpt, query),
        path: item.path,
        at: item.at,
    })
}
