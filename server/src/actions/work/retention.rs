//! Retention: kept answers expire, old events are replaced by a gap.

use protocol::{AgentEvent, AgentStreamEvent, Event, EventBody, Instant, TeamId, ViberId};

use super::record;
use crate::{
    db::{self, Change},
    domain::{Attempt, By, Committed, Item, Report, Team, assemble::Assembler},
    error::{Error, Result},
    state::Board,
};

/// Attempts whose events are trimmed in one change.
const ATTEMPTS_PER_CHANGE: u64 = 20;
/// How long the changes of a file are kept, days.
const EDIT_HISTORY_DAYS: i64 = 90;
/// How long commands are kept that are done with, days: until then a daemon may still report about tasks of deleted
/// sessions, and a command shows that the task was its own.
const COMMAND_DAYS: i64 = 30;
/// Changes that are kept of one file: each holds the file twice.
const MAX_EDITS_PER_FILE: u64 = 50;
/// Small rows removed in one change.
const ROWS_PER_CHANGE: u64 = 100;
/// Edits removed in one change: each holds the file twice.
const EDITS_PER_CHANGE: u64 = 20;
/// Why events are missing.
const GAP_REASON: &str = "older than the team keeps events";
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// Teams read in one sweep.
const MAX_TEAMS: u64 = 10_000;

/// Records when vibers were last heard.
pub async fn seen(board: &Board, heard: Vec<(TeamId, ViberId, Instant)>) -> Result<()> {
    if heard.is_empty() {
        return Ok(());
    }
    for some in heard.chunks(ROWS_PER_CHANGE as usize) {
        let some = some.to_vec();
        let written = board.db.piece(move |tx| {
            let some = some.clone();
            Box::pin(async move {
                for (team, viber, at) in &some {
                    db::vibers::seen(&mut tx.of(team), viber, *at).await?;
                }
                Ok::<_, Error>(())
            })
        });
        written.await?;
    }
    Ok(())
}

/// Removes answers to calls with an `Idempotency-Key` after 24 hours.
pub async fn forget_answers(board: &Board) -> Result<()> {
    let now = board.clock.now();
    let some = || {
        board.db.piece(move |tx| {
            Box::pin(async move { Ok::<_, Error>(db::idempotency::forget(tx, now, ROWS_PER_CHANGE).await?) })
        })
    };
    while some().await? == ROWS_PER_CHANGE {}
    Ok(())
}

/// Removes the logins that ended a month ago.
pub async fn forget_logins(board: &Board) -> Result<()> {
    let before = Instant(board.clock.now().0 - crate::actions::accounts::LOGIN_IDLE_MS);
    let some = || {
        board.db.piece(move |tx| {
            Box::pin(async move { Ok::<_, Error>(db::logins::sweep(tx, before, ROWS_PER_CHANGE).await?) })
        })
    };
    while some().await? == ROWS_PER_CHANGE {}
    Ok(())
}

/// Removes old edits of files, and all but the newest of each file. Queued and undecided ones stay.
pub async fn trim_history(board: &Board) -> Result<()> {
    let before = Instant(board.clock.now().0 - EDIT_HISTORY_DAYS * DAY_MS);
    let teams = db::teams::all(&mut *board.db.reader().await?, MAX_TEAMS).await?;
    for team in teams {
        let some = || {
            board.piece(&team.id, &By::board(), move |tx| {
                Box::pin(async move {
                    let stale = db::edits::stale(tx, before, MAX_EDITS_PER_FILE, EDITS_PER_CHANGE).await?;
                    for edit in &stale {
                        db::edits::forget(tx, edit).await?;
                    }
                    Ok::<_, Error>(stale.len() as u64)
                })
            })
        };
        while some().await? == EDITS_PER_CHANGE {}
    }
    Ok(())
}

/// Removes commands that their daemons have had for long and would not need after losing their disks.
pub async fn forget_commands(board: &Board) -> Result<()> {
    let before = Instant(board.clock.now().0 - COMMAND_DAYS * DAY_MS);
    let teams = db::teams::all(&mut *board.db.reader().await?, MAX_TEAMS).await?;
    for team in teams {
        let mut cursor = None;
        loop {
            let vibers = {
                let mut tx = board.db.reader_of(&team.id).await?;
                db::vibers::with_commands_before(&mut tx, cursor.as_ref(), before, ROWS_PER_CHANGE).await?
            };
            for viber in &vibers {
                forget_commands_of(board, &team.id, viber, before).await?;
            }
            let Some(last) = vibers.last().filter(|_| vibers.len() as u64 == ROWS_PER_CHANGE) else { break };
            cursor = Some(last.clone());
        }
    }
    Ok(())
}

async fn forget_commands_of(board: &Board, team: &TeamId, viber: &ViberId, before: Instant) -> Result<()> {
    let some = || {
        let viber = viber.clone();
        board.piece(team, &By::board(), move |tx| {
            let viber = viber.clone();
            Box::pin(async move {
                let needed = db::commands::oldest_needed(tx, &viber).await?;
                Ok::<_, Error>(db::commands::forget(tx, &viber, needed, before, ROWS_PER_CHANGE).await?)
            })
        })
    };
    while some().await? == ROWS_PER_CHANGE {}
    Ok(())
}

