//! One session: the conversation, its state, and what one can say and do there.

use askama::Template;
use axum::{
    Form,
    extract::{Query, State},
    http::{StatusCode, header},
    response::{Html, IntoResponse, Redirect, Response},
};
use protocol::{SessionId, TaskId};
use serde::Deserialize;

use crate::{
    actions, db,
    domain::{Part, Role},
    error::{Error, Result},
    state::Board,
    web::pages::{
        Wants, busy,
        cache::Read,
        conversation::{Before, Talk},
        home::{self, Goal},
        nonce, once,
        pane::{Asked, Pane},
        status_panel::DockView,
    },
    web::{
        Operating, Rejection, Viewing,
        extract::{Caller, Id},
        html, html_with, links,
        view::{Badge, Place, Shell, filters},
    },
};

/// The page.
#[derive(Template)]
#[template(path = "work/sessions/show.html")]
struct Page<'a> {
    shell: Shell,
    slug: String,
    talk: &'a Talk,
    place: Where,
    messages: &'a [String],
    older: Option<String>,
    before: Option<Before>,
    dock: DockView,
    composer: Composer,
    may_send: bool,
    /// `talk` or `pane`: what a narrow screen shows.
    view: &'static str,
    strip: String,
    pane: String,
}

impl Page<'_> {
    fn verb(&self, verb: &str) -> String {
        links::session_verb(&self.slug, &self.talk.session.id, verb)
    }

    fn pin_verb(&self) -> &'static str {
        if self.talk.session.pinned_at.is_some() { "unpin" } else { "pin" }
    }

    fn archive_verb(&self) -> &'static str {
        if self.talk.session.archived_at.is_some() { "unarchive" } else { "archive" }
    }
}

/// The viber and agent of a session, in its bar: a region of the live stream.
#[derive(Clone, Debug, Template)]
#[template(path = "work/sessions/_where.html")]
pub struct Where {
    /// Its page and its name; `None` when it was removed.
    viber: Option<(String, String)>,
    contact: Badge,
    agent: String,
}

impl Where {
    /// As it is now.
    pub fn of(talk: &Talk, slug: &str) -> Self {
        let viber = talk.viber.as_ref().map(|viber| (links::viber(slug, &viber.id), viber.name.clone()));
        Self { viber, contact: talk.contact(), agent: talk.agent_name() }
    }
}

/// Where one writes, or why not.
#[derive(Clone, Debug, Template)]
#[template(path = "work/sessions/_composer.html")]
pub struct Composer {
    say: Say,
    action: String,
    /// Sent along, so that the same message sent twice is one message.
    key: String,
    draft: String,
    content: String,
    /// Where this page is found again, when it answers a form.
    address: Option<String>,
    error: Option<String>,
}

/// Whether one may write here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Say {
    May,
    Not(&'static str),
}

/// The answer to a message that htmx sent: an empty composer, and the dock as it is now.
#[derive(Template)]
#[template(path = "work/sessions/_sent.html")]
struct Sent {
    composer: Composer,
    dock: String,
}

/// Which part of the conversation, and what the composer starts with.
#[derive(Debug, Default, Deserialize)]
pub struct At {
    /// `{message}`, or `{message}.{part}`.
    before: Option<String>,
    edit: Option<u64>,
    pane: Option<String>,
    at: Option<String>,
}

impl At {
    fn before(&self) -> Result<Option<Before>> {
        let none = |()| Error::NotFound;
        self.before.as_deref().filter(|text| !text.is_empty()).map(|text| text.parse().map_err(none)).transpose()
    }

    fn pane(&self) -> Asked {
        Asked::of(self.pane.as_deref(), self.at.as_deref())
    }
}

/// What somebody wrote.
#[derive(Debug, Deserialize)]
pub struct Words {
    content: String,
    #[serde(default)]
    key: String,
}

impl Composer {
    fn of(board: &Board, talk: &Talk, caller: &Caller) -> Self {
        let say = match (caller.role >= Role::Operator, &talk.viber) {
            (false, _) => Say::Not("You are a viewer here: you can read along. An admin can make you an operator."),
            (true, None) => Say::Not("The viber of this session was removed. Start a new task on another one."),
            (true, Some(_)) => Say::May,
        };
        Self {
            say,
            action: links::session_verb(&caller.team.slug, &talk.session.id, "messages"),
            key: nonce(board),
            draft: talk.session.id.to_string(),
            content: String::new(),
            address: None,
            error: None,
        }
    }
}

/// `GET /t/{team}/sessions/{id}`
pub async fn show(
    State(board): State<Board>,
    caller: Viewing,
    Id(id): Id<SessionId>,
    Query(at): Query<At>,
) -> Result<Html<String>, Rejection> {
    let read = Read::load(&board, &caller, &id, at.before()?, &at.pane()).await?;
    html(&page(&board, &caller, &id, &at, &read).await?)
}

