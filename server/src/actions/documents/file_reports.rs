//! What a viber reports about its files: the outcome of edits, and which files changed.

use std::collections::BTreeMap;

use protocol::{FOLDER_VERSION, Instant, ViberId, WorkspaceWritten, WriteOp, WriteState};
use serde::Deserialize;
use serde_json::json;

use crate::{
    actions::{
        AfterCommit,
        files::{ViberAnswer, ask},
        memory, plan,
    },
    db::{self, Change, DbError},
    domain::{Connection, Edit, EditState, FileReport, FileText, memory::MEMORY_FILE},
    error::Result,
    state::Board,
};

/// Changed files recorded in one change.
const FILES_PER_CHANGE: usize = 60;
/// Files that somebody has looked at and that may have changed while their viber was away: asked about in one request.
const MAX_CHECKED_FILES: u64 = 500;
/// Edits ended in one change: each holds whole texts.
const EDITS_PER_CHANGE: usize = 15;

/// Records the reported outcome of edits. A repeated or unexpected report changes nothing.
pub async fn written(board: &Board, connection: &Connection, all: &[WorkspaceWritten]) -> Result<()> {
    let now = board.clock.now();
    for some in all.chunks(EDITS_PER_CHANGE) {
        // This comes first: whoever waits for the edit reads a file of that folder next.
        for folder in left(board, connection, some).await? {
            leave(board, connection, &folder, now).await?;
        }
        let (viber, some) = (connection.viber.clone(), some.to_vec());
        let ending = board.db.change(&connection.team, &connection.by(), now, move |tx| {
            let (viber, some) = (viber.clone(), some.clone());
            Box::pin(async move {
                let mut after = AfterCommit::default();
                for one in &some {
                    end(tx, &viber, one, &mut after).await?;
                }
                Ok::<_, DbError>(after)
            })
        });
        ending.await?.publish(board, &connection.team);
    }
    // The empty path notifies everybody who waits: an edit's path may differ from the one that the viber reports.
    publish_files(board, connection, vec![String::new()]);
    Ok(())
}

/// The folders that were moved or deleted by edits whose outcome was not known yet.
async fn left(board: &Board, connection: &Connection, some: &[WorkspaceWritten]) -> Result<Vec<String>> {
    let mut tx = board.db.reader_of(&connection.team).await?;
    let mut folders = Vec::new();
    for one in some.iter().filter(|one| one.state == WriteState::Applied) {
        let found = db::edits::load(&mut tx, &one.edit_id).await?;
        let is_left = |edit: &Edit| {
            edit.viber_id == connection.viber
                && edit.state == EditState::Queued
                && edit.base_hash.as_deref() == Some(FOLDER_VERSION)
        };
        folders.extend(found.filter(is_left).map(|edit| edit.path));
    }
    Ok(folders)
}

/// Forgets the files of a folder that is gone; the viber reports by itself what is elsewhere now.
async fn leave(board: &Board, connection: &Connection, folder: &str, now: Instant) -> Result<()> {
    let some = || {
        let (viber, folder) = (connection.viber.clone(), folder.to_owned());
        board.db.piece_of(&connection.team, &connection.by(), now, move |tx| {
            let (viber, folder) = (viber.clone(), folder.clone());
            Box::pin(async move { db::files::mark_folder_gone(tx, &viber, &folder, FILES_PER_CHANGE as u64).await })
        })
    };
    while some().await? == FILES_PER_CHANGE as u64 {}
    Ok(())
}

