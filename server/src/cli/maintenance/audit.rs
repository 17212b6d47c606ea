//! What `doctor` and `restore` check in the audit: every row with its seal, and the heads that are kept outside the database.

use std::collections::BTreeMap;

use protocol::TeamId;

use super::doctor::Findings;
use crate::{
    actions::audit::restoring,
    config::Config,
    db::{self, Db, DbError, audit::ChainReport},
    guard::audit_files::{AuditFolder, ChainHeads},
    secret::audit_keys::AuditKeys,
};

/// The most teams that are checked.
const MAX_TEAMS: u64 = 100_000;

/// Checks the audits of all teams.
pub async fn check(config: &Config, db: &Db, found: &mut Findings) -> Result<(), DbError> {
    let folder = AuditFolder::of(&config.data);
    let keys = match folder.keys() {
        Ok(Some(keys)) => keys,
        Ok(None) => return without_keys(&folder, db, found).await,
        Err(bad) => {
            found.bad("audit", bad);
            return Ok(());
        }
    };
    // Read before the rows, which only grow: what is written meanwhile comes after the head.
    let heads = match folder.heads(&keys) {
        Ok(heads) => heads,
        Err(bad) => {
            found.bad("audit", bad);
            Some(ChainHeads::default())
        }
    };
    let restored = restored(&folder, &keys, db, found).await?;
    let unsealed = folder.is_begun() && restored.is_none();
    let heads = restored.or(heads);
    let all = read(db, Some(&keys), heads.as_ref()).await?;
    let sealed = all.values().any(|(_, report)| report.rows > 0) && !unsealed;
    if heads.is_none() && sealed {
        found.bad(
            "audit",
            format_args!(
                "its head, {}, is missing: it cannot be checked whether its end was cut off",
                folder.path().join("head").display()
            ),
        );
    }
    let mut good = true;
    for (slug, report) in all.values() {
        if let Some(fault) = report.fault.as_ref().filter(|_| !unsealed) {
            found.bad("audit", format_args!("of team {slug}: {fault}"));
            good = false;
            continue;
        }
        if report.unknown > 0 {
            found.warn(
                "audit",
                format_args!(
                    "of team {slug}: rows 1 to {} were sealed with a key that is missing here",
                    report.unknown
                ),
            );
        }
        if let Some((at, seq)) = report.restored {
            found.warn(
                "audit",
                format_args!("of team {slug}: a backup was restored at {at} (row {seq}); rows written after it was made are missing"),
            );
        }
    }
    for team in heads.iter().flat_map(|heads| heads.0.keys()).filter(|team| !all.contains_key(team)) {
        let is_deleted = db::audit::is_team_deleted(&mut db.reader_of(team).await?, &keys).await?;
        if !is_deleted {
            found.bad(
                "audit",
                format_args!("of team {team}: the team is gone with its audit, and this Board did not delete it"),
            );
            good = false;
        }
    }
    if good && (heads.is_some() || !sealed) {
        let rows: u64 = all.values().map(|(_, report)| report.rows).sum();
        found.good("audit", format_args!("every row is as it was written, {rows} rows sealed with {}", keys.sealing()));
    }
    Ok(())
}

/// The heads of a restore that ended after it replaced the database and before it adopted its heads.
async fn restored(
    folder: &AuditFolder,
    keys: &AuditKeys,
    db: &Db,
    found: &mut Findings,
) -> Result<Option<ChainHeads>, DbError> {
    let restoring = match folder.restoring(keys) {
        Ok(restoring) => restoring,
        Err(bad) => {
            found.bad("audit", bad);
            None
        }
    };
    let Some(restoring) = restoring else { return Ok(None) };
    if !restoring::is_in_place(db, &restoring).await? {
        return Ok(None);
    }
    found.warn("audit", "a restore was interrupted before its last step; serve or restore completes it");
    Ok(Some(restoring.heads))
}

async fn without_keys(folder: &AuditFolder, db: &Db, found: &mut Findings) -> Result<(), DbError> {
    let all = read(db, None, None).await?;
    if let Some((slug, fault)) = all.values().find_map(|(slug, report)| Some((slug, report.fault.as_ref()?))) {
        found.bad("audit", format_args!("of team {slug}: {fault}"));
    } else if all.values().any(|(_, report)| report.unknown > 0) {
        found.bad("audit", format_args!("the keys that sealed it are not in {}", folder.path().display()));
    } else {
        found.warn("audit", "not sealed yet; serve creates a key and seals it");
    }
    Ok(())
}

/// The first audit that is not as it was written, in words. The database may come from elsewhere, so that unknown keys and
/// an older end are no fault.
pub async fn broken(config: &Config, db: &Db) -> Result<Option<String>, DbError> {
    let keys = AuditFolder::of(&config.data).keys().ok().flatten();
    let own = read(db, keys.as_ref(), None).await?;
    let fault = own.into_values().find_map(|(slug, report)| {
        let fault = report.fault.filter(|fault| !matches!(fault, db::audit::ChainFault::NeverSealed { .. }))?;
        Some(format!("the audit of team {slug}: {fault}"))
    });
    Ok(fault)
}

/// The report about each team's chain, with the team's slug.
async fn read(
    db: &Db,
    keys: Option<&AuditKeys>,
    heads: Option<&ChainHeads>,
) -> Result<BTreeMap<TeamId, (String, ChainReport)>, DbError> {
    let teams = db::teams::all(&mut *db.reader().await?, MAX_TEAMS).await?;
    let mut all = BTreeMap::new();
    for team in teams {
        let head = heads.and_then(|heads| heads.0.get(&team.id)).map(|head| (head.seq, head.hash.as_str()));
        let report = db::audit::verify(&mut db.reader_of(&team.id).await?, keys, head).await?;
        all.insert(team.id, (team.slug, report));
    }
    Ok(all)
}
