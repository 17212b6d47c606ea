//! What a session's newest request contained, and what its next one carries.

use protocol::{AgentInfo, Instant, SessionId, TaskError, TaskId, Usage, context::WindowSource};
use serde_json::Value;

use crate::{
    args,
    db::{
        DbError, Query, TeamTx,
        messages::{past, pins, summaries},
        tasks, vibers,
    },
    domain::{
        By, Session, Task, TaskState,
        context::{
            ModelLimits, Past, PlanSettings, SessionPast, compaction,
            overview::{CompactionWaits, SessionTasks, TaskTokens},
            report::ContextReport,
        },
        memory::RequestContext,
    },
};

/// More than any seq of a message, whatever was reserved meanwhile.
pub const ALL_SEQS: u64 = i64::MAX as u64;
/// Newest tasks whose tokens are told.
const MAX_TOLD_TASKS: u64 = 20;

/// Failed compactions in a row after which none begins by itself.
const MAX_FAILED_COMPACTIONS: u64 = 2;

/// Stores what an agent reported about its request. Of two tasks the newer one counts; a later report of the same attempt
/// keeps its excerpts.
pub async fn keep(tx: &mut TeamTx<'_>, session: &SessionId, told: &RequestContext) -> Result<(), DbError> {
    let sql = "INSERT INTO contexts (team_id, session_id, task_id, attempt, body, memory, used_tokens, window_tokens, told_at) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
               ON CONFLICT (team_id, session_id) DO UPDATE SET task_id = excluded.task_id, attempt = excluded.attempt, \
               body = excluded.body, memory = COALESCE(excluded.memory, CASE WHEN contexts.task_id = excluded.task_id \
               AND contexts.attempt = excluded.attempt THEN contexts.memory END), used_tokens = excluded.used_tokens, \
               window_tokens = excluded.window_tokens, told_at = excluded.told_at \
               WHERE contexts.task_id <= excluded.task_id";
    let report = told.report();
    let window = report.window.and_then(|window| i64::try_from(window).ok());
    let memory = told.memory.as_ref().map(crate::db::json).transpose()?;
    let body = crate::db::json(&told.body)?;
    let args = args![session, &told.task_id, told.attempt, body, memory, report.used(), window, told.at];
    tx.defer(sql, args).await
}

/// The last report.
pub async fn load(tx: &mut TeamTx<'_>, session: &SessionId) -> Result<Option<RequestContext>, DbError> {
    tx.query(load_query(session)).await
}

/// The same as a query, to be sent together with others.
pub fn load_query(session: &SessionId) -> Query<Option<RequestContext>> {
    let sql = "SELECT task_id, attempt, body, memory, told_at FROM contexts WHERE team_id = $1 AND session_id = $2";
    Query::new(sql, args![session], |answer| {
        let Some(row) = answer.row() else { return Ok(None) };
        let attempt = u32::try_from(row.count("attempt")?).unwrap_or(u32::MAX);
        let (task_id, body, at): (TaskId, Value, Instant) =
            (row.parse("task_id")?, row.json("body")?, row.instant("told_at")?);
        let memory = row.optional_json("memory")?.or_else(|| body.get("memory").cloned());
        Ok(Some(RequestContext { task_id, attempt, body, memory, at }))
    })
}

/// What an overview of a session's context is made of, with the model that its newest task asked for: its next one asks for
/// the same unless people say otherwise.
pub async fn overview(tx: &mut TeamTx<'_>, session: &Session) -> Result<(SessionPast, SessionTasks), DbError> {
    let (newest, told, compact_waits) = tx
        .query_three(tasks::newest_of_session_query(&session.id), tasks_query(&session.id), waits_query(&session.id))
        .await?;
    let model = newest.as_ref().and_then(Task::model_asked);
    let past = session_past(tx, session, (PastExtent::Plan, ALL_SEQS), model).await?;
    Ok((past, SessionTasks { newest: told, compact_waits }))
}

/// How much of a session's past is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PastExtent {
    /// What any plan can use.
    Plan,
    /// What a summary may be made of.
    Compaction,
}

