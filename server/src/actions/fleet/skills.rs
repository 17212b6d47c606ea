//! The team's library of skills: what is added is read whole, stored by its digest, and may be installed once a person has
//! approved exactly these files.

mod incoming;
mod of_viber;
mod registry;
mod stored;
mod turns;

use protocol::{SkillId, TeamId};

use self::turns::TeamTurns;
use crate::{
    actions::{quota, tokens},
    db::{self, audit::Entry},
    domain::{
        By, LibrarySkill, SkillContents, SkillOrigin, SkillReview, SkillReviewState,
        skills::{BadBundle, SkillBundle},
    },
    error::{Error, Result},
    state::Board,
};

pub use incoming::{ReceivedArchive, receive};
pub use of_viber::{SkillOnViber, check, files_on, take};
pub use registry::fetch;
pub use stored::{approved_archive, bundle, file, turn};

/// Versions that a library may have.
const MAX_LIBRARY_SKILLS: u64 = 2_000;
/// Longest note of a review, bytes.
const MAX_NOTE_BYTES: usize = 2_000;
/// Archives that are read into memory at once, one of a team. Whoever waits for bytes to arrive has no turn.
static RECEIVING: TeamTurns = TeamTurns::new(2, 1);

/// Where the files of a new version come from.
struct SkillProvenance {
    origin: SkillOrigin,
    /// What it is called there.
    reference: Option<String>,
    /// Its version there, for files that name none.
    version: Option<String>,
}

/// Adds what a bundle holds. The same files under the same name are there once: then that version is returned.
async fn add(
    board: &Board,
    team: &TeamId,
    by: &By,
    from: SkillProvenance,
    bundle: SkillBundle,
) -> Result<LibrarySkill> {
    let looking = tokio::task::spawn_blocking(move || {
        let bundle = bundle.in_folder();
        (SkillContents::from(&bundle), bundle.to_tar(), bundle)
    });
    let looking = looking.await;
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
        version: bundle.version.clone().or(from.version),
        origin: from.origin,
        reference: from.reference,
        digest: bundle.digest.clone(),
        archive: archive.clone(),
        size: bundle.size,
        findings: contents.findings.len() as u64 + contents.omitted_findings,
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

/// Adds what somebody sent.
pub async fn upload(board: &Board, team: &TeamId, by: &By, archive: ReceivedArchive) -> Result<LibrarySkill> {
    let _turn = RECEIVING.of(team).await?;
    let bundle = read(archive.bytes().await?).await?;
    let from = SkillProvenance { origin: SkillOrigin::Upload, reference: None, version: None };
    add(board, team, by, from, bundle).await
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
            let adder = std::slice::from_ref(&before.added_by);
            if is_approved && settings.not_requester && tokens::is_one_of(tx, adder).await? {
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
