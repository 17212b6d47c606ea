//! The audit: who did what, from where, to what. Each row is sealed with a key that is not in the database, and its seal
//! covers the row before it, so that a row that was changed, moved, removed or forged is found. The head, which is kept
//! outside (`guard::audit_files`), shows when the last rows were removed.

mod chain;
mod objects;
mod pending;
mod verify;

use std::{collections::BTreeSet, fmt::Write as _};

use protocol::{Instant, TeamId};

use crate::{
    args,
    db::{Change, DbError, Row, TeamTx, Tx},
    secret::{
        self,
        audit_keys::{AuditKeys, SealCheck},
    },
};

pub use chain::AuditChain;
pub use objects::{AuditObject, objects};
pub use pending::{adopt, is_pending, seal};
pub use verify::{ChainFault, ChainReport, RESTORE_ACTION, verify};

/// What a deleted team's id follows, in the key of the record of its deletion.
const DELETION_PREFIX: &str = "deleted_team.";
/// The `prev_hash` of the first row.
const FIRST_PREV_HASH: &str = "";

/// An entry as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedEntry {
    pub seq: u64,
    pub at: Instant,
    pub actor: String,
    pub actor_name: String,
    pub address: String,
    /// `noun.verb`: `member.role`, `viber.revoke` …
    pub action: String,
    pub object: String,
    pub detail: String,
    /// SHA-256 of the object before and after, empty where there was none.
    pub before_hash: String,
    pub after_hash: String,
    pub prev_hash: String,
    /// `key id.HMAC-SHA256` of the row, which covers `prev_hash`; from Boards without a key a bare SHA-256.
    pub hash: String,
}

impl SealedEntry {
    /// An entry without number and seal.
    fn unsealed(tx: &Change<'_>, entry: Entry<'_>) -> Self {
        let hash_of = |text: Option<&str>| text.map_or_else(String::new, secret::hash);
        Self {
            seq: 0,
            at: tx.now,
            actor: tx.by.actor.id().to_owned(),
            actor_name: clean(tx.by.actor.name()),
            address: tx.by.address.clone(),
            action: entry.action.to_owned(),
            object: clean(entry.object),
            detail: clean(entry.detail),
            before_hash: hash_of(entry.before),
            after_hash: hash_of(entry.after),
            prev_hash: String::new(),
            hash: String::new(),
        }
    }

    /// Every field with its length, so that no two rows read the same.
    fn text(&self, team: &TeamId) -> String {
        let (seq, at) = (self.seq.to_string(), self.at.0.to_string());
        let fields = [
            team.as_str(),
            &seq,
            &at,
            &self.actor,
            &self.actor_name,
            &self.address,
            &self.action,
            &self.object,
            &self.detail,
            &self.before_hash,
            &self.after_hash,
            &self.prev_hash,
        ];
        let bytes: usize = fields.iter().map(|field| field.len() + 6).sum();
        let mut text = String::with_capacity(bytes);
        for field in fields {
            if !text.is_empty() {
                text.push('\n');
            }
            write!(text, "{}:{field}", field.len()).expect("a String has room");
        }
        text
    }

    /// Whether a Board without a key wrote it: then its hash is the SHA-256 of its text.
    pub fn is_unsealed(&self, team: &TeamId) -> bool {
        self.hash == secret::hash(&self.text(team))
    }

    /// Checks its seal; `None` when it has none.
    pub fn sealed(&self, team: &TeamId, keys: Option<&AuditKeys>) -> Option<SealCheck> {
        let (key, _) = self.hash.split_once('.')?;
        Some(match keys {
            Some(keys) => keys.check(&self.text(team), &self.hash),
            None => SealCheck::UnknownKey(key.to_owned()),
        })
    }
}

/// What a change did, for the audit. `before` and `after` are the object's text forms; only their hashes are stored.
/// Nothing secret belongs in `detail`.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    action: &'a str,
    object: &'a str,
    detail: &'a str,
    before: Option<&'a str>,
    after: Option<&'a str>,
}

