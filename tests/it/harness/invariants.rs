//! The invariant checker can fail: each check is shown rows, a ledger or a process that break it.

use board_tests::{
    Board, Engine, FakeDaemon, ProcessWatch,
    board::HOME,
    fake_daemon::{accepted, completed, started, text},
    invariants::{Dump, NOTES_FILE, rows},
    ledger::{LedgerEntries, Submit, View},
    person::StreamFrame,
    programs::Process,
    tasks::id,
};
use serde_json::{Value, json};

/// A Board with one finished task that a viewer watched, and the ledger's entries.
struct Played {
    board: Board,
    dump: Dump,
    entries: LedgerEntries,
    views: Vec<View>,
    task: String,
}

async fn played(engine: Engine) -> Played {
    let board = Board::start(engine).await;
    let operator = board.token(HOME, "operator").await;
    let mut daemon = FakeDaemon::connected(&board, "lab").await;
    let task = operator.submit(daemon.id.as_str(), "go").await;
    let submit = daemon.submitted().await;
    let mut stream = operator.stream(&format!("/api/v1/tasks/{}/events", id(&task, "id")), None).await;
    let events = vec![accepted(), started(), text("a"), text("b"), completed("done")];
    daemon.report(&submit.task_id, 1, 1, events).await;
    stream.until("end").await;
    board.assert_invariants().await;
    let entries = board.ledger().read();
    let views = entries.views.iter().map(|view| view.lock().expect("not poisoned").clone()).collect();
    Played { dump: Dump::of(&board).await.expect("rows"), entries, views, task: id(&task, "id").to_owned(), board }
}

impl Played {
    /// The findings after `harm` was done to rows, entries and views.
    fn after(&self, harm: impl FnOnce(&mut Dump, &mut LedgerEntries, &mut Vec<View>)) -> Vec<String> {
        let (mut dump, mut entries, mut views) = (self.dump.clone(), self.entries.clone(), self.views.clone());
        harm(&mut dump, &mut entries, &mut views);
        rows(&dump, &entries, &views, 10_000_000).0
    }

    /// The same to one table's rows.
    fn rows(&self, table: &str, harm: impl FnOnce(&mut Vec<serde_json::Map<String, Value>>)) -> Vec<String> {
        self.after(|dump, _, _| harm(dump.rows_mut(table)))
    }
}

#[track_caller]
fn finds(wrong: &[String], number: &str) {
    assert!(wrong.iter().any(|line| line.starts_with(&format!("{number} "))), "{number} is not among {wrong:#?}");
}

crate::on_both_databases!(rows_that_lie_are_found);

