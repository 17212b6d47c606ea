//! Tasks: read here, moved only by compare-and-set.

use protocol::{Instant, ReportedDetail, SessionId, TaskId, TeamId, ViberId};

use crate::{
    args,
    db::{Arg, Change, DbError, Query, Row, TeamTx, Tx},
    domain::{Contact, Task, TaskState},
};

mod at_work;
pub mod delegations;
pub mod message_modes;
pub mod messages;
mod transitions;

pub use at_work::{TaskAtWork, at_work, list_at_work};
pub use transitions::*;

macro_rules! select {
    ($($rest:tt)+) => {
        concat!(
            "SELECT t.task_id, t.session_id, t.viber_id, t.agent_id, t.kind, t.message_id, t.message_seq, t.goal, t.state, \
             t.delivery, t.waiting, t.attempt, t.stream, t.mode, t.limits, t.payload, t.model, t.result, t.error, \
             t.usage, t.origin, t.created_by, t.created_at, t.offered_at, t.started_at, t.ended_at, t.stopped_by, \
             t.stop_confirmed_at, t.pausing, t.smaller, t.goes_on_from, CASE WHEN v.unheard <> 0 THEN 'unheard' ELSE v.contact END AS contact, v.contact_since \
             FROM tasks t \
             JOIN vibers v ON v.team_id = t.team_id AND v.viber_id = t.viber_id \
             JOIN sessions s ON s.team_id = t.team_id AND s.session_id = t.session_id AND s.deleted_at IS NULL ",
            $($rest)+
        )
    };
}

/// Which tasks a list shows.
#[derive(Clone, Debug, Default)]
pub struct TaskFilter {
    pub state: Option<TaskState>,
    pub session: Option<SessionId>,
    pub viber: Option<ViberId>,
}

/// A task.
pub async fn load(tx: &mut TeamTx<'_>, id: &TaskId) -> Result<Option<Task>, DbError> {
    tx.query(load_query(id)).await
}

/// The same as a query, to be sent together with others.
pub fn load_query(id: &TaskId) -> Query<Option<Task>> {
    let sql = select!("WHERE t.team_id = $1 AND t.task_id = $2");
    Query::new(sql, args![id], |answer| answer.row().map(task).transpose())
}

/// Tasks of a viber that one page of its completed ones looks at: no index has these.
const MAX_TASKS_LOOKED_AT: u64 = 4_000;

/// A page of tasks.
#[derive(Debug)]
pub struct TaskPage {
    pub tasks: Vec<Task>,
    /// The page has fewer than its limit, and there may be more behind this task.
    pub goes_on_behind: Option<TaskId>,
}

