//! Messages and their parts: written once, never changed.

pub mod bounded;
pub mod past;
pub mod pins;
pub mod search;
pub mod summaries;
pub mod text_index;

use std::collections::HashMap;

use protocol::{MessageId, SessionId, TaskId};
use serde_json::Value;

use crate::{
    args,
    db::{Change, DbError, Row, TeamTx},
    domain::{Message, Part, assemble::GAP_PHRASE},
};

/// The task of a session's message.
pub async fn task_of(tx: &mut TeamTx<'_>, session: &SessionId, id: &MessageId) -> Result<Option<TaskId>, DbError> {
    let sql = "SELECT task_id FROM messages WHERE team_id = $1 AND session_id = $2 AND message_id = $3";
    tx.row(sql, args![session, id]).await?.map(|row| row.parse("task_id")).transpose()
}

/// A page of messages without their parts, ascending by seq, and how many parts each has: the newest, or those below
/// `before`.
pub async fn heads(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    before: Option<u64>,
    limit: u64,
) -> Result<Vec<(Message, u64)>, DbError> {
    let sql = "SELECT m.session_id, m.seq, m.message_id, m.role, m.author, m.task_id, m.attempt, m.created_at, \
               COALESCE((SELECT MAX(p.idx) + 1 FROM parts p WHERE p.team_id = m.team_id \
               AND p.message_id = m.message_id), 0) AS parts FROM messages m \
               WHERE m.team_id = $1 AND m.session_id = $2 AND m.seq < $3 ORDER BY m.seq DESC LIMIT $4 + 0";
    let before = before.unwrap_or(i64::MAX.unsigned_abs());
    let mut rows = tx.rows(sql, args![session, before, limit]).await?;
    rows.reverse();
    rows.iter().map(|row| Ok((message(row)?, row.count("parts")?))).collect()
}

/// A part without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartOutline {
    /// Seq of its message.
    pub seq: u64,
    pub idx: u64,
    pub kind: String,
    /// Bytes as JSON.
    pub size: u64,
}

/// A range of a session's parts: from a part of a message on, up to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartRange {
    pub from: (u64, u64),
    pub to: u64,
    /// Excludes the parts of this message; 0: of none.
    pub except: u64,
}

/// The outlines of the parts in a range, in order.
pub async fn outline(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    stretch: PartRange,
    limit: u64,
) -> Result<Vec<PartOutline>, DbError> {
    let sql = "SELECT m.seq, p.idx, p.kind, OCTET_LENGTH(p.body) AS size FROM messages m JOIN parts p \
               ON p.team_id = m.team_id AND p.message_id = m.message_id AND (m.seq > $3 OR p.idx >= $4) \
               WHERE m.team_id = $1 AND m.session_id = $2 AND m.seq >= $3 AND m.seq <= $5 \
               AND m.seq <> $6 ORDER BY m.seq, p.idx LIMIT $7 + 0";
    let PartRange { from, to, except } = stretch;
    let outline = |row: &Row| {
        let (seq, idx, kind) = (row.count("seq")?, row.count("idx")?, row.text("kind")?);
        Ok(PartOutline { seq, idx, kind, size: row.count("size")? })
    };
    tx.rows(sql, args![session, from.0, from.1, to, except, limit]).await?.iter().map(outline).collect()
}

/// Reads the parts of a range into its messages (ascending).
pub async fn read_parts(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    stretch: PartRange,
    messages: &mut [Message],
) -> Result<(), DbError> {
    let sql = "SELECT m.seq, p.body FROM messages m JOIN parts p ON p.team_id = m.team_id \
               AND p.message_id = m.message_id AND (m.seq > $3 OR p.idx >= $4) WHERE m.team_id = $1 \
               AND m.session_id = $2 AND m.seq >= $3 AND m.seq <= $5 AND m.seq <> $6 ORDER BY m.seq, p.idx";
    let PartRange { from, to, except } = stretch;
    let rows = tx.rows(sql, args![session, from.0, from.1, to, except]).await?;
    spread(messages, &rows)
}

