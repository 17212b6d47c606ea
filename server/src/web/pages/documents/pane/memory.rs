//! The tab Memory: changes of `MEMORY.md` that an agent proposes, what went with the newest request, and the way to all
//! that the viber remembers.

use askama::Template;
use protocol::{Policy, ProposalId, SessionId, ViberId};

use super::{
    Place,
    plan::{Row, rows},
};
use crate::{
    actions::proposals::{Effect, effect},
    db::{self, TeamTx},
    domain::{
        Edit, EditState, File, Policies, Proposal, ProposalState, Session, Text,
        memory::{MEMORY, Told, Went},
        plan::ProposalKind,
    },
    error::Result,
    web::{links, view::filters},
};

/// Proposals that are shown at once.
const PROPOSALS: u64 = 10;
/// Changes of the file made here that are looked through for a conflict.
const EDITS: u64 = 20;
/// Messages after one that may stand on the newest page with it.
const NEAR: u64 = 40;

/// What the database holds for this tab.
#[derive(Clone, Debug)]
pub struct Held {
    viber: ViberId,
    agent: String,
    policies: Policies,
    /// A change from here that the viber has not made yet, and one that met another one.
    queued: Option<Edit>,
    conflict: Option<Edit>,
    proposals: Vec<ShownProposal>,
    told: Option<Told>,
    /// A proposal that is rewritten before it is accepted.
    rewritten: Option<Box<ShownProposal>>,
}

/// A proposal and what it means for the file as it is.
#[derive(Clone, Debug)]
struct ShownProposal {
    proposal: Proposal,
    effect: Effect,
    /// What the file says now, else what the agent saw; `None`: neither is known.
    before: Option<String>,
    /// It is what the file says now: pieces of the difference can be taken.
    current: bool,
    /// The version that a decision is about.
    of: String,
    /// The message that it came with, and whether that stands further back than a page.
    message: Option<(u64, bool)>,
}

impl ShownProposal {
    async fn read(tx: &mut TeamTx<'_>, session: &Session, file: Option<&File>, proposal: Proposal) -> Result<Self> {
        let hash = file.and_then(|file| file.hash.clone());
        let known = file.and_then(|file| file.text.as_ref()).filter(|text| Some(&text.hash) == hash.as_ref());
        // What nobody has heard of is not there, if the agent saw nothing either.
        let nothing = hash.is_none() && (file.is_some() || proposal.base_hash.is_none());
        let now = known.map(|Text { content, hash, .. }| (hash.as_str(), content.as_str()));
        let effect = match (now, nothing) {
            (None, false) => Effect { text: proposal.content.clone(), behind: false, clash: false },
            (now, _) => effect(&proposal, proposal.base.as_deref(), now),
        };
        let before = match (now, nothing) {
            (Some((_, text)), _) => Some(text.to_owned()),
            (None, true) => Some(String::new()),
            (None, false) => proposal.base.clone(),
        };
        let held = db::attempts::held(tx, &proposal.task_id, proposal.attempt).await?;
        let message = held.map(|held| (held.message_seq, session.last_seq.saturating_sub(held.message_seq) > NEAR));
        let current = now.is_some() || nothing;
        Ok(Self { effect, before, current, of: hash.unwrap_or_default(), message, proposal })
    }

    /// The id of its form: boxes beside the rows belong to it.
    fn form(&self) -> String {
        format!("f-{}", self.proposal.id)
    }

    /// Whether its pieces can be taken one by one.
    fn picks(&self) -> bool {
        self.current && !self.effect.clash
    }

    /// What would change, unless it cannot be said.
    fn changed(&self) -> Option<(Vec<Row>, bool)> {
        self.before.as_ref().map(|before| rows(before, &self.effect.text))
    }
}

