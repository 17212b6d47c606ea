//! Skills of the registry that the administrator named: fetched, and from then on taken in like what somebody uploaded.

use protocol::{TeamId, limits::MAX_SKILL_ARCHIVE_BYTES};

use super::{RECEIVING, SkillProvenance, add, check_room, read};
use crate::{
    domain::{By, LibrarySkill, SkillOrigin},
    error::{Error, Result},
    registry::{RegistryError, RegistryReference},
    state::Board,
};

/// Adds what the registry has under a name, `clawhub:SLUG@VERSION`. Takes up to 30 s before it is read.
pub async fn fetch(board: &Board, team: &TeamId, by: &By, source: &str) -> Result<LibrarySkill> {
    let bad_source = |why: &str| Error::unacceptable("bad_source", why);
    let wanted = source.parse::<RegistryReference>().map_err(bad_source)?;
    let registry = board.registry.as_ref();
    let registry = registry.ok_or_else(|| bad_source("this Board has no registry: its administrator names one"))?;
    check_room(board, team, 0).await?;
    let archive = registry.fetch(team, &wanted, MAX_SKILL_ARCHIVE_BYTES).await.map_err(refused)?;
    let _turn = RECEIVING.of(team).await?;
    let bundle = read(archive).await?;
    let reference = Some(wanted.to_string());
    let from = SkillProvenance { origin: SkillOrigin::Clawhub, reference, version: Some(wanted.version) };
    add(board, team, by, from, bundle).await
}

/// Why there is nothing to take in.
fn refused(error: RegistryError) -> Error {
    match error {
        RegistryError::Missing => Error::unacceptable("not_in_registry", "the registry has no such skill and version"),
        RegistryError::Withheld => {
            let why = "the registry does not hand it out: it is blocked there, hidden, or still being checked";
            Error::unacceptable("not_in_registry", why)
        }
        RegistryError::Ambiguous => {
            let why = "several publishers have a skill of this name: write clawhub:@OWNER/SLUG@VERSION";
            Error::unacceptable("bad_source", why)
        }
        RegistryError::TooLarge => Error::unacceptable("bad_bundle", "an archive of a skill has at most 24 MiB"),
        RegistryError::Busy => Error::Throttled { retry_after: 10 },
        RegistryError::Away { why, retry_after } => Error::RegistryAway { why, retry_after },
    }
}
