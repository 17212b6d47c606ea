//! The tab Plan: steps with their status, proposals and approvals that wait for a decision, and every revision.

use std::sync::Arc;

use askama::Template;
use protocol::{
    ApprovalId, ApprovalKind, Policy,
    plan::{Document, PlanPiece, Status, Step},
};

use super::{
    PaneContext,
    step_diff::{StepDiffRow, rows},
};
use crate::{
    actions::plan,
    db::{self, Query, TeamTx, plans::CarriedPlan},
    domain::{
        Approval, Artifact, ArtifactKind, Edit, EditState, FileText, PlanSource, Policies, Revision, Session, file,
        plan::ProposalKind,
    },
    error::Result,
    web::pages::{
        asks::{hides_something, is_whole, leaves_out, revealed},
        proposals::{self, KnownFile, ProposalEditor, ProposalView, ShownProposal},
    },
    web::{
        markdown::{self, TextAuthor},
        urls,
        view::filters,
    },
};

/// Revisions on a page of the history.
const REVISIONS_PER_PAGE: u64 = 50;
/// Changes of the plan made here that are looked through for a conflict.
const MAX_SEARCHED_EDITS: u64 = 20;
/// Steps that have a menu.
const MAX_STEP_MENUS: usize = 25;
/// Steps that are ticked by their circle; those behind them in the plan's text.
const MAX_TICKS: usize = 100;
/// Pictures that a file beside the plan shows.
const MAX_MEDIA: usize = 24;
/// Artifacts among which they are looked for.
const MAX_SEARCHED_ARTIFACTS: u64 = 500;

/// What the database holds for this tab.
#[derive(Clone, Debug)]
pub struct PlanPane {
    policies: Policies,
    /// The newest revision.
    now: Option<Revision>,
    /// The machine's own plan, which a session that began there uses.
    borrowed: Option<FileText>,
    /// The plan of a session that this one goes on from, which is sent while it has none of its own.
    carried: Option<CarriedPlan>,
    /// A change from here that the viber has not made yet.
    queued: Option<Edit>,
    /// A change from here that met another one.
    conflict: Option<Edit>,
    proposals: Vec<ShownProposal>,
    approval: Option<Approval>,
    beside: Vec<Beside>,
    at: PlanPlace,
}

/// A file that stands beside the plan.
#[derive(Clone, Debug)]
struct Beside {
    name: &'static str,
    text: String,
    /// The session's artifacts that it shows, with its captions.
    media: Vec<(String, Artifact)>,
}

impl Beside {
    async fn read(tx: &mut TeamTx<'_>, session: &Session, name: &'static str, text: String) -> Result<Self> {
        let images = markdown::images(&text, MAX_MEDIA);
        let known = match images.is_empty() {
            true => Vec::new(),
            false => db::artifacts::products(tx, &session.id, MAX_SEARCHED_ARTIFACTS).await?,
        };
        let shown = images.into_iter().filter_map(|(words, url)| {
            let media = known.iter().find(|one| one.is_at(&url) && matches!(one.kind(), ArtifactKind::Image(_)))?;
            Some((if words.is_empty() { media.title.clone() } else { words }, media.clone()))
        });
        Ok(Self { name, media: shown.collect(), text })
    }

    fn html(&self) -> Arc<str> {
        markdown::render(&self.text, TextAuthor::Agent)
    }
}

/// The place in the tab.
#[derive(Clone, Debug)]
enum PlanPlace {
    Front,
    Edit,
    /// A proposal to be rewritten before it is accepted.
    Proposal(Box<ShownProposal>),
    /// Revisions, the newest first, and where the next page begins.
    History(Vec<Revision>, Option<u64>),
    /// A revision and the one before it.
    Revision(Box<(Revision, Option<Revision>)>),
}

/// What the strip and an unopened pane need of a plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanFacts {
    pub exists: bool,
    /// Steps that are over, and all.
    pub progress: (usize, usize),
}

