//! Recording: what a viber reports becomes durable, exactly once, before it is acknowledged.
//!
//! One change records as many waiting frames as its limits allow. The new events of each attempt are stored byte for byte,
//! then their effects are applied: states change, parts are completed, the session's next task is offered.

mod announce;
mod approvals;
mod artifacts;
mod effects;
mod event_run;
mod mesh;
mod messages;
mod plans;
mod request_context;
mod share;
mod steps;

use std::sync::Arc;

use protocol::{Acked, AttemptRef, Events, TaskId};

use crate::{
    actions::{AfterCommit, memory, reconcile},
    db::{self, Change, TeamTx, attempts::AttemptWithTask, audit::Entry},
    domain::{Committed, Connection, assemble::Assembler},
    error::{Error, Result},
    hub::Hub,
    measure::METRICS,
    state::Board,
};

use event_run::EventRun;
pub(super) use messages::fill_messages;

/// Rows of events that are read at a time, each at most 256 KiB.
const EVENT_ROWS_PER_READ: u64 = 16;

/// The reply to the daemon after the commit.
#[derive(Clone, Debug, Default)]
pub struct RecordReply {
    pub acks: Vec<Acked>,
    /// The next seq that the Board can record, of attempts with a gap.
    pub nacks: Vec<Acked>,
    /// The code and the task of each refused frame.
    pub refused: Vec<(&'static str, TaskId)>,
    /// Attempts that the viber is known to hold from now on, and attempts whose end it reported.
    pub held: Vec<AttemptRef>,
    pub ended: Vec<AttemptRef>,
}

/// What a change leaves to do after its commit.
#[derive(Default)]
struct RecordedChange {
    answers: RecordReply,
    runs: Vec<(TaskId, Arc<Committed>)>,
    after: AfterCommit,
    /// A change to `MEMORY.md` was proposed: the file has to be read to show it.
    remembers: bool,
    /// All received commands are marked.
    acked: bool,
}

/// Records frames of one connection, and that it has the commands up to `acked` on disk. `None`: a newer connection of
/// the viber exists, or it was revoked.
pub async fn record(
    board: &Board,
    connection: &Connection,
    frames: Arc<[Events]>,
    acked: Option<u64>,
) -> Result<Option<RecordReply>> {
    let mut all = RecordReply::default();
    let mut shares = share::shares(frames).into_iter().peekable();
    while let Some(share) = shares.next() {
        let acked = acked.filter(|_| shares.peek().is_none());
        let Some(answers) = record_share(board, connection, share, acked).await? else { return Ok(None) };
        all.add(answers);
    }
    Ok(Some(all))
}

impl RecordReply {
    /// Adds a later reply.
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

/// Records one share of the frames in one change.
async fn record_share(
    board: &Board,
    connection: &Connection,
    frames: Arc<[Events]>,
    acked: Option<u64>,
) -> Result<Option<RecordReply>> {
    let report = Arc::new((connection.clone(), frames));
    let book = board
        .change(&connection.team, &connection.by(), move |tx| {
            let report = report.clone();
            Box::pin(async move {
                let (connection, frames) = &*report;
                let viber = db::vibers::command_counters(tx, &connection.viber).await?;
                let Some(viber) = viber.filter(|viber| viber.epoch == connection.epoch) else { return Ok(None) };
                let mut book = RecordedChange::default();
                for of_attempt in by_attempt(frames) {
                    record_attempt(tx, connection, &of_attempt, &mut book).await?;
                }
                // Sessions are locked before their viber, here as everywhere.
                if let Some(cmd_seq) = acked {
                    book.acked = reconcile::acked(tx, connection, viber, cmd_seq).await?;
                }
                Ok::<_, Error>(Some(book))
            })
        })
        .await?;
    let Some(book) = book else { return Ok(None) };
    if let Some(cmd_seq) = acked.filter(|_| !book.acked) {
        reconcile::ack_commands(board, connection, cmd_seq).await?;
    }
    let events: usize = book.runs.iter().map(|(_, run)| run.items.len()).sum();
    METRICS.events.inc_by(events as u64);
    for (task, run) in book.runs {
        let ended = book.answers.ended.iter().any(|one| one.task_id == task && one.attempt == run.attempt);
        let last = |acked: &Acked| acked.task_id == task && acked.attempt == run.attempt && acked.seq == run.to;
        let ends = ended && book.answers.acks.iter().any(last);
        let publish = if ends { Hub::publish_last } else { Hub::publish };
        publish(&board.hub, &connection.team, &task, run);
    }
    book.after.publish(board, &connection.team);
    if book.remembers {
        board.shutdown.spawn(memory::follow(board.clone(), connection.team.clone(), connection.viber.clone()));
    }
    Ok(Some(book.answers))
}

/// The waiting frames of one attempt.
struct AttemptFrames<'a> {
    task: &'a TaskId,
    attempt: u32,
    frames: Vec<&'a Events>,
}

/// Groups frames by attempt, in the order of arrival.
fn by_attempt(frames: &[Events]) -> Vec<AttemptFrames<'_>> {
    let mut groups: Vec<AttemptFrames<'_>> = Vec::new();
    for frame in frames {
        match groups.iter_mut().find(|group| *group.task == frame.task_id && group.attempt == frame.attempt) {
            Some(group) => group.frames.push(frame),
            None => {
                groups.push(AttemptFrames { task: &frame.task_id, attempt: frame.attempt, frames: vec![frame] });
            }
        }
    }
    groups
}

