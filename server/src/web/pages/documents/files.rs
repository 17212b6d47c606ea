//! The files of a viber's workspace: folders, the current file, an editor, and the history of edits.
//!
//! A file is changed to the version that the page showed. What somebody typed is never thrown away: a refusal shows the
//! editor again, a conflict has a page of its own.

pub mod edits;
pub mod parts;

use askama::Template;
use axum::{
    Form,
    extract::{Query, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Redirect, Response},
};
use protocol::{EntryKind, FOLDER_VERSION, FileMatch, ViberId};
use serde::Deserialize;

use crate::{
    actions::files::{self, FileChange, FileOp},
    db,
    domain::{EditState, Role, Space, Viber},
    error::{Error, Result},
    state::Board,
    web::{
        AsOperator, AsViewer, Rejection,
        api::workspace::answer,
        extract::{Caller, Id, Ids},
        html, html_with, urls,
        view::{PageLocation, Shell, filters},
    },
};
use edits::EditRow;
use parts::{Editor, FileView, Tree, TreeFolder};

/// Changes that wait, as the page lists them.
const MAX_WAITING_EDITS: u64 = 20;
/// Changes of one file that its history shows.
const MAX_HISTORY_EDITS: u64 = 100;

/// The page.
#[derive(Template)]
#[template(path = "documents/files/show.html")]
struct Page {
    shell: Shell,
    slug: String,
    viber: Viber,
    /// The file; empty on the page of a folder.
    path: String,
    tree: Tree,
    pane: Pane,
    waiting: Vec<EditRow>,
    /// The folders that agents work in, beside it.
    spaces: Vec<Space>,
    may_act: bool,
}

/// What stands beside the tree.
enum Pane {
    /// Nothing was chosen.
    Folder,
    Found(Search),
    View(FileView),
    Edit(Editor),
    History(Vec<EditRow>),
}

/// The search words and the results.
struct Search {
    words: String,
    hits: Vec<SearchHit>,
    cut: bool,
    /// Why there is nothing to show.
    trouble: Option<String>,
}

/// A file, a folder or a line.
struct SearchHit {
    hit: FileMatch,
    href: Option<String>,
}

/// How a file is looked at.
#[derive(Debug, Default, Deserialize)]
pub struct FilesQuery {
    #[serde(default)]
    edit: String,
    #[serde(default)]
    history: String,
    #[serde(default)]
    raw: String,
    /// Entries of the folder that stand before those that are shown.
    #[serde(default)]
    from: u64,
    /// A file to be made.
    #[serde(default)]
    new: String,
    /// A text to look for.
    #[serde(default)]
    q: String,
}

/// `GET /t/{team}/vibers/{id}/files`
pub async fn root(
    state: State<Board>,
    caller: AsViewer,
    Id(id): Id<ViberId>,
    how: Query<FilesQuery>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    show(state, caller, Ids((id, "/".to_owned())), how, headers).await
}

/// `GET /t/{team}/vibers/{id}/files/{path}`: a folder's path ends in `/`.
pub async fn show(
    State(board): State<Board>,
    caller: AsViewer,
    Ids((id, path)): Ids<(ViberId, String)>,
    Query(how): Query<FilesQuery>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    let slug = &caller.team.slug;
    if let Some(folder) = path.strip_suffix('/') {
        if !how.new.trim().is_empty() {
            let new = how.new.trim();
            let path = if folder.is_empty() { new.to_owned() } else { format!("{folder}/{new}") };
            protocol::path::file(&path).map_err(|bad| Error::unacceptable("forbidden_path", bad.to_string()))?;
            return Ok(Redirect::to(&urls::file_edit(slug, &id, &path)).into_response());
        }
        let tree =
            Tree::load(&board, &caller, &id, TreeFolder { folder, from: how.from, ..TreeFolder::default() }).await?;
        let mut page = Page::load(&board, &caller, &id, "", tree).await?;
        if !how.q.trim().is_empty() {
            page.pane = Pane::Found(Search::run(&board, &caller, &id, how.q.trim()).await?);
            return Ok(html(&page)?.into_response());
        }
        page.shell = page.shell.at(PageLocation::Files(id, "folder".to_owned(), folder.to_owned()));
        return Ok(html(&page)?.into_response());
    }
    if !how.raw.is_empty() {
        return Ok(answer(files::read(&board, &caller.team.id, &id, &path, None).await?, &headers));
    }
    let tree = Tree::beside(&board, &caller, &id, &path).await?;
    let mut page = Page::load(&board, &caller, &id, &path, tree).await?;
    if !how.history.is_empty() {
        page.pane = Pane::History(edits::of_file(&board, &caller, &id, &path, MAX_HISTORY_EDITS).await?);
    } else if !how.edit.is_empty() && page.may_act {
        let editor = Editor::load(&board, &caller, &id, &path).await?;
        page.shell = page.shell.at(PageLocation::Files(id, format!("edit.{}", editor.base), path));
        page.pane = Pane::Edit(editor);
    } else {
        page.pane = Pane::View(FileView::load(&board, &caller, &id, &path).await?);
        page.shell = page.shell.at(PageLocation::Files(id, "view".to_owned(), path));
    }
    Ok(html(&page)?.into_response())
}

