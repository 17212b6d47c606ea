//! Sessions: the conversations of a team. A deleted session is never found, although its rows may still exist (`purge`).

pub mod read_marks;

use protocol::{Instant, OperatorId, Policy, RunId, SessionId, TaskId, ViberId};

use crate::{
    args,
    db::{Arg, Change, DbError, Query, Row, TeamTx, fold},
    domain::{Brief, Contact, Policies, Session, SessionLine, SessionState, context::compaction::Carried},
};

macro_rules! columns {
    () => {
        "s.session_id, s.viber_id, s.agent_id, s.title, s.renamed_at, s.pinned_at, s.archived_at, s.last_seq, \
         s.created_by, s.created_at, s.active_at, s.plan_policy, s.memory_policy, s.approve_first"
    };
}

/// Up to when the reader `$2` has read everything.
macro_rules! read_before {
    () => {
        "(SELECT COALESCE(b.read_before, b.created_at) FROM members b WHERE b.team_id = $1 AND b.operator_id = $2)"
    };
}

/// What a session `s` has to be in a narrowed list: of the agent `$3`, by the person `$4`, in the state `$5`, each of which
/// may be absent. `$2` reads.
macro_rules! wanted {
    () => {
        concat!(
            " AND ($3 IS NULL OR s.agent_id = $3) AND ($4 IS NULL OR s.created_by = $4) AND ($5 IS NULL \
             OR ($5 = 'unread' AND $2 IS NOT NULL AND s.active_at > ",
            read_before!(),
            " AND COALESCE((SELECT r.at FROM read_marks r WHERE r.team_id = s.team_id AND r.operator_id = $2 \
             AND r.session_id = s.session_id), 0) < s.active_at AND NOT EXISTS (SELECT 1 FROM tasks x \
             WHERE x.team_id = s.team_id AND x.session_id = s.session_id AND x.state IN ('pending', 'running'))) \
             OR ($5 <> 'unread' AND $5 = COALESCE((SELECT CASE WHEN x.waiting IS NULL OR x.waiting LIKE '{\"for\":\"rate_limit\"%' \
             OR x.waiting LIKE '{\"for\":\"child\"%' THEN 'working' ELSE 'waiting' END FROM tasks x WHERE x.team_id = s.team_id AND x.session_id = s.session_id \
             AND x.state IN ('pending', 'running') ORDER BY CASE WHEN x.state = 'running' THEN 0 ELSE 1 END, x.message_seq \
             LIMIT 1), (SELECT x.state FROM tasks x WHERE x.team_id = s.team_id AND x.session_id = s.session_id \
             ORDER BY x.message_seq DESC LIMIT 1), '')))"
        )
    };
}

/// The lines of the sessions `s` that a subquery finds by an index alone, before anything is joined to it. `$2` reads.
macro_rules! lines {
    ($($page:tt)+) => {
        concat!(
            "SELECT ",
            columns!(),
            ", v.name AS viber_name, CASE WHEN v.unheard <> 0 THEN 'unheard' ELSE v.contact END AS contact, \
             v.contact_since, t.task_id, t.state, t.delivery, t.waiting, t.ended_at, \
             CASE WHEN $2 IS NULL OR r.at >= s.active_at OR s.active_at <= ",
            read_before!(),
            " THEN 0 ELSE 1 END AS unread FROM (",
            $($page)+,
            ") s JOIN vibers v ON v.team_id = s.team_id AND v.viber_id = s.viber_id \
             LEFT JOIN read_marks r ON r.team_id = s.team_id AND r.operator_id = $2 AND r.session_id = s.session_id \
             LEFT JOIN tasks t ON t.team_id = s.team_id AND t.task_id = COALESCE((SELECT x.task_id FROM tasks x \
               WHERE x.team_id = s.team_id AND x.session_id = s.session_id AND x.state IN ('pending', 'running') \
               AND (x.state = 'running' OR x.delivery IN ('offered', 'accepted')) \
               ORDER BY CASE WHEN x.state = 'running' THEN 0 ELSE 1 END, x.message_seq DESC LIMIT 1), \
               (SELECT x.task_id FROM tasks x WHERE x.team_id = s.team_id AND x.session_id = s.session_id \
               ORDER BY x.message_seq DESC LIMIT 1)) \
             ORDER BY s.active_at DESC, s.session_id DESC"
        )
    };
}