/// Reads it, together with another query.
pub async fn read_facts<T>(tx: &mut TeamTx<'_>, session: &Session, other: Query<T>) -> Result<(T, PlanFacts)> {
    let pending = db::edits::pending_query(&session.viber_id, &plan::path(&session.id));
    let (found, now, queued) = tx.query_three(other, db::plans::newest_query(&session.id), pending).await?;
    let mut text = queued.and_then(|edit| edit.content).or(now.map(|now| now.markdown));
    if text.is_none() && plan::borrows(session) {
        let file = db::files::load(tx, &session.viber_id, plan::MACHINE_PLAN).await?;
        text = file.filter(|file| file.hash.is_some()).and_then(|file| file.text).map(|text| text.content);
    }
    if text.is_none() {
        text = db::plans::carried(tx, &session.id).await?.map(|carried| carried.markdown);
    }
    let text = text.unwrap_or_default();
    Ok((found, PlanFacts { exists: !text.trim().is_empty(), progress: Document::parse(&text).steps().progress() }))
}

impl PlanPane {
    /// As it is now. A place that is not there is the front.
    pub async fn read(tx: &mut TeamTx<'_>, session: &Session, at: &str) -> Result<Self> {
        let id = &session.id;
        let (viber, path) = (&session.viber_id, plan::path(id));
        let companions = plan::COMPANION_FILES.map(|name| format!("sessions/{id}/{name}"));
        let files = db::files::three_query(viber, [&path, &companions[0], &companions[1]]);
        let (newest, pending) = (db::plans::newest_query(id), db::edits::pending_query(viber, &path));
        let (now, queued, mut files) = tx.query_three(newest, pending, files).await?;
        files.retain(|file| file.hash.is_some());
        let version = version(queued.as_ref(), now.as_ref()).to_owned();
        let mut proposals = Vec::new();
        for proposal in proposals::waiting(tx, id, ProposalKind::Plan).await? {
            let base = match &proposal.base_hash {
                Some(hash) => db::plans::of_hash(tx, id, hash).await?,
                None => None,
            };
            let file = now
                .as_ref()
                .map_or(KnownFile::Absent, |now| KnownFile::Version { hash: &now.hash, text: &now.markdown });
            let shown = ShownProposal::new(proposal, base.map(|base| base.markdown), file);
            proposals.push(shown.about(version.clone()));
        }
        let edits = db::edits::of_file_query(viber, &path, None, MAX_SEARCHED_EDITS);
        let (edits, pending) = tx.query_two(edits, db::approvals::pending_of_session_query(id)).await?;
        let approval = pending.into_iter().find(|asked| asked.kind == ApprovalKind::Plan);
        let conflict = match edits.iter().find(|edit| edit.state == EditState::Conflict) {
            Some(edit) => db::edits::load(tx, &edit.id).await?,
            None => None,
        };
        let own = files.iter().any(|file| file.path == path);
        let borrowed = match &now {
            None if plan::borrows(session) && !own => {
                let file = db::files::load(tx, viber, plan::MACHINE_PLAN).await?;
                file.filter(|file| file.hash.is_some()).and_then(|file| file.text)
            }
            _ => None,
        };
        let carried = match (&now, &queued, &borrowed) {
            (None, None, None) => db::plans::carried(tx, id).await?,
            _ => None,
        };
        let mut beside = Vec::new();
        for (name, path) in plan::COMPANION_FILES.into_iter().zip(&companions) {
            let text = files.iter().find(|file| file.path == *path).and_then(|file| file.text.clone());
            if let Some(text) = text {
                beside.push(Beside::read(tx, session, name, text.content).await?);
            }
        }
        Ok(Self {
            policies: session.policies,
            queued,
            conflict,
            approval,
            beside,
            at: match proposals::rewritten(&proposals, at) {
                Some(shown) => PlanPlace::Proposal(Box::new(shown)),
                None => PlanPlace::read(tx, session, at).await?,
            },
            now,
            borrowed,
            carried,
            proposals,
        })
    }
}

impl PlanPane {
    /// Whether an agent waits for somebody to approve the plan.
    pub fn asks_about_itself(&self) -> bool {
        self.approval.is_some()
    }

