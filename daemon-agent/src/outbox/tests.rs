//! What a log guarantees: order, durability, gaps that are reported, room for the ending.

use protocol::{AgentEvent, Event, Instant, TaskId, TaskResult};

use super::*;

fn attempt() -> AttemptRef {
    let task_id: TaskId = "task_00000000000070008000000000000002".parse().expect("an id");
    AttemptRef { task_id, attempt: 1 }
}

fn open(folder: &tempfile::TempDir, quota: Quota) -> Outbox {
    Outbox::open(folder.path().join("outbox"), quota, Clock::fixed(Instant(5))).expect("an outbox")
}

fn text(content: &str) -> EventBody {
    let event = AgentStreamEvent::TextDelta { content: content.to_owned() };
    EventBody::Progress { event: AgentEvent { agent_id: "a".to_owned(), event } }
}

fn call(n: u32) -> EventBody {
    let event =
        AgentStreamEvent::ToolCall { call_id: n.to_string(), tool: "shell".to_owned(), args: "x".repeat(1000).into() };
    EventBody::Progress { event: AgentEvent { agent_id: "a".to_owned(), event } }
}

fn completed() -> EventBody {
    EventBody::Completed { result: TaskResult::default() }
}

/// Everything from `from` on, checked to be contiguous.
fn all(outbox: &Outbox, attempt: &AttemptRef, mut from: u64) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    while let Some(batch) = outbox.read(attempt, from, 3000) {
        assert_eq!(batch.from, from);
        for item in &batch.items {
            let event = protocol::parse_event(item).expect("an event");
            assert_eq!(event.first_seq(), events.last().map_or(from, |before| before.seq + 1));
            events.push(event);
        }
        from = batch.to + 1;
    }
    events
}

#[tokio::test]
async fn events_come_back_in_order_also_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let outbox = open(&folder, Quota::default());
    outbox.begin(&attempt(), "a");
    for n in 0..50 {
        outbox.append(&attempt(), text(&n.to_string()));
    }
    outbox.end(&attempt(), completed()).await;
    let before = all(&outbox, &attempt(), 1);
    assert_eq!(before.len(), 51);
    outbox.append(&attempt(), text("too late"));
    assert_eq!(outbox.next(&attempt()), 52);
    drop(outbox);
    let outbox = open(&folder, Quota::default());
    assert_eq!(all(&outbox, &attempt(), 1), before);
    assert_eq!(outbox.attempts(), [(attempt(), true)]);
    assert_eq!(all(&outbox, &attempt(), 20).len(), 32);
    assert!(outbox.acknowledge(&[(attempt(), 50)]).is_empty());
    assert_eq!(outbox.acknowledge(&[(attempt(), 51)]), [attempt()]);
    outbox.forget(&attempt());
    assert!(outbox.attempts().is_empty() && outbox.read(&attempt(), 1, 10).is_none());
}

#[tokio::test]
async fn acknowledged_segments_leave_the_disk_and_are_a_gap_when_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let outbox = open(&folder, Quota::default());
    outbox.begin(&attempt(), "a");
    for n in 0..2000 {
        outbox.append(&attempt(), call(n));
    }
    let range = |outbox: &Outbox| (outbox.ranges()[0].first_seq, outbox.ranges()[0].last_seq);
    assert_eq!(range(&outbox), (1, 2000));
    outbox.acknowledge(&[(attempt(), 1500)]);
    let (first, last) = range(&outbox);
    assert!(first > 400 && first <= 1501 && last == 2000, "{first}");
    let events = all(&outbox, &attempt(), 1);
    assert_eq!((events[0].first_seq(), events[0].seq), (1, first - 1));
    assert_eq!(events.last().expect("events").seq, 2000);
}

