//! One's own account: name, theme, password, teams, signed-in devices.

use askama::Template;
use axum::{
    Form,
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Redirect, Response},
};
use protocol::LoginId;
use serde::Deserialize;

use crate::{
    actions::accounts,
    db,
    domain::{Login, Role, Team},
    error::Error,
    state::Board,
    web::{
        Rejection, SignedIn,
        extract::Id,
        html_with, respond, urls,
        view::{PageLocation, Shell, filters},
    },
};

#[derive(Template)]
#[template(path = "people/accounts/account.html")]
struct Page {
    shell: Shell,
    name: String,
    email: String,
    theme: String,
    teams: Vec<(Team, Role)>,
    /// The team that the reader came from, else their first one: its address and name.
    back: Option<(String, String)>,
    devices: Vec<Login>,
    here: Login,
    /// Which form it is about, and what is wrong.
    error: Option<(&'static str, String)>,
}

impl Page {
    fn is_here(&self, device: &Login) -> bool {
        self.here.id == device.id
    }

    fn wrong(&self, form: &str) -> Option<&str> {
        self.error.as_ref().filter(|(which, _)| *which == form).map(|(_, error)| error.as_str())
    }
}

async fn show(
    board: &Board,
    signed_in: SignedIn,
    from: Option<&str>,
    name: Option<String>,
    error: Option<(&'static str, Error)>,
) -> Result<Response, Rejection> {
    let (teams, devices) = {
        let (mut tx, id) = (board.db.reader().await?, &signed_in.operator.id);
        let teams = db::teams::of_operator(&mut tx, id).await?;
        (teams, db::logins::of_operator(&mut tx, id, board.clock.now()).await?)
    };
    let open = || teams.iter().map(|(team, _)| team).filter(|team| team.suspended_at.is_none());
    let back = open().find(|team| from == Some(&team.slug)).or_else(|| open().next());
    let status = error.as_ref().map_or(StatusCode::OK, |(_, error)| respond::status(error));
    let page = Page {
        shell: Shell::load_alone(board, &signed_in).await?,
        name: name.unwrap_or_else(|| signed_in.operator.name.clone()),
        email: signed_in.operator.email,
        theme: signed_in.operator.theme,
        back: back.map(|team| (urls::home(&team.slug), team.name.clone())),
        teams,
        devices,
        here: signed_in.login,
        error: error.map(|(form, error)| (form, error.to_string())),
    };
    html_with(status, &page)
}

/// As it is.
pub(super) async fn page(
    State(board): State<Board>,
    signed_in: SignedIn,
    Query(from): Query<AccountQuery>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    let referrer = headers.get(header::REFERER).and_then(|value| value.to_str().ok()).and_then(came_from);
    show(&board, signed_in, from.team.as_deref().or(referrer), None, None).await
}

#[derive(Deserialize)]
pub(super) struct AccountQuery {
    /// The team that the reader came from.
    team: Option<String>,
}

/// The team in the address of the page that led here: one of its own, or this one before a form was sent.
fn came_from(referrer: &str) -> Option<&str> {
    let after = |mark: &str| referrer.split_once(mark).map(|(_, rest)| rest);
    let rest = after("/account?team=").or_else(|| after("/t/"))?;
    rest.split(['/', '?', '&', '#']).next().filter(|slug| !slug.is_empty())
}

/// 303 back to the account.
fn back() -> Response {
    Redirect::to(urls::account()).into_response()
}

#[derive(Deserialize)]
pub(super) struct ProfileForm {
    name: String,
    theme: String,
}

/// Name and theme.
pub(super) async fn update(
    State(board): State<Board>,
    signed_in: SignedIn,
    Form(typed): Form<ProfileForm>,
) -> Result<Response, Rejection> {
    match accounts::update_profile(&board, &signed_in.operator.id, &typed.name, &typed.theme).await {
        Ok(()) => Ok(back()),
        Err(error @ Error::Unacceptable { .. }) => {
            show(&board, signed_in, None, Some(typed.name), Some(("profile", error))).await
        }
        Err(error) => Err(error.into()),
    }
}

#[derive(Deserialize)]
pub(super) struct PasswordForm {
    old: String,
    new: String,
}

/// A new password; signs the other devices out.
pub(super) async fn password(
    State(board): State<Board>,
    signed_in: SignedIn,
    Form(typed): Form<PasswordForm>,
) -> Result<Response, Rejection> {
    let done = accounts::change_password(&board, &signed_in.by, &signed_in.login, typed.old, typed.new).await;
    match done {
        Ok(()) => Ok(back()),
        Err(error @ Error::Unacceptable { .. }) => show(&board, signed_in, None, None, Some(("password", error))).await,
        Err(error) => Err(error.into()),
    }
}

/// Signs one device out.
pub(super) async fn end_device(
    State(board): State<Board>,
    signed_in: SignedIn,
    Id(id): Id<LoginId>,
) -> Result<Response, Rejection> {
    accounts::end_login(&board, &signed_in.operator.id, &id).await?;
    Ok(back())
}

/// Signs all others out.
pub(super) async fn end_others(State(board): State<Board>, signed_in: SignedIn) -> Result<Response, Rejection> {
    accounts::end_other_logins(&board, &signed_in.operator.id, &signed_in.login.id).await?;
    Ok(back())
}

/// A browser in words a person knows; the whole text when there are none.
fn device(agent: &str) -> String {
    let first = |words: &[(&str, &'static str)]| words.iter().find(|(sign, _)| agent.contains(sign)).map(|(_, w)| *w);
    let browser = first(&[
        ("Edg/", "Edge"),
        ("OPR/", "Opera"),
        ("Firefox/", "Firefox"),
        ("Chrome/", "Chrome"),
        ("Safari/", "Safari"),
    ]);
    let system = first(&[
        ("Android", "Android"),
        ("iPhone", "iPhone"),
        ("iPad", "iPad"),
        ("Mac OS X", "macOS"),
        ("Windows", "Windows"),
        ("Linux", "Linux"),
    ]);
    match (browser, system) {
        (Some(browser), Some(system)) => format!("{browser} on {system}"),
        _ if agent.is_empty() => "A program".to_owned(),
        _ => agent.chars().take(60).collect(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_way_back_is_a_team() {
        for (from, team) in [
            ("https://board.test/t/home/sessions/ses_1", Some("home")),
            ("https://board.test/t/home", Some("home")),
            ("https://board.test/account?team=far", Some("far")),
            ("https://board.test/account", None),
            ("https://board.test/t/", None),
        ] {
            assert_eq!(super::came_from(from), team, "{from}");
        }
    }

    #[test]
    fn browsers_have_names() {
        let agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/148.0 Safari/537.36";
        assert_eq!(super::device(agent), "Chrome on Linux");
        assert_eq!(super::device("curl/8.5"), "curl/8.5");
    }
}
