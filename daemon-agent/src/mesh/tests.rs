//! Attempts on an echo engine: order, limits, stops, restarts.

use std::time::Duration;

use protocol::{Acked, ErrorCode, Event, Instant, SessionId, TaskId};
use serde_json::json;

use super::*;
use crate::{config::Variables, outbox::Quota};

mod ledgers;
mod messages;
mod models;
mod pauses;
mod rest;
mod stops;

struct Fixture {
    folder: tempfile::TempDir,
    mesh: Mesh,
    next_cmd: u64,
    _files: watch::Sender<Arc<ConfigSnapshot>>,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Home::at(folder.path()).open().expect("a home");
        let file = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
        file("config.yaml", "maxTasks: 2\n");
        file("agents/echo.yaml", "model: echo/1\n");
        file("agents/other.yaml", "model: demo/tour\n");
        file("agents/brief.yaml", "model: echo/1\nstream: none\n");
        file("agents/broken.yaml", "nmae: x\n");
        file("agents/asking.yaml", "model: echo/1\nmode: always_ask\n");
        let mesh = Self::start(&folder);
        Self { folder, mesh: mesh.0, next_cmd: 1, _files: mesh.1 }
    }

    fn start(folder: &tempfile::TempDir) -> (Mesh, watch::Sender<Arc<ConfigSnapshot>>) {
        let home = Home::at(folder.path());
        let clock = Clock::fixed(Instant(1_700_000_000_000));
        let (sender, files) = watch::channel(Arc::new(ConfigSnapshot::read(&home, &Variables::default())));
        let outbox = Outbox::open(home.state().join("outbox"), Quota::default(), clock.clone()).expect("an outbox");
        let journal = Arc::new(Journal::open(home.journal(), &home.damaged(), clock.now()).expect("a journal"));
        let fetch: FetchPayload = Arc::new(|path| Box::pin(async move { Err(FetchError::Never(path)) }));
        let carry: FetchAttachment = Arc::new(|file, _| Box::pin(async move { Err(FetchError::Never(file.name)) }));
        (
            Mesh::new(MeshContext {
                workspace: Workspace::open(&home),
                home,
                clock,
                outbox,
                journal,
                files,
                skills: Skills::none(),
                board: None,
                fetch,
                carry,
            }),
            sender,
        )
    }

    /// The same home after the process was killed: nothing runs, but everything on disk is there.
    fn killed(self) -> Self {
        let (mesh, files) = Self::start(&self.folder);
        Self { mesh, _files: files, ..self }
    }

    async fn welcomed(self, acked: &[(&AttemptRef, u64)]) -> Self {
        let acked: Vec<Acked> = acked
            .iter()
            .map(|(of, seq)| Acked { task_id: of.task_id.clone(), attempt: of.attempt, seq: *seq })
            .collect();
        self.welcomed_with(json!({ "acked": acked })).await
    }

    /// The Board sends a welcome with `more` than the usual.
    async fn welcomed_with(self, more: serde_json::Value) -> Self {
        let mut welcome = json!({"protocol": 1, "connEpoch": 1, "serverTime": self.mesh.clock().now(),
            "heartbeatSeconds": 10, "maxFrameBytes": 1 << 18, "window": {"events": 100, "bytes": 1 << 20}, "acked": [],
            "fence": [], "cmdsFrom": 1});
        welcome.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        self.mesh.welcomed(&serde_json::from_value(welcome).expect("a welcome")).await;
        self
    }

    async fn command(&mut self, command: Command) {
        let cmd_seq = self.next_cmd;
        self.next_cmd += 1;
        assert_eq!(self.mesh.take(vec![NumberedCommand { cmd_seq, command }]).await.expect("taken"), cmd_seq);
    }

    async fn submit_to(&mut self, agent: &str, goal: &str, more: serde_json::Value) -> AttemptRef {
        let now = self.mesh.clock().now().millis();
        let mut submit = json!({"taskId": TaskId::new(now), "attempt": 1, "sessionId": SessionId::new(now),
            "agentId": agent, "goal": goal});
        submit.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        let submit: TaskSubmit = serde_json::from_value(submit).expect("a submit");
        let attempt = attempt_of(&submit);
        self.command(Command::Submit(Box::new(submit))).await;
        attempt
    }

    async fn submit(&mut self, goal: &str) -> AttemptRef {
        self.submit_to("echo", goal, json!({})).await
    }

    async fn stop_all(&mut self) {
        self.command(Command::StopAll { reason: "operator".to_owned() }).await;
    }

    fn events(&self, attempt: &AttemptRef) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        let after = |events: &Vec<Event>| events.last().map_or(1, |last| last.seq + 1);
        while let Some(batch) = self.mesh.outbox().read(attempt, after(&events), 1 << 20) {
            events.extend(batch.items.iter().map(|item| protocol::parse_event(item).expect("an event")));
        }
        events
    }

    fn names(&self, attempt: &AttemptRef) -> Vec<&'static str> {
        let mut names: Vec<_> = self.events(attempt).iter().map(|event| event.body.name()).collect();
        names.dedup();
        names
    }

    /// Waits until `attempt` has an event like this.
    async fn until(&self, attempt: &AttemptRef, like: impl Fn(&EventBody) -> bool) -> Event {
        let mut bell = self.mesh.outbox().bell();
        loop {
            bell.mark_unchanged();
            if let Some(event) = self.events(attempt).into_iter().find(|event| like(&event.body)) {
                return event;
            }
            tokio::time::timeout(Duration::from_secs(20), bell.changed()).await.expect("in time").expect("rings");
        }
    }

    async fn ending(&self, attempt: &AttemptRef) -> EventBody {
        self.until(attempt, EventBody::is_terminal).await.body
    }

    /// Waits until nothing runs.
    async fn idle(&self) {
        let mut changes = self.mesh.changes();
        while self.mesh.load().0 > 0 {
            changes.changed().await.expect("rings");
        }
    }

    async fn started(&self, attempt: &AttemptRef) {
        self.until(attempt, |body| matches!(body, EventBody::Started { .. })).await;
    }

    /// Waits until its engine waits, so that nothing more comes of it by itself.
    async fn waits(&self, attempt: &AttemptRef) {
        self.until(attempt, |body| matches!(body, EventBody::Progress { .. })).await;
    }
}

