//! Entries that wait for their number and seal. On PostgreSQL a team is changed from several sides: if each numbered its own
//! entry, they would wait for each other until their commits are durable. So a change leaves its entry here, with a
//! seal of its own, and [`seal`] moves what is committed into the chain, many at a time.

use protocol::TeamId;

use super::{Change, DbError, Entry, SealedEntry, TeamTx, chain_entries, entry};
use crate::{
    args,
    db::Row,
    secret::audit_keys::{AuditKeys, SealCheck},
};

/// How long an entry with an unknown key is left to the process that made it: commands elsewhere have keys of their own.
const FOREIGN_KEY_GRACE_MS: i64 = 60_000;
/// The `seq` of an entry without a number.
const NO_SEQ: u64 = 0;

/// What the seal of a waiting entry covers: also its id, so that a copy of it is found.
fn sealed_text(team: &TeamId, id: &str, entry: &SealedEntry) -> String {
    format!("{id}\n{}", entry.text(team))
}

/// Leaves an entry for [`seal`].
pub(super) async fn put(tx: &mut Change<'_>, entry: SealedEntry) -> Result<(), DbError> {
    let id = tx.audit_chain().next_entry_id(tx.now);
    let seal = tx.audit_chain().keys()?.seal(&sealed_text(&tx.team, &id, &entry));
    insert(tx, &id, &entry, &seal).await
}

async fn insert(tx: &mut Change<'_>, id: &str, entry: &SealedEntry, seal: &str) -> Result<(), DbError> {
    let sql = "INSERT INTO audit_pending (team_id, entry_id, at, actor, actor_name, address, action, object, detail, \
               before_hash, after_hash, seal) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    let args = args![
        id,
        entry.at,
        &entry.actor,
        &entry.actor_name,
        &entry.address,
        &entry.action,
        &entry.object,
        &entry.detail,
        &entry.before_hash,
        &entry.after_hash,
        seal
    ];
    tx.defer(sql, args).await
}

/// Whether entries of the team wait.
pub async fn is_pending(tx: &mut TeamTx<'_>) -> Result<bool, DbError> {
    Ok(tx.row("SELECT 1 AS n FROM audit_pending WHERE team_id = $1 LIMIT 1", &[]).await?.is_some())
}

/// Numbers and seals waiting entries in the order in which they were made, at most `limit`; returns how many. One that
/// was changed meanwhile is not taken over: an entry says so in its place. One with an unknown key waits a minute longer.
pub async fn seal(tx: &mut Change<'_>, limit: u64) -> Result<u64, DbError> {
    take(tx, limit, false).await
}

/// The same in a backup that is put back, which may have been made where there are other keys: entries with a key that is
/// not here are believed like the rows of its chain, and an entry before them says so.
pub async fn adopt(tx: &mut Change<'_>, limit: u64) -> Result<u64, DbError> {
    take(tx, limit, true).await
}

async fn take(tx: &mut Change<'_>, limit: u64, of_backup: bool) -> Result<u64, DbError> {
    // Another process may seal as well.
    crate::db::teams::lock(tx).await?;
    tx.audit_grows();
    let sql = "DELETE FROM audit_pending WHERE team_id = $1 AND entry_id IN (SELECT entry_id FROM audit_pending \
               WHERE team_id = $1 ORDER BY entry_id LIMIT $2 + 0) RETURNING entry_id, at, actor, actor_name, address, \
               action, object, detail, before_hash, after_hash, seal, 0 AS seq, '' AS prev_hash, '' AS hash";
    let mut rows = tx.rows(sql, args![limit]).await?;
    rows.sort_by_cached_key(|row| row.text("entry_id").unwrap_or_default());
    let keys = tx.audit_chain().keys()?;
    let mut all = waiting(&tx.team, &rows, &keys)?;
    if all.iter().any(|one| matches!(one.check, SealCheck::UnknownKey(_))) {
        // Another process may have made a new key a moment ago.
        let keys = tx.audit_chain().keys_anew()?;
        all = waiting(&tx.team, &rows, &keys)?;
    }
    let mut entries = Vec::with_capacity(all.len() + 1);
    let (mut adopted, mut left) = (false, 0);
    for WaitingEntry { id, entry, seal, check } in all {
        match check {
            SealCheck::Good => entries.push(entry),
            SealCheck::UnknownKey(_) if of_backup => {
                if !std::mem::replace(&mut adopted, true) {
                    let detail = "entries after this one waited for their seal and have a key that is not here";
                    let note = Entry::new("audit.adopt", tx.team.as_str()).detail(detail);
                    entries.push(SealedEntry::unsealed(tx, note));
                }
                entries.push(entry);
            }
            SealCheck::UnknownKey(_) if tx.now.0 - entry.at.0 < FOREIGN_KEY_GRACE_MS => {
                insert(tx, &id, &entry, &seal).await?;
                left += 1;
            }
            SealCheck::UnknownKey(_) => {
                // Left by a command elsewhere, or by nobody of ours: it is not believed, and not lost either.
                let SealedEntry { action, object, actor_name, detail, .. } = entry;
                let said = format!("an entry has an unknown key; it says: {action} {object} by {actor_name} {detail}");
                entries.push(changed(tx, &id, &said));
            }
            SealCheck::Bad => {
                entries.push(changed(tx, &id, "an entry was changed behind the Board's back before it was sealed"));
            }
        }
    }
    chain_entries(tx, entries).await?;
    Ok(rows.len() as u64 - left)
}

/// What stands in the place of an entry that is not as it was left.
fn changed(tx: &Change<'_>, id: &str, detail: &str) -> SealedEntry {
    tracing::error!(team.id = %tx.team, entry.id = id, detail, "an entry of the audit is not as it was left");
    SealedEntry::unsealed(tx, Entry::new("audit.changed", id).detail(detail))
}

/// An entry as it waited.
struct WaitingEntry {
    id: String,
    entry: SealedEntry,
    seal: String,
    check: SealCheck,
}

/// The entries of rows, and whether they are as they were left.
fn waiting(team: &TeamId, rows: &[Row], keys: &AuditKeys) -> Result<Vec<WaitingEntry>, DbError> {
    let one = |row: &Row| {
        let (id, seal) = (row.text("entry_id")?, row.text("seal")?);
        let entry = SealedEntry { seq: NO_SEQ, ..entry(row)? };
        let check = keys.check(&sealed_text(team, &id, &entry), &seal);
        Ok(WaitingEntry { id, entry, seal, check })
    };
    rows.iter().map(one).collect()
}
