//! Maintaining the audit: its keys, rows from before there were keys, and its heads, which are kept outside of the database.
//!
//! On PostgreSQL entries are numbered and sealed after the commit of what they describe, by at most a second.
//!
//! The heads follow what is committed by at most a second and never lead: a Board that is killed in between finds rows
//! that its heads do not know, which is harmless. They never move back either. When the row that a head names is gone,
//! the head stays as it is, so that `doctor` finds it.

pub mod restoring;

use std::collections::{BTreeMap, BTreeSet};

use protocol::{Instant, TeamId};

use crate::{
    db::{
        self, Db,
        audit::{AuditObject, Entry, SealedEntry},
    },
    domain::{By, Team},
    error::{Error, Result},
    guard::audit_files::{AuditFolder, ChainHead, ChainHeads, HeadLock},
    secret::audit_keys::{AuditKeys, SealCheck},
    state::Board,
};

/// Entries that are sealed in one change.
const ENTRIES_PER_CHANGE: u64 = 64;
/// Teams that are read.
const MAX_TEAMS: u64 = 100_000;

/// Call it once before a Board changes anything, with its keys in place. At the first start with a key, a new row seals the
/// last row from before, and through it the whole chain.
pub async fn begin(board: &Board) -> Result<()> {
    let folder = folder(board);
    if let Err(error) = restoring::settle(&board.db, &folder).await {
        // People can work even when the audit is damaged.
        tracing::error!(%error, "the audit's heads of a restore could not be taken over");
    }
    if !folder.is_begun() {
        return Ok(());
    }
    let lock = lock(&folder).await?;
    if !folder.is_begun() {
        return Ok(());
    }
    let keys = board.db.audit_chain().keys()?;
    seal_older(&board.db, board.clock.now(), &keys).await?;
    crate::fault::at("audit::sealed");
    folder.put(&heads(&board.db, board.clock.now()).await?, &keys, &lock).map_err(broken)?;
    folder.begin_done().map_err(broken)
}

/// Adds a row that seals rows written without a key, or with a key that is not here.
async fn seal_older(db: &Db, now: Instant, keys: &AuditKeys) -> Result<()> {
    for team in teams(db).await? {
        let Some(newest) = newest(db, now, &team.id).await? else { continue };
        match newest.sealed(&team.id, Some(keys)) {
            Some(SealCheck::Good) => {}
            Some(_) => {
                note(db, now, &team.id, "audit.adopt", "rows before this one have a key that is not here").await?;
            }
            None => note(db, now, &team.id, "audit.seal", "rows before this one had no key").await?,
        }
    }
    Ok(())
}

/// Moves the heads to what was committed since the last call.
pub async fn follow(board: &Board) -> Result<()> {
    let grown = board.db.audit_chain().take_grown();
    let followed = move_heads(board, &grown).await;
    if followed.is_err() {
        board.db.audit_chain().put_back(grown);
    }
    followed
}

/// Brings all heads up to date: after a start, because the process before may have been killed before it did.
pub async fn follow_all(board: &Board) -> Result<()> {
    restoring::finish(&board.db, &folder(board)).await?;
    let mut all: BTreeSet<TeamId> = teams(&board.db).await?.into_iter().map(|team| team.id).collect();
    let keys = board.db.audit_chain().keys()?;
    if let Some(heads) = folder(board).heads(&keys).ok().flatten() {
        // Deleted teams still have heads.
        all.extend(heads.0.keys().cloned());
        all = moved(&board.db, &heads, &keys, all).await?;
    }
    move_heads(board, &all).await
}

