//! Invitations: made here, shown once, taken at `/invite/{code}`.

use askama::Template;
use axum::{
    Form,
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use protocol::{Instant, InvitationId};
use serde::Deserialize;

use super::{Names, Tabs, roles_up_to};
use crate::{
    actions::invitations,
    db,
    domain::{Invitation, Role},
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
#[template(path = "people/settings/invitations.html")]
struct Page {
    shell: Shell,
    tabs: Tabs,
    rows: Vec<Row>,
    roles: Vec<Role>,
    email: String,
    chosen: Role,
    /// The link that was just made: shown this once.
    made: Option<String>,
    error: Option<String>,
}

struct Row {
    invitation: Invitation,
    by: String,
}

impl Row {
    /// Why it is no longer open.
    fn past(&self, now: &Instant) -> Option<&'static str> {
        let Invitation { used_at, revoked_at, expires_at, .. } = &self.invitation;
        match (used_at, revoked_at) {
            (Some(_), _) => Some("taken"),
            (_, Some(_)) => Some("withdrawn"),
            _ if expires_at <= now => Some("expired"),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
pub(super) struct InvitationForm {
    #[serde(default)]
    email: String,
    role: Role,
}

async fn show(
    board: &Board,
    caller: &Caller,
    typed: Option<InvitationForm>,
    made: Option<String>,
    error: Option<Error>,
) -> Result<Response, Rejection> {
    let all = db::invitations::list(&mut board.db.reader_of(&caller.team.id).await?).await?;
    let names = Names::load(board, caller).await?;
    let InvitationForm { email, role } = typed.unwrap_or(InvitationForm { email: String::new(), role: Role::Operator });
    let page = Page {
        shell: Shell::load(board, caller).await?.at(PageLocation::Settings),
        tabs: Tabs::new(caller, "invitations"),
        rows: all.into_iter().map(|invitation| Row { by: names.of(&invitation.invited_by), invitation }).collect(),
        roles: roles_up_to(caller.role),
        email,
        chosen: role,
        made,
        error: error.as_ref().map(ToString::to_string),
    };
    html_with(error.as_ref().map_or(axum::http::StatusCode::OK, respond::status), &page)
}

/// The list and the form.
pub(super) async fn page(State(board): State<Board>, caller: AsAdmin) -> Result<Response, Rejection> {
    show(&board, &caller, None, None, None).await
}

/// Makes one and shows its link, this once: nobody can read it again.
pub(super) async fn invite(
    State(board): State<Board>,
    caller: AsAdmin,
    Form(typed): Form<InvitationForm>,
) -> Result<Response, Rejection> {
    match invitations::invite(&board, &caller.team.id, caller.maker(), &typed.email, typed.role).await {
        Ok((secret, _)) => {
            let link = format!("{}{}", board.config.base_url(), urls::invitation(secret.reveal()));
            show(&board, &caller, None, Some(link), None).await
        }
        Err(error @ Error::Unacceptable { .. }) => show(&board, &caller, Some(typed), None, Some(error)).await,
        Err(error) => Err(error.into()),
    }
}

/// Withdraws one.
pub(super) async fn revoke(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<InvitationId>,
) -> Result<Response, Rejection> {
    invitations::revoke(&board, &caller.team.id, &caller.by, &id).await?;
    Ok(Redirect::to(&urls::settings_page(&caller.team.slug, "invitations")).into_response())
}
