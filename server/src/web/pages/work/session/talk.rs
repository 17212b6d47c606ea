//! What a person does with a message whose agent was not told yet: change it or how it is told, move, withdraw, send or
//! discard it, or take it back into the composer.

use askama::Template;
use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use axum_extra::extract::Form;
use protocol::{InjectionPoint, MessageId, TaskId};
use serde::Deserialize;

use super::SessionQuery;
use crate::{
    actions::tasks::{self, MessageChange},
    db,
    error::Error,
    state::Board,
    web::pages::{
        Wants, cache::SessionPageData, conversation::Conversation, pane::PaneSelection, status_panel::StatusPanel,
    },
    web::{AsOperator, Rejection, extract::Ids, html_with, urls, view::filters},
};

/// What is to be done with a message.
#[derive(Debug, Deserialize)]
pub struct TalkForm {
    verb: TalkVerb,
    #[serde(default)]
    content: String,
    /// The message above it, or before which it was dropped.
    before: Option<MessageId>,
    /// The message below it.
    below: Option<MessageId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TalkVerb {
    Change,
    Collect,
    Steer,
    Followup,
    Up,
    Down,
    Last,
    Withdraw,
    Send,
    /// Into its author's composer.
    Back,
}

/// `POST /t/{team}/tasks/{id}/messages/{message}`
pub async fn change(
    State(board): State<Board>,
    caller: AsOperator,
    Ids((task, id)): Ids<(TaskId, MessageId)>,
    wants: Wants,
    Form(form): Form<TalkForm>,
) -> Result<Response, Rejection> {
    let found = db::tasks::load(&mut board.db.reader_of(&caller.team.id).await?, &task).await?;
    let session = found.ok_or(Error::NotFound)?.session_id;
    let (team, by) = (&caller.team.id, &caller.by);
    let none = MessageChange::default();
    let told = |mode| Some(MessageChange { mode: Some(mode), ..MessageChange::default() });
    let mut moved = id.clone();
    let change = match form.verb {
        TalkVerb::Change => Some(MessageChange { content: Some(form.content.replace("\r\n", "\n")), ..none }),
        TalkVerb::Collect => told(InjectionPoint::Collect),
        TalkVerb::Steer => told(InjectionPoint::Steer),
        TalkVerb::Followup => told(InjectionPoint::Followup),
        TalkVerb::Up => Some(MessageChange { before: form.before, ..none }),
        TalkVerb::Down => {
            // The one below it goes up.
            moved = form.below.unwrap_or(moved);
            Some(MessageChange { before: Some(id.clone()), ..none })
        }
        TalkVerb::Last => Some(MessageChange { last: true, ..none }),
        TalkVerb::Withdraw => Some(MessageChange { withdraw: true, ..none }),
        TalkVerb::Send | TalkVerb::Back => None,
    };
    let done = match (change, form.verb) {
        (Some(change), _) => tasks::change_message(&board, team, by, (&task, &moved), change).await.map(drop),
        (None, TalkVerb::Back) => tasks::take_back(&board, team, by, (&task, &id)).await,
        (None, _) => tasks::send_held(&board, team, by, (&task, &id)).await.map(drop),
    };
    let refusal = match done {
        Ok(()) => TalkRefusal::default(),
        // What came too late shows in the strip as it is; what was written is not lost with it.
        Err(Error::Conflict { message, .. } | Error::Unacceptable { message, .. }) => {
            TalkRefusal { why: Some(message), typed: form.content, swap: false }
        }
        Err(error) => return Err(error.into()),
    };
    let status = if refusal.why.is_some() { StatusCode::CONFLICT } else { StatusCode::OK };
    if wants == Wants::Fragment {
        let conversation = Conversation::load(&board, team, &session, None).await?;
        let dock = StatusPanel::of(&conversation, &caller, board.clock.now());
        return html_with(status, &Talked { dock, refusal: TalkRefusal { swap: true, ..refusal } });
    }
    if refusal.why.is_none() {
        let place = match form.verb {
            TalkVerb::Back => urls::session_with_message(&caller.team.slug, &session, &id),
            _ => urls::session(&caller.team.slug, &session),
        };
        return Ok(Redirect::to(&place).into_response());
    }
    let read = SessionPageData::load(&board, &caller, &session, None, &PaneSelection::default()).await?;
    let page = super::page(&board, &caller, &session, &SessionQuery::default(), &read).await?;
    html_with(status, &super::Page { refusal, ..page })
}

/// Why nothing was done with a message, beside the strip: what changes there does not take it away.
#[derive(Debug, Default, Template)]
#[template(path = "work/session_forms/_refusal.html")]
pub struct TalkRefusal {
    why: Option<String>,
    /// What was to be its text.
    typed: String,
    /// It accompanies another fragment and replaces the element with its id.
    swap: bool,
}

/// The answer to a form that htmx sent: the strip as it is now, and why nothing was done.
#[derive(Template)]
#[template(path = "work/session_forms/_talked.html")]
struct Talked {
    dock: StatusPanel,
    refusal: TalkRefusal,
}
