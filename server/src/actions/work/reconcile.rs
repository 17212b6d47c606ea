//! Reconciliation: the state that a viber and the Board agree on when a connection starts, and the attempts that the Board
//! ends without a report of their viber.

use std::{collections::HashSet, sync::Arc};

use protocol::{Acked, AttemptRef, ErrorCode, Fence, Hello, TaskError, TaskId, TeamId, TeamRules, ViberId, ViberState};

use crate::{
    actions::{AfterCommit, dispatch, tasks, team_rules},
    db::{self, Change, TeamTx, attempts::OpenAttempt, audit::Entry, vibers::CommandCounters},
    domain::{By, Connection, TaskKind, TaskState},
    error::{Error, Result},
    state::Board,
};

/// Attempts of a `hello` that are looked up: a daemon holds far fewer.
const MAX_NAMED_ATTEMPTS: usize = 10_000;
/// Vibers marked as unheard in one change when the Board starts.
const FORGOTTEN_VIBERS_PER_CHANGE: u64 = 100;
/// Claims of one heartbeat that are looked up.
const MAX_CLAIMS: usize = 16;
/// Unfinished tasks of a viber that are notified when it connects or disconnects; pages refresh by themselves.
const MAX_NOTIFIED_TASKS: u64 = 1_000;
/// Attempts settled in one change.
const ATTEMPTS_PER_CHANGE: usize = 50;
/// Commands marked as received in one change.
const ACKS_PER_CHANGE: u64 = 100;

/// What a new connection starts from.
#[derive(Clone, Debug, Default)]
pub struct Welcomed {
    pub epoch: u64,
    pub acked: Vec<Acked>,
    pub fence: Vec<Fence>,
    /// Attempts whose end is recorded, of those that the daemon names.
    pub over: Vec<AttemptRef>,
    /// Open attempts whose task was stopped.
    pub stopped: Vec<AttemptRef>,
    /// Attempts that the daemon is assumed to hold.
    pub held: Vec<AttemptRef>,
    /// The number of the first command that it is told: a daemon that lost its journal does not need what is done with.
    pub cmds_from: u64,
    /// What the team decided for all its tasks.
    pub team_rules: TeamRules,
}

/// Accepts a connection and returns its epoch: from here on the viber is shown as connected. `cloned`: two boots alternate.
pub async fn accept(board: &Board, connection: &Connection, hello: &Hello, cloned: bool) -> Result<u64> {
    ack_before(board, connection, hello.last_cmd_seq).await?;
    let report = Arc::new((connection.viber.clone(), hello.clone()));
    let accepted = board.change(&connection.team, &connection.by(), move |tx| {
        let report = report.clone();
        Box::pin(async move { begin_epoch(tx, &report.0, &report.1, cloned).await })
    });
    accepted.await
}

/// Compares what the viber of an accepted connection and the Board know. Older connections can no longer change anything
/// of it, and this one waits for the answer.
pub async fn welcome(board: &Board, connection: &Connection, hello: &Hello) -> Result<Welcomed> {
    let compared = {
        let mut tx = board.db.reader_of(&connection.team).await?;
        let open = db::attempts::open_of_viber(&mut tx, &connection.viber).await?;
        let compared = compare(&mut tx, &connection.viber, hello, &open).await?;
        let cmds_from = match hello.last_cmd_seq {
            0 => db::commands::oldest_needed(&mut tx, &connection.viber).await?,
            last => last + 1,
        };
        let team_rules = team_rules::load(&mut tx).await?;
        Welcomed { epoch: connection.epoch, cmds_from, team_rules, ..compared }
    };
    publish_contact(board, &connection.team, &connection.viber).await;
    Ok(compared)
}

/// Marks commands as received that the daemon has on disk, some at a time.
async fn ack_before(board: &Board, connection: &Connection, cmd_seq: u64) -> Result<()> {
    let some = || {
        let viber = connection.viber.clone();
        board.change(&connection.team, &connection.by(), move |tx| {
            let viber = viber.clone();
            Box::pin(async move { db::commands::ack(tx, &viber, cmd_seq, ACKS_PER_CHANGE).await })
        })
    };
    while some().await? == ACKS_PER_CHANGE {}
    Ok(())
}

