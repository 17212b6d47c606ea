//! One edit made on the Board: its outcome, and how a conflict is settled.

use askama::Template;
use axum::{
    Form,
    extract::State,
    response::{Html, IntoResponse, Redirect, Response},
};
use protocol::{EditId, Instant, ViberId, WriteOp};
use serde::Deserialize;

use super::as_kept;
use crate::{
    actions::files::{self, FileChange, FileOp},
    db,
    domain::{Edit, EditState, Role, Viber, file},
    error::{Error, Result},
    state::Board,
    web::{
        AsOperator, AsViewer, Rejection,
        extract::{Caller, Ids},
        html, urls,
        view::{PageLocation, Shell, diff::Diff, filters},
    },
};

/// A change in a list.
#[derive(Clone, Debug)]
pub struct EditRow {
    pub edit: Edit,
    pub href: String,
    pub file: String,
}

impl EditRow {
    /// The line of `edit`.
    pub fn of(slug: &str, edit: Edit) -> Self {
        let href = urls::edit(slug, &edit.viber_id, &edit.id);
        Self { href, file: urls::file(slug, &edit.viber_id, &edit.path), edit }
    }

    /// What was done, in words.
    pub fn deed(&self) -> String {
        match (self.edit.op, &self.edit.to) {
            (WriteOp::Put, _) if self.edit.base_hash.is_none() => "Made".to_owned(),
            (WriteOp::Put, _) => "Changed".to_owned(),
            (WriteOp::Delete, _) => "Deleted".to_owned(),
            (WriteOp::Rename, to) => format!("Renamed to {}", to.as_deref().unwrap_or_default()),
        }
    }

    /// `data-state`, icon and word.
    pub fn badge(&self) -> (&'static str, &'static str, &'static str) {
        match self.edit.state {
            EditState::Queued => ("pending", "pending", "Waits"),
            EditState::Applied => ("done", "done", "Done"),
            EditState::Conflict => ("waiting", "conflict", "Conflict"),
            EditState::Refused => ("failed", "failed", "Refused"),
            EditState::Settled => ("stopped", "check", "Settled"),
        }
    }
}

/// The edits of a file that were made on the Board, newest first.
pub async fn of_file(board: &Board, caller: &Caller, id: &ViberId, path: &str, most: u64) -> Result<Vec<EditRow>> {
    let found = db::edits::of_file(&mut board.db.reader_of(&caller.team.id).await?, id, path, None, most).await?;
    Ok(found.into_iter().map(|edit| EditRow::of(&caller.team.slug, edit)).collect())
}

/// The page.
#[derive(Template)]
#[template(path = "documents/files/edit.html")]
struct Page {
    shell: Shell,
    slug: String,
    viber: Viber,
    line: EditRow,
    /// What the change did, or would have done.
    change: Option<Diff>,
    conflict: Option<Conflict>,
    may_act: bool,
}

/// Both sides of a conflict.
struct Conflict {
    /// The version that is there now; empty: none.
    theirs: String,
    /// What they changed since the version that the author saw.
    their_change: Option<Diff>,
    /// When the viber is away: the age of what is known.
    as_of: Option<Instant>,
    gone: bool,
    known: bool,
    draft: String,
    clash: bool,
    eol: &'static str,
}

impl Page {
    fn back(&self) -> String {
        urls::file(&self.slug, &self.viber.id, &self.line.edit.path)
    }
}

async fn load(board: &Board, caller: &Caller, id: &ViberId, edit: &EditId) -> Result<(Viber, Edit)> {
    let mut tx = board.db.reader_of(&caller.team.id).await?;
    let viber = db::vibers::load(&mut tx, id).await?.ok_or(Error::NotFound)?;
    let edit = db::edits::load(&mut tx, edit).await?.filter(|edit| edit.viber_id == *id);
    Ok((viber, edit.ok_or(Error::NotFound)?))
}

