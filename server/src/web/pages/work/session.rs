//! One session: its conversation and state, the composer, and the actions on it.

pub(in crate::web::pages) mod cache;
pub(in crate::web::pages) mod composer;
pub(in crate::web::pages) mod control;
pub(in crate::web::pages) mod say;
mod slash;
pub(in crate::web::pages) mod talk;

use askama::Template;
use axum::{
    body::Body,
    extract::{Query, Request, State},
    http::StatusCode,
    response::{Html, IntoResponse, Redirect, Response},
};
use axum_extra::extract::Form;
use protocol::{MessageId, SessionId};
use serde::Deserialize;

use composer::Composer;
use talk::TalkRefusal;

use crate::{
    actions, db,
    domain::{Part, Role, TaskMessage, TaskMessageState, context::compaction::Carried},
    error::{Error, Result},
    state::Board,
    web::pages::{
        Wants,
        asks::Asks,
        cache::SessionPageData,
        comments::CommentsBar,
        conversation::{Conversation, PageEnd, RenderedMessage},
        home::{self, GoalRequest},
        live::presence::{LookingView, WritingView},
        pane::{Pane, PaneChoice, PaneSelection},
        status_panel::StatusPanel,
    },
    web::{
        AsOperator, AsViewer, Rejection,
        extract::{Caller, Id},
        html, html_with,
        respond::status,
        urls,
        view::{Badge, PageLocation, Shell, filters},
    },
};

/// The page.
#[derive(Template)]
#[template(path = "work/sessions/show.html")]
struct Page<'a> {
    shell: Shell,
    slug: String,
    conversation: &'a Conversation,
    place: SessionHost,
    looking: LookingView,
    writing: WritingView,
    messages: &'a [RenderedMessage],
    older: Option<String>,
    /// Where the session comes from, on the page of its beginning.
    origin: Option<SessionOrigin>,
    before: Option<PageEnd>,
    dock: StatusPanel,
    asks: Asks,
    /// What was to be done with a message, and could not.
    refusal: TalkRefusal,
    composer: Composer,
    /// The reader's comments on lines that wait, if the reader may write any.
    comments: Option<CommentsBar>,
    may_send: bool,
    /// `talk` or `pane`: what a narrow screen shows.
    view: &'static str,
    gauge: String,
    strip: String,
    pane: String,
}

impl Page<'_> {
    fn verb(&self, verb: &str) -> String {
        urls::session_verb(&self.slug, &self.conversation.session.id, verb)
    }

    fn pin_verb(&self) -> &'static str {
        if self.conversation.session.pinned_at.is_some() { "unpin" } else { "pin" }
    }

    fn archive_verb(&self) -> &'static str {
        if self.conversation.session.archived_at.is_some() { "unarchive" } else { "archive" }
    }
}

/// The session that one goes on from, and what it took along.
struct SessionOrigin {
    address: String,
    title: String,
    /// In words, beside the summary and the memory.
    carried: &'static str,
}

impl SessionOrigin {
    fn of(conversation: &Conversation, slug: &str) -> Option<Self> {
        let earlier = conversation.continued.iter().find(|other| other.is_earlier)?;
        let has = |what| earlier.carries.contains(&what);
        let carried = match (has(Carried::Plan), has(Carried::Artifacts)) {
            (true, true) => ", the plan, references to the artifacts",
            (true, false) => ", the plan",
            (false, true) => ", references to the artifacts",
            (false, false) => "",
        };
        Some(Self { address: urls::session(slug, &earlier.id), title: earlier.title.clone(), carried })
    }
}

/// The viber and agent of a session, in its bar: a region of the live stream.
#[derive(Clone, Debug, Template)]
#[template(path = "work/sessions/_host.html")]
pub struct SessionHost {
    /// Its page and its name; `None` when it was removed.
    viber: Option<(String, String)>,
    contact: Badge,
    agent: String,
    /// What its current task is doing, where the dock is not beside it.
    task: Option<Badge>,
}

impl SessionHost {
    /// As it is now.
    pub fn of(conversation: &Conversation, slug: &str) -> Self {
        let viber = conversation.viber.as_ref().map(|viber| (urls::viber(slug, &viber.id), viber.name.clone()));
        let task = conversation.current.as_ref().map(Badge::task);
        Self { viber, contact: conversation.contact(), agent: conversation.agent_name(), task }
    }
}

