//! Taking a session over from its machine's log: piece by piece, to its end, whoever asked for it is still there or not.

use std::time::Duration;

use protocol::{Instant, LogPlace, LoggedSession, SessionId, SessionList, TeamId, ViberId};
use serde_json::json;
use tokio::time::Instant as Time;

use super::{
    ANSWER, PAGES, Taken, ours, piece,
    take::{Batch, Took},
    viber,
};
use crate::{
    actions::plan,
    db,
    domain::{By, logbook::Logbook},
    error::{Error, Result},
    state::Board,
};

/// What is read before it is written, bytes.
const AT_ONCE: usize = 256 * 1024;
/// What is held at most while it waits for an attempt's end, bytes: beyond it all is written but that attempt, of which
/// half as much is kept.
const MAX_HELD: usize = 32 * 1024 * 1024;
/// What is read at most for the sake of an attempt's end, bytes: a log may never tell it.
const MAX_UNSETTLED: usize = 128 * 1024 * 1024;
/// So long somebody waits for the end of a log; the rest goes on without them.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longer than this nobody waits for the end of a task.
const ENOUGH: Duration = Duration::from_secs(4);
/// A log that somebody waits for and nobody has been at for so long, is gone on with, milliseconds.
const IDLE_MS: i64 = 15_000;
/// Whoever is at a log says so this often.
const TOUCH: Duration = Duration::from_secs(4);
/// So long one log is gone on with before others have their turn.
const TURN: Duration = Duration::from_secs(120);

/// Until when somebody is at a log.
#[derive(Clone, Copy)]
struct Until {
    /// Once something of it was taken.
    taken: Time,
    /// In any case.
    any: Time,
}

/// What is taken over, and for whom.
struct WantedLog<'a> {
    board: &'a Board,
    team: &'a TeamId,
    by: &'a By,
    viber: &'a ViberId,
    session: &'a SessionId,
}

/// Takes a session over from its machine's log: what is not here yet, task by task, in their order. A task that still runs
/// is told by its viber as it goes; it ends what is taken. What takes long goes on after the answer.
pub async fn import(board: &Board, team: &TeamId, by: &By, id: &ViberId, session: &SessionId) -> Result<Taken> {
    viber(board, team, id).await?;
    ours(board, team, id, session).await?;
    let wanted = WantedLog { board, team, by, viber: id, session };
    let mut took = Took::default();
    let until = Until { taken: Time::now() + PATIENCE, any: Time::now() + PATIENCE + ENOUGH };
    let more = wanted.run(&mut took, Some(until)).await?;
    let none = || Error::unacceptable("nothing_to_take", "the log tells of no task that could be taken over");
    let session = ours(board, team, id, session).await?.ok_or_else(none)?;
    plan::adopt(board, team, &session).await;
    if more {
        let (board, team, by, id, session) = (board.clone(), team.clone(), by.clone(), id.clone(), session.id.clone());
        let mut took = took.clone();
        board.shutdown.clone().spawn(async move {
            let wanted = WantedLog { board: &board, team: &team, by: &by, viber: &id, session: &session };
            wanted.rest(&mut took, None).await;
        });
    }
    Ok(Taken { session, tasks: took.tasks, refused: took.refused, more })
}

/// Goes on with logs that somebody waits for, and that nobody takes over: the Board was killed, or the viber was away.
pub async fn go_on(board: &Board) -> Result<()> {
    let before = Instant(board.clock.now().0 - IDLE_MS);
    let found = db::imports::wanted(&mut *board.db.reader().await?, before).await?;
    for (team, viber, session) in found {
        if board.hub.is_connected(&viber) {
            let until = Until { taken: Time::now() + TURN, any: Time::now() + TURN };
            let wanted = WantedLog { board, team: &team, by: &By::board(), viber: &viber, session: &session };
            wanted.rest(&mut Took::of_known(), Some(until)).await;
        }
    }
    Ok(())
}

