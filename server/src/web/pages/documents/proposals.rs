//! Proposals of agents: how one is shown, rewritten and decided, whichever file it would change.

use std::collections::BTreeSet;

use askama::Template;
use axum::{
    Extension, Router,
    extract::{FromRequestParts, State},
    http::request::Parts,
    response::{IntoResponse, Redirect, Response},
    routing::post,
};
use axum_extra::extract::Form;
use protocol::{ProposalId, SessionId};
use serde::Deserialize;

use crate::{
    actions::proposals::{self, ProposalEffect, ProposalRef, ProposalVerdict, effect},
    db::{self, TeamTx},
    domain::{EditState, Proposal, ProposalState, Word as _, file, plan::ProposalKind},
    error::{Error, Result},
    state::Board,
    web::pages::{
        Wants,
        pane::{
            self, PaneContext, Tab,
            step_diff::{StepDiffRow, rows},
        },
    },
    web::{AsOperator, Rejection, extract::Ids, urls, view::filters},
};

/// Proposals that a tab shows.
const MAX_SHOWN_PROPOSALS: u64 = 10;

/// How pages speak of a kind of proposal.
struct Subject {
    /// The tab that shows it.
    tab: Tab,
    /// Its file, at the beginning of a sentence.
    file_first: &'static str,
    /// The same within one.
    file: &'static str,
    /// A proposal that clashes with another change is brought together with it by hand, and two changes that met are
    /// settled on the page of the edit. Otherwise the tab itself shows what would be undone, and both sides of a conflict.
    merged_by_hand: bool,
}

impl Subject {
    fn of(kind: ProposalKind) -> &'static Self {
        match kind {
            ProposalKind::Plan => {
                &Self { tab: Tab::Plan, file_first: "The plan", file: "the plan", merged_by_hand: false }
            }
            ProposalKind::Memory => {
                &Self { tab: Tab::Memory, file_first: "MEMORY.md", file: "MEMORY.md", merged_by_hand: true }
            }
        }
    }
}

/// A route for each kind: `/t/{team}/sessions/{id}/{kind}/proposals/{proposal}`.
pub fn routes() -> Router<Board> {
    ProposalKind::ALL.iter().fold(Router::new(), |router, kind| {
        let path = format!("/t/{{team}}/sessions/{{id}}/{kind}/proposals/{{proposal}}");
        router.route(&path, post(decide).layer(Extension(*kind)))
    })
}

/// The proposal that an address names.
#[derive(Debug)]
pub struct ProposalPath {
    kind: ProposalKind,
    session: SessionId,
    id: ProposalId,
}

impl<S: Send + Sync> FromRequestParts<S> for ProposalPath {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Rejection> {
        let Ids((session, id)) = Ids::from_request_parts(parts, state).await?;
        let kind = parts.extensions.get::<ProposalKind>().copied();
        let kind = kind.ok_or_else(|| Error::Internal("a proposal's route without its kind".to_owned()))?;
        Ok(Self { kind, session, id })
    }
}

/// The decision on a proposal.
#[derive(Debug, Deserialize)]
pub struct ProposalForm {
    /// `accept` or `reject`.
    decision: String,
    /// With `of`: the pieces of the difference that are taken.
    #[serde(default)]
    take: Vec<usize>,
    /// The version of the file that the pieces or the text were made for; empty: there was no file.
    #[serde(alias = "pick")]
    of: Option<String>,
    /// This text instead of the proposed one.
    #[serde(alias = "markdown")]
    content: Option<String>,
}

impl ProposalForm {
    fn verdict(self) -> ProposalVerdict {
        match (self.decision.as_str(), self.content, self.of) {
            ("accept", Some(text), of) => {
                ProposalVerdict::Rewrite { text: text.replace("\r\n", "\n"), of: Some(of.unwrap_or_default()) }
            }
            ("accept", None, None) => ProposalVerdict::Accept,
            ("accept", None, Some(of)) => {
                let pieces: BTreeSet<usize> = self.take.into_iter().collect();
                ProposalVerdict::Take { pieces, of: (!of.is_empty()).then_some(of) }
            }
            _ => ProposalVerdict::Reject,
        }
    }
}

/// `POST /t/{team}/sessions/{id}/{kind}/proposals/{proposal}`
async fn decide(
    State(board): State<Board>,
    caller: AsOperator,
    ProposalPath { kind, session, id }: ProposalPath,
    wants: Wants,
    Form(form): Form<ProposalForm>,
) -> Result<Response, Rejection> {
    let subject = Subject::of(kind);
    let proposed = ProposalRef { kind, session: &session, id: &id };
    match proposals::decide(&board, &caller.team.id, &caller.by, proposed, form.verdict()).await {
        Ok((_, Some(edit))) if edit.state == EditState::Conflict && subject.merged_by_hand => {
            Ok(Redirect::to(&urls::edit(&caller.team.slug, &edit.viber_id, &edit.id)).into_response())
        }
        // After a change meanwhile the tab shows the new difference.
        Ok(_) | Err(Error::Conflict { code: "plan_changed" | "memory_changed" | "not_pending", .. }) => {
            pane::answer(&board, &caller, &session, wants, subject.tab).await
        }
        Err(error) => Err(error.into()),
    }
}

/// What the Board knows of the file that a proposal would change.
#[derive(Clone, Copy, Debug)]
pub enum KnownFile<'a> {
    Version {
        hash: &'a str,
        text: &'a str,
    },
    Absent,
    /// The file was never heard of, or its newest text was not read yet.
    Unknown,
}

