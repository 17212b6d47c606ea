//! Finding messages by the words in their texts, the newest first, in bounded time however much there is and however many
//! have a word: the index is asked for a range of texts at a time, from the newest on, until the page is full or the time is
//! up. Then the next page goes on behind what was looked at.

use std::time::{Duration, Instant};

use protocol::{MessageId, SessionId, ViberId};

use super::text_index::{self, TextNumbers};
use crate::{
    args,
    db::{Arg, DbError, Row, TeamTx},
    domain::{MessageRole, Part, search_terms, search_terms::SnippetPiece},
};

/// Texts that the index is asked for at once. On PostgreSQL whole stretches.
const RANGE_TEXTS: i64 = 32 * 4_096;
/// After this long the next page goes on.
const MAX_SEARCH_TIME: Duration = Duration::from_millis(4);

/// Bytes of texts that are read for a page before the next one goes on: a text may be some hundred KiB.
const MAX_READ_BYTES: u64 = 2 << 20;

/// A text that has all the words.
#[derive(Clone, Debug)]
pub struct MessageHit {
    pub session: SessionId,
    pub title: String,
    pub viber: ViberId,
    pub is_archived: bool,
    /// Of the session.
    pub last_seq: u64,
    pub message: MessageId,
    pub seq: u64,
    /// The place of the text in its message, and that of the message's last part.
    pub idx: u64,
    pub last_idx: u64,
    pub role: MessageRole,
    /// Operator or token id of a user's message, also of one to a running task; agent id of an assistant's.
    pub author: String,
    pub created_at: protocol::Instant,
    pub snippet: Vec<SnippetPiece>,
}

/// A page of what a search finds.
#[derive(Debug, Default)]
pub struct FoundMessages {
    pub hits: Vec<MessageHit>,
    /// Where the search goes on. A page may hold less than its limit, or nothing, and have a next one.
    pub next: Option<i64>,
    /// Older messages are not in the index yet.
    pub is_behind: bool,
}

/// What is found, with its text as long as the texts before it have less than `$6` bytes together; only the sizes of the
/// others are read. A text of a session that is deleted is none.
macro_rules! hits {
    ($found:literal) => {
        concat!(
            "SELECT h.*, p.body FROM (SELECT g.*, SUM(g.size) OVER (ORDER BY g.text_no DESC) - g.size AS ahead FROM \
             (SELECT f.text_no, i.session_id, i.seq, i.message_id, i.idx, m.role, m.author, m.created_at, s.title, \
             s.viber_id, s.archived_at, s.last_seq, (SELECT MAX(x.idx) FROM parts x WHERE x.team_id = i.team_id \
             AND x.message_id = i.message_id) AS last_idx, COALESCE((SELECT OCTET_LENGTH(b.body) FROM parts b \
             WHERE b.team_id = s.team_id AND b.message_id = i.message_id AND b.idx = i.idx), 0) AS size FROM (",
            $found,
            ") f LEFT JOIN indexed_texts i ON i.text_no = f.text_no AND i.team_id = $1 \
             LEFT JOIN sessions s ON s.team_id = i.team_id AND s.session_id = i.session_id AND s.deleted_at IS NULL \
             LEFT JOIN messages m ON m.team_id = i.team_id AND m.message_id = i.message_id) g) h LEFT JOIN parts p \
             ON h.ahead < $6 AND h.size > 0 AND p.team_id = $1 AND p.message_id = h.message_id AND p.idx = h.idx \
             ORDER BY h.text_no DESC"
        )
    };
}

/// Texts that have all the words of a query, each as it is or as a part of a longer one that is written `LikeThis`, the newest
/// first. Nothing is found by a query without a word.
pub async fn search(
    tx: &mut TeamTx<'_>,
    query: &str,
    cursor: Option<i64>,
    limit: usize,
) -> Result<FoundMessages, DbError> {
    let words = search_terms::asked(query);
    if words.is_empty() {
        return Ok(FoundMessages::default());
    }
    let began = Instant::now();
    let numbers = TextNumbers::of(&tx.team);
    let mut found = FoundMessages { is_behind: text_index::is_behind(tx).await?, ..FoundMessages::default() };
    // The page ends before this number.
    let mut end = cursor.unwrap_or(numbers.last).clamp(numbers.first, numbers.last);
    let mut read = 0;
    loop {
        let Some(newest) = newest_before(tx, &numbers, end).await? else { return Ok(found) };
        let first = text_index::first_of(text_index::stretch(newest) + 1).saturating_sub(RANGE_TEXTS);
        let first = first.max(numbers.first);
        let wanted = limit - found.hits.len();
        let rows = find(tx, &words, (first, newest), (wanted as u64, MAX_READ_BYTES - read)).await?;
        let mut has_all = rows.len() < wanted;
        for row in &rows {
            let size = row.count("size")?;
            let body = row.optional_text("body")?;
            if size > 0 && body.is_none() {
                has_all = false;
                break;
            }
            (end, read) = (row.int("text_no")?, (read + size).min(MAX_READ_BYTES));
            if let Some(body) = body {
                found.hits.extend(hit(row, &body, &words)?);
            }
        }
        if has_all {
            end = first;
        }
        if found.hits.len() >= limit || read >= MAX_READ_BYTES || began.elapsed() >= MAX_SEARCH_TIME {
            found.next = newest_before(tx, &numbers, end).await?.map(|_| end);
            return Ok(found);
        }
    }
}