/// New events of an attempt that the viber holds, while a change records them.
struct Recording<'a, 't> {
    tx: &'a mut Change<'t>,
    connection: &'a Connection,
    task: &'a TaskId,
    attempt: u32,
    held: &'a AttemptWithTask,
    run: &'a EventRun,
    book: &'a mut RecordedChange,
}

impl Recording<'_, '_> {
    /// Whether this is the task's newest attempt: only then the task's state follows it.
    fn is_newest(&self) -> bool {
        self.held.newest == self.attempt
    }
}

/// Records the frames of one attempt.
async fn record_attempt(
    tx: &mut Change<'_>,
    connection: &Connection,
    of_attempt: &AttemptFrames<'_>,
    book: &mut RecordedChange,
) -> Result<()> {
    let AttemptFrames { task, attempt, ref frames } = *of_attempt;
    let held = match db::attempts::load_with_task(tx, task, attempt).await? {
        None if attempt == 1 => announce::announced(tx, connection, of_attempt, book).await?,
        found => found,
    };
    let Some(held) = held.filter(|held| held.viber_id == connection.viber) else {
        return stranger(tx, connection, of_attempt, book).await;
    };
    let mut run = EventRun::after(held.last_seq);
    for frame in frames {
        if run.next() > 1 && frame.from < run.next() {
            let stored = event_run::stored(tx, frame, held.last_seq).await?;
            run.check(frame, &stored);
        }
        run.take(frame);
    }
    // An attempt with a message but no events was imported completely from the machine's own log.
    let has_report = held.last_seq > 0 || held.message_id.is_some();
    if held.outcome.as_deref().is_some_and(|outcome| outcome != "lost") && has_report && run.is_new() {
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
        Recording { tx, connection, task, attempt, held: &held, run: &run, book }.apply().await?;
    }
    if run.heard {
        book.answers.acks.push(at(run.next() - 1));
    }
    Ok(())
}

/// Has the events of an attempt after a seq read, a few rows at a time.
pub(super) async fn read_open(
    tx: &mut TeamTx<'_>,
    (task, attempt): (&TaskId, u32),
    after: u64,
    assembler: &mut Assembler,
) -> Result<()> {
    let mut after = after;
    loop {
        let runs = db::events::after(tx, task, attempt, after, EVENT_ROWS_PER_READ).await?;
        let Some(last) = runs.last() else { return Ok(()) };
        after = last.to;
        for item in runs.iter().flat_map(|run| &run.items) {
            assembler.read(&item.report());
        }
    }
}

/// Handles events of a task that this viber does not hold.
async fn stranger(
    tx: &mut Change<'_>,
    connection: &Connection,
    of_attempt: &AttemptFrames<'_>,
    book: &mut RecordedChange,
) -> Result<()> {
    let AttemptFrames { task, attempt, ref frames } = *of_attempt;
    let gone =
        !db::tasks::is_taken(tx.without_team(), task).await? || db::purge::is_in_deleted_session(tx, task).await?;
    let deleted = gone && db::commands::exists_for_task(tx, &connection.viber, task).await?;
    if deleted {
        // Its session was deleted: nobody waits for the rest, and the daemon may forget it.
        let last = frames.iter().filter_map(|frame| event_run::last_seq(frame)).max().unwrap_or_default();
        book.answers.acks.push(Acked { task_id: task.clone(), attempt, seq: last });
        return Ok(());
    }
    book.answers.refused.extend(frames.iter().map(|_| ("forbidden_task", task.clone())));
    let detail = format!("attempt {attempt}");
    db::audit::append(tx, Entry::new("link.forbidden_task", task.as_str()).detail(&detail)).await?;
    Ok(())
}
