//! Comments on lines of files: written one by one, looked through together, sent to the session's agent as one message.

use askama::Template;
use axum::{
    extract::State,
    http::StatusCode,
    response::{Html, IntoResponse, Redirect, Response},
};
use axum_extra::extract::Form;
use protocol::{CommentId, SessionId};
use serde::Deserialize;

use crate::{
    actions::{
        self, comments,
        tasks::{self, CommentBatch},
    },
    db,
    domain::{Comment, Session, Space, idempotency::IdempotentCall},
    error::{Error, Result},
    state::Board,
    web::pages::{Wants, nonce, once},
    web::{
        AsOperator, Rejection,
        extract::{Caller, Id},
        html, html_with, urls,
        view::{PageLocation, Shell, filters},
    },
};

/// The page.
#[derive(Template)]
#[template(path = "work/comments/list.html")]
struct Page {
    shell: Shell,
    slug: String,
    session: Session,
    comments: Vec<Comment>,
    /// The idempotency key: comments sent twice are one message.
    key: String,
}

impl Page {
    fn verb(&self, verb: &str) -> String {
        urls::comments(&self.slug, &self.session.id, verb)
    }
}

/// The reader's comments that wait, with what sends them: it stands in the session and where comments are written.
#[derive(Clone, Debug, Template)]
#[template(path = "work/comments/_bar.html")]
pub struct CommentsBar {
    ids: Vec<CommentId>,
    key: String,
    send: String,
    review: String,
}

