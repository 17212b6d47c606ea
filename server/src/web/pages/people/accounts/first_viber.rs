//! After the first owner: the first viber. A machine that joined before, as on a one-machine Board, is there already.

use askama::Template;
use axum::{extract::State, response::Html};

use super::host;
use crate::{
    db,
    domain::{ContactState, Viber},
    state::Board,
    web::{AsAdmin, Rejection, html, urls, view::filters},
};

#[derive(Template)]
#[template(path = "people/accounts/first_viber.html")]
struct Page {
    host: String,
    slug: String,
    you: String,
    team: String,
    vibers: Vec<Viber>,
}

impl Page {
    fn is_connected(&self, viber: &Viber) -> bool {
        viber.contact.state == ContactState::Connected
    }
}

/// The second and third step of the first run.
pub(super) async fn page(State(board): State<Board>, caller: AsAdmin) -> Result<Html<String>, Rejection> {
    let vibers = db::vibers::list(&mut board.db.reader_of(&caller.team.id).await?, None, 20).await?;
    html(&Page {
        host: host(&board),
        slug: caller.team.slug.clone(),
        you: caller.by.actor.name().to_owned(),
        team: caller.team.name.clone(),
        vibers,
    })
}