#[tokio::test]
async fn over_quota_text_becomes_one_gap_and_calls_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let outbox = open(&folder, Quota { task: 20_000, ..Quota::default() });
    outbox.begin(&attempt(), "a");
    for n in 0..40 {
        outbox.append(&attempt(), text(&"t".repeat(1000)));
        if n % 10 == 9 {
            outbox.append(&attempt(), call(n));
        }
    }
    outbox.end(&attempt(), completed()).await;
    let events = all(&outbox, &attempt(), 1);
    let gaps = events.iter().filter(|event| event.first_seq() != event.seq).count();
    let calls = events.iter().filter(|event| serde_json::to_string(event).expect("JSON").contains("tool-call")).count();
    assert!(gaps >= 2, "{gaps}");
    assert_eq!(calls, 4);
    assert!(events.last().expect("events").body.is_terminal());
    assert_eq!(events.last().expect("events").seq, 45);
}

#[test]
fn a_torn_end_is_cut_and_the_log_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let outbox = open(&folder, Quota::default());
    outbox.begin(&attempt(), "a");
    for n in 0..5 {
        outbox.append(&attempt(), text(&n.to_string()));
    }
    drop(outbox);
    let log = folder.path().join(format!("outbox/{}.1", attempt().task_id));
    let segment = fs::read_dir(&log).expect("a log").next().expect("a segment").expect("readable").path();
    let bytes = fs::read(&segment).expect("there");
    fs::write(&segment, &bytes[..bytes.len() - 3]).expect("torn");
    let outbox = open(&folder, Quota::default());
    assert_eq!(outbox.next(&attempt()), 5);
    // The Board has seen what the crash destroyed: its seq is not assigned again.
    outbox.acknowledge(&[(attempt(), 5)]);
    outbox.append(&attempt(), text("on"));
    assert_eq!(all(&outbox, &attempt(), 6).iter().map(|event| event.seq).collect::<Vec<_>>(), [6]);
    assert_eq!(
        all(&outbox, &attempt(), 1).iter().map(|event| event.first_seq()).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5, 6]
    );
}

#[tokio::test]
async fn readers_hear_the_bell() {
    let folder = tempfile::tempdir().expect("a folder");
    let outbox = open(&folder, Quota::default());
    let mut bell = outbox.bell();
    outbox.begin(&attempt(), "a");
    assert!(!outbox.has(&attempt(), 1));
    outbox.append(&attempt(), EventBody::Accepted {});
    bell.changed().await.expect("rang");
    assert!(outbox.has(&attempt(), 1));
}

#[tokio::test]
async fn a_full_viber_keeps_room_for_every_ending() {
    let folder = tempfile::tempdir().expect("a folder");
    let outbox = open(&folder, Quota { task: 1 << 20, viber: 60_000, reserve: 20_000 });
    let attempts = [1, 2].map(|n| AttemptRef { task_id: TaskId::new(n), attempt: 1 });
    for attempt in &attempts {
        outbox.begin(attempt, "a");
    }
    for n in 0..100 {
        outbox.append(&attempts[n % 2], text(&"t".repeat(1000)));
    }
    for attempt in &attempts {
        outbox.end(attempt, completed()).await;
        let events = all(&outbox, attempt, 1);
        let gaps: Vec<_> = events.iter().filter(|event| event.first_seq() != event.seq).collect();
        assert_eq!((gaps.len(), events.last().expect("events").seq), (1, 51), "one gap, and every seq is there");
        assert!(matches!(events.last().expect("events").body, EventBody::Completed { .. }));
    }
    let bytes: u64 = outbox.ranges().len() as u64 * 30_000;
    let held: u64 = outbox.logs().values().map(AttemptLog::bytes).sum();
    assert!(held < bytes, "{held}");
}

#[tokio::test]
async fn a_disk_that_takes_nothing_is_a_gap_and_the_ending_waits_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let outbox = open(&folder, Quota::default());
    outbox.begin(&attempt(), "a");
    // A file lies where the log's folder should be: nothing can be written, by anybody.
    let place = folder.path().join(format!("outbox/{}.1", attempt().task_id));
    fs::write(&place, "").expect("written");
    for n in 0..5 {
        outbox.append(&attempt(), call(n));
    }
    assert!(!outbox.has(&attempt(), 1), "what is not on the disk is not shown");
    let ending = tokio::spawn({
        let outbox = outbox.clone();
        async move { outbox.end(&attempt(), completed()).await }
    });
    // The reserve is released first: once it is gone, writing the ending was attempted.
    while outbox.reserve().exists() {
        tokio::task::yield_now().await;
    }
    fs::remove_file(&place).expect("removed");
    ending.await.expect("ended");
    let events = all(&outbox, &attempt(), 1);
    assert_eq!((events[0].first_seq(), events[0].seq, events.len()), (1, 5, 2));
    assert!(events[1].body.is_terminal());
}

