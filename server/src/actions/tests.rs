//! Cases that the real daemon of the test suite does not produce: announced tasks, false reports of what runs, late
//! reports, expiry.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicI64},
};

use protocol::{AgentEvent, AgentStreamEvent, AttemptRef, Event, EventBody, Events, Hello, Instant, TaskId, TeamId};
use serde_json::{json, value::RawValue};

use super::{
    enrol, reconcile,
    record::{self, RecordReply},
    retention, tasks, teams, vibers,
};
use crate::{
    args,
    clock::Clock,
    db,
    domain::{By, Committed, Connection, ContactState, Part, Task, TaskState},
    guard::Keys,
    hub::LinkMessage,
    state::Board,
};

const START: i64 = 1_800_000_000_000;

/// A Board on SQLite with one team and one enrolled viber.
struct Lab {
    _folder: tempfile::TempDir,
    board: Board,
    now: Arc<AtomicI64>,
    team: TeamId,
    connection: Connection,
}

impl Lab {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let now = Arc::new(AtomicI64::new(START));
        let db = db::Db::open(&format!("sqlite://{}/board.db", folder.path().display())).await.expect("a database");
        db.audit_chain().use_keys(crate::secret::audit_keys::AuditKeys::new(&[7; 32], &[]));
        let keys = Keys::kept(&folder.path().join("keys"), START).expect("keys");
        let config = crate::config::Config::local(folder.path().into());
        let board = Board::new(config, db, keys, Clock::Manual(now.clone()));
        let team = teams::add(&board, &By::console(), "home", "Home").await.expect("a team").id;
        let (secret, _) = vibers::join_token(&board, &team, &By::console(), &BTreeMap::new()).await.expect("a token");
        let joining = enrol::JoinRequest { token: secret.reveal().into(), name: "kiln".into(), ..Default::default() };
        let joined = enrol::join(&board, joining, "").await.expect("a viber");
        let connection = Connection {
            team: team.clone(),
            viber: joined.viber,
            name: "kiln".into(),
            address: String::new(),
            epoch: 0,
        };
        let mut lab = Self { _folder: folder, board, now, team, connection };
        lab.connect(0).await;
        lab
    }

    async fn connect(&mut self, last_cmd_seq: u64) -> reconcile::Welcomed {
        let hello: Hello = serde_json::from_value(json!({"protocol": [1, 1], "viberId": self.connection.viber,
            "bootId": protocol::BootId::new(1), "version": "1", "platform": "linux", "hostname": "kiln",
            "lastCmdSeq": last_cmd_seq}))
        .expect("a hello");
        let accepted = reconcile::accept(&self.board, &self.connection, &hello, false).await;
        self.connection.epoch = accepted.expect("an epoch");
        reconcile::welcome(&self.board, &self.connection, &hello).await.expect("a welcome")
    }

    async fn submit(&self, goal: &str) -> Task {
        let submit = tasks::NewTask { goal: goal.into(), ..Default::default() };
        tasks::submit(&self.board, &self.team, &By::console(), submit).await.expect("a task")
    }

    async fn report(&self, task: &TaskId, from: u64, bodies: Vec<EventBody>) -> Option<RecordReply> {
        let item = |(n, body): (usize, EventBody)| {
            let event = Event { seq: from + n as u64, at: Instant(START), body };
            RawValue::from_string(serde_json::to_string(&event).expect("JSON")).expect("JSON")
        };
        let items = bodies.into_iter().enumerate().map(item).collect();
        let frame = Events { task_id: task.clone(), attempt: 1, from, items };
        record::record(&self.board, &self.connection, [frame].into(), None).await.expect("recorded or refused")
    }

    async fn task(&self, id: &TaskId) -> Task {
        db::tasks::load(&mut self.reader().await, id).await.expect("a read").expect("a task")
    }

    async fn events(&self, id: &TaskId) -> Vec<Committed> {
        db::events::after(&mut self.reader().await, id, 1, 0, 100).await.expect("a read")
    }

    /// The bytes that a gap at the beginning of the attempt stands for.
    async fn gap_bytes(&self, id: &TaskId) -> u64 {
        match self.events(id).await[0].items[0].report().body {
            Some(EventBody::Progress { event: AgentEvent { event: AgentStreamEvent::Gap { bytes, .. }, .. } }) => bytes,
            other => panic!("no gap: {other:?}"),
        }
    }

    /// Kinds of parts of the session's messages, by message.
    async fn parts(&self, task: &Task) -> Vec<Vec<Part>> {
        let messages = db::messages::page(&mut self.reader().await, &task.session_id, None, 50).await.expect("a read");
        messages.into_iter().map(|message| message.parts).collect()
    }

    async fn version(&self, task: &Task) -> u64 {
        let found = self.reader().await.query(db::sessions::versioned_query(&task.session_id)).await;
        found.expect("a read").expect("a session").1
    }

    async fn reader(&self) -> db::TeamTx<'_> {
        self.board.db.reader_of(&self.team).await.expect("a reader")
    }

    fn pass(&self, millis: i64) {
        self.now.fetch_add(millis, std::sync::atomic::Ordering::SeqCst);
    }
}

