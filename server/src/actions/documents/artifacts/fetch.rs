//! An artifact that only its viber has: the viber is asked to upload it, and readers follow what arrives.

use std::{sync::Arc, time::Duration};

use protocol::TeamId;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{OpenedArtifact, RequestedRange};
use crate::{
    actions::AfterCommit,
    artifacts::{HELD_BACK_BYTES, Transit, TransitEnd, WantedBlob},
    db,
    domain::{Artifact, By},
    error::{Error, Result},
    hub::RequestError,
    state::Board,
};

/// How long a viber may take to accept an upload request: it may have to hash the whole file first.
const OFFER_TIMEOUT: Duration = Duration::from_secs(15);
/// When nothing arrives for this long and no upload is under way, the viber is asked again: it may have been restarted.
const QUIET_INTERVAL: Duration = Duration::from_secs(4);
/// After this many quiet intervals in a row the upload is given up.
const MAX_QUIET_INTERVALS: u32 = 8;
/// How long a reader waits for the first bytes.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(40);

/// Opens it. `Ok` means that bytes are arriving; the reason why none arrive is an error instead.
pub(super) async fn open(
    board: &Board,
    team: &TeamId,
    artifact: Artifact,
    wanted: RequestedRange,
) -> Result<OpenedArtifact> {
    let away = Error::Offline { since: artifact.contact.since };
    if !board.hub.is_connected(&artifact.viber_id) {
        return Err(away);
    }
    let (size, sha256) = match (artifact.size, artifact.sha256.clone()) {
        (Some(size), Some(sha256)) => (size, sha256),
        _ => measure(board, team, &artifact).await?,
    };
    let range = wanted.of(size).ok_or(Error::BadRange { size })?;
    check_size(board, team, size).await?;
    let want = WantedBlob {
        team: team.clone(),
        viber: artifact.viber_id.clone(),
        artifact: artifact.id.clone(),
        size,
        sha256,
    };
    let stage = || board.store.stage(artifact.id.as_str());
    let (transit, new) = board.store.transits.join(want, stage).map_err(|error| {
        tracing::error!(%error, "nothing can be staged");
        Error::Unavailable { what: "the disk for artifacts", retry_after: 30 }
    })?;
    if new {
        board.shutdown.spawn(drive(board.clone(), transit.clone(), artifact.clone()));
    }
    let mut progress = transit.watch();
    let first =
        timeout(FIRST_BYTES_TIMEOUT, progress.wait_for(|now| now.end.is_some() || now.received > HELD_BACK_BYTES))
            .await;
    let end = match first {
        Ok(Ok(now)) => now.end,
        _ => Some(TransitEnd::Stalled),
    };
    match end {
        None | Some(TransitEnd::Stored | TransitEnd::Passed) => {}
        Some(TransitEnd::Gone) => return Err(Error::Gone("the viber does not have it any more")),
        Some(TransitEnd::Mismatch) => {
            return Err(Error::conflict("hash_mismatch", "the viber sent other bytes than it had announced"));
        }
        Some(TransitEnd::Refused) => return Err(Error::conflict("refused", "the viber refuses to give it")),
        Some(TransitEnd::Stalled) => return Err(away),
        Some(TransitEnd::NotKept) => return Err(Error::Unavailable { what: "the object store", retry_after: 5 }),
    }
    let bytes = transit.read(range.clone()).map_err(|error| Error::Internal(error.to_string()))?;
    Ok(OpenedArtifact { artifact, size, range, bytes })
}

async fn check_size(board: &Board, team: &TeamId, size: u64) -> Result<()> {
    let bounds = db::blobs::bounds(&mut board.db.reader_of(team).await?).await?;
    if bounds.is_some_and(|bounds| size > bounds.bytes) {
        return Err(Error::TooLarge("it is larger than this team allows; an owner can change that in the settings"));
    }
    Ok(())
}