/// Records the outcome of one edit.
async fn end(
    tx: &mut Change<'_>,
    viber: &ViberId,
    one: &WorkspaceWritten,
    after: &mut AfterCommit,
) -> Result<(), DbError> {
    if !db::edits::end(tx, viber, one).await? {
        return Ok(());
    }
    let Some(edit) = db::edits::load(tx, &one.edit_id).await? else { return Ok(()) };
    let hear = |path: &str, hash: Option<String>, size| FileReport {
        path: path.to_owned(),
        hash,
        size,
        mtime: None,
        by: "board".to_owned(),
    };
    match one.state {
        WriteState::Refused => return Ok(()),
        // The remembered version is outdated, and nobody has read the new one yet.
        WriteState::Conflict => {
            let heard = FileReport { by: "file".to_owned(), ..hear(&edit.path, one.hash.clone(), 0) };
            return db::files::record_report(tx, viber, &heard).await;
        }
        WriteState::Applied => {}
    }
    if edit.base_hash.as_deref() == Some(FOLDER_VERSION) {
        return Ok(());
    }
    if let Some(session) = plan::record_applied_edit(tx, viber, &edit).await? {
        after.session(&session);
    }
    match (edit.op, edit.content, edit.hash, edit.to) {
        (WriteOp::Put, Some(content), Some(hash), _) => {
            let heard = hear(&edit.path, Some(hash.clone()), content.len() as u64);
            db::files::record_report(tx, viber, &heard).await?;
            let text = FileText { content, hash, at: tx.now };
            db::files::keep_text(tx, viber, &edit.path, &text).await
        }
        (WriteOp::Rename, _, _, Some(to)) => {
            let before = db::files::load(tx, viber, &edit.path).await?;
            let size = before.as_ref().map_or(0, |file| file.size);
            db::files::record_report(tx, viber, &hear(&edit.path, None, 0)).await?;
            db::files::record_report(tx, viber, &hear(&to, edit.base_hash, size)).await?;
            match before.and_then(|file| file.text) {
                Some(text) => db::files::keep_text(tx, viber, &to, &text).await,
                None => Ok(()),
            }
        }
        _ => db::files::record_report(tx, viber, &hear(&edit.path, None, 0)).await,
    }
}

/// Records that files of a viber changed, and follows the plans and the memory among them.
pub async fn heard(board: &Board, connection: &Connection, all: Vec<FileReport>) -> Result<()> {
    let now = board.clock.now();
    let paths: Vec<String> = all.iter().map(|heard| heard.path.clone()).collect();
    let mut rest = all;
    while !rest.is_empty() {
        let (viber, epoch) = (connection.viber.clone(), connection.epoch);
        let some = rest[..rest.len().min(FILES_PER_CHANGE)].to_vec();
        let hearing = board.db.change(&connection.team, &connection.by(), now, move |tx| {
            let (viber, some) = (viber.clone(), some.clone());
            Box::pin(async move {
                // An older connection may still send reports.
                if db::vibers::epoch(tx, &viber).await? != Some(epoch) {
                    return Ok(None);
                }
                let mut done = 0;
                for heard in &some {
                    db::files::record_report(tx, &viber, heard).await?;
                    done += 1;
                    if tx.is_full() {
                        break;
                    }
                }
                Ok::<_, DbError>(Some(done))
            })
        });
        let Some(done) = hearing.await? else { break };
        rest.drain(..done);
    }
    for path in paths.iter().filter(|path| plan::belongs(path)) {
        board.shutdown.spawn(plan::follow(board.clone(), connection.clone(), path.clone()));
    }
    if paths.iter().any(|path| path == MEMORY_FILE) {
        board.shutdown.spawn(memory::follow(board.clone(), connection.team.clone(), connection.viber.clone()));
    }
    publish_files(board, connection, paths);
    Ok(())
}

#[derive(Deserialize)]
struct FileVersion {
    hash: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    mtime: Option<Instant>,
}

/// Asks a viber that has reconnected which of the files that people look at changed meanwhile.
pub async fn catch_up(board: Board, connection: Connection) {
    let known = async {
        db::files::looked_at(&mut board.db.reader_of(&connection.team).await?, &connection.viber, MAX_CHECKED_FILES)
            .await
    };
    let known = known.await.unwrap_or_default();
    if known.is_empty() {
        return;
    }
    let paths: Vec<&str> = known.iter().map(|(path, _)| path.as_str()).collect();
    // A viber that does not answer is asked again when somebody looks.
    let Ok(ViberAnswer::Value(mut value)) =
        ask(&board, &connection.viber, "workspace.hashes", json!({ "paths": paths })).await
    else {
        return;
    };
    let now: BTreeMap<String, Option<FileVersion>> = serde_json::from_value(value["files"].take()).unwrap_or_default();
    let changed = known.into_iter().filter_map(|(path, before)| {
        let version = now.get(&path)?;
        let hash = version.as_ref().map(|version| version.hash.clone());
        let (size, mtime) = version.as_ref().map_or((0, None), |version| (version.size, version.mtime));
        (hash != before).then(|| FileReport { path, hash, size, mtime, by: "file".to_owned() })
    });
    let changed: Vec<FileReport> = changed.collect();
    if !changed.is_empty()
        && let Err(error) = heard(&board, &connection, changed).await
    {
        tracing::warn!(viber.id = %connection.viber, %error, "what changed on a viber could not be kept");
    }
}

fn publish_files(board: &Board, connection: &Connection, paths: Vec<String>) {
    let mut after = AfterCommit::default();
    after.files(&connection.viber, paths);
    after.publish(board, &connection.team);
}