async fn begin_epoch(tx: &mut Change<'_>, viber: &ViberId, hello: &Hello, cloned: bool) -> Result<u64> {
    let found = db::vibers::counters(tx, viber).await?.ok_or(Error::Unauthenticated)?;
    let epoch = found.conn_epoch + 1;
    let object = viber.as_str();
    if hello.last_cmd_seq > found.cmd_seq {
        // The Board was restored from a backup older than those commands: no number may be used twice.
        let (before, after) = (found.cmd_seq.to_string(), hello.last_cmd_seq.to_string());
        let raised = Entry::new("viber.cmd_seq_raised", object).before(before.as_str()).after(after.as_str());
        db::audit::append(&mut tx.by(&By::board()), raised).await?;
        // This also covers a database that was copied back by hand.
        let now = tx.now;
        db::settings::set_restored(tx.without_team(), Some(viber), now).await?;
    }
    if cloned {
        db::vibers::mark_cloned(tx, viber).await?;
        let detail = "two daemons take turns on one credential";
        db::audit::append(tx, Entry::new("viber.cloned", object).detail(detail)).await?;
    }
    let cmd_seq = found.cmd_seq.max(hello.last_cmd_seq);
    let acked = found.acked_cmd_seq.max(hello.last_cmd_seq);
    db::vibers::connect(tx, hello, epoch, (cmd_seq, acked)).await?;
    Ok(epoch)
}

fn running(open: &OpenAttempt) -> AttemptRef {
    AttemptRef { task_id: open.task_id.clone(), attempt: open.attempt }
}

/// How far each attempt that either side names is durable, and which attempts are over or no longer wanted.
async fn compare(tx: &mut TeamTx<'_>, viber: &ViberId, hello: &Hello, open: &[OpenAttempt]) -> Result<Welcomed> {
    let Welcomed { mut acked, mut fence, mut over, .. } = Welcomed::default();
    let mut fenced: HashSet<TaskId> = HashSet::new();
    let mut known = |task_id: &TaskId, attempt, seq, newest| {
        acked.push(Acked { task_id: task_id.clone(), attempt, seq });
        if attempt < newest && fenced.insert(task_id.clone()) {
            fence.push(Fence { task_id: task_id.clone(), min_attempt: newest });
        }
    };
    for open in open {
        known(&open.task_id, open.attempt, open.last_seq, open.newest);
    }
    let mut looked: HashSet<AttemptRef> = open.iter().map(running).collect();
    let outbox = hello.outbox.iter().map(|range| (&range.task_id, range.attempt));
    let named = hello.running.iter().map(|running| (&running.task_id, running.attempt)).chain(outbox);
    for (task_id, attempt) in named.take(MAX_NAMED_ATTEMPTS) {
        let one = AttemptRef { task_id: task_id.clone(), attempt };
        if !looked.insert(one.clone()) {
            continue;
        }
        if let Some(held) =
            db::attempts::load_with_task(tx, task_id, attempt).await?.filter(|held| held.viber_id == *viber)
        {
            known(task_id, attempt, held.last_seq, held.newest);
            // What the Board declared lost by itself may still be reported.
            if held.outcome.is_some_and(|outcome| outcome != "lost") {
                over.push(one);
            }
        }
    }
    let unwanted = |open: &&OpenAttempt| open.newest == open.attempt && open.state == TaskState::Stopped;
    let stopped = open.iter().filter(unwanted).map(running).collect();
    let held = open.iter().filter(|open| open.delivered).map(running).collect();
    Ok(Welcomed { acked, fence, over, stopped, held, ..Welcomed::default() })
}

/// Records that a connection ended: contact is lost unless there is a newer one.
pub async fn disconnected(board: &Board, team: &TeamId, viber: &ViberId, epoch: u64) -> Result<()> {
    let id = viber.clone();
    let lost = board.change(team, &By::board(), move |tx| {
        let id = id.clone();
        Box::pin(async move { db::vibers::disconnect(tx, &id, epoch).await })
    });
    if lost.await? {
        publish_contact(board, team, viber).await;
    }
    Ok(())
}

