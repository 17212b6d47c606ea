//! Faults of the database and of what lies below it (F43–F56, F82–F87): locks, full disks, damage, restarts, backups.

mod backup;
mod full;
mod hard_links;
mod locks;
mod owner;
mod postgres_faults;
mod postgres_restarts;
mod restore;
mod restoring;
mod stalled;
mod start;
mod talker;

use std::{collections::BTreeMap, fs, time::Duration};

use board_tests::{Board, Engine, FakeDaemon, Fixture, Person, tasks::id, within};
use serde_json::json;
use server::db::{self, Db};

use talker::Talker;

/// What came of a submit.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    /// Kept: the task's id.
    Kept(String),
    /// The database is not available; nothing was promised.
    Later,
}

/// Gives a Board that has not run yet the keys that seal another one's audit, as somebody does who moves a Board.
fn give_audit_keys(from: &Board, to: &Board) {
    let (from, to) = (from.data().join("audit"), to.data().join("audit"));
    fs::create_dir_all(&to).expect("a folder");
    for file in fs::read_dir(from).expect("the audit's keys").flatten() {
        fs::copy(file.path(), to.join(file.file_name())).expect("copied");
    }
}

/// Somebody submits to a viber that never comes.
async fn absent(board: Board) -> Fixture<FakeDaemon> {
    Fixture::at(board).with_enrolled_fake().await
}

/// The same on a new Board.
async fn absent_on(engine: Engine) -> Fixture<FakeDaemon> {
    absent(Board::start(engine).await).await
}

/// Who submits to a viber that never comes, and what is kept of it.
trait Asking {
    /// A viber that reports events of `bytes` each, in a task of its own.
    async fn talker(&self, bytes: usize) -> Talker;
    /// Submits a goal under a key that is its name, as `who`.
    async fn ask_as(&self, who: &Person, key: &str) -> Asked;
    async fn ask(&self, key: &str) -> Asked;
    /// Asks again and again under the same key until it is kept.
    async fn insist(&self, who: &Person, key: &str, limit: Duration) -> String;
    /// Panics unless the Board keeps its invariants, and the tasks are exactly those that were acknowledged (goal and
    /// id), one each, in addition to the talkers' own.
    async fn tasks_are(&self, kept: &[(String, String)]);
}

impl Asking for Fixture<FakeDaemon> {
    async fn talker(&self, bytes: usize) -> Talker {
        Talker::begin(&self.board, &self.operator, bytes).await
    }

    async fn ask_as(&self, who: &Person, key: &str) -> Asked {
        let body = json!({ "goal": key, "viberId": self.viber_id });
        let answer = who.post_once(key, "/api/v1/tasks", &body).await;
        match answer.status {
            201 => Asked::Kept(id(&answer.json(), "id").to_owned()),
            503 | 507 => {
                let seconds: u64 = answer.header("retry-after").parse().expect("when to try again");
                assert!((1..=60).contains(&seconds), "{answer:?}");
                Asked::Later
            }
            _ => panic!("neither kept nor refused for now: {answer:#?}"),
        }
    }

    async fn ask(&self, key: &str) -> Asked {
        self.ask_as(&self.operator, key).await
    }

    async fn insist(&self, who: &Person, key: &str, limit: Duration) -> String {
        within(limit, &format!("{key} is kept"), || async {
            match self.ask_as(who, key).await {
                Asked::Kept(task) => Some(task),
                Asked::Later => None,
            }
        })
        .await
    }

    async fn tasks_are(&self, kept: &[(String, String)]) {
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (task, goal) in tasks(&self.board.database_url).await {
            found.entry(goal).or_default().push(task);
        }
        found.retain(|goal, _| !goal.starts_with(talker::TALK_GOAL));
        let kept: BTreeMap<String, Vec<String>> =
            kept.iter().map(|(goal, task)| (goal.clone(), vec![task.clone()])).collect();
        assert_eq!(found, kept, "what was acknowledged is there, once, and nothing else");
        self.board.assert_invariants().await;
    }
}

/// All tasks of a database, id and goal, read beside the product.
async fn tasks(url: &str) -> Vec<(String, String)> {
    let db = Db::connect(url).await.expect("the database");
    let sql = "SELECT task_id, goal FROM tasks ORDER BY task_id LIMIT 100000";
    let rows = db.reader().await.expect("a reader").rows(sql, &[]).await.expect("rows");
    db.close().await;
    let texts = |row: &db::Row| Ok((row.text("task_id")?, row.text("goal")?));
    rows.iter().map(texts).collect::<Result<Vec<_>, db::DbError>>().expect("texts")
}

/// One number that a query answers, read beside the product.
async fn count(url: &str, sql: &'static str) -> u64 {
    let db = Db::connect(url).await.expect("the database");
    let row = db.reader().await.expect("a reader").row(sql, &[]).await.expect("a row").expect("one");
    db.close().await;
    row.count("n").expect("a count")
}

/// The file of an SQLite Board.
fn file(board: &Board) -> std::path::PathBuf {
    board.database_url.trim_start_matches("sqlite://").into()
}
