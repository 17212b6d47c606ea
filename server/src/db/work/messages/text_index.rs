//! The index of what people and agents wrote: FTS5 on SQLite, GIN on PostgreSQL. It is filled later, piece by piece, so that
//! recording a message costs a short note (a trigger's) and nothing more. Texts never change, so neither does what the index
//! has of one; it goes with the text.
//!
//! Texts are numbered as time goes by, so that the newest are found first without sorting: what is new upwards from the
//! middle of a team's numbers, what was there before the index downwards.

use protocol::{MessageId, SessionId, TeamId};

use crate::{
    args,
    db::{DbError, Row, TeamTx, Tx, sessions::before_first_number},
    domain::{Part, search_terms},
};

/// Texts that are added to the index in one change, and different words of them: one more text still fits.
const TEXTS_PER_CHANGE: u64 = 10;
const MAX_WORDS_PER_CHANGE: usize = 800;
/// Parts of the time before the index that are looked at in one change.
const OLDER_PARTS_PER_CHANGE: u64 = 30;
/// Pages of SQLite's index that are merged in the same change, words that add another one, and the most of them: each is
/// some rows.
const MERGED_PAGES_PER_CHANGE: usize = 10;
const WORDS_PER_MERGED_PAGE: usize = 60;
const MAX_MERGED_PAGES_PER_CHANGE: usize = 22;
/// Teams whose texts are added to the index in one round.
const MAX_TEAMS_PER_ROUND: u64 = 100;
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

/// A text that is not in the index.
struct NewText {
    message: MessageId,
    idx: u64,
    session: SessionId,
    seq: u64,
    /// `None`: the part is no text, or damaged, which must not keep others from the index.
    body: Option<Part>,
}

fn new_text(row: &Row) -> Result<NewText, DbError> {
    Ok(NewText {
        message: row.parse("message_id")?,
        idx: row.count("idx")?,
        session: row.parse("session_id")?,
        seq: row.count("seq")?,
        body: row.optional_json("body").unwrap_or_default(),
    })
}

/// Teams with texts that are not indexed yet.
pub async fn unindexed(tx: &mut Tx) -> Result<Vec<TeamId>, DbError> {
    // Asked team by team, because one team may have very many.
    let sql = "SELECT t.team_id FROM teams t WHERE t.deleted_at IS NULL AND (EXISTS (SELECT 1 FROM unindexed_texts u \
               WHERE u.team_id = t.team_id) OR EXISTS (SELECT 1 FROM unindexed_history h WHERE h.team_id = t.team_id)) \
               LIMIT $1 + 0";
    tx.rows(sql, args![MAX_TEAMS_PER_ROUND]).await?.iter().map(|row| row.parse("team_id")).collect()
}

/// Whether more of a team's texts wait to be indexed than some that were written just now.
pub async fn is_behind(tx: &mut TeamTx<'_>) -> Result<bool, DbError> {
    let sql = "SELECT 1 AS n WHERE EXISTS (SELECT 1 FROM unindexed_history h WHERE h.team_id = $1) \
               OR EXISTS (SELECT 1 FROM unindexed_texts u WHERE u.team_id = $1 LIMIT 1 OFFSET 100)";
    Ok(tx.row(sql, &[]).await?.is_some())
}

/// Adds some of a team's texts to the index: new ones, else some that are older than the index. Returns whether there may be
/// more.
pub async fn index_texts(tx: &mut TeamTx<'_>) -> Result<bool, DbError> {
    let sql = "SELECT u.message_id, u.idx, m.session_id, m.seq, p.body FROM (SELECT team_id, message_id, idx \
               FROM unindexed_texts WHERE team_id = $1 ORDER BY message_id, idx LIMIT $2 + 0) u \
               CROSS JOIN messages m CROSS JOIN parts p WHERE m.team_id = u.team_id AND m.message_id = u.message_id \
               AND p.team_id = u.team_id AND p.message_id = u.message_id AND p.idx = u.idx ORDER BY u.message_id, u.idx";
    let noted = tx.rows(sql, args![TEXTS_PER_CHANGE]).await?;
    if noted.is_empty() {
        return index_older(tx).await;
    }
    let numbers = TextNumbers::of(&tx.team);
    let newest = edge(
        tx,
        "SELECT text_no FROM indexed_texts WHERE text_no BETWEEN $1 AND $2 ORDER BY text_no DESC LIMIT 1",
        &numbers,
    )
    .await?;
    let (mut number, mut words) = (newest.unwrap_or(numbers.middle - 1), 0);
    for row in &noted {
        let text = new_text(row)?;
        let added = add(tx, number + 1, &text).await?;
        (number, words) = (number + i64::from(added.is_some()), words + added.unwrap_or(0));
        let sql = "DELETE FROM unindexed_texts WHERE team_id = $1 AND message_id = $2 AND idx = $3";
        tx.execute(sql, args![&text.message, text.idx]).await?;
        if words >= MAX_WORDS_PER_CHANGE || tx.is_full() {
            break;
        }
    }
    merge(tx, words).await?;
    Ok(true)
}