#[tokio::test]
async fn what_is_too_large_is_said_and_never_sent() {
    let folder = tempfile::tempdir().expect("a folder");
    let outbox = open(&folder, Quota::default());
    outbox.begin(&attempt(), "a");
    outbox.append(&attempt(), text(&"t".repeat(200_000)));
    outbox.append(&attempt(), text("small"));
    outbox.end(&attempt(), completed()).await;
    let events = all(&outbox, &attempt(), 1);
    let gap = |event: &Event| serde_json::to_string(event).expect("JSON").contains(r#""type":"gap""#);
    assert!(gap(&events[0]) && !gap(&events[1]));
    outbox.withhold(&attempt(), 2);
    outbox.withhold(&attempt(), 3);
    let events = all(&outbox, &attempt(), 1);
    assert!(gap(&events[1]));
    assert!(matches!(&events[2].body, EventBody::Error { error } if error.code == ErrorCode::Internal), "{events:?}");
}

#[tokio::test]
async fn what_the_board_refuses_is_kept_for_a_week_and_not_announced() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |now| Outbox::open(folder.path().join("outbox"), Quota::default(), Clock::fixed(Instant(now)));
    let outbox = at(5).expect("an outbox");
    outbox.begin(&attempt(), "a");
    outbox.append(&attempt(), text("x"));
    outbox.end(&attempt(), completed()).await;
    outbox.refuse(&attempt());
    let hidden = |outbox: &Outbox| outbox.ranges().is_empty() && outbox.attempts().is_empty();
    assert!(hidden(&outbox) && outbox.is_refused(&attempt()));
    drop(outbox);
    let week = 7 * 24 * 60 * 60 * 1000;
    let outbox = at(week).expect("an outbox");
    assert!(hidden(&outbox) && outbox.next(&attempt()) == 3, "kept over a restart");
    drop(outbox);
    assert_eq!(at(week + 5).expect("an outbox").next(&attempt()), 0, "gone");
}

#[tokio::test]
async fn an_announcement_and_an_ending_may_use_the_reserve() {
    let folder = tempfile::tempdir().expect("a folder");
    let outbox = open(&folder, Quota::default());
    outbox.begin(&attempt(), "a");
    let announce = EventBody::Announce {
        origin: "cli".to_owned(),
        agent_id: "a".to_owned(),
        session_id: protocol::SessionId::new(1),
        goal: "g".to_owned(),
        parent: None,
        author: None,
    };
    // Nothing can be written here, with or without the reserve: it is released, and the ending's place becomes a gap.
    let place = folder.path().join(format!("outbox/{}.1", attempt().task_id));
    fs::write(&place, "").expect("written");
    outbox.append(&attempt(), text("streams"));
    assert!(outbox.reserve().exists(), "what streams never gets it");
    outbox.append(&attempt(), announce);
    assert!(!outbox.reserve().exists());
    fs::remove_file(&place).expect("removed");
    outbox.append(&attempt(), text("streams"));
    outbox.end(&attempt(), completed()).await;
    let events = all(&outbox, &attempt(), 1);
    assert_eq!((events.len(), events[0].first_seq(), events[0].seq), (2, 1, 3), "while the disk is full text is a gap");
}

fn segment(folder: &tempfile::TempDir, first: u64) -> PathBuf {
    folder.path().join(format!("outbox/{}.1/{first:020}.seg", attempt().task_id))
}

fn is_damage(event: &Event) -> bool {
    serde_json::to_string(event).expect("JSON").contains("damaged on the viber's disk")
}