/// Parts of one message, of one kind or any, from one up to another, at most `limit`.
pub async fn some_parts(
    tx: &mut TeamTx<'_>,
    id: &MessageId,
    kind: Option<&str>,
    (from, to): (u64, u64),
    limit: u64,
) -> Result<Vec<Part>, DbError> {
    let sql = "SELECT body FROM parts WHERE team_id = $1 AND message_id = $2 AND ($3 IS NULL OR kind = $3) \
               AND idx >= $4 AND idx < $5 ORDER BY idx LIMIT $6 + 0";
    tx.rows(sql, args![id, kind, from, to, limit]).await?.iter().map(|row| row.json("body")).collect()
}

/// One message without its parts, and how many it has.
pub async fn head(tx: &mut TeamTx<'_>, id: &MessageId) -> Result<Option<(Message, u64)>, DbError> {
    let sql = "SELECT session_id, seq, message_id, role, author, task_id, attempt, created_at FROM messages \
               WHERE team_id = $1 AND message_id = $2";
    let Some(row) = tx.row(sql, args![id]).await? else { return Ok(None) };
    Ok(Some((message(&row)?, count(tx, id).await?)))
}

/// A page of messages with their parts, ascending by seq: the newest, or those below `before`.
pub async fn page(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    before: Option<u64>,
    limit: u64,
) -> Result<Vec<Message>, DbError> {
    let sql = "SELECT session_id, seq, message_id, role, author, task_id, attempt, created_at FROM messages \
               WHERE team_id = $1 AND session_id = $2 AND seq < $3 ORDER BY seq DESC LIMIT $4 + 0";
    let before = before.unwrap_or(i64::MAX.unsigned_abs());
    let mut messages = tx.rows(sql, args![session, before, limit]).await?;
    messages.reverse();
    let mut messages = messages.iter().map(message).collect::<Result<Vec<_>, _>>()?;
    if let (Some(first), Some(last)) = (messages.first(), messages.last()) {
        let sql = "SELECT m.seq, p.body FROM messages m JOIN parts p ON p.team_id = m.team_id \
                   AND p.message_id = m.message_id WHERE m.team_id = $1 AND m.session_id = $2 AND m.seq >= $3 \
                   AND m.seq <= $4 ORDER BY m.seq, p.idx";
        let rows = tx.rows(sql, args![session, first.seq, last.seq]).await?;
        spread(&mut messages, &rows)?;
    }
    Ok(messages)
}

/// Puts part rows (`seq`, `body`, ascending) into their messages (ascending).
fn spread(messages: &mut [Message], rows: &[Row]) -> Result<(), DbError> {
    for row in rows {
        let seq = row.count("seq")?;
        if let Ok(at) = messages.binary_search_by_key(&seq, |message| message.seq) {
            messages[at].parts.push(row.json("body")?);
        }
    }
    Ok(())
}

/// Who said these messages of a session at its machine, as the adapter there knows them; those of which that is known, by id.
pub async fn author_names(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    messages: &[Message],
) -> Result<HashMap<MessageId, String>, DbError> {
    let (Some(first), Some(last)) = (messages.first(), messages.last()) else { return Ok(HashMap::new()) };
    let sql = "SELECT m.message_id, t.payload FROM messages m JOIN tasks t ON t.team_id = m.team_id \
               AND t.task_id = m.task_id WHERE m.team_id = $1 AND m.session_id = $2 AND m.seq >= $3 AND m.seq <= $4 \
               AND m.role = 'user' AND t.origin NOT IN ('board', 'playbook', 'agent')";
    let mut names = HashMap::new();
    for row in tx.rows(sql, args![session, first.seq, last.seq]).await? {
        let payload: Value = row.json("payload")?;
        if let Some(name) = payload["author"].as_str() {
            names.insert(row.parse("message_id")?, name.to_owned());
        }
    }
    Ok(names)
}

/// One message with its parts.
pub async fn load(tx: &mut TeamTx<'_>, id: &MessageId) -> Result<Option<Message>, DbError> {
    let Some((mut found, _)) = head(tx, id).await? else { return Ok(None) };
    found.parts = parts(tx, id).await?;
    Ok(Some(found))
}