/// Removes artifacts that have been kept too long.
pub async fn sweep_artifacts(board: &Board) -> Result<()> {
    crate::actions::artifacts::sweep(board).await
}

/// Removes events that are older than their team keeps them. Their parts stay, and a gap says what is missing.
pub async fn trim_events(board: &Board) -> Result<()> {
    let teams = db::teams::all(&mut *board.db.reader().await?, MAX_TEAMS).await?;
    for team in teams.iter().filter(|team| team.retention_days > 0) {
        while trim_some(board, team).await? {}
    }
    Ok(())
}

/// `true`: there may be more.
async fn trim_some(board: &Board, team: &Team) -> Result<bool> {
    let kept = team.retention_days.saturating_mul(DAY_MS);
    let trimmed = board.piece(&team.id, &By::board(), move |tx| {
        Box::pin(async move {
            let before = Instant(tx.now.0 - kept);
            let stale = db::attempts::stale(tx, before, ATTEMPTS_PER_CHANGE).await?;
            for attempt in &stale {
                if !trim(tx, attempt).await? || tx.is_full() {
                    return Ok::<_, Error>(true);
                }
            }
            Ok(stale.len() as u64 == ATTEMPTS_PER_CHANGE)
        })
    });
    trimmed.await
}

/// Replaces an attempt's events with a gap that grows until only the last event is left. `false`: there is more to do.
async fn trim(tx: &mut Change<'_>, attempt: &Attempt) -> Result<bool> {
    let (task, number, last) = (&attempt.task_id, attempt.attempt, attempt.last_seq);
    let Some(held) = db::attempts::load_with_task(tx, task, number).await? else {
        // Its session was deleted: `purge` removes the attempt with it.
        db::attempts::trimmed(tx, task, number).await?;
        return Ok(true);
    };
    if last > 1 {
        keep_open(tx, attempt).await?;
        while !grow_gap(tx, attempt, &held.agent_id).await? {
            if tx.is_full() {
                return Ok(false);
            }
        }
    }
    db::attempts::trimmed(tx, task, number).await?;
    Ok(true)
}

/// Turns trailing events that are no part yet into parts.
async fn keep_open(tx: &mut Change<'_>, attempt: &Attempt) -> Result<()> {
    let (task, number, last) = (&attempt.task_id, attempt.attempt, attempt.last_seq);
    if attempt.parts_seq >= last {
        return Ok(());
    }
    let mut assembler = Assembler::new(attempt.parts_seq, false);
    record::read_open(tx, (task, number), attempt.parts_seq, &mut assembler).await?;
    let open = assembler.open_parts();
    let mut parts = assembler.finish().parts;
    parts.extend(open);
    if let Some(message) = attempt.message_id.as_ref().filter(|_| !parts.is_empty()) {
        db::messages::append(tx, message, &parts).await?;
    }
    let advance = db::attempts::Advance {
        from: last + 1,
        to: last,
        parts_seq: last,
        open_weight: 0,
        message_id: None,
        started_at: None,
    };
    db::attempts::advance(tx, task, number, &advance).await?;
    Ok(())
}

/// Moves a few runs of events into the gap. `true`: it has reached the last event.
async fn grow_gap(tx: &mut Change<'_>, attempt: &Attempt, agent: &str) -> Result<bool> {
    let (task, number, last) = (&attempt.task_id, attempt.attempt, attempt.last_seq);
    let sizes = db::events::sizes(tx, task, number, db::change_limits::DELETE_BATCH_ROWS).await?;
    let Some((to, _)) = sizes.last().copied() else { return Ok(true) };
    let first = db::events::after(tx, task, number, 0, 1).await?;
    let so_far = first.first().and_then(|run| run.items.first()).and_then(|item| gap(&item.report()));
    let grown = so_far.map_or(0, |bytes| bytes.saturating_sub(sizes[0].1));
    let bytes = sizes.iter().fold(grown, |sum, (_, size)| sum.saturating_add(*size));
    let whole = to >= last;
    let newest = if whole { db::events::after(tx, task, number, last - 1, 1).await? } else { Vec::new() };
    let end = if whole { last - 1 } else { to };
    let event = AgentStreamEvent::Gap { from: 1, to: end, bytes, reason: GAP_REASON.to_owned() };
    let body = EventBody::Progress { event: AgentEvent { agent_id: agent.to_owned(), event } };
    let gap = Event { seq: end, at: tx.now, body };
    let gap = serde_json::to_string(&gap).map_err(|error| Error::Internal(error.to_string()))?;
    let mut items = vec![Item { seq: end, json: gap.into() }];
    items.extend(newest.into_iter().flat_map(|run| run.items));
    db::events::clear(tx, task, number, to, db::change_limits::DELETE_BATCH_ROWS).await?;
    db::events::insert(tx, &Committed::new(task.clone(), number, 1, items)).await?;
    Ok(whole)
}

/// The bytes that a gap made by retention stands for.
fn gap(report: &Report) -> Option<u64> {
    match &report.body {
        Some(EventBody::Progress { event }) => match &event.event {
            AgentStreamEvent::Gap { from: 1, bytes, reason, .. } if reason == GAP_REASON => Some(*bytes),
            _ => None,
        },
        _ => None,
    }
}
