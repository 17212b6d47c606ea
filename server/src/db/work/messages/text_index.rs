//! The index of what people and agents wrote: FTS5 on SQLite, GIN on PostgreSQL. It is filled later, piece by piece, so that
//! recording a message costs a short note (a trigger's) and nothing more. Texts never change, so neither does what the index
//! has of one; it goes with the text.
//!
//! Texts are numbered as time goes by, so that the newest are found first without sorting: what is new upwards from the
//! middle of a team's numbers, what was there before the index downwards.

use std::collections::BTreeSet;

use protocol::{MessageId, SessionId, TeamId};

use crate::{
    args,
    db::{DbError, Row, TeamTx, sessions::before_first_number},
    domain::{Part, search_terms},
};

/// Texts that are added to the index in one change, and different words of them: one more text still fits.
const TEXTS_PER_CHANGE: u64 = 10;
const MAX_WORDS_PER_CHANGE: usize = 800;
/// Bytes of texts that are read for one change, and one more text.
const BYTES_PER_CHANGE: u64 = 64 * 1024;
/// Parts of the time before the index that are looked at in one change.
const OLDER_PARTS_PER_CHANGE: u64 = 100;
/// Pages of SQLite's index that are merged in the same change, words that add another one, and the most of them: each is
/// some rows.
const MERGED_PAGES_PER_CHANGE: usize = 10;
const WORDS_PER_MERGED_PAGE: usize = 60;
const MAX_MERGED_PAGES_PER_CHANGE: usize = 22;
/// Numbers of a team.
const NUMBERS_PER_TEAM: i64 = 1 << 32;
/// Texts of PostgreSQL's index in which a word has the same number: 4,096.
const STRETCH_BITS: u32 = 12;

/// The numbers that a team's texts may have. Two teams may share theirs, which costs time and shows nothing.
pub(super) struct TextNumbers {
    pub first: i64,
    middle: i64,
    pub last: i64,
}

impl TextNumbers {
    pub fn of(team: &TeamId) -> Self {
        let first = before_first_number(team);
        Self { first, middle: first + NUMBERS_PER_TEAM / 2, last: first + NUMBERS_PER_TEAM - 1 }
    }
}

/// A text that is not in the index, and its words.
struct NewText {
    message: MessageId,
    idx: u64,
    session: SessionId,
    seq: u64,
    words: BTreeSet<String>,
}

/// What one change adds, in the order in which it was read.
struct TextBatch {
    texts: Vec<NewText>,
    /// Different words of each text, together.
    words: usize,
    /// The last place that was looked at, whatever was there.
    end: (String, u64),
}

/// Whether more of a team's texts wait to be indexed than some that were written just now.
pub async fn is_behind(tx: &mut TeamTx<'_>) -> Result<bool, DbError> {
    let sql = "SELECT 1 AS n WHERE EXISTS (SELECT 1 FROM unindexed_history h WHERE h.team_id = $1) \
               OR EXISTS (SELECT 1 FROM unindexed_texts u WHERE u.team_id = $1 LIMIT 1 OFFSET 100)";
    Ok(tx.row(sql, &[]).await?.is_some())
}

/// Adds some of a team's new texts to the index.
pub async fn index_new(tx: &mut TeamTx<'_>) -> Result<(), DbError> {
    // Sizes first: of texts that do not fit into this change nothing is read.
    let sql = "SELECT s.message_id, s.idx, m.session_id, m.seq, s.is_indexed, p.body FROM \
               (SELECT n.message_id, n.idx, n.is_indexed, SUM(n.size) OVER (ORDER BY n.message_id, n.idx) - n.size AS ahead \
               FROM (SELECT u.message_id, u.idx, OCTET_LENGTH(p.body) AS size, (SELECT COUNT(*) FROM indexed_texts i \
               WHERE i.team_id = $1 AND i.message_id = u.message_id AND i.idx = u.idx) AS is_indexed \
               FROM (SELECT team_id, message_id, idx FROM unindexed_texts WHERE team_id = $1 ORDER BY message_id, idx \
               LIMIT $2 + 0) u CROSS JOIN parts p WHERE p.team_id = u.team_id AND p.message_id = u.message_id \
               AND p.idx = u.idx) n) s CROSS JOIN messages m CROSS JOIN parts p WHERE s.ahead < $3 AND m.team_id = $1 \
               AND m.message_id = s.message_id AND p.team_id = $1 AND p.message_id = s.message_id AND p.idx = s.idx \
               ORDER BY s.message_id, s.idx";
    let noted = tx.rows(sql, args![TEXTS_PER_CHANGE, BYTES_PER_CHANGE]).await?;
    let Some(batch) = batch(tx, &noted)? else { return Ok(()) };
    let numbers = TextNumbers::of(&tx.team);
    let newest = edge(
        tx,
        "SELECT text_no FROM indexed_texts WHERE text_no BETWEEN $1 AND $2 ORDER BY text_no DESC LIMIT 1",
        &numbers,
    )
    .await?;
    let first = newest.unwrap_or(numbers.middle - 1) + 1;
    for (number, text) in (first..).zip(&batch.texts) {
        add(tx, number, text).await?;
    }
    // A team's changes run one after the other: nothing was noted in between.
    let sql = "DELETE FROM unindexed_texts WHERE team_id = $1 AND (message_id, idx) <= ($2, $3)";
    tx.defer(sql, args![&batch.end.0, batch.end.1]).await?;
    merge(tx, batch.words).await
}