impl Page {
    async fn load(board: &Board, caller: &Caller, id: &ViberId, path: &str, tree: Tree) -> Result<Self> {
        let (viber, open) = {
            let mut tx = board.db.reader_of(&caller.team.id).await?;
            let viber = db::vibers::load(&mut tx, id).await?.ok_or(Error::NotFound)?;
            (viber, db::edits::open(&mut tx, id, MAX_WAITING_EDITS).await?)
        };
        let slug = caller.team.slug.clone();
        Ok(Self {
            shell: Shell::load(board, caller).await?,
            spaces: Space::all(&viber.agents),
            waiting: open.into_iter().map(|edit| EditRow::of(&slug, edit)).collect(),
            slug,
            viber,
            path: path.to_owned(),
            tree,
            pane: Pane::Folder,
            may_act: caller.role >= Role::Operator,
        })
    }
}

impl Page {
    fn space(&self, space: &Space) -> String {
        urls::space(&self.slug, &self.viber.id, &space.id, "", &[])
    }

    /// What was looked for.
    fn words(&self) -> &str {
        if let Pane::Found(search) = &self.pane { &search.words } else { "" }
    }
}

impl Search {
    async fn run(board: &Board, caller: &Caller, id: &ViberId, words: &str) -> Result<Self> {
        let mut search = Self { words: words.to_owned(), hits: Vec::new(), cut: false, trouble: None };
        match files::search(board, &caller.team.id, id, words).await {
            Ok(found) => {
                let slug = &caller.team.slug;
                let spot = |hit: FileMatch| {
                    let href = match hit.kind {
                        EntryKind::Folder => Some(urls::folder(slug, id, &hit.path)),
                        EntryKind::File => Some(urls::file(slug, id, &hit.path)),
                        EntryKind::Other => None,
                    };
                    SearchHit { href, hit }
                };
                (search.hits, search.cut) = (found.hits.into_iter().map(spot).collect(), found.cut);
            }
            Err(Error::Conflict { message, .. } | Error::Unacceptable { message, .. }) => {
                search.trouble = Some(message);
            }
            Err(error) => return Err(error),
        }
        Ok(search)
    }
}

/// What a form about a file says.
#[derive(Debug, Default, Deserialize)]
pub struct FileForm {
    /// `save`, `delete` or `rename`.
    #[serde(default)]
    verb: String,
    /// The version that the page showed; empty: none.
    #[serde(default)]
    base: String,
    #[serde(default)]
    content: String,
    /// The text that the page showed, when it is short.
    #[serde(default)]
    seen: String,
    /// `crlf` when the file ends its lines with CR LF, as forms always do.
    #[serde(default)]
    eol: String,
    #[serde(default)]
    to: String,
}

