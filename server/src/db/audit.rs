//! The audit: who did what, from where, on what. Each row's hash covers the row before it, so that a row changed or
//! taken out by hand is found.

use protocol::{Instant, TeamId};

use super::{Ask, Error, Row, Tx};
use crate::{args, domain::By, secret};

/// What `prev_hash` of the first row is.
const START: &str = "";

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
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
    pub hash: String,
}

impl Entry {
    /// Every field with its length, so that no two rows read the same.
    fn digest(&self, team: &TeamId) -> String {
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
        secret::hash(&fields.map(|field| format!("{}:{field}", field.len())).join("\n"))
    }
}

/// Adds a row inside the change that it tells about. `before` and `after` are the object's text forms; only their
/// hashes are kept. Nothing secret belongs into `detail`.
#[expect(clippy::too_many_arguments, reason = "a row of the audit has these columns, and callers name them in order")]
pub async fn append(
    tx: &mut Tx,
    team: &TeamId,
    now: Instant,
    by: &By,
    action: &str,
    object: &str,
    detail: &str,
    before: Option<&str>,
    after: Option<&str>,
) -> Result<(), Error> {
    lock(tx, team).await?;
    let head = tx.ask(head_ask(team)).await?;
    add(tx, team, head, now, by, action, object, detail, before, after).await
}

/// PostgreSQL runs changes side by side: the chain grows one row at a time. SQLite has one writer.
pub async fn lock(tx: &mut Tx, team: &TeamId) -> Result<(), Error> {
    if !tx.is_sqlite() {
        super::teams::lock(tx, team).await?;
    }
    Ok(())
}

/// The end of a team's chain, behind its lock.
pub struct Head(u64, String);

/// To be asked with others, after `lock`.
pub fn head_ask(team: &TeamId) -> Ask<Head> {
    let sql = "SELECT seq, hash FROM audit WHERE team_id = $1 ORDER BY seq DESC LIMIT 1";
    Ask::new(sql, args![team], |answer| match answer.row() {
        Some(row) => Ok(Head(row.count("seq")?, row.text("hash")?)),
        None => Ok(Head(0, START.to_owned())),
    })
}

/// Adds a row after `head`.
#[expect(clippy::too_many_arguments, reason = "a row of the audit has these columns, and callers name them in order")]
pub async fn add(
    tx: &mut Tx,
    team: &TeamId,
    Head(seq, prev_hash): Head,
    now: Instant,
    by: &By,
    action: &str,
    object: &str,
    detail: &str,
    before: Option<&str>,
    after: Option<&str>,
) -> Result<(), Error> {
    let hash_of = |text: Option<&str>| text.map_or_else(String::new, secret::hash);
    let mut entry = Entry {
        seq: seq + 1,
        at: now,
        actor: by.actor.id().to_owned(),
        actor_name: clean(by.actor.name()),
        address: by.address.clone(),
        action: action.to_owned(),
        object: clean(object),
        detail: clean(detail),
        before_hash: hash_of(before),
        after_hash: hash_of(after),
        prev_hash,
        hash: String::new(),
    };
    entry.hash = entry.digest(team);
    let sql = "INSERT INTO audit (team_id, seq, at, actor, actor_name, address, action, object, detail, before_hash, \
               after_hash, prev_hash, hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
    let args = args![
        team,
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
    tx.execute(sql, args).await.map(drop)
}

/// A page of rows, the newest first, older than `before` (a seq).
pub async fn page(tx: &mut Tx, team: &TeamId, before: Option<u64>, limit: u64) -> Result<Vec<Entry>, Error> {
    let sql = "SELECT seq, at, actor, actor_name, address, action, object, detail, before_hash, after_hash, prev_hash, \
               hash FROM audit WHERE team_id = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3 + 0";
    tx.rows(sql, args![team, before.unwrap_or(u64::MAX), limit]).await?.iter().map(entry).collect()
}

/// Where the chain of a team breaks: the seq of the first row that is not what was written, or `None`.
pub async fn verify(tx: &mut Tx, team: &TeamId) -> Result<Option<u64>, Error> {
    let (mut seq, mut prev) = (0, START.to_owned());
    loop {
        let sql = "SELECT seq, at, actor, actor_name, address, action, object, detail, before_hash, after_hash, \
                   prev_hash, hash FROM audit WHERE team_id = $1 AND seq > $2 ORDER BY seq LIMIT 500";
        let rows = tx.rows(sql, args![team, seq]).await?;
        if rows.is_empty() {
            return Ok(None);
        }
        for row in &rows {
            let entry = entry(row)?;
            if entry.seq != seq + 1 || entry.prev_hash != prev || entry.hash != entry.digest(team) {
                return Ok(Some(seq + 1));
            }
            (seq, prev) = (entry.seq, entry.hash);
        }
    }
}

fn entry(row: &Row) -> Result<Entry, Error> {
    Ok(Entry {
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
