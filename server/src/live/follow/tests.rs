//! A follower's promises, on a real database with the real verbs.

use std::{pin::Pin, sync::Arc};

use futures_util::{Stream, StreamExt};
use protocol::{Events, ViberId};
use serde_json::{Value, json, value::RawValue};

use super::*;
use crate::{
    actions::{record::record, tasks},
    clock::Clock,
    config::Config,
    db::Db,
    domain::{By, Connection, Team},
    guard::Keys,
    live::StreamEnd,
};

/// A Board with a team, a viber and a task that was offered to it.
struct Stage {
    board: Board,
    team: TeamId,
    viber: ViberId,
    task: Task,
    _folder: tempfile::TempDir,
}

impl Stage {
    async fn set() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let db = Db::open(&format!("sqlite://{}/board.db", folder.path().display())).await.expect("a database");
        db.audit_chain().use_keys(crate::secret::audit_keys::AuditKeys::new(&[7; 32], &[]));
        let keys = Keys::kept(&folder.path().join("keys"), 1).expect("keys");
        let board = Board::new(Config::local(folder.path().to_owned()), db, keys, Clock::default());
        let now = board.clock.now();
        let (team, viber) = (TeamId::new(now.0), ViberId::new(now.0));
        let ids = (team.clone(), viber.clone());
        let made: Result<(), db::DbError> = board
            .db
            .write(move |tx| {
                let (team, viber) = ids.clone();
                Box::pin(async move {
                    let row = Team {
                        id: team.clone(),
                        slug: "home".into(),
                        name: "Home".into(),
                        claimed_at: None,
                        suspended_at: None,
                        lost_after_ms: 900_000,
                        retention_days: 30,
                        created_at: now,
                    };
                    db::teams::insert(tx, &row).await?;
                    let joining = db::vibers::NewViber {
                        id: &viber,
                        name: "lab",
                        labels: &Default::default(),
                        hostname: "lab",
                        platform: "linux",
                        version: "1",
                        credential_hash: "hash",
                    };
                    let tx = &mut tx.change(&team, &By::console(), now);
                    db::vibers::insert(tx, joining).await?;
                    let sql = "UPDATE vibers SET contact = 'connected' WHERE team_id = $1 AND viber_id = $2";
                    tx.execute(sql, crate::args![&viber]).await.map(drop)
                })
            })
            .await;
        made.expect("a team with a viber");
        let submit = tasks::NewTask { goal: "say hi".into(), ..Default::default() };
        let task = tasks::submit(&board, &team, &By::board(), submit).await.expect("a task");
        Self { board, team, viber, task, _folder: folder }
    }

    /// The viber reports; the answer is the last seq that the Board acknowledged.
    async fn report(&self, attempt: u32, from: u64, bodies: &[Value]) -> u64 {
        let items = bodies.iter().enumerate().map(|(n, body)| {
            let mut event = json!({"seq": from + n as u64, "at": "2026-11-20T10:00:00.000Z"});
            event.as_object_mut().expect("an object").extend(body.as_object().expect("an object").clone());
            RawValue::from_string(event.to_string()).expect("JSON")
        });
        let frame = Events { task_id: self.task.id.clone(), attempt, from, items: items.collect() };
        let connection = Connection {
            team: self.team.clone(),
            viber: self.viber.clone(),
            name: "lab".into(),
            address: String::new(),
            epoch: 0,
        };
        let answers =
            record(&self.board, &connection, Arc::from([frame]), None).await.expect("recorded").expect("the newest");
        answers.acks.iter().map(|ack| ack.seq).max().unwrap_or(0)
    }

    fn follow(&self, from: Option<&str>) -> Pin<Box<dyn Stream<Item = StreamFrame> + Send>> {
        Box::pin(follow(&self.board, &self.team, &self.task.id, from.map(str::parse)))
    }
}

fn delta(text: &str) -> Value {
    json!({"type": "task:progress", "event": {"agentId": "default", "type": "text-delta", "content": text}})
}