async fn rows_that_lie_are_found(engine: Engine) {
    let played = played(engine).await;
    let task = played.task.clone();
    assert_eq!(played.after(|_, _, _| {}), Vec::<String>::new(), "nothing was harmed");

    // I1: an acknowledged task is missing; one is there twice; one key made two; one that nobody was told of.
    finds(&played.rows("tasks", Vec::clear), "I1");
    finds(&played.after(|_, entries, _| entries.submits.clear()), "I1");
    let key = Some(("me".to_owned(), "key".to_owned()));
    let one = |task: &str| Submit { task: task.into(), session: "ses_x".into(), key: key.clone() };
    finds(&played.after(|_, entries, _| entries.submits.extend([one(&task), one("task_other")])), "I1");
    // I2: handed out under two numbers; begun twice.
    let at = (task.clone(), 1);
    let twice = |entries: &mut LedgerEntries| {
        assert!(entries.offers.get_mut(&at).expect("it was").insert(("vib_x".into(), 99)))
    };
    finds(&played.after(|_, entries, _| twice(entries)), "I2");
    let root = tempfile::tempdir().expect("a folder");
    std::fs::write(root.path().join(NOTES_FILE), format!("begin {task} 1 7\nbegin {task} 1 8\n")).expect("a note");
    finds(&played.after(|_, entries, _| entries.vibers.push(root.path().to_owned())), "I2");
    // I3: a hole, other bytes, a missing end, events of nothing.
    finds(&played.rows("events", |rows| drop(rows.remove(0))), "I3");
    let word = |row: &mut serde_json::Map<String, Value>, from: &str, to: &str| {
        let body = row["body"].as_str().expect("text").replace(from, to);
        row.insert("body".into(), json!(body));
    };
    let second = "\"content\":\"b\"";
    finds(&played.rows("events", |rows| rows.iter_mut().for_each(|row| word(row, second, "\"content\":\"c\""))), "I3");
    finds(&played.after(|_, entries, _| assert!(entries.acked.insert(at.clone(), 9).is_some())), "I3");
    finds(&played.rows("attempts", Vec::clear), "I3");
    // I4: ended twice, went on, changed its mind, another state.
    let say = |rows: &mut Vec<serde_json::Map<String, Value>>, column: &str, value: Value| {
        rows.iter_mut().for_each(|row| drop(row.insert(column.into(), value.clone())));
    };
    let end = "task:completed";
    finds(&played.rows("events", |rows| rows.iter_mut().for_each(|row| word(row, "task:started", end))), "I4");
    finds(&played.rows("attempts", |rows| say(rows, "outcome", json!("error"))), "I4");
    finds(&played.rows("attempts", |rows| say(rows, "report", json!("{}"))), "I4");
    finds(&played.rows("tasks", |rows| say(rows, "state", json!("running"))), "I4");
    // I5: open, and its viber silent for a year; connected, and not heard.
    let open = |dump: &mut Dump, contact: &str| {
        say(dump.rows_mut("tasks"), "state", json!("running"));
        say(dump.rows_mut("attempts"), "outcome", Value::Null);
        say(dump.rows_mut("vibers"), "contact", json!(contact));
        say(dump.rows_mut("vibers"), "contact_since", json!(1_000_000_000_000_i64));
        say(dump.rows_mut("vibers"), "seen_at", Value::Null);
    };
    finds(&played.after(|dump, _, _| open(dump, "disconnected")), "I5");
    finds(&played.after(|dump, _, _| open(dump, "connected")), "I5");
    // I6: a viewer missed one, saw one twice, saw other words.
    finds(&played.after(|_, _, views| views[0].frames.retain(|frame| frame.id.as_deref() != Some("1.3"))), "I6");
    let again = |views: &mut Vec<View>| {
        let frame = views[0].frames.iter().find(|frame| frame.id.is_some()).expect("a frame").clone();
        views[0].frames.push(frame);
    };
    finds(&played.after(|_, _, views| again(views)), "I6");
    let lie = StreamFrame { id: Some("1.1".into()), event: "task:accepted".into(), data: "{}".into() };
    let other = View { task: task.clone(), from: None, frames: vec![lie] };
    finds(&played.after(|_, _, views| views.push(other)), "I6");
    // I7: rows of another team, and of none.
    finds(&played.rows("messages", |rows| say(rows, "team_id", json!("team_other"))), "I7");
    finds(&played.rows("commands", |rows| say(rows, "viber_id", json!("vib_other"))), "I7");
    // I8: a row changed, a row taken out, a deed without a row.
    finds(&played.rows("audit", |rows| say(rows, "actor_name", json!("somebody"))), "I8");
    finds(&played.rows("audit", |rows| drop(rows.remove(0))), "I8");
    finds(&played.rows("vibers", |rows| say(rows, "revoked_at", json!(1))), "I8");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_leaks_and_panics_are_found() {
    let mut played = played(Engine::Sqlite).await;
    // I9: in a file.
    let board = &played.board;
    let secret = "vbt_aSecretThatNobodyMayWriteDown";
    board.ledger().secret("an API token", secret);
    board.assert_invariants().await;
    std::fs::write(board.data().join("copy.txt"), format!("x{secret}x")).expect("a file");
    finds(&board.violated_invariants().await, "I9");
    std::fs::remove_file(board.data().join("copy.txt")).expect("the file");
    // I11: more files than before.
    let before = ProcessWatch::start(board);
    assert!(before.files > 5 && before.threads > 1 && before.memory > 1000, "{before:?}");
    before.back(board).await;
    let (mut fewer, mut smaller) = (before, before);
    fewer.files -= 11;
    smaller.memory = 1;
    assert!(before.fits(&before) && !before.fits(&fewer));
    let mut larger = before;
    larger.memory = 200_000;
    assert!(!larger.fits(&smaller));
    // I12: a panic in the log, and a Board that does not answer.
    let frozen = {
        board.freeze();
        let found = board.violated_invariants().await;
        board.thaw();
        found
    };
    finds(&frozen, "I12");
    played.board.stop().await;
    let log = played.board.data().join("board.log");
    let said = std::fs::read_to_string(&log).expect("a log");
    std::fs::write(&log, format!("{said}thread 'main' panicked at src/x.rs:1:1:\nboom\n")).expect("a log");
    finds(&played.board.violated_invariants().await, "I12");
    played.board.ledger().expect_in_log("src/x.rs");
    played.board.assert_invariants().await;
    // I9 again, in a row: it stays in the file even when the row forgets it.
    played.board.sql("UPDATE vibers SET hostname = 'vbt_aSecretThatNobodyMayWriteDown'").await;
    finds(&played.board.violated_invariants().await, "I9");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_of_ended_attempts_are_found() {
    let played = played(Engine::Sqlite).await;
    let board = &played.board;
    // I10: a process in the folder of an attempt that has ended.
    let machine = tempfile::tempdir().expect("a folder");
    let scratch = machine.path().join("scratch");
    let note = format!("scratch {} 1 {}\n", played.task, scratch.display());
    std::fs::write(machine.path().join(NOTES_FILE), note).expect("a note");
    board.ledger().viber(machine.path().to_owned());
    let mut sleep = std::process::Command::new("sleep");
    sleep.arg("600").env("TMPDIR", &scratch);
    let mut child = Process::start(sleep, &machine.path().join("sleep.log"));
    let found = board.violated_invariants().await;
    assert!(child.ended().is_none(), "it lives longer than children are waited for");
    finds(&found, "I10");
}
