//! Edits: changes that people make to files on the Board, stored together with the command to the viber.

use std::time::Duration;

use protocol::{EditId, TeamId, ViberId, WriteOp, limits, path};
use serde_json::json;

use super::hash;
use crate::{
    actions::AfterCommit,
    db::{self, Change},
    domain::{By, Edit, EditState},
    error::{Error, Result},
    hub::Changed,
    state::Board,
};

/// How long a caller waits for the outcome of a change before it counts as queued.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(3);
/// Undecided changes that one viber may have.
const MAX_OPEN_EDITS: u64 = 1_000;

/// A requested change to a file.
#[derive(Clone, Debug)]
pub struct FileChange {
    pub path: String,
    /// The version that they saw; `None`: there was none.
    pub base_hash: Option<String>,
    pub op: FileOp,
}

/// What a change does.
#[derive(Clone, Debug)]
pub enum FileOp {
    /// Replaces the text. `seen` is the text that the author saw: if somebody else changed it too, a draft merges both.
    Put {
        content: String,
        seen: Option<String>,
    },
    /// Moves the file to the trash of the workspace.
    Delete,
    Rename {
        to: String,
    },
}

/// Makes a change and waits briefly for its outcome; returns the edit in the state it has then.
pub async fn edit(board: &Board, team: &TeamId, by: &By, viber: &ViberId, change: FileChange) -> Result<Edit> {
    let edit = new(board, by, viber, change)?;
    give(board, team, by, edit, None).await
}

/// Settles a conflict: makes `change` instead, or with `None` leaves the file as it is.
pub async fn settle(
    board: &Board,
    team: &TeamId,
    by: &By,
    conflict: &Edit,
    change: Option<FileChange>,
) -> Result<Edit> {
    if let Some(change) = change {
        let edit = new(board, by, &conflict.viber_id, change)?;
        return give(board, team, by, edit, Some(conflict.id.clone())).await;
    }
    let id = conflict.id.clone();
    let done = board.change(team, by, move |tx| {
        let id = id.clone();
        Box::pin(async move { db::edits::settle(tx, &id).await })
    });
    if !done.await? {
        return Err(over());
    }
    let mut after = AfterCommit::default();
    after.files(&conflict.viber_id, vec![conflict.path.clone()]);
    after.publish(board, team);
    Ok(Edit { state: EditState::Settled, ..conflict.clone() })
}

fn new(board: &Board, by: &By, viber: &ViberId, change: FileChange) -> Result<Edit> {
    let now = board.clock.now();
    let bad = |bad: path::BadPath| Error::unacceptable("forbidden_path", bad.to_string());
    path::file(&change.path).map_err(bad)?;
    let (op, content, base, to) = match change.op {
        FileOp::Put { content, seen } => {
            let seen = seen.filter(|text| Some(hash(text.as_bytes())) == change.base_hash);
            (WriteOp::Put, Some(content), seen, None)
        }
        FileOp::Delete => (WriteOp::Delete, None, None, None),
        FileOp::Rename { to } => (WriteOp::Rename, None, None, Some(path::file(&to).map_err(bad)?.to_owned())),
    };
    if let Some(text) = &content {
        if text.len() as u64 > limits::MAX_TEXT_FILE_BYTES {
            return Err(Error::TooLarge("a file of a workspace has at most 1 MiB"));
        }
        if text.contains('\0') {
            return Err(Error::unacceptable("nul", "text may not contain U+0000"));
        }
    }
    if change.base_hash.is_none() && op != WriteOp::Put {
        return Err(Error::unacceptable("no_base", "say which version of the file is meant"));
    }
    Ok(Edit {
        id: EditId::new(now.0),
        viber_id: viber.clone(),
        path: change.path,
        op,
        base_hash: change.base_hash,
        base,
        hash: content.as_ref().map(|text| hash(text.as_bytes())),
        content,
        to,
        state: EditState::Queued,
        reason: None,
        theirs_hash: None,
        made_by: by.actor.id().to_owned(),
        author: by.actor.name().to_owned(),
        created_at: now,
        ended_at: None,
    })
}

/// Stores the edit with its command, and waits for its outcome if the viber is connected.
async fn give(board: &Board, team: &TeamId, by: &By, edit: Edit, settles: Option<EditId>) -> Result<Edit> {
    let mut news = board.hub.subscribe(team);
    let made = edit.clone();
    board
        .db
        .change(team, by, edit.created_at, move |tx| {
            let (edit, settles) = (made.clone(), settles.clone());
            Box::pin(async move { store(tx, edit, settles.as_ref()).await })
        })
        .await?;
    let mut after = AfterCommit::default();
    after.command(&edit.viber_id);
    after.files(&edit.viber_id, vec![edit.path.clone()]);
    after.publish(board, team);
    if !board.hub.is_connected(&edit.viber_id) {
        return Ok(edit);
    }
    let outcome = async {
        loop {
            let found = db::edits::load(&mut board.db.reader_of(team).await?, &edit.id).await?;
            match found {
                Some(now) if now.state == EditState::Queued => {}
                Some(now) => return Ok::<_, Error>(now),
                None => return Err(Error::NotFound),
            }
            loop {
                match news.next().await {
                    Changed::File { viber, path }
                        if viber == edit.viber_id && (path.is_empty() || path == edit.path) =>
                    {
                        break;
                    }
                    Changed::Anything => break,
                    _ => {}
                }
            }
        }
    };
    tokio::time::timeout(OUTCOME_TIMEOUT, outcome).await.unwrap_or(Ok(edit.clone()))
}

async fn store(tx: &mut Change<'_>, mut edit: Edit, settles: Option<&EditId>) -> Result<()> {
    if db::vibers::load(tx, &edit.viber_id).await?.is_none() {
        return Err(Error::NotFound);
    }
    if db::edits::open(tx, &edit.viber_id, MAX_OPEN_EDITS).await?.len() as u64 >= MAX_OPEN_EDITS {
        return Err(Error::conflict("too_many_edits", "too many changes wait for this viber"));
    }
    if let Some(conflict) = settles
        && !db::edits::settle(tx, conflict).await?
    {
        return Err(over());
    }
    if edit.base.is_none() && edit.op == WriteOp::Put {
        let known = db::files::load(tx, &edit.viber_id, &edit.path).await?.and_then(|file| file.text);
        edit.base = known.filter(|text| Some(&text.hash) == edit.base_hash.as_ref()).map(|text| text.content);
    }
    db::edits::insert(tx, &edit).await?;
    let body = json!({ "editId": edit.id, "path": edit.path }).to_string();
    let command = db::commands::NewCommand { kind: "workspace:write", attempt: None, body };
    db::commands::enqueue(tx, &edit.viber_id, command).await?.map(drop).ok_or(Error::NotFound)
}

fn over() -> Error {
    Error::conflict("settled", "somebody has dealt with it already")
}