/// The same of texts that are older than the index, the newest first.
pub async fn index_older(tx: &mut TeamTx<'_>) -> Result<(), DbError> {
    let sql = "SELECT message_id, idx FROM unindexed_history WHERE team_id = $1";
    let Some(place) = tx.row(sql, &[]).await? else { return Ok(()) };
    let sql = "SELECT s.message_id, s.idx, m.session_id, m.seq, (SELECT COUNT(*) FROM indexed_texts i \
               WHERE i.team_id = $1 AND i.message_id = s.message_id AND i.idx = s.idx) AS is_indexed, \
               CASE WHEN p.kind = 'text' THEN p.body END AS body FROM \
               (SELECT o.message_id, o.idx, SUM(o.size) OVER (ORDER BY o.message_id DESC, o.idx DESC) - o.size AS ahead \
               FROM (SELECT message_id, idx, CASE WHEN kind = 'text' THEN OCTET_LENGTH(body) ELSE 0 END AS size FROM parts \
               WHERE team_id = $1 AND (message_id, idx) < ($2, $3) ORDER BY message_id DESC, idx DESC LIMIT $4 + 0) o) s \
               CROSS JOIN messages m CROSS JOIN parts p WHERE s.ahead < $5 AND m.team_id = $1 \
               AND m.message_id = s.message_id AND p.team_id = $1 AND p.message_id = s.message_id AND p.idx = s.idx \
               ORDER BY s.message_id DESC, s.idx DESC";
    let from = args![place.text("message_id")?, place.count("idx")?, OLDER_PARTS_PER_CHANGE, BYTES_PER_CHANGE];
    let older = tx.rows(sql, from).await?;
    let Some(batch) = batch(tx, &older)? else {
        return tx.execute("DELETE FROM unindexed_history WHERE team_id = $1", &[]).await.map(drop);
    };
    let numbers = TextNumbers::of(&tx.team);
    let oldest = edge(
        tx,
        "SELECT text_no FROM indexed_texts WHERE text_no BETWEEN $1 AND $2 ORDER BY text_no LIMIT 1",
        &numbers,
    )
    .await?;
    let first = oldest.unwrap_or(numbers.middle).min(numbers.middle) - batch.texts.len() as i64;
    // Upwards all the same: FTS5 writes what it has whenever a number is below the one before.
    for (number, text) in (first..).zip(batch.texts.iter().rev()) {
        add(tx, number, text).await?;
    }
    let sql = "UPDATE unindexed_history SET message_id = $2, idx = $3 WHERE team_id = $1";
    tx.defer(sql, args![&batch.end.0, batch.end.1]).await?;
    merge(tx, batch.words).await
}

/// As many of the texts that were read as fit into this change, the first one in any case; `None` when nothing was read.
fn batch(tx: &mut TeamTx<'_>, rows: &[Row]) -> Result<Option<TextBatch>, DbError> {
    let (mut texts, mut words, mut end) = (Vec::new(), 0, None);
    for row in rows {
        end = Some((row.text("message_id")?, row.count("idx")?));
        if let Some(text) = new_text(row)? {
            words += text.words.len();
            texts.push(text);
        }
        if words >= MAX_WORDS_PER_CHANGE || texts.len() as u64 >= TEXTS_PER_CHANGE || tx.is_full() {
            break;
        }
    }
    Ok(end.map(|end| TextBatch { texts, words, end }))
}

