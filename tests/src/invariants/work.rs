//! I1 to I6: tasks, their starts, their events, their ends, their leases, and what viewers saw of them.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::dump::{Dump, Row, is_null, number, text};
use crate::ledger::{Attempt, LedgerEntries, View, hash};

/// An event as it is stored, read as far as needed.
#[derive(Deserialize)]
struct Head {
    seq: u64,
    #[serde(rename = "type")]
    kind: String,
    event: Option<Inner>,
}

#[derive(Deserialize)]
struct Inner {
    #[serde(rename = "type")]
    kind: String,
    from: Option<u64>,
}

/// One stored event.
struct Stored {
    first: u64,
    seq: u64,
    kind: String,
    json: String,
}

/// The stored events of every attempt.
pub struct StoredEvents(BTreeMap<Attempt, Vec<Stored>>);

impl StoredEvents {
    /// Reads them; rows that are not events are reported.
    pub fn read(dump: &Dump, wrong: &mut Vec<String>) -> Self {
        let mut rows: Vec<&Row> = dump.rows("events").iter().collect();
        rows.sort_by_key(|row| number(row, "from_seq"));
        let mut all: BTreeMap<Attempt, Vec<Stored>> = BTreeMap::new();
        for row in rows {
            let at = attempt(row);
            let items: Vec<Box<RawValue>> = match serde_json::from_str(text(row, "body")) {
                Ok(items) => items,
                Err(error) => {
                    wrong.push(format!("I3 events of {at:?} from {} are not a list: {error}", number(row, "from_seq")));
                    continue;
                }
            };
            let read: Vec<Stored> = items.iter().filter_map(|item| stored(item.get())).collect();
            let bounds = read.first().map(|e| e.first).zip(read.last().map(|e| e.seq));
            let told = (number(row, "from_seq").cast_unsigned(), number(row, "to_seq").cast_unsigned());
            if read.len() != items.len() || bounds != Some(told) {
                wrong.push(format!("I3 the row of {at:?} says {told:?} and holds {bounds:?}"));
            }
            all.entry(at).or_default().extend(read);
        }
        Self(all)
    }

    fn of(&self, at: &Attempt) -> &[Stored] {
        self.0.get(at).map_or(&[], Vec::as_slice)
    }
}

fn stored(json: &str) -> Option<Stored> {
    let head: Head = serde_json::from_str(json).ok()?;
    let gap = head.event.filter(|event| event.kind == "gap").and_then(|event| event.from);
    Some(Stored { first: gap.unwrap_or(head.seq), seq: head.seq, kind: head.kind, json: json.to_owned() })
}

fn attempt(row: &Row) -> Attempt {
    (text(row, "task_id").to_owned(), u32::try_from(number(row, "attempt")).unwrap_or_default())
}

/// Whether something was deleted on purpose: what is missing then proves nothing.
fn deleted(dump: &Dump) -> bool {
    let mut rows = dump.rows("audit").iter().chain(dump.rows("audit_pending"));
    rows.any(|row| text(row, "action") == "session.delete")
}

/// I1: acknowledged submits and task rows are the same.
pub fn submits(dump: &Dump, entries: &LedgerEntries, wrong: &mut Vec<String>) {
    let rows: HashSet<&str> = dump.rows("tasks").iter().map(|row| text(row, "task_id")).collect();
    let sessions: HashSet<&str> = dump.rows("sessions").iter().map(|row| text(row, "session_id")).collect();
    let gone = deleted(dump);
    for submit in &entries.submits {
        let with_its_session = gone && !sessions.contains(submit.session.as_str());
        if !rows.contains(submit.task.as_str()) && !with_its_session {
            wrong.push(format!("I1 {} was acknowledged and is not there", submit.task));
        }
    }
    let mut keys: BTreeMap<&(String, String), BTreeSet<&str>> = BTreeMap::new();
    for submit in &entries.submits {
        if let Some(key) = &submit.key {
            keys.entry(key).or_default().insert(&submit.task);
        }
    }
    for (key, tasks) in keys.iter().filter(|(_, tasks)| tasks.len() > 1) {
        wrong.push(format!("I1 one key, several tasks: {:?} {tasks:?}", key.1));
    }
    let acked: HashSet<&str> = entries.submits.iter().map(|submit| submit.task.as_str()).collect();
    // The Board compacts a session by itself, too.
    let own = dump.rows("tasks").iter().filter(|row| text(row, "origin") == "board" && text(row, "kind") == "work");
    // Whoever said something to a task was told of the message.
    let became: HashSet<&str> = dump.rows("task_messages").iter().map(|row| text(row, "next_task_id")).collect();
    let untold = |id: &str| !acked.contains(id) && !became.contains(id);
    let more = own.filter(|row| untold(text(row, "task_id"))).count();
    // A question that was too long for its session is asked again, once, in the one that goes on from it.
    let moves = |row: &&Row| text(row, "state") == "completed" && text(row, "payload").contains("\"resubmits\"");
    let more = more.saturating_sub(dump.rows("tasks").iter().filter(moves).count());
    if !entries.unseen && more as u64 > entries.unsure {
        wrong.push(format!("I1 {more} tasks that nobody was told of; at most {} can be", entries.unsure));
    }
}

