//! Signing in and out.

use askama::Template;
use axum::{
    Form,
    extract::{Query, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::{host, redirect, welcome, with_cookie};
use crate::{
    actions::accounts,
    error::Error,
    state::Board,
    web::{
        Rejection, SignedIn,
        cookie::Cookie,
        extract::{Device, identity},
        html, html_with, respond,
        view::filters,
    },
};

#[derive(Template, Default)]
#[template(path = "people/accounts/sign_in.html")]
struct Page {
    host: String,
    email: String,
    next: String,
    error: Option<String>,
    /// Why the visitor was signed out.
    notice: Option<&'static str>,
}

#[derive(Deserialize)]
pub(super) struct SignInQuery {
    #[serde(default)]
    next: String,
}

/// The form; a visitor who is signed in already is sent on.
pub(super) async fn page(
    State(board): State<Board>,
    Query(asked): Query<SignInQuery>,
    headers: HeaderMap,
    signed_in: Option<SignedIn>,
) -> Result<Response, Rejection> {
    let next = redirect::local_path(&asked.next).to_owned();
    if signed_in.is_some() {
        return Ok(Redirect::to(&next).into_response());
    }
    let notice = match identity::why_ended(&board, &headers).await?.as_deref() {
        Some("reused") => Some(
            "You were signed out: an old cookie of this sign-in was used again after a newer one had taken its place, \
             so somebody may have copied it. If you cannot explain that, change your password.",
        ),
        Some("crowded") => Some(
            "You were signed out here because you have signed in on a hundred other devices since you were last here.",
        ),
        Some("revoked") => Some("The administrator of this Board signed everybody out."),
        _ => None,
    };
    Ok(html(&Page { host: host(&board), next, notice, ..Page::default() })?.into_response())
}

#[derive(Deserialize)]
pub(super) struct SignInForm {
    email: String,
    password: String,
    #[serde(default)]
    next: String,
}

/// A new login, whatever the browser carried before.
pub(super) async fn sign_in(
    State(board): State<Board>,
    device: Device,
    Form(typed): Form<SignInForm>,
) -> Result<Response, Rejection> {
    let Device { user_agent, address } = device;
    let attempt = accounts::SignInAttempt { email: typed.email.clone(), password: typed.password, address, user_agent };
    match accounts::sign_in(&board, attempt).await {
        Ok((login, operator)) => Ok(welcome(&board, &login, &operator, redirect::local_path(&typed.next))),
        Err(error @ (Error::Unacceptable { .. } | Error::Throttled { .. })) => {
            let message = match &error {
                Error::Throttled { retry_after } => {
                    format!("Too many attempts. Try again in {}.", words(*retry_after))
                }
                other => other.to_string(),
            };
            let next = redirect::local_path(&typed.next).to_owned();
            let page = Page { host: host(&board), email: typed.email, next, error: Some(message), notice: None };
            // An unknown address and a wrong password get exactly the same answer.
            let status = match respond::status(&error) {
                StatusCode::UNPROCESSABLE_ENTITY if respond::code(&error) == "bad_credentials" => {
                    StatusCode::UNAUTHORIZED
                }
                other => other,
            };
            let mut answer = html_with(status, &page)?;
            if let Error::Throttled { retry_after } = error {
                answer.headers_mut().insert(axum::http::header::RETRY_AFTER, retry_after.into());
            }
            Ok(answer)
        }
        Err(error) => Err(error.into()),
    }
}

/// Ends this device's login.
pub(super) async fn sign_out(State(board): State<Board>, signed_in: Option<SignedIn>) -> Result<Response, Rejection> {
    if let Some(SignedIn { operator, login, .. }) = signed_in {
        match accounts::end_login(&board, &operator.id, &login.id).await {
            Ok(()) | Err(Error::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(with_cookie(Cookie::Login.clear(&board.config), "/login"))
}

fn words(seconds: u64) -> String {
    match seconds {
        0..=90 => format!("{seconds} s"),
        _ => format!("{} min", seconds.div_ceil(60)),
    }
}