fn text(content: &str) -> EventBody {
    let event = AgentStreamEvent::TextDelta { content: content.into() };
    EventBody::Progress { event: AgentEvent { agent_id: "default".into(), event } }
}

fn started() -> EventBody {
    EventBody::Started { pid: None, model: "lab/model".into(), engine: "lab".into() }
}

fn completed(text: &str) -> EventBody {
    EventBody::Completed { result: protocol::TaskResult { text: text.into(), ..Default::default() } }
}

#[tokio::test]
async fn a_task_that_began_on_the_machine_gets_a_session_and_a_question() {
    let lab = Lab::new().await;
    let (id, session_id) = (TaskId::new(START), protocol::SessionId::new(START));
    let goal = "nightly\0 report".to_owned();
    let (origin, agent_id, author) = ("job".into(), "default".into(), Some("Mia\n\u{202e}".to_owned()));
    let announce = EventBody::Announce { origin, agent_id, session_id, goal, parent: None, author };
    let answers = lab.report(&id, 1, vec![announce, started(), text("done"), completed("done")]).await.expect("heard");
    assert_eq!((answers.acks[0].seq, answers.refused.len()), (4, 0));
    let task = lab.task(&id).await;
    assert_eq!(
        (task.state, task.origin.as_str(), task.goal.as_str()),
        (TaskState::Completed, "job", "nightly\u{fffd} report")
    );
    assert_eq!(task.author(), Some("Mia"), "cleaned");
    assert_eq!(lab.parts(&task).await.len(), 2);
    let stranger = lab.report(&TaskId::new(START + 1), 1, vec![started()]).await.expect("heard");
    assert_eq!(stranger.refused[0].0, "forbidden_task");
}

#[tokio::test]
async fn numbers_of_commands_are_raised_by_the_board_and_not_by_the_viber() {
    let mut lab = Lab::new().await;
    lab.connect(7).await;
    let entry = db::audit::newest(&mut lab.reader().await).await.expect("a read").expect("an entry");
    assert_eq!((entry.action.as_str(), entry.actor.as_str()), ("viber.cmd_seq_raised", "board"));
}

#[tokio::test]
async fn a_stop_before_the_viber_came_is_never_begun_and_makes_room() {
    let mut lab = Lab::new().await;
    let first = lab.submit("first").await;
    let next = tasks::NewTask { goal: "second".into(), session: Some(first.session_id.clone()), ..Default::default() };
    let second = tasks::submit(&lab.board, &lab.team, &By::console(), next).await.expect("a task");
    tasks::stop(&lab.board, &lab.team, &By::console(), &first.id, "changed my mind").await.expect("a stop");
    assert!(lab.task(&first.id).await.stop_confirmed_at.is_none());
    assert_eq!(lab.task(&second.id).await.delivery, Some(crate::domain::Delivery::Queued));
    lab.connect(0).await;
    reconcile::withdraw(&lab.board, &lab.connection, &[(first.id.clone(), 1)]).await.expect("withdrawn");
    assert!(lab.task(&first.id).await.stop_confirmed_at.is_some());
    assert_eq!(lab.task(&second.id).await.delivery, Some(crate::domain::Delivery::Offered));
}