/// `POST /t/{team}/vibers/{id}/files/{path}`
pub async fn change(
    State(board): State<Board>,
    caller: AsOperator,
    Ids((id, path)): Ids<(ViberId, String)>,
    Form(asked): Form<FileForm>,
) -> Result<Response, Rejection> {
    let slug = &caller.team.slug;
    let (path, folder) = match path.strip_suffix('/') {
        Some(folder) if asked.verb != "save" => (folder.to_owned(), true),
        _ => (path, false),
    };
    let base = if folder { FOLDER_VERSION } else { asked.base.as_str() };
    let base_hash = Some(base.to_owned()).filter(|base| !base.is_empty());
    let op = match asked.verb.as_str() {
        "save" => {
            let (content, seen) = (as_kept(&asked.content, &asked.eol), as_kept(&asked.seen, &asked.eol));
            FileOp::Put { content, seen: Some(seen) }
        }
        "delete" => FileOp::Delete,
        "rename" => FileOp::Rename { to: asked.to.trim().to_owned() },
        _ => return Err(Error::Malformed("unknown action".to_owned()).into()),
    };
    let saves = asked.verb == "save";
    let made =
        files::edit(&board, &caller.team.id, &caller.by, &id, FileChange { path: path.clone(), base_hash, op }).await;
    let (status, why) = match made {
        Ok(edit) => match edit.state {
            EditState::Conflict | EditState::Settled => {
                return Ok(Redirect::to(&urls::edit(slug, &id, &edit.id)).into_response());
            }
            EditState::Refused if saves => (StatusCode::UNPROCESSABLE_ENTITY, edit.reason.unwrap_or_default()),
            EditState::Refused => return Ok(Redirect::to(&urls::edit(slug, &id, &edit.id)).into_response()),
            EditState::Queued | EditState::Applied => {
                let above = path.rsplit_once('/').map_or("", |(above, _)| above);
                let to = match asked.verb.as_str() {
                    "save" => urls::file(slug, &id, &path),
                    "rename" if edit.state == EditState::Applied && folder => urls::folder(slug, &id, asked.to.trim()),
                    "rename" if edit.state == EditState::Applied => urls::file(slug, &id, asked.to.trim()),
                    _ => urls::folder(slug, &id, above),
                };
                return Ok(Redirect::to(&to).into_response());
            }
        },
        Err(error @ (Error::Unacceptable { .. } | Error::Conflict { .. } | Error::TooLarge(_))) if saves => {
            (StatusCode::UNPROCESSABLE_ENTITY, error.to_string())
        }
        Err(Error::Unavailable { what, .. }) if saves => {
            (StatusCode::SERVICE_UNAVAILABLE, crate::web::pages::busy(what))
        }
        Err(error) => return Err(error.into()),
    };
    let tree = Tree::beside(&board, &caller, &id, &path).await?;
    let mut page = Page::load(&board, &caller, &id, &path, tree).await?;
    let editor = Editor::again(&caller, &id, &path, &asked, why);
    page.shell = page.shell.at(PageLocation::Files(id, format!("edit.{}", editor.base), path));
    page.pane = Pane::Edit(editor);
    html_with(status, &page)
}

/// A text as it was before a form changed its line ends.
fn as_kept(text: &str, eol: &str) -> String {
    let plain = text.replace("\r\n", "\n");
    if eol == "crlf" { plain.replace('\n', "\r\n") } else { plain }
}

/// The regions of an open page, as they are now.
pub async fn regions(
    board: &Board,
    caller: &Caller,
    id: &ViberId,
    how: &str,
    path: &str,
) -> Result<Vec<(&'static str, String)>> {
    let render = |template: &dyn askama::DynTemplate| {
        template.dyn_render().map_err(|error| Error::Internal(format!("a template: {error}")))
    };
    if how == "folder" {
        let tree = Tree::load(board, caller, id, TreeFolder { folder: path, ..TreeFolder::default() }).await?;
        return Ok(vec![("file-tree", render(&tree)?)]);
    }
    let tree = render(&Tree::beside(board, caller, id, path).await?)?;
    let pane = match how.strip_prefix("edit.") {
        Some(base) => ("file-news", render(&parts::EditorNotice::load(board, caller, id, path, base).await?)?),
        None => ("file-view", render(&FileView::load(board, caller, id, path).await?)?),
    };
    Ok(vec![("file-tree", tree), pane])
}
