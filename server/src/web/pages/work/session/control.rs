//! The buttons of the dock that stop a task, hold it, let it go on, or start it over.

use axum::{extract::State, response::Response};
use axum_extra::extract::Form;
use protocol::{PausePoint, TaskId};
use serde::Deserialize;

use super::dock;
use crate::{
    actions,
    state::Board,
    web::pages::Wants,
    web::{AsOperator, Rejection, extract::Id},
};

/// `POST /t/{team}/tasks/{id}/stop`
pub async fn stop(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<TaskId>,
    wants: Wants,
) -> Result<Response, Rejection> {
    let task = actions::tasks::stop(&board, &caller.team.id, &caller.by, &id, "stopped by a person").await?;
    dock(&board, &caller, &task.session_id, wants).await
}

/// How a task is run again.
#[derive(Debug, Default, Deserialize)]
pub struct RetryForm {
    /// Empty: the one before.
    #[serde(default)]
    model: String,
    /// There when it is stopped first.
    stop: Option<String>,
    /// The attempt that the page shows.
    attempt: Option<u32>,
}

/// `POST /t/{team}/tasks/{id}/retry`
pub async fn retry(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<TaskId>,
    wants: Wants,
    Form(form): Form<RetryForm>,
) -> Result<Response, Rejection> {
    let model = Some(form.model).filter(|model| !model.is_empty());
    let how = actions::tasks::Retry { model, stop: form.stop.is_some(), attempt: form.attempt };
    let task = actions::tasks::retry(&board, &caller.team.id, &caller.by, &id, how).await?;
    dock(&board, &caller, &task.session_id, wants).await
}

/// Where a task is held.
#[derive(Debug, Default, Deserialize)]
pub struct PauseForm {
    #[serde(default)]
    at: PausePoint,
}

/// `POST /t/{team}/tasks/{id}/pause`
pub async fn pause(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<TaskId>,
    wants: Wants,
    Form(form): Form<PauseForm>,
) -> Result<Response, Rejection> {
    let task = actions::tasks::pause(&board, &caller.team.id, &caller.by, &id, form.at).await?;
    dock(&board, &caller, &task.session_id, wants).await
}

/// `POST /t/{team}/tasks/{id}/resume`
pub async fn resume(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<TaskId>,
    wants: Wants,
) -> Result<Response, Rejection> {
    let task = actions::tasks::resume(&board, &caller.team.id, &caller.by, &id).await?;
    dock(&board, &caller, &task.session_id, wants).await
}
