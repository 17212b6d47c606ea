//! Folders and files of a space: a tree, and beside it a file as it is, with its lines or as Markdown.

use std::sync::Arc;

use askama::Template;

use super::{
    super::files::parts::{Tree, TreeLink, render as render_text, text_of},
    SpaceContext, SpaceQuery,
    lines::Lines,
    render,
};
use crate::{
    actions::{files::FileContents, spaces},
    error::{Error, Result},
    state::Board,
    web::{extract::Caller, markdown, view::filters},
};

/// Lines that a page shows.
const MAX_LINES: usize = 3_000;

/// The tree and the file.
#[derive(Template)]
#[template(path = "documents/spaces/_files.html")]
struct Files<'a> {
    here: &'a SpaceContext,
    tree: Tree,
    /// Empty: a folder is shown.
    path: &'a str,
    shown: Option<FileContents>,
    /// Markdown as such.
    html: Option<Arc<str>>,
    lines: Option<Lines>,
    /// Lines that are left out.
    omitted: usize,
    /// The other way to look at Markdown.
    other: Option<(&'static str, String)>,
    /// Said instead of the file.
    trouble: Option<String>,
}

/// What the address names: a folder, when it is empty or ends in `/`.
pub async fn body(
    board: &Board,
    caller: &Caller,
    (here, at): (&SpaceContext, &spaces::ViberSpace),
    says: &SpaceQuery,
) -> Result<String> {
    let (folder, name) = match says.path.strip_suffix('/') {
        Some(folder) => (folder, ""),
        None => says.path.rsplit_once('/').unwrap_or(("", &says.path)),
    };
    let way = |way: TreeLink<'_>| match way {
        TreeLink::Folder("") => here.files(""),
        TreeLink::Folder(path) => here.files(&format!("{path}/")),
        TreeLink::File(path) => here.files(path),
        TreeLink::More(from) => {
            let folder = if folder.is_empty() { String::new() } else { format!("{folder}/") };
            here.link("files", &[("path", &folder), ("from", &from.to_string())])
        }
    };
    let mut tree = Tree::of(here.now, here.space.name(), folder, &way);
    let from = if name.is_empty() { says.from.parse().unwrap_or(0) } else { 0 };
    tree.fill(at.list(board, folder, from).await?, None, name, &way);
    let path = if name.is_empty() { "" } else { says.path.as_str() };
    let mut files =
        Files { here, tree, path, shown: None, html: None, lines: None, omitted: 0, other: None, trouble: None };
    if !path.is_empty() {
        match at.read(board, path, None).await {
            Ok(shown) => files.show(board, caller, says, shown).await?,
            Err(Error::NotFound) => files.trouble = Some("There is no such file (any more).".to_owned()),
            Err(Error::Unacceptable { message, .. }) => files.trouble = Some(message),
            Err(error) => return Err(error),
        }
    }
    render(&files)
}

impl Files<'_> {
    async fn show(&mut self, board: &Board, caller: &Caller, says: &SpaceQuery, shown: FileContents) -> Result<()> {
        let kind = self.path.rsplit_once('.').map_or("", |(_, kind)| kind).to_ascii_lowercase();
        let is_markdown = matches!(kind.as_str(), "md" | "markdown");
        if let Some(text) = text_of(&shown) {
            let source = [("path", self.path), ("source", "1")];
            if is_markdown && says.source.is_empty() {
                self.html = Some(render_text(self.path, text));
                self.other = Some(("Lines", self.here.link("files", &source)));
            } else {
                let coloured = markdown::lines(text, &kind);
                self.omitted = text.lines().count().saturating_sub(MAX_LINES.min(coloured.len()));
                let lines = text.lines().map(str::to_owned).zip(coloured).take(MAX_LINES).collect();
                self.lines = Some(Lines::of_file(board, caller, self.here, says, lines).await?);
                self.other = is_markdown.then(|| ("Read", self.here.files(self.path)));
            }
        }
        self.shown = Some(shown);
        Ok(())
    }

    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }

    fn download(&self) -> String {
        self.here.link("files", &[("path", self.path), ("raw", "1")])
    }
}