/// Notifies that the contact of a viber changed: it is shown with the viber and its unfinished tasks.
async fn publish_contact(board: &Board, team: &TeamId, viber: &ViberId) {
    let mut after = AfterCommit::default();
    after.viber(viber);
    let open =
        async { db::tasks::open_of_viber(&mut board.db.reader_of(team).await?, viber, None, MAX_NOTIFIED_TASKS).await };
    for (session, task) in open.await.unwrap_or_default() {
        after.task(&session, &task);
    }
    after.publish(board, team);
}

/// Marks all commands up to `cmd_seq` as received: the daemon has them on disk.
pub async fn ack_commands(board: &Board, connection: &Connection, cmd_seq: u64) -> Result<()> {
    let some = || {
        let own = connection.clone();
        board.change(&connection.team, &connection.by(), move |tx| {
            let own = own.clone();
            Box::pin(async move {
                match db::vibers::command_counters(tx, &own.viber).await?.filter(|viber| viber.epoch == own.epoch) {
                    Some(counters) => acked(tx, &own, counters, cmd_seq).await,
                    // A newer connection has said what the daemon has.
                    None => Ok(true),
                }
            })
        })
    };
    while !some().await? {}
    Ok(())
}

/// Marks some of them; `viber` is what this change has read. Returns whether all are marked.
pub(in crate::actions) async fn acked(
    tx: &mut Change<'_>,
    connection: &Connection,
    viber: CommandCounters,
    cmd_seq: u64,
) -> Result<bool> {
    let all = cmd_seq.min(viber.cmd_seq);
    let to = all.min(viber.acked.saturating_add(ACKS_PER_CHANGE));
    if to <= viber.acked {
        return Ok(true);
    }
    db::commands::ack_range(tx, &connection.viber, viber.acked, to).await?;
    if !db::vibers::set_acked(tx, &connection.viber, connection.epoch, to).await? {
        return Err(Error::conflict("raced", "another connection of the viber has begun"));
    }
    Ok(to == all)
}

/// Stores whole lists that changed on the machine.
pub async fn lists(board: &Board, connection: &Connection, state: &ViberState) -> Result<()> {
    let report = Arc::new((connection.viber.clone(), connection.epoch, state.clone()));
    let kept = board.change(&connection.team, &connection.by(), move |tx| {
        let report = report.clone();
        Box::pin(async move {
            let (viber, epoch, state) = &*report;
            if db::vibers::epoch(tx, viber).await? == Some(*epoch) {
                db::vibers::lists(tx, viber, state).await?;
            }
            Ok::<_, Error>(())
        })
    });
    kept.await?;
    let mut after = AfterCommit::default();
    after.viber(&connection.viber);
    after.publish(board, &connection.team);
    Ok(())
}

/// Looks up attempts of a heartbeat that the link does not know; those never given to this viber go into the audit.
pub async fn claims(board: &Board, connection: &Connection, claimed: &[AttemptRef]) -> Result<()> {
    let (viber, claimed) = (connection.viber.clone(), claimed[..claimed.len().min(MAX_CLAIMS)].to_vec());
    board
        .change(&connection.team, &connection.by(), move |tx| {
            let (viber, claimed) = (viber.clone(), claimed.clone());
            Box::pin(async move {
                for one in &claimed {
                    let held = db::attempts::load_with_task(tx, &one.task_id, one.attempt).await?;
                    if held.is_some_and(|held| held.viber_id == viber) {
                        continue;
                    }
                    let detail = format!("attempt {}", one.attempt);
                    db::audit::append(tx, Entry::new("link.false_claim", one.task_id.as_str()).detail(&detail)).await?;
                }
                Ok::<_, Error>(())
            })
        })
        .await
}

/// Why the Board ends an attempt whose end the viber did not report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptVerdict {
    /// The daemon is connected and no longer has it.
    DaemonRestarted,
    /// The same, but the attempt began before a backup of the Board was restored: it may have completed since.
    BoardRestored,
    /// The daemon was silent for longer than the team allows.
    Lost,
}

