//! Accounts in the browser: first run, sign-in, invitations, one's own account.

mod account;
mod first_viber;
mod invite;
mod links;
mod redirect;
mod setup;
mod sign_in;

use axum::{
    Router,
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};

use crate::{
    db,
    domain::{Login, Operator},
    state::Board,
    web::{Rejection, SignedIn, cookie::Cookie, urls},
};

/// Their routes.
pub fn routes() -> Router<Board> {
    Router::new()
        .route("/", get(enter))
        .route("/s/{id}", get(links::session))
        .route("/setup/{code}", get(setup::page).post(setup::claim))
        .route("/login", get(sign_in::page).post(sign_in::sign_in))
        .route("/logout", post(sign_in::sign_out))
        .route("/invite/{code}", get(invite::page).post(invite::accept))
        .route("/t/{team}/welcome", get(first_viber::page))
        .route("/account", get(account::page).post(account::update))
        .route("/account/password", post(account::password))
        .route("/account/devices/others", post(account::end_others))
        .route("/account/devices/{id}/end", post(account::end_device))
}

/// The first of one's teams.
async fn enter(State(board): State<Board>, signed_in: SignedIn) -> Result<Response, Rejection> {
    let teams = db::teams::of_operator(&mut *board.db.reader().await?, &signed_in.operator.id).await?;
    let open = teams.into_iter().find(|(team, _)| team.suspended_at.is_none());
    let to = open.map_or_else(|| urls::account().to_owned(), |(team, _)| urls::home(&team.slug));
    Ok(Redirect::to(&to).into_response())
}

/// Sends a browser on with a fresh session cookie. Whatever it carried before is replaced.
fn welcome(board: &Board, login: &Login, operator: &Operator, to: &str) -> Response {
    with_cookie(Cookie::Login.of(board, login, &operator.id, login.cookie.generation), to)
}

/// 303 to a page, with a cookie.
pub(in crate::web) fn with_cookie(cookie: HeaderValue, to: &str) -> Response {
    ([(header::SET_COOKIE, cookie)], Redirect::to(to)).into_response()
}

/// The name of this Board as people know it: the host in its address.
fn host(board: &Board) -> String {
    let url = board.config.base_url();
    url.split_once("://").map_or(url.clone(), |(_, host)| host.to_owned())
}
