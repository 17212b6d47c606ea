//! Finding vibers: by what they do, and by a part of their words.
//!
//! The words of a viber are its name, its host, its labels and its agents, a line each, folded. They stand in a small
//! table of their own, because a search reads them viber by viber. Those of vibers that are older than the table are
//! written by a duty of the scheduler ([`write_words`]); until then a search puts them together itself.

use std::collections::BTreeMap;

use protocol::{AgentInfo, TeamId, ViberId};

use super::viber;
use crate::{
    args,
    db::{DbError, Row, TeamTx, Tx, fold, pattern},
    domain::{Viber, ViberFilter},
};

/// Vibers whose words are read for one page: the next page goes on behind them.
const MAX_WALKED_VIBERS: u64 = 10_000;
/// The same of vibers whose words are not written yet: their whole rows are read.
const MAX_WALKED_WITHOUT_WORDS: usize = 200;
/// Vibers whose words are written in one change.
const WORDS_PER_CHANGE: u64 = 30;
/// Teams whose vibers' words are written in one round.
const MAX_TEAMS_PER_ROUND: u64 = 100;
/// Greater than every id: those go on with hexadecimal digits.
const BEHIND_EVERY_VIBER: &str = "vib_g";

/// A page of what a search finds.
#[derive(Debug)]
pub struct FoundVibers {
    pub vibers: Vec<Viber>,
    /// Where the search goes on: behind the last viber, or behind the last one whose words were read when not all were.
    pub next: Option<ViberId>,
}

/// Vibers with `words` among theirs in any case, in order of joining, after `cursor`, without revoked ones. Every viber
/// has the empty words.
pub async fn search(
    tx: &mut TeamTx<'_>,
    filter: ViberFilter,
    words: &str,
    cursor: Option<&ViberId>,
    limit: usize,
) -> Result<FoundVibers, DbError> {
    // `CROSS JOIN` lets SQLite begin with what is fewer.
    macro_rules! any {
        ($from:literal, $filter:literal) => {
            select!(
                "(SELECT v.viber_id FROM ",
                $from,
                " WHERE v.team_id = $1 AND v.revoked_at IS NULL AND v.viber_id > $2",
                $filter,
                " ORDER BY v.viber_id LIMIT $3 + 0) f CROSS JOIN vibers v WHERE v.team_id = $1 \
                 AND v.viber_id = f.viber_id ORDER BY v.viber_id"
            )
        };
    }
    macro_rules! with_words {
        ($filter:literal) => {
            select!(
                "(SELECT w.viber_id FROM viber_words w CROSS JOIN vibers v WHERE w.team_id = $1 AND w.viber_id > $2 \
                 AND w.viber_id <= $4 AND w.words LIKE $5 ESCAPE '!' AND v.team_id = $1 AND v.viber_id = w.viber_id \
                 AND v.revoked_at IS NULL",
                $filter,
                " ORDER BY w.viber_id LIMIT $3 + 0) f CROSS JOIN vibers v WHERE v.team_id = $1 \
                 AND v.viber_id = f.viber_id ORDER BY v.viber_id"
            )
        };
    }
    let start = cursor.map_or("", ViberId::as_str);
    // One more says that there is a next page.
    let fetch = limit as u64 + 1;
    let words = fold(words);
    let (rows, unwritten, horizon) = if words.is_empty() {
        let sql = match filter {
            ViberFilter::All => any!("vibers v", ""),
            ViberFilter::Working => any!(
                "(SELECT DISTINCT n.viber_id FROM (SELECT t.viber_id FROM tasks t WHERE t.team_id = $1 \
                 AND t.state = 'running' AND t.state <> 'completed' ORDER BY t.task_id DESC LIMIT 10000) n) r \
                 CROSS JOIN vibers v",
                " AND v.viber_id = r.viber_id"
            ),
            ViberFilter::Online => any!("vibers v", " AND v.contact = 'connected'"),
            ViberFilter::Offline => any!("vibers v", " AND v.contact = 'disconnected'"),
        };
        (tx.rows(sql, args![start, fetch]).await?, Vec::new(), None)
    } else {
        let sql = match filter {
            ViberFilter::All => with_words!(""),
            ViberFilter::Working => with_words!(
                " AND v.viber_id IN (SELECT t.viber_id FROM tasks t WHERE t.team_id = $1 AND t.state = 'running' \
                 AND t.state <> 'completed' ORDER BY t.task_id DESC LIMIT 10000)"
            ),
            ViberFilter::Online => with_words!(" AND v.contact = 'connected'"),
            ViberFilter::Offline => with_words!(" AND v.contact = 'disconnected'"),
        };
        // Before the written ones: what is written meanwhile is found twice rather than never.
        let (mut unwritten, unwritten_horizon) = without_words(tx, start).await?;
        let horizon = horizon(tx, start).await?.into_iter().chain(unwritten_horizon).min();
        unwritten.retain(|viber| {
            horizon.as_ref().is_none_or(|end| viber.id <= *end)
                && filter.admits(viber)
                && folded_words(&viber.name, &viber.hostname, &viber.labels, &viber.agents).contains(&words)
        });
        let end = horizon.as_ref().map_or(BEHIND_EVERY_VIBER, ViberId::as_str);
        (tx.rows(sql, args![start, fetch, end, pattern(&words)]).await?, unwritten, horizon)
    };
    let mut vibers: Vec<Viber> = rows.iter().map(viber).collect::<Result<_, _>>()?;
    vibers.extend(unwritten);
    vibers.sort_by(|one, other| one.id.cmp(&other.id));
    vibers.dedup_by(|one, other| one.id == other.id);
    if vibers.len() <= limit {
        return Ok(FoundVibers { vibers, next: horizon });
    }
    vibers.truncate(limit);
    let next = vibers.last().map(|last| last.id.clone());
    Ok(FoundVibers { vibers, next })
}