    /// The plan's text, with a change that is under way.
    fn text(&self) -> &str {
        let queued = self.queued.as_ref().and_then(|edit| edit.content.as_deref());
        let now = self.now.as_ref().map(|now| now.markdown.as_str());
        let borrowed = self.borrowed.as_ref().map(|text| text.content.as_str());
        let carried = self.carried.as_ref().map(|carried| carried.markdown.as_str());
        queued.or(now).or(borrowed).or(carried).unwrap_or("")
    }
}

impl PlanPlace {
    async fn read(tx: &mut TeamTx<'_>, session: &Session, at: &str) -> Result<Self> {
        let (word, number) = at.split_once('-').unwrap_or((at, ""));
        let number: Option<u64> = number.parse().ok();
        Ok(match (word, number) {
            ("edit", None) => Self::Edit,
            ("history", before) => {
                let mut found = db::plans::list(tx, &session.id, before, REVISIONS_PER_PAGE + 1).await?;
                let more = found.len() as u64 > REVISIONS_PER_PAGE;
                found.truncate(REVISIONS_PER_PAGE as usize);
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
    data: &'a PlanPane,
    context: &'a PaneContext,
    /// What the newest revision says, in its order.
    goal: String,
    pieces: Vec<PlanSection>,
    progress: (usize, usize),
    /// Lines beyond the number of steps that is shown.
    beyond: usize,
}

/// A part of a plan.
enum PlanSection {
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
    /// Its circle is a button.
    tick: bool,
    /// It can be changed by itself. Of a long plan only the first steps and the one at work can; the others are
    /// changed in the text.
    menu: bool,
}

impl<'a> PlanView<'a> {
    pub fn of(data: &'a PlanPane, context: &'a PaneContext) -> Self {
        let text = data.text();
        let document = Document::parse(text);
        let plan = document.steps();
        let (progress, count) = (plan.progress(), plan.steps.len());
        let current = plan.steps.iter().position(|step| step.status == Status::Working);
        let mut pieces: Vec<PlanSection> = Vec::new();
        for piece in document.pieces(text) {
            match piece {
                PlanPiece::Text(text) => pieces.push(PlanSection::Text(markdown::render(text, TextAuthor::Agent))),
                PlanPiece::Step(n) => {
                    let notes = document.notes(n);
                    let view = StepView {
                        step: plan.steps[n].clone(),
                        notes: (!notes.trim().is_empty()).then(|| markdown::render(&notes, TextAuthor::Agent)),
                        current: current == Some(n),
                        first: n == 0,
                        last: n + 1 == count,
                        tick: n < MAX_TICKS || current == Some(n),
                        menu: n < MAX_STEP_MENUS || current == Some(n),
                    };
                    match pieces.last_mut() {
                        Some(PlanSection::Steps(steps)) => steps.push(view),
                        _ => pieces.push(PlanSection::Steps(vec![view])),
                    }
                }
            }
        }
        Self { data, context, goal: plan.goal, pieces, progress, beyond: document.beyond() }
    }

    /// Whether the plan is all in the text that waits for approval, and so is shown there.
    fn is_asked_about(&self) -> bool {
        let Some(asked) = &self.data.approval else { return false };
        let steps = self.pieces.iter().filter_map(|piece| match piece {
            PlanSection::Steps(steps) => Some(steps),
            PlanSection::Text(_) => None,
        });
        steps.flatten().all(|shown| asked.preview.contains(&shown.step.title))
    }

    /// The files beside the plan; not the one that is shown because it waits for approval.
    fn beside(&self) -> impl Iterator<Item = &Beside> {
        let asks = self.data.asks_about_itself();
        self.data.beside.iter().filter(move |file| !asks || file.name != plan::COMPANION_FILES[0])
    }

    /// Who made a revision, as the end of a sentence.
    fn by(&self, revision: &Revision) -> String {
        match revision.source {
            PlanSource::Operator => format!("by {}", revision.author),
            PlanSource::Agent => "by the agent".to_owned(),
            PlanSource::File => "in the file".to_owned(),
        }
    }

    fn seen(&self, status: &Status) -> (&'static str, &'static str) {
        seen(*status)
    }

    fn at(&self, place: &str) -> String {
        urls::pane_at(&self.context.slug, &self.context.session, "plan", place)
    }

    fn at_revision(&self, n: &u64) -> String {
        self.at(&format!("revision-{n}"))
    }

    fn at_older(&self, before: &u64) -> String {
        self.at(&format!("history-{before}"))
    }

    fn verb(&self, verb: &str) -> String {
        urls::session_verb(&self.context.slug, &self.context.session, verb)
    }

    /// Whether the stream keeps this place current.
    fn is_front(&self) -> bool {
        matches!(self.data.at, PlanPlace::Front)
    }

    /// Whether its steps can be changed one by one: those of another session's plan cannot.
    fn may_change_steps(&self) -> bool {
        self.context.may_act && self.beyond == 0 && self.data.carried.is_none()
    }

    /// The session that a plan was taken along from.
    fn origin(&self, carried: &CarriedPlan) -> String {
        urls::session(&self.context.slug, &carried.session)
    }

    fn proposes(&self) -> bool {
        self.data.policies.plan == Policy::Propose
    }

    /// What changed from one revision to the next.
    fn changed(&self, before: &Option<Revision>, after: &Revision) -> (Vec<StepDiffRow>, bool) {
        rows(before.as_ref().map_or("", |before| before.markdown.as_str()), &after.markdown)
    }

    fn now_text(&self) -> &str {
        self.data.text()
    }

    /// The version that a form is about.
    fn now_hash(&self) -> &str {
        version(self.data.queued.as_ref(), self.data.now.as_ref())
    }

    fn proposal(&self, shown: &'a ShownProposal) -> ProposalView<'a> {
        ProposalView { shown, context: self.context }
    }

    fn proposal_editor(&self, shown: &'a ShownProposal) -> ProposalEditor<'a> {
        ProposalEditor { shown, context: self.context }
    }

    /// What a conflicting change would change in the plan as it is now.
    fn clash(&self, edit: &Edit) -> (Vec<StepDiffRow>, bool) {
        rows(self.data.now.as_ref().map_or("", |now| now.markdown.as_str()), edit.content.as_deref().unwrap_or(""))
    }

    /// Whether both changes can stand.
    fn merges(&self, edit: &Edit) -> bool {
        let theirs = self.data.now.as_ref().map_or("", |now| now.markdown.as_str());
        let mine = edit.content.as_deref().unwrap_or("");
        edit.base.as_deref().is_some_and(|base| !file::merge(base, theirs, mine).1)
    }

    /// Whether the plan says this now.
    fn is_newest(&self, revision: &Revision) -> bool {
        self.data.now.as_ref().is_some_and(|now| now.hash == revision.hash)
    }

    fn approve_link(&self, id: &ApprovalId) -> String {
        urls::approval(&self.context.slug, id)
    }

    /// The source of a plan, with what does not show in it.
    fn written(&self, text: &str) -> String {
        revealed(text)
    }

    /// Whether a plan says something that does not show when it is rendered.
    fn hides(&self, text: &str) -> bool {
        hides_something(text) || leaves_out(text, &self.rendered(text))
    }

    fn is_whole(&self, asked: &Approval) -> bool {
        is_whole(asked)
    }

    fn rendered(&self, text: &str) -> Arc<str> {
        markdown::render(text, TextAuthor::Agent)
    }
}

/// The version that stands with a change that is under way; empty: there is no plan.
fn version<'a>(queued: Option<&'a Edit>, now: Option<&'a Revision>) -> &'a str {
    let queued = queued.and_then(|edit| edit.hash.as_deref());
    queued.or(now.map(|now| now.hash.as_str())).unwrap_or("")
}

/// A status as people see it: the icon and the word.
pub(super) fn seen(status: Status) -> (&'static str, &'static str) {
    match status {
        Status::Pending => ("pending", "To do"),
        Status::Working => ("working", "Working"),
        Status::Done => ("done", "Done"),
        Status::Skipped => ("stopped", "Skipped"),
        Status::Failed => ("failed", "Failed"),
    }
}