/// A proposal and what it means for the file as it is.
#[derive(Clone, Debug)]
pub struct ShownProposal {
    proposal: Proposal,
    effect: ProposalEffect,
    /// What the agent saw, when that is known.
    base: Option<String>,
    /// What the file says now; `None` when it is unknown.
    now: Option<String>,
    /// The version that a decision is about; empty: there is no file.
    version: String,
    /// The message that it came with, and whether that is further back than the newest page.
    message: Option<(u64, bool)>,
    /// The same of the first and the last question that it was noted of, when a conversation was compacted or noted.
    turns: Option<((u64, bool), (u64, bool))>,
}

impl ShownProposal {
    /// `base` is what the agent saw.
    pub fn new(proposal: Proposal, base: Option<String>, file: KnownFile<'_>) -> Self {
        let now = match file {
            KnownFile::Version { hash, text } => Some((hash, text)),
            KnownFile::Absent | KnownFile::Unknown => None,
        };
        let effect = match file {
            KnownFile::Unknown => ProposalEffect { text: proposal.content.clone(), behind: false, clash: false },
            _ => effect(&proposal, base.as_deref(), now),
        };
        let version = now.map_or_else(String::new, |(hash, _)| hash.to_owned());
        let text = now.map(|(_, text)| text.to_owned());
        let now = if matches!(file, KnownFile::Absent) { Some(String::new()) } else { text };
        Self { proposal, effect, base, now, version, message: None, turns: None }
    }

    /// The same; a decision is about this version of the file.
    pub fn about(self, version: String) -> Self {
        Self { version, ..self }
    }

    /// The message that it came with.
    fn message_seq(&self) -> Option<u64> {
        self.message.map(|(seq, _)| seq)
    }

    /// The same with the message that it came with.
    pub fn with_message(self, message: Option<(u64, bool)>) -> Self {
        Self { message, ..self }
    }

    /// The same with the questions between which it was noted.
    pub fn with_turns(self, turns: Option<((u64, bool), (u64, bool))>) -> Self {
        Self { turns, ..self }
    }

    /// The place in a tab where it is rewritten before it is accepted.
    fn place(&self) -> String {
        format!("proposal-{}", self.proposal.id)
    }

    fn subject(&self) -> &'static Subject {
        Subject::of(self.proposal.kind)
    }

    fn kind(&self) -> &'static str {
        self.proposal.kind.as_str()
    }

    fn is_of_plan(&self) -> bool {
        self.proposal.kind == ProposalKind::Plan
    }

    /// Whether it has to be brought together with another change first.
    fn is_blocked(&self) -> bool {
        self.effect.clash && self.subject().merged_by_hand
    }

    /// Whether its pieces can be taken one by one.
    fn is_divisible(&self) -> bool {
        self.now.is_some() && !self.is_blocked()
    }

    /// The rows that would change, and whether some are left out; `None` when there is nothing to compare with.
    fn difference(&self) -> Option<(Vec<StepDiffRow>, bool)> {
        let before = self.now.as_ref().or(self.base.as_ref())?;
        Some(rows(before, &self.effect.text))
    }

    /// The text to begin rewriting with: both changes where they clash.
    fn draft(&self) -> String {
        match &self.now {
            Some(now) if self.is_blocked() => {
                file::merge(self.base.as_deref().unwrap_or_default(), now, &self.proposal.content).0
            }
            _ => self.effect.text.clone(),
        }
    }
}

/// Proposals of a session that wait, the newest first.
pub async fn waiting(tx: &mut TeamTx<'_>, session: &SessionId, kind: ProposalKind) -> Result<Vec<Proposal>> {
    let pending = Some(ProposalState::Pending);
    Ok(db::proposals::list(tx, session, kind, pending, MAX_SHOWN_PROPOSALS).await?)
}

/// The proposal that is rewritten at this place of a tab.
pub fn rewritten(proposals: &[ShownProposal], place: &str) -> Option<ShownProposal> {
    proposals.iter().find(|shown| shown.place() == place).cloned()
}

/// A proposal in its tab.
#[derive(Template)]
#[template(path = "documents/proposals/_proposal.html")]
pub struct ProposalView<'a> {
    pub shown: &'a ShownProposal,
    pub context: &'a PaneContext,
}

impl ProposalView<'_> {
    fn action(&self) -> String {
        action(self.shown, self.context)
    }

    fn editor(&self) -> String {
        let PaneContext { slug, session, .. } = self.context;
        urls::pane_at(slug, session, self.shown.subject().tab.word(), &self.shown.place())
    }

    fn message(&self) -> Option<String> {
        self.shown.message.map(|message| self.at(message))
    }

    /// The seqs and the addresses of the questions between which it was noted.
    fn turns(&self) -> Option<((u64, String), (u64, String))> {
        self.shown.turns.map(|(first, last)| ((first.0, self.at(first)), (last.0, self.at(last))))
    }

    fn at(&self, (seq, far): (u64, bool)) -> String {
        let PaneContext { slug, session, .. } = self.context;
        urls::message(slug, session, seq, far)
    }

    /// The id of its form: the boxes beside the rows belong to it.
    fn form(&self) -> String {
        format!("f-{}", self.shown.proposal.id)
    }
}

/// A proposal in an editor, instead of the tab's front.
#[derive(Template)]
#[template(path = "documents/proposals/_edit.html")]
pub struct ProposalEditor<'a> {
    pub shown: &'a ShownProposal,
    pub context: &'a PaneContext,
}

impl ProposalEditor<'_> {
    fn action(&self) -> String {
        action(self.shown, self.context)
    }

    fn front(&self) -> String {
        urls::pane(&self.context.slug, &self.context.session, self.shown.subject().tab.word())
    }
}

/// Where a decision is sent to.
fn action(shown: &ShownProposal, context: &PaneContext) -> String {
    let Proposal { kind, id, .. } = &shown.proposal;
    urls::session_verb(&context.slug, &context.session, &format!("{kind}/proposals/{id}"))
}