/// The highest number below `end`.
async fn newest_before(tx: &mut TeamTx<'_>, numbers: &TextNumbers, end: i64) -> Result<Option<i64>, DbError> {
    // Whichever of the teams that share it took it: it only says where there is something.
    let sql = "SELECT text_no FROM indexed_texts WHERE text_no >= $1 AND text_no < $2 ORDER BY text_no DESC LIMIT 1";
    let row = tx.without_team().row(sql, args![numbers.first, end]).await?;
    row.map(|row| row.int("text_no")).transpose()
}

/// What the index has in a range: at most so many texts, the newest first, with the bodies of as many as fit in so many bytes
/// and of one more.
async fn find(
    tx: &mut TeamTx<'_>,
    words: &[String],
    (first, last): (i64, i64),
    (limit, bytes): (u64, u64),
) -> Result<Vec<Row>, DbError> {
    let (sql, asked) = if tx.is_sqlite() {
        let sql = hits!(
            "SELECT w.rowid AS text_no FROM text_words w WHERE w.text_words MATCH $2 AND w.rowid BETWEEN $3 AND $4 \
             ORDER BY w.rowid DESC LIMIT $5 + 0"
        );
        // A word has letters and digits alone.
        (sql, words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" "))
    } else {
        // One stretch after the other, the newest first, and none after the page is full. `+ 0`: otherwise PostgreSQL may
        // prefer to read the texts in their order.
        let sql = hits!(
            "SELECT k.text_no FROM unnest(string_to_array($2, ';')) AS c(words) CROSS JOIN LATERAL \
             (SELECT i.text_no FROM indexed_texts i WHERE i.team_id = $1 AND i.words @> CAST(c.words AS BIGINT[]) \
             AND i.text_no + 0 BETWEEN $3 AND $4 ORDER BY i.text_no + 0 DESC LIMIT $5 + 0) k LIMIT $5 + 0"
        );
        let stretches = text_index::stretch(first)..=text_index::stretch(last);
        let all = stretches.rev();
        let all = all.map(|stretch| text_index::stretch_words(stretch, words.iter().map(String::as_str)));
        (sql, all.collect::<Vec<_>>().join(";"))
    };
    tx.rows(sql, &[Arg::from(asked), Arg::from(first), Arg::from(last), Arg::from(limit), Arg::from(bytes)]).await
}

/// What a row shows of its text; `None` for one that cannot be read.
fn hit(row: &Row, body: &str, words: &[String]) -> Result<Option<MessageHit>, DbError> {
    let Some(title) = row.optional_text("title")? else { return Ok(None) };
    // A part that is damaged is found by nobody.
    let (text, speaker) = match serde_json::from_str(body) {
        Ok(Part::Text { text, .. }) => (text, None),
        Ok(Part::Message { text, author, .. }) => (text, Some(author).filter(|author| !author.is_empty())),
        _ => return Ok(None),
    };
    Ok(Some(MessageHit {
        session: row.parse("session_id")?,
        title,
        viber: row.parse("viber_id")?,
        is_archived: row.optional_instant("archived_at")?.is_some(),
        last_seq: row.count("last_seq")?,
        message: row.parse("message_id")?,
        seq: row.count("seq")?,
        idx: row.count("idx")?,
        last_idx: row.count("last_idx")?,
        role: if speaker.is_some() { MessageRole::User } else { row.parse("role")? },
        author: speaker.map_or_else(|| row.text("author"), Ok)?,
        created_at: row.instant("created_at")?,
        snippet: search_terms::snippet(&text, words),
    }))
}