/// A session's past before the message `below`, and how its next request carries it, for its agent's own model where no other
/// is asked for. What is queued behind that is no past.
pub async fn session_past(
    tx: &mut TeamTx<'_>,
    session: &Session,
    (extent, below): (PastExtent, u64),
    model: Option<&str>,
) -> Result<SessionPast, DbError> {
    let (agents, reported, pins) = tx
        .query_three(vibers::agents_query(&session.viber_id), load_query(&session.id), pins::load_query(&session.id))
        .await?;
    let range = past::PastRange { session: &session.id, below, until: Instant(i64::MAX) };
    let (newest, standing, percent) = tx
        .query_three(
            past::newest_query(range),
            summaries::standing_query(&session.id, range.below, range.until),
            summaries::percent_query(&session.id),
        )
        .await?;
    let model = ModelLimits::asked(&agents, &session.agent_id, model, reported.as_ref());
    let settings = PlanSettings::of(&model, reported.as_ref());
    let room = match extent {
        PastExtent::Plan => settings.estimated_room(),
        PastExtent::Compaction => {
            // The agent's own model summarizes.
            let own = ModelLimits::asked(&agents, &session.agent_id, None, None);
            settings.estimated_room().max(compaction::readable(own.window.tokens))
        }
    };
    let mut found = Past::new(room, pins, standing.clone().map(|standing| standing.summary));
    past::read(tx, range, newest, &mut found).await?;
    Ok(SessionPast { model, reported, settings, past: found, standing, percent })
}

/// Why a session may have to be compacted before its next task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionCause {
    /// Its next request may pass the threshold.
    Threshold,
    /// It has just been compacted: only if its next request leaves turns out nevertheless.
    LostTurns,
}

/// Whether a session's newest request with its answer and `asked` tokens more is so large that it may have to be compacted, for
/// the window that its agent has now with `model`, or left turns out, however small it is. Not before something was done since
/// people undid a compaction, or since one that began by itself changed nothing; after two in a row that failed people have to
/// ask for the next.
pub async fn may_need_compaction(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    (asked, model): (u64, Option<&str>),
) -> Result<Option<CompactionCause>, DbError> {
    let sql = "SELECT c.used_tokens, c.window_tokens, c.body, COALESCE(s.compact_percent, t.compact_percent) AS percent, s.agent_id, \
               (SELECT v.agents FROM vibers v WHERE v.team_id = $1 AND v.viber_id = s.viber_id) AS agents, \
               (SELECT w.ended_at FROM tasks w WHERE w.team_id = $1 AND w.session_id = $2 AND w.kind = 'work' \
               AND w.ended_at IS NOT NULL ORDER BY w.message_seq DESC LIMIT 1) AS worked_at, \
               (SELECT w.usage FROM tasks w WHERE w.team_id = $1 AND w.session_id = $2 AND w.kind = 'work' \
               AND w.ended_at IS NOT NULL ORDER BY w.message_seq DESC LIMIT 1) AS usage, \
               (SELECT o.created_at FROM tasks o WHERE o.team_id = $1 AND o.session_id = $2 AND o.kind <> 'work' \
               ORDER BY o.message_seq DESC LIMIT 1) AS compacted_at, \
               (SELECT CASE WHEN o.created_by <> $3 OR EXISTS (SELECT 1 FROM summaries a WHERE a.team_id = $1 \
               AND a.session_id = $2 AND a.task_id = o.task_id) THEN 1 ELSE 0 END FROM tasks o WHERE o.team_id = $1 \
               AND o.session_id = $2 AND o.kind <> 'work' ORDER BY o.message_seq DESC LIMIT 1) AS may_follow, \
               (SELECT MAX(u.undone_at) FROM summaries u WHERE u.team_id = $1 AND u.session_id = $2) AS undone_at, \
               (SELECT COUNT(*) FROM (SELECT f.state FROM tasks f WHERE f.team_id = $1 AND f.session_id = $2 \
               AND f.kind <> 'work' ORDER BY f.message_seq DESC LIMIT 2) newest WHERE newest.state = 'error') AS failed \
               FROM contexts c JOIN sessions s \
               ON s.team_id = c.team_id AND s.session_id = c.session_id JOIN teams t ON t.team_id = c.team_id \
               WHERE c.team_id = $1 AND c.session_id = $2";
    let Some(row) = tx.row(sql, args![session, By::board().actor.id()]).await? else { return Ok(None) };
    let (worked, compacted) = (row.optional_instant("worked_at")?, row.optional_instant("compacted_at")?);
    let (percent, undone) = (row.int("percent")?, row.optional_instant("undone_at")?);
    let goes_on = row.count("failed")? < MAX_FAILED_COMPACTIONS;
    let is_since = |earlier: Option<Instant>| worked.is_some_and(|at| earlier.is_none_or(|earlier| at > earlier));
    let Some(used) = row.optional_int("used_tokens")?.filter(|_| percent > 0 && goes_on) else { return Ok(None) };
    let cause = if is_since(compacted) { CompactionCause::Threshold } else { CompactionCause::LostTurns };
    let may_follow = cause == CompactionCause::Threshold || row.optional_int("may_follow")? == Some(1);
    if !may_follow || !is_since(undone) {
        return Ok(None);
    }
    if ContextReport::read(&row.json("body")?).left_out {
        return Ok(Some(cause));
    }
    // Its answer is part of the next request, too.
    let answered = row.optional_json::<Usage>("usage")?.map_or(0, |usage| usage.output_tokens);
    let (agent, agents): (String, Option<Vec<AgentInfo>>) = (row.text("agent_id")?, row.optional_json("agents")?);
    let limits = ModelLimits::asked(&agents.unwrap_or_default(), &agent, model, None);
    let (now, reported) = (i128::from(limits.window.tokens), row.optional_int("window_tokens")?.map(i128::from));
    // What is only assumed of a model that was asked for says less than any report.
    let is_assumed = model.is_some() && limits.window.source == WindowSource::Assumed;
    let window = reported.map_or(now, |reported| if is_assumed { reported } else { now.min(reported) });
    // Of less than half of the threshold, all fits that was carried before.
    let all = i128::from(used) + i128::from(answered) + i128::from(asked);
    Ok((all * 200 >= window * i128::from(percent)).then_some(cause))
}

