//! Events: rows of contiguous runs, the items byte for byte. A run is a row, or joins the row before it.

use protocol::TaskId;

use crate::{
    args,
    db::{Change, DbError, Query, TeamTx},
    domain::Committed,
};

/// A row and a run up to this size, bytes, become one row: a new one also writes a page of the index. Appending writes the
/// row again, so it stays small: two of them, and what a tick adds, fit into a page of SQLite.
const MAX_JOINED_BYTES: usize = 1600;

/// Rows that are read for the end of an output, and their bytes.
const MAX_EARLIER_ROWS: u64 = 48;
const MAX_EARLIER_BYTES: u64 = 128 * 1024;

/// The runs of an attempt after `seq`, in order; the first is cut at the cursor. At most `limit` rows.
pub async fn after(
    tx: &mut TeamTx<'_>,
    task: &TaskId,
    attempt: u32,
    seq: u64,
    limit: u64,
) -> Result<Vec<Committed>, DbError> {
    tx.query(after_query(task, attempt, seq, limit)).await?.parse(task, attempt, seq)
}

/// The newest runs that end with `seq` or before it, in order: so many that they hold the end of what a call put out.
pub async fn before(tx: &mut TeamTx<'_>, task: &TaskId, attempt: u32, seq: u64) -> Result<Vec<Committed>, DbError> {
    let sql = "SELECT from_seq, OCTET_LENGTH(body) AS size FROM events WHERE team_id = $1 AND task_id = $2 \
               AND attempt = $3 AND from_seq <= $4 ORDER BY from_seq DESC LIMIT $5 + 0";
    let rows = tx.rows(sql, args![task, attempt, seq, MAX_EARLIER_ROWS]).await?;
    let (mut from, mut bytes) = (seq, 0);
    for (n, row) in rows.iter().enumerate() {
        bytes += row.count("size")?;
        if n > 0 && bytes > MAX_EARLIER_BYTES {
            break;
        }
        from = row.count("from_seq")?.saturating_sub(1);
    }
    let mut runs = after(tx, task, attempt, from, rows.len() as u64).await?;
    runs.iter_mut().for_each(|run| run.items.retain(|item| item.seq <= seq));
    runs.retain(|run| !run.items.is_empty());
    Ok(runs)
}

/// Runs as they are stored; parsing them needs the task and attempt.
pub struct StoredRuns(Vec<(u64, String)>);

/// The same as a query, to be sent together with others.
pub fn after_query(task: &TaskId, attempt: u32, seq: u64, limit: u64) -> Query<StoredRuns> {
    let sql = "SELECT from_seq, body FROM events WHERE team_id = $1 AND task_id = $2 AND attempt = $3 \
               AND from_seq >= COALESCE((SELECT MAX(e.from_seq) FROM events e WHERE e.team_id = $1 AND e.task_id = $2 \
               AND e.attempt = $3 AND e.from_seq <= $4), 0) AND to_seq > $5 ORDER BY from_seq LIMIT $6 + 0";
    Query::new(sql, args![task, attempt, seq.saturating_add(1), seq, limit], |answer| {
        let kept = answer.rows.iter().map(|row| Ok((row.count("from_seq")?, row.text("body")?)));
        kept.collect::<Result<_, DbError>>().map(StoredRuns)
    })
}

impl StoredRuns {
    /// The runs of the attempt after `seq`.
    pub fn parse(self, task: &TaskId, attempt: u32, seq: u64) -> Result<Vec<Committed>, DbError> {
        let broken = |error| DbError::Broken(format!("events of {task}: {error}"));
        let parse = |(from, body): (u64, String)| Committed::parse(task.clone(), attempt, from, &body, seq);
        self.0.into_iter().map(|kept| parse(kept).map_err(broken)).collect()
    }
}

/// Inserts a run.
pub async fn insert(tx: &mut Change<'_>, run: &Committed) -> Result<(), DbError> {
    let sql = "INSERT INTO events (team_id, task_id, attempt, from_seq, to_seq, body, received_at) \
               VALUES ($1, $2, $3, $4, $5, $6, $7)";
    tx.defer(sql, args![&run.task, run.attempt, run.from, run.to, items('[', run), tx.now]).await
}

