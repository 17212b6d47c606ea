//! What one does to a session's plan: write it, change a step, restore a revision, decide about proposals and questions.

use std::collections::BTreeSet;

use axum::{
    extract::State,
    response::{Html, IntoResponse, Redirect, Response},
};
use axum_extra::extract::Form;
use protocol::{ApprovalId, Decision, EditId, Policy, ProposalId, SessionId, plan::Status};
use serde::Deserialize;

use crate::{
    actions::{
        self, files,
        plan::{self, Deed, Draft, StepDeed},
        proposals::{Proposed, Verdict},
    },
    db,
    domain::{EditState, PolicyChange, file, plan::ProposalKind},
    error::{Error, Result},
    state::Board,
    web::pages::{
        Wants,
        conversation::Talk,
        pane::{Asked, Held, Pane, Tab},
    },
    web::{
        Operating, Rejection,
        extract::{Caller, Id, Ids},
        links,
    },
};

/// Back to the plan: its front as it is now, or the page with it.
async fn front(board: &Board, caller: &Caller, id: &SessionId, wants: Wants) -> Result<Response, Rejection> {
    back(board, caller, id, wants, Tab::Plan).await
}

/// Back to a tab of the pane.
pub(in crate::web::pages) async fn back(
    board: &Board,
    caller: &Caller,
    id: &SessionId,
    wants: Wants,
    tab: Tab,
) -> Result<Response, Rejection> {
    if wants == Wants::Page {
        return Ok(Redirect::to(&links::pane(&caller.team.slug, id, tab.word())).into_response());
    }
    let asked = Asked { tab, ..Asked::default() };
    let talk = Talk::load(board, &caller.team.id, id, None).await?;
    let held = Held::load(board, &caller.team.id, &talk.session, &asked).await?;
    let pane = Pane::of(&asked, &held, &talk, caller, board.clock.now());
    Ok(Html(pane.body()?).into_response())
}

/// How the session treats what its agent changes.
#[derive(Debug, Deserialize)]
pub struct Treatment {
    plan: Option<Policy>,
    memory: Option<Policy>,
    /// There when it is on.
    first: Option<String>,
}

/// `POST /t/{team}/sessions/{id}/policies`
pub async fn policies(
    State(board): State<Board>,
    caller: Operating,
    Id(id): Id<SessionId>,
    Form(form): Form<Treatment>,
) -> Result<Redirect, Rejection> {
    // A box that is off is not sent: only the form that has it says so.
    let approve_first = form.memory.is_none().then_some(form.first.is_some());
    let policies = PolicyChange { plan: form.plan, memory: form.memory, approve_first };
    actions::sessions::set_policies(&board, &caller.team.id, &caller.by, &id, policies).await?;
    let tab = if form.memory.is_some() { Tab::Memory } else { Tab::Plan };
    Ok(Redirect::to(&links::pane(&caller.team.slug, &id, tab.word())))
}

/// A whole plan.
#[derive(Debug, Deserialize)]
pub struct Text {
    markdown: String,
    /// The version that its author saw; empty: there was none.
    #[serde(default)]
    base: String,
}

/// `POST /t/{team}/sessions/{id}/plan`: the plan as a whole. When it meets another version, both are shown.
pub async fn write(
    State(board): State<Board>,
    caller: Operating,
    Id(id): Id<SessionId>,
    Form(text): Form<Text>,
) -> Result<Redirect, Rejection> {
    let base = (!text.base.is_empty()).then_some(text.base);
    let markdown = text.markdown.replace("\r\n", "\n");
    plan::put(&board, &caller.team.id, &caller.by, &id, Draft { base, text: markdown }).await?;
    Ok(Redirect::to(&links::pane(&caller.team.slug, &id, "plan")))
}

/// Something about a step.
#[derive(Debug, Deserialize)]
pub struct StepForm {
    #[serde(default)]
    step: String,
    /// `title`, `add`, `up`, `down`, `remove`, or a status.
    #[serde(rename = "do")]
    deed: String,
    #[serde(default)]
    title: String,
}

/// `POST /t/{team}/sessions/{id}/plan/steps`
pub async fn step(
    State(board): State<Board>,
    caller: Operating,
    Id(id): Id<SessionId>,
    wants: Wants,
    Form(form): Form<StepForm>,
) -> Result<Response, Rejection> {
    let deed = match form.deed.as_str() {
        "title" => Deed::Title(form.title),
        "add" => Deed::Add(form.title),
        "up" => Deed::Up,
        "down" => Deed::Down,
        "remove" => Deed::Remove,
        word => {
            let status = Status::ALL.into_iter().find(|status| status.as_str() == word);
            Deed::Status(status.ok_or_else(|| Error::Malformed("there is no such thing to do".to_owned()))?)
        }
    };
    let wanted = StepDeed { step: form.step, deed };
    plan::do_step(&board, &caller.team.id, &caller.by, &id, &wanted).await?;
    front(&board, &caller, &id, wants).await
}

/// Which revision.
#[derive(Debug, Deserialize)]
pub struct Which {
    n: u64,
}