#[tokio::test]
async fn an_older_connection_is_not_heard_and_a_restored_board_counts_on() {
    let mut lab = Lab::new().await;
    let task = lab.submit("go").await;
    let old = lab.connection.clone();
    lab.connect(41).await;
    let new = std::mem::replace(&mut lab.connection, old);
    assert!(lab.report(&task.id, 1, vec![started()]).await.is_none());
    lab.connection = new;
    assert!(lab.report(&task.id, 1, vec![started()]).await.is_some());
    let viber = lab.connection.viber.clone();
    let given = lab.board.change(&lab.team, &By::console(), move |tx| {
        let viber = viber.clone();
        Box::pin(async move { db::vibers::next_cmd_seq(tx, &viber).await })
    });
    assert_eq!(given.await.expect("a change"), Some(42));
}

#[tokio::test]
async fn what_the_board_declared_gives_way_to_what_happened() {
    let lab = Lab::new().await;
    let task = lab.submit("go").await;
    lab.report(&task.id, 1, vec![EventBody::Accepted {}, started()]).await;
    let one = [AttemptRef { task_id: task.id.clone(), attempt: 1 }];
    let verdict = reconcile::AttemptVerdict::DaemonRestarted;
    let Connection { team, viber, epoch, .. } = &lab.connection;
    let seen = reconcile::LastSeen { team, viber, epoch: *epoch };
    reconcile::settle(&lab.board, seen, &one, verdict).await.expect("settled");
    assert_eq!(lab.task(&task.id).await.state, TaskState::Error);
    lab.report(&task.id, 3, vec![completed("after all")]).await;
    let task = lab.task(&task.id).await;
    assert_eq!((task.state, task.error), (TaskState::Completed, None));
    assert_eq!(task.result.map(|result| result.text).as_deref(), Some("after all"));
    let again = lab.report(&task.id, 4, vec![completed("twice")]).await.expect("heard");
    assert_eq!(again.refused[0].0, "attempt_ended");
}

#[tokio::test]
async fn a_false_claim_is_written_down() {
    let lab = Lab::new().await;
    let claim = [AttemptRef { task_id: TaskId::new(7), attempt: 1 }];
    reconcile::claims(&lab.board, &lab.connection, &claim).await.expect("looked up");
    let sql = "SELECT COUNT(*) AS n FROM audit WHERE team_id = $1 AND action = 'link.false_claim'";
    let row = lab.reader().await.row(sql, &[]).await.expect("a read").expect("a row");
    assert_eq!(row.int("n").expect("a count"), 1);
}

#[tokio::test]
async fn text_joins_the_row_before_it_while_that_is_small() {
    let lab = Lab::new().await;
    let task = lab.submit("go").await;
    lab.report(&task.id, 1, vec![EventBody::Accepted {}, started()]).await;
    for seq in 3..7 {
        lab.report(&task.id, seq, vec![text("wörd ")]).await;
    }
    // A daemon that did not get the acks sends what is inside of the row again, and goes on.
    let again = lab.report(&task.id, 5, vec![text("wörd "), text("wörd "), text("end")]).await.expect("heard");
    assert_eq!((again.refused.len(), again.acks[0].seq), (0, 7));
    let lie = lab.report(&task.id, 4, vec![text("lie")]).await.expect("heard");
    assert_eq!(lie.refused[0].0, "seq_conflict");
    let long = "x".repeat(2000);
    lab.report(&task.id, 8, vec![text(&long)]).await;
    lab.report(&task.id, 9, vec![text(" tail")]).await;
    lab.report(&task.id, 10, vec![text(".")]).await;
    let rows = lab.events(&task.id).await;
    assert_eq!(rows.iter().map(|row| (row.from, row.to)).collect::<Vec<_>>(), [(1, 7), (8, 8), (9, 10)]);
    let rest = db::events::after(&mut lab.reader().await, &task.id, 1, 5, 1).await.expect("a read");
    assert_eq!(rest[0].items.iter().map(|item| item.seq).collect::<Vec<_>>(), [6, 7]);
    assert_eq!(db::usage::drift(&mut lab.reader().await).await.expect("a read"), 0);
    let whole = format!("{}end{long} tail.", "wörd ".repeat(4));
    lab.report(&task.id, 11, vec![completed(&whole)]).await;
    assert_eq!(lab.parts(&task).await[1], [Part::text(&whole)]);
}

