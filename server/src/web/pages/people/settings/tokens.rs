//! API tokens, with which programs use the API. The secret is shown once.

use askama::Template;
use axum::{
    Form,
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use protocol::TokenId;
use serde::Deserialize;

use super::{Names, Tabs, roles_up_to};
use crate::{
    actions::tokens,
    db,
    domain::{Role, Token},
    error::Error,
    state::Board,
    web::{
        AsAdmin, Caller, Rejection,
        extract::Id,
        html_with, respond, urls,
        view::{PageLocation, Shell, filters},
    },
};

#[derive(Template)]
#[template(path = "people/settings/tokens.html")]
struct Page {
    shell: Shell,
    tabs: Tabs,
    rows: Vec<Row>,
    roles: Vec<Role>,
    name: String,
    chosen: Role,
    /// The secret that was just made: shown this once.
    made: Option<String>,
    /// An example of its use.
    board: String,
    error: Option<String>,
}

struct Row {
    token: Token,
    by: String,
}

#[derive(Deserialize)]
pub(super) struct TokenForm {
    name: String,
    role: Role,
}

async fn show(
    board: &Board,
    caller: &Caller,
    typed: Option<TokenForm>,
    made: Option<String>,
    error: Option<Error>,
) -> Result<Response, Rejection> {
    let all = db::tokens::list(&mut board.db.reader_of(&caller.team.id).await?).await?;
    let names = Names::load(board, caller).await?;
    let TokenForm { name, role } = typed.unwrap_or(TokenForm { name: String::new(), role: Role::Operator });
    let page = Page {
        shell: Shell::load(board, caller).await?.at(PageLocation::Settings),
        tabs: Tabs::new(caller, "tokens"),
        rows: all.into_iter().map(|token| Row { by: names.of(&token.created_by), token }).collect(),
        roles: roles_up_to(caller.role),
        name,
        chosen: role,
        made,
        board: board.config.base_url(),
        error: error.as_ref().map(ToString::to_string),
    };
    html_with(error.as_ref().map_or(axum::http::StatusCode::OK, respond::status), &page)
}

/// The list and the form.
pub(super) async fn page(State(board): State<Board>, caller: AsAdmin) -> Result<Response, Rejection> {
    show(&board, &caller, None, None, None).await
}

/// Makes one and shows its secret, this once: nobody can read it again.
pub(super) async fn create(
    State(board): State<Board>,
    caller: AsAdmin,
    Form(typed): Form<TokenForm>,
) -> Result<Response, Rejection> {
    match tokens::create(&board, &caller.team.id, caller.maker(), &typed.name, typed.role).await {
        Ok((secret, _)) => show(&board, &caller, None, Some(secret.reveal().to_owned()), None).await,
        Err(error @ Error::Unacceptable { .. }) => show(&board, &caller, Some(typed), None, Some(error)).await,
        Err(error) => Err(error.into()),
    }
}

/// Revokes one.
pub(super) async fn revoke(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<TokenId>,
) -> Result<Response, Rejection> {
    tokens::revoke(&board, &caller.team.id, &caller.by, &id).await?;
    Ok(Redirect::to(&urls::settings_page(&caller.team.slug, "tokens")).into_response())
}