/// A log of ten events and an ending, closed.
async fn eleven(folder: &tempfile::TempDir) -> Vec<Event> {
    let outbox = open(folder, Quota::default());
    outbox.begin(&attempt(), "a");
    for n in 0..10 {
        outbox.append(&attempt(), text(&format!("piece {n}")));
    }
    outbox.end(&attempt(), completed()).await;
    all(&outbox, &attempt(), 1)
}

#[tokio::test]
async fn a_flipped_bit_anywhere_costs_one_event_and_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let before = eleven(&folder).await;
    let path = segment(&folder, 1);
    let sound = fs::read(&path).expect("a segment");
    let kept = folder.path().join("outbox/damaged");
    let log = path.parent().expect("a folder").to_owned();
    for at in (0..sound.len()).step_by(7).chain([0, 3, 4, 8, 16, 23, 24, sound.len() - 1]) {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&path, &bytes).expect("damaged");
        let outbox = open(&folder, Quota::default());
        outbox.begin(&attempt(), "a");
        let first = all(&outbox, &attempt(), 1);
        let ended = first.last().is_some_and(|last| last.body.is_terminal());
        if !ended {
            outbox.end(&attempt(), EventBody::Stopped { reason: "x".to_owned(), killed: 0 }).await;
        }
        let events = all(&outbox, &attempt(), 1);
        let gaps: Vec<&Event> = events.iter().filter(|event| is_damage(event)).collect();
        assert_eq!(gaps.len(), 1, "byte {at}: {events:?}");
        let (from, to) = (gaps[0].first_seq(), gaps[0].seq);
        assert_eq!(from, to, "byte {at}: one event");
        assert_eq!(ended, from != 11, "byte {at}");
        for event in events.iter().filter(|event| event.seq < 11 && event.seq != from) {
            assert_eq!(Some(event), before.iter().find(|one| one.seq == event.seq), "byte {at}");
        }
        assert!(outbox.is_damaged(&attempt()));
        let originals: Vec<_> = fs::read_dir(&kept).expect("kept").flatten().collect();
        assert_eq!(originals.len(), 1, "byte {at}");
        assert_eq!(fs::read(originals[0].path()).expect("kept"), bytes, "as it was found");
        drop(outbox);
        // What was repaired stays repaired.
        let again = open(&folder, Quota::default());
        again.begin(&attempt(), "a");
        assert_eq!(all(&again, &attempt(), 1).len(), events.len(), "byte {at}");
        drop(again);
        fs::remove_dir_all(&kept).expect("removed");
        fs::remove_dir_all(&log).expect("removed");
        fs::create_dir(&log).expect("made");
    }
}

#[tokio::test]
async fn a_zeroed_page_in_the_middle_costs_what_was_in_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let outbox = open(&folder, Quota::default());
    outbox.begin(&attempt(), "a");
    for n in 0..40 {
        outbox.append(&attempt(), call(n));
    }
    outbox.end(&attempt(), completed()).await;
    let before = all(&outbox, &attempt(), 1);
    drop(outbox);
    let path = segment(&folder, 1);
    let mut bytes = fs::read(&path).expect("a segment");
    bytes[8192..12288].fill(0);
    fs::write(&path, &bytes).expect("damaged");
    let outbox = open(&folder, Quota::default());
    let events = all(&outbox, &attempt(), 1);
    let gaps: Vec<&Event> = events.iter().filter(|event| is_damage(event)).collect();
    assert_eq!(gaps.len(), 1);
    assert!((3..=6).contains(&(gaps[0].seq - gaps[0].first_seq() + 1)), "{:?}", gaps[0]);
    let sound = |event: &&Event| !is_damage(event);
    assert!(events.iter().filter(sound).all(|event| before.contains(event)));
    assert!(matches!(events.last().expect("events").body, EventBody::Completed { .. }), "the result is there");
    // The Board has part of what is missing: it receives the rest.
    let from = gaps[0].first_seq() + 1;
    assert_eq!(all(&outbox, &attempt(), from)[0].first_seq(), from);
}

