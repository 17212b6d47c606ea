//! The members of a team and their roles.

use askama::Template;
use axum::{
    Form,
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use protocol::OperatorId;
use serde::Deserialize;

use super::{Tabs, roles_up_to};
use crate::{
    actions::members,
    db,
    domain::{Member, Role},
    error::Error,
    state::Board,
    web::{
        AsAdmin, AsViewer, Caller, Rejection,
        extract::Id,
        html_with, respond, urls,
        view::{PageLocation, Shell, filters},
    },
};

#[derive(Template)]
#[template(path = "people/settings/members.html")]
struct Page {
    shell: Shell,
    tabs: Tabs,
    members: Vec<Member>,
    you: Option<OperatorId>,
    role: Role,
    error: Option<String>,
}

impl Page {
    fn is_you(&self, member: &Member) -> bool {
        self.you.as_ref() == Some(&member.operator.id)
    }

    /// Only owners change owners.
    fn may_change(&self, member: &Member) -> bool {
        self.role == Role::Owner || (self.role == Role::Admin && member.role < Role::Owner)
    }

    fn roles(&self) -> Vec<Role> {
        roles_up_to(self.role)
    }
}

async fn show(board: &Board, caller: &Caller, error: Option<Error>) -> Result<Response, Rejection> {
    let members = db::members::list(&mut board.db.reader_of(&caller.team.id).await?).await?;
    let page = Page {
        shell: Shell::load(board, caller).await?.at(PageLocation::Settings),
        tabs: Tabs::new(caller, "members"),
        members,
        you: caller.reader().cloned(),
        role: caller.role,
        error: error.as_ref().map(ToString::to_string),
    };
    html_with(error.as_ref().map_or(axum::http::StatusCode::OK, respond::status), &page)
}

/// The list.
pub(super) async fn page(State(board): State<Board>, caller: AsViewer) -> Result<Response, Rejection> {
    show(&board, &caller, None).await
}

#[derive(Deserialize)]
pub(super) struct RoleForm {
    role: Role,
}

/// Another role for a member.
pub(super) async fn set_role(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(who): Id<OperatorId>,
    Form(RoleForm { role }): Form<RoleForm>,
) -> Result<Response, Rejection> {
    let outcome = members::set_role(&board, &caller.team.id, caller.maker(), &who, role).await;
    after(&board, &caller, outcome).await
}

/// Removes a member.
pub(super) async fn remove(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(who): Id<OperatorId>,
) -> Result<Response, Rejection> {
    let outcome = members::remove(&board, &caller.team.id, caller.maker(), &who).await;
    after(&board, &caller, outcome).await
}

/// Everybody but the last owner may leave.
pub(super) async fn leave(State(board): State<Board>, caller: AsViewer) -> Result<Response, Rejection> {
    let you = caller.operator.as_ref().ok_or(Error::NotFound)?;
    match members::remove(&board, &caller.team.id, caller.maker(), &you.id).await {
        Ok(()) => Ok(Redirect::to("/").into_response()),
        outcome => after(&board, &caller, outcome).await,
    }
}

async fn after(board: &Board, caller: &Caller, outcome: Result<(), Error>) -> Result<Response, Rejection> {
    match outcome {
        Ok(()) => Ok(Redirect::to(&urls::settings_page(&caller.team.slug, "members")).into_response()),
        Err(error @ Error::Conflict { .. }) => show(board, caller, Some(error)).await,
        Err(error) => Err(error.into()),
    }
}