fn completed() -> Value {
    json!({"type": "task:completed", "result": {"text": "hi", "summary": "hi"}})
}

/// What frames say, in short: `task:STATE`, `ATTEMPT.SEQ`, `reset`, `end:WHY`.
fn say(frame: &StreamFrame) -> Vec<String> {
    match frame {
        StreamFrame::Task(task) => vec![format!("task:{}", task.state)],
        StreamFrame::Reset => vec!["reset".to_owned()],
        StreamFrame::End(why) => vec![format!("end:{why}")],
        StreamFrame::Events { run, after } => {
            let new = run.items.iter().filter(|item| item.seq > *after);
            new.map(|item| format!("{}.{}", run.attempt, item.seq)).collect()
        }
    }
}

/// Listens until `last` was said; what changes only the task's row is left out.
async fn until(frames: &mut Pin<Box<dyn Stream<Item = StreamFrame> + Send>>, last: &str) -> Vec<String> {
    let mut said = Vec::new();
    let listening = async {
        while let Some(frame) = frames.next().await {
            said.extend(say(&frame));
            if said.iter().any(|word| word == last) {
                return;
            }
        }
    };
    let heard = tokio::time::timeout(Duration::from_secs(10), listening).await;
    assert!(heard.is_ok() && said.iter().any(|word| word == last), "never heard {last}: {said:?}");
    said
}

fn without_tasks(said: Vec<String>) -> Vec<String> {
    said.into_iter().filter(|word| !word.starts_with("task:")).collect()
}

#[tokio::test]
async fn the_past_comes_from_the_database_and_the_present_from_the_tail() {
    let stage = Stage::set().await;
    assert_eq!(stage.report(1, 1, &[json!({"type": "task:accepted"}), delta("a"), delta("b")]).await, 3);
    let mut frames = stage.follow(None);
    assert_eq!(until(&mut frames, "1.3").await[0][..5], *"task:");
    stage.report(1, 4, &[delta("c")]).await;
    assert_eq!(without_tasks(until(&mut frames, "1.4").await), ["1.4"]);
    stage.report(1, 5, &[delta("d"), completed()]).await;
    let rest = until(&mut frames, "end:terminal").await;
    assert_eq!(without_tasks(rest.clone()), ["1.5", "1.6", "end:terminal"]);
    assert!(rest.contains(&"task:completed".to_owned()), "{rest:?}");
    assert!(frames.next().await.is_none());
}

#[tokio::test]
async fn a_task_that_is_not_there_has_no_stream() {
    let stage = Stage::set().await;
    let id = stage.task.id.clone();
    let named = open(&stage.board, &stage.team, &id, None).await.expect("a read").expect("a stream");
    let mut named: Pin<Box<dyn Stream<Item = StreamFrame> + Send>> = Box::pin(named);
    stage.report(1, 1, &[json!({"type": "task:accepted"}), completed()]).await;
    let said = without_tasks(until(&mut named, "end:terminal").await);
    assert_eq!(said, ["1.1", "1.2", "end:terminal"]);
    for (team, id) in [(&stage.team, TaskId::new(1)), (&TeamId::new(1), id)] {
        assert!(open(&stage.board, team, &id, None).await.expect("a read").is_none());
    }
}

#[tokio::test]
async fn a_cursor_resumes_exactly_and_an_unknown_one_starts_over() {
    let stage = Stage::set().await;
    stage.report(1, 1, &[json!({"type": "task:accepted"}), delta("a"), delta("b"), completed()]).await;
    let all = ["1.1", "1.2", "1.3", "1.4", "end:terminal"];
    for from in [Some("1.2"), Some("1.4"), None] {
        let said = without_tasks(until(&mut stage.follow(from), "end:terminal").await);
        let start = from.map_or(0, |from| from[2..].parse().expect("a seq"));
        assert_eq!(said, all[start..], "{from:?}");
    }
    for from in ["1.5", "2.0", "9.1", "garbage", "", "1.2.3"] {
        let said = without_tasks(until(&mut stage.follow(Some(from)), "end:terminal").await);
        assert_eq!(said[0], "reset", "{from:?}");
        assert_eq!(said[1..], all, "{from:?}");
    }
}