/// The query for why no compaction begins by itself: the newest of so many in a row that failed.
fn waits_query(session: &SessionId) -> Query<Option<CompactionWaits>> {
    let sql = "SELECT task_id, message_seq, state, error, ended_at FROM tasks WHERE team_id = $1 AND session_id = $2 \
               AND kind <> 'work' ORDER BY message_seq DESC LIMIT $3 + 0";
    Query::new(sql, args![session, MAX_FAILED_COMPACTIONS], |answer| {
        let mut failed = 0;
        for row in &answer.rows {
            let state: TaskState = row.parse("state")?;
            failed += u64::from(state == TaskState::Error);
        }
        let Some(row) = answer.row().filter(|_| failed >= MAX_FAILED_COMPACTIONS) else { return Ok(None) };
        let error: Option<TaskError> = row.optional_json("error")?;
        Ok(Some(CompactionWaits {
            task_id: row.parse("task_id")?,
            reason: error.map(|error| error.message).unwrap_or_default(),
            at: row.optional_instant("ended_at")?,
            seq: row.count("message_seq")?,
        }))
    })
}

/// The query for what the newest tasks took.
fn tasks_query(session: &SessionId) -> Query<Vec<TaskTokens>> {
    let sql = "SELECT task_id, message_seq, SUBSTR(goal, 1, 120) AS goal, usage FROM tasks \
               WHERE team_id = $1 AND session_id = $2 ORDER BY message_seq DESC LIMIT $3 + 0";
    Query::new(sql, args![session, MAX_TOLD_TASKS], |answer| {
        let task = |row: &crate::db::Row| {
            let usage: Usage = row.optional_json("usage")?.unwrap_or_default();
            Ok(TaskTokens::new(row.parse("task_id")?, &usage, row.text("goal")?, row.count("message_seq")?))
        };
        answer.rows.iter().map(task).collect()
    })
}