impl Held {
    /// As it is now. A place that is not there is the front.
    pub async fn read(tx: &mut TeamTx<'_>, session: &Session, at: &str) -> Result<Self> {
        let (id, viber) = (&session.id, &session.viber_id);
        let file = db::files::load(tx, viber, MEMORY).await?;
        let (waiting, kind) = (Some(ProposalState::Pending), ProposalKind::Memory);
        let mut proposals = Vec::new();
        for proposal in db::proposals::list(tx, id, kind, waiting, PROPOSALS).await? {
            proposals.push(ShownProposal::read(tx, session, file.as_ref(), proposal).await?);
        }
        let edits = db::edits::of_file(tx, viber, MEMORY, None, EDITS).await?;
        let chosen = at.strip_prefix("proposal-").and_then(|id| id.parse::<ProposalId>().ok());
        let rewritten = chosen.and_then(|id| proposals.iter().find(|shown| shown.proposal.id == id).cloned());
        Ok(Self {
            viber: viber.clone(),
            agent: session.agent_id.clone(),
            policies: session.policies,
            queued: db::edits::pending(tx, viber, MEMORY).await?,
            conflict: edits.into_iter().find(|edit| edit.state == EditState::Conflict),
            proposals,
            told: db::contexts::load(tx, id).await?,
            rewritten: rewritten.map(Box::new),
        })
    }
}

/// The tab as a reader sees it.
#[derive(Template)]
#[template(path = "documents/memory/pane.html")]
pub struct MemoryView<'a> {
    held: &'a Held,
    place: &'a Place,
    went: Vec<Went>,
}

impl<'a> MemoryView<'a> {
    pub fn of(held: &'a Held, place: &'a Place) -> Self {
        Self { held, place, went: held.told.as_ref().map(Told::memory).unwrap_or_default() }
    }

    fn proposes(&self) -> bool {
        self.held.policies.memory == Policy::Propose
    }

    fn verb(&self, verb: &str) -> String {
        links::session_verb(&self.place.slug, &self.place.session, verb)
    }

    fn at(&self, place: &str) -> String {
        links::pane_at(&self.place.slug, &self.place.session, "memory", place)
    }

    fn action(&self, id: &ProposalId) -> String {
        self.verb(&format!("memory/proposals/{id}"))
    }

    fn at_proposal(&self, id: &ProposalId) -> String {
        self.at(&format!("proposal-{id}"))
    }

    fn message(&self, at: &(u64, bool)) -> String {
        links::message(&self.place.slug, &self.place.session, at.0, at.1)
    }

    fn file(&self) -> String {
        links::file(&self.place.slug, &self.held.viber, MEMORY)
    }

    fn search(&self) -> String {
        links::memory(&self.place.slug, &self.held.viber, &self.held.agent, "")
    }

    fn edit(&self, edit: &Edit) -> String {
        links::edit(&self.place.slug, &self.held.viber, &edit.id)
    }

    /// Where an excerpt comes from.
    fn source(&self, path: &str) -> Option<String> {
        source(&self.place.slug, &self.held.viber, path)
    }

    /// The text of a draft: with both changes where they clash.
    fn draft(&self, shown: &ShownProposal) -> String {
        match (&shown.before, shown.effect.clash) {
            (Some(before), true) => {
                let base = shown.proposal.base.clone().unwrap_or_default();
                crate::domain::file::merge(&base, before, &shown.proposal.content).0
            }
            _ => shown.effect.text.clone(),
        }
    }

    fn total(&self) -> u64 {
        let told = self.held.told.as_ref().and_then(Told::layer);
        told.unwrap_or_else(|| self.went.iter().map(|went| went.tokens).sum())
    }
}

/// The address of a file of the viber's memory, or of the session whose log it is; `None` for what is neither.
pub fn source(slug: &str, viber: &ViberId, path: &str) -> Option<String> {
    if let Some(file) = path.strip_prefix("workspace/") {
        return protocol::path::file(file).is_ok().then(|| links::file(slug, viber, file));
    }
    let (_, session) = path.strip_prefix("agents/")?.split_once("/sessions/")?;
    let session: SessionId = session.strip_suffix(".jsonl")?.parse().ok()?;
    Some(links::machine_session(slug, viber, &session))
}
