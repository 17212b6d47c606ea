//! The team's library of skills: what is added is read whole, stored by its digest, and may be installed once a person has
//! approved exactly these files.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use protocol::{
    SkillId, SkillInfo, TeamId, ViberId,
    limits::{MAX_SKILL_ARCHIVE_BYTES, MAX_SKILL_BYTES, MAX_SKILL_FILES},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{
    actions::{quota, tokens, unanswered},
    artifacts::Bytestream,
    db::{self, audit::Entry},
    domain::{
        By, LibrarySkill, SkillContents, SkillOrigin, SkillReview, SkillReviewState,
        skills::{BadBundle, SkillBundle, SkillFileMode},
    },
    error::{Error, Result},
    state::Board,
};

/// Versions that a library may have.
const MAX_LIBRARY_SKILLS: u64 = 2_000;
/// Longest note of a review, bytes.
const MAX_NOTE_BYTES: usize = 2_000;
/// How long a viber may take to answer one request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);
/// Archives that are held in memory at once.
static RECEIVING: Semaphore = Semaphore::const_new(2);
/// Readers that hold whole versions in memory at once, two of them at most each.
static READING: Semaphore = Semaphore::const_new(3);

/// Where the files of a new version come from.
struct SkillProvenance {
    origin: SkillOrigin,
    /// What it is called there.
    reference: Option<String>,
}

/// Adds what a bundle holds. The same files under the same name are there once: then that version is returned.
async fn add(
    board: &Board,
    team: &TeamId,
    by: &By,
    from: SkillProvenance,
    bundle: SkillBundle,
) -> Result<LibrarySkill> {
    let looking = tokio::task::spawn_blocking(move || (SkillContents::from(&bundle), bundle.to_tar(), bundle)).await;
    let (contents, tar, bundle) = looking.map_err(|error| Error::Internal(error.to_string()))?;
    check_room(board, team, tar.len() as u64).await?;
    let now = board.clock.now();
    let (stage, archive) = {
        let mut stage = board.store.stage(SkillId::new(now.0).as_str()).map_err(away)?;
        let kept = tokio::task::spawn_blocking(move || stage.write(&tar).map(|()| stage)).await;
        let stage = kept.map_err(|error| Error::Internal(error.to_string()))?.map_err(away)?;
        let sha256 = stage.sha256();
        (stage, sha256)
    };
    let size = stage.len();
    let skill = LibrarySkill {
        id: SkillId::new(now.0),
        name: bundle.name.clone(),
        description: bundle.description.clone(),
        version: bundle.version.clone(),
        origin: from.origin,
        reference: from.reference,
        digest: bundle.digest.clone(),
        archive: archive.clone(),
        size: bundle.size,
        findings: contents.findings.len() as u64,
        review: SkillReview {
            state: SkillReviewState::Unreviewed,
            by: None,
            reviewer: None,
            at: None,
            note: String::new(),
        },
        added_by: by.actor.id().to_owned(),
        adder: by.actor.name().to_owned(),
        added_at: now,
    };
    // The sweep takes away blobs that nothing names.
    let _kept = board.store.sweeping.read().await;
    board.store.keep(stage, team, &archive).await.map_err(away)?;
    let added = board.db.change(team, by, now, move |tx| {
        let (skill, contents) = (skill.clone(), contents.clone());
        Box::pin(async move {
            // Two that add the same at once, or take the last place.
            db::teams::lock(tx).await?;
            if let Some(known) = db::skills::by_digest(tx, &skill.name, &skill.digest).await? {
                return Ok(known);
            }
            if db::skills::count(tx).await? >= MAX_LIBRARY_SKILLS {
                return Err(full());
            }
            if db::blobs::size(tx, &skill.archive).await?.is_none() {
                let storage = db::usage::load(tx).await?.ok_or(Error::NotFound)?;
                quota::check(storage, size)?;
            }
            db::blobs::insert(tx, &skill.archive, size).await?;
            db::skills::insert(tx, &skill, &contents).await?;
            let detail = format!("{} {} {}", skill.name, skill.version.as_deref().unwrap_or(""), skill.digest);
            db::audit::append(tx, Entry::new("skill.add", skill.id.as_str()).detail(&detail)).await?;
            Ok(skill)
        })
    });
    added.await
}