/// Tasks, newest first, after `cursor`.
pub async fn list(
    tx: &mut TeamTx<'_>,
    filter: &TaskFilter,
    cursor: Option<&TaskId>,
    limit: u64,
) -> Result<TaskPage, DbError> {
    // Each filter has an index that ends in the order of the list, so that a page without a hit is found as soon as a full
    // one: all but that for a viber's completed tasks, which are most of its tasks.
    macro_rules! of_team {
        ($filter:literal) => {
            select!(concat!(
                "WHERE t.team_id = $1 AND t.task_id < $2 ",
                $filter,
                " ORDER BY t.task_id DESC LIMIT $3 + 0"
            ))
        };
    }
    // A session's tasks are in the order of their messages.
    macro_rules! of_session {
        ($filter:literal) => {
            select!(concat!(
                "WHERE t.team_id = $1 AND t.session_id = $4 AND t.message_seq < COALESCE((SELECT c.message_seq \
                 FROM tasks c WHERE c.team_id = $1 AND c.task_id = $2 AND c.session_id = $4), 9223372036854775807) ",
                $filter,
                " ORDER BY t.message_seq DESC LIMIT $3 + 0"
            ))
        };
    }
    let is_open = filter.state.is_some_and(|state| !state.is_final());
    let sql = match (&filter.session, &filter.viber, filter.state) {
        (Some(_), None, None) => of_session!(""),
        (Some(_), Some(_), None) => of_session!("AND s.viber_id = $5"),
        (Some(_), None, Some(_)) if is_open => of_session!("AND t.state IN ('pending', 'running') AND t.state = $5"),
        (Some(_), None, Some(_)) => of_session!("AND t.state = $5"),
        (Some(_), Some(_), Some(_)) => of_session!("AND s.viber_id = $5 AND t.state = $6"),
        (None, Some(_), Some(TaskState::Completed)) => of_team!(
            "AND t.viber_id = $4 AND t.state = $5 AND t.task_id >= COALESCE((SELECT b.task_id FROM tasks b \
             WHERE b.team_id = $1 AND b.viber_id = $4 AND b.task_id < $2 ORDER BY b.task_id DESC LIMIT 1 OFFSET $6 + 0), '')"
        ),
        (None, Some(_), Some(_)) => of_team!("AND t.viber_id = $4 AND t.state <> 'completed' AND t.state = $5"),
        (None, Some(_), None) => of_team!("AND t.viber_id = $4"),
        (None, None, Some(TaskState::Completed)) => of_team!("AND t.state = $4"),
        (None, None, Some(_)) => of_team!("AND t.state <> 'completed' AND t.state = $4"),
        (None, None, None) => of_team!(""),
    };
    // Behind every task when there is no cursor.
    let mut args = args![cursor.map_or("task_g", TaskId::as_str), limit].to_vec();
    args.extend(filter.session.as_ref().map(Arg::from));
    args.extend(filter.viber.as_ref().map(Arg::from));
    args.extend(filter.state.map(Arg::from));
    let is_bounded = is_completed_of_viber(filter);
    if is_bounded {
        args.push(Arg::from(MAX_TASKS_LOOKED_AT - 1));
    }
    let tasks: Vec<Task> = tx.rows(sql, &args).await?.iter().map(task).collect::<Result<_, _>>()?;
    let goes_on_behind = match &filter.viber {
        Some(viber) if is_bounded && (tasks.len() as u64) < limit => last_looked_at(tx, viber, cursor).await?,
        _ => None,
    };
    Ok(TaskPage { tasks, goes_on_behind })
}

fn is_completed_of_viber(filter: &TaskFilter) -> bool {
    filter.session.is_none() && filter.viber.is_some() && filter.state == Some(TaskState::Completed)
}

/// The last task that a page of a viber's completed ones looks at, if the page does not look at all.
async fn last_looked_at(
    tx: &mut TeamTx<'_>,
    viber: &ViberId,
    cursor: Option<&TaskId>,
) -> Result<Option<TaskId>, DbError> {
    let sql = "SELECT task_id FROM tasks WHERE team_id = $1 AND viber_id = $2 AND task_id < $3 \
               ORDER BY task_id DESC LIMIT 1 OFFSET $4 + 0";
    let args = args![viber, cursor.map_or("task_g", TaskId::as_str), MAX_TASKS_LOOKED_AT - 1];
    tx.row(sql, args).await?.map(|row| row.parse("task_id")).transpose()
}

/// The query for the unfinished tasks of a session, to be sent together with others. The first one is the active one.
pub fn open_of_session_query(session: &SessionId) -> Query<Vec<Task>> {
    let sql = select!(
        "WHERE t.team_id = $1 AND t.session_id = $2 AND t.state IN ('pending', 'running') \
         ORDER BY CASE WHEN t.delivery = 'queued' THEN 1 ELSE 0 END, t.message_seq LIMIT 1000"
    );
    Query::new(sql, args![session], |answer| answer.rows.iter().map(task).collect())
}

/// The query for the newest task of a session, to be sent together with others.
pub fn newest_of_session_query(session: &SessionId) -> Query<Option<Task>> {
    let sql = select!("WHERE t.team_id = $1 AND t.session_id = $2 ORDER BY t.message_seq DESC LIMIT 1");
    Query::new(sql, args![session], |answer| answer.row().map(task).transpose())
}

