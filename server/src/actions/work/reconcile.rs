//! Reconcile: what a connection and the Board agree on before anything new starts, and what the Board declares by itself.

use std::{collections::HashSet, sync::Arc};

use protocol::{Acked, ErrorCode, Fence, Hello, Running, TaskError, TaskId, TeamId, ViberId, ViberState};

use crate::{
    actions::{After, dispatch},
    db::{self, Change, TeamTx, attempts::Open, audit::Entry},
    domain::{By, Connection, TaskState},
    error::{Error, Result},
    state::Board,
};

/// Most attempts of a `hello` that are looked at: a daemon holds far fewer.
const MAX_NAMED: usize = 10_000;
/// Vibers whose contact is forgotten in one change when the Board starts.
const MAX_FORGOTTEN: u64 = 100;
/// Teams that are looked at when the Board starts.
const MAX_TEAMS: u64 = 100_000;
/// Most claims of a heartbeat that are looked up at once.
const MAX_CLAIMS: usize = 16;
/// Unfinished tasks of a viber that are rung for when it comes or goes; pages ask anew by themselves.
const MAX_RUNG: u64 = 1_000;
/// Attempts that are settled in one change, at most.
const AT_ONCE: usize = 50;
/// Commands that are noted as received in one change.
const ACKS: u64 = 100;

/// What a connection starts from.
#[derive(Clone, Debug, Default)]
pub struct Welcomed {
    pub epoch: u64,
    pub acked: Vec<Acked>,
    pub fence: Vec<Fence>,
    /// Attempts whose end is recorded, of those that the daemon names.
    pub over: Vec<Running>,
    /// Open attempts whose task was stopped.
    pub stopped: Vec<Running>,
    /// Attempts that the daemon is believed to hold.
    pub held: Vec<Running>,
}

/// Accepts a connection: gives it its number and compares what both sides know. `cloned` when two boots take turns.
pub async fn welcome(board: &Board, connection: &Connection, hello: &Hello, cloned: bool) -> Result<Welcomed> {
    ack_before(board, connection, hello.last_cmd_seq).await?;
    let told = Arc::new((connection.viber.clone(), hello.clone()));
    let epoch = board
        .change(&connection.team, &connection.by(), move |tx| {
            let told = told.clone();
            Box::pin(async move { accept(tx, &told.0, &told.1, cloned).await })
        })
        .await?;
    // Read after it: no older connection moves anything of this viber any more, and this one waits for the answer.
    let compared = {
        let mut tx = board.db.reader_of(&connection.team).await?;
        let open = db::attempts::open_of_viber(&mut tx, &connection.viber).await?;
        compare(&mut tx, &connection.viber, hello, &open).await?
    };
    tell_contact(board, &connection.team, &connection.viber).await;
    Ok(Welcomed { epoch, ..compared })
}

/// The daemon has commands on disk that were not known to be there: written down, some at a time.
async fn ack_before(board: &Board, connection: &Connection, cmd_seq: u64) -> Result<()> {
    let some = || {
        let viber = connection.viber.clone();
        board.change(&connection.team, &connection.by(), move |tx| {
            let viber = viber.clone();
            Box::pin(async move { db::commands::ack(tx, &viber, cmd_seq, ACKS).await })
        })
    };
    while some().await? == ACKS {}
    Ok(())
}

