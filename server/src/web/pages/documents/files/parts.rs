//! The parts of a page of files: the tree, a file as it is, its editor, and what happens to it meanwhile.

use std::{collections::HashMap, sync::Arc};

use askama::Template;
use protocol::{EntryKind, Instant, Listing, SessionId, ViberId};

use super::{FileForm, as_kept};
use crate::{
    actions::files::{self, FileContents},
    db,
    domain::{
        Edit, File, Role,
        file::{SESSIONS_FOLDER, session_of},
    },
    error::{Error, Result},
    state::Board,
    web::{extract::Caller, markdown, urls, view::filters},
};

/// Largest text that a form edits, bytes: sent back it may be three times as large.
const MAX_EDITABLE_BYTES: usize = 256 * 1024;
/// Largest text that its editor also sends as it was seen, bytes.
const MAX_SEEN_BYTES: usize = 64 * 1024;

/// What the root of a workspace is called.
const WORKSPACE: &str = "the workspace";

/// What lies in a folder.
#[derive(Clone, Debug, Template)]
#[template(path = "documents/files/_tree.html")]
pub struct Tree {
    now: Instant,
    pub folder: String,
    /// The folder above, unless this is the root.
    up: Option<String>,
    nodes: Vec<TreeNode>,
    more: Option<String>,
    omitted: u64,
    as_of: Option<Instant>,
    /// Why there is nothing to show.
    trouble: Option<String>,
    /// What the root is called.
    root: String,
    /// The title of the session whose folder this is, or lies in.
    title: Option<String>,
}

/// Where something in a tree leads to.
#[derive(Clone, Copy, Debug)]
pub enum TreeLink<'a> {
    Folder(&'a str),
    File(&'a str),
    /// The entries of this folder from this one on.
    More(u64),
}

/// Which folder a tree shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct TreeFolder<'a> {
    pub folder: &'a str,
    /// The name that is shown beside it.
    pub current: &'a str,
    /// The number of the entry that it begins with.
    pub from: u64,
}

/// An entry of a folder.
#[derive(Clone, Debug)]
struct TreeNode {
    name: String,
    icon: &'static str,
    /// `None` for what is never opened.
    href: Option<String>,
    size: Option<u64>,
    current: bool,
    /// Of a session's folder: the session's title.
    title: Option<String>,
}

/// What a folder of the workspace is for that every workspace has sooner or later.
fn purpose(path: &str) -> Option<&'static str> {
    match path {
        "artifacts" => Some("What agents keep for every session in artifacts/ of the workspace appears here."),
        "memory" => Some("The log of each day appears here with the first task that ends, and what agents note."),
        SESSIONS_FOLDER => Some("A session gets a folder here with its first plan or file."),
        _ if path.strip_prefix(SESSIONS_FOLDER).is_some_and(|rest| rest.matches('/').count() == 1)
            && session_of(path).is_some() =>
        {
            Some("The session's plan and the files that belong to it appear here.")
        }
        _ => None,
    }
}

impl Tree {
    /// The folder in which the file at `path` lies.
    pub async fn beside(board: &Board, caller: &Caller, id: &ViberId, path: &str) -> Result<Self> {
        let (folder, current) = path.rsplit_once('/').unwrap_or(("", path));
        Self::load(board, caller, id, TreeFolder { folder, current, from: 0 }).await
    }

