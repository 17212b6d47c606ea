//! What agents asked of each other: a row for each call, and the tree of tasks that these make.

use protocol::{Instant, ParentCall, SessionId, TaskId, TaskLimits, TeamId, ViberId};

use crate::{
    args,
    db::{Change, DbError, Row, TeamTx, Tx, json, sessions},
    domain::{Delegation, DelegationState, Kin, KinTask, TaskState, TaskTree, delegation::MAX_TREE_ROWS},
};

macro_rules! asked_columns {
    ($goal:literal) => {
        concat!(
            "d.parent_task, d.parent_attempt, d.call_id, d.parent_session, d.child_task, d.child_session, d.root_task, \
             d.depth, d.agent_id AS asked_agent, d.place, ",
            $goal,
            " AS asked_goal, d.artifacts, d.limits AS asked_limits, d.session_id AS asked_session, \
             d.state AS asked_state, d.refusal, d.told, d.outcome, d.created_at AS asked_at"
        )
    };
}

macro_rules! task_columns {
    () => {
        "t.task_id AS kin_task, t.session_id AS kin_session, t.viber_id AS kin_viber, v.name AS viber_name, v.revoked_at, \
         t.agent_id AS kin_agent, s.title AS kin_title, t.state AS kin_state, t.waiting, t.attempt, t.usage, \
         t.limits AS kin_limits, t.created_at AS kin_at, t.ended_at, t.stop_reason"
    };
}

/// What was asked for, with the beginning of its goal, and the tasks that came of it.
macro_rules! select {
    ($($rest:tt)+) => {
        concat!(
            "SELECT ",
            asked_columns!("substr(d.goal, 1, 2000)"),
            ", ",
            task_columns!(),
            " FROM delegations d LEFT JOIN tasks t ON t.team_id = d.team_id AND t.task_id = d.child_task \
             LEFT JOIN sessions s ON s.team_id = t.team_id AND s.session_id = t.session_id AND s.deleted_at IS NULL \
             LEFT JOIN vibers v ON v.team_id = t.team_id AND v.viber_id = t.viber_id ",
            $($rest)+
        )
    };
}

/// What a call asked for.
pub async fn load(tx: &mut TeamTx<'_>, call: &ParentCall) -> Result<Option<Delegation>, DbError> {
    let sql = concat!(
        "SELECT ",
        asked_columns!("d.goal"),
        " FROM delegations d WHERE d.team_id = $1 AND d.parent_task = $2 AND d.parent_attempt = $3 AND d.call_id = $4"
    );
    let args = args![&call.task_id, call.attempt, &call.call_id];
    tx.row(sql, args).await?.as_ref().map(asked).transpose()
}

/// What made a task, if an agent asked for it.
pub async fn of_child(tx: &mut TeamTx<'_>, child: &TaskId) -> Result<Option<Delegation>, DbError> {
    let sql =
        concat!("SELECT ", asked_columns!("d.goal"), " FROM delegations d WHERE d.team_id = $1 AND d.child_task = $2");
    tx.row(sql, args![child]).await?.as_ref().map(asked).transpose()
}

/// Whether agents of the team ever asked for a task.
pub async fn any(tx: &mut TeamTx<'_>) -> Result<bool, DbError> {
    let sql = "SELECT 1 AS one FROM delegations WHERE team_id = $1 LIMIT 1";
    Ok(tx.row(sql, args![]).await?.is_some())
}

/// How many calls of a task were refused.
pub async fn refused(tx: &mut TeamTx<'_>, parent: &TaskId) -> Result<u64, DbError> {
    let sql = "SELECT COUNT(*) AS n FROM delegations WHERE team_id = $1 AND parent_task = $2 AND state = 'refused'";
    tx.row(sql, args![parent]).await?.map_or(Ok(0), |row| row.count("n"))
}

