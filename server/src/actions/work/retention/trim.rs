//! Trimming: events that are older than their team keeps them give way to a gap. Their parts stay.
//!
//! Goes through a team's attempts in the order in which they ended, piece by piece, and rests after each piece: less while
//! it is far behind. Attempts with few events, which nearly all are, are trimmed many at once.

use std::{collections::HashMap, time::Duration};

use protocol::{AgentEvent, AgentStreamEvent, Event, EventBody, Instant, TaskId};

use super::{DAY_MS, MAX_TEAMS};
use crate::{
    actions::record,
    db::{
        self, Change,
        attempts::{EndedPlace, EndedRange, EndedRun, StaleAttempt},
    },
    domain::{Attempt, By, Committed, Item, Report, Team, assemble::Assembler},
    error::{Error, Result},
    state::Board,
};

/// Attempts that are read at once.
const ATTEMPTS_PER_READ: u64 = 60;
/// Events up to which an attempt is trimmed together with others.
const MAX_EVENTS_TOGETHER: u64 = 24;
/// Rows that are written at most when attempts are trimmed together; a change may write 200.
const MAX_ROWS_TOGETHER: u64 = 180;
/// How many times as long as a piece took the next one waits: trimming takes a tenth of a core at most.
const REST_FACTOR: u32 = 9;
/// The same while trimming is behind: half a core, or a Board whose vibers report more than a tenth can trim would grow for
/// ever.
const REST_FACTOR_BEHIND: u32 = 1;
/// How long the oldest events may have been due before trimming counts as behind, milliseconds.
const MAX_OVERDUE_MS: i64 = DAY_MS;
/// Why events are missing.
const GAP_REASON: &str = "older than the team keeps events";