/// Those of `teams` for which something is to be done. For the others the head names the last row of their audit, which
/// bears its seal, or there is neither a head nor a row. Two queries tell that of all teams, so that a start costs about the
/// same however many there are.
async fn moved(db: &Db, heads: &ChainHeads, keys: &AuditKeys, teams: BTreeSet<TeamId>) -> Result<BTreeSet<TeamId>> {
    let mut tx = db.reader().await?;
    let unsettled = db::audit::unsettled(&mut tx).await?;
    let newest: BTreeMap<_, _> = db::audit::newest_of_teams(&mut tx, MAX_TEAMS).await?.into_iter().collect();
    let is_moved = |team: &TeamId| match (heads.0.get(team), newest.get(team)) {
        (Some(head), Some(row)) => {
            head.seq != row.seq || head.hash != row.hash || row.sealed(team, Some(keys)) != Some(SealCheck::Good)
        }
        // Those of more teams were not read.
        (None, None) => newest.len() as u64 >= MAX_TEAMS,
        _ => true,
    };
    Ok(teams.into_iter().filter(|team| unsettled.contains(team) || is_moved(team)).collect())
}

/// Accepts the audit as it is, when somebody knows why `doctor` complains: adds a row to every team's audit that says so.
/// Returns the number of teams.
pub async fn accept(board: &Board, action: &str, detail: &str) -> Result<usize> {
    let folder = folder(board);
    let lock = lock(&folder).await?;
    let keys = board.db.audit_chain().keys()?;
    let teams = teams(&board.db).await?;
    for team in &teams {
        note(&board.db, board.clock.now(), &team.id, action, detail).await?;
    }
    folder.put(&heads(&board.db, board.clock.now()).await?, &keys, &lock).map_err(broken)?;
    folder.begin_done().map_err(broken)?;
    Ok(teams.len())
}

/// A page of a team's audit, the newest row first, older than `before`, with all that is committed.
pub async fn page(board: &Board, team: &TeamId, before: Option<u64>, limit: u64) -> Result<Vec<SealedEntry>> {
    seal(&board.db, board.clock.now(), team).await?;
    Ok(db::audit::page(&mut board.db.reader_of(team).await?, before, limit).await?)
}

/// What the rows of such a page are about, by name.
pub async fn objects(board: &Board, team: &TeamId, before: Option<u64>, limit: u64) -> Result<Vec<AuditObject>> {
    Ok(db::audit::objects(&mut board.db.reader_of(team).await?, before, limit).await?)
}

/// Gives committed entries of a team their numbers and seals.
async fn seal(db: &Db, now: Instant, team: &TeamId) -> Result<()> {
    while db::audit::is_pending(&mut db.reader_of(team).await?).await? {
        let sealed = db.change(team, &By::board(), now, |tx| {
            Box::pin(async move { db::audit::seal(tx, ENTRIES_PER_CHANGE).await })
        });
        if sealed.await? == 0 {
            break;
        }
    }
    Ok(())
}

/// The same in a backup that is put back.
async fn adopt(db: &Db, now: Instant, team: &TeamId) -> Result<()> {
    while db::audit::is_pending(&mut db.reader_of(team).await?).await? {
        let adopted = db.change(team, &By::board(), now, |tx| {
            Box::pin(async move { db::audit::adopt(tx, ENTRIES_PER_CHANGE).await })
        });
        if adopted.await? == 0 {
            break;
        }
    }
    Ok(())
}

async fn move_heads(board: &Board, grown: &BTreeSet<TeamId>) -> Result<()> {
    if grown.is_empty() {
        return Ok(());
    }
    // Teams do not hold up each other.
    let (mut sealed, mut failed) = (BTreeSet::new(), None);
    for team in grown {
        match seal(&board.db, board.clock.now(), team).await {
            Ok(()) => drop(sealed.insert(team)),
            Err(error) => failed = Some(error),
        }
    }
    crate::fault::at("audit::before_head");
    let folder = folder(board);
    let lock = lock(&folder).await?;
    // Read again: another process may have replaced the key a moment ago.
    let keys = folder.keys().map_err(|bad| Error::Internal(bad.to_string()))?;
    let keys = keys.ok_or_else(|| Error::Internal("the audit's keys are missing".into()))?;
    let Some(was) = folder.heads(&keys).map_err(|error| Error::Internal(error.to_string()))? else {
        return Err(Error::Internal("the audit's head is missing: see `viber-board doctor`".into()));
    };
    let mut heads = was.clone();
    for team in sealed {
        let moved = match heads.0.get(team) {
            Some(old) => after(board, team, old, &keys).await?,
            None => {
                let newest = newest(&board.db, board.clock.now(), team).await?;
                newest.map_or(HeadMove::Gone, |row| HeadMove::to(row, team, &keys))
            }
        };
        match moved {
            HeadMove::To(head) => drop(heads.0.insert(team.clone(), head)),
            HeadMove::Gone => drop(heads.0.remove(team)),
            HeadMove::Broken => tracing::error!(
                team.id = %team,
                "the audit of a team was changed behind the Board's back: see `viber-board doctor`"
            ),
        }
    }
    if heads != was {
        folder.put(&heads, &keys, &lock).map_err(broken)?;
    }
    failed.map_or(Ok(()), Err)
}