/// The seq of the newest question of a session that asked for work.
pub async fn newest_asked(tx: &mut TeamTx<'_>, session: &SessionId) -> Result<Option<u64>, DbError> {
    let sql = "SELECT message_seq FROM tasks WHERE team_id = $1 AND session_id = $2 AND kind = 'work' \
               ORDER BY message_seq DESC LIMIT 1";
    tx.row(sql, args![session]).await?.map(|row| row.count("message_seq")).transpose()
}

/// The tasks of a session with messages between two seqs, in order.
pub async fn of_messages(tx: &mut TeamTx<'_>, session: &SessionId, from: u64, to: u64) -> Result<Vec<Task>, DbError> {
    // `|| ''` keeps both databases from reading all tasks of the session.
    let sql = select!(
        "WHERE t.team_id = $1 AND t.session_id || '' = $2 AND t.task_id IN (SELECT m.task_id FROM messages m \
         WHERE m.team_id = $1 AND m.session_id = $2 AND m.seq >= $3 AND m.seq <= $4) ORDER BY t.message_seq LIMIT 1000"
    );
    tx.rows(sql, args![session, from, to]).await?.iter().map(task).collect()
}

/// The seq of the first question after one message and up to another.
pub async fn first_asked(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    (after, up_to): (u64, u64),
) -> Result<Option<u64>, DbError> {
    let sql = "SELECT message_seq FROM tasks WHERE team_id = $1 AND session_id = $2 AND message_seq > $3 \
               AND message_seq <= $4 AND kind = 'work' ORDER BY message_seq LIMIT 1";
    tx.row(sql, args![session, after, up_to]).await?.map(|row| row.count("message_seq")).transpose()
}

/// How many unfinished tasks of its session come before a queued task.
pub async fn place(tx: &mut TeamTx<'_>, task: &Task) -> Result<u64, DbError> {
    let sql = "SELECT COUNT(*) AS n FROM tasks WHERE team_id = $1 AND session_id = $2 AND task_id <> $4 \
               AND state IN ('pending', 'running') AND (state = 'running' OR delivery <> 'queued' OR message_seq < $3)";
    let row = tx.row(sql, args![&task.session_id, task.message_seq, &task.id]).await?;
    row.map_or(Ok(0), |row| row.count("n"))
}

/// Whether a task of the session is offered, accepted or running, or an attempt may still run: an unconfirmed stop keeps
/// the session busy, so that two of its tasks never run side by side.
pub async fn is_busy(tx: &mut TeamTx<'_>, session: &SessionId) -> Result<bool, DbError> {
    tx.query(is_busy_query(session)).await
}

/// The same as a query, to be sent together with others.
pub fn is_busy_query(session: &SessionId) -> Query<bool> {
    // Finished tasks and attempts of a long session are not read. `|| ''` keeps SQLite from reading all attempts of the
    // team instead of using the index.
    let sql = "SELECT 1 AS n WHERE EXISTS (SELECT 1 FROM tasks t WHERE t.team_id = $1 AND t.session_id = $2 \
               AND t.state IN ('pending', 'running') AND (t.state = 'running' OR t.delivery <> 'queued')) \
               OR EXISTS (SELECT 1 FROM attempts a CROSS JOIN tasks t WHERE a.team_id || '' = $1 AND a.viber_id = \
               (SELECT s.viber_id FROM sessions s WHERE s.team_id = $1 AND s.session_id = $2) \
               AND a.outcome IS NULL AND (a.cmd_seq IS NOT NULL OR a.last_seq > 0) AND t.team_id = $1 \
               AND t.task_id = a.task_id AND t.session_id = $2)";
    Query::new(sql, args![session], |answer| Ok(answer.row().is_some()))
}

/// The query for the next queued task of a session, to be sent together with others.
pub fn next_queued_query(session: &SessionId) -> Query<Option<Task>> {
    let sql = select!(
        "WHERE t.team_id = $1 AND t.session_id = $2 AND t.state = 'pending' AND t.delivery = 'queued' \
         AND t.state IN ('pending', 'running') ORDER BY t.message_seq LIMIT 1"
    );
    Query::new(sql, args![session], |answer| answer.row().map(task).transpose())
}