fn code(ending: &EventBody) -> Option<(ErrorCode, String)> {
    match ending {
        EventBody::Error { error } => Some((error.code, error.message.clone())),
        _ => None,
    }
}

#[tokio::test]
async fn a_task_is_accepted_started_and_completed() {
    let mut fixture = Fixture::new().welcomed(&[]).await;
    let attempt = fixture.submit("hello there").await;
    let EventBody::Completed { result } = fixture.ending(&attempt).await else { panic!("completed") };
    assert_eq!((result.text.as_str(), result.summary.as_str()), ("hello there", "hello there"));
    assert_eq!(fixture.names(&attempt), ["task:accepted", "task:started", "task:progress", "task:completed"]);
    let quiet = fixture.submit_to("brief", "hello", json!({})).await;
    fixture.ending(&quiet).await;
    assert_eq!(fixture.names(&quiet), ["task:accepted", "task:started", "task:completed"]);
}

#[tokio::test]
async fn only_so_many_run_at_once_and_the_rest_in_order() {
    let mut fixture = Fixture::new().welcomed(&[]).await;
    let [a, b] = [fixture.submit("wait").await, fixture.submit("wait").await];
    let [c, d] = [fixture.submit("wait").await, fixture.submit("wait").await];
    fixture.started(&a).await;
    fixture.started(&b).await;
    assert_eq!((fixture.mesh.load(), fixture.names(&c)), ((2, 2), vec!["task:accepted"]));
    assert_eq!(fixture.mesh.held().len(), 4);
    let stop = Command::Stop { task_id: b.task_id.clone(), attempt: 1, reason: "operator".to_owned() };
    fixture.command(stop).await;
    assert!(matches!(fixture.ending(&b).await, EventBody::Stopped { reason, .. } if reason == "operator"));
    fixture.started(&c).await;
    assert_eq!(fixture.names(&d), ["task:accepted"]);
    fixture.stop_all().await;
    for attempt in [&a, &c, &d] {
        assert!(matches!(fixture.ending(attempt).await, EventBody::Stopped { .. }));
    }
    assert_eq!(fixture.names(&d), ["task:accepted", "task:stopped"], "it never began");
}