impl AttemptVerdict {
    fn error(self) -> TaskError {
        let (code, message) = match self {
            Self::DaemonRestarted => {
                (ErrorCode::DaemonRestarted, "The daemon was restarted while the task ran, and lost it.")
            }
            Self::BoardRestored => (
                ErrorCode::BoardRestored,
                "The Board was restored from a backup that is older than the end of this task: what the viber reported \
                 after the backup is not in it, and the viber no longer has the task.",
            ),
            Self::Lost => (ErrorCode::Lost, "The viber was silent for too long; the task may still run there."),
        };
        let suggestion = match self {
            Self::DaemonRestarted => "Retry it: what it changed so far is still there.",
            Self::BoardRestored => "Look at what was done on the viber, and at its session's log, before you retry it.",
            Self::Lost => "Look after the machine, or retry. A result that still comes is taken.",
        };
        TaskError { code, message: message.into(), retryable: true, suggestion: Some(suggestion.into()), details: None }
    }
}

/// The newest connection of a viber when its attempts were judged.
#[derive(Clone, Copy, Debug)]
pub struct LastSeen<'a> {
    pub team: &'a TeamId,
    pub viber: &'a ViberId,
    pub epoch: u64,
}

/// Ends attempts by the Board's own verdict; attempts that ended meanwhile stay as they are. After a crash the caller
/// judges the rest again.
pub async fn settle(board: &Board, seen: LastSeen<'_>, attempts: &[AttemptRef], verdict: AttemptVerdict) -> Result<()> {
    let LastSeen { team, viber, epoch } = seen;
    let mut rest = attempts.to_vec();
    while !rest.is_empty() {
        let id = viber.clone();
        let some: Arc<[AttemptRef]> = rest.iter().take(ATTEMPTS_PER_CHANGE).cloned().collect();
        let (done, after) = board
            .piece(team, &By::board(), move |tx| {
                let (viber, some) = (id.clone(), some.clone());
                Box::pin(async move {
                    let mut after = AfterCommit::default();
                    // The verdict holds for this connection only: a newer one may hold the attempt after all.
                    if db::vibers::epoch(tx, &viber).await? != Some(epoch) {
                        return Ok((None, after));
                    }
                    let mut done = 0;
                    for one in some.iter() {
                        declare(tx, &viber, one, verdict, &mut after).await?;
                        done += 1;
                        if tx.is_full() {
                            break;
                        }
                    }
                    after.viber(&viber);
                    Ok::<_, Error>((Some(done), after))
                })
            })
            .await?;
        after.publish(board, team);
        let Some(done) = done else { break };
        rest.drain(..done);
    }
    Ok(())
}

async fn declare(
    tx: &mut Change<'_>,
    viber: &ViberId,
    one: &AttemptRef,
    verdict: AttemptVerdict,
    after: &mut AfterCommit,
) -> Result<()> {
    let (task, attempt) = (&one.task_id, one.attempt);
    let Some(held) = db::attempts::load_with_task(tx, task, attempt).await? else { return Ok(()) };
    if held.viber_id != *viber || held.outcome.is_some() {
        return Ok(());
    }
    db::sessions::touch(tx, &held.session_id).await?;
    let verdict = match verdict {
        AttemptVerdict::DaemonRestarted if began_before_restore(tx, viber, one).await? => AttemptVerdict::BoardRestored,
        other => other,
    };
    let newest = held.newest == attempt;
    if newest && !db::tasks::fail(tx, task, attempt, &verdict.error(), false).await? {
        // It was stopped: a daemon that no longer has it has confirmed that; a silent one has not.
        if verdict != AttemptVerdict::Lost && held.state == TaskState::Stopped {
            db::tasks::confirm_stop(tx, task, attempt, None).await?;
        }
    }
    let end = db::attempts::AttemptEnd { outcome: "lost", superseded: !newest, report: None };
    db::attempts::end(tx, task, attempt, end).await?;
    if newest {
        db::approvals::expire_all(tx, task).await?;
        if held.kind == TaskKind::Transfer {
            tasks::transfer_failed(tx, task, after).await?;
        }
    } else if verdict != AttemptVerdict::Lost {
        db::tasks::confirm_stop_if_over(tx, task).await?;
    }
    dispatch::next(tx, &held.session_id, after).await?;
    after.task(&held.session_id, task);
    Ok(())
}