/// Adds what a call asked for. `false`: it is known, or its task is that of another call.
pub async fn insert(tx: &mut Change<'_>, new: &Delegation) -> Result<bool, DbError> {
    let sql = "INSERT INTO delegations (team_id, parent_task, parent_attempt, call_id, parent_session, child_task, \
               child_session, root_task, depth, agent_id, place, goal, artifacts, limits, session_id, state, refusal, told, \
               outcome, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, \
               $18, $19, $20) ON CONFLICT DO NOTHING";
    let args = args![
        &new.call.task_id,
        new.call.attempt,
        &new.call.call_id,
        &new.parent_session,
        new.child.as_ref(),
        new.child_session.as_ref(),
        &new.root,
        new.depth,
        &new.agent_id,
        new.place.as_deref(),
        &new.goal,
        json(&new.artifacts)?,
        json(&new.limits)?,
        new.session.as_ref(),
        new.state,
        new.refusal.as_deref(),
        new.told,
        new.outcome.as_deref(),
        new.created_at
    ];
    let is_new = tx.execute(sql, args).await? > 0;
    if let Some(session) = new.child_session.as_ref().filter(|_| is_new && new.session.is_none()) {
        sessions::set_asked(tx, session).await?;
    }
    Ok(is_new)
}

/// A task was made in a session, or none is. `false`: that was decided before.
pub async fn decide(
    tx: &mut Change<'_>,
    call: &ParentCall,
    made: Result<(&TaskId, &SessionId), &str>,
) -> Result<bool, DbError> {
    let sql = "UPDATE delegations SET state = $5, child_task = $6, child_session = $7, refusal = $8 WHERE team_id = $1 \
               AND parent_task = $2 AND parent_attempt = $3 AND call_id = $4 AND state = 'gathering'";
    let state = if made.is_ok() { DelegationState::Made } else { DelegationState::Refused };
    let (child, session) = made.ok().unzip();
    let args = args![&call.task_id, call.attempt, &call.call_id, state, child, session, made.err()];
    let is_decided = tx.execute(sql, args).await? > 0;
    if let Some(session) = session.filter(|_| is_decided) {
        sessions::set_asked(tx, session).await?;
    }
    Ok(is_decided)
}

/// Whoever asked knows how it ended, in these words. `false`: they knew.
pub async fn set_told(tx: &mut Change<'_>, call: &ParentCall, outcome: Option<&str>) -> Result<bool, DbError> {
    let sql = "UPDATE delegations SET told = 1, outcome = $5 WHERE team_id = $1 AND parent_task = $2 \
               AND parent_attempt = $3 AND call_id = $4 AND told = 0";
    Ok(tx.execute(sql, args![&call.task_id, call.attempt, &call.call_id, outcome]).await? > 0)
}

/// A task that a call asked for goes on, or ended otherwise than whoever asked was told: they are told again. Returns the
/// task that its tree begins with.
pub async fn reopen(tx: &mut Change<'_>, child: &TaskId) -> Result<Option<TaskId>, DbError> {
    let sql = "UPDATE delegations SET told = 0, outcome = NULL WHERE team_id = $1 AND child_task = $2 AND state = 'made' \
               RETURNING root_task";
    tx.row(sql, args![child]).await?.map(|row| row.parse("root_task")).transpose()
}

/// Forgets what a call asked for: nobody is there who did.
pub async fn remove(tx: &mut Change<'_>, call: &ParentCall) -> Result<(), DbError> {
    let sql =
        "DELETE FROM delegations WHERE team_id = $1 AND parent_task = $2 AND parent_attempt = $3 AND call_id = $4";
    tx.execute(sql, args![&call.task_id, call.attempt, &call.call_id]).await.map(drop)
}

/// The tree that begins with a task, with its tasks as they are now. Tasks of deleted sessions are not there any more; where
/// the first one is not, it counts as stopped. `None`: nothing was asked for in it.
pub async fn tree(tx: &mut TeamTx<'_>, root: &TaskId) -> Result<Option<TaskTree>, DbError> {
    // However much was refused, what was made is read.
    let sql = select!(
        "WHERE d.team_id = $1 AND d.root_task = $2 \
         ORDER BY CASE WHEN d.state = 'refused' AND d.child_task IS NULL THEN 1 ELSE 0 END, d.created_at, d.depth, d.call_id \
         LIMIT $3 + 0"
    );
    let mut rows = tx.rows(sql, args![root, MAX_TREE_ROWS as u64 + 1]).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let is_cut = rows.len() > MAX_TREE_ROWS;
    rows.truncate(MAX_TREE_ROWS);
    let mut kin = rows.iter().map(kin).collect::<Result<Vec<Kin>, DbError>>()?;
    kin.sort_by_key(|kin| (kin.asked.created_at.millis(), kin.asked.depth));
    let first = concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks t JOIN sessions s ON s.team_id = t.team_id AND s.session_id = t.session_id AND s.deleted_at IS NULL \
         JOIN vibers v ON v.team_id = t.team_id AND v.viber_id = t.viber_id WHERE t.team_id = $1 AND t.task_id = $2"
    );
    let root_task = match tx.row(first, args![root]).await? {
        Some(row) => task(&row)?,
        None => None,
    };
    Ok(Some(TaskTree { root: root_task.unwrap_or_else(|| gone(root)), kin, is_cut }))
}