#[tokio::test]
async fn a_follower_that_fell_out_of_the_tail_reads_the_database() {
    let stage = Stage::set().await;
    let mut frames = stage.follow(None);
    assert!(matches!(frames.next().await, Some(StreamFrame::Task(_))));
    let long = "x".repeat(40 * 1024);
    stage.report(1, 1, &[json!({"type": "task:accepted"})]).await;
    for seq in 2..=21 {
        stage.report(1, seq, &[delta(&long)]).await;
    }
    stage.report(1, 22, &[completed()]).await;
    let said = without_tasks(until(&mut frames, "end:terminal").await);
    let wanted: Vec<String> = (1..=22).map(|seq| format!("1.{seq}")).chain(["end:terminal".to_owned()]).collect();
    assert_eq!(said, wanted);
}

#[tokio::test]
async fn a_retry_goes_on_in_the_same_stream() {
    let stage = Stage::set().await;
    let mut frames = stage.follow(None);
    stage.report(1, 1, &[json!({"type": "task:accepted"}), delta("a")]).await;
    until(&mut frames, "1.2").await;
    let failed = json!({"type": "task:error", "error": {"code": "internal", "message": "no", "retryable": true}});
    // Between the two nobody polls the stream: it must not end with an attempt that has a successor.
    stage.report(1, 3, &[failed]).await;
    tasks::retry(&stage.board, &stage.team, &By::board(), &stage.task.id, tasks::Retry::default())
        .await
        .expect("a retry");
    stage.report(2, 1, &[json!({"type": "task:accepted"}), completed()]).await;
    let said = without_tasks(until(&mut frames, "end:terminal").await);
    assert_eq!(said, ["1.3", "2.1", "2.2", "end:terminal"]);
    let replayed = without_tasks(until(&mut stage.follow(Some("1.2")), "end:terminal").await);
    assert_eq!(replayed, said);
}

#[tokio::test]
async fn a_stop_ends_the_stream_when_the_viber_confirmed_it() {
    let stage = Stage::set().await;
    let mut frames = stage.follow(None);
    stage
        .report(1, 1, &[json!({"type": "task:accepted"}), json!({"type": "task:started", "model": "m", "engine": "e"})])
        .await;
    until(&mut frames, "task:running").await;
    tasks::stop(&stage.board, &stage.team, &By::board(), &stage.task.id, "enough").await.expect("a stop");
    until(&mut frames, "task:stopped").await;
    stage.report(1, 3, &[json!({"type": "task:stopped", "reason": "enough", "killed": 0})]).await;
    let rest = without_tasks(until(&mut frames, "end:terminal").await);
    assert_eq!(rest, ["1.3", "end:terminal"]);
}

#[tokio::test]
async fn a_shutdown_says_goodbye_and_a_deleted_task_ends() {
    let stage = Stage::set().await;
    let mut frames = stage.follow(None);
    assert!(matches!(frames.next().await, Some(StreamFrame::Task(_))));
    stage.board.shutdown.soft.cancel();
    assert_eq!(until(&mut frames, "end:shutdown").await, ["end:shutdown"]);
    let stage = Stage::set().await;
    let mut frames = stage.follow(None);
    assert!(matches!(frames.next().await, Some(StreamFrame::Task(_))));
    let session = &stage.task.session_id;
    crate::actions::sessions::delete(&stage.board, &stage.team, &By::board(), session).await.expect("deleted");
    assert!(matches!(until(&mut frames, "end:deleted").await.last(), Some(end) if end == "end:deleted"));
    assert!(frames.next().await.is_none());
    assert!(!StreamEnd::Deleted.as_str().is_empty());
}
