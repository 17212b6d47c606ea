//! Playbooks: their files on vibers, and runs of them. The Board owns a run: what was frozen when it started, and how far it is.
//! What its steps do are tasks like any others, so that delivery, retries and crashes are what they are for every task.
//!
//! `advance` brings a run forward: it reads what is there, and does what follows from that. Everything else only changes what
//! there is, so that it does not matter who is killed when.

mod advance;
mod begin;
mod calls;
mod control;
mod files;
mod gates;
mod hand_over;
mod play;
mod start;
mod supervise;

use protocol::{Instant, RunId};

use crate::{
    db::{self, Change, TeamTx},
    domain::{
        PlaybookRun, RunSnapshot,
        playbook_run::{
            ledger::{self, MAX_LISTED_EVENTS},
            plan::MAX_PAUSE_MS,
        },
    },
    error::Result,
};

pub use advance::advance;
pub use control::{pause, resume, retry_step, skip_step, stop};
pub use files::{PlaybookFile, file, files_after, playbook_names};
pub use gates::{GateDecision, decide_gate};
pub use start::{NewRun, SentPlaybook, start, start_sent};

/// A run as it is now, at `at`, without its text; `None` also while its team is suspended: then nothing of it goes on.
async fn snapshot(tx: &mut TeamTx<'_>, id: &RunId, at: Instant) -> Result<Option<RunSnapshot>> {
    match db::playbook_runs::load_open(tx, id).await? {
        Some(run) => Ok(Some(snapshot_of(tx, run, at).await?)),
        None => Ok(None),
    }
}

/// A run as it is now, locked until the change ends.
async fn locked(tx: &mut Change<'_>, id: &RunId) -> Result<Option<RunSnapshot>> {
    let at = tx.now;
    match db::playbook_runs::lock(tx, id).await? {
        Some(run) => Ok(Some(snapshot_of(tx, run, at).await?)),
        None => Ok(None),
    }
}

async fn snapshot_of(tx: &mut TeamTx<'_>, run: PlaybookRun, at: Instant) -> Result<RunSnapshot> {
    // Where a test has no time for pauses.
    let passed = if crate::fault::at("playbooks::after_pauses") { MAX_PAUSE_MS } else { 0 };
    let at = Instant(at.0.saturating_add(passed));
    let steps = db::playbook_runs::steps(tx, &run.id).await?;
    let tasks = db::playbook_runs::child_tasks(tx, &run.id).await?;
    let calls = db::playbook_runs::open_calls(tx, &run.id).await?;
    Ok(RunSnapshot { at, run, steps, tasks, calls })
}

/// The ledger of a run as it is now, Markdown; `None` when there is no such run.
pub async fn ledger(tx: &mut TeamTx<'_>, id: &RunId) -> Result<Option<String>> {
    let Some(run) = db::playbook_runs::load(tx, id).await? else { return Ok(None) };
    let steps = db::playbook_runs::steps(tx, id).await?;
    let events = db::playbook_runs::events(tx, id, MAX_LISTED_EVENTS).await?;
    let works = db::playbook_runs::works(tx, id).await?;
    let vibers: Vec<(String, String)> = works.into_iter().map(|work| (work.label, work.viber)).collect();
    let mut files: Vec<(String, Vec<String>)> = Vec::new();
    for made in db::playbook_runs::artifacts(tx, id).await? {
        match files.last_mut() {
            Some((label, names)) if *label == made.label => {
                if !names.contains(&made.name) {
                    names.push(made.name);
                }
            }
            _ => files.push((made.label, vec![made.name])),
        }
    }
    Ok(Some(ledger::ledger(&run, &steps, &events, (files.as_slice(), vibers.as_slice()))))
}