/// The newest messages of a task without their parts, ascending, and how many parts each has: its question, then the
/// answer of each attempt.
pub async fn of_task(tx: &mut TeamTx<'_>, task: &TaskId, limit: u64) -> Result<Vec<(Message, u64)>, DbError> {
    let sql = "SELECT m.session_id, m.seq, m.message_id, m.role, m.author, m.task_id, m.attempt, m.created_at, \
               COALESCE((SELECT MAX(p.idx) + 1 FROM parts p WHERE p.team_id = m.team_id \
               AND p.message_id = m.message_id), 0) AS parts FROM messages m \
               WHERE m.team_id = $1 AND m.task_id = $2 ORDER BY m.seq DESC LIMIT $3 + 0";
    let mut rows = tx.rows(sql, args![task, limit]).await?;
    rows.reverse();
    rows.iter().map(|row| Ok((message(row)?, row.count("parts")?))).collect()
}

/// The parts of a message, in order.
pub async fn parts(tx: &mut TeamTx<'_>, id: &MessageId) -> Result<Vec<Part>, DbError> {
    let sql = "SELECT body FROM parts WHERE team_id = $1 AND message_id = $2 ORDER BY idx";
    tx.rows(sql, args![id]).await?.iter().map(|row| row.json("body")).collect()
}

/// A new message without parts.
pub async fn insert(tx: &mut TeamTx<'_>, message: &Message) -> Result<(), DbError> {
    let sql = "INSERT INTO messages (team_id, session_id, seq, message_id, role, author, task_id, attempt, created_at) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    let args = args![
        &message.session_id,
        message.seq,
        &message.id,
        message.role,
        &message.author,
        &message.task_id,
        message.attempt,
        message.created_at
    ];
    tx.defer(sql, args).await
}

/// Appends complete parts to a message.
pub async fn append(tx: &mut Change<'_>, id: &MessageId, parts: &[Part]) -> Result<(), DbError> {
    let sql = "INSERT INTO parts (team_id, message_id, idx, kind, body, created_at) SELECT $1, $2, \
               COALESCE(MAX(idx), -1) + 1, $3, $4, $5 FROM parts WHERE team_id = $1 AND message_id = $2";
    for part in parts {
        tx.defer(sql, args![id, part.kind(), crate::db::json(part)?, tx.now]).await?;
    }
    Ok(())
}

/// The same for a message that is new in this change.
pub async fn begin(tx: &mut Change<'_>, id: &MessageId, parts: &[Part]) -> Result<(), DbError> {
    let sql = "INSERT INTO parts (team_id, message_id, idx, kind, body, created_at) VALUES ($1, $2, $3, $4, $5, $6)";
    for (idx, part) in (0_u64..).zip(parts) {
        tx.defer(sql, args![id, idx, part.kind(), crate::db::json(part)?, tx.now]).await?;
    }
    Ok(())
}

/// How many parts a message has.
pub async fn count(tx: &mut TeamTx<'_>, id: &MessageId) -> Result<u64, DbError> {
    let sql = "SELECT COALESCE(MAX(idx) + 1, 0) AS n FROM parts WHERE team_id = $1 AND message_id = $2";
    tx.row(sql, args![id]).await?.map_or(Ok(0), |row| row.count("n"))
}

/// Whether the newest text of a message comes after its newest gap: then its text is complete.
pub async fn is_said(tx: &mut TeamTx<'_>, id: &MessageId) -> Result<bool, DbError> {
    let sql = "SELECT kind FROM parts WHERE team_id = $1 AND message_id = $2 AND (kind = 'text' \
               OR (kind = 'notice' AND body LIKE $3)) ORDER BY idx DESC LIMIT 1";
    // What somebody said meanwhile is kept as a notice, too, and is no gap whatever it says.
    let gap = format!(r#"{{"type":"notice"%{GAP_PHRASE}%"#);
    let newest = tx.row(sql, args![id, gap]).await?;
    Ok(newest.map(|row| row.text("kind")).transpose()?.is_some_and(|kind| kind == "text"))
}

fn message(row: &Row) -> Result<Message, DbError> {
    Ok(Message {
        id: row.parse("message_id")?,
        session_id: row.parse("session_id")?,
        seq: row.count("seq")?,
        role: row.parse("role")?,
        author: row.text("author")?,
        task_id: row.parse("task_id")?,
        attempt: row.int("attempt")?.try_into().map_err(|_| DbError::Broken("attempt is out of range".into()))?,
        parts: Vec::new(),
        created_at: row.instant("created_at")?,
    })
}
