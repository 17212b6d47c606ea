//! Record: what a viber reports becomes durable, exactly once, before anything is acknowledged.
//!
//! One change takes the frames that wait, as many as one may. Of each attempt the new events are kept byte for byte, then what they mean is
//! done: states move, parts are completed, the session's next task gets its turn.

mod announce;
mod artifacts;
mod context;
mod effects;
mod plans;
mod run;
mod share;

use std::sync::Arc;

use protocol::{Acked, Events, Instant, Running, TaskId, TeamId, ViberId};

use super::{After, memory, reconcile};
use crate::{
    db::{self, Tx},
    domain::{Actor, By, Committed},
    error::{Error, Result},
    hub::Hub,
    measure,
    state::Board,
};

use run::Run;

/// Which connection speaks: its frames count only while it is the viber's newest.
#[derive(Clone, Debug)]
pub struct Speaker {
    pub team: TeamId,
    pub viber: ViberId,
    /// For the audit.
    pub name: String,
    pub address: String,
    pub epoch: u64,
}

impl Speaker {
    /// The viber as the audit names it.
    pub fn by(&self) -> By {
        By { actor: Actor::Viber { id: self.viber.clone(), name: self.name.clone() }, address: self.address.clone() }
    }
}

/// What the daemon is answered after the commit.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    pub acks: Vec<Acked>,
    /// The next seq of an attempt that can be taken.
    pub nacks: Vec<Acked>,
    /// The code of each refused frame, and the task it spoke of.
    pub refused: Vec<(&'static str, TaskId)>,
    /// Attempts that the viber is known to hold from now on, and those that it reported the end of.
    pub held: Vec<Running>,
    pub ended: Vec<Running>,
}

/// Everything of a change that matters after it.
#[derive(Default)]
struct Book {
    answers: Answers,
    runs: Vec<(TaskId, Arc<Committed>)>,
    after: After,
    /// A change of `MEMORY.md` was proposed: what the file says is needed to show it.
    remembers: bool,
    /// All commands that the daemon has are noted.
    acked: bool,
}

/// Records frames of one connection, and that it has the commands up to `acked` on disk. `None`: a newer connection of
/// the viber exists, or it was revoked.
pub async fn record(
    board: &Board,
    speaker: &Speaker,
    frames: Arc<[Events]>,
    acked: Option<u64>,
) -> Result<Option<Answers>> {
    let mut all = Answers::default();
    let mut shares = share::shares(frames).into_iter().peekable();
    while let Some(share) = shares.next() {
        let acked = acked.filter(|_| shares.peek().is_none());
        let Some(answers) = some(board, speaker, share, acked).await? else { return Ok(None) };
        all.add(answers);
    }
    Ok(Some(all))
}

impl Answers {
    /// What came after.
    fn add(&mut self, later: Self) {
        for ack in later.acks {
            self.acks.retain(|known| known.task_id != ack.task_id || known.attempt != ack.attempt);
            self.acks.push(ack);
        }
        self.nacks.extend(later.nacks);
        self.refused.extend(later.refused);
        self.held.extend(later.held);
        self.ended.extend(later.ended);
    }
}

/// Records what one change has room for.
async fn some(board: &Board, speaker: &Speaker, frames: Arc<[Events]>, acked: Option<u64>) -> Result<Option<Answers>> {
    let now = board.clock.now();
    let who = speaker.clone();
    let book = board
        .db
        .write(move |tx| {
            let (who, frames) = (who.clone(), frames.clone());
            Box::pin(async move {
                if db::vibers::epoch(tx, &who.team, &who.viber).await? != Some(who.epoch) {
                    return Ok(None);
                }
                let mut book = Book::default();
                for (task, attempt, frames) in by_attempt(&frames) {
                    one(tx, &who, (task, attempt), &frames, now, &mut book).await?;
                }
                // Sessions are locked before their viber, here as everywhere.
                if let Some(cmd_seq) = acked {
                    book.acked = reconcile::acked(tx, &who, cmd_seq, now).await?;
                }
                Ok::<_, Error>(Some(book))
            })
        })
        .await?;
    let Some(book) = book else { return Ok(None) };
    if let Some(cmd_seq) = acked.filter(|_| !book.acked) {
        reconcile::ack_commands(board, speaker, cmd_seq).await?;
    }
    let events: usize = book.runs.iter().map(|(_, run)| run.items.len()).sum();
    metrics::counter!(measure::EVENTS).increment(events as u64);
    for (task, run) in book.runs {
        let ended = book.answers.ended.iter().any(|one| one.task_id == task && one.attempt == run.attempt);
        let last = |acked: &Acked| acked.task_id == task && acked.attempt == run.attempt && acked.seq == run.to;
        let ends = ended && book.answers.acks.iter().any(last);
        let publish = if ends { Hub::publish_last } else { Hub::publish };
        publish(&board.hub, &speaker.team, &task, run);
    }
    book.after.tell(board, &speaker.team);
    if book.remembers {
        board.shutdown.spawn(memory::follow(board.clone(), speaker.clone()));
    }
    Ok(Some(book.answers))
}