/// A part of a session, as a page shows it.
#[derive(Clone, Copy, Debug)]
pub struct SessionPart<'a> {
    pub session: &'a SessionId,
    /// The messages before this one; up to the newest when absent.
    pub before: Option<u64>,
    /// How many of them.
    pub messages: u64,
    /// A task that is shown whatever is.
    pub task: Option<&'a TaskId>,
}

/// The tasks of a [`SessionPart`]. Few sessions are in a tree: of the others no message is read.
macro_rules! shown_tasks {
    () => {
        "(SELECT n.task_id FROM (SELECT m.task_id FROM messages m WHERE m.team_id = $1 AND m.session_id = $2 AND m.seq < $3 \
         AND ((SELECT g.created_at FROM delegations g WHERE g.team_id = $1 AND g.parent_session = $2 \
         ORDER BY g.created_at DESC LIMIT 1) IS NOT NULL OR (SELECT g.created_at FROM delegations g WHERE g.team_id = $1 \
         AND g.child_session = $2 ORDER BY g.created_at DESC LIMIT 1) IS NOT NULL) ORDER BY m.seq DESC LIMIT $4 + 0) n \
         UNION SELECT $5)"
    };
}

/// All that was asked for in the trees that the tasks of a part of a session are in, the newest of it, in the order in which
/// it was.
pub async fn of_part(tx: &mut TeamTx<'_>, part: SessionPart<'_>) -> Result<Vec<Kin>, DbError> {
    // A task is in one tree, so that the limit of trees cuts none; without it PostgreSQL would read all rows of the team.
    let sql = select!(concat!(
        "WHERE d.team_id = $1 AND d.root_task IN (SELECT r.root_task FROM (SELECT k.root_task FROM ",
        shown_tasks!(),
        " p JOIN delegations k ON k.team_id = $1 AND k.parent_task = p.task_id UNION SELECT k.root_task FROM ",
        shown_tasks!(),
        " c JOIN delegations k ON k.team_id = $1 AND k.child_task = c.task_id) r LIMIT 100) \
         ORDER BY d.created_at DESC, d.depth DESC, d.call_id DESC LIMIT $6 + 0"
    ));
    let before = part.before.unwrap_or(u64::MAX);
    let args = args![part.session, before, part.messages, part.task.map_or("", TaskId::as_str), MAX_TREE_ROWS as u64];
    tx.rows(sql, args).await?.iter().rev().map(kin).collect()
}

/// Trees of all teams of which somebody still has to be told, behind `after`.
pub async fn open_trees(
    tx: &mut Tx,
    after: Option<&(TeamId, TaskId)>,
    limit: u64,
) -> Result<Vec<(TeamId, TaskId)>, DbError> {
    let sql = "SELECT DISTINCT d.team_id, d.root_task FROM delegations d JOIN teams t ON t.team_id = d.team_id \
               AND t.deleted_at IS NULL AND t.suspended_at IS NULL WHERE d.told = 0 AND (d.team_id, d.root_task) > ($1, $2) \
               ORDER BY d.team_id, d.root_task LIMIT $3 + 0";
    let (team, root) = after.map_or(("", ""), |(team, root)| (team.as_str(), root.as_str()));
    let rows = tx.rows(sql, args![team, root, limit]).await?;
    rows.iter().map(|row| Ok((row.parse("team_id")?, row.parse("root_task")?))).collect()
}