/// An archive that somebody sent. Few are in memory at once.
pub struct ReceivedArchive {
    bytes: Vec<u8>,
    _turn: SemaphorePermit<'static>,
}

/// Reads a body, of at most [`MAX_SKILL_ARCHIVE_BYTES`].
pub async fn receive<E>(mut body: impl Stream<Item = Result<Bytes, E>> + Unpin) -> Result<ReceivedArchive> {
    let turn = RECEIVING.acquire().await.map_err(|error| Error::Internal(error.to_string()))?;
    let mut bytes = Vec::new();
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|_| Error::Malformed("the body ended early or arrived too slowly".into()))?;
        if (bytes.len() + piece.len()) as u64 > MAX_SKILL_ARCHIVE_BYTES {
            return Err(Error::TooLarge("an archive of a skill has at most 24 MiB"));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(ReceivedArchive { bytes, _turn: turn })
}

/// Adds what somebody sent.
pub async fn upload(board: &Board, team: &TeamId, by: &By, archive: ReceivedArchive) -> Result<LibrarySkill> {
    let ReceivedArchive { bytes, _turn } = archive;
    let bundle = read(bytes).await?;
    add(board, team, by, SkillProvenance { origin: SkillOrigin::Upload, reference: None }, bundle).await
}

/// Adds a skill as it lies on a viber.
pub async fn take(board: &Board, team: &TeamId, by: &By, viber: &ViberId, name: &str) -> Result<LibrarySkill> {
    let _turn = RECEIVING.acquire().await.map_err(|error| Error::Internal(error.to_string()))?;
    let bundle = of_viber(board, team, viber, name).await?;
    let reference = Some(viber.to_string());
    add(board, team, by, SkillProvenance { origin: SkillOrigin::Viber, reference }, bundle).await
}

/// The files of a skill, as a viber lists them.
#[derive(Deserialize)]
struct ListedFiles {
    digest: String,
    files: Vec<ListedFile>,
}

#[derive(Deserialize)]
struct ListedFile {
    path: String,
    mode: SkillFileMode,
    size: u64,
}

/// A piece of a file.
#[derive(Deserialize)]
struct FilePiece {
    digest: String,
    data: String,
}

/// The files of a skill on a viber, all of one version.
pub async fn of_viber(board: &Board, team: &TeamId, viber: &ViberId, name: &str) -> Result<SkillBundle> {
    db::vibers::load(&mut board.db.reader_of(team).await?, viber).await?.ok_or(Error::NotFound)?;
    let listed: ListedFiles = ask(board, viber, "skills.read", json!({ "name": name })).await?;
    let total = listed.files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.size));
    if listed.files.len() > MAX_SKILL_FILES || total > MAX_SKILL_BYTES {
        return Err(Error::unacceptable("bad_bundle", "it is larger than a skill of a library may be"));
    }
    let mut files = Vec::new();
    for file in &listed.files {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < file.size {
            let params = json!({ "name": name, "path": file.path, "offset": bytes.len() });
            let piece: FilePiece = ask(board, viber, "skills.read", params).await?;
            let data = BASE64_STANDARD.decode(piece.data).map_err(|_| strange())?;
            let is_more = !data.is_empty() && (bytes.len() + data.len()) as u64 <= file.size;
            if piece.digest != listed.digest || !is_more {
                return Err(Error::conflict("changed", "its files changed while they were read"));
            }
            bytes.extend_from_slice(&data);
        }
        files.push((file.path.clone(), file.mode, bytes));
    }
    let reading = tokio::task::spawn_blocking(move || SkillBundle::from_files(files)).await;
    let bundle = reading.map_err(|error| Error::Internal(error.to_string()))?.map_err(bad)?;
    if bundle.digest != listed.digest {
        return Err(strange());
    }
    Ok(bundle)
}

