//! The tab Plan: steps with their status, what an agent proposes, what waits for a word, and every revision.

mod rows;

use std::sync::Arc;

use askama::Template;
use protocol::{
    ApprovalId, Policy, ProposalId,
    plan::{Document, Piece, Status, Step},
};

use super::Place;
use crate::{
    actions::{
        plan,
        proposals::{Effect, effect},
    },
    db::{self, TeamTx},
    domain::{
        Approval, Artifact, Edit, EditState, File, Kind, Policies, Proposal, ProposalState, Revision, Session, Source,
        Text, file, plan::ProposalKind,
    },
    error::Result,
    web::{
        links,
        markdown::{self, By},
        view::filters,
    },
};
pub use rows::{Row, rows};

/// Revisions on a page of the history.
const REVISIONS: u64 = 50;
/// Changes of the plan made here that are looked through for a conflict.
const EDITS: u64 = 20;
/// Proposals that are shown at once; an agent's newer one takes the place of its older one.
const PROPOSALS: u64 = 3;
/// Steps that have a menu.
const MENUS: usize = 25;
/// Pictures that a file beside the plan shows.
const MEDIA: usize = 24;
/// Artifacts among which they are looked for.
const ARTIFACTS: u64 = 500;

/// What the database holds for this tab.
#[derive(Clone, Debug)]
pub struct Held {
    policies: Policies,
    /// The newest revision.
    now: Option<Revision>,
    /// The machine's own plan, which a session that began there goes by.
    borrowed: Option<Text>,
    /// A change from here that the viber has not made yet.
    queued: Option<Edit>,
    /// A change from here that met another one.
    conflict: Option<Edit>,
    proposals: Vec<ShownProposal>,
    approval: Option<Approval>,
    beside: Vec<Beside>,
    at: At,
}

/// A file that stands beside the plan.
#[derive(Clone, Debug)]
struct Beside {
    name: &'static str,
    text: String,
    /// What it shows of the session's artifacts, with what it says of them.
    media: Vec<(String, Artifact)>,
}

impl Beside {
    async fn read(tx: &mut TeamTx<'_>, session: &Session, name: &'static str) -> Result<Option<Self>> {
        let path = format!("sessions/{}/{name}", session.id);
        let file = db::files::load(tx, &session.viber_id, &path).await?.filter(|file| file.hash.is_some());
        let Some(text) = file.and_then(|file| file.text).map(|text| text.content) else { return Ok(None) };
        let images = markdown::images(&text, MEDIA);
        let known = match images.is_empty() {
            true => Vec::new(),
            false => db::artifacts::of_session(tx, &session.id, None, ARTIFACTS).await?,
        };
        let shown = images.into_iter().filter_map(|(words, url)| {
            let media = known.iter().find(|one| one.is_at(&url) && matches!(one.kind(), Kind::Image(_)))?;
            Some((if words.is_empty() { media.title.clone() } else { words }, media.clone()))
        });
        Ok(Some(Self { name, media: shown.collect(), text }))
    }

    fn html(&self) -> Arc<str> {
        markdown::render(&self.text, By::Agent)
    }
}

/// A proposal and what it means for the plan as it is.
#[derive(Clone, Debug)]
struct ShownProposal {
    proposal: Proposal,
    effect: Effect,
}

impl ShownProposal {
    async fn read(tx: &mut TeamTx<'_>, now: Option<&Revision>, proposal: Proposal) -> Result<Self> {
        let base = match &proposal.base_hash {
            Some(hash) => db::plans::of_hash(tx, &proposal.session_id, hash).await?,
            None => None,
        };
        let standing = now.map(|now| (now.hash.as_str(), now.markdown.as_str()));
        let effect = effect(&proposal, base.as_ref().map(|base| base.markdown.as_str()), standing);
        Ok(Self { proposal, effect })
    }

    /// The id of its form: boxes beside the rows belong to it.
    fn form(&self) -> String {
        format!("f-{}", self.proposal.id)
    }
}

/// The place in the tab.
#[derive(Clone, Debug)]
enum At {
    Front,
    Edit,
    /// A proposal to be rewritten before it is accepted.
    Proposal(Box<ShownProposal>),
    /// Revisions, the newest first, and the one to go on from.
    History(Vec<Revision>, Option<u64>),
    /// A revision and the one before it.
    Revision(Box<(Revision, Option<Revision>)>),
}

