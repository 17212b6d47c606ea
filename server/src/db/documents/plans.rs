//! Revisions of sessions' plans: the newest few hundred versions that the Board saw.

use protocol::{SessionId, TaskId};

use crate::{
    args,
    db::{Change, DbError, Query, Row, TeamTx},
    domain::{PlanSource, Policies, Revision, context::compaction::Carried},
};

/// Sessions through which a plan is looked for that was taken along again and again.
const MAX_EARLIER_SESSIONS: usize = 16;

/// Revisions kept of one session.
const MAX_REVISIONS_PER_SESSION: u64 = 300;

/// A revision that is to be added.
#[derive(Clone, Debug)]
pub struct NewRevision<'a> {
    pub hash: &'a str,
    pub markdown: &'a str,
    pub source: PlanSource,
    pub author: &'a str,
    pub task: Option<&'a TaskId>,
}

/// Adds a revision, unless the newest one is equal. Returns its number when it is new. Lock the session first.
pub async fn add(tx: &mut Change<'_>, session: &SessionId, fresh: &NewRevision<'_>) -> Result<Option<u64>, DbError> {
    let newest = newest(tx, session).await?;
    if newest.as_ref().is_some_and(|newest| newest.hash == fresh.hash) {
        return Ok(None);
    }
    let n = newest.map_or(1, |newest| newest.n + 1);
    let sql = "INSERT INTO plan_revisions (team_id, session_id, n, hash, markdown, source, author, task_id, created_at) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    let args = args![session, n, fresh.hash, fresh.markdown, fresh.source, fresh.author, fresh.task, tx.now];
    tx.execute(sql, args).await?;
    if n > MAX_REVISIONS_PER_SESSION {
        let sql = "DELETE FROM plan_revisions WHERE team_id = $1 AND session_id = $2 AND n <= $3";
        tx.execute(sql, args![session, n - MAX_REVISIONS_PER_SESSION]).await?;
    }
    Ok(Some(n))
}

/// The newest revision.
pub async fn newest(tx: &mut TeamTx<'_>, session: &SessionId) -> Result<Option<Revision>, DbError> {
    tx.query(newest_query(session)).await
}

/// The same as a query, to be sent together with others.
pub fn newest_query(session: &SessionId) -> Query<Option<Revision>> {
    let sql = "SELECT n, hash, markdown, source, author, task_id, created_at FROM plan_revisions \
               WHERE team_id = $1 AND session_id = $2 ORDER BY n DESC LIMIT 1";
    Query::new(sql, args![session], |answer| answer.row().map(revision).transpose())
}

/// One revision.
pub async fn load(tx: &mut TeamTx<'_>, session: &SessionId, n: u64) -> Result<Option<Revision>, DbError> {
    let sql = "SELECT n, hash, markdown, source, author, task_id, created_at FROM plan_revisions \
               WHERE team_id = $1 AND session_id = $2 AND n = $3";
    tx.row(sql, args![session, n]).await?.as_ref().map(revision).transpose()
}

/// The newest revision with this hash.
pub async fn of_hash(tx: &mut TeamTx<'_>, session: &SessionId, hash: &str) -> Result<Option<Revision>, DbError> {
    let sql = "SELECT n, hash, markdown, source, author, task_id, created_at FROM plan_revisions \
               WHERE team_id = $1 AND session_id = $2 AND hash = $3 ORDER BY n DESC LIMIT 1";
    tx.row(sql, args![session, hash]).await?.as_ref().map(revision).transpose()
}

/// Revisions below `before`, the newest first, without their texts.
pub async fn list(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    before: Option<u64>,
    limit: u64,
) -> Result<Vec<Revision>, DbError> {
    let sql = "SELECT n, hash, '' AS markdown, source, author, task_id, created_at FROM plan_revisions \
               WHERE team_id = $1 AND session_id = $2 AND n < $3 ORDER BY n DESC LIMIT $4 + 0";
    let before = before.unwrap_or(i64::MAX.unsigned_abs());
    tx.rows(sql, args![session, before, limit]).await?.iter().map(revision).collect()
}

/// What is sent of a session with a task.
#[derive(Clone, Debug, Default)]
pub struct SentWithTask {
    pub policies: Policies,
    /// The newest plan, and its hash.
    pub plan: Option<(String, String)>,
    /// The session that it goes on from, and what it takes along of it.
    pub continues: Option<(SessionId, Vec<Carried>)>,
}

/// A session's policies and its newest plan, which are sent with a task.
pub async fn sent(tx: &mut TeamTx<'_>, session: &SessionId) -> Result<Option<SentWithTask>, DbError> {
    let sql = "SELECT s.plan_policy, s.memory_policy, s.approve_first, s.continues, s.carries, p.markdown, p.hash FROM sessions s \
               LEFT JOIN plan_revisions p ON p.team_id = s.team_id AND p.session_id = s.session_id AND p.n = \
               (SELECT MAX(n) FROM plan_revisions x WHERE x.team_id = s.team_id AND x.session_id = s.session_id) \
               WHERE s.team_id = $1 AND s.session_id = $2";
    let Some(row) = tx.row(sql, args![session]).await? else { return Ok(None) };
    let plan = row.optional_text("markdown")?.zip(row.optional_text("hash")?);
    let carries = row.text("carries")?.split(' ').filter_map(|word| word.parse().ok()).collect();
    let continues = row.optional_parse("continues")?.map(|session| (session, carries));
    Ok(Some(SentWithTask { policies: crate::db::sessions::policies(&row)?, plan, continues }))
}

/// The plan of an earlier session that is sent with the tasks of one that has none.
#[derive(Clone, Debug)]
pub struct CarriedPlan {
    pub session: SessionId,
    /// That session's.
    pub title: String,
    pub markdown: String,
    pub hash: String,
}

/// The newest plan among the sessions that this one goes on from, as long as each takes the plan along.
pub async fn carried(tx: &mut TeamTx<'_>, session: &SessionId) -> Result<Option<CarriedPlan>, DbError> {
    let sql = "SELECT o.session_id, o.title, s.carries, p.markdown, p.hash FROM sessions s JOIN sessions o \
               ON o.team_id = s.team_id AND o.session_id = s.continues LEFT JOIN plan_revisions p \
               ON p.team_id = o.team_id AND p.session_id = o.session_id AND p.n = \
               (SELECT MAX(n) FROM plan_revisions x WHERE x.team_id = o.team_id AND x.session_id = o.session_id) \
               WHERE s.team_id = $1 AND s.session_id = $2";
    let mut from = session.clone();
    for _ in 0..MAX_EARLIER_SESSIONS {
        let Some(row) = tx.row(sql, args![&from]).await? else { return Ok(None) };
        if !row.text("carries")?.split(' ').any(|word| word == Carried::Plan.as_str()) {
            return Ok(None);
        }
        let session: SessionId = row.parse("session_id")?;
        if let Some((markdown, hash)) = row.optional_text("markdown")?.zip(row.optional_text("hash")?) {
            return Ok(Some(CarriedPlan { session, title: row.text("title")?, markdown, hash }));
        }
        from = session;
    }
    Ok(None)
}

fn revision(row: &Row) -> Result<Revision, DbError> {
    Ok(Revision {
        n: row.count("n")?,
        hash: row.text("hash")?,
        markdown: row.text("markdown")?,
        source: row.parse("source")?,
        author: row.text("author")?,
        task_id: row.optional_parse("task_id")?,
        created_at: row.instant("created_at")?,
    })
}
