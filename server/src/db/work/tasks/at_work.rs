//! What is at work on a viber: as its bus follows it, and as its Live page lists it.

use protocol::{SessionId, TaskId, ViberId};

use crate::{
    args,
    db::{DbError, Row, TeamTx},
    domain::{ContactState, task::Brief},
};

/// Tasks of one state that are looked at: an agent of a viber that nobody has heard of for long may have none among thousands.
const MAX_LOOKED_AT: u64 = 500;

/// A task at work.
#[derive(Clone, Debug)]
pub struct TaskAtWork {
    pub task: Brief,
    /// Of its viber.
    pub contact: ContactState,
    pub session_id: SessionId,
    pub agent_id: String,
    /// Its beginning.
    pub goal: String,
}

/// The tasks of a viber that are at work, of one agent or of all, those that run first: what is queued behind another task says
/// nothing.
pub async fn at_work(
    tx: &mut TeamTx<'_>,
    viber: &ViberId,
    agent: Option<&str>,
    limit: u64,
) -> Result<Vec<TaskId>, DbError> {
    rows(tx, Shown::Ids, (viber, agent), limit).await?.iter().map(|row| row.parse("task_id")).collect()
}

/// The same as a list shows them, of one agent or of all.
pub async fn list_at_work(
    tx: &mut TeamTx<'_>,
    viber: &ViberId,
    agent: Option<&str>,
    limit: u64,
) -> Result<Vec<TaskAtWork>, DbError> {
    rows(tx, Shown::Lines, (viber, agent), limit).await?.iter().map(task).collect()
}

/// What is read of a task.
#[derive(Clone, Copy)]
enum Shown {
    Ids,
    Lines,
}

async fn rows(
    tx: &mut TeamTx<'_>,
    shown: Shown,
    (viber, agent): (&ViberId, Option<&str>),
    limit: u64,
) -> Result<Vec<Row>, DbError> {
    // The agent is looked for before the limit: what it does may stand behind more tasks of others than are wanted.
    macro_rules! in_state {
        (@of $columns:literal, $filter:literal) => {
            concat!(
                "SELECT t.task_id",
                $columns,
                " FROM (SELECT o.task_id FROM tasks o WHERE o.team_id = $1 AND o.viber_id = $2 AND o.state <> 'completed' \
                 AND o.state = ",
                $filter,
                " ORDER BY o.task_id LIMIT $5 + 0) o JOIN tasks t ON t.team_id = $1 AND t.task_id = o.task_id \
                 JOIN vibers v ON v.team_id = $1 AND v.viber_id = $2 JOIN sessions s ON s.team_id = $1 \
                 AND s.session_id = t.session_id AND s.deleted_at IS NULL \
                 WHERE ($3 = '' OR t.agent_id = $3) ORDER BY t.task_id LIMIT $4 + 0"
            )
        };
        ($filter:literal) => {
            match shown {
                Shown::Ids => in_state!(@of "", $filter),
                Shown::Lines => in_state!(
                    @of ", t.session_id, t.agent_id, substr(t.goal, 1, 1000) AS goal, t.state, t.delivery, t.waiting, \
                    t.ended_at, CASE WHEN v.unheard <> 0 THEN 'unheard' ELSE v.contact END AS contact",
                    $filter
                ),
            }
        };
    }
    let agent = agent.unwrap_or_default();
    let mut rows = tx.rows(in_state!("'running'"), args![viber, agent, limit, MAX_LOOKED_AT]).await?;
    let room = limit.saturating_sub(rows.len() as u64);
    if room > 0 {
        let waiting = in_state!("'pending' AND o.delivery <> 'queued'");
        rows.extend(tx.rows(waiting, args![viber, agent, room, MAX_LOOKED_AT]).await?);
    }
    Ok(rows)
}

fn task(row: &Row) -> Result<TaskAtWork, DbError> {
    Ok(TaskAtWork {
        task: Brief {
            id: row.parse("task_id")?,
            state: row.parse("state")?,
            delivery: row.optional_parse("delivery")?,
            waiting: row.optional_json("waiting")?,
            ended_at: row.optional_instant("ended_at")?,
        },
        contact: row.parse("contact")?,
        session_id: row.parse("session_id")?,
        agent_id: row.text("agent_id")?,
        goal: row.text("goal")?,
    })
}