/// What the end of a task may leave to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndLeftovers {
    /// It has asked something that nobody answered.
    pub questions: bool,
    /// In its session a task is queued, or something was said that no agent was told.
    pub work: bool,
}

/// The query for what the end of a task leaves to do: mostly nothing, and then nothing else is asked.
pub fn end_leftovers_query(session: &SessionId, task: &TaskId) -> Query<EndLeftovers> {
    // Each message was made after 0: said, so that SQLite reads those that wait instead of the whole team's.
    let sql = "SELECT CASE WHEN EXISTS (SELECT 1 FROM approvals p WHERE p.team_id = $1 AND p.task_id = $3 \
               AND p.state = 'pending') THEN 1 ELSE 0 END AS questions, CASE WHEN EXISTS (SELECT 1 FROM tasks t \
               WHERE t.team_id = $1 AND t.session_id = $2 AND t.state IN ('pending', 'running') AND t.state = 'pending' \
               AND t.delivery = 'queued') OR EXISTS (SELECT 1 FROM task_messages o WHERE o.team_id = $1 \
               AND o.session_id = $2 AND o.state IN ('accepted', 'delivered', 'held') AND o.state <> 'held' \
               AND o.created_at > 0) THEN 1 ELSE 0 END AS work";
    Query::new(sql, args![session, task], |answer| {
        let row = answer.row().ok_or_else(|| DbError::Broken("nothing was counted".into()))?;
        Ok(EndLeftovers { questions: row.flag("questions")?, work: row.flag("work")? })
    })
}

/// Sessions of any team that have queued tasks and nothing that runs or could run, at most 100.
pub async fn stalled(tx: &mut Tx) -> Result<Vec<(TeamId, SessionId)>, DbError> {
    let sql = "SELECT DISTINCT t.team_id, t.session_id FROM tasks t JOIN sessions s ON s.team_id = t.team_id \
               AND s.session_id = t.session_id AND s.deleted_at IS NULL WHERE t.delivery = 'queued' AND t.state = 'pending' \
               AND NOT EXISTS (SELECT 1 FROM tasks o WHERE o.team_id = t.team_id AND o.session_id = t.session_id \
               AND o.state IN ('pending', 'running') AND (o.state = 'running' OR o.delivery <> 'queued')) \
               AND NOT EXISTS (SELECT 1 FROM attempts a JOIN tasks o ON o.team_id = a.team_id AND o.task_id = a.task_id \
               WHERE a.team_id || '' = t.team_id AND a.viber_id = t.viber_id AND a.outcome IS NULL \
               AND (a.cmd_seq IS NOT NULL OR a.last_seq > 0) AND o.session_id = t.session_id) LIMIT 100";
    tx.rows(sql, &[]).await?.iter().map(|row| Ok((row.parse("team_id")?, row.parse("session_id")?))).collect()
}

/// The sessions and ids of a viber's unfinished tasks made up to `until`. Queued ones come first, so that none of them is
/// offered while the others end.
pub async fn open_of_viber(
    tx: &mut TeamTx<'_>,
    viber: &ViberId,
    until: Option<Instant>,
    limit: u64,
) -> Result<Vec<(SessionId, TaskId)>, DbError> {
    let queued = "SELECT t.session_id, t.task_id FROM tasks t JOIN sessions s ON s.team_id = t.team_id \
                  AND s.session_id = t.session_id AND s.deleted_at IS NULL WHERE t.team_id = $1 AND t.viber_id = $2 \
                  AND t.state = 'pending' AND t.delivery = 'queued' AND ($3 IS NULL OR t.created_at <= $3) LIMIT $4 + 0";
    let open = "SELECT t.session_id, t.task_id FROM tasks t JOIN sessions s ON s.team_id = t.team_id \
                AND s.session_id = t.session_id AND s.deleted_at IS NULL WHERE t.team_id = $1 AND t.viber_id = $2 \
                AND t.state <> 'completed' AND t.state IN ('pending', 'running') \
                AND (t.delivery IS NULL OR t.delivery <> 'queued') AND ($3 IS NULL OR t.created_at <= $3) LIMIT $4 + 0";
    let mut rows = tx.rows(queued, args![viber, until, limit]).await?;
    let room = limit.saturating_sub(rows.len() as u64);
    if room > 0 {
        rows.extend(tx.rows(open, args![viber, until, room]).await?);
    }
    rows.iter().map(|row| Ok((row.parse("session_id")?, row.parse("task_id")?))).collect()
}