async fn accept(tx: &mut Change<'_>, viber: &ViberId, hello: &Hello, cloned: bool) -> Result<u64> {
    let found = db::vibers::counters(tx, viber).await?.ok_or(Error::Unauthenticated)?;
    let epoch = found.conn_epoch + 1;
    let object = viber.as_str();
    if hello.last_cmd_seq > found.cmd_seq {
        // The Board was restored from before those commands: numbers must never be given twice.
        let (before, after) = (found.cmd_seq.to_string(), hello.last_cmd_seq.to_string());
        let raised = Entry::new("viber.cmd_seq_raised", object).before(before.as_str()).after(after.as_str());
        db::audit::append(tx, raised).await?;
        // Also when it was put back by hand.
        let now = tx.now;
        db::settings::set_restored(tx.board(), now).await?;
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

fn running(open: &Open) -> Running {
    Running { task_id: open.task_id.clone(), attempt: open.attempt }
}

/// How far each attempt is durable that either side names, and which attempts are over or not wanted any more.
async fn compare(tx: &mut TeamTx<'_>, viber: &ViberId, hello: &Hello, open: &[Open]) -> Result<Welcomed> {
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
    let mut looked: HashSet<Running> = open.iter().map(running).collect();
    let outbox = hello.outbox.iter().map(|range| (&range.task_id, range.attempt));
    let named = hello.running.iter().map(|running| (&running.task_id, running.attempt)).chain(outbox);
    for (task_id, attempt) in named.take(MAX_NAMED) {
        let one = Running { task_id: task_id.clone(), attempt };
        if !looked.insert(one.clone()) {
            continue;
        }
        if let Some(held) = db::attempts::held(tx, task_id, attempt).await?.filter(|held| held.viber_id == *viber) {
            known(task_id, attempt, held.last_seq, held.newest);
            // What the Board declared lost by itself may still be reported.
            if held.outcome.is_some_and(|outcome| outcome != "lost") {
                over.push(one);
            }
        }
    }
    let unwanted = |open: &&Open| open.newest == open.attempt && open.state == TaskState::Stopped;
    let stopped = open.iter().filter(unwanted).map(running).collect();
    let held = open.iter().filter(|open| open.delivered).map(running).collect();
    Ok(Welcomed { acked, fence, over, stopped, held, ..Welcomed::default() })
}

/// The connection ended. Contact is lost by it unless a newer one is here.
pub async fn disconnected(board: &Board, team: &TeamId, viber: &ViberId, epoch: u64) -> Result<()> {
    let id = viber.clone();
    let lost = board.change(team, &By::board(), move |tx| {
        let id = id.clone();
        Box::pin(async move { db::vibers::disconnect(tx, &id, epoch).await })
    });
    if lost.await? {
        tell_contact(board, team, viber).await;
    }
    Ok(())
}

/// Contact is shown with the viber and with each of its unfinished tasks.
async fn tell_contact(board: &Board, team: &TeamId, viber: &ViberId) {
    let mut after = After::default();
    after.viber(viber);
    let open = async { db::tasks::open_of_viber(&mut board.db.reader_of(team).await?, viber, None, MAX_RUNG).await };
    for (session, task) in open.await.unwrap_or_default() {
        after.task(&session, &task);
    }
    after.tell(board, team);
}

/// The daemon has all commands up to `cmd_seq` on disk, of which each was sent to it.
pub async fn ack_commands(board: &Board, connection: &Connection, cmd_seq: u64) -> Result<()> {
    let some = || {
        let own = connection.clone();
        board.change(&connection.team, &connection.by(), move |tx| {
            let own = own.clone();
            Box::pin(async move { acked(tx, &own, cmd_seq).await })
        })
    };
    while !some().await? {}
    Ok(())
}

/// Notes some of it. `true`: it is all noted, or none of this connection's business.
pub(in crate::actions) async fn acked(tx: &mut Change<'_>, connection: &Connection, cmd_seq: u64) -> Result<bool> {
    let Connection { viber, epoch, .. } = connection;
    let Some(before) = db::vibers::acked(tx, viber, *epoch).await? else { return Ok(true) };
    let to = cmd_seq.min(before.saturating_add(ACKS));
    db::commands::ack_over(tx, viber, *epoch, to).await?;
    let moved = db::vibers::set_acked(tx, viber, *epoch, to).await?;
    Ok(to == cmd_seq || !moved)
}

/// Whole lists changed on the machine.
pub async fn lists(board: &Board, connection: &Connection, state: &ViberState) -> Result<()> {
    let told = Arc::new((connection.viber.clone(), connection.epoch, state.clone()));
    let kept = board.change(&connection.team, &connection.by(), move |tx| {
        let told = told.clone();
        Box::pin(async move {
            let (viber, epoch, state) = &*told;
            if db::vibers::epoch(tx, viber).await? == Some(*epoch) {
                db::vibers::lists(tx, viber, state).await?;
            }
            Ok::<_, Error>(())
        })
    });
    kept.await?;
    let mut after = After::default();
    after.viber(&connection.viber);
    after.tell(board, &connection.team);
    Ok(())
}

/// A heartbeat names attempts that the link does not know. Those that nobody gave this viber are written down.
pub async fn claims(board: &Board, connection: &Connection, claimed: &[Running]) -> Result<()> {
    let (viber, claimed) = (connection.viber.clone(), claimed[..claimed.len().min(MAX_CLAIMS)].to_vec());
    board
        .change(&connection.team, &connection.by(), move |tx| {
            let (viber, claimed) = (viber.clone(), claimed.clone());
            Box::pin(async move {
                for one in &claimed {
                    let held = db::attempts::held(tx, &one.task_id, one.attempt).await?;
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

/// Why the Board ends an attempt that its viber did not report the end of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptVerdict {
    /// The daemon is here and no longer has it.
    DaemonRestarted,
    /// The same, but the attempt began before a backup of the Board was put back: it may have ended well since.
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

/// The newest connection of a viber, as whoever judges its attempts saw it.
#[derive(Clone, Copy, Debug)]
pub struct LastSeen<'a> {
    pub team: &'a TeamId,
    pub viber: &'a ViberId,
    pub epoch: u64,
}

/// Ends attempts by the Board's own verdict; those that ended meanwhile stay as they are. Whoever judged judges again what
/// a crash left out.
pub async fn settle(board: &Board, seen: LastSeen<'_>, attempts: &[Running], verdict: AttemptVerdict) -> Result<()> {
    let LastSeen { team, viber, epoch } = seen;
    let mut rest = attempts.to_vec();
    while !rest.is_empty() {
        let id = viber.clone();
        let some: Arc<[Running]> = rest.iter().take(AT_ONCE).cloned().collect();
        let (done, after) = board
            .piece(team, &By::board(), move |tx| {
                let (viber, some) = (id.clone(), some.clone());
                Box::pin(async move {
                    let mut after = After::default();
                    // Whoever judged saw this connection, or none after it: a newer one may hold the attempt after all.
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
        after.tell(board, team);
        let Some(done) = done else { break };
        rest.drain(..done);
    }
    Ok(())
}

async fn declare(
    tx: &mut Change<'_>,
    viber: &ViberId,
    one: &Running,
    verdict: AttemptVerdict,
    after: &mut After,
) -> Result<()> {
    let (task, attempt) = (&one.task_id, one.attempt);
    let Some(held) = db::attempts::held(tx, task, attempt).await? else { return Ok(()) };
    if held.viber_id != *viber || held.outcome.is_some() {
        return Ok(());
    }
    db::sessions::touch(tx, &held.session_id).await?;
    let verdict = match verdict {
        AttemptVerdict::DaemonRestarted if began_before_restore(tx, one).await? => AttemptVerdict::BoardRestored,
        other => other,
    };
    let newest = held.newest == attempt;
    if newest && !db::tasks::fail(tx, task, attempt, &verdict.error(), false).await? {
        // It was stopped: a daemon that no longer has it has confirmed that; a silent one has not.
        if verdict != AttemptVerdict::Lost && held.state == TaskState::Stopped {
            db::tasks::confirm_stop(tx, task, attempt, None).await?;
        }
    }
    let end = db::attempts::End { outcome: "lost", superseded: !newest, report: None };
    db::attempts::end(tx, task, attempt, end).await?;
    dispatch::next(tx, &held.session_id, after).await?;
    after.task(&held.session_id, task);
    Ok(())
}

/// Whether a backup was put back since the attempt was made.
async fn began_before_restore(tx: &mut TeamTx<'_>, one: &Running) -> Result<bool> {
    let Some(restored) = db::settings::restored(tx.board()).await? else { return Ok(false) };
    let attempt = db::attempts::load(tx, &one.task_id, one.attempt).await?;
    Ok(attempt.is_some_and(|attempt| attempt.created_at < restored))
}

/// The Board starts: nobody has dialled in yet, whatever the database says of the time before.
pub async fn begin_unheard(board: &Board) -> Result<u64> {
    let mut unheard = 0;
    let teams = db::teams::all(&mut *board.db.reader().await?, MAX_TEAMS).await?;
    for team in teams {
        loop {
            let forget =
                board.piece(&team.id, &By::board(), |tx| Box::pin(db::vibers::forget_contact(tx, MAX_FORGOTTEN)));
            let some = forget.await?;
            unheard += some;
            if some < MAX_FORGOTTEN {
                break;
            }
        }
    }
    Ok(unheard)
}

/// Attempts whose `task:submit` was not sent, because nobody wants them any more: they certainly never began.
pub async fn withdraw(board: &Board, connection: &Connection, attempts: &[(TaskId, u32)]) -> Result<()> {
    let mut rest = attempts.to_vec();
    while !rest.is_empty() {
        let viber = connection.viber.clone();
        let some: Arc<[(TaskId, u32)]> = rest.iter().take(AT_ONCE).cloned().collect();
        let (done, after) = board
            .piece(&connection.team, &connection.by(), move |tx| {
                let (viber, some) = (viber.clone(), some.clone());
                Box::pin(async move {
                    let (mut after, mut done) = (After::default(), 0);
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
        after.tell(board, &connection.team);
        rest.drain(..done);
    }
    Ok(())
}

async fn take_back(tx: &mut Change<'_>, viber: &ViberId, task: &TaskId, attempt: u32, after: &mut After) -> Result<()> {
    let Some(held) = db::attempts::held(tx, task, attempt).await? else { return Ok(()) };
    if held.viber_id != *viber || held.last_seq > 0 {
        return Ok(());
    }
    db::sessions::touch(tx, &held.session_id).await?;
    let superseded = held.newest != attempt;
    let end = db::attempts::End { outcome: "stopped", superseded, report: None };
    db::attempts::end(tx, task, attempt, end).await?;
    db::tasks::confirm_stop(tx, task, attempt, None).await?;
    dispatch::next(tx, &held.session_id, after).await?;
    after.task(&held.session_id, task);
    Ok(())
}

/// The unfinished attempts that the viber's daemon has on disk, as far as we know.
pub async fn delivered(board: &Board, team: &TeamId, viber: &ViberId) -> Result<Vec<Running>> {
    let open = db::attempts::open_of_viber(&mut board.db.reader_of(team).await?, viber).await?;
    Ok(open.iter().filter(|open| open.delivered).map(running).collect())
}
