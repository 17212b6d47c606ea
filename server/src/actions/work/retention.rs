//! Retention: kept answers expire, old events are replaced by a gap.

mod trim;

use protocol::{Instant, TeamId, ViberId};

use crate::{
    db,
    domain::By,
    error::{Error, Result},
    state::Board,
};

pub use trim::trim_events;

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
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// Teams read in one sweep.
const MAX_TEAMS: u64 = 10_000;

/// Records when vibers were last heard.
pub async fn seen(board: &Board, mut heard: Vec<(TeamId, ViberId, Instant)>) -> Result<()> {
    heard.sort();
    // On PostgreSQL, locks of one team's rows are taken in its queue, so that no two changes wait for each other.
    let together = board.db.is_sqlite();
    let of_teams = heard.chunk_by(|one, next| together || one.0 == next.0);
    let mut failed = None;
    for some in of_teams.flat_map(|of_team| of_team.chunks(ROWS_PER_CHANGE as usize)) {
        let rows = some.to_vec();
        let written = board.piece(&rows[0].0.clone(), &By::board(), move |tx| {
            let rows = rows.clone();
            Box::pin(async move {
                for (team, viber, at) in &rows {
                    db::vibers::seen(&mut tx.without_team().of(team), viber, *at).await?;
                }
                Ok::<_, Error>(())
            })
        });
        // Teams do not hold up each other.
        failed = written.await.err().or(failed);
    }
    failed.map_or(Ok(()), Err)
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
