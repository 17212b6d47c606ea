//! Files that operators attach: kept in the store until they go along with a task of the session.

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use protocol::{ArtifactId, SessionId, TaskId, TeamId, limits::MAX_PIECE_BYTES, sniff};

use crate::{
    actions::{AfterCommit, quota},
    db::{self, TeamTx, audit::Entry},
    domain::{Artifact, ArtifactOrigin, By, Contact, ContactState, Session, StorageUse, artifact::file_name},
    error::{Error, Result},
    state::Board,
};

/// Files that may wait for the next task of a session, and so the most that one task may have.
const MAX_WAITING_FILES: usize = 64;
/// Longest claimed media type that is kept, characters.
const MAX_TYPE_CHARS: usize = 100;

/// A file that somebody attaches, as they describe it.
#[derive(Clone, Debug)]
pub struct NewAttachment {
    pub session: SessionId,
    pub name: String,
    pub claimed: String,
}

/// Keeps a file for the next task of a session.
pub async fn attach<E>(
    board: &Board,
    team: &TeamId,
    by: &By,
    upload: NewAttachment,
    body: impl Stream<Item = Result<Bytes, E>> + Unpin,
) -> Result<Artifact> {
    let name = file_name(&upload.name)
        .ok_or_else(|| Error::unacceptable("bad_name", "the file needs a name with a visible character"))?;
    let (session, room) = check_room(board, team, &upload.session).await?;
    let now = board.clock.now();
    let id = ArtifactId::new(now.0);
    let (stage, head) = stage(board, &id, room, body).await?;
    let (sha256, size) = (stage.sha256(), stage.len());
    let artifact = Artifact {
        reference: format!("attachments/{id}"),
        id,
        viber_id: session.viber_id,
        session_id: session.id,
        task_id: None,
        attempt: None,
        title: name.clone(),
        name,
        claimed: crate::domain::name::clean(&upload.claimed, MAX_TYPE_CHARS).unwrap_or_default(),
        sniffed: sniff::sniff(&head).to_owned(),
        size: Some(size),
        sha256: Some(sha256.clone()),
        origin: ArtifactOrigin::Operator,
        created_by: by.actor.id().to_owned(),
        created_at: now,
        gone_at: None,
        stored_at: Some(now),
        contact: Contact { state: ContactState::Disconnected, since: now },
    };
    let kept = {
        let _kept = board.store.sweeping.read().await;
        board.store.keep(stage, team, &sha256).await.map_err(away)?;
        write_down(board, team, by, &artifact, size).await
    };
    if matches!(kept, Err(Error::QuotaExceeded { .. } | Error::Conflict { .. })) {
        // Another file took the last free space or place while this one was uploaded.
        forget_unnamed(board, team, &sha256).await?;
    }
    kept
}

/// Removes bytes from the store that no row names.
pub(super) async fn forget_unnamed(board: &Board, team: &TeamId, sha256: &str) -> Result<()> {
    let _alone = board.store.sweeping.write().await;
    let named = db::blobs::size(&mut board.db.reader_of(team).await?, sha256).await?;
    if named.is_none() {
        board.store.remove(team, sha256).await.map_err(away)?;
    }
    Ok(())
}

/// An address in the bucket for uploading a file of `size` bytes directly, and the id to attach it by afterwards.
pub async fn address(board: &Board, team: &TeamId, session: &SessionId, size: u64) -> Result<(ArtifactId, String)> {
    let (_, room) = check_room(board, team, session).await?;
    room.check(size)?;
    let id = ArtifactId::new(board.clock.now().0);
    let url = board.store.upload_address(team, &id).await.map_err(away)?;
    let none =
        || Error::unacceptable("no_direct_upload", "this Board's store has no addresses of its own: send it here");
    Ok((id, url.ok_or_else(none)?))
}

/// Attaches a file that was uploaded to the bucket directly, as if it had come through the Board: it is measured here.
pub async fn attach_uploaded(
    board: &Board,
    team: &TeamId,
    by: &By,
    id: &ArtifactId,
    upload: NewAttachment,
) -> Result<Artifact> {
    let (_, room) = check_room(board, team, &upload.session).await?;
    let (size, body) = board.store.uploaded(team, id).await.map_err(away)?.ok_or(Error::NotFound)?;
    let kept = match room.check(size) {
        Err(error) => Err(error),
        Ok(()) => attach(board, team, by, upload, body).await,
    };
    if !matches!(kept, Err(Error::Unavailable { .. }))
        && let Err(error) = board.store.forget_upload(team, id).await
    {
        tracing::warn!(%error, "an upload stays in the bucket for a day");
    }
    kept
}