/// Frames by attempt, in the order they came.
fn by_attempt(frames: &[Events]) -> Vec<(&TaskId, u32, Vec<&Events>)> {
    let mut groups: Vec<(&TaskId, u32, Vec<&Events>)> = Vec::new();
    for frame in frames {
        match groups.iter_mut().find(|(task, attempt, _)| *task == &frame.task_id && *attempt == frame.attempt) {
            Some((_, _, group)) => group.push(frame),
            None => groups.push((&frame.task_id, frame.attempt, vec![frame])),
        }
    }
    groups
}

/// The frames of one attempt.
async fn one(
    tx: &mut Tx,
    who: &Speaker,
    (task, attempt): (&TaskId, u32),
    frames: &[&Events],
    now: Instant,
    book: &mut Book,
) -> Result<()> {
    let held = match db::attempts::held(tx, &who.team, task, attempt).await? {
        None if attempt == 1 => announce::announced(tx, who, task, frames, now, book).await?,
        found => found,
    };
    let Some(held) = held.filter(|held| held.viber_id == who.viber) else {
        return stranger(tx, who, (task, attempt), frames, now, book).await;
    };
    let mut run = Run::after(held.last_seq);
    for frame in frames {
        if run.next() > 1 && frame.from < run.next() {
            let stored = run::stored(tx, &who.team, frame, held.last_seq).await?;
            run.check(frame, &stored);
        }
        run.take(frame);
    }
    // One that has words but no events was taken over from the machine's own log, with all that it says.
    let told = held.last_seq > 0 || held.message_id.is_some();
    if held.outcome.as_deref().is_some_and(|outcome| outcome != "lost") && told && run.is_new() {
        // The terminal event is the last one of an attempt.
        book.answers.refused.push(("attempt_ended", task.clone()));
        run.forget();
    }
    book.answers.refused.extend(run.refused.drain(..).map(|code| (code, task.clone())));
    let at = |seq| Acked { task_id: task.clone(), attempt, seq };
    if run.missing {
        book.answers.nacks.push(at(run.next()));
    }
    if run.is_new() {
        effects::apply(tx, who, (task, attempt), &held, &run, now, book).await?;
    }
    if run.heard {
        book.answers.acks.push(at(run.next() - 1));
    }
    Ok(())
}

/// Events of a task that this viber does not hold.
async fn stranger(
    tx: &mut Tx,
    who: &Speaker,
    (task, attempt): (&TaskId, u32),
    frames: &[&Events],
    now: Instant,
    book: &mut Book,
) -> Result<()> {
    let gone = !db::tasks::is_taken(tx, task).await? || db::purge::is_going(tx, &who.team, task).await?;
    let deleted = gone && db::commands::named(tx, &who.team, &who.viber, task).await?;
    if deleted {
        // Its session is gone: nobody waits for the rest, and the daemon may forget it.
        let last = frames.iter().filter_map(|frame| run::last_seq(frame)).max().unwrap_or_default();
        book.answers.acks.push(Acked { task_id: task.clone(), attempt, seq: last });
        return Ok(());
    }
    book.answers.refused.extend(frames.iter().map(|_| ("forbidden_task", task.clone())));
    let detail = format!("attempt {attempt}");
    db::audit::append(tx, &who.team, now, &who.by(), "link.forbidden_task", task.as_str(), &detail, None, None).await?;
    Ok(())
}