/// The task that a task's tree begins with; `None` when it is in none.
pub async fn root_of(tx: &mut TeamTx<'_>, task: &TaskId) -> Result<Option<TaskId>, DbError> {
    let sql = "SELECT d.root_task FROM delegations d WHERE d.team_id = $1 AND d.child_task = $2";
    if let Some(row) = tx.row(sql, args![task]).await? {
        return row.parse("root_task").map(Some);
    }
    let sql = "SELECT d.root_task FROM delegations d WHERE d.team_id = $1 AND d.root_task = $2 LIMIT 1";
    tx.row(sql, args![task]).await?.map(|row| row.parse("root_task")).transpose()
}

/// The tree that a session's newest delegation is in, and how many tasks were asked for in it.
pub async fn newest_of_session(tx: &mut TeamTx<'_>, session: &SessionId) -> Result<Option<(TaskId, u64)>, DbError> {
    let sql = "SELECT n.root_task, (SELECT COUNT(*) FROM delegations a WHERE a.team_id = $1 AND a.root_task = n.root_task \
               AND a.state <> 'refused') AS made FROM (SELECT a.root_task, a.created_at FROM (SELECT k.root_task, k.created_at \
               FROM delegations k WHERE k.team_id = $1 AND k.parent_session = $2 ORDER BY k.created_at DESC LIMIT 1) a \
               UNION SELECT b.root_task, b.created_at FROM (SELECT k.root_task, k.created_at FROM delegations k \
               WHERE k.team_id = $1 AND k.child_session = $2 ORDER BY k.created_at DESC LIMIT 1) b) n \
               ORDER BY n.created_at DESC LIMIT 1";
    let row = tx.row(sql, args![session]).await?;
    row.map(|row| Ok((row.parse("root_task")?, row.count("made")?))).transpose()
}

/// A task of which nothing is left.
fn gone(id: &TaskId) -> KinTask {
    KinTask {
        id: id.clone(),
        session_id: SessionId::new(0),
        viber_id: ViberId::new(0),
        viber_name: String::new(),
        agent_id: String::new(),
        title: String::new(),
        state: TaskState::Stopped,
        is_cut_off: false,
        waiting: None,
        attempt: 0,
        usage: protocol::Usage::default(),
        limits: TaskLimits::default(),
        created_at: Instant(0),
        ended_at: None,
        stop_reason: None,
    }
}

fn kin(row: &Row) -> Result<Kin, DbError> {
    Ok(Kin { asked: asked(row)?, task: task(row)? })
}

fn asked(row: &Row) -> Result<Delegation, DbError> {
    let small = |column| row.count(column).map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    Ok(Delegation {
        call: ParentCall {
            task_id: row.parse("parent_task")?,
            attempt: small("parent_attempt")?,
            call_id: row.text("call_id")?,
        },
        parent_session: row.parse("parent_session")?,
        child: row.optional_parse("child_task")?,
        child_session: row.optional_parse("child_session")?,
        root: row.parse("root_task")?,
        depth: small("depth")?,
        agent_id: row.text("asked_agent")?,
        place: row.optional_text("place")?,
        goal: row.text("asked_goal")?,
        artifacts: row.json("artifacts")?,
        limits: row.json("asked_limits")?,
        session: row.optional_parse("asked_session")?,
        state: row.parse("asked_state")?,
        refusal: row.optional_text("refusal")?,
        told: row.flag("told")?,
        outcome: row.optional_text("outcome")?,
        created_at: row.instant("asked_at")?,
    })
}

fn task(row: &Row) -> Result<Option<KinTask>, DbError> {
    // Without a title its session is gone.
    let (Some(id), Some(title)) = (row.optional_parse("kin_task")?, row.optional_text("kin_title")?) else {
        return Ok(None);
    };
    Ok(Some(KinTask {
        id,
        session_id: row.parse("kin_session")?,
        viber_id: row.parse("kin_viber")?,
        viber_name: row.optional_text("viber_name")?.unwrap_or_default(),
        agent_id: row.text("kin_agent")?,
        title,
        state: row.parse("kin_state")?,
        is_cut_off: row.optional_instant("revoked_at")?.is_some(),
        waiting: row.optional_json("waiting")?,
        attempt: u32::try_from(row.count("attempt")?).unwrap_or(u32::MAX),
        usage: row.json("usage")?,
        limits: row.json("kin_limits")?,
        created_at: row.instant("kin_at")?,
        ended_at: row.optional_instant("ended_at")?,
        stop_reason: row.optional_text("stop_reason")?,
    }))
}