impl Held {
    /// As it is now. A place that is not there is the front.
    pub async fn read(tx: &mut TeamTx<'_>, session: &Session, at: &str) -> Result<Self> {
        let id = &session.id;
        let now = db::plans::newest(tx, id).await?;
        let waiting = Some(ProposalState::Pending);
        let mut proposals = Vec::new();
        for proposal in db::proposals::list(tx, id, ProposalKind::Plan, waiting, PROPOSALS).await? {
            proposals.push(ShownProposal::read(tx, now.as_ref(), proposal).await?);
        }
        let (viber, path) = (&session.viber_id, plan::path(id));
        let edits = db::edits::of_file(tx, viber, &path, None, EDITS).await?;
        let conflict = match edits.iter().find(|edit| edit.state == EditState::Conflict) {
            Some(edit) => db::edits::load(tx, &edit.id).await?,
            None => None,
        };
        let there = |file: &File| file.hash.is_some();
        let own = db::files::load(tx, viber, &path).await?.is_some_and(|file| there(&file));
        let borrowed = match &now {
            None if plan::borrows(session) && !own => {
                db::files::load(tx, viber, plan::OWN).await?.filter(there).and_then(|file| file.text)
            }
            _ => None,
        };
        let mut beside = Vec::new();
        for name in plan::BESIDE {
            beside.extend(Beside::read(tx, session, name).await?);
        }
        Ok(Self {
            policies: session.policies,
            queued: db::edits::pending(tx, viber, &path).await?,
            conflict,
            approval: db::approvals::pending(tx, id).await?,
            beside,
            at: At::read(tx, session, now.as_ref(), at).await?,
            now,
            borrowed,
            proposals,
        })
    }
}

impl Held {
    /// The plan's text: with a change that is under way, what it will be.
    fn text(&self) -> &str {
        let queued = self.queued.as_ref().and_then(|edit| edit.content.as_deref());
        let now = self.now.as_ref().map(|now| now.markdown.as_str());
        queued.or(now).or(self.borrowed.as_ref().map(|text| text.content.as_str())).unwrap_or("")
    }
}

impl At {
    async fn read(tx: &mut TeamTx<'_>, session: &Session, now: Option<&Revision>, at: &str) -> Result<Self> {
        if let Some(id) = at.strip_prefix("proposal-").and_then(|id| id.parse().ok()) {
            let found = db::proposals::load(tx, &session.id, &id).await?;
            let waits = |found: &Proposal| found.state == ProposalState::Pending && found.kind == ProposalKind::Plan;
            return match found.filter(waits) {
                Some(found) => Ok(Self::Proposal(Box::new(ShownProposal::read(tx, now, found).await?))),
                None => Ok(Self::Front),
            };
        }
        let (word, number) = at.split_once('-').unwrap_or((at, ""));
        let number: Option<u64> = number.parse().ok();
        Ok(match (word, number) {
            ("edit", None) => Self::Edit,
            ("history", before) => {
                let mut found = db::plans::list(tx, &session.id, before, REVISIONS + 1).await?;
                let more = found.len() as u64 > REVISIONS;
                found.truncate(REVISIONS as usize);
                let next = found.last().filter(|_| more).map(|last| last.n);
                Self::History(found, next)
            }
            ("revision", Some(n)) => match db::plans::load(tx, &session.id, n).await? {
                Some(found) => {
                    let before = db::plans::load(tx, &session.id, n.saturating_sub(1)).await?;
                    Self::Revision(Box::new((found, before)))
                }
                None => Self::Front,
            },
            _ => Self::Front,
        })
    }
}

/// The tab as a reader sees it.
#[derive(Template)]
#[template(path = "documents/plan/pane.html")]
pub struct PlanView<'a> {
    held: &'a Held,
    place: &'a Place,
    /// What the newest revision says, in its order.
    goal: String,
    pieces: Vec<Shown>,
    progress: (usize, usize),
    /// Lines that look like steps and are too many to be shown as such.
    beyond: usize,
}

/// A part of a plan.
enum Shown {
    Text(Arc<str>),
    Steps(Vec<StepView>),
}

/// A step, and what is written below it.
struct StepView {
    step: Step,
    notes: Option<Arc<str>>,
    /// The one the agent works on.
    current: bool,
    first: bool,
    last: bool,
    /// It can be changed by itself: of a long plan only the first steps and the one at work, or else by the text.
    menu: bool,
}

