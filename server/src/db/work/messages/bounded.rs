//! A page of messages that is bounded by bytes: a message may be larger than any answer should be.

use std::collections::HashMap;

use protocol::{MessageId, SessionId};

use super::PartRange;
use crate::{
    args,
    db::{DbError, TeamTx},
    domain::Message,
};

/// Parts of a message whose sizes are read to find how many of them fit.
const MAX_PARTS: u64 = 1000;

/// Messages, ascending by seq, with the parts that fit.
#[derive(Debug, Default)]
pub struct BoundedMessages {
    pub messages: Vec<Message>,
    /// The index of the first message's first part that is here.
    pub first_part: u64,
    /// There are older messages or parts.
    pub more: bool,
}

/// The newest messages before a message, or before a part of one, at most `limit` of them and about `max_bytes` of parts;
/// at least one part, however large.
pub async fn page(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    before: Option<(u64, Option<u64>)>,
    limit: u64,
    max_bytes: u64,
) -> Result<BoundedMessages, DbError> {
    let (end, end_part) = before.unwrap_or((i64::MAX.unsigned_abs(), None));
    let above = if end_part.is_some() { end.saturating_add(1) } else { end };
    let mut heads = super::heads(tx, session, Some(above), limit + 1).await?;
    let mut more = heads.len() as u64 > limit;
    if more {
        heads.remove(0);
    }
    let is_cut = |message: &Message| end_part.is_some() && message.seq == end;
    let sizes = sizes(tx, session, &heads).await?;
    let (mut room, mut first_part, mut fitting) = (max_bytes, 0, 0);
    for (message, count) in heads.iter().rev() {
        let size = sizes.get(&message.seq).copied().unwrap_or(0);
        if size <= room && !is_cut(message) {
            room -= size;
            fitting += 1;
            continue;
        }
        let count = end_part.filter(|_| is_cut(message)).unwrap_or(*count);
        let from = first_that_fits(tx, &message.id, count, (room, fitting == 0)).await?;
        if from < count {
            (first_part, fitting) = (from, fitting + 1);
        }
        more |= from > 0 || fitting < heads.len();
        break;
    }
    let mut messages: Vec<Message> =
        heads.split_off(heads.len() - fitting).into_iter().map(|(message, _)| message).collect();
    let (Some(first), Some(last)) = (messages.first(), messages.last()) else {
        return Ok(BoundedMessages::default());
    };
    let cut = messages.iter().position(is_cut);
    let stretch = PartRange { from: (first.seq, first_part), to: last.seq, except: cut.map_or(0, |_| end) };
    super::read_parts(tx, session, stretch, &mut messages).await?;
    if let (Some(cut), Some(end_part)) = (cut, end_part) {
        let from = if cut == 0 { first_part } else { 0 };
        let id = messages[cut].id.clone();
        messages[cut].parts = super::some_parts(tx, &id, None, (from, end_part), MAX_PARTS).await?;
    }
    Ok(BoundedMessages { messages, first_part, more })
}

/// The bytes of each message's parts, by its seq: a message between them may have come since they were read.
async fn sizes(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    heads: &[(Message, u64)],
) -> Result<HashMap<u64, u64>, DbError> {
    let (Some((first, _)), Some((last, _))) = (heads.first(), heads.last()) else { return Ok(HashMap::new()) };
    let sql = "SELECT m.seq, CAST(COALESCE(SUM(OCTET_LENGTH(p.body)), 0) AS BIGINT) AS size FROM messages m \
               LEFT JOIN parts p ON p.team_id = m.team_id AND p.message_id = m.message_id WHERE m.team_id = $1 \
               AND m.session_id = $2 AND m.seq >= $3 AND m.seq <= $4 GROUP BY m.seq";
    let rows = tx.rows(sql, args![session, first.seq, last.seq]).await?;
    rows.iter().map(|row| Ok((row.count("seq")?, row.count("size")?))).collect()
}

/// The first of a message's last parts that fit together. `whatever`: the last one in any case.
async fn first_that_fits(
    tx: &mut TeamTx<'_>,
    message: &MessageId,
    count: u64,
    (room, whatever): (u64, bool),
) -> Result<u64, DbError> {
    let sql = "SELECT idx, OCTET_LENGTH(body) AS size FROM parts WHERE team_id = $1 AND message_id = $2 AND idx < $3 \
               ORDER BY idx DESC LIMIT $4 + 0";
    let (mut first, mut room) = (count, room);
    for row in tx.rows(sql, args![message, count, MAX_PARTS]).await? {
        let size = row.count("size")?;
        if size > room && !(whatever && first == count) {
            break;
        }
        room = room.saturating_sub(size);
        first = row.count("idx")?;
    }
    Ok(first)
}
