//! What a viber reports of its files: what became of changes, and which files are others now.

use protocol::{FOLDER, Instant, ViberId, WorkspaceWritten, WriteOp, WriteState};

use crate::{
    actions::{After, memory, plan},
    db::{self, Change},
    domain::{Connection, Edit, EditState, Heard, Text, memory::MEMORY},
    error::Result,
    state::Board,
};

/// Files that are noted in one change.
const HEARD: usize = 60;
/// Changes of files that are ended in one change: each holds texts.
const WRITTEN: usize = 15;

/// What a viber says became of changes. What it is not asked for, or says again, changes nothing.
pub async fn written(board: &Board, connection: &Connection, all: &[WorkspaceWritten]) -> Result<()> {
    let now = board.clock.now();
    for some in all.chunks(WRITTEN) {
        // First: whoever waits for the change asks for a file of that folder next.
        for folder in left(board, connection, some).await? {
            leave(board, connection, &folder, now).await?;
        }
        let (viber, some) = (connection.viber.clone(), some.to_vec());
        let ending = board.db.change(&connection.team, &connection.by(), now, move |tx| {
            let (viber, some) = (viber.clone(), some.clone());
            Box::pin(async move {
                let mut after = After::default();
                for one in &some {
                    end(tx, &viber, one, &mut after).await?;
                }
                Ok::<_, db::Error>(after)
            })
        });
        ending.await?.tell(board, &connection.team);
    }
    // Edits are named by their own path, whatever the viber calls it.
    told(board, connection, vec![String::new()]);
    Ok(())
}

/// The folders that are not where they were, because of changes of which that was not known yet.
async fn left(board: &Board, connection: &Connection, some: &[WorkspaceWritten]) -> Result<Vec<String>> {
    let mut tx = board.db.reader_of(&connection.team).await?;
    let mut folders = Vec::new();
    for one in some.iter().filter(|one| one.state == WriteState::Applied) {
        let found = db::edits::load(&mut tx, &one.edit_id).await?;
        let is_left = |edit: &Edit| {
            edit.viber_id == connection.viber
                && edit.state == EditState::Queued
                && edit.base_hash.as_deref() == Some(FOLDER)
        };
        folders.extend(found.filter(is_left).map(|edit| edit.path));
    }
    Ok(folders)
}

/// Nothing is known to lie in a folder any more; of what came elsewhere the viber tells by itself.
async fn leave(board: &Board, connection: &Connection, folder: &str, now: Instant) -> Result<()> {
    let some = || {
        let (viber, folder) = (connection.viber.clone(), folder.to_owned());
        board.db.piece_of(&connection.team, &connection.by(), now, move |tx| {
            let (viber, folder) = (viber.clone(), folder.clone());
            Box::pin(async move { db::files::leave(tx, &viber, &folder, HEARD as u64).await })
        })
    };
    while some().await? == HEARD as u64 {}
    Ok(())
}

/// Notes what became of a change.
async fn end(tx: &mut Change<'_>, viber: &ViberId, one: &WorkspaceWritten, after: &mut After) -> Result<(), db::Error> {
    if !db::edits::end(tx, viber, one).await? {
        return Ok(());
    }
    let Some(edit) = db::edits::load(tx, &one.edit_id).await? else { return Ok(()) };
    let hear = |path: &str, hash: Option<String>, size| Heard {
        path: path.to_owned(),
        hash,
        size,
        mtime: None,
        by: "board".to_owned(),
    };
    match one.state {
        WriteState::Refused => return Ok(()),
        // Nobody looked at it yet: what is remembered is not what is there.
        WriteState::Conflict => {
            let heard = Heard { by: "file".to_owned(), ..hear(&edit.path, one.hash.clone(), 0) };
            return db::files::hear(tx, viber, &heard).await;
        }
        WriteState::Applied => {}
    }
    if edit.base_hash.as_deref() == Some(FOLDER) {
        return Ok(());
    }
    if let Some(session) = plan::made(tx, viber, &edit).await? {
        after.session(&session);
    }
    match (edit.op, edit.content, edit.hash, edit.to) {
        (WriteOp::Put, Some(content), Some(hash), _) => {
            let heard = hear(&edit.path, Some(hash.clone()), content.len() as u64);
            db::files::hear(tx, viber, &heard).await?;
            let text = Text { content, hash, at: tx.now };
            db::files::keep(tx, viber, &edit.path, &text).await
        }
        (WriteOp::Rename, _, _, Some(to)) => {
            let before = db::files::load(tx, viber, &edit.path).await?;
            let size = before.as_ref().map_or(0, |file| file.size);
            db::files::hear(tx, viber, &hear(&edit.path, None, 0)).await?;
            db::files::hear(tx, viber, &hear(&to, edit.base_hash, size)).await?;
            match before.and_then(|file| file.text) {
                Some(text) => db::files::keep(tx, viber, &to, &text).await,
                None => Ok(()),
            }
        }
        _ => db::files::hear(tx, viber, &hear(&edit.path, None, 0)).await,
    }
}

/// Files of a viber changed.
pub async fn heard(board: &Board, connection: &Connection, all: Vec<Heard>) -> Result<()> {
    let now = board.clock.now();
    let paths: Vec<String> = all.iter().map(|heard| heard.path.clone()).collect();
    let mut rest = all;
    while !rest.is_empty() {
        let (viber, epoch) = (connection.viber.clone(), connection.epoch);
        let some = rest[..rest.len().min(HEARD)].to_vec();
        let hearing = board.db.change(&connection.team, &connection.by(), now, move |tx| {
            let (viber, some) = (viber.clone(), some.clone());
            Box::pin(async move {
                // An older connection may still be talking.
                if db::vibers::epoch(tx, &viber).await? != Some(epoch) {
                    return Ok(None);
                }
                let mut done = 0;
                for heard in &some {
                    db::files::hear(tx, &viber, heard).await?;
                    done += 1;
                    if tx.is_full() {
                        break;
                    }
                }
                Ok::<_, db::Error>(Some(done))
            })
        });
        let Some(done) = hearing.await? else { break };
        rest.drain(..done);
    }
    for path in paths.iter().filter(|path| plan::belongs(path)) {
        board.shutdown.spawn(plan::follow(board.clone(), connection.clone(), path.clone()));
    }
    if paths.iter().any(|path| path == MEMORY) {
        board.shutdown.spawn(memory::follow(board.clone(), connection.clone()));
    }
    told(board, connection, paths);
    Ok(())
}

fn told(board: &Board, connection: &Connection, paths: Vec<String>) {
    let mut after = After::default();
    after.files(&connection.viber, paths);
    after.tell(board, &connection.team);
}