/// Runs that one statement inserts: on PostgreSQL the usage is counted once for all of them.
const RUNS_PER_INSERT: usize = 8;

/// Inserts many runs.
pub async fn insert_all(tx: &mut Change<'_>, runs: &[Committed]) -> Result<(), DbError> {
    let sql = "INSERT INTO events (team_id, received_at, task_id, attempt, from_seq, to_seq, body) VALUES \
               ($1, $2, $3, $4, $5, $6, $7), ($1, $2, $8, $9, $10, $11, $12), ($1, $2, $13, $14, $15, $16, $17), \
               ($1, $2, $18, $19, $20, $21, $22), ($1, $2, $23, $24, $25, $26, $27), ($1, $2, $28, $29, $30, $31, $32), \
               ($1, $2, $33, $34, $35, $36, $37), ($1, $2, $38, $39, $40, $41, $42)";
    for some in runs.chunks(RUNS_PER_INSERT) {
        if some.len() < RUNS_PER_INSERT {
            for run in some {
                insert(tx, run).await?;
            }
            continue;
        }
        let mut args = args![tx.now].to_vec();
        for run in some {
            args.extend_from_slice(args![&run.task, run.attempt, run.from, run.to, items('[', run)]);
        }
        tx.defer(sql, &args).await?;
        // PostgreSQL counts a part of a statement as one row.
        if !tx.is_sqlite() {
            tx.also_wrote(RUNS_PER_INSERT as u64 - 1);
        }
    }
    Ok(())
}

/// Adds a run to the attempt's last row. Returns `false`, and writes nothing, when one of them is large, or when the run
/// does not follow that row.
pub async fn append(tx: &mut TeamTx<'_>, run: &Committed) -> Result<bool, DbError> {
    if run.size() > MAX_JOINED_BYTES {
        return Ok(false);
    }
    let sql = "UPDATE events SET body = SUBSTR(body, 1, LENGTH(body) - 1) || $6, to_seq = $5 \
               WHERE team_id = $1 AND task_id = $2 AND attempt = $3 AND to_seq = $4 AND OCTET_LENGTH(body) <= $7 \
               AND from_seq = (SELECT MAX(e.from_seq) FROM events e WHERE e.team_id = $1 AND e.task_id = $2 \
               AND e.attempt = $3)";
    let (before, most) = (run.from.saturating_sub(1), MAX_JOINED_BYTES as u64);
    Ok(tx.execute(sql, args![&run.task, run.attempt, before, run.to, items(',', run), most]).await? > 0)
}

/// The items of a run and the end of their list, after `start`.
fn items(start: char, run: &Committed) -> String {
    let bytes: usize = run.items.iter().map(|item| item.json.len() + 1).sum();
    let mut list = String::with_capacity(bytes + 2);
    list.push(start);
    for (n, item) in run.items.iter().enumerate() {
        if n > 0 {
            list.push(',');
        }
        list.push_str(&item.json);
    }
    list.push(']');
    list
}

/// Removes the first runs of an attempt, at most `limit` and none that ends after `to`.
pub async fn clear(tx: &mut TeamTx<'_>, task: &TaskId, attempt: u32, to: u64, limit: u64) -> Result<u64, DbError> {
    let sql = "DELETE FROM events WHERE team_id = $1 AND task_id = $2 AND attempt = $3 AND from_seq IN \
               (SELECT from_seq FROM events WHERE team_id = $1 AND task_id = $2 AND attempt = $3 AND to_seq <= $4 \
               ORDER BY from_seq LIMIT $5 + 0)";
    tx.execute(sql, args![task, attempt, to, limit]).await
}

/// The last seq and the bytes of the first runs of an attempt, in order.
pub async fn sizes(tx: &mut TeamTx<'_>, task: &TaskId, attempt: u32, limit: u64) -> Result<Vec<(u64, u64)>, DbError> {
    let sql = "SELECT to_seq, OCTET_LENGTH(body) AS size FROM events WHERE team_id = $1 AND task_id = $2 \
               AND attempt = $3 ORDER BY from_seq LIMIT $4 + 0";
    let rows = tx.rows(sql, args![task, attempt, limit]).await?;
    rows.iter().map(|row| Ok((row.count("to_seq")?, row.count("size")?))).collect()
}
