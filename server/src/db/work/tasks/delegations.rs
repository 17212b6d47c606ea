//! What agents asked of each other: a row for each call, and the tree of tasks that these make.

use protocol::{Instant, ParentCall, SessionId, TaskError, TaskId, TaskLimits, TaskResult, TeamId, ViberId};

use crate::{
    args,
    db::{Change, DbError, Row, TeamTx, Tx, json},
    domain::{Delegation, DelegationState, Kin, KinTask, TaskState, TaskTree},
};

/// Rows of one tree that are read: more than one may have, with those that were refused.
const MAX_ROWS: u64 = 400;

macro_rules! asked_columns {
    () => {
        "d.parent_task, d.parent_attempt, d.call_id, d.child_task, d.root_task, d.depth, d.agent_id AS asked_agent, d.place, \
         d.goal AS asked_goal, d.artifacts, d.limits AS asked_limits, d.session_id AS asked_session, \
         d.state AS asked_state, d.refusal, d.told, d.created_at AS asked_at"
    };
}

macro_rules! task_columns {
    () => {
        "t.task_id AS kin_task, t.session_id AS kin_session, t.viber_id AS kin_viber, v.name AS viber_name, \
         t.agent_id AS kin_agent, s.title AS kin_title, t.state AS kin_state, t.waiting, t.attempt, t.usage, \
         t.limits AS kin_limits, t.created_at AS kin_at, t.ended_at, t.result, t.error"
    };
}

/// What a call asked for.
pub async fn load(tx: &mut TeamTx<'_>, call: &ParentCall) -> Result<Option<Delegation>, DbError> {
    let sql = concat!(
        "SELECT ",
        asked_columns!(),
        " FROM delegations d WHERE d.team_id = $1 AND d.parent_task = $2 AND d.parent_attempt = $3 AND d.call_id = $4"
    );
    let args = args![&call.task_id, call.attempt, &call.call_id];
    tx.row(sql, args).await?.as_ref().map(asked).transpose()
}

/// What made a task, if an agent asked for it.
pub async fn of_child(tx: &mut TeamTx<'_>, child: &TaskId) -> Result<Option<Delegation>, DbError> {
    let sql =
        concat!("SELECT ", asked_columns!(), " FROM delegations d WHERE d.team_id = $1 AND d.child_task = $2 LIMIT 1");
    tx.row(sql, args![child]).await?.as_ref().map(asked).transpose()
}

/// What a task asked for in all its attempts, in that order.
pub async fn of_parent(tx: &mut TeamTx<'_>, parent: &TaskId) -> Result<Vec<Delegation>, DbError> {
    let sql = concat!(
        "SELECT ",
        asked_columns!(),
        " FROM delegations d WHERE d.team_id = $1 AND d.parent_task = $2 ORDER BY d.created_at, d.call_id LIMIT $3 + 0"
    );
    tx.rows(sql, args![parent, MAX_ROWS]).await?.iter().map(asked).collect()
}

/// Adds what a call asked for. `false`: it is known.
pub async fn insert(tx: &mut Change<'_>, new: &Delegation) -> Result<bool, DbError> {
    let sql = "INSERT INTO delegations (team_id, parent_task, parent_attempt, call_id, child_task, root_task, depth, agent_id, \
               place, goal, goal_digest, artifacts, limits, session_id, state, refusal, told, created_at) VALUES ($1, $2, $3, \
               $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18) ON CONFLICT DO NOTHING";
    let args = args![
        &new.call.task_id,
        new.call.attempt,
        &new.call.call_id,
        new.child.as_ref(),
        &new.root,
        new.depth,
        &new.agent_id,
        new.place.as_deref(),
        &new.goal,
        new.goal_digest(),
        json(&new.artifacts)?,
        json(&new.limits)?,
        new.session.as_ref(),
        new.state,
        new.refusal.as_deref(),
        new.told,
        new.created_at
    ];
    Ok(tx.execute(sql, args).await? > 0)
}

/// A task was made, or none is. `false`: that was decided before.
pub async fn decide(tx: &mut Change<'_>, call: &ParentCall, made: Result<&TaskId, &str>) -> Result<bool, DbError> {
    let sql = "UPDATE delegations SET state = $5, child_task = $6, refusal = $7 WHERE team_id = $1 AND parent_task = $2 \
               AND parent_attempt = $3 AND call_id = $4 AND state = 'gathering'";
    let state = if made.is_ok() { DelegationState::Made } else { DelegationState::Refused };
    let args = args![&call.task_id, call.attempt, &call.call_id, state, made.ok(), made.err()];
    Ok(tx.execute(sql, args).await? > 0)
}

/// Whoever asked knows how it ended. `false`: they knew.
pub async fn set_told(tx: &mut Change<'_>, call: &ParentCall) -> Result<bool, DbError> {
    let sql = "UPDATE delegations SET told = 1 WHERE team_id = $1 AND parent_task = $2 AND parent_attempt = $3 \
               AND call_id = $4 AND told = 0";
    Ok(tx.execute(sql, args![&call.task_id, call.attempt, &call.call_id]).await? > 0)
}

