//! Skills as they lie on a viber: asked for file by file, and taken into the library with the same checks as any archive.

use std::{fs::File, io::Read as _, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use protocol::{
    SkillInfo, TeamId, ViberId,
    limits::{MAX_SKILL_BYTES, MAX_SKILL_FILES},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{RECEIVING, SkillProvenance, add, away, bad, incoming::Incoming};
use crate::{
    actions::unanswered,
    artifacts::Stage,
    db,
    domain::{
        By, LibrarySkill, SkillOrigin,
        skills::{SkillBundle, SkillFileMode},
    },
    error::{Error, Result},
    state::Board,
};

/// How long a viber may take to answer one request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);
/// How long all files of a skill may take to arrive: a viber that answers slowly would keep a person waiting for hours.
const TAKE_TIMEOUT: Duration = Duration::from_secs(120);

/// Which skill of a viber is meant.
#[derive(Clone, Copy, Debug)]
pub struct SkillOnViber<'s> {
    pub viber: &'s ViberId,
    pub name: &'s str,
    /// Of several skills of this name the one with these files; without it, the one in use.
    pub digest: Option<&'s str>,
}

/// The files of a skill as they lie on a viber, for somebody who decides about them.
pub async fn files_on(board: &Board, team: &TeamId, wanted: SkillOnViber<'_>) -> Result<ArrivedFiles> {
    let arriving = tokio::time::timeout(TAKE_TIMEOUT, files_of(board, team, wanted)).await;
    let slow = |_| Error::conflict("viber_silent", "the viber did not hand over its files in time");
    arriving.map_err(slow)?
}

/// Adds a skill as it lies on a viber.
pub async fn take(board: &Board, team: &TeamId, by: &By, wanted: SkillOnViber<'_>) -> Result<LibrarySkill> {
    let files = files_on(board, team, wanted).await?;
    let _turn = RECEIVING.of(team).await?;
    let bundle = files.read().await?;
    let reference = Some(wanted.viber.to_string());
    let from = SkillProvenance { origin: SkillOrigin::Viber, reference, version: None };
    add(board, team, by, from, bundle).await
}

/// The files of a skill, as a viber lists them.
#[derive(Deserialize)]
struct ListedFiles {
    digest: String,
    /// How many there are; absent: as many as are listed.
    total: Option<usize>,
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

/// The files of a skill on a viber, all of one version, on the Board's disk and not looked at.
pub struct ArrivedFiles {
    digest: String,
    files: Vec<ListedFile>,
    /// Their bytes, one after the other.
    stage: Stage,
}

impl ArrivedFiles {
    /// The skill that they are. Whoever asks for it has a turn.
    pub async fn read(self) -> Result<SkillBundle> {
        let Self { digest, files, stage } = self;
        let reading = tokio::task::spawn_blocking(move || {
            let mut arrived = File::open(stage.path()).map_err(away)?;
            let mut whole = Vec::new();
            for ListedFile { path, mode, size } in files {
                let mut bytes = vec![0; usize::try_from(size).map_err(|_| strange())?];
                arrived.read_exact(&mut bytes).map_err(away)?;
                whole.push((path, mode, bytes));
            }
            SkillBundle::from_files(whole).map_err(bad)
        });
        let bundle = reading.await.map_err(|error| Error::Internal(error.to_string()))??;
        if bundle.digest == digest { Ok(bundle) } else { Err(strange()) }
    }
}

async fn files_of(board: &Board, team: &TeamId, wanted: SkillOnViber<'_>) -> Result<ArrivedFiles> {
    let SkillOnViber { viber, name, digest: of } = wanted;
    db::vibers::named(&mut board.db.reader_of(team).await?, viber).await?.ok_or(Error::NotFound)?;
    let changed = || Error::conflict("changed", "its files changed while they were read");
    let (mut files, mut digest): (Vec<ListedFile>, Option<String>) = (Vec::new(), of.map(str::to_owned));
    loop {
        let params = json!({ "name": name, "digest": of, "offset": files.len() });
        let listed: ListedFiles = ask(board, viber, "skills.read", params).await?;
        if *digest.get_or_insert_with(|| listed.digest.clone()) != listed.digest {
            return Err(changed());
        }
        let is_last = listed.files.is_empty();
        files.extend(listed.files);
        let bytes = files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.size));
        if files.len() > MAX_SKILL_FILES || bytes > MAX_SKILL_BYTES {
            return Err(Error::unacceptable("bad_bundle", "it is larger than a skill of a library may be"));
        }
        if is_last || listed.total.is_none_or(|total| files.len() >= total) {
            break;
        }
    }
    let digest = digest.ok_or_else(strange)?;
    let mut incoming = Incoming::open(board)?;
    for file in &files {
        let mut arrived = 0;
        while arrived < file.size {
            let params = json!({ "name": name, "digest": of, "path": file.path, "offset": arrived });
            let piece: FilePiece = ask(board, viber, "skills.read", params).await?;
            let data = BASE64_STANDARD.decode(piece.data).map_err(|_| strange())?;
            arrived += data.len() as u64;
            if piece.digest != digest || data.is_empty() || arrived > file.size {
                return Err(changed());
            }
            incoming = incoming.add(&data).await?;
        }
    }
    Ok(ArrivedFiles { digest, files, stage: incoming.finish().await? })
}

/// Has a viber read its skills again; returns them.
pub async fn check(board: &Board, team: &TeamId, viber: &ViberId) -> Result<Vec<SkillInfo>> {
    #[derive(Deserialize)]
    struct Listed {
        items: Vec<SkillInfo>,
    }
    db::vibers::named(&mut board.db.reader_of(team).await?, viber).await?.ok_or(Error::NotFound)?;
    let listed: Listed = ask(board, viber, "skills.list", json!({})).await?;
    Ok(listed.items)
}

async fn ask<T: DeserializeOwned>(board: &Board, viber: &ViberId, method: &str, params: Value) -> Result<T> {
    let answer = board.hub.request(viber, method, params, ANSWER_TIMEOUT).await.map_err(unanswered::refused)?;
    serde_json::from_value(answer).map_err(|_| strange())
}

fn strange() -> Error {
    Error::unacceptable("viber_refused", "the viber's answer is not understood")
}