/// The statement `$page` for a filter: each combination has an index of its own, so it has a text of its own.
macro_rules! filtered {
    ($filter:ident, $page:ident, $viber:literal) => {
        match ($filter.archived, $filter.viber.is_some()) {
            (false, false) if $filter.own => $page!("IS NULL AND s.run_id IS NULL AND s.asked = 0", ""),
            (false, false) => $page!("IS NULL", ""),
            (false, true) => $page!("IS NULL", $viber),
            (true, false) => $page!("IS NOT NULL", ""),
            (true, true) => $page!("IS NOT NULL", $viber),
        }
    };
}

// It uses these macros.
mod needing;
mod search;
mod titles;
mod unindexed;

#[cfg(test)]
pub(in crate::db) use needing::NEEDING_SQL;
pub use needing::needing;
pub use search::*;
pub use titles::titles;
pub use unindexed::{Unindexed, index_some, next_unindexed};

/// Which sessions a list shows.
#[derive(Clone, Debug, Default)]
pub struct SessionFilter {
    /// Archived sessions, or those that are not.
    pub archived: bool,
    /// Without those that began for a run of a playbook or for a task that an agent asked for; only among all that are not
    /// archived.
    pub own: bool,
    pub viber: Option<ViberId>,
    pub agent: Option<String>,
    /// Who began it: the id of an operator or token, or of the viber on whose machine it began.
    pub person: Option<String>,
    pub state: Option<SessionState>,
}

impl SessionFilter {
    /// Whether it leaves out sessions that the list's own index does not tell apart.
    fn is_narrow(&self) -> bool {
        self.agent.is_some() || self.person.is_some() || self.state.is_some()
    }

    /// Parameters `$2` to `$5` of [`lines`] and [`wanted`].
    fn args(&self, reader: Option<&OperatorId>) -> Vec<Arg> {
        let state = self.state.map(SessionState::as_str);
        vec![Arg::from(reader), Arg::from(self.agent.as_deref()), Arg::from(self.person.as_deref()), Arg::from(state)]
    }
}

/// A session.
pub async fn load(tx: &mut TeamTx<'_>, id: &SessionId) -> Result<Option<Session>, DbError> {
    let sql = concat!(
        "SELECT ",
        columns!(),
        " FROM sessions s WHERE s.team_id = $1 AND s.session_id = $2 AND s.deleted_at IS NULL"
    );
    tx.row(sql, args![id]).await?.as_ref().map(session).transpose()
}

/// Whose words the agents of a session were told: those who gave its tasks, said something to one, or decided with words what
/// one asked.
pub async fn authors(tx: &mut TeamTx<'_>, id: &SessionId) -> Result<Vec<String>, DbError> {
    let sql = "SELECT t.created_by AS author FROM tasks t WHERE t.team_id = $1 AND t.session_id = $2 \
               UNION SELECT m.author FROM task_messages m WHERE m.team_id = $1 AND m.session_id = $2 \
               AND (m.event_seq IS NOT NULL OR m.next_task_id IS NOT NULL) \
               UNION SELECT q.decided_by FROM approvals q WHERE q.team_id = $1 AND q.session_id = $2 \
               AND q.decided_by IS NOT NULL \
               AND (q.answer IS NOT NULL OR q.note IS NOT NULL OR q.allowed_args IS NOT NULL) LIMIT 100";
    tx.rows(sql, args![id]).await?.iter().map(|row| row.text("author")).collect()
}

/// The query for a session and its version, to be sent together with others. The version rises with every change behind
/// the session's lock ([`reserve_seqs`], [`touch`], [`lock`]): while it stays the same, so do the session's messages, their
/// parts and its finished tasks.
pub fn versioned_query(id: &SessionId) -> Query<Option<(Session, u64)>> {
    let sql = concat!(
        "SELECT s.version, ",
        columns!(),
        " FROM sessions s WHERE s.team_id = $1 AND s.session_id = $2 AND s.deleted_at IS NULL"
    );
    Query::new(sql, args![id], |answer| answer.row().map(|row| Ok((session(row)?, row.count("version")?))).transpose())
}