async fn page<'a>(board: &Board, caller: &Caller, id: &SessionId, at: &At, read: &'a Read) -> Result<Page<'a>> {
    let (talk, first) = (&read.talk, read.first);
    let asked = at.pane();
    let shell =
        Shell::of(&read.frame, caller, board.clock.now()).at(Place::Session(id.clone())).with_pane(asked.named());
    let before = at.before()?;
    let shell = if before.is_none() { shell.from(talk.cursor()) } else { shell.still() };
    let mut composer = Composer::of(board, talk, caller);
    if let Some(seq) = at.edit {
        composer.content = said(board, caller, id, seq).await?;
        composer.draft = format!("{id}:{seq}");
    }
    let pane = Pane::of(&asked, &read.pane, talk, caller, shell.now);
    Ok(Page {
        slug: caller.team.slug.clone(),
        place: Where::of(talk, &caller.team.slug),
        older: (first > 1).then(|| format!("{}?before={first}", links::session(&caller.team.slug, id))),
        before,
        dock: DockView::of(talk, caller, shell.now),
        may_send: caller.role >= Role::Operator,
        view: asked.view(),
        strip: pane.strip()?,
        pane: pane.body()?,
        shell,
        talk,
        messages: &read.messages,
        composer,
    })
}

/// `POST /t/{team}/sessions`: a session before its first task, where a plan is written and files are attached. What was
/// to be said waits in its composer.
pub async fn prepare(
    State(board): State<Board>,
    caller: Operating,
    Form(goal): Form<Goal>,
) -> Result<Response, Rejection> {
    let start = match goal.start() {
        Ok(start) => start,
        Err(error) => return home::again(&board, &caller, goal, error).await,
    };
    let id = match actions::sessions::create(&board, &caller.team.id, &caller.by, start).await {
        Ok(session) => session.id,
        Err(error) => return home::again(&board, &caller, goal, error).await,
    };
    let at = At { pane: Some("plan".to_owned()), ..At::default() };
    let read = Read::load(&board, &caller, &id, None, &at.pane()).await?;
    let mut page = page(&board, &caller, &id, &at, &read).await?;
    page.composer.content = goal.goal;
    page.composer.address = Some(links::pane(&caller.team.slug, &id, "plan"));
    Ok(html(&page)?.into_response())
}

/// The text of a user's message, to be changed and sent again.
async fn said(board: &Board, caller: &Caller, id: &SessionId, seq: u64) -> Result<String> {
    let before = Some(seq.saturating_add(1));
    let found = db::messages::page(&mut board.db.reader_of(&caller.team.id).await?, id, before, 1).await?;
    let message = found.into_iter().find(|message| message.seq == seq).ok_or(Error::NotFound)?;
    let text = message.parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.as_str()),
        _ => None,
    });
    Ok(text.collect::<Vec<_>>().join("\n\n"))
}

/// `POST /t/{team}/sessions/{id}/messages`: the next task of the session.
pub async fn say(
    State(board): State<Board>,
    caller: Operating,
    Id(id): Id<SessionId>,
    wants: Wants,
    Form(words): Form<Words>,
) -> Result<Response, Rejection> {
    let submit = actions::tasks::Submit {
        goal: words.content.replace("\r\n", "\n"),
        session: Some(id.clone()),
        once: once(&words.key, &[id.as_str(), &words.content]),
        ..Default::default()
    };
    match actions::tasks::submit(&board, &caller.team.id, &caller.by, submit).await {
        Ok(_) if wants == Wants::Page => Ok(Redirect::to(&links::session(&caller.team.slug, &id)).into_response()),
        Ok(_) => {
            let talk = Talk::load(&board, &caller.team.id, &id, None).await?;
            let dock = DockView::of(&talk, &caller, board.clock.now()).out_of_band();
            Ok(html(&Sent { composer: Composer::of(&board, &talk, &caller), dock })?.into_response())
        }
        Err(Error::Unacceptable { message, .. } | Error::Conflict { message, .. }) => {
            let read = Read::load(&board, &caller, &id, None, &Asked::default()).await?;
            let mut page = page(&board, &caller, &id, &At::default(), &read).await?;
            (page.composer.content, page.composer.error) = (words.content, Some(message));
            match wants {
                Wants::Page => html_with(StatusCode::UNPROCESSABLE_ENTITY, &page),
                Wants::Fragment => html_with(StatusCode::UNPROCESSABLE_ENTITY, &page.composer),
            }
        }
        Err(Error::Unavailable { what, retry_after }) if wants == Wants::Page => {
            // What was written is not lost with it; the same key, should it have arrived after all.
            let read = Read::load(&board, &caller, &id, None, &Asked::default()).await?;
            let mut page = page(&board, &caller, &id, &At::default(), &read).await?;
            (page.composer.content, page.composer.key) = (words.content, words.key);
            page.composer.error = Some(busy(what));
            let answer = html_with(StatusCode::SERVICE_UNAVAILABLE, &page)?;
            Ok(([(header::RETRY_AFTER, retry_after.to_string())], answer).into_response())
        }
        Err(error) => Err(error.into()),
    }
}