#[tokio::test]
async fn old_events_give_way_to_a_gap_and_their_parts_stay() {
    let lab = Lab::new().await;
    let task = lab.submit("go").await;
    let said = vec![EventBody::Accepted {}, started(), text("all "), text("done"), completed("all done")];
    lab.report(&task.id, 1, said.clone()).await;
    retention::trim_events(&lab.board).await.expect("a sweep");
    assert_eq!(lab.events(&task.id).await[0].items.len(), 5, "too young");
    lab.pass(31 * 24 * 60 * 60 * 1000);
    retention::trim_events(&lab.board).await.expect("a sweep");
    let left = lab.events(&task.id).await;
    let names: Vec<_> = left[0].items.iter().map(|item| (item.seq, item.report().first)).collect();
    assert_eq!(names, [(4, 1), (5, 5)]);
    assert_eq!(lab.parts(&task).await[1], [Part::text("all done")]);
    // A daemon that did not get the ack sends everything again: a repetition, not a contradiction.
    let again = lab.report(&task.id, 1, said).await.expect("heard");
    assert_eq!((again.refused.len(), again.acks[0].seq), (0, 5));
    retention::trim_events(&lab.board).await.expect("a sweep");
    assert_eq!(lab.events(&task.id).await[0].items.len(), 2, "once");
}

#[tokio::test]
async fn a_gap_that_grows_again_counts_what_it_stood_for() {
    let lab = Lab::new().await;
    let task = lab.submit("go").await;
    let long = "x".repeat(700);
    lab.report(&task.id, 1, vec![EventBody::Accepted {}, started(), text(&long), text("so far")]).await.expect("heard");
    let one = [AttemptRef { task_id: task.id.clone(), attempt: 1 }];
    let Connection { team, viber, epoch, .. } = &lab.connection;
    let seen = reconcile::LastSeen { team, viber, epoch: *epoch };
    reconcile::settle(&lab.board, seen, &one, reconcile::AttemptVerdict::Lost).await.expect("settled");
    lab.pass(31 * 24 * 60 * 60 * 1000);
    retention::trim_events(&lab.board).await.expect("a sweep");
    let first = lab.gap_bytes(&task.id).await;
    assert!(first > 700, "{first}");
    // It was not lost. The text joins the row of the gap, the end gets a row of its own.
    lab.report(&task.id, 5, vec![text(&" and then".repeat(30))]).await.expect("heard");
    lab.report(&task.id, 6, vec![completed("done")]).await.expect("heard");
    let rows = lab.events(&task.id).await;
    assert_eq!(rows.iter().map(|row| (row.from, row.to)).collect::<Vec<_>>(), [(1, 5), (6, 6)]);
    let late = rows.iter().flat_map(|row| &row.items).filter(|item| item.seq > 4);
    let late: u64 = late.map(|item| item.json.len() as u64).sum();
    lab.pass(31 * 24 * 60 * 60 * 1000);
    retention::trim_events(&lab.board).await.expect("a sweep");
    assert_eq!(lab.events(&task.id).await[0].items.len(), 2, "the gap and the end");
    let again = lab.gap_bytes(&task.id).await;
    // A row also has brackets.
    assert!((first + late..first + late + 10).contains(&again), "{first} and {late} are {again}");
}