/// Those of the newest tasks of a viber that ended since an instant.
pub async fn ended_since(
    tx: &mut TeamTx<'_>,
    viber: &ViberId,
    since: Instant,
    limit: u64,
) -> Result<Vec<TaskId>, DbError> {
    let sql = "SELECT t.task_id FROM (SELECT n.team_id, n.task_id, n.session_id, n.ended_at FROM tasks n WHERE n.team_id = $1 \
               AND n.viber_id = $2 ORDER BY n.task_id DESC LIMIT $4 + 0) t JOIN sessions s ON s.team_id = t.team_id \
               AND s.session_id = t.session_id AND s.deleted_at IS NULL WHERE t.ended_at >= $3 ORDER BY t.task_id";
    tx.rows(sql, args![viber, since, limit]).await?.iter().map(|row| row.parse("task_id")).collect()
}

/// The unfinished tasks of an agent of a viber made up to `until`, queued ones first.
pub async fn open_of_agent(
    tx: &mut TeamTx<'_>,
    viber: &ViberId,
    agent: &str,
    until: Instant,
    limit: u64,
) -> Result<Vec<TaskId>, DbError> {
    let sql = "SELECT t.task_id FROM tasks t JOIN sessions s ON s.team_id = t.team_id AND s.session_id = t.session_id \
               AND s.deleted_at IS NULL WHERE t.team_id = $1 AND t.viber_id = $2 AND t.state <> 'completed' \
               AND t.state IN ('pending', 'running') AND t.agent_id = $3 AND t.created_at <= $4 \
               ORDER BY CASE WHEN t.delivery = 'queued' THEN 0 ELSE 1 END LIMIT $5 + 0";
    let rows = tx.rows(sql, args![viber, agent, until, limit]).await?;
    rows.iter().map(|row| row.parse("task_id")).collect()
}

/// The team's unfinished tasks, queued ones first.
pub async fn open_of_team(tx: &mut TeamTx<'_>, limit: u64) -> Result<Vec<TaskId>, DbError> {
    let queued = "SELECT t.task_id FROM tasks t JOIN sessions s ON s.team_id = t.team_id AND s.session_id = t.session_id \
                  AND s.deleted_at IS NULL WHERE t.team_id = $1 AND t.viber_id IN (SELECT viber_id FROM vibers \
                  WHERE team_id = $1) AND t.state = 'pending' AND t.delivery = 'queued' LIMIT $2 + 0";
    let open = "SELECT t.task_id FROM tasks t JOIN sessions s ON s.team_id = t.team_id AND s.session_id = t.session_id \
                AND s.deleted_at IS NULL WHERE t.team_id = $1 AND t.viber_id IN (SELECT viber_id FROM vibers \
                WHERE team_id = $1) AND t.state <> 'completed' AND t.state IN ('pending', 'running') \
                AND (t.delivery IS NULL OR t.delivery <> 'queued') LIMIT $2 + 0";
    let mut rows = tx.rows(queued, args![limit]).await?;
    let room = limit.saturating_sub(rows.len() as u64);
    if room > 0 {
        rows.extend(tx.rows(open, args![room]).await?);
    }
    rows.iter().map(|row| row.parse("task_id")).collect()
}

/// Whether the id belongs to a task of any team: machines make the ids of announced tasks.
pub async fn is_taken(tx: &mut Tx, id: &TaskId) -> Result<bool, DbError> {
    Ok(tx.row("SELECT 1 AS n FROM tasks WHERE task_id = $1", args![id]).await?.is_some())
}