/// Drives a transit until it has ended.
async fn drive(board: Board, transit: Arc<Transit>, artifact: Artifact) {
    let mut progress = transit.watch();
    let mut quiet = 0;
    while progress.borrow_and_update().end.is_none() {
        if !transit.is_written() {
            let params = json!({
                "artifactId": artifact.id, "ref": artifact.reference, "name": artifact.name,
                "sha256": transit.want.sha256, "size": transit.want.size,
            });
            if let Err(RequestError::Refused(why)) = ask(&board, &artifact, params).await
                && !is_busy(&why)
            {
                transit.end(refused(&artifact, &why));
                break;
            }
        }
        // An upload that makes progress is waited for, and so is the store, however long it takes.
        while let Ok(Ok(())) = timeout(QUIET_INTERVAL, progress.changed()).await {
            quiet = 0;
            if progress.borrow_and_update().keeping {
                drop(progress.wait_for(|now| now.end.is_some()).await);
            }
            if progress.borrow().end.is_some() {
                break;
            }
        }
        quiet += 1;
        if quiet >= MAX_QUIET_INTERVALS {
            transit.end(TransitEnd::Stalled);
        }
    }
    board.store.transits.leave(&transit);
    transit.drop_stage();
    let mut after = AfterCommit::default();
    after.session(&artifact.session_id);
    after.publish(&board, &transit.want.team);
}

async fn ask(board: &Board, artifact: &Artifact, params: Value) -> Result<Value, RequestError> {
    let turn = board.store.transits.turn(&artifact.viber_id);
    let _turn = turn.acquire_owned().await.map_err(|_| RequestError::Disconnected)?;
    board.hub.request(&artifact.viber_id, "artifact.offer", params, OFFER_TIMEOUT).await
}

/// Whether the viber refused only because it is busy.
fn is_busy(why: &str) -> bool {
    why.starts_with("too many requests")
}

/// What a viber's refusal means; its first word is a code.
fn refused(artifact: &Artifact, why: &str) -> TransitEnd {
    tracing::info!(artifact.id = %artifact.id, why = protocol::text::head(why, 200), "the viber does not give it");
    match why.split(':').next() {
        Some("gone" | "changed") => TransitEnd::Gone,
        _ => TransitEnd::Refused,
    }
}

/// Asks the viber for the size and hash of an artifact that was announced without them.
async fn measure(board: &Board, team: &TeamId, artifact: &Artifact) -> Result<(u64, String)> {
    let params = json!({ "artifactId": artifact.id, "ref": artifact.reference, "name": artifact.name });
    let answer = match ask(board, artifact, params).await {
        Ok(answer) => answer,
        Err(RequestError::Refused(why)) if !is_busy(&why) => {
            return Err(match refused(artifact, &why) {
                TransitEnd::Gone => Error::Gone("the viber does not have it any more"),
                _ => Error::conflict("refused", "the viber refuses to give it"),
            });
        }
        Err(_) => return Err(Error::Offline { since: artifact.contact.since }),
    };
    let size = answer["size"].as_u64();
    let sha256 = answer["sha256"].as_str().filter(|sha256| is_sha256(sha256));
    let (Some(size), Some(sha256)) = (size, sha256) else {
        return Err(Error::conflict("refused", "the viber does not say what it would send"));
    };
    let sniffed = protocol::text::head(answer["sniffed"].as_str().unwrap_or(""), 100).to_owned();
    let (id, hash) = (artifact.id.clone(), sha256.to_owned());
    let noting = board.change(team, &By::board(), move |tx| {
        let (id, hash, sniffed) = (id.clone(), hash.clone(), sniffed.clone());
        Box::pin(async move { db::artifacts::measured(tx, &id, size, &hash, &sniffed).await })
    });
    noting.await?;
    Ok((size, sha256.to_owned()))
}

/// Whether a text is a SHA-256 in lower-case hexadecimal.
pub(in crate::actions) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