/// Removes events that are older than their team keeps them, until all are gone or the Board stops.
pub async fn trim_events(board: &Board) -> Result<()> {
    let teams = db::teams::all(&mut *board.db.reader().await?, MAX_TEAMS).await?;
    let mut failed = None;
    for team in teams.iter().filter(|team| team.retention_days > 0) {
        match trim_team(board, team).await {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            // Teams do not hold up each other.
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Trims what a team does not keep any more. `false`: the Board stops.
async fn trim_team(board: &Board, team: &Team) -> Result<bool> {
    let mut place = EndedPlace::default();
    loop {
        let began = std::time::Instant::now();
        let Some(piece) = trim_some(board, team, place).await? else { return Ok(true) };
        place = piece.to;
        if !rest(board, began.elapsed() * rest_factor(piece.overdue_ms)).await {
            return Ok(false);
        }
    }
}

/// `false`: the Board stops.
async fn rest(board: &Board, pause: Duration) -> bool {
    tokio::select! {
        () = board.shutdown.soft.cancelled() => false,
        () = tokio::time::sleep(pause) => true,
    }
}

/// How many times as long as a piece took the next one waits, when the oldest events of that piece were due for so long.
fn rest_factor(overdue_ms: i64) -> u32 {
    if overdue_ms < MAX_OVERDUE_MS { REST_FACTOR } else { REST_FACTOR_BEHIND }
}

/// A piece of trimming.
struct TrimmedPiece {
    /// Where to go on.
    to: EndedPlace,
    /// For how long its oldest attempt was due, milliseconds.
    overdue_ms: i64,
}

/// Trims some attempts after a place, `None` when there are no more.
async fn trim_some(board: &Board, team: &Team, after: EndedPlace) -> Result<Option<TrimmedPiece>> {
    let kept = team.retention_days.saturating_mul(DAY_MS);
    let trimmed = board.piece(&team.id, &By::board(), move |tx| {
        let after = after.clone();
        Box::pin(async move {
            let before = Instant(tx.now.0 - kept);
            let stale = db::attempts::stale(tx, before, &after, ATTEMPTS_PER_READ).await?;
            let Some(oldest) = stale.first() else { return Ok::<_, Error>(None) };
            let overdue_ms = oldest.attempt.ended_at.map_or(0, |ended| before.0.saturating_sub(ended.0));
            let to = trim_first(tx, &stale, after).await?;
            Ok(Some(TrimmedPiece { to, overdue_ms }))
        })
    });
    trimmed.await
}

/// Trims the first of these attempts, as many as fit into one change. Returns where to go on.
async fn trim_first(tx: &mut Change<'_>, stale: &[StaleAttempt], after: EndedPlace) -> Result<EndedPlace> {
    let small = &stale[..stale.iter().take_while(|stale| is_small(stale)).count()];
    if let Some(last) = small.last() {
        let rows = db::attempts::count_rows_in(tx, &EndedRange { after: after.clone(), to: last.place() }).await?;
        let together = &small[..count_together(small, &rows)];
        let range = EndedRange { after, to: together.last().unwrap_or(last).place() };
        trim_together(tx, together, &range).await?;
        return Ok(range.to);
    }
    let mut to = after;
    for attempt in stale.iter().take_while(|attempt| !is_small(attempt)) {
        if !trim(tx, attempt).await? {
            break;
        }
        to = attempt.place();
        if tx.is_full() {
            break;
        }
    }
    Ok(to)
}

/// Whether an attempt has few events, and all of them have become parts.
fn is_small(stale: &StaleAttempt) -> bool {
    let Attempt { last_seq, parts_seq, .. } = stale.attempt;
    stale.agent_id.is_some() && last_seq <= MAX_EVENTS_TOGETHER && parts_seq >= last_seq
}

/// How many of the first of these attempts, which have so many rows of events, are trimmed together: at least one.
fn count_together(small: &[StaleAttempt], stored: &HashMap<(TaskId, u32), u64>) -> usize {
    let mut rows = 0;
    let fits = |stale: &&StaleAttempt| {
        // Beside those that go away, the gap's and the attempt's own.
        rows += stored.get(&key(stale)).copied().unwrap_or(0) + 2;
        rows <= MAX_ROWS_TOGETHER
    };
    small.iter().take_while(fits).count().max(1)
}

fn key(stale: &StaleAttempt) -> (TaskId, u32) {
    (stale.attempt.task_id.clone(), stale.attempt.attempt)
}

/// Replaces the events of all attempts in a range. One of them may begin with a gap of ours: it was declared lost and
/// trimmed, and then its viber reported more.
async fn trim_together(tx: &mut Change<'_>, stale: &[StaleAttempt], range: &EndedRange) -> Result<()> {
    let mut stored: HashMap<_, Vec<_>> = HashMap::new();
    for run in db::attempts::runs_in(tx, range).await? {
        stored.entry((run.task.clone(), run.attempt)).or_default().push(run);
    }
    if !stored.is_empty() {
        db::attempts::clear_in(tx, range).await?;
    }
    let mut left = Vec::new();
    for stale in stale {
        let (task, number, last) = (&stale.attempt.task_id, stale.attempt.attempt, stale.attempt.last_seq);
        let mut runs = stored.remove(&key(stale)).unwrap_or_default();
        runs.sort_unstable_by_key(|run| run.from);
        let (Some(oldest), Some(newest)) = (runs.first(), runs.last()) else { continue };
        let items = |run: &EndedRun, after| match Committed::parse(task.clone(), number, run.from, &run.body, after) {
            Ok(run) => run.items,
            Err(error) => {
                tracing::warn!(%task, attempt = number, %error, "old events cannot be read: a gap stands for them");
                Vec::new()
            }
        };
        let counted = oldest_bytes(&items(oldest, 0), oldest.body.len() as u64);
        let bytes = runs[1..].iter().fold(counted, |sum, run| sum.saturating_add(run.body.len() as u64));
        left.push(with_gap(tx.now, stale, (last - 1, bytes), items(newest, last - 1))?);
    }
    db::events::insert_all(tx, &left).await?;
    Ok(db::attempts::trimmed_in(tx, range).await?)
}

/// Replaces an attempt's events with a gap that grows until only the last event is left. `false`: there is more to do.
async fn trim(tx: &mut Change<'_>, stale: &StaleAttempt) -> Result<bool> {
    let attempt = &stale.attempt;
    if stale.agent_id.is_some() && attempt.last_seq > 1 {
        keep_open(tx, attempt).await?;
        while !grow_gap(tx, stale).await? {
            if tx.is_full() {
                return Ok(false);
            }
        }
    }
    db::attempts::trimmed(tx, &attempt.task_id, attempt.attempt).await?;
    Ok(true)
}

/// Turns trailing events that are no part yet into parts.
async fn keep_open(tx: &mut Change<'_>, attempt: &Attempt) -> Result<()> {
    let (task, number, last) = (&attempt.task_id, attempt.attempt, attempt.last_seq);
    if attempt.parts_seq >= last {
        return Ok(());
    }
    let Some(held) = db::attempts::load_with_task(tx, task, number).await? else { return Ok(()) };
    db::sessions::lock(tx, &held.session_id).await?;
    let mut assembler = Assembler::new(attempt.parts_seq, false);
    record::read_open(tx, (task, number), attempt.parts_seq, &mut assembler).await?;
    let open = assembler.open_parts();
    let mut parts = assembler.finish().parts;
    parts.extend(open);
    let parts = record::fill_messages(tx, (task, number), parts).await?;
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
        end: None,
    };
    db::attempts::advance(tx, task, number, advance).await?;
    Ok(())
}

/// Moves a few runs of events into the gap. `true`: it has reached the last event.
async fn grow_gap(tx: &mut Change<'_>, stale: &StaleAttempt) -> Result<bool> {
    let (task, number, last) = (&stale.attempt.task_id, stale.attempt.attempt, stale.attempt.last_seq);
    let sizes = db::events::sizes(tx, task, number, db::change_limits::DELETE_BATCH_ROWS).await?;
    let Some((to, _)) = sizes.last().copied() else { return Ok(true) };
    let first = db::events::after(tx, task, number, 0, 1).await?;
    let items = first.first().map(|run| run.items.as_slice()).unwrap_or_default();
    let counted = oldest_bytes(items, sizes[0].1);
    let bytes = sizes[1..].iter().fold(counted, |sum, (_, size)| sum.saturating_add(*size));
    // Where the newest events are missing, what is there is all.
    let whole = to >= last || (sizes.len() as u64) < db::change_limits::DELETE_BATCH_ROWS;
    let newest = if whole { db::events::after(tx, task, number, last - 1, 1).await? } else { Vec::new() };
    let end = if whole { last - 1 } else { to };
    db::events::clear(tx, task, number, to, db::change_limits::DELETE_BATCH_ROWS).await?;
    let run = with_gap(tx.now, stale, (end, bytes), newest.into_iter().flat_map(|run| run.items))?;
    db::events::insert(tx, &run).await?;
    Ok(whole)
}

/// A gap up to a seq that stands for so many bytes, and the events after it.
fn with_gap(
    now: Instant,
    stale: &StaleAttempt,
    (end, bytes): (u64, u64),
    rest: impl IntoIterator<Item = Item>,
) -> Result<Committed> {
    let event = AgentStreamEvent::Gap { from: 1, to: end, bytes, reason: GAP_REASON.to_owned() };
    let agent_id = stale.agent_id.clone().unwrap_or_default();
    let body = EventBody::Progress { event: AgentEvent { agent_id, event } };
    let gap = serde_json::to_string(&Event { seq: end, at: now, body });
    let gap = gap.map_err(|error| Error::Internal(error.to_string()))?;
    let mut items = vec![Item { seq: end, json: gap.into() }];
    items.extend(rest);
    Ok(Committed::new(stale.attempt.task_id.clone(), stale.attempt.attempt, 1, items))
}

/// The bytes that an attempt's oldest run stands for, whose own size this is. A gap of ours stands for what it replaced and
/// for the event that was left after it; further ones may have joined that run since.
fn oldest_bytes(items: &[Item], size: u64) -> u64 {
    let Some(replaced) = items.first().and_then(|item| gap(&item.report())) else { return size };
    items.iter().skip(2).fold(replaced, |sum, item| sum.saturating_add(item.json.len() as u64))
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

#[cfg(test)]
mod tests {
    use protocol::ViberId;

    use super::*;

    #[test]
    fn as_many_are_trimmed_together_as_their_rows_fit_into_one_change() {
        let small = |last_seq| StaleAttempt {
            attempt: Attempt {
                task_id: TaskId::new(1),
                attempt: 1,
                viber_id: ViberId::new(1),
                last_seq,
                parts_seq: last_seq,
                message_id: None,
                outcome: Some("completed".into()),
                superseded: false,
                created_at: Instant(1),
                started_at: None,
                ended_at: Some(Instant(2)),
            },
            agent_id: Some("default".into()),
        };
        let stored =
            |stale: &[StaleAttempt], rows: u64| -> HashMap<_, _> { stale.iter().map(|one| (key(one), rows)).collect() };
        let many: Vec<_> = (0..60).map(|_| small(MAX_EVENTS_TOGETHER)).collect();
        assert_eq!(count_together(&many, &stored(&many, 1)), 60, "one row each");
        let fitting = MAX_ROWS_TOGETHER / (MAX_EVENTS_TOGETHER + 2);
        assert_eq!(count_together(&many, &stored(&many, MAX_EVENTS_TOGETHER)) as u64, fitting, "a row for each event");
        assert_eq!(count_together(&many, &stored(&many, 1000)), 1, "damaged: it goes by itself");
        assert!(is_small(&small(4)) && !is_small(&small(MAX_EVENTS_TOGETHER + 1)));
    }

    #[test]
    fn trimming_rests_less_while_it_is_a_day_behind() {
        assert_eq!([0, DAY_MS - 1].map(rest_factor), [REST_FACTOR; 2]);
        assert_eq!([DAY_MS, i64::MAX].map(rest_factor), [REST_FACTOR_BEHIND; 2]);
    }

    #[test]
    fn a_gap_of_ours_counts_as_what_it_stands_for() {
        let item = |seq: u64, json: String| Item { seq, json: json.into() };
        let gap = |reason: &str| {
            let gap = format!(r#""type":"gap","from":1,"to":3,"bytes":700,"reason":"{reason}""#);
            item(3, format!(r#"{{"seq":3,"type":"task:progress","event":{{"agentId":"default",{gap}}}}}"#))
        };
        let accepted = |seq: u64| item(seq, format!(r#"{{"seq":{seq},"type":"task:accepted"}}"#));
        let joined = accepted(5).json.len() as u64;
        assert_eq!(oldest_bytes(&[gap(GAP_REASON)], 150), 700);
        assert_eq!(oldest_bytes(&[gap(GAP_REASON), accepted(4)], 190), 700, "it counts the event that was left");
        assert_eq!(oldest_bytes(&[gap(GAP_REASON), accepted(4), accepted(5)], 230), 700 + joined);
        assert_eq!(oldest_bytes(&[gap("damaged on the viber's disk"), accepted(4)], 190), 190, "the viber's own");
        assert_eq!(oldest_bytes(&[accepted(1)], 40), 40);
    }
}