/// I2: an attempt is started once. `starts` are those that real daemons noted.
pub fn starts(entries: &LedgerEntries, starts: &[(Attempt, String)], wrong: &mut Vec<String>) {
    for (at, offers) in entries.offers.iter().filter(|(_, offers)| offers.len() > 1) {
        wrong.push(format!("I2 {at:?} was handed out more than once: {offers:?}"));
    }
    let mut seen: BTreeMap<&Attempt, Vec<&str>> = BTreeMap::new();
    for (at, by) in starts {
        seen.entry(at).or_default().push(by);
    }
    for (at, by) in seen.iter().filter(|(_, by)| by.len() > 1) {
        wrong.push(format!("I2 {at:?} was started {} times, by {by:?}", by.len()));
    }
}

/// I3: events are contiguous, and what was acknowledged is stored byte for byte.
pub fn events(dump: &Dump, entries: &LedgerEntries, events: &StoredEvents, wrong: &mut Vec<String>) {
    let mut last: BTreeMap<Attempt, u64> = BTreeMap::new();
    for row in dump.rows("attempts") {
        let at = attempt(row);
        let told = number(row, "last_seq").cast_unsigned();
        let mut next = 1;
        for event in events.of(&at) {
            if event.first != next {
                wrong.push(format!("I3 {at:?}: {}…{} follows {}", event.first, event.seq, next - 1));
            }
            next = event.seq + 1;
        }
        if next - 1 != told {
            wrong.push(format!("I3 {at:?}: stored up to {}, said up to {told}", next - 1));
        }
        last.insert(at, told);
    }
    for at in events.0.keys().filter(|at| !last.contains_key(*at)) {
        wrong.push(format!("I3 events without an attempt: {at:?}"));
    }
    for (at, acked) in &entries.acked {
        match last.get(at) {
            None if deleted(dump) => {}
            None => wrong.push(format!("I3 {at:?} was acknowledged up to {acked} and is not there")),
            Some(told) if told < acked => wrong.push(format!("I3 {at:?} was acknowledged up to {acked}, has {told}")),
            Some(_) => bytes(at, *acked, entries, events, wrong),
        }
    }
}

fn bytes(at: &Attempt, acked: u64, entries: &LedgerEntries, events: &StoredEvents, wrong: &mut Vec<String>) {
    let Some(sent) = entries.sent.get(at) else { return };
    // A stored gap stands for what it covers.
    for event in events.of(at).iter().filter(|event| event.first == event.seq && event.seq <= acked) {
        if sent.get(&event.seq).is_some_and(|known| !known.contains(&hash(&event.json))) {
            wrong.push(format!("I3 {at:?}.{} is not what was sent: {}", event.seq, event.json));
        }
    }
}

/// I4: an attempt ends once, with its last event, and an end does not change.
pub fn ends(
    dump: &Dump,
    entries: &LedgerEntries,
    events: &StoredEvents,
    wrong: &mut Vec<String>,
) -> BTreeMap<Attempt, (String, String)> {
    let mut endings = BTreeMap::new();
    for row in dump.rows("attempts") {
        let (at, outcome) = (attempt(row), text(row, "outcome"));
        let stored = events.of(&at);
        let terminal = |event: &&Stored| ["task:completed", "task:error", "task:stopped"].contains(&&*event.kind);
        let ends: Vec<&Stored> = stored.iter().filter(terminal).collect();
        if ends.len() > 1 {
            wrong.push(format!("I4 {at:?} ended {} times", ends.len()));
        }
        if let Some(end) = ends.first() {
            if stored.last().map(|event| event.seq) != Some(end.seq) {
                wrong.push(format!("I4 {at:?} went on after its end"));
            }
            if end.kind != format!("task:{outcome}") {
                wrong.push(format!("I4 {at:?} reported {} and is {outcome:?}", end.kind));
            }
        }
        if !outcome.is_empty() {
            endings.insert(at, (outcome.to_owned(), text(row, "report").to_owned()));
        }
    }
    for (at, before) in &entries.endings {
        let now = endings.get(at);
        if before.0 != "lost" && now.is_some_and(|now| now != before) {
            wrong.push(format!("I4 the end of {at:?} changed from {before:?} to {now:?}"));
        }
    }
    for row in dump.rows("tasks") {
        let (at, state) = (attempt(row), text(row, "state"));
        let outcome = endings.get(&at).map_or("", |ending| ending.0.as_str());
        let fits = match state {
            "completed" => outcome == "completed",
            "error" => ["error", "lost"].contains(&outcome),
            // It is at once; its viber says so later, and may have finished meanwhile.
            "stopped" => true,
            _ => outcome.is_empty(),
        };
        if !fits {
            wrong.push(format!("I4 {at:?} is {state}, its newest attempt {outcome:?}"));
        }
    }
    endings
}