/// `POST /t/{team}/sessions/{id}/plan/restore`
pub async fn restore(
    State(board): State<Board>,
    caller: Operating,
    Id(id): Id<SessionId>,
    Form(which): Form<Which>,
) -> Result<Redirect, Rejection> {
    plan::restore(&board, &caller.team.id, &caller.by, &id, which.n).await?;
    Ok(Redirect::to(&links::pane(&caller.team.slug, &id, "plan")))
}

/// What is done about a proposal.
#[derive(Debug, Deserialize)]
pub struct Said {
    /// `accept` or `reject`.
    decision: String,
    /// The pieces that are taken; all when the form has no boxes.
    #[serde(default)]
    take: Vec<usize>,
    /// The version of the plan that the boxes were shown for.
    of: Option<String>,
    /// This text instead.
    markdown: Option<String>,
}

/// `POST /t/{team}/sessions/{id}/plan/proposals/{proposal}`
pub async fn propose(
    State(board): State<Board>,
    caller: Operating,
    Ids((id, proposal)): Ids<(SessionId, ProposalId)>,
    wants: Wants,
    Form(said): Form<Said>,
) -> Result<Response, Rejection> {
    let verdict = match (said.decision.as_str(), said.markdown, said.of) {
        ("accept", Some(text), _) => Verdict::Rewrite { text: text.replace("\r\n", "\n"), of: None },
        ("accept", None, None) => Verdict::Accept,
        ("accept", None, Some(of)) => {
            let pieces: BTreeSet<usize> = said.take.into_iter().collect();
            Verdict::Take { pieces, of: (!of.is_empty()).then_some(of) }
        }
        _ => Verdict::Reject,
    };
    let (team, by) = (&caller.team.id, &caller.by);
    let proposed = Proposed { kind: ProposalKind::Plan, session: &id, id: &proposal };
    match actions::proposals::decide(&board, team, by, proposed, verdict).await {
        // What was shown is not what is there any more: the page shows what is.
        Ok(_) | Err(Error::Conflict { code: "plan_changed" | "not_pending", .. }) => {
            front(&board, &caller, &id, wants).await
        }
        Err(error) => Err(error.into()),
    }
}

/// A conflict, and which side stands.
#[derive(Debug, Deserialize)]
pub struct Settled {
    edit: String,
    /// `theirs`, `mine` or `merged`.
    keep: String,
}

/// `POST /t/{team}/sessions/{id}/plan/conflict`
pub async fn settle(
    State(board): State<Board>,
    caller: Operating,
    Id(id): Id<SessionId>,
    Form(form): Form<Settled>,
) -> Result<Redirect, Rejection> {
    let edit: EditId = form.edit.parse().map_err(|_| Error::NotFound)?;
    let found = db::edits::load(&mut board.db.reader_of(&caller.team.id).await?, &edit).await?;
    let conflict = found.filter(|edit| edit.path == plan::path(&id)).ok_or(Error::NotFound)?;
    if conflict.state == EditState::Conflict {
        let now = plan::now(&board, &caller.team.id, &id).await?;
        let theirs = now.as_ref().map_or("", |now| now.markdown.as_str());
        let mine = conflict.content.clone().unwrap_or_default();
        let content = match form.keep.as_str() {
            "mine" => Some(mine),
            "merged" => Some(file::merge(conflict.base.as_deref().unwrap_or_default(), theirs, &mine).0),
            _ => None,
        };
        let change = content.map(|content| files::FileChange {
            path: conflict.path.clone(),
            base_hash: now.as_ref().map(|now| now.hash.clone()),
            op: files::FileOp::Put { content, seen: Some(theirs.to_owned()) },
        });
        files::settle(&board, &caller.team.id, &caller.by, &conflict, change).await?;
    }
    Ok(Redirect::to(&links::pane(&caller.team.slug, &id, "plan")))
}

/// A word about what an agent waits for.
#[derive(Debug, Deserialize)]
pub struct Word {
    decision: Decision,
    digest: String,
    #[serde(default)]
    note: String,
}

/// `POST /t/{team}/approvals/{id}`
pub async fn approve(
    State(board): State<Board>,
    caller: Operating,
    Id(id): Id<ApprovalId>,
    wants: Wants,
    Form(word): Form<Word>,
) -> Result<Response, Rejection> {
    let found = db::approvals::load(&mut board.db.reader_of(&caller.team.id).await?, &id).await?;
    let session = found.ok_or(Error::NotFound)?.session_id;
    let note = word.note.replace("\r\n", "\n");
    let said = actions::approvals::ApprovalWord {
        decision: word.decision,
        digest: word.digest,
        scope: None,
        note: (!note.trim().is_empty()).then_some(note),
    };
    match actions::approvals::decide(&board, &caller.team.id, &caller.by, &id, said).await {
        Ok(_) | Err(Error::Conflict { code: "not_pending" | "other_digest", .. }) => {
            front(&board, &caller, &session, wants).await
        }
        Err(error) => Err(error.into()),
    }
}