impl<'a> PlanView<'a> {
    pub fn of(held: &'a Held, place: &'a Place) -> Self {
        let text = held.text();
        let document = Document::parse(text);
        let plan = document.steps();
        let (progress, count) = (plan.progress(), plan.steps.len());
        let current = plan.steps.iter().position(|step| step.status == Status::Working);
        let mut pieces: Vec<Shown> = Vec::new();
        for piece in document.pieces(text) {
            match piece {
                Piece::Text(text) => pieces.push(Shown::Text(markdown::render(text, By::Agent))),
                Piece::Step(n) => {
                    let notes = document.notes(n);
                    let view = StepView {
                        step: plan.steps[n].clone(),
                        notes: (!notes.trim().is_empty()).then(|| markdown::render(&notes, By::Agent)),
                        current: current == Some(n),
                        first: n == 0,
                        last: n + 1 == count,
                        menu: n < MENUS || current == Some(n),
                    };
                    match pieces.last_mut() {
                        Some(Shown::Steps(steps)) => steps.push(view),
                        _ => pieces.push(Shown::Steps(vec![view])),
                    }
                }
            }
        }
        Self { held, place, goal: plan.goal, pieces, progress, beyond: document.beyond() }
    }

    /// Who made a revision, as a sentence goes on.
    fn by(&self, revision: &Revision) -> String {
        match revision.source {
            Source::Operator => format!("by {}", revision.author),
            Source::Agent => "by the agent".to_owned(),
            Source::File => "in the file".to_owned(),
        }
    }

    fn seen(&self, status: &Status) -> (&'static str, &'static str) {
        seen(*status)
    }

    fn at(&self, place: &str) -> String {
        links::pane_at(&self.place.slug, &self.place.session, "plan", place)
    }

    fn at_revision(&self, n: &u64) -> String {
        self.at(&format!("revision-{n}"))
    }

    fn at_older(&self, before: &u64) -> String {
        self.at(&format!("history-{before}"))
    }

    fn verb(&self, verb: &str) -> String {
        links::session_verb(&self.place.slug, &self.place.session, verb)
    }

    /// Whether the stream keeps this place current.
    fn is_front(&self) -> bool {
        matches!(self.held.at, At::Front)
    }

    fn proposes(&self) -> bool {
        self.held.policies.plan == Policy::Propose
    }

    /// What changed from one revision to the next.
    fn changed(&self, before: &Option<Revision>, after: &Revision) -> (Vec<Row>, bool) {
        rows(before.as_ref().map_or("", |before| before.markdown.as_str()), &after.markdown)
    }

    fn now_text(&self) -> &str {
        self.held.text()
    }

    /// The version that a form is about.
    fn now_hash(&self) -> &str {
        let queued = self.held.queued.as_ref().and_then(|edit| edit.hash.as_deref());
        queued.or(self.held.now.as_ref().map(|now| now.hash.as_str())).unwrap_or("")
    }

    /// What a proposal would change of the plan as it is now.
    fn proposed(&self, shown: &ShownProposal) -> (Vec<Row>, bool) {
        rows(self.held.now.as_ref().map_or("", |now| now.markdown.as_str()), &shown.effect.text)
    }

    /// What a change that was not made would change of the plan as it is now.
    fn clash(&self, edit: &Edit) -> (Vec<Row>, bool) {
        rows(self.held.now.as_ref().map_or("", |now| now.markdown.as_str()), edit.content.as_deref().unwrap_or(""))
    }

    /// Whether both changes can stand.
    fn merges(&self, edit: &Edit) -> bool {
        let theirs = self.held.now.as_ref().map_or("", |now| now.markdown.as_str());
        let mine = edit.content.as_deref().unwrap_or("");
        edit.base.as_deref().is_some_and(|base| !file::merge(base, theirs, mine).1)
    }

    /// Whether the plan says this now.
    fn is_newest(&self, revision: &Revision) -> bool {
        self.held.now.as_ref().is_some_and(|now| now.hash == revision.hash)
    }

    fn proposal_link(&self, id: &ProposalId) -> String {
        self.verb(&format!("plan/proposals/{id}"))
    }

    fn at_proposal(&self, id: &ProposalId) -> String {
        self.at(&format!("proposal-{id}"))
    }

    fn approve_link(&self, id: &ApprovalId) -> String {
        links::approval(&self.place.slug, id)
    }

    fn rendered(&self, text: &str) -> Arc<str> {
        markdown::render(text, By::Agent)
    }
}

/// A status as people see it: the icon and the word.
fn seen(status: Status) -> (&'static str, &'static str) {
    match status {
        Status::Pending => ("pending", "To do"),
        Status::Working => ("working", "Working"),
        Status::Done => ("done", "Done"),
        Status::Skipped => ("stopped", "Skipped"),
        Status::Failed => ("failed", "Failed"),
    }
}
