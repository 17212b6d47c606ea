//! Files of a viber's workspace: changes that people make here, what became of them, and what is heard from the machine.
//!
//! The machine's files are the truth. A change is a durable command to the version that its author saw; whether it was
//! made the viber says.

mod look;

use std::time::Duration;

use protocol::{EditId, FOLDER, Instant, TeamId, ViberId, WorkspaceWritten, WriteOp, WriteState, limits, path};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{After, memory, plan, record::Speaker};
use crate::{
    db::{self, Tx},
    domain::{By, Edit, EditState, Heard, Text, memory::MEMORY},
    error::{Error, Result},
    hub::News,
    secret,
    state::Board,
};

/// Files that are noted in one change.
const HEARD: usize = 60;
/// Changes of files that are ended in one change: each holds texts.
const WRITTEN: usize = 15;

pub use look::{AWAY, Folder, Shown, catch_up, list, read, search};
pub(super) use look::{fetch, refusal};

/// How long somebody who changes a file waits to hear what became of it, before it counts as queued.
const PATIENCE: Duration = Duration::from_secs(3);
/// Changes of one viber that may wait.
const WAITING: u64 = 1_000;

/// What somebody wants to be done to a file.
#[derive(Clone, Debug)]
pub struct Change {
    pub path: String,
    /// The version that they saw; `None`: there was none.
    pub base_hash: Option<String>,
    pub op: Op,
}

/// What is done.
#[derive(Clone, Debug)]
pub enum Op {
    /// This becomes its text; `seen` is what the author saw, for a draft of both when somebody else changed it too.
    Put {
        content: String,
        seen: Option<String>,
    },
    /// It goes to the trash of the workspace.
    Delete,
    Rename {
        to: String,
    },
}

/// The name of a version.
pub fn hash(content: &[u8]) -> String {
    secret::hex(&Sha256::digest(content))
}

/// Makes a change, and waits a moment for what becomes of it: the edit as it stands then.
pub async fn edit(board: &Board, team: &TeamId, by: &By, viber: &ViberId, change: Change) -> Result<Edit> {
    let edit = new(board, by, viber, change)?;
    give(board, team, edit, None).await
}

/// Settles a conflict: `change` is made instead, or with `None` the file stays as it is.
pub async fn settle(board: &Board, team: &TeamId, by: &By, conflict: &Edit, change: Option<Change>) -> Result<Edit> {
    if let Some(change) = change {
        let edit = new(board, by, &conflict.viber_id, change)?;
        return give(board, team, edit, Some(conflict.id.clone())).await;
    }
    let (team_id, id) = (team.clone(), conflict.id.clone());
    let done = board.db.write(move |tx| {
        let (team, id) = (team_id.clone(), id.clone());
        Box::pin(async move { Ok::<_, Error>(db::edits::settle(tx, &team, &id).await?) })
    });
    if !done.await? {
        return Err(over());
    }
    told(board, team, &conflict.viber_id, vec![conflict.path.clone()]);
    Ok(Edit { state: EditState::Settled, ..conflict.clone() })
}