/// `GET /t/{team}/vibers/{id}/edits/{edit}`
pub async fn show(
    State(board): State<Board>,
    caller: AsViewer,
    Ids((id, edit)): Ids<(ViberId, EditId)>,
) -> Result<Html<String>, Rejection> {
    let (viber, edit) = load(&board, &caller, &id, &edit).await?;
    let slug = caller.team.slug.clone();
    let conflict = match edit.state {
        EditState::Conflict => Some(Conflict::load(&board, &caller, &edit).await?),
        _ => None,
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let change = (edit.op == WriteOp::Put && (edit.base.is_some() || edit.base_hash.is_none()))
        .then(|| Diff::of(&text(&edit.base), &text(&edit.content)));
    html(&Page {
        shell: Shell::load(&board, &caller).await?.at(PageLocation::Elsewhere),
        may_act: caller.role >= Role::Operator,
        line: EditRow::of(&slug, edit),
        slug,
        viber,
        change,
        conflict,
    })
}

impl Conflict {
    async fn load(board: &Board, caller: &Caller, edit: &Edit) -> Result<Self> {
        let now = match files::read(board, &caller.team.id, &edit.viber_id, &edit.path, None).await {
            Ok(shown) => Some(shown),
            Err(Error::NotFound | Error::Conflict { .. } | Error::Unacceptable { .. }) => None,
            Err(error) => return Err(error),
        };
        let theirs = now.as_ref().and_then(|shown| shown.text()).map(str::to_owned);
        let mine = edit.content.clone().unwrap_or_default();
        let gone = now.is_none() && edit.theirs_hash.is_none();
        let known = theirs.is_some() || gone;
        let their_text = theirs.clone().unwrap_or_default();
        let base = edit.base.clone().unwrap_or_else(|| common(&their_text, &mine));
        let (draft, clash) = if known && !gone { file::merge(&base, &their_text, &mine) } else { (mine, false) };
        Ok(Self {
            theirs: now.as_ref().map(|shown| shown.hash.clone()).or(edit.theirs_hash.clone()).unwrap_or_default(),
            their_change: theirs.map(|theirs| Diff::of(edit.base.as_deref().unwrap_or_default(), &theirs)),
            as_of: now.and_then(|shown| shown.as_of),
            gone,
            known,
            eol: if draft.contains("\r\n") { "crlf" } else { "lf" },
            draft,
            clash,
        })
    }
}

/// The lines that two texts have in common: a base for a merge when the real one is not known.
fn common(a: &str, b: &str) -> String {
    let diff = similar::TextDiff::from_lines(a, b);
    diff.iter_all_changes().filter(|one| one.tag() == similar::ChangeTag::Equal).map(|one| one.value()).collect()
}

/// The decision on an edit.
#[derive(Debug, Default, Deserialize)]
pub struct EditDecisionForm {
    /// `draft`, `mine`, `theirs`, or `again` for one that is over.
    #[serde(default)]
    choice: String,
    #[serde(default)]
    theirs: String,
    #[serde(default)]
    content: String,
    #[serde(default)]
    eol: String,
}

/// `POST /t/{team}/vibers/{id}/edits/{edit}`
pub async fn decide(
    State(board): State<Board>,
    caller: AsOperator,
    Ids((id, edit)): Ids<(ViberId, EditId)>,
    Form(decision): Form<EditDecisionForm>,
) -> Result<Response, Rejection> {
    let (_, edit) = load(&board, &caller, &id, &edit).await?;
    let (slug, team) = (&caller.team.slug, &caller.team.id);
    let theirs = Some(decision.theirs).filter(|hash| !hash.is_empty());
    let change = |op: FileOp, base_hash: Option<String>| FileChange { path: edit.path.clone(), base_hash, op };
    let mine = || match (edit.op, edit.content.clone(), edit.to.clone()) {
        (WriteOp::Put, Some(content), _) => Ok(FileOp::Put { content, seen: None }),
        (WriteOp::Rename, _, Some(to)) => Ok(FileOp::Rename { to }),
        (WriteOp::Delete, ..) => Ok(FileOp::Delete),
        _ => Err(Error::Internal("an edit without what it does".to_owned())),
    };
    let made = match decision.choice.as_str() {
        "theirs" => files::settle(&board, team, &caller.by, &edit, None).await?,
        "mine" => files::settle(&board, team, &caller.by, &edit, Some(change(mine()?, theirs))).await?,
        "draft" => {
            let op = FileOp::Put { content: as_kept(&decision.content, &decision.eol), seen: None };
            files::settle(&board, team, &caller.by, &edit, Some(change(op, theirs))).await?
        }
        "again" => {
            let now = match files::read(&board, team, &edit.viber_id, &edit.path, None).await {
                Ok(shown) => Some(shown.hash),
                Err(Error::NotFound) => None,
                Err(error) => return Err(error.into()),
            };
            files::edit(&board, team, &caller.by, &edit.viber_id, change(mine()?, now)).await?
        }
        _ => return Err(Error::Malformed("unknown action".to_owned()).into()),
    };
    let to = match made.state {
        EditState::Conflict | EditState::Refused => urls::edit(slug, &made.viber_id, &made.id),
        _ => urls::file(slug, &made.viber_id, &made.path),
    };
    Ok(Redirect::to(&to).into_response())
}
