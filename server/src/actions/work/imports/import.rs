//! Importing a session from its machine's log, piece by piece to its end, even when the caller has left.

use std::time::Duration;

use protocol::{Instant, LogPlace, LoggedSession, SessionId, SessionList, TeamId, ViberId};
use serde_json::json;
use tokio::time::Instant as Time;

use super::{
    ANSWER_TIMEOUT, ImportResult, MAX_LIST_REQUESTS,
    log_batch::{ImportTally, LogBatch},
    ours, piece, viber,
};
use crate::{
    actions::{
        files::{VIBER_AWAY, VIBER_BUSY},
        plan,
    },
    db,
    domain::{By, logbook::Logbook},
    error::{Error, Result},
    state::Board,
};

/// Log text read before it is written, bytes.
const WRITE_THRESHOLD_BYTES: usize = 256 * 1024;
/// Log text held in memory while an attempt's end is looked for, bytes. Beyond it everything but that attempt is written,
/// and half as much of the attempt is kept.
const MAX_HELD_BYTES: usize = 32 * 1024 * 1024;
/// Log text read while an attempt's end is looked for, bytes: a log may never contain it.
const MAX_UNSETTLED_BYTES: usize = 128 * 1024 * 1024;
/// How long a caller waits for the end of a log; the rest is imported in the background.
const LOG_WAIT: Duration = Duration::from_secs(5);
/// How much longer a caller waits for the first task to be complete.
const EXTRA_TASK_WAIT: Duration = Duration::from_secs(4);
/// An unfinished import that has not been touched for this long is continued by the scheduler, milliseconds.
const ABANDONED_AFTER_MS: i64 = 15_000;
/// How often a running import records that it is alive.
const TOUCH_INTERVAL: Duration = Duration::from_secs(4);
/// How long the scheduler continues one import before it turns to the next.
const TURN_DURATION: Duration = Duration::from_secs(120);

/// How long an import may run.
#[derive(Clone, Copy)]
struct ImportDeadlines {
    /// When something was imported.
    with_progress: Time,
    /// When nothing was imported yet.
    without_progress: Time,
}

/// An import: what is imported, and for whom.
struct LogImport<'a> {
    board: &'a Board,
    team: &'a TeamId,
    by: &'a By,
    viber: &'a ViberId,
    session: &'a SessionId,
}

/// Imports what the Board lacks of a session from its machine's log, task by task in order. It ends at a task that still
/// runs, which its viber reports itself. A long import continues after the answer.
pub async fn import(board: &Board, team: &TeamId, by: &By, id: &ViberId, session: &SessionId) -> Result<ImportResult> {
    viber(board, team, id).await?;
    ours(board, team, id, session).await?;
    let import = LogImport { board, team, by, viber: id, session };
    let mut tally = ImportTally::default();
    let until = ImportDeadlines {
        with_progress: Time::now() + LOG_WAIT,
        without_progress: Time::now() + LOG_WAIT + EXTRA_TASK_WAIT,
    };
    let more = import.run(&mut tally, Some(until)).await?;
    let none = || Error::unacceptable("nothing_to_take", "the log tells of no task that could be taken over");
    let session = ours(board, team, id, session).await?.ok_or_else(none)?;
    plan::adopt(board, team, &session).await;
    if more {
        let (board, team, by, id, session) = (board.clone(), team.clone(), by.clone(), id.clone(), session.id.clone());
        let mut tally = tally.clone();
        board.shutdown.clone().spawn(async move {
            let import = LogImport { board: &board, team: &team, by: &by, viber: &id, session: &session };
            import.run_to_end(&mut tally, None).await;
        });
    }
    Ok(ImportResult { session, tasks: tally.tasks, refused: tally.refused, more })
}

/// Continues unfinished imports that no task of this process works on: the Board was killed, or the viber was away.
pub async fn go_on(board: &Board) -> Result<()> {
    let before = Instant(board.clock.now().0 - ABANDONED_AFTER_MS);
    let found = db::imports::stalled(&mut *board.db.reader().await?, before).await?;
    for (team, viber, session) in found {
        if board.hub.is_connected(&viber) {
            let turn_end = Time::now() + TURN_DURATION;
            let until = ImportDeadlines { with_progress: turn_end, without_progress: turn_end };
            let import = LogImport { board, team: &team, by: &By::board(), viber: &viber, session: &session };
            import.run_to_end(&mut ImportTally::of_known(), Some(until)).await;
        }
    }
    Ok(())
}

