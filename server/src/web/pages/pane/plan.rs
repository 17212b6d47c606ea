//! The tab Plan: steps with their status, what an agent proposes, what waits for a word, and every revision.

mod rows;

use std::sync::Arc;

use askama::Template;
use protocol::{
    ApprovalId, Policy, TeamId,
    plan::{Document, Piece, Status, Step},
};

use super::Place;
use crate::{
    db::{self, Tx},
    domain::{Approval, Policies, Proposal, ProposalState, Revision, Session, Source, plan::ProposalKind},
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
/// Proposals that are shown at once; an agent's newer one takes the place of its older one.
const PROPOSALS: u64 = 3;

/// What the database holds for this tab.
#[derive(Clone, Debug)]
pub struct Held {
    policies: Policies,
    /// The newest revision.
    now: Option<Revision>,
    proposals: Vec<Proposal>,
    approval: Option<Approval>,
    at: At,
}

/// The place in the tab.
#[derive(Clone, Debug)]
enum At {
    Front,
    /// Revisions, the newest first, and the one to go on from.
    History(Vec<Revision>, Option<u64>),
    /// A revision and the one before it.
    Revision(Box<(Revision, Option<Revision>)>),
}

impl Held {
    /// As it is now. A place that is not there is the front.
    pub async fn read(tx: &mut Tx, team: &TeamId, session: &Session, at: &str) -> Result<Self> {
        let id = &session.id;
        let waiting = Some(ProposalState::Pending);
        Ok(Self {
            policies: session.policies,
            now: db::plans::newest(tx, team, id).await?,
            proposals: db::proposals::list(tx, team, id, ProposalKind::Plan, waiting, PROPOSALS).await?,
            approval: db::approvals::pending(tx, team, id).await?,
            at: At::read(tx, team, session, at).await?,
        })
    }
}

impl At {
    async fn read(tx: &mut Tx, team: &TeamId, session: &Session, at: &str) -> Result<Self> {
        let (word, number) = at.split_once('-').unwrap_or((at, ""));
        let number: Option<u64> = number.parse().ok();
        Ok(match (word, number) {
            ("history", before) => {
                let mut found = db::plans::list(tx, team, &session.id, before, REVISIONS + 1).await?;
                let more = found.len() as u64 > REVISIONS;
                found.truncate(REVISIONS as usize);
                let next = found.last().filter(|_| more).map(|last| last.n);
                Self::History(found, next)
            }
            ("revision", Some(n)) => match db::plans::load(tx, team, &session.id, n).await? {
                Some(found) => {
                    let before = db::plans::load(tx, team, &session.id, n.saturating_sub(1)).await?;
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
#[template(path = "sessions/pane_plan.html")]
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
}

impl<'a> PlanView<'a> {
    pub fn of(held: &'a Held, place: &'a Place) -> Self {
        let text = held.now.as_ref().map_or("", |now| now.markdown.as_str());
        let document = Document::parse(text);
        let plan = document.steps();
        let progress = plan.progress();
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
        self.held.now.as_ref().map_or("", |now| now.markdown.as_str())
    }

    /// What a proposal would change of the plan as it is now.
    fn proposed(&self, proposal: &Proposal) -> (Vec<Row>, bool) {
        rows(self.now_text(), &proposal.content)
    }

    /// Whether the agent saw another plan when it proposed this.
    fn is_behind(&self, proposal: &Proposal) -> bool {
        proposal.base_hash.as_deref() != self.held.now.as_ref().map(|now| now.hash.as_str())
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