/// Which part of the conversation, and what the composer starts with.
#[derive(Debug, Default, Deserialize)]
pub struct SessionQuery {
    /// `{message}`, or `{message}.{part}`.
    before: Option<String>,
    edit: Option<u64>,
    /// What nobody was told and its author took back.
    said: Option<MessageId>,
    /// Why what was said just now is the next task, a word.
    queued: Option<String>,
    pane: Option<String>,
    at: Option<String>,
}

impl SessionQuery {
    fn before(&self) -> Result<Option<PageEnd>> {
        let none = |()| Error::NotFound;
        self.before.as_deref().filter(|text| !text.is_empty()).map(|text| text.parse().map_err(none)).transpose()
    }

    fn pane(&self) -> PaneSelection {
        PaneSelection::of(self.pane.as_deref(), self.at.as_deref())
    }
}

/// `GET /t/{team}/sessions/{id}`
pub async fn show(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<SessionId>,
    Query(at): Query<SessionQuery>,
) -> Result<Html<String>, Rejection> {
    let read = SessionPageData::load(&board, &caller, &id, at.before()?, &at.pane()).await?;
    html(&page(&board, &caller, &id, &at, &read).await?)
}

async fn page<'a>(
    board: &Board,
    caller: &Caller,
    id: &SessionId,
    at: &SessionQuery,
    read: &'a SessionPageData,
) -> Result<Page<'a>> {
    let (conversation, first) = (&read.conversation, read.messages.first);
    let asked = at.pane();
    let shell = Shell::of(&read.frame, caller, board.clock.now())
        .at(PageLocation::Session(id.clone()))
        .with_pane(read.pane.choice().map(PaneChoice::word), asked.named.is_some());
    let before = at.before()?;
    let shell = if before.is_none() { shell.from(conversation.cursor()) } else { shell.still() };
    let mut composer = Composer::of(board, conversation, (&read.waiting, read.modes), caller);
    if let Some(seq) = at.edit {
        composer.content = text_of_message(board, caller, id, seq).await?;
        composer.draft = format!("{id}:{seq}");
    }
    if let Some(said) = &at.said
        && let Some(words) = taken_back(board, caller, id, said).await?
    {
        composer.content = words;
        composer.draft = format!("{id}:{said}");
    }
    composer.notice = at.queued.as_deref().and_then(|why| why.parse().ok()).map(say::queued_words);
    let pane = Pane::of(&asked, &read.pane, conversation, caller, shell.now);
    let comments = match caller.role >= Role::Operator {
        true => Some(CommentsBar::load(board, caller, id).await?),
        false => None,
    };
    Ok(Page {
        comments,
        slug: caller.team.slug.clone(),
        place: SessionHost::of(conversation, &caller.team.slug),
        looking: LookingView::default(),
        writing: WritingView::empty(caller, id),
        origin: SessionOrigin::of(conversation, &caller.team.slug).filter(|_| first <= 1),
        older: (first > 1).then(|| format!("{}?before={first}", urls::session(&caller.team.slug, id))),
        before,
        dock: StatusPanel::of(conversation, caller, shell.now),
        asks: Asks::of(conversation, caller, shell.now),
        refusal: TalkRefusal::default(),
        may_send: caller.role >= Role::Operator,
        view: asked.view(),
        gauge: pane.gauge()?,
        strip: pane.strip()?,
        pane: pane.body()?,
        shell,
        conversation,
        messages: &read.messages.messages,
        composer,
    })
}

/// `POST /t/{team}/sessions`: a session before its first task, where a plan is written and files are attached. What was
/// to be said waits in its composer.
pub async fn prepare(
    State(board): State<Board>,
    caller: AsOperator,
    request: Request<Body>,
) -> Result<Response, Rejection> {
    let GoalRequest { form, files } = GoalRequest::read(request).await?;
    let id = match form.begin(&board, &caller).await {
        Ok(id) => id,
        Err(error) => return home::again(&board, &caller, form, error).await,
    };
    let refused = match files {
        Some(files) => files.attach(&board, &caller, &id).await.err(),
        None => None,
    };
    prepared(&board, &caller, &id, form.goal, refused).await
}

/// The page of a session that has no task yet, with what was to be said in its composer, and why it was not sent.
pub(in crate::web::pages) async fn prepared(
    board: &Board,
    caller: &Caller,
    id: &SessionId,
    goal: String,
    refused: Option<Error>,
) -> Result<Response, Rejection> {
    let at = SessionQuery { pane: Some("plan".to_owned()), ..SessionQuery::default() };
    let read = SessionPageData::load(board, caller, id, None, &at.pane()).await?;
    let mut page = page(board, caller, id, &at, &read).await?;
    page.composer.content = goal;
    page.composer.address = Some(urls::pane(&caller.team.slug, id, "plan"));
    let status = refused.as_ref().map_or(StatusCode::OK, status);
    page.composer.error = refused.map(|error| format!("Not sent: {error}."));
    html_with(status, &page)
}

