//! The forms about a session's plan: writing it, changing a step, restoring a revision, settling a conflict, deciding
//! an approval.

use axum::{
    extract::State,
    response::{Redirect, Response},
};
use axum_extra::extract::Form;
use protocol::{EditId, Policy, SessionId, plan::Status};
use serde::Deserialize;

use crate::{
    actions::{
        self, files,
        plan::{self, PlanDraft, StepAction, StepEdit},
    },
    db,
    domain::{EditState, PolicyChange, file},
    error::Error,
    state::Board,
    web::pages::{
        Wants,
        pane::{self, Tab},
    },
    web::{AsOperator, Rejection, extract::Id, urls},
};

/// The session's policies for changes by its agent.
#[derive(Debug, Deserialize)]
pub struct PoliciesForm {
    plan: Option<Policy>,
    memory: Option<Policy>,
    /// There when it is on.
    first: Option<String>,
}

/// `POST /t/{team}/sessions/{id}/policies`
pub async fn policies(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    Form(form): Form<PoliciesForm>,
) -> Result<Redirect, Rejection> {
    // Browsers do not send a box that is off; only the plan's form has this one.
    let approve_first = form.memory.is_none().then_some(form.first.is_some());
    let policies = PolicyChange { plan: form.plan, memory: form.memory, approve_first };
    actions::sessions::set_policies(&board, &caller.team.id, &caller.by, &id, policies).await?;
    let tab = if form.memory.is_some() { Tab::Memory } else { Tab::Plan };
    Ok(Redirect::to(&urls::pane(&caller.team.slug, &id, tab.word())))
}

/// A whole plan.
#[derive(Debug, Deserialize)]
pub struct PlanForm {
    markdown: String,
    /// The version that its author saw; empty: there was none.
    #[serde(default)]
    base: String,
}

/// `POST /t/{team}/sessions/{id}/plan`: the plan as a whole. When it meets another version, both are shown.
pub async fn write(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    Form(text): Form<PlanForm>,
) -> Result<Redirect, Rejection> {
    let base = (!text.base.is_empty()).then_some(text.base);
    let markdown = text.markdown.replace("\r\n", "\n");
    plan::put(&board, &caller.team.id, &caller.by, &id, PlanDraft { base, text: markdown }).await?;
    Ok(Redirect::to(&urls::pane(&caller.team.slug, &id, "plan")))
}

/// A change to a step.
#[derive(Debug, Deserialize)]
pub struct StepForm {
    #[serde(default)]
    step: String,
    /// `title`, `add`, `up`, `down`, `remove`, or a status.
    #[serde(rename = "do", default)]
    action: String,
    /// A step's circle: the status that it is to have, a colon, and its id.
    #[serde(default)]
    tick: String,
    /// The version of the plan that the form was made of; empty: that does not matter, or there was none.
    #[serde(default)]
    base: String,
    #[serde(default)]
    title: String,
}

/// `POST /t/{team}/sessions/{id}/plan/steps`
pub async fn step(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    wants: Wants,
    Form(form): Form<StepForm>,
) -> Result<Response, Rejection> {
    let (word, step) = form.tick.split_once(':').unwrap_or((&form.action, &form.step));
    let action = match word {
        "title" => StepAction::Title(form.title),
        "add" => StepAction::Add(form.title),
        "up" => StepAction::Up,
        "down" => StepAction::Down,
        "remove" => StepAction::Remove,
        word => {
            let status = Status::ALL.into_iter().find(|status| status.as_str() == word);
            StepAction::Status(status.ok_or_else(|| Error::Malformed("unknown action".to_owned()))?)
        }
    };
    let base = (!form.base.is_empty()).then_some(form.base.as_str());
    let wanted = StepEdit { step: step.to_owned(), base: base.map(str::to_owned), action };
    plan::edit_step(&board, &caller.team.id, &caller.by, &id, &wanted).await?;
    pane::answer(&board, &caller, &id, wants, Tab::Plan).await
}

/// Which revision.
#[derive(Debug, Deserialize)]
pub struct RestoreForm {
    n: u64,
}

/// `POST /t/{team}/sessions/{id}/plan/restore`
pub async fn restore(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    Form(which): Form<RestoreForm>,
) -> Result<Redirect, Rejection> {
    plan::restore(&board, &caller.team.id, &caller.by, &id, which.n).await?;
    Ok(Redirect::to(&urls::pane(&caller.team.slug, &id, "plan")))
}

/// A conflict, and which side is kept.
#[derive(Debug, Deserialize)]
pub struct PlanConflictForm {
    edit: String,
    /// `theirs`, `mine` or `merged`.
    keep: String,
}

/// `POST /t/{team}/sessions/{id}/plan/conflict`
pub async fn settle(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    Form(form): Form<PlanConflictForm>,
) -> Result<Redirect, Rejection> {
    let edit: EditId = form.edit.parse().map_err(|_| Error::NotFound)?;
    let found = db::edits::load(&mut board.db.reader_of(&caller.team.id).await?, &edit).await?;
    let conflict = found.filter(|edit| edit.path == plan::path(&id)).ok_or(Error::NotFound)?;
    if conflict.state == EditState::Conflict {
        let now = plan::current(&board, &caller.team.id, &id).await?;
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
    Ok(Redirect::to(&urls::pane(&caller.team.slug, &id, "plan")))
}