#[tokio::test]
async fn failures_and_panics_end_a_task_by_name() {
    let mut fixture = Fixture::new().welcomed(&[]).await;
    for (agent, goal, more, expected, word) in [
        ("echo", "fail provider_auth", json!({}), ErrorCode::ProviderAuth, "asked"),
        ("echo", "panic", json!({}), ErrorCode::Internal, "engine failed"),
        ("nobody", "hello", json!({}), ErrorCode::NotFound, "nobody"),
        ("broken", "hello", json!({}), ErrorCode::BadRequest, "nmae"),
        ("asking", "hello", json!({}), ErrorCode::BadRequest, "mode: always_ask"),
        ("echo", "hello", json!({"mode": "viber_decides"}), ErrorCode::BadRequest, "mode: viber_decides"),
        ("echo", " ", json!({}), ErrorCode::BadRequest, "goal"),
        ("echo", "wait", json!({"deadline": "2023-11-14T22:13:20.010Z"}), ErrorCode::Timeout, "deadline"),
        ("echo", "", json!({"payloadUrl": "/nowhere"}), ErrorCode::BadRequest, "/nowhere"),
    ] {
        let attempt = fixture.submit_to(agent, goal, more).await;
        let (found, message) = code(&fixture.ending(&attempt).await).expect("an error");
        assert!(found == expected && message.contains(word), "{agent} {goal}: {found:?} {message}");
    }
}

#[tokio::test]
async fn a_long_answer_is_cut_and_kept() {
    let mut fixture = Fixture::new().welcomed(&[]).await;
    let attempt = fixture.submit("text 300000").await;
    let EventBody::Completed { result } = fixture.ending(&attempt).await else { panic!("completed") };
    assert!(result.text.len() <= protocol::limits::MAX_RESULT_TEXT_BYTES && result.artifact_refs.len() == 1);
}

#[tokio::test]
async fn what_ran_when_the_daemon_was_killed_is_ended_and_what_waited_is_begun() {
    let mut fixture = Fixture::new().welcomed(&[]).await;
    let [a, b, c] = [fixture.submit("wait").await, fixture.submit("wait").await, fixture.submit("hello").await];
    fixture.waits(&a).await;
    fixture.waits(&b).await;
    let fixture = fixture.killed();
    assert_eq!(fixture.mesh.held().len(), 3, "what it left is named");
    assert_eq!(fixture.names(&a).last(), Some(&"task:progress"), "no number is given before the welcome");
    let before = fixture.events(&a).last().expect("events").seq;
    // The Board has seen more of `a` than this disk kept.
    let fixture = fixture.welcomed(&[(&a, before + 3)]).await;
    let mut bell = fixture.mesh.outbox().bell();
    while !fixture.mesh.outbox().has(&a, before + 4) {
        bell.changed().await.expect("rings");
    }
    let ending = fixture.mesh.outbox().read(&a, before + 4, 1 << 20).expect("an ending");
    assert_eq!((ending.from, ending.items.len()), (before + 4, 1));
    let ending = protocol::parse_event(&ending.items[0]).expect("an event").body;
    assert_eq!(code(&ending).map(|(code, _)| code), Some(ErrorCode::DaemonRestarted));
    assert_eq!(code(&fixture.ending(&b).await).map(|(code, _)| code), Some(ErrorCode::DaemonRestarted));
    assert!(matches!(fixture.ending(&c).await, EventBody::Completed { .. }));
    assert_eq!(fixture.names(&c).iter().filter(|name| **name == "task:accepted").count(), 1);
    fixture.idle().await;
    let fixture = fixture.killed().welcomed(&[]).await;
    assert!(fixture.mesh.held().is_empty(), "endings are not repeated");
}