impl<'a> Entry<'a> {
    /// `action` is `noun.verb`.
    pub fn new(action: &'a str, object: &'a str) -> Self {
        Self { action, object, detail: "", before: None, after: None }
    }

    /// Adds a text for people.
    pub fn detail(self, detail: &'a str) -> Self {
        Self { detail, ..self }
    }

    /// Adds the object's state before the change.
    pub fn before(self, before: impl Into<Option<&'a str>>) -> Self {
        Self { before: before.into(), ..self }
    }

    /// Adds the object's state after the change.
    pub fn after(self, after: impl Into<Option<&'a str>>) -> Self {
        Self { after: after.into(), ..self }
    }
}

/// Adds an entry inside the change that it describes. On PostgreSQL it gets its number and seal after the commit: see
/// [`seal`].
pub async fn append(tx: &mut Change<'_>, entry: Entry<'_>) -> Result<(), DbError> {
    tx.audit_grows();
    let entry = SealedEntry::unsealed(tx, entry);
    if tx.is_sqlite() { chain_entries(tx, vec![entry]).await } else { pending::put(tx, entry).await }
}

/// Adds entries to the chain, in order. Nobody else may add to it at the same time.
async fn chain_entries(tx: &mut Change<'_>, entries: Vec<SealedEntry>) -> Result<(), DbError> {
    let (mut seq, mut prev_hash) = match tx.audit_end() {
        Some(end) => end,
        None => end(tx).await?,
    };
    let keys = tx.audit_chain().keys()?;
    for mut entry in entries {
        seq += 1;
        (entry.seq, entry.prev_hash) = (seq, prev_hash);
        entry.hash = keys.seal(&entry.text(&tx.team));
        let sql = "INSERT INTO audit (team_id, seq, at, actor, actor_name, address, action, object, detail, before_hash, \
                   after_hash, prev_hash, hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
        let args = args![
            entry.seq,
            entry.at,
            &entry.actor,
            &entry.actor_name,
            &entry.address,
            &entry.action,
            &entry.object,
            &entry.detail,
            &entry.before_hash,
            &entry.after_hash,
            &entry.prev_hash,
            &entry.hash
        ];
        tx.defer(sql, args).await?;
        prev_hash = entry.hash;
    }
    tx.set_audit_end((seq, prev_hash));
    Ok(())
}

/// The number and hash of the chain's last row.
async fn end(tx: &mut TeamTx<'_>) -> Result<(u64, String), DbError> {
    let sql = "SELECT seq, hash FROM audit WHERE team_id = $1 AND seq > 0 ORDER BY seq DESC LIMIT 1";
    match tx.row(sql, &[]).await? {
        Some(row) => Ok((row.count("seq")?, row.text("hash")?)),
        None => Ok((0, FIRST_PREV_HASH.to_owned())),
    }
}

/// A page of rows, the newest first, older than `before` (a seq). No Board writes a row below 1: `verify` reports it, and
/// reading the audit ignores it.
pub async fn page(tx: &mut TeamTx<'_>, before: Option<u64>, limit: u64) -> Result<Vec<SealedEntry>, DbError> {
    let sql = "SELECT seq, at, actor, actor_name, address, action, object, detail, before_hash, after_hash, prev_hash, \
               hash FROM audit WHERE team_id = $1 AND seq > 0 AND seq < $2 ORDER BY seq DESC LIMIT $3 + 0";
    tx.rows(sql, args![before.unwrap_or(u64::MAX), limit]).await?.iter().map(entry).collect()
}

/// The newest row of a team.
pub async fn newest(tx: &mut TeamTx<'_>) -> Result<Option<SealedEntry>, DbError> {
    Ok(page(tx, None, 1).await?.pop())
}