/// The tree that begins with a task, with its tasks as they are now. Tasks of deleted sessions are not there any more; where
/// the first one is not, it counts as stopped. `None`: nothing was asked for in it.
pub async fn tree(tx: &mut TeamTx<'_>, root: &TaskId) -> Result<Option<TaskTree>, DbError> {
    let sql = concat!(
        "SELECT ",
        asked_columns!(),
        ", ",
        task_columns!(),
        " FROM delegations d LEFT JOIN tasks t ON t.team_id = d.team_id AND t.task_id = d.child_task \
         LEFT JOIN sessions s ON s.team_id = t.team_id AND s.session_id = t.session_id AND s.deleted_at IS NULL \
         LEFT JOIN vibers v ON v.team_id = t.team_id AND v.viber_id = t.viber_id \
         WHERE d.team_id = $1 AND d.root_task = $2 ORDER BY d.created_at, d.depth, d.call_id LIMIT $3 + 0"
    );
    let rows = tx.rows(sql, args![root, MAX_ROWS]).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let kin =
        rows.iter().map(|row| Ok(Kin { asked: asked(row)?, task: task(row)? })).collect::<Result<_, DbError>>()?;
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
    Ok(Some(TaskTree { root: root_task.unwrap_or_else(|| gone(root)), kin }))
}

/// All that was asked for in the trees that tasks of a session are in, the newest of it, in the order in which it was.
pub async fn of_session(tx: &mut TeamTx<'_>, session: &SessionId) -> Result<Vec<Kin>, DbError> {
    let sql = concat!(
        "SELECT ",
        asked_columns!(),
        ", ",
        task_columns!(),
        " FROM delegations d LEFT JOIN tasks t ON t.team_id = d.team_id AND t.task_id = d.child_task \
         LEFT JOIN sessions s ON s.team_id = t.team_id AND s.session_id = t.session_id AND s.deleted_at IS NULL \
         LEFT JOIN vibers v ON v.team_id = t.team_id AND v.viber_id = t.viber_id \
         WHERE d.team_id = $1 AND d.root_task IN (SELECT k.root_task FROM tasks p JOIN delegations k \
         ON k.team_id = p.team_id AND k.parent_task = p.task_id WHERE p.team_id = $1 AND p.session_id = $2 \
         UNION SELECT k.root_task FROM tasks p JOIN delegations k ON k.team_id = p.team_id AND k.child_task = p.task_id \
         WHERE p.team_id = $1 AND p.session_id = $2) \
         ORDER BY d.created_at DESC, d.depth DESC, d.call_id DESC LIMIT $3 + 0"
    );
    let rows = tx.rows(sql, args![session, MAX_ROWS]).await?;
    rows.iter().rev().map(|row| Ok(Kin { asked: asked(row)?, task: task(row)? })).collect()
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
    let sql = "SELECT d.root_task FROM delegations d WHERE d.team_id = $1 AND d.child_task = $2 LIMIT 1";
    if let Some(row) = tx.row(sql, args![task]).await? {
        return row.parse("root_task").map(Some);
    }
    let sql = "SELECT d.root_task FROM delegations d WHERE d.team_id = $1 AND d.root_task = $2 LIMIT 1";
    tx.row(sql, args![task]).await?.map(|row| row.parse("root_task")).transpose()
}

/// The tree that a session's newest delegation is in, and how many tasks were asked for in it.
pub async fn newest_of_session(tx: &mut TeamTx<'_>, session: &SessionId) -> Result<Option<(TaskId, u64)>, DbError> {
    let sql = "SELECT n.root_task, (SELECT COUNT(*) FROM delegations a WHERE a.team_id = $1 AND a.root_task = n.root_task \
               AND a.state <> 'refused') AS made FROM (SELECT k.root_task, k.created_at FROM tasks p JOIN delegations k \
               ON k.team_id = p.team_id AND k.parent_task = p.task_id WHERE p.team_id = $1 AND p.session_id = $2 \
               UNION SELECT k.root_task, k.created_at FROM tasks p JOIN delegations k \
               ON k.team_id = p.team_id AND k.child_task = p.task_id WHERE p.team_id = $1 AND p.session_id = $2) n \
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
        waiting: None,
        attempt: 0,
        usage: protocol::Usage::default(),
        limits: TaskLimits::default(),
        created_at: Instant(0),
        ended_at: None,
        outcome: None,
    }
}

fn asked(row: &Row) -> Result<Delegation, DbError> {
    let small = |column| row.count(column).map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    Ok(Delegation {
        call: ParentCall {
            task_id: row.parse("parent_task")?,
            attempt: small("parent_attempt")?,
            call_id: row.text("call_id")?,
        },
        child: row.optional_parse("child_task")?,
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
        created_at: row.instant("asked_at")?,
    })
}

fn task(row: &Row) -> Result<Option<KinTask>, DbError> {
    // Without a title its session is gone.
    let (Some(id), Some(title)) = (row.optional_parse("kin_task")?, row.optional_text("kin_title")?) else {
        return Ok(None);
    };
    let result: Option<TaskResult> = row.optional_json("result")?;
    let error: Option<TaskError> = row.optional_json("error")?;
    Ok(Some(KinTask {
        id,
        session_id: row.parse("kin_session")?,
        viber_id: row.parse("kin_viber")?,
        viber_name: row.optional_text("viber_name")?.unwrap_or_default(),
        agent_id: row.text("kin_agent")?,
        title,
        state: row.parse("kin_state")?,
        waiting: row.optional_json("waiting")?,
        attempt: u32::try_from(row.count("attempt")?).unwrap_or(u32::MAX),
        usage: row.json("usage")?,
        limits: row.json("kin_limits")?,
        created_at: row.instant("kin_at")?,
        ended_at: row.optional_instant("ended_at")?,
        outcome: result.map(|result| result.summary).or(error.map(|error| error.message)),
    }))
}