    /// A folder of the workspace.
    pub async fn load(board: &Board, caller: &Caller, id: &ViberId, branch: TreeFolder<'_>) -> Result<Self> {
        let TreeFolder { folder: path, current, from } = branch;
        let slug = &caller.team.slug;
        let way = |way: TreeLink<'_>| match way {
            TreeLink::Folder(path) => urls::folder(slug, id, path),
            TreeLink::File(path) => urls::file(slug, id, path),
            TreeLink::More(from) => format!("{}/?from={from}", urls::folder(slug, id, path).trim_end_matches('/')),
        };
        let mut tree = Self::of(board.clock.now(), WORKSPACE, path, &way);
        match files::list(board, &caller.team.id, id, path, from).await {
            Ok(folder) => tree.fill(folder.listing, folder.as_of, current, &way),
            // The folder of a new file need not exist, nor one that comes with its first file.
            Err(Error::NotFound) if !current.is_empty() || purpose(path).is_some() => {}
            Err(Error::Conflict { code: files::VIBER_AWAY, .. }) => {
                tree.trouble = Some("The viber is offline, and this folder has not been opened before.".to_owned());
            }
            Err(error) => return Err(error),
        }
        tree.entitle(board, caller, id).await?;
        Ok(tree)
    }

    /// Adds the titles of sessions to their folders.
    async fn entitle(&mut self, board: &Board, caller: &Caller, id: &ViberId) -> Result<()> {
        let own = session_of(&self.folder);
        let lists_sessions = self.folder == SESSIONS_FOLDER;
        let named = |node: &TreeNode| node.name.parse::<SessionId>().ok().filter(|_| lists_sessions);
        let ids: Vec<_> = self.nodes.iter().filter_map(named).chain(own.clone()).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let titles: HashMap<_, _> =
            db::sessions::titles(&mut board.db.reader_of(&caller.team.id).await?, id, &ids).await?;
        for node in &mut self.nodes {
            node.title = named(node).and_then(|id| titles.get(&id).cloned());
        }
        self.title = own.and_then(|id| titles.get(&id).cloned());
        Ok(())
    }

    /// Said of an empty folder.
    fn purpose(&self) -> Option<&'static str> {
        purpose(&self.folder).filter(|_| self.root == WORKSPACE)
    }

    /// The folder `path` of what is called `root`, without what is in it.
    pub fn of(now: Instant, root: &str, path: &str, way: &dyn Fn(TreeLink<'_>) -> String) -> Self {
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        Self {
            now,
            folder: path.to_owned(),
            up: (!path.is_empty()).then(|| way(TreeLink::Folder(above))),
            nodes: Vec::new(),
            more: None,
            omitted: 0,
            as_of: None,
            trouble: None,
            root: root.to_owned(),
            title: None,
        }
    }

    /// What is in it; `current` is the name that is shown beside it.
    pub fn fill(
        &mut self,
        listing: Listing,
        as_of: Option<Instant>,
        current: &str,
        way: &dyn Fn(TreeLink<'_>) -> String,
    ) {
        let end = listing.from + listing.entries.len() as u64;
        self.omitted = listing.omitted;
        self.more = (self.omitted > 0 && as_of.is_none()).then(|| way(TreeLink::More(end)));
        self.as_of = as_of;
        let path = &self.folder;
        let node = |entry: protocol::Entry| {
            let place = if path.is_empty() { entry.name.clone() } else { format!("{path}/{}", entry.name) };
            // A name that could be mistaken for another one is shown without a link.
            let kind = if protocol::path::file(&place).is_ok() { entry.kind } else { EntryKind::Other };
            let (icon, href) = match kind {
                EntryKind::Folder => ("folder", Some(way(TreeLink::Folder(&place)))),
                EntryKind::File => ("file", Some(way(TreeLink::File(&place)))),
                EntryKind::Other => ("external", None),
            };
            let size = (entry.kind == EntryKind::File).then_some(entry.size);
            TreeNode { current: entry.name == current, href, icon, name: entry.name, size, title: None }
        };
        self.nodes = listing.entries.into_iter().map(node).collect();
    }
}

/// A file as it is.
#[derive(Clone, Debug, Template)]
#[template(path = "documents/files/_view.html")]
pub struct FileView {
    now: Instant,
    slug: String,
    id: ViberId,
    path: String,
    shown: Option<FileContents>,
    /// The text as HTML: Markdown, or code with colours.
    html: Option<Arc<str>>,
    /// Said instead of it.
    trouble: Option<String>,
    may_act: bool,
    may_edit: bool,
}

impl FileView {
    /// As it is now, or as it was seen last.
    pub async fn load(board: &Board, caller: &Caller, id: &ViberId, path: &str) -> Result<Self> {
        let mut view = Self {
            now: board.clock.now(),
            slug: caller.team.slug.clone(),
            id: id.clone(),
            path: path.to_owned(),
            shown: None,
            html: None,
            trouble: None,
            may_act: caller.role >= Role::Operator,
            may_edit: false,
        };
        match files::read(board, &caller.team.id, id, path, None).await {
            Ok(shown) => {
                view.html = text_of(&shown).map(|text| render(path, text));
                view.may_edit = view.may_act && shown.text().is_some_and(|text| text.len() <= MAX_EDITABLE_BYTES);
                view.shown = Some(shown);
            }
            Err(Error::NotFound) => view.trouble = Some("There is no such file (any more).".to_owned()),
            Err(Error::Unacceptable { message, .. }) => view.trouble = Some(message),
            Err(Error::Conflict { code: files::VIBER_AWAY, .. }) => {
                view.trouble = Some("The viber is offline, and this file has not been opened before.".to_owned());
            }
            Err(error) => return Err(error),
        }
        Ok(view)
    }

    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    fn link(&self, what: &str) -> String {
        match what {
            "edit" => urls::file_edit(&self.slug, &self.id, &self.path),
            "history" => urls::file_history(&self.slug, &self.id, &self.path),
            "raw" => format!("{}?raw=1", urls::file(&self.slug, &self.id, &self.path)),
            _ => urls::file(&self.slug, &self.id, &self.path),
        }
    }

    /// Where the playbook is run that the file is.
    fn playbook(&self) -> Option<String> {
        let name = self.path.strip_prefix("playbooks/")?.strip_suffix(".md")?;
        let is_playbook = protocol::playbook::file_path(name).is_some() && self.may_act;
        is_playbook.then(|| urls::viber_playbook(&self.slug, &self.id, name))
    }
}

/// The text of a file, or of the part that was read; a character that is cut at its end is left out.
pub fn text_of(shown: &FileContents) -> Option<&str> {
    let text = match std::str::from_utf8(&shown.bytes) {
        Ok(text) => text,
        Err(error) if shown.is_part() && error.error_len().is_none() => {
            std::str::from_utf8(&shown.bytes[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    (!text.contains('\0')).then_some(text)
}

/// Markdown as such, everything else as code.
pub fn render(path: &str, text: &str) -> Arc<str> {
    let kind = path.rsplit_once('.').map_or("", |(_, kind)| kind).to_ascii_lowercase();
    if matches!(kind.as_str(), "md" | "markdown") {
        return markdown::render(text, markdown::TextAuthor::Agent);
    }
    let longest = text.lines().map(|line| line.trim_start().chars().take_while(|c| *c == '`').count()).max();
    let fence = "`".repeat(longest.unwrap_or(0).max(2) + 1);
    let kind: String = kind.chars().filter(char::is_ascii_alphanumeric).take(12).collect();
    markdown::render(&format!("{fence}{kind}\n{text}\n{fence}\n"), markdown::TextAuthor::Agent)
}

/// A file in a form.
#[derive(Clone, Debug, Template)]
#[template(path = "documents/files/_editor.html")]
pub struct Editor {
    action: String,
    back: String,
    path: String,
    /// The version that is edited; empty for a new file.
    pub base: String,
    content: String,
    /// The text of that version, when it is short.
    seen: String,
    eol: &'static str,
    error: Option<String>,
    news: EditorNotice,
}

impl Editor {
    /// The file as it is now, or a new one.
    pub async fn load(board: &Board, caller: &Caller, id: &ViberId, path: &str) -> Result<Self> {
        let (base, content, shown) = match files::read(board, &caller.team.id, id, path, None).await {
            Ok(shown) => {
                let text = shown.text().filter(|text| text.len() <= MAX_EDITABLE_BYTES);
                let why = || Error::unacceptable("not_editable", "this file is too large for a form, or is not text");
                (shown.hash.clone(), text.ok_or_else(why)?.to_owned(), Some(shown))
            }
            Err(Error::NotFound | Error::Conflict { code: files::VIBER_AWAY, .. }) => {
                (String::new(), String::new(), None)
            }
            Err(error) => return Err(error),
        };
        protocol::path::file(path).map_err(|bad| Error::unacceptable("forbidden_path", bad.to_string()))?;
        Ok(Self {
            action: urls::file(&caller.team.slug, id, path),
            back: urls::file(&caller.team.slug, id, path),
            path: path.to_owned(),
            eol: if content.contains("\r\n") { "crlf" } else { "lf" },
            seen: if content.len() <= MAX_SEEN_BYTES { content.clone() } else { String::new() },
            content,
            error: None,
            news: EditorNotice::calm(shown.and_then(|shown| shown.as_of)),
            base,
        })
    }

    /// The same form once more, with what was typed.
    pub fn again(caller: &Caller, id: &ViberId, path: &str, asked: &FileForm, why: String) -> Self {
        Self {
            action: urls::file(&caller.team.slug, id, path),
            back: urls::file(&caller.team.slug, id, path),
            path: path.to_owned(),
            base: asked.base.clone(),
            content: as_kept(&asked.content, &asked.eol),
            seen: asked.seen.replace("\r\n", "\n"),
            eol: if asked.eol == "crlf" { "crlf" } else { "lf" },
            error: Some(why),
            news: EditorNotice::calm(None),
        }
    }
}

/// What happens to a file while somebody edits it.
#[derive(Clone, Debug, Template)]
#[template(path = "documents/files/_notice.html")]
pub struct EditorNotice {
    changed: Option<File>,
    pending: Option<Edit>,
    as_of: Option<Instant>,
}

impl EditorNotice {
    fn calm(as_of: Option<Instant>) -> Self {
        Self { changed: None, pending: None, as_of }
    }

    /// Since the version `base`. Only what the Board has heard is read, so that the remembered text stays the one the
    /// author saw.
    pub async fn load(board: &Board, caller: &Caller, id: &ViberId, path: &str, base: &str) -> Result<Self> {
        let (file, pending) = {
            let mut tx = board.db.reader_of(&caller.team.id).await?;
            let pending = db::edits::pending(&mut tx, id, path).await?;
            (db::files::load(&mut tx, id, path).await?, pending)
        };
        let changed = file.filter(|file| file.hash.as_deref().unwrap_or_default() != base);
        let pending = pending.filter(|edit| edit.hash.as_deref() != Some(base));
        let as_of = if board.hub.is_connected(id) { None } else { Some(board.clock.now()) };
        Ok(Self { changed, pending, as_of })
    }
}
