//! Verifying a team's chain from its first row to its last. Rows are checked on a thread of their own while the next ones
//! are read.

use std::{fmt, thread};

use protocol::{Instant, TeamId};
use tokio::sync::{mpsc, oneshot};

use super::{DbError, FIRST_PREV_HASH, Row, SealedEntry, TeamTx, entry};
use crate::{
    args,
    secret::audit_keys::{AuditKeys, SealCheck},
};

/// The action of the row that is written when a backup was put back.
pub const RESTORE_ACTION: &str = "board.restore";

/// Rows that are read at once.
const ROWS_PER_PAGE: u64 = 2_000;
/// Pages that may wait to be checked.
const MAX_WAITING_PAGES: usize = 2;

/// What is wrong with a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainFault {
    /// A row below 1, where Boards start to number: it was put there to escape a check from the first row on.
    Below { seq: i64 },
    /// The row is not as it was written, or not in its place.
    Changed { seq: u64 },
    /// Rows from `from` to `to` are missing.
    Missing { from: u64, to: u64 },
    /// A row without a key follows rows that have one.
    Unsealed { seq: u64 },
    /// A row with an unknown key follows rows with known keys.
    UnknownKey { seq: u64, key: String },
    /// No row was sealed with a known key.
    NeverSealed { key: Option<String> },
    /// The rows after `seq` are gone; there were `of`.
    Cut { seq: u64, of: u64 },
    /// The row that once was the newest has another hash now.
    Replaced { seq: u64 },
}

impl fmt::Display for ChainFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Below { seq } => write!(f, "row {seq} was added behind the Board's back: its rows begin with 1"),
            Self::Changed { seq } => write!(f, "row {seq} was changed"),
            Self::Missing { from, to } if from == to => write!(f, "row {from} is missing"),
            Self::Missing { from, to } => write!(f, "rows {from} to {to} are missing"),
            Self::Unsealed { seq } => write!(f, "row {seq} was added by somebody without the Board's audit key"),
            Self::UnknownKey { seq, key } => {
                write!(f, "row {seq} was added with the audit key {key}, which is not this Board's")
            }
            Self::NeverSealed { key: Some(key) } => {
                write!(f, "it was sealed with the audit key {key}, which is not here: none of its rows can be checked")
            }
            Self::NeverSealed { key: None } => f.write_str("none of its rows was sealed with an audit key"),
            Self::Cut { seq, of } => write!(f, "its end was cut off: rows {} to {of} are gone", seq + 1),
            Self::Replaced { seq } => write!(f, "row {seq} was replaced, and with it whatever hangs on it"),
        }
    }
}

/// The result of verifying a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChainReport {
    pub rows: u64,
    /// How many of the first rows an unknown key sealed: they are consistent, and no more can be said of them.
    pub unknown: u64,
    /// When a backup was last restored, and the row that records it.
    pub restored: Option<(Instant, u64)>,
    /// The first fault.
    pub fault: Option<ChainFault>,
}

/// How far the rows read so far can be checked: a chain goes through these levels in order and never back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SealLevel {
    /// Rows from Boards without a key.
    Unsealed,
    Unknown,
    Known,
}

