//! What a viber remembers: search, and what is done about a change that an agent proposes.

use std::collections::BTreeSet;

use askama::Template;
use axum::{
    extract::{Query, State},
    response::{Html, IntoResponse, Redirect, Response},
};
use axum_extra::extract::Form;
use protocol::{Instant, MemorySearch, MemorySource, ProposalId, Ranking, SessionId, ViberId};
use serde::Deserialize;

use crate::{
    actions::{
        self, files, memory,
        proposals::{Proposed, Verdict},
    },
    db,
    domain::{
        ContactState, EditState, Viber,
        memory::{MEMORY, Piece, marked},
        plan::ProposalKind,
    },
    error::{Error, Result},
    state::Board,
    web::pages::{
        Wants,
        pane::{Tab, memory::source},
        plan,
    },
    web::{
        Operating, Rejection, Viewing,
        extract::{Caller, Id, Ids},
        html, links,
        view::{Place, Shell, filters},
    },
};

/// What is done about a proposal.
#[derive(Debug, Deserialize)]
pub struct Said {
    /// `accept` or `reject`.
    decision: String,
    /// The pieces that are taken, of the difference to the version `pick`.
    #[serde(default)]
    take: Vec<usize>,
    pick: Option<String>,
    /// This text instead, written for the version `of`.
    content: Option<String>,
    #[serde(default)]
    of: String,
}

/// `POST /t/{team}/sessions/{id}/memory/proposals/{proposal}`
pub async fn propose(
    State(board): State<Board>,
    caller: Operating,
    Ids((id, proposal)): Ids<(SessionId, ProposalId)>,
    wants: Wants,
    Form(said): Form<Said>,
) -> Result<Response, Rejection> {
    let verdict = match (said.decision.as_str(), said.content, said.pick) {
        ("accept", Some(text), _) => Verdict::Rewrite { text: text.replace("\r\n", "\n"), of: Some(said.of) },
        ("accept", None, None) => Verdict::Accept,
        ("accept", None, Some(of)) => {
            let pieces: BTreeSet<usize> = said.take.into_iter().collect();
            Verdict::Take { pieces, of: (!of.is_empty()).then_some(of) }
        }
        _ => Verdict::Reject,
    };
    let (team, by) = (&caller.team.id, &caller.by);
    let proposed = Proposed { kind: ProposalKind::Memory, session: &id, id: &proposal };
    match actions::proposals::decide(&board, team, by, proposed, verdict).await {
        Ok((_, Some(edit))) if edit.state == EditState::Conflict => {
            Ok(Redirect::to(&links::edit(&caller.team.slug, &edit.viber_id, &edit.id)).into_response())
        }
        // What was shown is not what is there any more: the page shows what is.
        Ok(_) | Err(Error::Conflict { code: "memory_changed" | "not_pending", .. }) => {
            plan::back(&board, &caller, &id, wants, Tab::Memory).await
        }
        Err(error) => Err(error.into()),
    }
}

/// What is looked for.
#[derive(Debug, Default, Deserialize)]
pub struct Asked {
    #[serde(default)]
    q: String,
    /// Whose memory; the viber's first agent when absent.
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
    /// How they are put in order, and how many passages there are altogether; `None` when nothing was looked for.
    of: Option<(Ranking, u64)>,
    /// Why nothing can be said.
    trouble: Option<String>,
}

/// A passage that was found.
#[derive(Clone, Debug)]
struct Found {
    /// Its icon and where it stands, in words.
    source: (&'static str, &'static str),
    href: Option<String>,
    path: String,
    title: Vec<Piece>,
    excerpt: Vec<Piece>,
    at: Option<Instant>,
}

impl Page {
    fn file(&self) -> String {
        links::file(&self.slug, &self.viber.id, MEMORY)
    }

    fn folder(&self) -> String {
        links::folder(&self.slug, &self.viber.id, "memory")
    }

    fn action(&self) -> String {
        links::viber_verb(&self.slug, &self.viber.id, "memory")
    }

    fn is_offline(&self) -> bool {
        self.viber.contact.state != ContactState::Connected
    }
}

/// `GET /t/{team}/vibers/{id}/memory`
pub async fn search(
    State(board): State<Board>,
    caller: Viewing,
    Id(id): Id<ViberId>,
    Query(asked): Query<Asked>,
) -> Result<Html<String>, Rejection> {
    let found = db::vibers::load(&mut board.db.reader_of(&caller.team.id).await?, &id).await?;
    let viber = found.ok_or(Error::NotFound)?;
    let agents: Vec<String> = viber.agents.iter().map(|agent| agent.id.clone()).collect();
    let agent = Some(asked.agent).filter(|agent| !agent.is_empty() && agent.len() <= 100);
    let agent = agent.or_else(|| agents.first().cloned()).unwrap_or_else(|| "default".to_owned());
    let q = asked.q.trim().to_owned();
    let mut page = Page {
        shell: Shell::load(&board, &caller).await?.at(Place::Elsewhere),
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
        let asked = MemorySearch { agent_id: page.agent.clone(), query: page.q.clone(), limit: Some(memory::USUAL) };
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

/// Why a viber did not tell, for people.
pub(in crate::web::pages) fn trouble(error: Error) -> Result<String> {
    match error {
        Error::Conflict { code: files::AWAY, .. } => Ok("The viber is away.".to_owned()),
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
    item: protocol::Remembered,
) -> Result<Found> {
    let slug = &caller.team.slug;
    let href = match item.session_id.as_deref().and_then(|id| id.parse::<SessionId>().ok()) {
        Some(session) => {
            let found = db::sessions::load(&mut board.db.reader_of(&caller.team.id).await?, &session).await?;
            match found.filter(|found| found.viber_id == *viber) {
                Some(_) => Some(links::session(slug, &session)),
                None => Some(links::machine_session(slug, viber, &session)),
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
