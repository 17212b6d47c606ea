//! Which vibers a task may be given to. Connected ones without work are found by an index, and labels by a table of theirs,
//! so that it costs the same however many vibers there are.

use std::collections::BTreeMap;

use protocol::{AgentInfo, Instant, ViberId};

use crate::{
    args,
    db::{DbError, Query, Row, TeamTx},
    domain::ContactState,
};

/// A viber as placing a task sees it.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub id: ViberId,
    pub labels: BTreeMap<String, String>,
    pub agents: Vec<AgentInfo>,
    pub drained: bool,
    pub connected: bool,
    /// Tasks that run there or wait for it.
    pub busy: u64,
    pub seen_at: Option<Instant>,
}

macro_rules! candidates {
    ($from:literal, $rest:literal) => {
        concat!(
            "SELECT v.viber_id, v.labels, v.agents, v.drained, v.contact, v.seen_at, \
             (SELECT COUNT(*) FROM tasks t WHERE t.team_id = v.team_id AND t.viber_id = v.viber_id \
              AND t.state <> 'completed' AND t.state IN ('pending', 'running')) AS busy FROM ",
            $from,
            " WHERE v.team_id = $1 AND v.revoked_at IS NULL ",
            $rest
        )
    };
}

/// A viber as one that a task may be given to.
pub async fn candidate(tx: &mut TeamTx<'_>, id: &ViberId) -> Result<Option<Candidate>, DbError> {
    tx.query(candidate_query(id)).await
}

/// The same as a query, to be sent together with others.
pub fn candidate_query(id: &ViberId) -> Query<Option<Candidate>> {
    let sql = candidates!("vibers v", "AND v.viber_id = $2");
    Query::new(sql, args![id], |answer| answer.row().map(candidate_of).transpose())
}

/// The viber of this name as one that a task may be given to.
pub async fn candidate_named(tx: &mut TeamTx<'_>, name: &str) -> Result<Option<Candidate>, DbError> {
    let sql = candidates!("vibers v", "AND v.name = $2 ORDER BY v.viber_id LIMIT 1");
    tx.row(sql, args![name]).await?.as_ref().map(candidate_of).transpose()
}

/// The vibers that a task may be given to: all that have the rarest of these labels, and maybe others.
pub async fn candidates(tx: &mut TeamTx<'_>, labels: &BTreeMap<String, String>) -> Result<Vec<Candidate>, DbError> {
    let rows = match rarest(tx, labels).await? {
        Some((vibers, (label, value))) if vibers < MAX_LABELED => {
            let sql = candidates!(
                "viber_labels l CROSS JOIN vibers v",
                "AND l.team_id = $1 AND l.label = $2 AND l.value = $3 AND l.viber_id = v.viber_id"
            );
            tx.rows(sql, args![label, value]).await?
        }
        _ => tx.rows(candidates!("vibers v", "ORDER BY v.viber_id LIMIT 10000"), &[]).await?,
    };
    rows.iter().map(candidate_of).collect()
}

fn candidate_of(row: &Row) -> Result<Candidate, DbError> {
    Ok(Candidate {
        id: row.parse("viber_id")?,
        labels: row.json("labels")?,
        agents: row.json("agents")?,
        drained: row.flag("drained")?,
        connected: row.parse::<ContactState>("contact")? == ContactState::Connected,
        busy: row.count("busy")?,
        seen_at: row.optional_instant("seen_at")?,
    })
}

/// Vibers that a label leads to at most: one that more of them have is looked for among all.
const MAX_LABELED: u64 = 200;

/// Connected vibers without any work that have a label, at most `limit` of them in the order of their ids. The label that
/// the fewest vibers have finds them.
pub async fn ready(
    tx: &mut TeamTx<'_>,
    labels: &BTreeMap<String, String>,
    limit: u64,
) -> Result<Vec<Candidate>, DbError> {
    macro_rules! ready {
        ($from:literal, $filter:literal) => {
            concat!(
                "SELECT v.viber_id, v.labels, v.agents, v.drained, v.contact, v.seen_at, 0 AS busy FROM ",
                $from,
                " WHERE v.team_id = $1 AND v.contact = 'connected' AND v.drained = 0 AND v.revoked_at IS NULL \
                 AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.team_id = $1 AND t.viber_id = v.viber_id \
                 AND t.state <> 'completed' AND t.state IN ('pending', 'running')) ",
                $filter,
                " ORDER BY v.viber_id LIMIT $2 + 0"
            )
        };
    }
    let rows = match rarest(tx, labels).await? {
        None => tx.rows(ready!("vibers v", ""), args![limit]).await?,
        Some((vibers, (label, value))) => {
            let sql = if vibers < MAX_LABELED {
                // `CROSS JOIN` lets SQLite begin with the few.
                ready!(
                    "viber_labels l CROSS JOIN vibers v",
                    "AND l.team_id = $1 AND l.label = $3 AND l.value = $4 AND l.viber_id = v.viber_id"
                )
            } else {
                ready!(
                    "vibers v",
                    "AND EXISTS (SELECT 1 FROM viber_labels l WHERE l.team_id = $1 AND l.label = $3 AND l.value = $4 \
                     AND l.viber_id = v.viber_id)"
                )
            };
            tx.rows(sql, args![limit, label, value]).await?
        }
    };
    rows.iter().map(candidate_of).collect()
}

/// The label that the fewest vibers have, and how many have it: counted up to [`MAX_LABELED`].
async fn rarest<'l>(
    tx: &mut TeamTx<'_>,
    labels: &'l BTreeMap<String, String>,
) -> Result<Option<(u64, (&'l String, &'l String))>, DbError> {
    let mut rarest: Option<(u64, (&String, &String))> = None;
    for label in labels {
        let sql = "SELECT COUNT(*) AS n FROM (SELECT 1 AS one FROM viber_labels WHERE team_id = $1 AND label = $2 \
                   AND value = $3 LIMIT $4 + 0) labeled";
        let row = tx.row(sql, args![label.0, label.1, MAX_LABELED]).await?;
        let vibers = row.map_or(Ok(0), |row| row.count("n"))?;
        if rarest.is_none_or(|(fewest, _)| vibers < fewest) {
            rarest = Some((vibers, label));
        }
    }
    Ok(rarest)
}