/// The same of texts that are older than the index, the newest first.
async fn index_older(tx: &mut TeamTx<'_>) -> Result<bool, DbError> {
    let sql = "SELECT message_id, idx FROM unindexed_history WHERE team_id = $1";
    let Some(place) = tx.row(sql, &[]).await? else { return Ok(false) };
    let (mut message, mut idx) = (place.text("message_id")?, place.count("idx")?);
    let sql = "SELECT p.message_id, p.idx, m.session_id, m.seq, CASE WHEN p.kind = 'text' THEN p.body END AS body FROM \
               (SELECT team_id, message_id, idx, kind, body FROM parts WHERE team_id = $1 AND (message_id, idx) < ($2, $3) \
               ORDER BY message_id DESC, idx DESC LIMIT $4 + 0) p CROSS JOIN messages m WHERE m.team_id = p.team_id \
               AND m.message_id = p.message_id ORDER BY p.message_id DESC, p.idx DESC";
    let older = tx.rows(sql, args![&message, idx, OLDER_PARTS_PER_CHANGE]).await?;
    if older.is_empty() {
        tx.execute("DELETE FROM unindexed_history WHERE team_id = $1", &[]).await?;
        return Ok(false);
    }
    let numbers = TextNumbers::of(&tx.team);
    let oldest = edge(
        tx,
        "SELECT text_no FROM indexed_texts WHERE text_no BETWEEN $1 AND $2 ORDER BY text_no LIMIT 1",
        &numbers,
    )
    .await?;
    let (mut number, mut words, mut texts) = (oldest.unwrap_or(numbers.middle).min(numbers.middle), 0, 0);
    for row in &older {
        let text = new_text(row)?;
        let added = add(tx, number - 1, &text).await?;
        (number, words) = (number - i64::from(added.is_some()), words + added.unwrap_or(0));
        (message, idx) = (text.message.to_string(), text.idx);
        texts += u64::from(added.is_some());
        if words >= MAX_WORDS_PER_CHANGE || texts >= TEXTS_PER_CHANGE || tx.is_full() {
            break;
        }
    }
    let sql = "UPDATE unindexed_history SET message_id = $2, idx = $3 WHERE team_id = $1";
    tx.execute(sql, args![&message, idx]).await?;
    merge(tx, words).await?;
    Ok(true)
}

/// The first or last number that is taken, whichever of the teams that share it took it.
async fn edge(tx: &mut TeamTx<'_>, sql: &'static str, numbers: &TextNumbers) -> Result<Option<i64>, DbError> {
    let row = tx.without_team().row(sql, args![numbers.first, numbers.last]).await?;
    row.map(|row| row.int("text_no")).transpose()
}

/// Adds a text under a number, unless the index has it. Returns how many words it has.
async fn add(tx: &mut TeamTx<'_>, number: i64, text: &NewText) -> Result<Option<usize>, DbError> {
    let Some(Part::Text { text: written, .. }) = &text.body else { return Ok(None) };
    let words = search_terms::of_text(written);
    let NewText { message, idx, session, seq, .. } = text;
    if tx.is_sqlite() {
        let sql = "INSERT INTO indexed_texts (team_id, text_no, session_id, seq, message_id, idx) \
                   VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (team_id, message_id, idx) DO NOTHING";
        if tx.execute(sql, args![number, session, *seq, message, *idx]).await? == 0 {
            return Ok(None);
        }
        let all = words.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        let sql = "INSERT INTO text_words (rowid, words) SELECT i.text_no, $3 FROM indexed_texts i \
                   WHERE i.team_id = $1 AND i.text_no = $2";
        tx.execute(sql, args![number, all]).await?;
    } else {
        let sql = "INSERT INTO indexed_texts (team_id, text_no, session_id, seq, message_id, idx, words) \
                   VALUES ($1, $2, $3, $4, $5, $6, CAST($7 AS BIGINT[])) ON CONFLICT (team_id, message_id, idx) DO NOTHING";
        let all = stretch_words(stretch(number), words.iter().map(String::as_str));
        if tx.execute(sql, args![number, session, *seq, message, *idx, all]).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(words.len()))
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