/// Inserts a task; `false` when the id is taken.
pub async fn insert_unless_taken(tx: &mut Change<'_>, task: &Task) -> Result<bool, DbError> {
    Ok(tx.execute(INSERT_SQL, &columns(task, tx.now)?).await? > 0)
}

/// Inserts a task under a new id, with the writes of its first attempt after it. Should the id be taken, those fail.
pub async fn insert(tx: &mut Change<'_>, task: &Task) -> Result<(), DbError> {
    tx.defer(INSERT_SQL, &columns(task, task.created_at)?).await
}

const INSERT_SQL: &str = "INSERT INTO tasks (team_id, task_id, session_id, viber_id, agent_id, message_id, message_seq, \
     goal, state, delivery, attempt, stream, mode, limits, payload, origin, created_by, created_at, offered_at, kind) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20) \
     ON CONFLICT DO NOTHING";

fn columns(task: &Task, now: Instant) -> Result<[Arg; 19], DbError> {
    Ok([
        Arg::from(&task.id),
        Arg::from(&task.session_id),
        Arg::from(&task.viber_id),
        Arg::from(&task.agent_id),
        Arg::from(&task.message_id),
        Arg::from(task.message_seq),
        Arg::from(&task.goal),
        Arg::from(task.state),
        Arg::from(task.delivery.map(crate::domain::Delivery::as_str)),
        Arg::from(task.attempt),
        Arg::from(task.stream.as_str()),
        Arg::from(task.mode.map(protocol::AgentMode::as_str)),
        Arg::from(crate::db::json(&task.limits)?),
        Arg::from(crate::db::json(&task.payload)?),
        Arg::from(&task.origin),
        Arg::from(&task.created_by),
        Arg::from(now),
        Arg::from(task.offered_at),
        Arg::from(task.kind),
    ])
}

fn task(row: &Row) -> Result<Task, DbError> {
    let word = |text: String| serde_json::Value::String(text);
    let broken = |error: serde_json::Error| DbError::Broken(error.to_string());
    Ok(Task {
        id: row.parse("task_id")?,
        session_id: row.parse("session_id")?,
        viber_id: row.parse("viber_id")?,
        agent_id: row.text("agent_id")?,
        kind: row.parse("kind")?,
        message_id: row.parse("message_id")?,
        message_seq: row.count("message_seq")?,
        goal: row.text("goal")?,
        state: row.parse("state")?,
        delivery: row.optional_parse("delivery")?,
        waiting: row.optional_json("waiting")?,
        contact: Contact { state: row.parse("contact")?, since: row.instant("contact_since")? },
        attempt: row.int("attempt")?.try_into().map_err(|_| DbError::Broken("attempt is out of range".into()))?,
        stream: serde_json::from_value::<ReportedDetail>(word(row.text("stream")?)).map_err(broken)?,
        mode: row.optional_text("mode")?.map(word).map(serde_json::from_value).transpose().map_err(broken)?,
        limits: row.json("limits")?,
        payload: row.json("payload")?,
        model: row.optional_text("model")?,
        result: row.optional_json("result")?,
        error: row.optional_json("error")?,
        usage: row.json("usage")?,
        origin: row.text("origin")?,
        created_by: row.text("created_by")?,
        created_at: row.instant("created_at")?,
        offered_at: row.optional_instant("offered_at")?,
        started_at: row.optional_instant("started_at")?,
        ended_at: row.optional_instant("ended_at")?,
        stopped_by: row.optional_text("stopped_by")?,
        stop_confirmed_at: row.optional_instant("stop_confirmed_at")?,
        pausing: row.optional_text("pausing")?.map(word).map(serde_json::from_value).transpose().map_err(broken)?,
        smaller: row.optional_json("smaller")?.unwrap_or_default(),
        goes_on_from: row.optional_int("goes_on_from")?.and_then(|attempt| attempt.try_into().ok()),
    })
}