/// Whether a backup was restored since the attempt was made, as the console says or its viber knows.
async fn began_before_restore(tx: &mut TeamTx<'_>, viber: &ViberId, one: &AttemptRef) -> Result<bool> {
    let by_console = db::settings::restored(tx.without_team(), None).await?;
    let by_viber = db::settings::restored(tx.without_team(), Some(viber)).await?;
    let Some(restored) = by_console.max(by_viber) else { return Ok(false) };
    let attempt = db::attempts::load(tx, &one.task_id, one.attempt).await?;
    Ok(attempt.is_some_and(|attempt| attempt.created_at < restored))
}

/// Marks all vibers as unheard when the Board starts, whatever the database says of the time before. Those of suspended
/// teams, too: the teams may be resumed.
pub async fn begin_unheard(board: &Board) -> Result<u64> {
    let mut unheard = 0;
    let teams = db::vibers::teams_with_connected(&mut *board.db.reader().await?).await?;
    for team in teams {
        loop {
            let forget = board
                .piece(&team, &By::board(), |tx| Box::pin(db::vibers::forget_contact(tx, FORGOTTEN_VIBERS_PER_CHANGE)));
            let some = forget.await?;
            unheard += some;
            if some < FORGOTTEN_VIBERS_PER_CHANGE {
                break;
            }
        }
    }
    Ok(unheard)
}

/// Ends attempts that are no longer wanted and whose `task:submit` was never sent: they certainly never began.
pub async fn withdraw(board: &Board, connection: &Connection, attempts: &[(TaskId, u32)]) -> Result<()> {
    let mut rest = attempts.to_vec();
    while !rest.is_empty() {
        let viber = connection.viber.clone();
        let some: Arc<[(TaskId, u32)]> = rest.iter().take(ATTEMPTS_PER_CHANGE).cloned().collect();
        let (done, after) = board
            .piece(&connection.team, &connection.by(), move |tx| {
                let (viber, some) = (viber.clone(), some.clone());
                Box::pin(async move {
                    let (mut after, mut done) = (AfterCommit::default(), 0);
                    for (task, attempt) in some.iter() {
                        take_back(tx, &viber, task, *attempt, &mut after).await?;
                        done += 1;
                        if tx.is_full() {
                            break;
                        }
                    }
                    Ok::<_, Error>((done, after))
                })
            })
            .await?;
        after.publish(board, &connection.team);
        rest.drain(..done);
    }
    Ok(())
}

async fn take_back(
    tx: &mut Change<'_>,
    viber: &ViberId,
    task: &TaskId,
    attempt: u32,
    after: &mut AfterCommit,
) -> Result<()> {
    let Some(held) = db::attempts::load_with_task(tx, task, attempt).await? else { return Ok(()) };
    if held.viber_id != *viber || held.last_seq > 0 {
        return Ok(());
    }
    db::sessions::touch(tx, &held.session_id).await?;
    let superseded = held.newest != attempt;
    let end = db::attempts::AttemptEnd { outcome: "stopped", superseded, report: None };
    db::attempts::end(tx, task, attempt, end).await?;
    db::tasks::confirm_stop_if_over(tx, task).await?;
    if !superseded && held.kind == TaskKind::Transfer {
        tasks::transfer_failed(tx, task, after).await?;
    }
    dispatch::next(tx, &held.session_id, after).await?;
    after.task(&held.session_id, task);
    Ok(())
}

/// The unfinished attempts that the viber's daemon has on disk, as far as the Board knows.
pub async fn delivered(board: &Board, team: &TeamId, viber: &ViberId) -> Result<Vec<AttemptRef>> {
    let open = db::attempts::open_of_viber(&mut board.db.reader_of(team).await?, viber).await?;
    Ok(open.iter().filter(|open| open.delivered).map(running).collect())
}