/// Has a viber read its skills again; returns them.
pub async fn check(board: &Board, team: &TeamId, viber: &ViberId) -> Result<Vec<SkillInfo>> {
    #[derive(Deserialize)]
    struct Listed {
        items: Vec<SkillInfo>,
    }
    db::vibers::load(&mut board.db.reader_of(team).await?, viber).await?.ok_or(Error::NotFound)?;
    let listed: Listed = ask(board, viber, "skills.list", json!({})).await?;
    Ok(listed.items)
}

async fn ask<T: serde::de::DeserializeOwned>(board: &Board, viber: &ViberId, method: &str, params: Value) -> Result<T> {
    let answer = board.hub.request(viber, method, params, ANSWER_TIMEOUT).await.map_err(unanswered::refused)?;
    serde_json::from_value(answer).map_err(|_| strange())
}

fn strange() -> Error {
    Error::unacceptable("viber_refused", "the viber's answer is not understood")
}

/// The bundle in an archive that somebody sent.
async fn read(archive: Vec<u8>) -> Result<SkillBundle> {
    let reading = tokio::task::spawn_blocking(move || SkillBundle::read(&archive)).await;
    let read = reading.map_err(|error| Error::Internal(error.to_string()))?;
    read.map_err(bad)
}

fn bad(bundle: BadBundle) -> Error {
    Error::unacceptable("bad_bundle", bundle.to_string())
}

async fn check_room(board: &Board, team: &TeamId, bytes: u64) -> Result<()> {
    let mut tx = board.db.reader_of(team).await?;
    if db::skills::count(&mut tx).await? >= MAX_LIBRARY_SKILLS {
        return Err(full());
    }
    quota::check(db::usage::load(&mut tx).await?.ok_or(Error::NotFound)?, bytes)
}

fn full() -> Error {
    Error::conflict("library_full", format!("a library holds {MAX_LIBRARY_SKILLS} versions: delete some"))
}

fn away(error: std::io::Error) -> Error {
    tracing::error!(%error, "the object store does not answer");
    Error::Unavailable { what: "the object store", retry_after: 5 }
}

/// One version.
pub async fn load(board: &Board, team: &TeamId, id: &SkillId) -> Result<LibrarySkill> {
    db::skills::load(&mut board.db.reader_of(team).await?, id).await?.ok_or(Error::NotFound)
}

/// One version with what is in it.
pub async fn with_contents(board: &Board, team: &TeamId, id: &SkillId) -> Result<(LibrarySkill, SkillContents)> {
    let mut tx = board.db.reader_of(team).await?;
    let skill = db::skills::load(&mut tx, id).await?.ok_or(Error::NotFound)?;
    let contents = db::skills::contents(&mut tx, id).await?.ok_or(Error::NotFound)?;
    Ok((skill, contents))
}

/// A turn to hold versions in memory, for as long as they are held: however many people look, few do so at once.
pub async fn turn() -> Result<SemaphorePermit<'static>> {
    READING.acquire().await.map_err(|error| Error::Internal(error.to_string()))
}

/// The files of a version. Whoever asks for them has a [`turn`].
pub async fn bundle(board: &Board, team: &TeamId, skill: &LibrarySkill) -> Result<SkillBundle> {
    let bytes = whole(open(board, team, &skill.archive, MAX_SKILL_ARCHIVE_BYTES).await?).await?;
    let reading = tokio::task::spawn_blocking(move || SkillBundle::from_tar(&bytes)).await;
    let read = reading.map_err(|error| Error::Internal(error.to_string()))?;
    let bundle = read.map_err(|bad| Error::Internal(format!("a stored skill: {bad}")))?;
    if bundle.digest != skill.digest {
        tracing::error!(skill.id = %skill.id, "the stored files of a skill are not the ones that were added");
        return Err(Error::Gone("its files in the object store are damaged"));
    }
    Ok(bundle)
}