impl LogImport<'_> {
    /// Imports to the end of the log. When the viber disconnects the import stays requested; a log that is refused is given up.
    async fn run_to_end(&self, tally: &mut ImportTally, until: Option<ImportDeadlines>) {
        match self.run(tally, until).await {
            Ok(_) | Err(Error::Unavailable { .. }) => {}
            Err(_) if !self.board.hub.is_connected(self.viber) => {}
            // It has dialled in anew meanwhile, or is asked much at once.
            Err(Error::Conflict { code: VIBER_AWAY | VIBER_BUSY, .. }) => {}
            Err(error) => {
                tracing::warn!(session.id = %self.session, %error, "a log is not taken over to its end");
                if let Err(error) = self.set_requested(false, 0).await {
                    tracing::warn!(session.id = %self.session, %error, "it is tried again");
                }
            }
        }
    }

    /// Imports what is not here yet. `true`: the deadline came before the end of the log.
    async fn run(&self, tally: &mut ImportTally, until: Option<ImportDeadlines>) -> Result<bool> {
        let Self { board, team, by, viber, session } = *self;
        let mut place = db::imports::position(&mut board.db.reader_of(team).await?, session).await?;
        let fresh = || Logbook::new(board.clock.now());
        let (mut book, mut agent, mut is_requested) = (fresh(), None, false);
        // Everything up to here is written.
        let mut done = place;
        let mut touched = Time::now();
        let more = 'log: loop {
            let piece = piece(board, viber, session, agent.as_deref(), place).await?;
            let batch = |to, book: Logbook| LogBatch::new((viber, session), &piece, to, book.finish());
            let is_late = |is_requested: bool| {
                let until = until.map(|until| if is_requested { until.with_progress } else { until.without_progress });
                board.shutdown.soft.is_cancelled() || until.is_some_and(|until| Time::now() > until)
            };
            for line in &piece.lines {
                if !book.read(line, &piece.open) {
                    batch(place, book).write(board, team, by, tally).await?;
                    break 'log false;
                }
                place = LogPlace { line: line.seq, at: line.end };
                let endless = book.came() > MAX_UNSETTLED_BYTES;
                let whole = match book.is_settled() {
                    true => {
                        (book.bytes() > WRITE_THRESHOLD_BYTES || endless).then(|| std::mem::replace(&mut book, fresh()))
                    }
                    false if endless => Some(std::mem::replace(&mut book, fresh()).cut()),
                    false => None,
                };
                if let Some(whole) = whole {
                    let before = tally.attempts;
                    batch(place, whole).write(board, team, by, tally).await?;
                    if endless && tally.attempts == before {
                        return Err(Error::unacceptable("endless_log", "the log goes on and on and tells nothing new"));
                    }
                    done = place;
                    if !std::mem::replace(&mut is_requested, true) {
                        self.set_requested(true, self.lines(place).await).await?;
                    }
                } else if book.bytes() > MAX_HELD_BYTES {
                    // The place does not advance: the open attempt began after it, and what is written is not imported again.
                    batch(done, book.split()).write(board, team, by, tally).await?;
                } else {
                    continue;
                }
                if is_late(is_requested) {
                    break 'log true;
                }
            }
            if piece.next.is_none() {
                // The log ends here: an attempt without an ending will never have one.
                batch(place, book).write(board, team, by, tally).await?;
                break 'log false;
            }
            if is_late(is_requested) {
                if !is_requested && !book.is_empty() {
                    batch(done, book).announce(board, team, by, tally).await?;
                }
                break 'log true;
            }
            if touched.elapsed() > TOUCH_INTERVAL {
                self.touch().await?;
                touched = Time::now();
            }
            agent = Some(piece.agent_id);
        };
        if !more {
            self.set_requested(false, 0).await?;
        }
        Ok(more)
    }

    /// Records that the import is still running, so that the scheduler does not start it a second time.
    async fn touch(&self) -> Result<()> {
        let session = self.session.clone();
        let change = self.board.change(self.team, self.by, move |tx| {
            let session = session.clone();
            Box::pin(async move { db::imports::touch(tx, &session).await })
        });
        Ok(change.await?)
    }

    /// Records that the rest of the log is requested, or that it no longer is.
    async fn set_requested(&self, on: bool, lines: u64) -> Result<()> {
        let session = self.session.clone();
        let change = self.board.change(self.team, self.by, move |tx| {
            let session = session.clone();
            Box::pin(async move {
                let by = on.then(|| tx.by.actor.id().to_owned());
                db::imports::set_requester(tx, &session, by.as_deref(), lines).await
            })
        });
        change.await?;
        let mut after = crate::actions::AfterCommit::default();
        after.session(self.session);
        after.publish(self.board, self.team);
        Ok(())
    }

    /// How many lines the log has, as the machine says or as its size suggests; 0: unknown.
    async fn lines(&self, place: LogPlace) -> u64 {
        let mut next = Some(0);
        for _ in 0..MAX_LIST_REQUESTS {
            let Some(from) = next else { break };
            let asked =
                self.board.hub.request(self.viber, "session.list", json!({ "from": from }), ANSWER_TIMEOUT).await;
            let Some(list) = asked.ok().and_then(|list| serde_json::from_value::<SessionList>(list).ok()) else {
                break;
            };
            if let Some(LoggedSession { lines, bytes, .. }) =
                list.items.iter().find(|one| one.session_id == *self.session)
            {
                let about = u128::from(*bytes) * u128::from(place.line) / u128::from(place.at.max(1));
                let about = lines.unwrap_or_else(|| u64::try_from(about).unwrap_or(u64::MAX));
                return about.clamp(place.line, 1 << 52);
            }
            next = list.next.filter(|next| *next > from);
        }
        0
    }
}