#[tokio::test]
async fn a_result_that_was_not_sent_survives_and_leaves_when_it_is_acknowledged() {
    let mut fixture = Fixture::new().welcomed(&[]).await;
    let attempt = fixture.submit("hello").await;
    let last = fixture.until(&attempt, EventBody::is_terminal).await.seq;
    let fixture = fixture.killed();
    assert!(matches!(fixture.ending(&attempt).await, EventBody::Completed { .. }));
    assert_eq!(fixture.mesh.unsettled(), std::slice::from_ref(&attempt));
    let fixture = fixture.welcomed(&[(&attempt, 1)]).await;
    fixture.mesh.acknowledged(vec![(attempt.clone(), last)]).await;
    assert!(fixture.mesh.unsettled().is_empty() && fixture.mesh.outbox().ranges().is_empty());
}

#[tokio::test]
async fn commands_are_applied_once() {
    let mut fixture = Fixture::new().welcomed(&[]).await;
    let attempt = fixture.submit("hello").await;
    fixture.ending(&attempt).await;
    fixture.idle().await;
    let before = fixture.events(&attempt).len();
    let again: TaskSubmit = serde_json::from_value(json!({"taskId": attempt.task_id, "attempt": 1,
        "sessionId": SessionId::new(1), "agentId": "echo", "goal": "hello"}))
    .expect("a submit");
    let command = Command::Submit(Box::new(again));
    assert_eq!(
        fixture.mesh.take(vec![NumberedCommand { cmd_seq: 1, command: command.clone() }]).await.expect("a duplicate"),
        1
    );
    assert_eq!((fixture.events(&attempt).len(), fixture.mesh.load()), (before, (0, 0)));
    assert!(fixture.mesh.take(vec![NumberedCommand { cmd_seq: 9, command: command.clone() }]).await.is_err());
    fixture.command(command).await;
    assert_eq!((fixture.events(&attempt).len(), fixture.mesh.load()), (before, (0, 0)), "the attempt is over");
}

#[tokio::test]
async fn a_newer_attempt_fences_the_older_one() {
    let mut fixture = Fixture::new().welcomed(&[]).await;
    let attempt = fixture.submit("wait").await;
    fixture.started(&attempt).await;
    fixture.mesh.fence(&[Fence { task_id: attempt.task_id.clone(), min_attempt: 2 }]);
    assert!(matches!(fixture.ending(&attempt).await, EventBody::Stopped { .. }));
}

#[tokio::test]
async fn a_drained_viber_begins_nothing_also_after_a_restart() {
    let mut fixture = Fixture::new().welcomed(&[]).await;
    fixture.command(Command::Drain { drained: true }).await;
    let attempt = fixture.submit("hello").await;
    let mut fixture = fixture.killed().welcomed(&[]).await;
    assert!(fixture.mesh.is_drained() && fixture.mesh.load() == (0, 1));
    fixture.command(Command::Drain { drained: false }).await;
    assert!(matches!(fixture.ending(&attempt).await, EventBody::Completed { .. }));
}

#[tokio::test]
async fn closing_waits_and_cutting_says_why() {
    let mut fixture = Fixture::new().welcomed(&[]).await;
    let attempt = fixture.submit("wait").await;
    fixture.started(&attempt).await;
    fixture.mesh.stop_running();
    fixture.mesh.finish_running().await;
    assert_eq!(code(&fixture.ending(&attempt).await).map(|(code, _)| code), Some(ErrorCode::DaemonRestarted));
}

#[tokio::test]
async fn a_local_task_is_announced_and_ended_after_a_kill() {
    let fixture = Fixture::new();
    let attempt = fixture
        .mesh
        .begin_local("cli", LocalTask { goal: "wait".to_owned(), agent: "echo".to_owned(), session: None, space: None })
        .await;
    fixture.waits(&attempt).await;
    assert_eq!(fixture.names(&attempt)[..2], ["task:announce", "task:started"]);
    let fixture = fixture.killed().welcomed(&[]).await;
    assert_eq!(code(&fixture.ending(&attempt).await).map(|(code, _)| code), Some(ErrorCode::DaemonRestarted));
}