#[tokio::test]
async fn the_vibers_of_a_suspended_team_are_unheard_after_a_restart_too() {
    let lab = Lab::new().await;
    let mut reader = lab.board.db.reader().await.expect("a reader");
    let team = db::teams::load(&mut reader, &lab.team).await.expect("a read").expect("a team");
    drop(reader);
    teams::set_suspended(&lab.board, &By::console(), &team, true).await.expect("suspended");
    assert_eq!(reconcile::begin_unheard(&lab.board).await.expect("a start"), 1);
    teams::resume(&lab.board, &By::console(), &team).await.expect("resumed");
    let viber = db::vibers::load(&mut lab.reader().await, &lab.connection.viber).await.expect("a read");
    assert_eq!(viber.expect("a viber").contact.state, ContactState::Unheard);
    assert_eq!(reconcile::begin_unheard(&lab.board).await.expect("a start"), 0, "nobody has dialled in since");
}

/// Pages keep messages while the version stays as it is.
#[tokio::test]
async fn what_shown_messages_gain_raises_their_sessions_version() {
    let lab = Lab::new().await;
    let task = lab.submit("go").await;
    let asked = lab.version(&task).await;
    let notice = AgentStreamEvent::Notice { level: protocol::NoticeLevel::Info, text: "so far".into() };
    let notice = EventBody::Progress { event: AgentEvent { agent_id: "default".into(), event: notice } };
    lab.report(&task.id, 1, vec![EventBody::Accepted {}, started(), notice, text("and then")]).await;
    let running = lab.version(&task).await;
    assert!(running > asked, "a part is complete");
    lab.report(&task.id, 5, vec![text(" silence")]).await;
    assert_eq!(lab.version(&task).await, running, "no part is complete");
    let one = [AttemptRef { task_id: task.id.clone(), attempt: 1 }];
    let Connection { team, viber, epoch, .. } = &lab.connection;
    let seen = reconcile::LastSeen { team, viber, epoch: *epoch };
    reconcile::settle(&lab.board, seen, &one, reconcile::AttemptVerdict::Lost).await.expect("settled");
    let lost = lab.version(&task).await;
    assert!(lost > running, "the task has ended");
    let parts = lab.parts(&task).await[1].len();
    lab.pass(31 * 24 * 60 * 60 * 1000);
    retention::trim_events(&lab.board).await.expect("a sweep");
    let trimmed = lab.version(&task).await;
    assert!(lab.parts(&task).await[1].len() > parts && trimmed > lost, "what was open is a part now");
    tasks::retry(&lab.board, &lab.team, &By::console(), &task.id, tasks::Retry::default()).await.expect("a retry");
    assert!(lab.version(&task).await > trimmed, "its answer is an earlier attempt's");
}

#[tokio::test]
async fn attempts_with_few_events_are_trimmed_together_and_none_is_left_out() {
    let lab = Lab::new().await;
    let mut all = Vec::new();
    // The one in the middle has more events than are trimmed together.
    for sentences in [1, 2, 60, 1, 3, 1, 1, 1, 1, 1, 1, 1, 1] {
        let task = lab.submit("go").await;
        lab.report(&task.id, 1, vec![EventBody::Accepted {}, started()]).await.expect("heard");
        for n in 0..sentences {
            lab.report(&task.id, 3 + n, vec![text("all ")]).await.expect("heard");
        }
        lab.report(&task.id, 3 + sentences, vec![completed("all done")]).await.expect("heard");
        lab.pass(1000);
        all.push((task.id, 3 + sentences));
    }
    lab.pass(31 * 24 * 60 * 60 * 1000);
    retention::trim_events(&lab.board).await.expect("a sweep");
    for (task, last) in all {
        let left = lab.events(&task).await;
        let names: Vec<_> =
            left.iter().flat_map(|run| &run.items).map(|item| (item.seq, item.report().first)).collect();
        assert_eq!(names, [(last - 1, 1), (last, last)]);
    }
    let begin = db::attempts::EndedPlace::default();
    let stale = db::attempts::stale(&mut lab.reader().await, lab.board.clock.now(), &begin, 10).await;
    assert!(stale.expect("a read").is_empty());
}