pub(super) fn away(error: std::io::Error) -> Error {
    tracing::error!(%error, "the object store does not answer");
    Error::Unavailable { what: "the object store", retry_after: 5 }
}

/// How large a file may be.
#[derive(Clone, Copy, Debug)]
struct AttachmentRoom {
    /// The largest file that the team allows, bytes.
    most: u64,
    storage: StorageUse,
}

impl AttachmentRoom {
    fn check(self, bytes: u64) -> Result<()> {
        if bytes > self.most {
            return Err(Error::TooLarge("the file is larger than this team allows"));
        }
        quota::check(self.storage, bytes)
    }
}

/// The session, and how large a file may be. Fails before anything is uploaded when no more may be attached.
async fn check_room(board: &Board, team: &TeamId, session: &SessionId) -> Result<(Session, AttachmentRoom)> {
    let mut tx = board.db.reader_of(team).await?;
    let found = db::sessions::load(&mut tx, session).await?;
    let bounds = db::blobs::bounds(&mut tx).await?;
    let storage = db::usage::load(&mut tx).await?;
    check_places(&mut tx, session, 1).await?;
    let session = found.ok_or(Error::NotFound)?;
    let (bounds, storage) = bounds.zip(storage).ok_or(Error::NotFound)?;
    let room = AttachmentRoom { most: bounds.bytes, storage };
    room.check(0)?;
    Ok((session, room))
}

/// Whether so many more files may wait for the session's next task.
async fn check_places(tx: &mut TeamTx<'_>, session: &SessionId, more: usize) -> Result<()> {
    let waiting = db::artifacts::waiting(tx, session, MAX_WAITING_FILES as u64).await?.len();
    if waiting + more > MAX_WAITING_FILES {
        let message = match more {
            1 => "64 files wait for the next task already".to_owned(),
            _ => format!(
                "{waiting} files wait for the next task already, and at most 64 may: there is no room for {more} more"
            ),
        };
        return Err(Error::Conflict { code: "too_many", message });
    }
    Ok(())
}

async fn stage<E>(
    board: &Board,
    id: &ArtifactId,
    room: AttachmentRoom,
    mut body: impl Stream<Item = Result<Bytes, E>> + Unpin,
) -> Result<(crate::artifacts::Stage, Vec<u8>)> {
    let full = |error: std::io::Error| {
        tracing::warn!(%error, "an attachment cannot be staged");
        Error::Unavailable { what: "the disk for artifacts", retry_after: 5 }
    };
    let mut stage = board.store.stage(id.as_str()).map_err(full)?;
    let (mut head, mut batch, mut waiting) = (Vec::new(), Vec::new(), 0);
    loop {
        let piece = body.next().await.transpose();
        let piece = piece.map_err(|_| Error::Malformed("the body broke off, or came too slowly".into()))?;
        let over = piece.is_none();
        if let Some(piece) = piece {
            head.extend_from_slice(&piece[..piece.len().min(sniff::HEAD_BYTES.saturating_sub(head.len()))]);
            waiting += piece.len() as u64;
            batch.push(piece);
        }
        room.check(stage.len() + waiting)?;
        if waiting >= MAX_PIECE_BYTES || over {
            let pieces = std::mem::take(&mut batch);
            waiting = 0;
            let writing = tokio::task::spawn_blocking(move || {
                let done = pieces.iter().try_for_each(|piece| stage.write(piece));
                (stage, done)
            });
            let (back, done) = writing.await.map_err(|error| full(std::io::Error::other(error)))?;
            done.map_err(full)?;
            stage = back;
        }
        if over {
            return Ok((stage, head));
        }
    }
}