/// A fixture where an attempt runs, the attempt, and the size of the journal right before the attempt was recorded as
/// begun. A copy of its home is what a kill would leave.
async fn at_work() -> (Fixture, AttemptRef, usize) {
    let mut fixture = Fixture::new().welcomed(&[]).await;
    let attempt = fixture.submit("wait").await;
    fixture.waits(&attempt).await;
    let bytes = std::fs::read(fixture.mesh.home().journal()).expect("a journal");
    let sizes = crate::outbox::salvage(&bytes).map(|stretch| match stretch {
        crate::outbox::FileSpan::Sound(record) => record.size(),
        crate::outbox::FileSpan::Damaged(_) => panic!("a damaged journal"),
    });
    let before = bytes.len() - sizes.last().expect("records");
    (fixture, attempt, before)
}

/// A fixture's home as another daemon finds it, modified by `change`.
fn copy_of(fixture: &Fixture, change: impl FnOnce(&Home)) -> Fixture {
    let folder = tempfile::tempdir().expect("a folder");
    for path in ["state", "agents", "config.yaml"] {
        copy(&fixture.folder.path().join(path), &folder.path().join(path));
    }
    change(&Home::at(folder.path()));
    let (mesh, files) = Fixture::start(&folder);
    Fixture { folder, mesh, next_cmd: fixture.next_cmd, _files: files }
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    if from.is_dir() {
        std::fs::create_dir_all(to).expect("made");
        for entry in std::fs::read_dir(from).expect("readable").flatten() {
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else if from.is_file() && from.file_name().is_some_and(|name| name != "reserve") {
        std::fs::copy(from, to).expect("copied");
    }
}

/// Checks that the attempt was ended with a reason, and that nothing of it was begun again.
async fn not_begun_again(fixture: &Fixture, attempt: &AttemptRef, how: &str) {
    let started = |fixture: &Fixture| fixture.names(attempt).iter().filter(|name| **name == "task:started").count();
    let before = started(fixture);
    let (found, _) = code(&fixture.ending(attempt).await).unwrap_or_else(|| panic!("{how}: an error"));
    assert!(matches!(found, ErrorCode::DaemonRestarted | ErrorCode::Internal), "{how}: {found:?}");
    assert_eq!((started(fixture), fixture.mesh.load()), (before, (0, 0)), "{how}");
}

#[tokio::test]
async fn a_journal_that_is_cut_anywhere_behind_the_beginning_begins_nothing_twice() {
    let (fixture, attempt, before) = at_work().await;
    let whole = std::fs::read(fixture.mesh.home().journal()).expect("a journal").len();
    let cut = |at: usize| {
        move |home: &Home| {
            let bytes = std::fs::read(home.journal()).expect("a journal");
            std::fs::write(home.journal(), &bytes[..at]).expect("cut");
        }
    };
    for at in before..whole {
        // The outbox is there, and the Board knows nothing: only the outbox tells.
        let found = copy_of(&fixture, cut(at)).welcomed(&[]).await;
        not_begun_again(&found, &attempt, &format!("cut at {at}, by the outbox")).await;
        // The outbox is gone as well: what the Board has recorded tells.
        let gone = |home: &Home| {
            cut(at)(home);
            std::fs::remove_dir_all(home.outbox()).expect("removed");
            std::fs::remove_dir_all(home.agents().join("echo")).expect("removed");
        };
        let found = copy_of(&fixture, gone).welcomed(&[(&attempt, 2)]).await;
        let mut bell = found.mesh.outbox().bell();
        while !found.mesh.outbox().has(&attempt, 3) {
            bell.changed().await.expect("rings");
        }
        let batch = found.mesh.outbox().read(&attempt, 3, 1 << 20).expect("an ending");
        let ending = protocol::parse_event(&batch.items[0]).expect("an event").body;
        assert_eq!(code(&ending).map(|(code, _)| code), Some(ErrorCode::DaemonRestarted), "cut at {at}, by the Board");
    }
    // Only the session's log is left, and the Board has received nothing.
    let gone = |home: &Home| {
        cut(before)(home);
        std::fs::remove_dir_all(home.outbox()).expect("removed");
    };
    not_begun_again(&copy_of(&fixture, gone).welcomed(&[]).await, &attempt, "by the session's log").await;
    // Nothing says that it began, because it did not: now it does.
    let never = |home: &Home| {
        gone(home);
        std::fs::remove_dir_all(home.agents().join("echo")).expect("removed");
    };
    copy_of(&fixture, never).welcomed(&[]).await.started(&attempt).await;
}

#[tokio::test]
async fn a_journal_that_is_damaged_gone_or_old_begins_nothing_twice() {
    let (fixture, attempt, before) = at_work().await;
    type Change = Box<dyn Fn(&Home)>;
    let changed = |change: fn(&mut Vec<u8>, usize)| -> Change {
        Box::new(move |home: &Home| {
            let mut bytes = std::fs::read(home.journal()).expect("a journal");
            change(&mut bytes, before);
            std::fs::write(home.journal(), bytes).expect("changed");
        })
    };
    let changes: [(&str, Change); 7] = [
        (
            "garbage behind it",
            changed(|bytes, before| {
                bytes.truncate(before);
                bytes.extend([0xa5; 300]);
            }),
        ),
        (
            "zeros behind it",
            changed(|bytes, before| {
                bytes.truncate(before);
                bytes.extend([0; 4096]);
            }),
        ),
        ("a bit of the beginning", changed(|bytes, before| bytes[before + 30] ^= 4)),
        ("a shorter length", changed(|bytes, before| bytes[before] = bytes[before].wrapping_sub(1))),
        ("a bit of the command", changed(|bytes, before| bytes[before - 30] ^= 4)),
        ("no journal", Box::new(|home| std::fs::remove_file(home.journal()).expect("removed"))),
        (
            "a folder in its place",
            Box::new(|home| {
                std::fs::remove_file(home.journal()).expect("removed");
                std::fs::create_dir(home.journal()).expect("made");
            }),
        ),
    ];
    for (how, change) in &changes {
        let found = copy_of(&fixture, change).welcomed(&[]).await;
        not_begun_again(&found, &attempt, how).await;
        // The Board may send the command again: it does not know that it arrived.
        let again: TaskSubmit = serde_json::from_value(json!({"taskId": attempt.task_id, "attempt": 1,
            "sessionId": SessionId::new(1), "agentId": "echo", "goal": "wait"}))
        .expect("a submit");
        let next = found.mesh.last_cmd_seq() + 1;
        let command = NumberedCommand { cmd_seq: next, command: Command::Submit(Box::new(again)) };
        found.mesh.take(vec![command]).await.expect("taken");
        assert_eq!(found.mesh.load(), (0, 0), "{how}");
        let kept = std::fs::read_dir(found.mesh.home().damaged()).is_ok_and(|kept| kept.count() == 1);
        assert_eq!(kept, *how != "no journal", "{how}: the original is kept");
    }
}

#[tokio::test]
async fn an_old_state_folder_begins_nothing_that_the_board_has_seen_the_end_of() {
    let mut fixture = Fixture::new().welcomed(&[]).await;
    fixture.command(Command::Drain { drained: true }).await;
    let [a, b] = [fixture.submit("hello").await, fixture.submit("hello").await];
    // A backup of this moment is restored after both were over for the Board, or unwanted.
    let over = json!({"over": [{"taskId": a.task_id, "attempt": 1}], "stopped": [{"taskId": b.task_id, "attempt": 1}],
        "acked": [{"taskId": a.task_id, "attempt": 1, "seq": 9}, {"taskId": b.task_id, "attempt": 1, "seq": 1}]});
    let mut found = copy_of(&fixture, |_| {}).welcomed_with(over).await;
    assert!(matches!(found.ending(&b).await, EventBody::Stopped { .. }));
    assert_eq!((found.mesh.outbox().next(&a), found.mesh.load()), (0, (0, 0)), "let go of");
    found.command(Command::Drain { drained: false }).await;
    found.idle().await;
    assert_eq!(found.mesh.outbox().next(&a), 0);
    // If the Board has more of an attempt than its acceptance, it was at work.
    let found = copy_of(&fixture, |_| {}).welcomed(&[(&a, 7)]).await;
    let mut bell = found.mesh.outbox().bell();
    while !found.mesh.outbox().has(&a, 8) {
        bell.changed().await.expect("rings");
    }
    assert_eq!(found.mesh.load(), (0, 1), "the other one waits");
}