/// `POST /t/{team}/tasks/{id}/stop`
pub async fn stop(
    State(board): State<Board>,
    caller: Operating,
    Id(id): Id<TaskId>,
    wants: Wants,
) -> Result<Response, Rejection> {
    let task = actions::tasks::stop(&board, &caller.team.id, &caller.by, &id, "stopped by a person").await?;
    dock(&board, &caller, &task.session_id, wants).await
}

/// `POST /t/{team}/tasks/{id}/retry`
pub async fn retry(
    State(board): State<Board>,
    caller: Operating,
    Id(id): Id<TaskId>,
    wants: Wants,
) -> Result<Response, Rejection> {
    let task = actions::tasks::retry(&board, &caller.team.id, &caller.by, &id).await?;
    dock(&board, &caller, &task.session_id, wants).await
}

async fn dock(board: &Board, caller: &Caller, id: &SessionId, wants: Wants) -> Result<Response, Rejection> {
    if wants == Wants::Page {
        return Ok(Redirect::to(&links::session(&caller.team.slug, id)).into_response());
    }
    let talk = Talk::load(board, &caller.team.id, id, None).await?;
    Ok(html(&DockView::of(&talk, caller, board.clock.now()))?.into_response())
}

/// A new title.
#[derive(Debug, Deserialize)]
pub struct Title {
    title: String,
}

/// `POST /t/{team}/sessions/{id}/rename`
pub async fn rename(
    State(board): State<Board>,
    caller: Operating,
    Id(id): Id<SessionId>,
    Form(form): Form<Title>,
) -> Result<Redirect, Rejection> {
    actions::sessions::rename(&board, &caller.team.id, &caller.by, &id, &form.title).await?;
    Ok(Redirect::to(&links::session(&caller.team.slug, &id)))
}

macro_rules! verbs {
    ($($(#[$doc:meta])* $name:ident => $to:expr;)*) => {$(
        $(#[$doc])*
        pub async fn $name(
            State(board): State<Board>,
            caller: Operating,
            Id(id): Id<SessionId>,
        ) -> Result<Redirect, Rejection> {
            actions::sessions::$name(&board, &caller.team.id, &caller.by, &id).await?;
            let to: fn(&str, &SessionId) -> String = $to;
            Ok(Redirect::to(&to(&caller.team.slug, &id)))
        }
    )*};
}

verbs! {
    /// `POST /t/{team}/sessions/{id}/archive`
    archive => |slug, _| links::sessions(slug);
    /// `POST /t/{team}/sessions/{id}/unarchive`
    unarchive => links::session;
    /// `POST /t/{team}/sessions/{id}/pin`
    pin => links::session;
    /// `POST /t/{team}/sessions/{id}/unpin`
    unpin => links::session;
    /// `POST /t/{team}/sessions/{id}/delete`
    delete => |slug, _| links::sessions(slug);
}

/// A page that carries next to nothing of the conversation.
const BRIEFLY: Before = Before { seq: 2, part: None };

/// Asks once before a session is gone.
#[derive(Template)]
#[template(path = "work/sessions/delete.html")]
struct Confirm {
    shell: Shell,
    slug: String,
    talk: Talk,
}

/// `GET /t/{team}/sessions/{id}/delete`
pub async fn confirm_delete(
    State(board): State<Board>,
    caller: Operating,
    Id(id): Id<SessionId>,
) -> Result<Html<String>, Rejection> {
    let talk = Talk::load(&board, &caller.team.id, &id, Some(BRIEFLY)).await?;
    let shell = Shell::load(&board, &caller).await?;
    html(&Confirm { shell, slug: caller.team.slug.clone(), talk })
}

/// `POST /t/{team}/sessions/{id}/seen`: the reader has it before their eyes.
pub async fn seen(State(board): State<Board>, caller: Viewing, Id(id): Id<SessionId>) -> Result<StatusCode, Rejection> {
    if let Some(operator) = &caller.operator {
        actions::sessions::mark_read(&board, &caller.team.id, &caller.by, &operator.id, &id).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}