#[tokio::test]
async fn whole_files_that_are_zeros_folders_links_or_missing_are_gaps() {
    let zeros = |path: &std::path::Path| fs::write(path, vec![0; 600_000]).expect("zeroed");
    let folder = |path: &std::path::Path| {
        fs::remove_file(path).expect("removed");
        fs::create_dir(path).expect("made");
        fs::write(path.join("x"), "x").expect("written");
    };
    let link = |path: &std::path::Path| {
        fs::rename(path, path.with_extension("elsewhere")).expect("moved");
        std::os::unix::fs::symlink(path.with_extension("elsewhere"), path).expect("linked");
    };
    let missing = |path: &std::path::Path| fs::remove_file(path).expect("removed");
    let empty = |path: &std::path::Path| fs::write(path, "").expect("emptied");
    let changes: [(&str, &dyn Fn(&std::path::Path)); 5] =
        [("zeros", &zeros), ("folder", &folder), ("link", &link), ("missing", &missing), ("empty", &empty)];
    for (how, change) in changes {
        for which in 0..3 {
            let folder = tempfile::tempdir().expect("a folder");
            let outbox = open(&folder, Quota::default());
            outbox.begin(&attempt(), "a");
            for n in 0..1200 {
                outbox.append(&attempt(), call(n));
            }
            outbox.end(&attempt(), completed()).await;
            drop(outbox);
            let log = segment(&folder, 1).parent().expect("a folder").to_owned();
            let mut files: Vec<PathBuf> = fs::read_dir(log).expect("a log").flatten().map(|e| e.path()).collect();
            files.retain(|file| file.extension().is_some_and(|extension| extension == "seg"));
            files.sort();
            assert_eq!(files.len(), 3);
            change(&files[which]);
            let outbox = open(&folder, Quota::default());
            outbox.begin(&attempt(), "a");
            if which == 2 {
                outbox.end(&attempt(), EventBody::Stopped { reason: "x".to_owned(), killed: 0 }).await;
            }
            let events = all(&outbox, &attempt(), 1);
            assert!(events.last().expect("events").body.is_terminal(), "{how} {which}");
            let gaps = events.iter().filter(|event| event.first_seq() != event.seq || is_damage(event)).count();
            let is_reported = !(which == 2 && matches!(how, "missing" | "empty"));
            assert_eq!(gaps, usize::from(is_reported), "{how} {which}");
        }
    }
}

#[tokio::test]
async fn a_lost_announcement_is_replaced_when_the_board_has_not_had_it() {
    let folder = tempfile::tempdir().expect("a folder");
    eleven(&folder).await;
    let path = segment(&folder, 1);
    let mut bytes = fs::read(&path).expect("a segment");
    let second = bytes.windows(7).position(|at| at == b"piece 1").expect("the second event");
    bytes[..second].fill(0xee);
    fs::write(&path, &bytes).expect("damaged");
    let outbox = open(&folder, Quota::default());
    assert_eq!(outbox.headless(), [(attempt(), "a".to_owned())]);
    let announce = EventBody::Announce {
        origin: "cli".to_owned(),
        agent_id: "a".to_owned(),
        session_id: protocol::SessionId::new(1),
        goal: "lost".to_owned(),
        parent: None,
        author: None,
    };
    outbox.announce(&attempt(), announce);
    let events = all(&outbox, &attempt(), 1);
    assert_eq!((events[0].body.name(), events[0].seq), ("task:announce", 1));
    assert_eq!((events[1].first_seq(), events[1].seq, is_damage(&events[1])), (2, 2, true));
    assert!(events.last().expect("events").body.is_terminal());
}

#[test]
fn something_else_in_the_place_of_a_log_is_set_aside() {
    let folder = tempfile::tempdir().expect("a folder");
    drop(open(&folder, Quota::default()));
    let place = folder.path().join(format!("outbox/{}.1", attempt().task_id));
    fs::write(&place, "garbage").expect("written");
    let outbox = open(&folder, Quota::default());
    outbox.begin(&attempt(), "a");
    outbox.append(&attempt(), text("x"));
    assert_eq!(all(&outbox, &attempt(), 1).len(), 1);
    assert_eq!(fs::read_dir(folder.path().join("outbox/damaged")).expect("kept").count(), 1);
}
