//! Finding vibers: by what they do, and by a part of their words.
//!
//! The words of a viber are its name, its host, its labels and its agents, a line each, folded. They stand in a small
//! table of their own, because a search reads them viber by viber.

use std::collections::BTreeMap;

use protocol::{AgentInfo, ViberId};

use super::viber;
use crate::{
    args,
    db::{DbError, Row, TeamTx, fold, pattern},
    domain::{Viber, ViberFilter},
};

/// Vibers whose words are read for one page: the next page goes on behind them.
const MAX_WALKED_VIBERS: u64 = 10_000;
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
    let (rows, horizon) = if words.is_empty() {
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
        (tx.rows(sql, args![start, fetch]).await?, None)
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
        let horizon = horizon(tx, start).await?;
        let end = horizon.as_ref().map_or(BEHIND_EVERY_VIBER, ViberId::as_str);
        (tx.rows(sql, args![start, fetch, end, pattern(&words)]).await?, horizon)
    };
    let mut vibers: Vec<Viber> = rows.iter().map(viber).collect::<Result<_, _>>()?;
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

/// Writes a viber's words as they are now.
pub(super) async fn refresh_words(tx: &mut TeamTx<'_>, id: &ViberId) -> Result<(), DbError> {
    let sql = "SELECT name, hostname, labels, agents FROM vibers WHERE team_id = $1 AND viber_id = $2";
    let Some(row) = tx.row(sql, args![id]).await? else { return Ok(()) };
    let sql = "INSERT INTO viber_words (team_id, viber_id, words) VALUES ($1, $2, $3) ON CONFLICT (team_id, viber_id) \
               DO UPDATE SET words = excluded.words WHERE viber_words.words <> excluded.words";
    tx.execute(sql, args![id, words(&row)?]).await.map(drop)
}

fn words(row: &Row) -> Result<String, DbError> {
    let mut lines = vec![row.text("name")?, row.text("hostname")?];
    lines.extend(row.json::<BTreeMap<String, String>>("labels")?.iter().map(|(key, value)| format!("{key}={value}")));
    lines.extend(row.json::<Vec<AgentInfo>>("agents")?.into_iter().flat_map(|agent| [agent.id, agent.name]));
    Ok(fold(&lines.join("\n")))
}