/// The last viber whose words are read behind `start`; `None` when those of all others are.
async fn horizon(tx: &mut TeamTx<'_>, start: &str) -> Result<Option<ViberId>, DbError> {
    let sql = "SELECT viber_id FROM viber_words WHERE team_id = $1 AND viber_id > $2 ORDER BY viber_id \
               LIMIT 2 OFFSET $3 + 0";
    match tx.rows(sql, args![start, MAX_WALKED_VIBERS - 1]).await?.as_slice() {
        [last, _behind] => Ok(Some(last.parse("viber_id")?)),
        _ => Ok(None),
    }
}

/// The next vibers behind `start` whose words are not written yet, and the last of them when there are more.
async fn without_words(tx: &mut TeamTx<'_>, start: &str) -> Result<(Vec<Viber>, Option<ViberId>), DbError> {
    let sql = select!(
        "(SELECT w.viber_id FROM viber_words w CROSS JOIN vibers v WHERE w.team_id = $1 AND w.viber_id > $2 \
         AND w.words IS NULL AND v.team_id = $1 AND v.viber_id = w.viber_id AND v.revoked_at IS NULL \
         ORDER BY w.viber_id LIMIT $3 + 0) f CROSS JOIN vibers v WHERE v.team_id = $1 AND v.viber_id = f.viber_id \
         ORDER BY v.viber_id"
    );
    let rows = tx.rows(sql, args![start, MAX_WALKED_WITHOUT_WORDS as u64 + 1]).await?;
    let mut vibers: Vec<Viber> = rows.iter().map(viber).collect::<Result<_, _>>()?;
    if vibers.len() <= MAX_WALKED_WITHOUT_WORDS {
        return Ok((vibers, None));
    }
    vibers.truncate(MAX_WALKED_WITHOUT_WORDS);
    let last = vibers.last().map(|last| last.id.clone());
    Ok((vibers, last))
}

/// Teams with vibers whose words are not written yet.
pub async fn teams_without_words(tx: &mut Tx) -> Result<Vec<TeamId>, DbError> {
    let sql = "SELECT DISTINCT team_id FROM viber_words WHERE words IS NULL LIMIT $1 + 0";
    tx.rows(sql, args![MAX_TEAMS_PER_ROUND]).await?.iter().map(|row| row.parse("team_id")).collect()
}

/// Writes the words of some of a team's vibers that have none yet. Returns whether there may be more.
pub async fn write_words(tx: &mut TeamTx<'_>) -> Result<bool, DbError> {
    let sql = "SELECT v.viber_id, v.name, v.hostname, v.labels, v.agents FROM viber_words w CROSS JOIN vibers v \
               WHERE w.team_id = $1 AND w.words IS NULL AND v.team_id = $1 AND v.viber_id = w.viber_id \
               ORDER BY w.viber_id LIMIT $2 + 0";
    let rows = tx.rows(sql, args![WORDS_PER_CHANGE]).await?;
    // On PostgreSQL somebody may have written newer ones since they were read: those stay.
    let sql = "UPDATE viber_words SET words = $3 WHERE team_id = $1 AND viber_id = $2 AND words IS NULL";
    for row in &rows {
        tx.defer(sql, args![row.text("viber_id")?, words_of(row)?]).await?;
    }
    Ok(rows.len() as u64 == WORDS_PER_CHANGE)
}

/// Writes a viber's words as they are now.
pub(super) async fn refresh_words(tx: &mut TeamTx<'_>, id: &ViberId) -> Result<(), DbError> {
    let sql = "SELECT name, hostname, labels, agents FROM vibers WHERE team_id = $1 AND viber_id = $2";
    let Some(row) = tx.row(sql, args![id]).await? else { return Ok(()) };
    let sql = "INSERT INTO viber_words (team_id, viber_id, words) VALUES ($1, $2, $3) ON CONFLICT (team_id, viber_id) \
               DO UPDATE SET words = excluded.words \
               WHERE viber_words.words IS NULL OR viber_words.words <> excluded.words";
    tx.execute(sql, args![id, words_of(&row)?]).await.map(drop)
}

fn words_of(row: &Row) -> Result<String, DbError> {
    let labels: BTreeMap<String, String> = row.json("labels")?;
    let agents: Vec<AgentInfo> = row.json("agents")?;
    Ok(folded_words(&row.text("name")?, &row.text("hostname")?, &labels, &agents))
}

/// What a search compares of a viber.
fn folded_words(name: &str, hostname: &str, labels: &BTreeMap<String, String>, agents: &[AgentInfo]) -> String {
    let mut lines = vec![name.to_owned(), hostname.to_owned()];
    lines.extend(labels.iter().map(|(key, value)| format!("{key}={value}")));
    lines.extend(agents.iter().flat_map(|agent| [agent.id.clone(), agent.name.clone()]));
    fold(&lines.join("\n"))
}
