//! A session's past as requests carry it: turns of work from the newest on, as far as a plan needs them.

use protocol::{Instant, MessageId, SessionId};

use crate::{
    args,
    db::{Arg, DbError, Query, Row, TeamTx},
    domain::{
        MessageRole, Part, TaskState,
        context::{Exchange, Past, PastMessage, TakenBytes, pins::MAX_PINS},
    },
};

/// Text that is read at once: more than any window holds of it.
const MAX_TEXT_BYTES: u64 = 4 * 1024 * 1024;
/// Bytes of all that is read at once, and in all: of calls and results behind so much newer ones nothing is read.
const MAX_PAGE_BYTES: u64 = 32 * 1024 * 1024;
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Turns that are read at first, and at a time after that.
const FIRST_TURNS: u64 = 16;
const MORE_TURNS: u64 = 64;

/// Which turns are read: those of a session before a message, with what was there at an instant.
#[derive(Clone, Copy, Debug)]
pub struct PastRange<'a> {
    pub session: &'a SessionId,
    /// Seq of the first message that is not part of it.
    pub below: u64,
    pub until: Instant,
}

/// Reads turns into `past`, from the newest page on, until it needs no older one; then those with pins.
pub async fn read(
    tx: &mut TeamTx<'_>,
    range: PastRange<'_>,
    newest: Vec<Exchange>,
    past: &mut Past,
) -> Result<(), DbError> {
    let (mut page, mut wanted) = (newest, FIRST_TURNS);
    loop {
        let (read, oldest) = (page.len() as u64, page.last().map(|turn| turn.question.seq));
        let mut turns = page.into_iter();
        let needs_older = turns.all(|turn| past.take(turn));
        // A page that is not full is the last one.
        if read < wanted && turns.as_slice().is_empty() {
            past.end();
            break;
        }
        let Some(below) = oldest.filter(|_| needs_older) else { break };
        wanted = MORE_TURNS;
        page = tx.query(query(ANY, PastRange { below, ..range }, wanted, past.taken())).await?;
    }
    // Those that were taken already are not older.
    if let Some(query) = pinned_query(range, past.pinned_before()) {
        tx.query(query).await?.into_iter().for_each(|turn| past.take_pinned(turn));
    }
    Ok(())
}

/// The query for the newest page, to be sent together with others.
pub fn newest_query(range: PastRange<'_>) -> Query<Vec<Exchange>> {
    query(ANY, range, FIRST_TURNS, TakenBytes::default())
}

// An attempt that goes on from others, three at most, is one answer with them; a question belongs to attempt 0. Asked for one
// attempt at a time, SQLite finds a task's messages by their index instead of reading the whole session. So does PostgreSQL:
// were their session named, too, it would, as long as it has no statistics, read all messages of the session for each turn.
// Reasoning is never sent. Texts, also what people said meanwhile, that follow so much newer text fit no window: they stay
// where they are.
macro_rules! turns {
    ($which:literal) => {
        concat!(
            "SELECT t.message_seq, t.state, m.message_id, m.seq, m.role, CASE WHEN (p.kind NOT IN ('text', 'summary') \
             AND NOT (p.kind = 'notice' AND p.body LIKE '{\"type\":\"message\"%') AND SUM(OCTET_LENGTH(p.body)) \
             OVER (ORDER BY t.message_seq DESC, m.seq DESC, p.idx DESC) <= $7) \
             OR SUM(CASE WHEN p.kind IN ('text', 'summary') \
             OR (p.kind = 'notice' AND p.body LIKE '{\"type\":\"message\"%') THEN OCTET_LENGTH(p.body) ELSE 0 END) \
             OVER (ORDER BY t.message_seq DESC, m.seq DESC, p.idx DESC) <= $6 THEN p.body END AS body \
             FROM (SELECT team_id, task_id, message_seq, attempt, goes_on_from, state FROM tasks \
             WHERE team_id = $1 AND session_id = $2 AND message_seq < $3 AND kind = 'work' ",
            $which,
            "ORDER BY message_seq DESC LIMIT $5 + 0) t \
             CROSS JOIN (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4) k \
             JOIN messages m ON m.team_id = t.team_id AND m.task_id = t.task_id \
             AND m.attempt = CASE WHEN k.n = 0 THEN 0 WHEN k.n = 1 THEN t.attempt \
             WHEN t.goes_on_from + k.n - 2 < t.attempt THEN t.goes_on_from + k.n - 2 END \
             LEFT JOIN parts p ON p.team_id = m.team_id AND p.message_id = m.message_id AND p.created_at <= $4 \
             AND p.kind <> 'reasoning' ORDER BY t.message_seq DESC, m.seq, p.idx"
        )
    };
}