/// Verifies a team's chain. `head` is the newest row that it is known to have had, read before. Without `keys`, where a
/// database is only inspected, the hashes are only compared with each other.
pub async fn verify(
    tx: &mut TeamTx<'_>,
    keys: Option<&AuditKeys>,
    head: Option<(u64, &str)>,
) -> Result<ChainReport, DbError> {
    if let Some(seq) = below(tx).await? {
        return Ok(ChainReport { fault: Some(ChainFault::Below { seq }), ..ChainReport::default() });
    }
    let chain = ChainReader {
        team: tx.team.clone(),
        keys: keys.cloned(),
        head: head.map(|(seq, hash)| (seq, hash.to_owned())),
        report: ChainReport::default(),
        prev: FIRST_PREV_HASH.to_owned(),
        stretch: SealLevel::Unsealed,
        last_key: None,
    };
    let (pages, waiting) = mpsc::channel(MAX_WAITING_PAGES);
    let (tell, told) = oneshot::channel();
    let checker =
        thread::Builder::new().name("audit check".into()).spawn(move || drop(tell.send(chain.check(waiting))));
    checker.map_err(|error| DbError::Unavailable(format!("the audit cannot be checked: {error}")))?;
    let mut read = 0u64;
    loop {
        let sql = "SELECT seq, at, actor, actor_name, address, action, object, detail, before_hash, after_hash, \
                   prev_hash, hash FROM audit WHERE team_id = $1 AND seq > $2 ORDER BY seq LIMIT $3 + 0";
        let rows = tx.rows(sql, args![read, ROWS_PER_PAGE]).await?;
        let Some(last) = rows.last() else { break };
        read = last.count("seq")?;
        // Nobody takes them any more once a fault was found.
        if pages.send(rows).await.is_err() {
            break;
        }
    }
    drop(pages);
    told.await.map_err(|_| DbError::Broken("the check of the audit panicked".into()))?
}

/// The lowest number of a row that stands below the first one.
async fn below(tx: &mut TeamTx<'_>) -> Result<Option<i64>, DbError> {
    let sql = "SELECT seq FROM audit WHERE team_id = $1 AND seq < 1 ORDER BY seq LIMIT 1";
    tx.row(sql, &[]).await?.map(|row| row.int("seq")).transpose()
}

struct ChainReader {
    team: TeamId,
    keys: Option<AuditKeys>,
    /// Number and hash of the row that once was the newest.
    head: Option<(u64, String)>,
    report: ChainReport,
    /// The hash of the row that was read last.
    prev: String,
    stretch: SealLevel,
    /// The unknown key that was met last.
    last_key: Option<String>,
}

impl ChainReader {
    /// Checks pages in order until there are no more, or a row is not as it was written.
    fn check(mut self, mut pages: mpsc::Receiver<Vec<Row>>) -> Result<ChainReport, DbError> {
        while let Some(rows) = pages.blocking_recv() {
            for row in &rows {
                self.report.fault = self.next(entry(row)?);
                if self.report.fault.is_some() {
                    return Ok(self.report);
                }
            }
        }
        self.report.fault = match self.head {
            Some((of, _)) if of > self.report.rows => Some(ChainFault::Cut { seq: self.report.rows, of }),
            _ if self.keys.is_some() && self.report.rows > 0 && self.stretch != SealLevel::Known => {
                Some(ChainFault::NeverSealed { key: self.last_key })
            }
            _ => None,
        };
        Ok(self.report)
    }

    fn next(&mut self, entry: SealedEntry) -> Option<ChainFault> {
        let (seq, due) = (entry.seq, self.report.rows + 1);
        if seq > due {
            return Some(ChainFault::Missing { from: due, to: seq - 1 });
        }
        let stretch = match entry.sealed(&self.team, self.keys.as_ref()) {
            None if entry.is_unsealed(&self.team) => SealLevel::Unsealed,
            None | Some(SealCheck::Bad) => return Some(ChainFault::Changed { seq }),
            Some(SealCheck::Good) => SealLevel::Known,
            Some(SealCheck::UnknownKey(key)) => {
                self.last_key = Some(key);
                SealLevel::Unknown
            }
        };
        if seq != due || entry.prev_hash != self.prev {
            return Some(ChainFault::Changed { seq });
        }
        if stretch < self.stretch {
            return Some(match stretch {
                SealLevel::Unsealed => ChainFault::Unsealed { seq },
                _ => ChainFault::UnknownKey { seq, key: self.last_key.clone().unwrap_or_default() },
            });
        }
        self.stretch = stretch;
        self.report.rows = seq;
        self.report.unknown += u64::from(stretch == SealLevel::Unknown);
        if entry.action == RESTORE_ACTION {
            self.report.restored = Some((entry.at, seq));
        }
        self.prev = entry.hash;
        let is_replaced = self.head.as_ref().is_some_and(|(at, hash)| *at == seq && *hash != self.prev);
        is_replaced.then_some(ChainFault::Replaced { seq })
    }
}
