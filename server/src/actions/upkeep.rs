//! Upkeep: what the Board does for itself. Kept answers expire, old events give way to a gap.

use protocol::{AgentEvent, AgentStreamEvent, Event, EventBody, Instant, TeamId, ViberId};

use crate::{
    db::{self, Tx},
    domain::{Attempt, Committed, Item, Team, assemble::Assembler},
    error::{Error, Result},
    state::Board,
};

/// Attempts whose events are taken away in one change.
const BATCH: u64 = 20;
/// Rows of open events that are read to complete a part.
const OPEN_ROWS: u64 = 100_000;
/// How long the history of a file is kept, days, and how many changes of it at most: each holds the file twice.
const HISTORY: (i64, u64) = (90, 50);
/// Changes of files that are taken away in one change.
const EDITS: u64 = 200;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// Teams looked at in one sweep.
const TEAMS: u64 = 10_000;

/// When vibers were last heard.
pub async fn seen(board: &Board, heard: Vec<(TeamId, ViberId, Instant)>) -> Result<()> {
    if heard.is_empty() {
        return Ok(());
    }
    board
        .db
        .write(move |tx| {
            let heard = heard.clone();
            Box::pin(async move {
                for (team, viber, at) in &heard {
                    db::vibers::seen(tx, team, viber, *at).await?;
                }
                Ok::<_, Error>(())
            })
        })
        .await
}

/// Answers to calls with an `Idempotency-Key` are kept for 24 hours.
pub async fn forget_answers(board: &Board) -> Result<()> {
    let now = board.clock.now();
    board
        .db
        .write(move |tx| Box::pin(async move { Ok::<_, Error>(db::idempotency::forget(tx, now).await?) }))
        .await
        .map(drop)
}

/// Takes away the logins that ended a month ago.
pub async fn forget_logins(board: &Board) -> Result<()> {
    let before = Instant(board.clock.now().0 - super::accounts::LOGIN_MS);
    board
        .db
        .write(move |tx| Box::pin(async move { Ok::<_, Error>(db::logins::sweep(tx, before).await?) }))
        .await
        .map(drop)
}

/// Takes away what was changed in files long ago, or many changes ago. What waits, or is not decided, stays.
pub async fn trim_history(board: &Board) -> Result<()> {
    let before = Instant(board.clock.now().0 - HISTORY.0 * DAY_MS);
    let teams = board.db.read(|tx| Box::pin(async move { db::teams::all(tx, TEAMS).await })).await?;
    for team in teams {
        let some = || {
            let team = team.id.clone();
            board.db.write(move |tx| {
                let team = team.clone();
                Box::pin(async move {
                    let stale = db::edits::stale(tx, &team, before, HISTORY.1, EDITS).await?;
                    for edit in &stale {
                        db::edits::forget(tx, &team, edit).await?;
                    }
                    Ok::<_, Error>(stale.len() as u64)
                })
            })
        };
        while some().await? == EDITS {}
    }
    Ok(())
}

/// Takes away the artifacts that are kept too long.
pub async fn sweep_artifacts(board: &Board) -> Result<()> {
    super::artifacts::sweep(board).await
}

/// Takes away the events that are older than their team keeps them. Their parts stay, and a gap says what is missing.
pub async fn trim_events(board: &Board) -> Result<()> {
    let teams = board.db.read(|tx| Box::pin(async move { db::teams::all(tx, TEAMS).await })).await?;
    for team in teams.iter().filter(|team| team.retention_days > 0) {
        while trim_some(board, team).await? == BATCH {}
    }
    Ok(())
}

async fn trim_some(board: &Board, team: &Team) -> Result<u64> {
    let now = board.clock.now();
    let before = Instant(now.0 - team.retention_days.saturating_mul(DAY_MS));
    let team = team.id.clone();
    board
        .db
        .write(move |tx| {
            let team = team.clone();
            Box::pin(async move {
                let stale = db::attempts::stale(tx, &team, before, BATCH).await?;
                for attempt in &stale {
                    trim(tx, &team, attempt, now).await?;
                }
                Ok::<_, Error>(stale.len() as u64)
            })
        })
        .await
}

async fn trim(tx: &mut Tx, team: &TeamId, attempt: &Attempt, now: Instant) -> Result<()> {
    let (task, number, last) = (&attempt.task_id, attempt.attempt, attempt.last_seq);
    let Some(held) = db::attempts::held(tx, team, task, number).await? else { return Ok(()) };
    if last > 1 {
        if attempt.parts_seq < last {
            let mut assembler = Assembler::new(attempt.parts_seq, false);
            for run in db::events::after(tx, team, task, number, attempt.parts_seq, OPEN_ROWS).await? {
                run.items.iter().for_each(|item| assembler.read(&item.report()));
            }
            let open = assembler.open_parts();
            if let Some(message) = attempt.message_id.as_ref().filter(|_| !open.is_empty()) {
                db::messages::append(tx, team, message, &open, now).await?;
            }
        }
        let newest = db::events::after(tx, team, task, number, last - 1, 1).await?;
        let bytes = db::events::size(tx, team, task, number).await?;
        let reason = "older than the team keeps events".to_owned();
        let event = AgentStreamEvent::Gap { from: 1, to: last - 1, bytes, reason };
        let body = EventBody::Progress { event: AgentEvent { agent_id: held.agent_id, event } };
        let gap = Event { seq: last - 1, at: now, body };
        let gap = serde_json::to_string(&gap).map_err(|error| Error::Internal(error.to_string()))?;
        let mut items = vec![Item { seq: last - 1, json: gap.into() }];
        items.extend(newest.into_iter().flat_map(|run| run.items));
        db::events::clear(tx, team, task, number).await?;
        db::events::insert(tx, team, &Committed::new(task.clone(), number, 1, items), now).await?;
    }
    db::attempts::trimmed(tx, team, task, number, now).await?;
    Ok(())
}