impl WantedLog<'_> {
    /// To the end of the log. A viber that goes is waited for; a log that cannot be taken is given up.
    async fn rest(&self, took: &mut Took, until: Option<Until>) {
        match self.run(took, until).await {
            Ok(_) | Err(Error::Unavailable { .. }) => {}
            Err(_) if !self.board.hub.is_connected(self.viber) => {}
            Err(error) => {
                tracing::warn!(session.id = %self.session, %error, "a log is not taken over to its end");
                if let Err(error) = self.want(false, 0).await {
                    tracing::warn!(session.id = %self.session, %error, "it is tried again");
                }
            }
        }
    }

    /// Takes over what is not here yet. `true`: the time was over before the log.
    async fn run(&self, took: &mut Took, until: Option<Until>) -> Result<bool> {
        let Self { board, team, by, viber, session } = *self;
        let mut place = db::imports::taken(&mut board.db.reader_of(team).await?, session).await?;
        let fresh = || Logbook::new(board.clock.now());
        let (mut book, mut agent, mut wants) = (fresh(), None, false);
        // Up to here it is written.
        let mut done = place;
        let mut touched = Time::now();
        let more = 'log: loop {
            let piece = piece(board, viber, session, agent.as_deref(), place).await?;
            let batch = |to, book: Logbook| Batch::new((viber, session), &piece, to, book.finish());
            let is_late = |wants: bool| {
                let until = until.map(|until| if wants { until.taken } else { until.any });
                board.shutdown.soft.is_cancelled() || until.is_some_and(|until| Time::now() > until)
            };
            for line in &piece.lines {
                if !book.read(line, &piece.open) {
                    batch(place, book).take(board, team, by, took).await?;
                    break 'log false;
                }
                place = LogPlace { line: line.seq, at: line.end };
                let endless = book.came() > MAX_UNSETTLED;
                let whole = match book.is_settled() {
                    true => (book.bytes() > AT_ONCE || endless).then(|| std::mem::replace(&mut book, fresh())),
                    false if endless => Some(std::mem::replace(&mut book, fresh()).cut()),
                    false => None,
                };
                if let Some(whole) = whole {
                    let before = took.attempts;
                    batch(place, whole).take(board, team, by, took).await?;
                    if endless && took.attempts == before {
                        return Err(Error::unacceptable("endless_log", "the log goes on and on and tells nothing new"));
                    }
                    done = place;
                    if !std::mem::replace(&mut wants, true) {
                        self.want(true, self.lines(place).await).await?;
                    }
                } else if book.bytes() > MAX_HELD {
                    // Its place stays: the attempt that goes on began behind it, and what is here is not taken again.
                    batch(done, book.split()).take(board, team, by, took).await?;
                } else {
                    continue;
                }
                if is_late(wants) {
                    break 'log true;
                }
            }
            if piece.next.is_none() {
                // Here the log ends: what has no ending will never have one.
                batch(place, book).take(board, team, by, took).await?;
                break 'log false;
            }
            if is_late(wants) {
                if !wants && !book.is_empty() {
                    batch(done, book).announce(board, team, by, took).await?;
                }
                break 'log true;
            }
            if touched.elapsed() > TOUCH {
                self.touch().await?;
                touched = Time::now();
            }
            agent = Some(piece.agent_id);
        };
        if !more {
            self.want(false, 0).await?;
        }
        Ok(more)
    }

    /// Writes down that somebody is at it: nobody else begins with it meanwhile.
    async fn touch(&self) -> Result<()> {
        let session = self.session.clone();
        let change = self.board.change(self.team, self.by, move |tx| {
            let session = session.clone();
            Box::pin(async move { db::imports::touch(tx, &session).await })
        });
        Ok(change.await?)
    }

    /// Writes down that somebody waits for it, or that nobody does any more.
    async fn want(&self, on: bool, lines: u64) -> Result<()> {
        let session = self.session.clone();
        let change = self.board.change(self.team, self.by, move |tx| {
            let session = session.clone();
            Box::pin(async move {
                let by = on.then(|| tx.by.actor.id().to_owned());
                db::imports::want(tx, &session, by.as_deref(), lines).await
            })
        });
        change.await?;
        let mut after = crate::actions::After::default();
        after.session(self.session);
        after.tell(self.board, self.team);
        Ok(())
    }

    /// How many lines the log has, as the machine says, or as its bytes let expect; 0: nobody knows.
    async fn lines(&self, place: LogPlace) -> u64 {
        let mut next = Some(0);
        for _ in 0..PAGES {
            let Some(from) = next else { break };
            let asked = self.board.hub.request(self.viber, "session.list", json!({ "from": from }), ANSWER).await;
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