fn new(board: &Board, by: &By, viber: &ViberId, change: Change) -> Result<Edit> {
    let now = board.clock.now();
    let bad = |bad: path::BadPath| Error::unacceptable("forbidden_path", bad.to_string());
    path::file(&change.path).map_err(bad)?;
    let (op, content, base, to) = match change.op {
        Op::Put { content, seen } => {
            let seen = seen.filter(|text| Some(hash(text.as_bytes())) == change.base_hash);
            (WriteOp::Put, Some(content), seen, None)
        }
        Op::Delete => (WriteOp::Delete, None, None, None),
        Op::Rename { to } => (WriteOp::Rename, None, None, Some(path::file(&to).map_err(bad)?.to_owned())),
    };
    if let Some(text) = &content {
        if text.len() as u64 > limits::MAX_TEXT_FILE {
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

/// Stores the edit with its command, and waits for its outcome while the viber is connected.
async fn give(board: &Board, team: &TeamId, edit: Edit, settles: Option<EditId>) -> Result<Edit> {
    let mut news = board.hub.listen(team);
    let (team_id, made) = (team.clone(), edit.clone());
    board
        .db
        .write(move |tx| {
            let (team, edit, settles) = (team_id.clone(), made.clone(), settles.clone());
            Box::pin(async move { store(tx, &team, &edit, settles.as_ref()).await })
        })
        .await?;
    let mut after = After::default();
    after.command(&edit.viber_id);
    after.files(&edit.viber_id, vec![edit.path.clone()]);
    after.tell(board, team);
    if !board.hub.is_connected(&edit.viber_id) {
        return Ok(edit);
    }
    let outcome = async {
        loop {
            let (team, id) = (team.clone(), edit.id.clone());
            let found = board.db.read(move |tx| Box::pin(async move { db::edits::load(tx, &team, &id).await })).await?;
            match found {
                Some(now) if now.state == EditState::Queued => {}
                Some(now) => return Ok::<_, Error>(now),
                None => return Err(Error::NotFound),
            }
            loop {
                match news.next().await {
                    News::File { viber, path } if viber == edit.viber_id && (path.is_empty() || path == edit.path) => {
                        break;
                    }
                    News::Anything => break,
                    _ => {}
                }
            }
        }
    };
    tokio::time::timeout(PATIENCE, outcome).await.unwrap_or(Ok(edit.clone()))
}

async fn store(tx: &mut Tx, team: &TeamId, edit: &Edit, settles: Option<&EditId>) -> Result<()> {
    if db::vibers::load(tx, team, &edit.viber_id).await?.is_none() {
        return Err(Error::NotFound);
    }
    if db::edits::open(tx, team, &edit.viber_id, WAITING).await?.len() as u64 >= WAITING {
        return Err(Error::conflict("too_many_edits", "too many changes wait for this viber"));
    }
    if let Some(conflict) = settles
        && !db::edits::settle(tx, team, conflict).await?
    {
        return Err(over());
    }
    let mut edit = edit.clone();
    if edit.base.is_none() && edit.op == WriteOp::Put {
        let known = db::files::load(tx, team, &edit.viber_id, &edit.path).await?.and_then(|file| file.text);
        edit.base = known.filter(|text| Some(&text.hash) == edit.base_hash.as_ref()).map(|text| text.content);
    }
    db::edits::insert(tx, team, &edit).await?;
    let body = json!({ "editId": edit.id }).to_string();
    let command = db::commands::New { kind: "workspace:write", attempt: None, body };
    let given = db::commands::give(tx, team, &edit.viber_id, command, edit.created_at).await?;
    given.map(drop).ok_or(Error::NotFound)
}

fn over() -> Error {
    Error::conflict("settled", "somebody has dealt with it already")
}

/// What a viber says became of changes. What it is not asked for, or says again, changes nothing.
pub async fn written(board: &Board, speaker: &Speaker, all: &[WorkspaceWritten]) -> Result<()> {
    let now = board.clock.now();
    for some in all.chunks(WRITTEN) {
        // First: whoever waits for the change asks for a file of that folder next.
        for folder in left(board, speaker, some).await? {
            leave(board, speaker, folder, now).await?;
        }
        let (who, some) = (speaker.clone(), some.to_vec());
        let after = board
            .db
            .write(move |tx| {
                let (who, some) = (who.clone(), some.clone());
                Box::pin(async move {
                    let mut after = After::default();
                    for one in &some {
                        end(tx, &who, one, now, &mut after).await?;
                    }
                    Ok::<_, Error>(after)
                })
            })
            .await?;
        after.tell(board, &speaker.team);
    }
    // Edits are named by their own path, whatever the viber calls it.
    told(board, &speaker.team, &speaker.viber, vec![String::new()]);
    Ok(())
}

/// The folders that are not where they were, because of changes of which that was not known yet.
async fn left(board: &Board, speaker: &Speaker, some: &[WorkspaceWritten]) -> Result<Vec<String>> {
    let applied = some.iter().filter(|one| one.state == WriteState::Applied);
    let (team, edits) = (speaker.team.clone(), applied.map(|one| one.edit_id.clone()).collect::<Vec<_>>());
    let found = board.db.read(move |tx| {
        Box::pin(async move {
            let mut found = Vec::new();
            for id in &edits {
                found.extend(db::edits::load(tx, &team, id).await?);
            }
            Ok::<_, db::Error>(found)
        })
    });
    let is_left = |edit: &Edit| {
        edit.viber_id == speaker.viber && edit.state == EditState::Queued && edit.base_hash.as_deref() == Some(FOLDER)
    };
    Ok(found.await?.into_iter().filter(is_left).map(|edit| edit.path).collect())
}

/// Nothing is known to lie in a folder any more; of what came elsewhere the viber tells by itself.
async fn leave(board: &Board, speaker: &Speaker, folder: String, now: Instant) -> Result<()> {
    let some = || {
        let (who, folder) = (speaker.clone(), folder.clone());
        board.db.piece(move |tx| {
            let (who, folder) = (who.clone(), folder.clone());
            Box::pin(async move {
                Ok::<_, Error>(db::files::leave(tx, &who.team, &who.viber, &folder, now, HEARD as u64).await?)
            })
        })
    };
    while some().await? == HEARD as u64 {}
    Ok(())
}

/// Notes what became of a change.
async fn end(tx: &mut Tx, who: &Speaker, one: &WorkspaceWritten, now: Instant, after: &mut After) -> Result<()> {
    let (team, viber) = (&who.team, &who.viber);
    if !db::edits::end(tx, team, viber, one, now).await? {
        return Ok(());
    }
    let Some(edit) = db::edits::load(tx, team, &one.edit_id).await? else { return Ok(()) };
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
            db::files::hear(tx, team, viber, &heard, now).await?;
            return Ok(());
        }
        WriteState::Applied => {}
    }
    if edit.base_hash.as_deref() == Some(FOLDER) {
        return Ok(());
    }
    if let Some(session) = plan::made(tx, team, viber, &edit, now).await? {
        after.session(&session);
    }
    match (edit.op, edit.content, edit.hash, edit.to) {
        (WriteOp::Put, Some(content), Some(hash), _) => {
            let heard = hear(&edit.path, Some(hash.clone()), content.len() as u64);
            db::files::hear(tx, team, viber, &heard, now).await?;
            db::files::keep(tx, team, viber, &edit.path, &Text { content, hash, at: now }, now).await?;
        }
        (WriteOp::Rename, _, _, Some(to)) => {
            let before = db::files::load(tx, team, viber, &edit.path).await?;
            let size = before.as_ref().map_or(0, |file| file.size);
            db::files::hear(tx, team, viber, &hear(&edit.path, None, 0), now).await?;
            db::files::hear(tx, team, viber, &hear(&to, edit.base_hash, size), now).await?;
            if let Some(text) = before.and_then(|file| file.text) {
                db::files::keep(tx, team, viber, &to, &text, now).await?;
            }
        }
        _ => db::files::hear(tx, team, viber, &hear(&edit.path, None, 0), now).await?,
    }
    Ok(())
}

/// Files of a viber changed.
pub async fn heard(board: &Board, speaker: &Speaker, all: Vec<Heard>) -> Result<()> {
    let now = board.clock.now();
    let paths: Vec<String> = all.iter().map(|heard| heard.path.clone()).collect();
    let mut rest = all;
    while !rest.is_empty() {
        let (who, some) = (speaker.clone(), rest[..rest.len().min(HEARD)].to_vec());
        let hearing = board.db.write(move |tx| {
            let (who, some) = (who.clone(), some.clone());
            Box::pin(async move {
                // An older connection may still be talking.
                if db::vibers::epoch(tx, &who.team, &who.viber).await? != Some(who.epoch) {
                    return Ok(None);
                }
                let mut done = 0;
                for heard in &some {
                    db::files::hear(tx, &who.team, &who.viber, heard, now).await?;
                    done += 1;
                    if tx.is_full() {
                        break;
                    }
                }
                Ok::<_, Error>(Some(done))
            })
        });
        let Some(done) = hearing.await? else { break };
        rest.drain(..done);
    }
    for path in paths.iter().filter(|path| plan::belongs(path)) {
        board.shutdown.spawn(plan::follow(board.clone(), speaker.clone(), path.clone()));
    }
    if paths.iter().any(|path| path == MEMORY) {
        board.shutdown.spawn(memory::follow(board.clone(), speaker.clone()));
    }
    told(board, &speaker.team, &speaker.viber, paths);
    Ok(())
}

fn told(board: &Board, team: &TeamId, viber: &ViberId, paths: Vec<String>) {
    let mut after = After::default();
    after.files(viber, paths);
    after.tell(board, team);
}