/// Sessions, the most recently active first, after `cursor` (the last line's `active_at` and id). `reader` decides
/// what is unread; for a token everything is read.
pub async fn list(
    tx: &mut TeamTx<'_>,
    reader: Option<&OperatorId>,
    filter: &SessionFilter,
    cursor: Option<(Instant, &SessionId)>,
    limit: u64,
) -> Result<Vec<SessionLine>, DbError> {
    if filter.is_narrow() {
        let asked = TitleSearch { reader, filter, title: "" };
        return Ok(search(tx, asked, cursor, usize::try_from(limit).unwrap_or(usize::MAX)).await?.lines);
    }
    macro_rules! page {
        ($archived:literal, $viber:literal) => {
            lines!(
                "SELECT * FROM sessions s WHERE s.team_id = $1 AND s.deleted_at IS NULL AND s.archived_at ",
                $archived,
                $viber,
                " AND (s.active_at, s.session_id) < ($3, $4) ORDER BY s.active_at DESC, s.session_id DESC LIMIT $5 + 0"
            )
        };
    }
    let sql = filtered!(filter, page, " AND s.viber_id = $6");
    let (at, id) = start(cursor);
    let mut args = args![reader, at, id, limit].to_vec();
    args.extend(filter.viber.as_ref().map(Arg::from));
    tx.rows(sql, &args).await?.iter().map(line).collect()
}

/// Unread sessions of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnreadCount {
    /// At most [`MAX_COUNTED_UNREAD`].
    pub count: usize,
    /// There may be more: so many are unread, or so many newer ones were read one by one.
    pub or_more: bool,
}

/// Unread sessions that are counted.
pub const MAX_COUNTED_UNREAD: u64 = 99;
/// Sessions that are looked at to count them.
const MAX_LOOKED_FOR_UNREAD: u64 = 500;

/// How many sessions ended or were answered since the reader last looked at them, joined, or marked everything as read; without
/// those that began for a run of a playbook or for a task that an agent asked for.
pub async fn count_unread(tx: &mut TeamTx<'_>, reader: &OperatorId) -> Result<UnreadCount, DbError> {
    macro_rules! since {
        () => {
            concat!(
                "FROM sessions s WHERE s.team_id = $1 AND s.deleted_at IS NULL AND s.archived_at IS NULL \
                 AND s.run_id IS NULL AND s.asked = 0 AND s.active_at > ",
                read_before!(),
                " ORDER BY s.active_at DESC, s.session_id DESC LIMIT "
            )
        };
    }
    let sql = concat!(
        "SELECT COUNT(*) AS n, (SELECT COUNT(*) FROM (SELECT 1 ",
        since!(),
        "1 OFFSET $3 + 0) o) AS beyond FROM (SELECT 1 FROM (SELECT s.team_id, s.session_id, s.active_at ",
        since!(),
        "$3 + 0) s WHERE COALESCE((SELECT r.at FROM read_marks r WHERE r.team_id = s.team_id AND r.operator_id = $2 \
         AND r.session_id = s.session_id), 0) < s.active_at AND NOT EXISTS (SELECT 1 FROM tasks x \
         WHERE x.team_id = s.team_id AND x.session_id = s.session_id AND x.state IN ('pending', 'running')) \
         LIMIT $4 + 0) u"
    );
    let row = tx.row(sql, args![reader, MAX_LOOKED_FOR_UNREAD, MAX_COUNTED_UNREAD + 1]).await?;
    let Some(row) = row else { return Ok(UnreadCount::default()) };
    let (count, beyond) = (row.count("n")?, row.count("beyond")? > 0);
    let most = count.min(MAX_COUNTED_UNREAD);
    Ok(UnreadCount { count: usize::try_from(most).unwrap_or(usize::MAX), or_more: beyond || count > most })
}

/// The agents that have sessions, by id, at most `limit` of them.
pub async fn agents(tx: &mut TeamTx<'_>, limit: u64) -> Result<Vec<String>, DbError> {
    // From one to the next by the index, however many sessions each has.
    let sql = "WITH RECURSIVE a(agent_id, n) AS (SELECT (SELECT MIN(s.agent_id) FROM sessions s WHERE s.team_id = $1), \
               CAST(1 AS BIGINT) UNION ALL SELECT (SELECT MIN(s.agent_id) FROM sessions s WHERE s.team_id = $1 \
               AND s.agent_id > a.agent_id), a.n + 1 FROM a WHERE a.agent_id IS NOT NULL AND a.n < $2) \
               SELECT agent_id FROM a WHERE agent_id IS NOT NULL";
    tx.rows(sql, args![limit]).await?.iter().map(|row| row.text("agent_id")).collect()
}

/// Where a list goes on; behind every session when there is no cursor.
fn start(cursor: Option<(Instant, &SessionId)>) -> (i64, &str) {
    cursor.map_or((i64::MAX, ""), |(at, id)| (at.0, id.as_str()))
}

