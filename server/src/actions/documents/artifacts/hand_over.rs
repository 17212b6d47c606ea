//! What one task produced becomes an attachment of another, also on another viber: its bytes go by way of the store.

use std::time::Duration;

use futures_util::StreamExt as _;
use protocol::{ArtifactId, Attachment, TeamId, sniff};
use tokio::time::timeout;

use super::{
    RequestedRange,
    attach::{away, forget_unnamed},
    open,
};
use crate::{
    actions::quota,
    db::{self, Change},
    domain::{Artifact, ArtifactOrigin, By, Contact, ContactState, Task},
    error::{Error, Result},
    state::Board,
};

/// How long the bytes of one artifact may take to come from its viber.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// A file that the store has, and that a task is to get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedArtifact {
    pub name: String,
    /// The media type that was claimed.
    pub claimed: String,
    /// The media type that the bytes look like.
    pub sniffed: String,
    pub size: u64,
    pub sha256: String,
}

impl HandedArtifact {
    /// The same under another name.
    #[must_use]
    pub fn named(self, name: String) -> Self {
        Self { name, ..self }
    }
}

/// Has the store keep what an artifact is now, fetched from its viber if need be. `None`: it cannot be had, or not be kept.
/// Fails with `Offline` or `Unavailable` while its viber or the store is away.
pub(in crate::actions) async fn keep_version(
    board: &Board,
    team: &TeamId,
    id: &ArtifactId,
) -> Result<Option<HandedArtifact>> {
    let mut artifact = db::artifacts::load(&mut board.db.reader_of(team).await?, id).await?;
    if artifact.as_ref().is_some_and(|artifact| artifact.stored_at.is_none()) {
        match timeout(FETCH_TIMEOUT, fetched(board, team, id)).await {
            Ok(Ok(())) => {}
            Ok(Err(error @ (Error::Offline { .. } | Error::Unavailable { .. }))) => return Err(error),
            Ok(Err(_)) | Err(_) => return Ok(None),
        }
        artifact = db::artifacts::load(&mut board.db.reader_of(team).await?, id).await?;
    }
    let Some(artifact) = artifact.filter(|artifact| artifact.stored_at.is_some()) else { return Ok(None) };
    let (Some(size), Some(sha256)) = (artifact.size, artifact.sha256.clone()) else { return Ok(None) };
    note_use(board, team, &sha256).await?;
    let name = artifact.file_name();
    Ok(Some(HandedArtifact { name, claimed: artifact.claimed, sniffed: artifact.sniffed, size, sha256 }))
}

/// Reads an artifact to its end: then the store has it, if it keeps it.
async fn fetched(board: &Board, team: &TeamId, id: &ArtifactId) -> Result<()> {
    let mut opened = open(board, team, id, RequestedRange::All).await?;
    let since = opened.artifact.contact.since;
    while let Some(piece) = opened.bytes.next().await {
        // Its viber broke off.
        piece.map_err(|_| Error::Offline { since })?;
    }
    Ok(())
}

/// The sweep leaves alone what was used just now.
async fn note_use(board: &Board, team: &TeamId, sha256: &str) -> Result<()> {
    let sha256 = sha256.to_owned();
    let noting = board.change(team, &By::board(), move |tx| {
        let sha256 = sha256.clone();
        Box::pin(async move {
            let now = tx.now;
            db::blobs::used(tx, &sha256, now).await
        })
    });
    Ok(noting.await?)
}

/// Has the store keep a text that the Board wrote. Fails with `QuotaExceeded` when the team has no room for it.
pub(in crate::actions) async fn keep_text(
    board: &Board,
    team: &TeamId,
    name: String,
    text: String,
) -> Result<HandedArtifact> {
    let mut stage = board.store.stage(ArtifactId::new(board.clock.now().0).as_str()).map_err(away)?;
    let sniffed = sniff::sniff(&text.as_bytes()[..text.len().min(sniff::HEAD_BYTES)]).to_owned();
    let writing = tokio::task::spawn_blocking(move || stage.write(text.as_bytes()).map(|()| stage));
    let stage = writing.await.map_err(|error| Error::Internal(error.to_string()))?.map_err(away)?;
    let (sha256, size) = (stage.sha256(), stage.len());
    let kept = {
        let _kept = board.store.sweeping.read().await;
        board.store.keep(stage, team, &sha256).await.map_err(away)?;
        write_down(board, team, &sha256, size).await
    };
    if matches!(kept, Err(Error::QuotaExceeded { .. })) {
        forget_unnamed(board, team, &sha256).await?;
    }
    kept?;
    Ok(HandedArtifact { name, claimed: "text/markdown".to_owned(), sniffed, size, sha256 })
}

async fn write_down(board: &Board, team: &TeamId, sha256: &str, size: u64) -> Result<()> {
    let sha256 = sha256.to_owned();
    let keeping = board.change(team, &By::board(), move |tx| {
        let sha256 = sha256.clone();
        Box::pin(async move {
            if db::blobs::size(tx, &sha256).await?.is_none() {
                // One after the other, so that two files cannot both take the last free space.
                db::teams::lock(tx).await?;
                quota::check(db::usage::load(tx).await?.ok_or(Error::NotFound)?, size)?;
            }
            Ok::<_, Error>(db::blobs::insert(tx, &sha256, size).await?)
        })
    });
    keeping.await
}

/// Attaches files to a new task, each as a row of its own over the bytes that the store has. Returns them as the task's command
/// lists them.
pub(in crate::actions) async fn hand_over(
    tx: &mut Change<'_>,
    task: &Task,
    files: &[HandedArtifact],
) -> Result<Vec<Attachment>> {
    let mut attached = Vec::new();
    for file in files {
        let id = ArtifactId::new(tx.now.0);
        let new = Artifact {
            reference: format!("attachments/{id}"),
            id: id.clone(),
            viber_id: task.viber_id.clone(),
            session_id: task.session_id.clone(),
            task_id: Some(task.id.clone()),
            attempt: Some(1),
            name: file.name.clone(),
            title: file.name.clone(),
            claimed: file.claimed.clone(),
            sniffed: file.sniffed.clone(),
            size: Some(file.size),
            sha256: Some(file.sha256.clone()),
            origin: ArtifactOrigin::Operator,
            created_by: task.created_by.clone(),
            created_at: tx.now,
            gone_at: None,
            stored_at: Some(tx.now),
            contact: Contact { state: ContactState::Disconnected, since: tx.now },
        };
        if !db::artifacts::insert(tx, &new).await? {
            return Err(Error::Internal("a new artifact's id is taken".into()));
        }
        let kind = Some(file.claimed.clone()).filter(|kind| !kind.is_empty());
        attached.push(Attachment { id, name: file.name.clone(), size: file.size, sha256: file.sha256.clone(), kind });
    }
    Ok(attached)
}