/// How a head changes.
enum HeadMove {
    To(ChainHead),
    /// The Board itself deleted the team, or it never had a row.
    Gone,
    /// It stays: the row that it names is gone or was changed.
    Broken,
}

impl HeadMove {
    fn to(row: SealedEntry, team: &TeamId, keys: &AuditKeys) -> Self {
        match row.sealed(team, Some(keys)) {
            Some(SealCheck::Good) => Self::To(ChainHead { seq: row.seq, hash: row.hash }),
            _ => Self::Broken,
        }
    }
}

/// How the head changes, according to the rows after it.
async fn after(board: &Board, team: &TeamId, old: &ChainHead, keys: &AuditKeys) -> Result<HeadMove> {
    // The rows of a deleted team are removed piece by piece.
    let is_deleted = db::audit::is_team_deleted(&mut board.db.reader_of(team).await?, keys).await?;
    if is_deleted {
        return Ok(HeadMove::Gone);
    }
    let at = db::audit::hash_at(&mut board.db.reader_of(team).await?, old.seq).await?;
    if at.as_ref() != Some(&old.hash) {
        return Ok(HeadMove::Broken);
    }
    let newest = newest(&board.db, board.clock.now(), team).await?;
    Ok(newest.map_or(HeadMove::Broken, |row| HeadMove::to(row, team, keys)))
}

/// The newest row of each team.
async fn heads(db: &Db, now: Instant) -> Result<ChainHeads> {
    let mut heads = ChainHeads::default();
    for team in teams(db).await? {
        if let Some(row) = newest(db, now, &team.id).await? {
            heads.0.insert(team.id, ChainHead { seq: row.seq, hash: row.hash });
        }
    }
    Ok(heads)
}

async fn teams(db: &Db) -> Result<Vec<Team>> {
    Ok(db::teams::all(&mut *db.reader().await?, MAX_TEAMS).await?)
}

/// The newest row of a team, after all that is committed got its number.
async fn newest(db: &Db, now: Instant, team: &TeamId) -> Result<Option<SealedEntry>> {
    seal(db, now, team).await?;
    Ok(db::audit::newest(&mut db.reader_of(team).await?).await?)
}

async fn note(db: &Db, now: Instant, team: &TeamId, action: &str, detail: &str) -> Result<()> {
    let args = (team.clone(), action.to_owned(), detail.to_owned());
    let noted = db.change(team, &By::console(), now, move |tx| {
        let (team, action, detail) = args.clone();
        Box::pin(async move { db::audit::append(tx, Entry::new(&action, team.as_str()).detail(&detail)).await })
    });
    Ok(noted.await?)
}

fn folder(board: &Board) -> AuditFolder {
    AuditFolder::of(&board.config.data)
}

/// Waits for the lock on a blocking thread.
async fn lock(folder: &AuditFolder) -> Result<HeadLock> {
    let folder = folder.clone();
    let taken = tokio::task::spawn_blocking(move || folder.lock()).await;
    let taken = taken.map_err(|error| Error::Internal(error.to_string()))?;
    taken.map_err(broken)
}

fn broken(error: std::io::Error) -> Error {
    Error::Internal(format!("the audit's head: {error}"))
}