fn line(row: &Row) -> Result<SessionLine, DbError> {
    let brief = |id| {
        Ok::<_, DbError>(Brief {
            id,
            state: row.parse("state")?,
            delivery: row.optional_parse("delivery")?,
            waiting: row.optional_json("waiting")?,
            ended_at: row.optional_instant("ended_at")?,
        })
    };
    Ok(SessionLine {
        session: session(row)?,
        viber_name: row.text("viber_name")?,
        contact: Contact { state: row.parse("contact")?, since: row.instant("contact_since")? },
        task: row.optional_parse("task_id")?.map(brief).transpose()?,
        unread: row.flag("unread")?,
    })
}

/// Sessions that began on their machine, the most recently active first.
pub async fn begun_on(tx: &mut TeamTx<'_>, viber: &ViberId, limit: u64) -> Result<Vec<SessionId>, DbError> {
    let sql = "SELECT session_id FROM sessions WHERE team_id = $1 AND viber_id = $2 AND created_by = viber_id \
               AND deleted_at IS NULL ORDER BY active_at DESC, session_id DESC LIMIT $3 + 0";
    tx.rows(sql, args![viber, limit]).await?.iter().map(|row| row.parse("session_id")).collect()
}

/// Inserts a session with its `last_seq`; `false` when the id is taken.
pub async fn insert_unless_taken(tx: &mut TeamTx<'_>, session: &Session) -> Result<bool, DbError> {
    Ok(tx.execute(INSERT_SQL, &columns(session)).await? > 0)
}

/// Inserts a session under a new id, with the writes of its first task after it. Should the id be taken, those fail.
pub async fn insert(tx: &mut TeamTx<'_>, session: &Session) -> Result<(), DbError> {
    tx.defer(INSERT_SQL, &columns(session)).await
}

/// Records which run of a playbook a new session began for, with the writes that follow.
pub async fn set_run(tx: &mut Change<'_>, id: &SessionId, run: &RunId) -> Result<(), DbError> {
    tx.defer("UPDATE sessions SET run_id = $3 WHERE team_id = $1 AND session_id = $2", args![id, run]).await
}

/// Records that a new session began for a task that an agent asked for, with the writes that follow.
pub async fn set_asked(tx: &mut Change<'_>, id: &SessionId) -> Result<(), DbError> {
    tx.defer("UPDATE sessions SET asked = 1 WHERE team_id = $1 AND session_id = $2", args![id]).await
}

const INSERT_SQL: &str = "INSERT INTO sessions (team_id, session_id, viber_id, agent_id, title, title_folded, created_by, \
     created_at, active_at, last_seq, plan_policy, memory_policy, approve_first) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING";

fn columns(session: &Session) -> [Arg; 11] {
    [
        Arg::from(&session.id),
        Arg::from(&session.viber_id),
        Arg::from(&session.agent_id),
        Arg::from(&session.title),
        Arg::from(fold(&session.title)),
        Arg::from(&session.created_by),
        Arg::from(session.created_at),
        Arg::from(session.last_seq),
        Arg::from(session.policies.plan.as_str()),
        Arg::from(session.policies.memory.as_str()),
        Arg::from(session.policies.approve_first),
    ]
}

/// Reserves `count` seqs and returns the first; marks the session active now, and locks it until the change ends.
pub async fn reserve_seqs(tx: &mut Change<'_>, id: &SessionId, count: u64) -> Result<Option<u64>, DbError> {
    let query = reserve_seqs_query(id, count, tx.now);
    Ok(tx.query(query).await?.map(|last| last + 1 - count))
}

/// The same as a query, to be sent together with others; it returns the last reserved seq.
pub fn reserve_seqs_query(id: &SessionId, count: u64, now: Instant) -> Query<Option<u64>> {
    let sql = "UPDATE sessions SET last_seq = last_seq + $3, version = version + 1, \
               active_at = CASE WHEN active_at < $4 THEN $4 ELSE active_at END \
               WHERE team_id = $1 AND session_id = $2 AND deleted_at IS NULL RETURNING last_seq";
    Query::new(sql, args![id, count, now], |answer| answer.row().map(|row| row.count("last_seq")).transpose())
}

const TOUCH_SQL: &str = "UPDATE sessions SET version = version + 1, \
     active_at = CASE WHEN active_at < $3 THEN $3 ELSE active_at END \
     WHERE team_id = $1 AND session_id = $2 AND deleted_at IS NULL";

