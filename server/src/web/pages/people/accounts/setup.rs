//! First run: the link that the Board printed makes the first owner and names the team.

use askama::Template;
use axum::{
    Form,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Deserialize;

use super::{host, welcome};
use crate::{
    actions::{accounts::NewOperator, setup},
    error::Error,
    state::Board,
    web::{Rejection, extract::Device, html, html_with, respond, urls, view::filters},
};

#[derive(Template)]
#[template(path = "people/accounts/setup.html")]
struct Page {
    host: String,
    action: String,
    name: String,
    email: String,
    team: String,
    error: Option<String>,
}

#[derive(Template)]
#[template(path = "people/accounts/setup_done.html")]
struct Done {
    host: String,
}

fn gone(board: &Board) -> Result<Response, Rejection> {
    html_with(StatusCode::GONE, &Done { host: host(board) })
}

/// The form, while the code works.
pub(super) async fn page(State(board): State<Board>, Path(code): Path<String>) -> Result<Response, Rejection> {
    if !setup::is_open(&board, &code).await? {
        return gone(&board);
    }
    let empty = String::new;
    let (host, action) = (host(&board), urls::setup(&code));
    Ok(html(&Page { host, action, name: empty(), email: empty(), team: empty(), error: None })?.into_response())
}

#[derive(Deserialize)]
pub(super) struct SetupForm {
    name: String,
    email: String,
    password: String,
    team: String,
}

/// Makes the first owner, signs it in, and goes on to the first viber.
pub(super) async fn claim(
    State(board): State<Board>,
    Path(code): Path<String>,
    device: Device,
    Form(typed): Form<SetupForm>,
) -> Result<Response, Rejection> {
    let owner = NewOperator { email: typed.email.clone(), name: typed.name.clone(), password: typed.password };
    let Device { user_agent, address } = device;
    let claim = setup::FirstOwner { owner, team_name: typed.team.clone(), address, user_agent };
    match setup::claim(&board, &code, claim).await {
        Ok((operator, team, login)) => Ok(welcome(&board, &login, &operator, &urls::welcome(&team.slug))),
        Err(Error::NotFound | Error::Conflict { .. }) => gone(&board),
        Err(error @ Error::Unacceptable { .. }) => {
            let (host, action) = (host(&board), urls::setup(&code));
            let (name, email, team) = (typed.name, typed.email, typed.team);
            let page = Page { host, action, name, email, team, error: Some(error.to_string()) };
            html_with(respond::status(&error), &page)
        }
        Err(error) => Err(error.into()),
    }
}