impl CommentsBar {
    /// As it is now; without a comment it is hidden.
    pub async fn load(board: &Board, caller: &Caller, session: &SessionId) -> Result<Self> {
        let waiting = comments::list(board, &caller.team.id, &caller.by, session).await?;
        let slug = &caller.team.slug;
        Ok(Self {
            ids: waiting.into_iter().map(|comment| comment.id).collect(),
            key: nonce(board),
            send: urls::comments(slug, session, "send"),
            review: urls::comments(slug, session, ""),
        })
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// The answer to a comment that was written in place: its row, and the bar as it is now.
#[derive(Template)]
#[template(path = "work/comments/_added.html")]
struct AddedComment {
    comment: Comment,
    remove: String,
    bar: CommentsBar,
}

async fn load(board: &Board, caller: &Caller, id: &SessionId) -> Result<Session> {
    let found = db::sessions::load(&mut board.db.reader_of(&caller.team.id).await?, id).await?;
    found.ok_or(Error::NotFound)
}

/// `GET /t/{team}/sessions/{id}/comments`
pub async fn list(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
) -> Result<Html<String>, Rejection> {
    let session = load(&board, &caller, &id).await?;
    let comments = comments::list(&board, &caller.team.id, &caller.by, &session.id).await?;
    let shell = Shell::load(&board, &caller).await?.at(PageLocation::Elsewhere);
    html(&Page { shell, slug: caller.team.slug.clone(), session, comments, key: nonce(&board) })
}

/// A comment as its form sends it.
#[derive(Debug, Default, Deserialize)]
pub struct CommentForm {
    #[serde(default)]
    space: String,
    #[serde(default)]
    path: String,
    /// The name that the file had before.
    #[serde(default)]
    from: String,
    /// `diff` or `file`: where it was written.
    #[serde(default)]
    place: String,
    #[serde(default)]
    side: String,
    #[serde(default)]
    line: u64,
    #[serde(default)]
    quote: String,
    #[serde(default)]
    remark: String,
    /// The idempotency key of the form.
    #[serde(default)]
    key: String,
}

/// `POST /t/{team}/sessions/{id}/comments`
pub async fn add(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    wants: Wants,
    Form(form): Form<CommentForm>,
) -> Result<Response, Rejection> {
    let session = load(&board, &caller, &id).await?;
    let (viber, spaces) = actions::spaces::all(&board, &caller.team.id, &session.viber_id).await?;
    let space = spaces.into_iter().find(|space| space.id == form.space);
    let unknown = || Error::unacceptable("space_not_found", "no agent of this session's viber declares this space");
    let space: Space = space.ok_or_else(unknown)?;
    let side = form.side.parse().map_err(|_| Error::Malformed("`side` has to be old or new".to_owned()))?;
    let says = [("path", form.path.as_str()), ("from", &form.from), ("session", session.id.as_str())];
    let says = says.into_iter().filter(|(_, value)| !value.is_empty());
    let back = match form.place.as_str() {
        "file" => ("files", says.chain([("source", "1")]).collect::<Vec<_>>()),
        _ => ("diff", says.collect()),
    };
    let back = urls::space(&caller.team.slug, &viber.id, &space.id, back.0, &back.1);
    let back = format!("{back}#{side}{}", form.line);
    let remark = form.remark.replace("\r\n", "\n");
    let place = format!("{side}{}", form.line);
    let mut once = once(&form.key, &[session.id.as_str(), &space.id, &form.path, &place, &form.quote, &remark]);
    if wants == Wants::Page {
        // Whoever goes back to the form of a page writes another comment with the same key.
        once = once.map(|once| IdempotentCall { key: format!("{} {}", once.key, once.asks), ..once });
    }
    let new = comments::NewComment { path: form.path, side, line: form.line, quote: form.quote, remark, once };
    let comment = match comments::add(&board, &caller.team.id, &caller.by, &session.id, (&space, new)).await {
        Err(Error::Conflict { code: "comment_gone", .. }) if wants == Wants::Page => {
            return Ok(Redirect::to(&back).into_response());
        }
        added => added?,
    };
    if wants == Wants::Page {
        return Ok(Redirect::to(&back).into_response());
    }
    let bar = CommentsBar::load(&board, &caller, &session.id).await?;
    let remove = urls::comments(&caller.team.slug, &session.id, "withdraw");
    Ok(html(&AddedComment { comment, remove, bar })?.into_response())
}

/// Which comments.
#[derive(Debug, Default, Deserialize)]
pub struct CommentSelectionForm {
    #[serde(default)]
    comment: Vec<String>,
    #[serde(default)]
    key: String,
}

impl CommentSelectionForm {
    fn ids(&self) -> Result<Vec<CommentId>> {
        self.comment.iter().map(|id| id.parse().map_err(|_| Error::NotFound)).collect()
    }
}

/// `POST /t/{team}/sessions/{id}/comments/withdraw`
pub async fn withdraw(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    wants: Wants,
    Form(which): Form<CommentSelectionForm>,
) -> Result<Response, Rejection> {
    let session = load(&board, &caller, &id).await?;
    for comment in which.ids()? {
        comments::remove(&board, &caller.team.id, &caller.by, &session.id, &comment).await?;
    }
    if wants == Wants::Fragment {
        return Ok(html(&CommentsBar::load(&board, &caller, &session.id).await?)?.into_response());
    }
    Ok(Redirect::to(&urls::comments(&caller.team.slug, &session.id, "")).into_response())
}

/// `POST /t/{team}/sessions/{id}/comments/send`: those that the page showed, as the session's next message.
pub async fn send(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    wants: Wants,
    Form(which): Form<CommentSelectionForm>,
) -> Result<Response, Rejection> {
    let session = load(&board, &caller, &id).await?;
    let (slug, ids) = (&caller.team.slug, which.ids()?);
    let batch = CommentBatch { session: &session.id, ids: &ids, key: &which.key };
    match tasks::submit_comments(&board, &caller.team.id, &caller.by, batch).await {
        Ok(_) if wants == Wants::Fragment => {
            Ok(html(&CommentsBar::load(&board, &caller, &session.id).await?)?.into_response())
        }
        Err(Error::Conflict { code: "comments_changed", .. }) if wants == Wants::Fragment => {
            html_with(StatusCode::CONFLICT, &CommentsBar::load(&board, &caller, &session.id).await?)
        }
        Ok(task) => Ok(Redirect::to(&urls::session(slug, &task.session_id)).into_response()),
        // Sent or removed from another window: what is left is shown.
        Err(Error::Conflict { code: "comments_changed", .. }) => {
            Ok(Redirect::to(&urls::comments(slug, &session.id, "")).into_response())
        }
        Err(error) => Err(error.into()),
    }
}