/// `None`: the index has it, or the part is no text, or damaged, which must not keep others from the index.
fn new_text(row: &Row) -> Result<Option<NewText>, DbError> {
    let body = if row.count("is_indexed")? > 0 { None } else { row.optional_json("body").unwrap_or_default() };
    let Some(Part::Text { text, .. } | Part::Message { text, .. }) = body else { return Ok(None) };
    Ok(Some(NewText {
        message: row.parse("message_id")?,
        idx: row.count("idx")?,
        session: row.parse("session_id")?,
        seq: row.count("seq")?,
        words: search_terms::of_text(&text),
    }))
}

/// The first or last number that is taken, whichever of the teams that share it took it.
async fn edge(tx: &mut TeamTx<'_>, sql: &'static str, numbers: &TextNumbers) -> Result<Option<i64>, DbError> {
    let row = tx.without_team().row(sql, args![numbers.first, numbers.last]).await?;
    row.map(|row| row.int("text_no")).transpose()
}

/// Adds a text, which the index does not have, under a number.
async fn add(tx: &mut TeamTx<'_>, number: i64, text: &NewText) -> Result<(), DbError> {
    let NewText { message, idx, session, seq, words } = text;
    let words = words.iter().map(String::as_str);
    if tx.is_sqlite() {
        let sql = "INSERT INTO indexed_texts (team_id, text_no, session_id, seq, message_id, idx) \
                   VALUES ($1, $2, $3, $4, $5, $6)";
        tx.defer(sql, args![number, session, *seq, message, *idx]).await?;
        let sql = "INSERT INTO text_words (rowid, words) SELECT i.text_no, $3 FROM indexed_texts i \
                   WHERE i.team_id = $1 AND i.text_no = $2";
        tx.defer(sql, args![number, words.collect::<Vec<_>>().join(" ")]).await
    } else {
        let sql = "INSERT INTO indexed_texts (team_id, text_no, session_id, seq, message_id, idx, words) \
                   VALUES ($1, $2, $3, $4, $5, $6, CAST($7 AS BIGINT[]))";
        tx.defer(sql, args![number, session, *seq, message, *idx, stretch_words(stretch(number), words)]).await
    }
}

/// Merges pages of SQLite's index, more than this change adds. It also writes what the change added, which FTS5 would leave
/// to the change after it.
async fn merge(tx: &mut TeamTx<'_>, words: usize) -> Result<(), DbError> {
    if words > 0 && tx.is_sqlite() {
        let pages = (MERGED_PAGES_PER_CHANGE + words / WORDS_PER_MERGED_PAGE).min(MAX_MERGED_PAGES_PER_CHANGE) as u64;
        let sql = "INSERT INTO text_words (text_words, rank) VALUES ('merge', $1)";
        tx.without_team().execute(sql, args![pages]).await?;
    }
    Ok(())
}

/// The stretch of texts that a number belongs to.
pub(super) fn stretch(number: i64) -> i64 {
    number >> STRETCH_BITS
}

/// The first number of a stretch.
pub(super) fn first_of(stretch: i64) -> i64 {
    stretch << STRETCH_BITS
}

/// The numbers of words in a stretch, as PostgreSQL writes a list. Equal ones of two words would find a text too many.
pub(super) fn stretch_words<'w>(stretch: i64, words: impl Iterator<Item = &'w str>) -> String {
    let numbers: Vec<String> = words.map(|word| word_number(stretch, word).to_string()).collect();
    format!("{{{}}}", numbers.join(","))
}

/// FNV-1a over both, mixed: it stands in databases, so it stays as it is.
fn word_number(stretch: i64, word: &str) -> i64 {
    let bytes = stretch.to_le_bytes().into_iter().chain(word.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_keeps_its_number_and_has_another_one_in_each_stretch() {
        assert_eq!(stretch_words(7, ["cart", "slow"].into_iter()), "{-6875251104422781456,6699575294631955940}");
        assert_ne!(word_number(7, "cart"), word_number(8, "cart"));
        assert_eq!(stretch_words(7, std::iter::empty()), "{}");
        let number = TextNumbers::of(&TeamId::new(1)).middle + 5_000;
        assert!(first_of(stretch(number)) <= number && number < first_of(stretch(number) + 1));
    }

    #[test]
    fn the_numbers_of_a_team_are_none_of_another_ones() {
        let (one, two) = (TextNumbers::of(&TeamId::new(1)), TextNumbers::of(&TeamId::new(1)));
        assert!(one.first >= 0 && one.first < one.middle && one.middle < one.last);
        assert!(one.last < two.first || two.last < one.first);
    }
}