/// The archive with these files for a viber, and its size, if a version with them is approved.
pub async fn approved_archive(board: &Board, team: &TeamId, digest: &str) -> Result<(Bytestream, u64)> {
    let found = db::skills::approved_archive(&mut board.db.reader_of(team).await?, digest).await?;
    let (sha256, size) = found.ok_or(Error::NotFound)?;
    Ok((open(board, team, &sha256, size).await?, size))
}

async fn open(board: &Board, team: &TeamId, sha256: &str, most: u64) -> Result<Bytestream> {
    let size = db::blobs::size(&mut board.db.reader_of(team).await?, sha256).await?.unwrap_or(0).min(most);
    let found = board.store.read(team, sha256, 0..size).await.map_err(away)?;
    found.ok_or(Error::Gone("the object store does not have its files any more"))
}

async fn whole(mut bytes: Bytestream) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(piece) = bytes.next().await {
        all.extend_from_slice(&piece.map_err(away)?);
    }
    Ok(all)
}

/// A decision about a version, and the files it is about.
#[derive(Clone, Debug)]
pub struct SkillDecision {
    pub state: SkillReviewState,
    pub digest: String,
    pub note: String,
}

/// Approves or rejects a version. Where the team does not let people decide what they asked for, whoever added it does not
/// approve it.
pub async fn review(
    board: &Board,
    team: &TeamId,
    by: &By,
    id: &SkillId,
    decision: SkillDecision,
) -> Result<LibrarySkill> {
    if decision.note.len() > MAX_NOTE_BYTES {
        return Err(Error::unacceptable("note_too_long", format!("a note has at most {MAX_NOTE_BYTES} bytes")));
    }
    let id = id.clone();
    let reviewed = board.change(team, by, move |tx| {
        let (id, decision) = (id.clone(), decision.clone());
        Box::pin(async move {
            let before = db::skills::load(tx, &id).await?.ok_or(Error::NotFound)?;
            if before.digest != decision.digest {
                return Err(Error::conflict("other_files", "the version has other files than the ones that were seen"));
            }
            let settings = db::approvals::settings::load(tx).await?;
            let is_approved = decision.state == SkillReviewState::Approved;
            if is_approved && settings.not_requester && tokens::is_same_person(tx, &before.added_by).await? {
                return Err(Error::Forbidden("the team's settings let somebody else than whoever added it approve it"));
            }
            let review = SkillReview {
                state: decision.state,
                by: Some(tx.by.actor.id().to_owned()),
                reviewer: Some(tx.by.actor.name().to_owned()),
                at: Some(tx.now),
                note: db::clean(&decision.note),
            };
            db::skills::review(tx, &id, &decision.digest, &review).await?;
            let action = if is_approved { "skill.approve" } else { "skill.reject" };
            let detail = format!("{} {}", before.name, before.digest);
            let entry = Entry::new(action, id.as_str()).detail(&detail).before(before.review.state.as_str());
            db::audit::append(tx, entry.after(review.note.as_str())).await?;
            Ok::<_, Error>(LibrarySkill { review, ..before })
        })
    });
    reviewed.await
}

/// Deletes a version from the library. Vibers that have it keep it.
pub async fn delete(board: &Board, team: &TeamId, by: &By, id: &SkillId) -> Result<()> {
    let id = id.clone();
    let deleted = board.change(team, by, move |tx| {
        let id = id.clone();
        Box::pin(async move {
            let skill = db::skills::load(tx, &id).await?.ok_or(Error::NotFound)?;
            db::skills::delete(tx, &id).await?;
            let detail = format!("{} {}", skill.name, skill.digest);
            db::audit::append(tx, Entry::new("skill.delete", id.as_str()).detail(&detail)).await?;
            Ok::<_, Error>(())
        })
    });
    deleted.await
}