/// Marks a session active now; locks it until the change ends.
pub async fn touch(tx: &mut Change<'_>, id: &SessionId) -> Result<bool, DbError> {
    Ok(tx.execute(TOUCH_SQL, args![id, tx.now]).await? > 0)
}

/// The same with the writes that follow.
pub async fn touch_deferred(tx: &mut Change<'_>, id: &SessionId) -> Result<(), DbError> {
    tx.defer(TOUCH_SQL, args![id, tx.now]).await
}

/// Sets a title chosen by a person.
pub async fn rename(tx: &mut Change<'_>, id: &SessionId, title: &str) -> Result<bool, DbError> {
    let sql = "UPDATE sessions SET title = $3, title_folded = $4, renamed_at = $5 \
               WHERE team_id = $1 AND session_id = $2 AND deleted_at IS NULL";
    Ok(tx.execute(sql, args![id, title, fold(title), tx.now]).await? > 0)
}

/// Sets the title from its first goal, unless a person chose one.
pub async fn entitle(tx: &mut TeamTx<'_>, id: &SessionId, title: &str) -> Result<(), DbError> {
    let sql = "UPDATE sessions SET title = $3, title_folded = $4 \
               WHERE team_id = $1 AND session_id = $2 AND renamed_at IS NULL";
    tx.execute(sql, args![id, title, fold(title)]).await.map(drop)
}

/// Archives a session, or brings it back when `at` is absent.
pub async fn set_archived(tx: &mut TeamTx<'_>, id: &SessionId, at: Option<Instant>) -> Result<bool, DbError> {
    let sql = "UPDATE sessions SET archived_at = $3 WHERE team_id = $1 AND session_id = $2 AND deleted_at IS NULL";
    Ok(tx.execute(sql, args![id, at]).await? > 0)
}

/// Pins a session, or unpins it when `at` is absent.
pub async fn set_pinned(tx: &mut TeamTx<'_>, id: &SessionId, at: Option<Instant>) -> Result<bool, DbError> {
    let sql = "UPDATE sessions SET pinned_at = $3 WHERE team_id = $1 AND session_id = $2 AND deleted_at IS NULL";
    Ok(tx.execute(sql, args![id, at]).await? > 0)
}

/// Gives it another agent of its viber.
pub async fn set_agent(tx: &mut TeamTx<'_>, id: &SessionId, agent: &str) -> Result<bool, DbError> {
    let sql = "UPDATE sessions SET agent_id = $3 WHERE team_id = $1 AND session_id = $2 AND deleted_at IS NULL";
    Ok(tx.execute(sql, args![id, agent]).await? > 0)
}

/// Chooses from which share on it is compacted by itself; `false` when it is not there.
pub async fn set_own_percent(tx: &mut TeamTx<'_>, id: &SessionId, percent: Option<u64>) -> Result<bool, DbError> {
    let sql = "UPDATE sessions SET compact_percent = $3 WHERE team_id = $1 AND session_id = $2 AND deleted_at IS NULL";
    let percent = percent.and_then(|percent| i64::try_from(percent).ok());
    Ok(tx.execute(sql, args![id, percent]).await? > 0)
}

/// The query for what was chosen so.
pub fn own_percent_query(id: &SessionId) -> Query<Option<u64>> {
    let sql = "SELECT compact_percent FROM sessions WHERE team_id = $1 AND session_id = $2";
    Query::new(sql, args![id], |answer| {
        let percent = answer.row().map(|row| row.optional_int("compact_percent")).transpose()?.flatten();
        Ok(percent.and_then(|percent| u64::try_from(percent).ok()))
    })
}

/// Says which session this one goes on from, and what it takes along.
pub async fn set_continues(
    tx: &mut TeamTx<'_>,
    id: &SessionId,
    from: &SessionId,
    carries: &[Carried],
) -> Result<(), DbError> {
    let sql = "UPDATE sessions SET continues = $3, carries = $4 WHERE team_id = $1 AND session_id = $2";
    let carries = carries.iter().map(|what| what.as_str()).collect::<Vec<_>>().join(" ");
    tx.execute(sql, args![id, from, carries]).await.map(drop)
}

/// A session that another goes on from, or that goes on from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinuedSession {
    pub id: SessionId,
    pub title: String,
    /// It is the earlier one.
    pub is_earlier: bool,
    /// The task in the earlier one that summed it up.
    pub task: Option<TaskId>,
    /// What the later one takes along beside that summary.
    pub carries: Vec<Carried>,
}

