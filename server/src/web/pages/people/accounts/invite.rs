//! Accepting an invitation with an account, or by creating one.

use askama::Template;
use axum::{
    Form,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::{host, welcome};
use crate::{
    actions::{accounts::NewOperator, invitations},
    domain::Role,
    error::Error,
    state::Board,
    web::{Rejection, SignedIn, extract::Device, html_with, respond, urls, view::filters},
};

#[derive(Template)]
#[template(path = "people/accounts/invite.html")]
struct Page {
    host: String,
    action: String,
    sign_in: String,
    team: String,
    role: Role,
    /// Set when the invitation is for one address only.
    fixed: bool,
    email: String,
    name: String,
    /// Who is signed in here.
    you: Option<String>,
    error: Option<String>,
}

#[derive(Template)]
#[template(path = "people/accounts/invite_gone.html")]
struct Gone {
    host: String,
}

fn gone(board: &Board) -> Result<Response, Rejection> {
    html_with(StatusCode::GONE, &Gone { host: host(board) })
}

async fn show(
    board: &Board,
    code: &str,
    you: Option<&SignedIn>,
    typed: Option<(String, String)>,
    error: Option<Error>,
) -> Result<Response, Rejection> {
    let (team, invitation) = match invitations::open(board, code).await {
        Ok(found) => found,
        Err(Error::NotFound) => return gone(board),
        Err(error) => return Err(error.into()),
    };
    let (name, email) = typed.unwrap_or_default();
    let fixed = !invitation.email.is_empty();
    let page = Page {
        host: host(board),
        action: urls::invitation(code),
        sign_in: urls::sign_in(Some(&urls::invitation(code))),
        team: team.name,
        role: invitation.role,
        email: if fixed { invitation.email } else { email },
        fixed,
        name,
        you: you.map(|you| you.operator.email.clone()),
        error: error.as_ref().map(ToString::to_string),
    };
    html_with(error.as_ref().map_or(StatusCode::OK, respond::status), &page)
}

/// Which team, as what, and how.
pub(super) async fn page(
    State(board): State<Board>,
    Path(code): Path<String>,
    you: Option<SignedIn>,
) -> Result<Response, Rejection> {
    show(&board, &code, you.as_ref(), None, None).await
}

#[derive(Deserialize)]
pub(super) struct AcceptInvitationForm {
    #[serde(default)]
    name: String,
    #[serde(default)]
    email: String,
    #[serde(default)]
    password: String,
}

/// Takes it.
pub(super) async fn accept(
    State(board): State<Board>,
    Path(code): Path<String>,
    you: Option<SignedIn>,
    device: Device,
    Form(typed): Form<AcceptInvitationForm>,
) -> Result<Response, Rejection> {
    let outcome = match &you {
        Some(you) => invitations::accept(&board, &code, &you.operator, &you.by)
            .await
            .map(|team| Redirect::to(&urls::home(&team.slug)).into_response()),
        None => {
            let Device { user_agent, address } = device;
            let new = NewOperator { email: typed.email.clone(), name: typed.name.clone(), password: typed.password };
            invitations::accept_new(&board, &code, new, address, user_agent)
                .await
                .map(|(team, operator, login)| welcome(&board, &login, &operator, &urls::home(&team.slug)))
        }
    };
    match outcome {
        Ok(answer) => Ok(answer),
        Err(Error::NotFound) => gone(&board),
        Err(error @ Error::Unacceptable { .. }) => {
            show(&board, &code, you.as_ref(), Some((typed.name, typed.email)), Some(error)).await
        }
        Err(error) => Err(error.into()),
    }
}
