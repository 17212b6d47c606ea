//! What one does to a session's plan: how it is treated.

use axum::{
    Form,
    extract::{Path, State},
    response::Redirect,
};
use protocol::{Policy, SessionId};
use serde::Deserialize;

use super::parse;
use crate::{
    actions,
    domain::PolicyChange,
    state::Board,
    web::{Operating, Rejection, links},
};

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
