//! Lines of a file or of a diff: numbered, each a place for a comment, with the comments that wait there.

use askama::Template;

use super::{SpaceContext, SpaceQuery};
use crate::{
    actions::comments,
    domain::{Comment, Side},
    error::Result,
    state::Board,
    web::{
        extract::Caller,
        pages::nonce,
        urls,
        view::{diff, filters},
    },
};

/// A table of lines.
#[derive(Debug, Template)]
#[template(path = "documents/spaces/_lines.html")]
pub struct Lines {
    rows: Vec<FileLine>,
    /// Where a comment is sent to, and where one is taken back.
    action: String,
    remove: String,
    space: String,
    path: String,
    from: String,
    /// `diff` or `file`.
    place: &'static str,
    /// The page without a form.
    back: String,
    may_comment: bool,
    /// The idempotency key of the form that is open, if one is.
    key: String,
    /// It stands among other differences: its lines have no names in the page.
    folded: bool,
}

/// A line.
#[derive(Debug)]
struct FileLine {
    row: diff::DiffRow,
    /// The same with colours; safe HTML.
    html: Option<String>,
    side: Side,
    /// Its number on that side; 0 for what is no line.
    number: usize,
    /// Where it can be commented on.
    link: Option<String>,
    /// Its comment form is open.
    asked: bool,
    comments: Vec<Comment>,
}

impl Lines {
    /// Of a diff.
    pub async fn load(
        board: &Board,
        caller: &Caller,
        here: &SpaceContext,
        says: &SpaceQuery,
        rows: Vec<diff::DiffRow>,
    ) -> Result<Self> {
        Self::of(board, caller, here, (says, "diff"), rows.into_iter().map(|row| (row, None)).collect()).await
    }

    /// Of a file as it is: each line with its colours.
    pub async fn of_file(
        board: &Board,
        caller: &Caller,
        here: &SpaceContext,
        says: &SpaceQuery,
        lines: Vec<(String, String)>,
    ) -> Result<Self> {
        let numbered = lines.into_iter().enumerate();
        let row = |(n, (text, html)): (usize, (String, String))| {
            (diff::DiffRow { op: "same", old: None, new: Some(n + 1), text }, Some(html))
        };
        Self::of(board, caller, here, (says, "file"), numbered.map(row).collect()).await
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    async fn of(
        board: &Board,
        caller: &Caller,
        here: &SpaceContext,
        (says, place): (&SpaceQuery, &'static str),
        rows: Vec<(diff::DiffRow, Option<String>)>,
    ) -> Result<Self> {
        let mut waiting = match here.session.as_ref().filter(|_| here.may_comment) {
            Some(session) => comments::list(board, &caller.team.id, &caller.by, session).await?,
            None => Vec::new(),
        };
        waiting.retain(|comment| comment.space == here.space.id && comment.path == says.path);
        let (wanted, page) = (says.wanted(), if place == "file" { "files" } else { "diff" });
        let source = if place == "file" { "1" } else { "" };
        let at = [("path", says.path.as_str()), ("from", says.from.as_str()), ("source", source)];
        let line = |(row, html): (diff::DiffRow, Option<String>)| {
            let (side, number) = match (row.old, row.new) {
                (_, Some(number)) => (Side::New, number),
                (Some(number), None) => (Side::Old, number),
                (None, None) => (Side::New, 0),
            };
            let here_is = |comment: &Comment| comment.side == side && comment.line == number as u64 && number > 0;
            let line = number.to_string();
            let says = [&at[..], &[("side", side.as_str()), ("line", line.as_str())]].concat();
            let link = (here.may_comment && number > 0).then(|| format!("{}#comment", here.link(page, &says)));
            FileLine {
                asked: link.is_some() && wanted == Some((side, number)),
                comments: waiting.iter().filter(|comment| here_is(comment)).cloned().collect(),
                link,
                side,
                number,
                row,
                html,
            }
        };
        let verb =
            |verb: &str| here.session.as_ref().map_or_else(String::new, |id| urls::comments(&here.slug, id, verb));
        Ok(Self {
            rows: rows.into_iter().map(line).collect(),
            action: verb(""),
            remove: verb("withdraw"),
            space: here.space.id.clone(),
            path: says.path.clone(),
            from: says.from.clone(),
            place,
            back: here.link(page, &at),
            may_comment: here.may_comment,
            key: nonce(board),
            folded: false,
        })
    }

    /// The same as it stands in a list of changes.
    pub fn folded(self, folded: bool) -> Self {
        Self { folded, ..self }
    }
}

impl FileLine {
    /// The name of the line in the page.
    fn anchor(&self) -> String {
        format!("{}{}", self.side, self.number)
    }

    /// The number on this side, when it is the one that leads to a comment.
    fn leads(&self, side: &str) -> Option<&str> {
        self.link.as_deref().filter(|_| self.side.as_str() == side)
    }
}
