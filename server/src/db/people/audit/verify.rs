//! Verifying a team's chain from its first row to its last.

use std::fmt;

use protocol::{Instant, TeamId};

use super::{DbError, FIRST_PREV_HASH, SealedEntry, TeamTx, entry};
use crate::{
    args,
    secret::audit_keys::{AuditKeys, SealCheck},
};

/// The action of the row that is written when a backup was put back.
pub const RESTORE_ACTION: &str = "board.restore";

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
    let mut chain =
        ChainReader { report: ChainReport::default(), prev: FIRST_PREV_HASH.to_owned(), stretch: SealLevel::Unsealed };
    let mut last_key = None;
    loop {
        let sql = "SELECT seq, at, actor, actor_name, address, action, object, detail, before_hash, after_hash, \
                   prev_hash, hash FROM audit WHERE team_id = $1 AND seq > $2 ORDER BY seq LIMIT 500";
        let rows = tx.rows(sql, args![chain.report.rows]).await?;
        if rows.is_empty() {
            break;
        }
        for row in &rows {
            let entry = entry(row)?;
            let seq = entry.seq;
            let found = chain.next(&tx.team, entry, keys, &mut last_key);
            let replaced = head.is_some_and(|(at, hash)| at == seq && hash != chain.prev);
            let fault = found.or(replaced.then_some(ChainFault::Replaced { seq }));
            if fault.is_some() {
                chain.report.fault = fault;
                return Ok(chain.report);
            }
        }
    }
    let mut report = chain.report;
    report.fault = match head {
        Some((of, _)) if of > report.rows => Some(ChainFault::Cut { seq: report.rows, of }),
        _ if keys.is_some() && report.rows > 0 && chain.stretch != SealLevel::Known => {
            Some(ChainFault::NeverSealed { key: last_key })
        }
        _ => None,
    };
    Ok(report)
}

/// The lowest number of a row that stands below the first one.
async fn below(tx: &mut TeamTx<'_>) -> Result<Option<i64>, DbError> {
    let sql = "SELECT seq FROM audit WHERE team_id = $1 AND seq < 1 ORDER BY seq LIMIT 1";
    tx.row(sql, &[]).await?.map(|row| row.int("seq")).transpose()
}

struct ChainReader {
    report: ChainReport,
    /// The hash of the row that was read last.
    prev: String,
    stretch: SealLevel,
}

impl ChainReader {
    fn next(
        &mut self,
        team: &TeamId,
        entry: SealedEntry,
        keys: Option<&AuditKeys>,
        last_key: &mut Option<String>,
    ) -> Option<ChainFault> {
        let (seq, due) = (entry.seq, self.report.rows + 1);
        if seq > due {
            return Some(ChainFault::Missing { from: due, to: seq - 1 });
        }
        let stretch = match entry.sealed(team, keys) {
            None if entry.is_unsealed(team) => SealLevel::Unsealed,
            None | Some(SealCheck::Bad) => return Some(ChainFault::Changed { seq }),
            Some(SealCheck::Good) => SealLevel::Known,
            Some(SealCheck::UnknownKey(key)) => {
                *last_key = Some(key);
                SealLevel::Unknown
            }
        };
        if seq != due || entry.prev_hash != self.prev {
            return Some(ChainFault::Changed { seq });
        }
        if stretch < self.stretch {
            return Some(match stretch {
                SealLevel::Unsealed => ChainFault::Unsealed { seq },
                _ => ChainFault::UnknownKey { seq, key: last_key.clone().unwrap_or_default() },
            });
        }
        self.stretch = stretch;
        self.report.rows = seq;
        self.report.unknown += u64::from(stretch == SealLevel::Unknown);
        if entry.action == RESTORE_ACTION {
            self.report.restored = Some((entry.at, seq));
        }
        self.prev = entry.hash;
        None
    }
}