const ANY: &str = turns!("");
/// Only turns at these places, as many as a session may have pins. PostgreSQL finds each by the index; as long as it has no
/// statistics it walks the session's tasks, as SQLite does, and reads the messages of those alone that are asked for.
const PINNED: &str = turns!(
    "AND message_seq IN (\
     $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, \
     $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, \
     $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50, $51, $52, $53, $54, $55, \
     $56, $57, $58, $59, $60, $61, $62, $63, $64, $65, $66, $67, $68, $69, $70, $71) "
);

/// The query for the turns of a range that begin at these places; of too many the newest. `None`: there are none.
fn pinned_query(range: PastRange<'_>, mut places: Vec<u64>) -> Option<Query<Vec<Exchange>>> {
    let PastRange { session, below, until } = range;
    places.sort_unstable_by(|a, b| b.cmp(a));
    let last = *places.last()?;
    places.resize(MAX_PINS as usize, last);
    let mut args = args![session, below, until, MAX_PINS, MAX_TEXT_BYTES, MAX_PAGE_BYTES].to_vec();
    args.extend(places.into_iter().map(Arg::from));
    Some(Query::new(PINNED, &args, |answer| exchanges(&answer.rows)))
}

/// The newest turns of a range with the answers of their newest attempts, newest first. `taken`: what was read before them.
fn query(sql: &'static str, range: PastRange<'_>, turns: u64, taken: TakenBytes) -> Query<Vec<Exchange>> {
    let PastRange { session, below, until } = range;
    let all = MAX_PAGE_BYTES.min(MAX_BYTES.saturating_sub(taken.words + taken.calls));
    Query::new(sql, args![session, below, until, turns, MAX_TEXT_BYTES, all], |answer| exchanges(&answer.rows))
}

/// Groups rows of parts into turns.
fn exchanges(rows: &[Row]) -> Result<Vec<Exchange>, DbError> {
    let (mut exchanges, mut place) = (Vec::<Exchange>::new(), None);
    for row in rows {
        if place.replace(row.count("message_seq")?) != Some(row.count("message_seq")?) {
            let state: TaskState = row.parse("state")?;
            exchanges.push(Exchange { question: PastMessage::default(), answer: PastMessage::default(), state });
        }
        let Some(exchange) = exchanges.last_mut() else { continue };
        let message = match row.parse("role")? {
            MessageRole::User => &mut exchange.question,
            MessageRole::Assistant => &mut exchange.answer,
        };
        // Of several attempts that are one answer the newest stands for it.
        let id: MessageId = row.parse("message_id")?;
        let before = message.id.replace(id.clone()).filter(|before| *before != id);
        message.earlier.extend(before);
        message.seq = row.count("seq")?;
        message.parts.extend(row.optional_json::<Part>("body")?);
    }
    Ok(exchanges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_with_pins_are_looked_for_at_their_places() {
        let session = SessionId::new(1);
        let range = PastRange { session: &session, below: 9, until: Instant(1) };
        assert!(pinned_query(range, Vec::new()).is_none(), "nothing is asked where nothing is pinned");
        for places in [vec![3], (0..2 * MAX_PINS).collect()] {
            let sql = pinned_query(range, places).expect("a query").sql();
            let count = |name: u64| sql.matches(&format!("${name}")).count();
            assert!((8..8 + MAX_PINS).all(|place| count(place) >= 1) && count(8 + MAX_PINS) == 0, "{sql}");
            assert!(!sql.contains("pins"), "what is pinned is known: {sql}");
        }
        for sql in [ANY, PINNED] {
            assert_eq!(sql.matches("session_id").count(), 1, "messages are found by their task alone: {sql}");
        }
    }
}