/// The page with what waits as it is given: a decision was refused there.
pub(in crate::web::pages) async fn page_with_asks(
    board: &Board,
    caller: &Caller,
    id: &SessionId,
    read: &SessionPageData,
    (status, asks): (StatusCode, Asks),
) -> Result<Response, Rejection> {
    let page = page(board, caller, id, &SessionQuery::default(), read).await?;
    html_with(status, &Page { asks, ..page })
}

/// What a discarded message of the caller's said, to be sent again.
async fn taken_back(board: &Board, caller: &Caller, id: &SessionId, said: &MessageId) -> Result<Option<String>> {
    let found = db::tasks::messages::load(&mut board.db.reader_of(&caller.team.id).await?, said).await?;
    let own = |message: &TaskMessage| {
        let is_over = message.state == TaskMessageState::Discarded;
        message.session_id == *id && message.author == caller.by.actor.id() && is_over
    };
    Ok(found.filter(own).map(|message| message.content))
}

/// The text of a user's message, to be changed and sent again.
async fn text_of_message(board: &Board, caller: &Caller, id: &SessionId, seq: u64) -> Result<String> {
    let before = Some(seq.saturating_add(1));
    let found = db::messages::page(&mut board.db.reader_of(&caller.team.id).await?, id, before, 1).await?;
    let message = found.into_iter().find(|message| message.seq == seq).ok_or(Error::NotFound)?;
    let text = message.parts.iter().filter_map(|part| match part {
        Part::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    Ok(text.collect::<Vec<_>>().join("\n\n"))
}

async fn dock(board: &Board, caller: &Caller, id: &SessionId, wants: Wants) -> Result<Response, Rejection> {
    if wants == Wants::Page {
        return Ok(Redirect::to(&urls::session(&caller.team.slug, id)).into_response());
    }
    let conversation = Conversation::load(board, &caller.team.id, id, None).await?;
    Ok(html(&StatusPanel::of(&conversation, caller, board.clock.now()))?.into_response())
}

/// A new title.
#[derive(Debug, Deserialize)]
pub struct RenameForm {
    title: String,
}

/// `POST /t/{team}/sessions/{id}/rename`
pub async fn rename(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    Form(form): Form<RenameForm>,
) -> Result<Redirect, Rejection> {
    actions::sessions::rename(&board, &caller.team.id, &caller.by, &id, &form.title).await?;
    Ok(Redirect::to(&urls::session(&caller.team.slug, &id)))
}

macro_rules! verbs {
    ($($(#[$doc:meta])* $name:ident => $to:expr;)*) => {$(
        $(#[$doc])*
        pub async fn $name(
            State(board): State<Board>,
            caller: AsOperator,
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
    archive => |slug, _| urls::sessions(slug);
    /// `POST /t/{team}/sessions/{id}/unarchive`
    unarchive => urls::session;
    /// `POST /t/{team}/sessions/{id}/pin`
    pin => urls::session;
    /// `POST /t/{team}/sessions/{id}/unpin`
    unpin => urls::session;
    /// `POST /t/{team}/sessions/{id}/delete`
    delete => |slug, _| urls::sessions(slug);
}

/// Asks for confirmation before a session is deleted.
#[derive(Template)]
#[template(path = "work/sessions/delete.html")]
struct Confirm {
    shell: Shell,
    slug: String,
    conversation: Conversation,
}

/// `GET /t/{team}/sessions/{id}/delete`
pub async fn confirm_delete(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
) -> Result<Html<String>, Rejection> {
    let conversation = Conversation::load(&board, &caller.team.id, &id, None).await?;
    let shell = Shell::load(&board, &caller).await?;
    html(&Confirm { shell, slug: caller.team.slug.clone(), conversation })
}

/// `POST /t/{team}/sessions/{id}/seen`: the reader has it before their eyes.
pub async fn seen(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<SessionId>,
) -> Result<StatusCode, Rejection> {
    if let Some(operator) = &caller.operator {
        actions::sessions::mark_read(&board, &caller.team.id, &caller.by, &operator.id, &id).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}