async fn write_down(board: &Board, team: &TeamId, by: &By, artifact: &Artifact, size: u64) -> Result<Artifact> {
    let new = artifact.clone();
    let keeping = board.change(team, by, move |tx| {
        let new = new.clone();
        Box::pin(async move {
            // Locked: the session may have been deleted meanwhile.
            if !db::sessions::touch(tx, &new.session_id).await? {
                return Err(Error::NotFound);
            }
            check_places(tx, &new.session_id, 1).await?;
            let sha256 = new.sha256.as_deref().unwrap_or_default();
            if db::blobs::size(tx, sha256).await?.is_none() {
                // One after the other, so that two files cannot both take the last free space.
                db::teams::lock(tx).await?;
                quota::check(db::usage::load(tx).await?.ok_or(Error::NotFound)?, size)?;
            }
            db::blobs::insert(tx, sha256, size).await?;
            if !db::artifacts::insert(tx, &new).await? {
                return Err(Error::Internal("a new artifact's id is taken".into()));
            }
            let entry = Entry::new("artifact.attach", new.id.as_str()).after(new.name.as_str());
            db::audit::append(tx, entry).await?;
            db::artifacts::load(tx, &new.id).await?.ok_or(Error::NotFound)
        })
    });
    let kept = keeping.await?;
    tell(board, team, &kept.session_id);
    Ok(kept)
}

/// Removes an attached file that has not gone to a task yet.
pub async fn withdraw(board: &Board, team: &TeamId, by: &By, id: &ArtifactId) -> Result<Artifact> {
    let id = id.clone();
    let withdrawing = board.change(team, by, move |tx| {
        let id = id.clone();
        Box::pin(async move {
            let found = db::artifacts::load(tx, &id).await?.ok_or(Error::NotFound)?;
            if !db::artifacts::withdraw(tx, &id).await? {
                return Err(Error::conflict("attached", "a task has it already"));
            }
            let entry = Entry::new("artifact.withdraw", id.as_str()).before(found.name.as_str());
            db::audit::append(tx, entry).await?;
            Ok(found)
        })
    });
    let gone = withdrawing.await?;
    tell(board, team, &gone.session_id);
    Ok(gone)
}

fn tell(board: &Board, team: &TeamId, session: &SessionId) {
    let mut after = AfterCommit::default();
    after.session(session);
    after.publish(board, team);
}

/// The files `named`, which wait for the session's next task, in the order in which they were attached.
pub(in crate::actions) async fn named(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    named: &[ArtifactId],
) -> Result<Vec<protocol::Attachment>> {
    if named.is_empty() {
        return Ok(Vec::new());
    }
    let waiting = db::artifacts::waiting(tx, session, MAX_WAITING_FILES as u64).await?;
    if named.iter().any(|id| !waiting.iter().any(|artifact| artifact.id == *id)) {
        return Err(not_waiting());
    }
    Ok(waiting.into_iter().filter(|artifact| named.contains(&artifact.id)).filter_map(listed).collect())
}

/// Attaches these files to a task that runs.
pub(in crate::actions) async fn with_message(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    task: &TaskId,
    files: &[protocol::Attachment],
) -> Result<()> {
    for file in files {
        if !db::artifacts::attach(tx, session, &file.id, task).await? {
            return Err(not_waiting());
        }
    }
    Ok(())
}

/// Lets the files of a message wait for the session's next task again.
pub(in crate::actions) async fn wait_again(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    files: &[protocol::Attachment],
) -> Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    check_places(tx, session, files.len()).await?;
    for file in files {
        db::artifacts::detach(tx, session, &file.id).await?;
    }
    Ok(())
}

fn not_waiting() -> Error {
    Error::unacceptable("attachment_not_found", "no such file waits for a task of this session")
}

/// An attachment as commands list it.
fn listed(artifact: Artifact) -> Option<protocol::Attachment> {
    let (size, sha256) = (artifact.size?, artifact.sha256?);
    let kind = (!artifact.claimed.is_empty()).then_some(artifact.claimed);
    Some(protocol::Attachment { id: artifact.id, name: artifact.name, size, sha256, kind })
}

/// Attaches the files `named`, or all that wait for the session's next task, to `task`. Returns them as its command lists
/// them.
pub(in crate::actions) async fn with_task(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    task: &TaskId,
    named: Option<&[ArtifactId]>,
) -> Result<Vec<protocol::Attachment>> {
    let waiting = db::artifacts::waiting(tx, session, MAX_WAITING_FILES as u64).await?;
    let unknown = |named: &[ArtifactId]| named.iter().any(|id| !waiting.iter().any(|artifact| artifact.id == *id));
    if named.is_some_and(unknown) {
        return Err(not_waiting());
    }
    let mut attached = Vec::new();
    for artifact in waiting.into_iter().filter(|artifact| named.is_none_or(|named| named.contains(&artifact.id))) {
        if db::artifacts::attach(tx, session, &artifact.id, task).await? {
            attached.extend(listed(artifact));
        }
    }
    Ok(attached)
}
