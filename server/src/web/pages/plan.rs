//! What one does to a session's plan: how it is treated, and a word about what its agent waits for.

use axum::{
    extract::{Path, State},
    response::{Html, IntoResponse, Redirect, Response},
};
use axum_extra::extract::Form;
use protocol::{ApprovalId, Decision, Policy, SessionId};
use serde::Deserialize;

use super::{
    Wants,
    pane::{Asked, Held, Pane},
    parse,
    talk::Talk,
};
use crate::{
    actions, db,
    domain::PolicyChange,
    error::Error,
    state::Board,
    web::{Operating, Rejection, extract::Caller, links},
};

/// Back to the plan: its front as it is now, or the page with it.
async fn front(board: &Board, caller: &Caller, id: &SessionId, wants: Wants) -> Result<Response, Rejection> {
    if wants == Wants::Page {
        return Ok(Redirect::to(&links::pane(&caller.team.slug, id, "plan")).into_response());
    }
    let asked = Asked::default();
    let talk = Talk::load(board, &caller.team.id, id, None).await?;
    let held = Held::load(board, &caller.team.id, &talk.session, &asked).await?;
    let pane = Pane::of(&asked, &held, &talk, caller, board.clock.now());
    Ok(Html(pane.body()?).into_response())
}

/// How the session treats what its agent changes.
#[derive(Debug, Deserialize)]
pub struct Treatment {
    plan: Option<Policy>,
    /// There when it is on.
    first: Option<String>,
}

/// `POST /t/{team}/sessions/{id}/policies`
pub async fn policies(
    State(board): State<Board>,
    caller: Operating,
    Path((_, id)): Path<(String, String)>,
    Form(form): Form<Treatment>,
) -> Result<Redirect, Rejection> {
    let id: SessionId = parse(&id)?;
    let policies = PolicyChange { plan: form.plan, memory: None, approve_first: Some(form.first.is_some()) };
    actions::sessions::set_policies(&board, &caller.team.id, &caller.by, &id, policies).await?;
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
    Path((_, id)): Path<(String, String)>,
    wants: Wants,
    Form(word): Form<Word>,
) -> Result<Response, Rejection> {
    let id: ApprovalId = parse(&id)?;
    let (team, key) = (caller.team.id.clone(), id.clone());
    let found = board.db.read(|tx| Box::pin(async move { db::approvals::load(tx, &team, &key).await })).await?;
    let session = found.ok_or(Error::NotFound)?.session_id;
    let note = word.note.replace("\r\n", "\n");
    let said = actions::approvals::Word {
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