#[tokio::test]
async fn events_that_are_damaged_give_way_too() {
    let lab = Lab::new().await;
    let (broken, cut) = (lab.submit("go").await, lab.submit("go").await);
    let said = vec![EventBody::Accepted {}, started(), text("all"), completed("all")];
    lab.report(&broken.id, 1, said).await.expect("heard");
    lab.report(&cut.id, 1, vec![EventBody::Accepted {}, started()]).await.expect("heard");
    for n in 3..33 {
        lab.report(&cut.id, n, vec![text("all ")]).await.expect("heard");
    }
    lab.report(&cut.id, 33, vec![completed("all")]).await.expect("heard");
    for (sql, task) in [
        ("UPDATE events SET body = 'nonsense' WHERE team_id = $1 AND task_id = $2", &broken.id),
        ("DELETE FROM events WHERE team_id = $1 AND task_id = $2 AND to_seq = 33", &cut.id),
    ] {
        let (team, task) = (lab.team.clone(), task.clone());
        let damage = lab.board.db.write(move |tx| {
            let (team, task) = (team.clone(), task.clone());
            Box::pin(async move { tx.of(&team).execute(sql, args![&task]).await })
        });
        assert_eq!(damage.await.expect("a write"), 1);
    }
    lab.pass(31 * 24 * 60 * 60 * 1000);
    let trimmed = tokio::time::timeout(std::time::Duration::from_secs(20), retention::trim_events(&lab.board));
    trimmed.await.expect("it ends").expect("a sweep");
    for (task, last) in [(&broken.id, 3), (&cut.id, 32)] {
        let left = lab.events(task).await;
        let names: Vec<_> =
            left.iter().flat_map(|run| &run.items).map(|item| (item.seq, item.report().first)).collect();
        assert_eq!(names, [(last, 1)]);
    }
    let begin = db::attempts::EndedPlace::default();
    let stale = db::attempts::stale(&mut lab.reader().await, lab.board.clock.now(), &begin, 10).await;
    assert!(stale.expect("a read").is_empty());
}

#[tokio::test]
async fn a_sessions_first_task_is_handed_over_and_what_follows_is_read() {
    let lab = Lab::new().await;
    let Connection { team, viber, epoch, .. } = &lab.connection;
    let registration = lab.board.hub.register(team, viber, *epoch, START).expect("a place");
    let firsts = [lab.submit("sweep").await, lab.submit("mop").await];
    let LinkMessage::Commands { inline, more } = registration.next_message().await else { panic!("no commands") };
    let handed: Vec<_> = inline.iter().map(|one| (one.cmd_seq, &one.task.id)).collect();
    assert_eq!((handed, more), (vec![(1, &firsts[0].id), (2, &firsts[1].id)], false));
    // More inline commands than may wait for a link, then a task that has a history.
    for _ in 0..5 {
        lab.submit("dust").await;
    }
    let LinkMessage::Commands { inline, more } = registration.next_message().await else { panic!("no commands") };
    assert_eq!((inline.len(), more), (4, true));
    lab.report(&firsts[0].id, 1, vec![started(), completed("swept")]).await.expect("heard");
    let session = Some(firsts[0].session_id.clone());
    let next = tasks::NewTask { goal: "once more".into(), session, ..Default::default() };
    tasks::submit(&lab.board, team, &By::console(), next).await.expect("a task");
    assert!(
        matches!(registration.next_message().await, LinkMessage::Commands { inline, more: true } if inline.is_empty())
    );
}