/// The session that this one goes on from, and those that go on from this one, at most 20.
pub fn continued_query(id: &SessionId) -> Query<Vec<ContinuedSession>> {
    let sql = "SELECT o.session_id, o.title, s.carries, CAST(NULL AS TEXT) AS task_id, 1 AS earlier FROM sessions s \
               JOIN sessions o ON o.team_id = s.team_id AND o.session_id = s.continues AND o.deleted_at IS NULL \
               WHERE s.team_id = $1 AND s.session_id = $2 UNION ALL SELECT n.session_id, n.title, n.carries, \
               (SELECT u.task_id FROM summaries u WHERE u.team_id = $1 AND u.session_id = n.session_id \
               AND u.up_to_seq = 0 LIMIT 1) AS task_id, 0 AS earlier FROM (SELECT session_id, title, carries FROM sessions \
               WHERE team_id = $1 AND continues = $2 AND continues IS NOT NULL AND deleted_at IS NULL \
               ORDER BY session_id DESC LIMIT 20) n";
    Query::new(sql, args![id], |answer| {
        let one = |row: &Row| {
            Ok(ContinuedSession {
                id: row.parse("session_id")?,
                title: row.text("title")?,
                is_earlier: row.flag("earlier")?,
                task: row.optional_parse("task_id")?,
                carries: row.text("carries")?.split(' ').filter_map(|word| word.parse().ok()).collect(),
            })
        };
        answer.rows.iter().map(one).collect()
    })
}

/// The newest session that goes on from this one with the summary of this task.
pub async fn continued_by(tx: &mut TeamTx<'_>, id: &SessionId, task: &TaskId) -> Result<Option<SessionId>, DbError> {
    let sql = "SELECT n.session_id FROM sessions n JOIN summaries u ON u.team_id = n.team_id \
               AND u.session_id = n.session_id AND u.task_id = $3 WHERE n.team_id = $1 AND n.continues = $2 \
               AND n.continues IS NOT NULL ORDER BY n.session_id DESC LIMIT 1";
    tx.row(sql, args![id, task]).await?.map(|row| row.parse("session_id")).transpose()
}

/// Sets how it treats what its agent changes.
pub async fn set_policies(tx: &mut TeamTx<'_>, id: &SessionId, policies: Policies) -> Result<bool, DbError> {
    let sql = "UPDATE sessions SET plan_policy = $3, memory_policy = $4, approve_first = $5 \
               WHERE team_id = $1 AND session_id = $2 AND deleted_at IS NULL";
    let (plan, memory) = (policies.plan.as_str(), policies.memory.as_str());
    Ok(tx.execute(sql, args![id, plan, memory, policies.approve_first]).await? > 0)
}

/// Locks a session until the change ends, so that numbers within it are given once. Returns whether it exists. Whoever
/// writes messages, parts or ends of tasks locks it first.
pub async fn lock(tx: &mut TeamTx<'_>, id: &SessionId) -> Result<bool, DbError> {
    let sql = "UPDATE sessions SET version = version + 1 WHERE team_id = $1 AND session_id = $2 AND deleted_at IS NULL";
    Ok(tx.execute(sql, args![id]).await? > 0)
}

fn session(row: &Row) -> Result<Session, DbError> {
    Ok(Session {
        id: row.parse("session_id")?,
        viber_id: row.parse("viber_id")?,
        agent_id: row.text("agent_id")?,
        title: row.text("title")?,
        renamed_at: row.optional_instant("renamed_at")?,
        pinned_at: row.optional_instant("pinned_at")?,
        archived_at: row.optional_instant("archived_at")?,
        last_seq: row.count("last_seq")?,
        created_by: row.text("created_by")?,
        created_at: row.instant("created_at")?,
        active_at: row.instant("active_at")?,
        policies: policies(row)?,
    })
}

/// The policies of a row that has them.
pub(in crate::db) fn policies(row: &Row) -> Result<Policies, DbError> {
    Ok(Policies {
        plan: policy(&row.text("plan_policy")?),
        memory: policy(&row.text("memory_policy")?),
        approve_first: row.flag("approve_first")?,
    })
}

fn policy(word: &str) -> Policy {
    if word == Policy::Propose.as_str() { Policy::Propose } else { Policy::Apply }
}