/// The newest row of each team that has one, at most `limit` teams.
pub async fn newest_of_teams(tx: &mut Tx, limit: u64) -> Result<Vec<(TeamId, SealedEntry)>, DbError> {
    let sql = "SELECT a.team_id, a.seq, a.at, a.actor, a.actor_name, a.address, a.action, a.object, a.detail, \
               a.before_hash, a.after_hash, a.prev_hash, a.hash FROM (SELECT t.team_id, (SELECT x.seq FROM audit x \
               WHERE x.team_id = t.team_id AND x.seq > 0 ORDER BY x.seq DESC LIMIT 1) AS seq FROM teams t \
               ORDER BY t.team_id LIMIT $1 + 0) n CROSS JOIN audit a WHERE a.team_id = n.team_id AND a.seq = n.seq";
    tx.rows(sql, args![limit]).await?.iter().map(|row| Ok((row.parse("team_id")?, entry(row)?))).collect()
}

/// Teams whose audit has entries that wait for their number, or whose deletion is recorded.
pub async fn unsettled(tx: &mut Tx) -> Result<BTreeSet<TeamId>, DbError> {
    let waiting = tx.rows("SELECT DISTINCT team_id FROM audit_pending", &[]).await?;
    let sql = "SELECT key FROM board WHERE key LIKE 'deleted!_team.%' ESCAPE '!'";
    let deleted = tx.rows(sql, &[]).await?;
    let mut teams: BTreeSet<TeamId> = waiting.iter().map(|row| row.parse("team_id")).collect::<Result<_, _>>()?;
    for row in &deleted {
        teams.extend(row.text("key")?.strip_prefix(DELETION_PREFIX).and_then(|id| id.parse().ok()));
    }
    Ok(teams)
}

/// The hash of one row.
pub async fn hash_at(tx: &mut TeamTx<'_>, seq: u64) -> Result<Option<String>, DbError> {
    let row = tx.row("SELECT hash FROM audit WHERE team_id = $1 AND seq = $2", args![seq]).await?;
    row.map(|row| row.text("hash")).transpose()
}

/// Records that the Board itself deleted a team and its audit. The record is sealed, so that nobody who has only the
/// database can forge it.
pub async fn mark_team_deleted(tx: &mut Change<'_>) -> Result<(), DbError> {
    let said = deletion(&tx.team, tx.now);
    let note = format!("{} {}", tx.now.0, tx.audit_chain().keys()?.seal(&said));
    tx.audit_grows();
    tx.forget_audit_end();
    let key = deletion_key(&tx.team);
    crate::db::settings::set(tx.without_team(), &key, &note).await
}

/// Whether the Board itself deleted a team, according to a record with a valid seal.
pub async fn is_team_deleted(tx: &mut TeamTx<'_>, keys: &AuditKeys) -> Result<bool, DbError> {
    let key = deletion_key(&tx.team);
    let note = crate::db::settings::value(tx.without_team(), &key).await?;
    Ok(note.as_deref().and_then(|note| note.split_once(' ')).is_some_and(|(at, seal)| {
        at.parse().is_ok_and(|at| keys.check(&deletion(&tx.team, Instant(at)), seal) == SealCheck::Good)
    }))
}

fn deletion_key(team: &TeamId) -> String {
    format!("{DELETION_PREFIX}{team}")
}

fn deletion(team: &TeamId, at: Instant) -> String {
    format!("team {team} was deleted at {}", at.0)
}

fn entry(row: &Row) -> Result<SealedEntry, DbError> {
    Ok(SealedEntry {
        seq: row.count("seq")?,
        at: row.instant("at")?,
        actor: row.text("actor")?,
        actor_name: row.text("actor_name")?,
        address: row.text("address")?,
        action: row.text("action")?,
        object: row.text("object")?,
        detail: row.text("detail")?,
        before_hash: row.text("before_hash")?,
        after_hash: row.text("after_hash")?,
        prev_hash: row.text("prev_hash")?,
        hash: row.text("hash")?,
    })
}

/// One line without control characters: rows are read in terminals too.
fn clean(text: &str) -> String {
    let one_line = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    one_line.take(500).collect()
}