/// I5: no open task of a viber that is silent for longer than its team waits. `up_ms`: for how long the Board has run.
pub fn leases(dump: &Dump, now_ms: i64, up_ms: i64, wrong: &mut Vec<String>) {
    /// A sweep or two of a busy Board.
    const LEASE_SLACK_MS: i64 = 60_000;
    for task in dump.rows("tasks").iter().filter(|row| ["pending", "running"].contains(&text(row, "state"))) {
        let same = |row: &&Row, column: &str| text(row, column) == text(task, column);
        let at = attempt(task);
        let Some(viber) = dump.rows("vibers").iter().find(|row| same(row, "viber_id")) else { continue };
        let team = dump.rows("teams").iter().find(|row| same(row, "team_id"));
        let begun = dump.rows("attempts").iter().find(|row| attempt(row) == at && number(row, "last_seq") > 0);
        if begun.is_none() || !is_null(viber, "revoked_at") {
            continue;
        }
        let silent = now_ms - number(viber, "contact_since");
        let limit = team.map_or(0, |team| number(team, "lost_after_ms"));
        let connected = text(viber, "contact") == "connected";
        if !connected && limit > 0 && silent.min(up_ms) > limit + LEASE_SLACK_MS {
            wrong.push(format!("I5 {at:?} is open; its viber is silent for {silent} ms, its team waits {limit} ms"));
        }
        let heard = number(viber, "contact_since").max(number(viber, "seen_at"));
        // Silence is noticed after 30 s; when a viber was heard is written down once a minute.
        if connected && (now_ms - heard).min(up_ms) > 90_000 + LEASE_SLACK_MS {
            wrong.push(format!(
                "I5 {at:?} is open; its viber counts as connected and was heard {} ms ago",
                now_ms - heard
            ));
        }
    }
}

/// I6: what each viewer saw is what the database has, in its order, from the viewer's cursor on.
pub fn views(dump: &Dump, views: &[View], events: &StoredEvents, wrong: &mut Vec<String>) {
    for view in views {
        let mut order: Vec<(u32, &Stored)> = Vec::new();
        for (at, stored) in events.0.range((view.task.clone(), 0)..=(view.task.clone(), u32::MAX)) {
            order.extend(stored.iter().map(|event| (at.1, event)));
        }
        let old = |number: u32| {
            let at = (view.task.clone(), number);
            dump.rows("attempts").iter().any(|row| attempt(row) == at && self::number(row, "superseded") != 0)
        };
        let trimmed =
            dump.rows("attempts").iter().any(|row| text(row, "task_id") == view.task && !is_null(row, "trimmed_at"));
        if order.is_empty() || trimmed {
            continue;
        }
        let mut next = view.from.as_deref().and_then(cursor).map_or(0, |after| {
            order.iter().position(|(attempt, event)| (*attempt, event.seq) > after).unwrap_or(order.len())
        });
        for frame in &view.frames {
            if frame.event == "reset" {
                next = 0;
            }
            let Some(id) = &frame.id else { continue };
            let at = cursor(id);
            // What a superseded attempt said after the newer one had begun comes too late for who watched.
            while let Some((attempt, _)) = order.get(next)
                && at.is_some_and(|(shown, _)| shown > *attempt)
                && old(*attempt)
            {
                next += 1;
            }
            let due = order.get(next);
            if due.is_none_or(|(attempt, event)| at != Some((*attempt, event.seq)) || frame.data != event.json) {
                let due = due.map(|(attempt, event)| format!("{attempt}.{} {}", event.seq, event.json));
                wrong.push(format!("I6 a viewer of {} saw {id} {} where {due:?} was due", view.task, frame.data));
                break;
            }
            next += 1;
        }
    }
}

fn cursor(id: &str) -> Option<(u32, u64)> {
    let (attempt, seq) = id.split_once('.')?;
    Some((attempt.parse().ok()?, seq.parse().ok()?))
}
