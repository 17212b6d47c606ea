//! Playbooks: the files of the vibers, the form that starts a run, the runs, and the page of one.

mod compare;
mod decide;
mod form;
mod gate;
pub(in crate::web::pages) mod list;
pub(in crate::web::pages) mod run;
mod steps;
mod words;

use axum::{
    Router,
    routing::{get, post},
};

use crate::state::Board;

/// The pages of playbooks and of their runs.
pub fn routes() -> Router<Board> {
    let run = "/t/{team}/playbook-runs/{id}";
    let at = |rest: &str| format!("{run}/{rest}");
    Router::new()
        .route("/t/{team}/playbooks", get(list::show))
        .route("/t/{team}/vibers/{id}/playbooks/{name}", get(form::show).post(form::start))
        .route("/t/{team}/playbook-runs", get(list::older))
        .route(run, get(run::show))
        .route(&at("stop"), get(decide::confirm_stop).post(decide::stop))
        .route(&at("pause"), post(decide::pause))
        .route(&at("resume"), post(decide::resume))
        .route(&at("steps/{label}/retry"), post(decide::retry))
        .route(&at("steps/{label}/skip"), post(decide::skip))
        .route(&at("steps/{label}/allow"), post(decide::allow))
        .route(&at("steps/{label}/deny"), post(decide::deny))
}
