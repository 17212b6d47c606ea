//! The form on a viber's page that adds an agent from a template.

use axum::{
    Form,
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use protocol::ViberId;
use serde::Deserialize;

use super::{skills::refusal, viber};
use crate::{
    actions::agents,
    state::Board,
    web::{AsAdmin, Rejection, extract::Id, html_with, urls},
};

/// What is wanted.
#[derive(Debug, Default, Deserialize)]
pub struct AgentForm {
    #[serde(default)]
    template: String,
    #[serde(default)]
    id: String,
}

/// `POST /t/{team}/vibers/{id}/agents`
pub async fn add(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<ViberId>,
    Form(form): Form<AgentForm>,
) -> Result<Response, Rejection> {
    let named = (form.template.as_str(), form.id.as_str());
    match agents::add(&board, &caller.team.id, &caller.by, &id, named).await {
        Ok(_) => Ok(Redirect::to(&format!("{}#agents", urls::viber(&caller.team.slug, &id))).into_response()),
        Err(error) => {
            let (status, reason) = refusal(error)?;
            let mut page = viber::page(&board, &caller, &id).await?;
            page.agent_refused = Some(reason);
            html_with(status, &page)
        }
    }
}
