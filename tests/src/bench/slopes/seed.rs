//! Rows of a database with a history, written as SQL makes them: a million messages take seconds.

use server::db::{
    Db, DbError,
    sessions::{Unindexed, index_some, next_unindexed},
};
use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgConnection, SqliteConnection, sqlite::SqliteConnectOptions,
};

use crate::board::{Engine, HOME};

/// When the oldest session began: `2026-09-21`.
const FIRST_SESSION_MS: i64 = 1_790_000_000_000;
/// The oldest sessions, which another person began.
const FEW_SESSIONS: usize = 50;
/// One session a minute.
const BETWEEN_SESSIONS_MS: i64 = 60_000;
/// One turn every six seconds.
const BETWEEN_TURNS_MS: i64 = 6_000;
/// Every so many tasks somebody allowed a call, and said something while it ran.
const TASKS_PER_DECISION: usize = 5;
/// Markdown with a list, inline code and a block of code, as agents answer.
const ANSWER_MARKDOWN: &str = "I changed **two files** and ran the tests:\\n\\n- `src/lib.rs` keeps the counter\\n\
     - `src/main.rs` prints it\\n\\n```rust\\nfn main() {\\n    println!(\\\"{}\\\", counter::next());\\n}\\n```\\n\\n\
     All 12 tests pass.";

/// What a task reported, as its viber sent it.
const EVENTS: &str = concat!(
    r#"[{"seq":1,"at":"2026-09-21T00:00:00.000Z","type":"task:accepted"},"#,
    r#"{"seq":2,"at":"2026-09-21T00:00:00.000Z","type":"task:started","model":"demo/tour"},"#,
    r#"{"seq":3,"at":"2026-09-21T00:00:00.000Z","type":"task:progress","event":{"agentId":"default","type":"text-delta","#,
    r#""content":"I changed two files and ran the tests. All 12 pass."}},"#,
    r#"{"seq":4,"at":"2026-09-21T00:00:00.000Z","type":"task:completed","result":{"text":"done","summary":"done"}}]"#,
);

/// How much history a database has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    pub sessions: usize,
    /// Each has a question and an answer.
    pub turns_per_session: usize,
    pub vibers: usize,
    pub teams: usize,
}

/// A place for rows: the database of a Board that does not run.
#[derive(Debug)]
pub struct Seed<'a> {
    pub engine: Engine,
    pub url: &'a str,
    /// All sessions are this viber's, which is not one of the history's.
    pub viber: &'a str,
}

impl Seed<'_> {
    /// Writes the history, and then what `further` statements do.
    pub async fn write(&self, history: History, further: &[String]) {
        let mut statements = self.statements(history);
        statements.extend_from_slice(further);
        match self.engine {
            Engine::Sqlite => {
                let options: SqliteConnectOptions = self.url.parse().expect("an address");
                let options = options.pragma("synchronous", "OFF").pragma("cache_size", "-200000").foreign_keys(false);
                let mut connection = SqliteConnection::connect_with(&options).await.expect("the Board's database");
                for sql in statements {
                    run(connection.execute(AssertSqlSafe(sql.clone())).await, &sql);
                }
                self.index().await;
                let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
                run(connection.execute(sql).await, sql);
                connection.close().await.expect("a clean goodbye");
            }
            Engine::Postgres => {
                let mut connection = PgConnection::connect(self.url).await.expect("the Board's database");
                // Neither triggers nor foreign keys.
                let alone = "SET session_replication_role = replica";
                run(connection.execute(alone).await, alone);
                for sql in statements {
                    run(connection.execute(AssertSqlSafe(sql.clone())).await, &sql);
                }
                // What triggers count.
                let sql = "INSERT INTO usage (team_id, slot, bytes) SELECT c.team_id, 0, SUM(c.size) FROM \
                           (SELECT team_id, OCTET_LENGTH(body) AS size FROM events \
                           UNION ALL SELECT team_id, OCTET_LENGTH(body) FROM parts) c GROUP BY c.team_id \
                           ON CONFLICT (team_id, slot) DO UPDATE SET bytes = excluded.bytes";
                run(connection.execute(sql).await, sql);
                let sql = "UPDATE viber_counts SET vibers = (SELECT COUNT(*) FROM vibers v \
                           WHERE v.team_id = viber_counts.team_id AND v.revoked_at IS NULL)";
                run(connection.execute(sql).await, sql);
                self.index().await;
                // What autovacuum does in time.
                let sql = "VACUUM ANALYZE";
                run(connection.execute(sql).await, sql);
                connection.close().await.expect("a clean goodbye");
            }
        }
    }

    /// Adds the titles and texts to the search indexes, as a Board does once it serves.
    async fn index(&self) {
        let db = Db::open(self.url).await.expect("the Board's database");
        let some = || {
            db.write(|tx| {
                Box::pin(async move {
                    for what in [Unindexed::Titles, Unindexed::NewTexts] {
                        if let Some(team) = next_unindexed(tx, what, None).await? {
                            index_some(&mut tx.of(&team), what).await?;
                            return Ok(true);
                        }
                    }
                    Ok::<_, DbError>(false)
                })
            })
        };
        while some().await.expect("an index") {}
        db.close().await;
    }

    fn statements(&self, history: History) -> Vec<String> {
        let History { sessions, turns_per_session: turns, vibers, teams } = history;
        let (all, viber) = (sessions * turns, format!("'{}'", self.viber));
        let team = format!("(SELECT team_id FROM teams WHERE slug = '{HOME}')");
        let at = format!("{FIRST_SESSION_MS} + i * {BETWEEN_SESSIONS_MS}");
        let turn_at =
            format!("{FIRST_SESSION_MS} + i / {turns} * {BETWEEN_SESSIONS_MS} + i % {turns} * {BETWEEN_TURNS_MS}");
        let session_of = format!("i / {turns}");
        let id = |prefix: &str, at: &str, number: &str| self.id(prefix, at, number);
        let session_id = |i: &str| id("ses", &format!("({FIRST_SESSION_MS} + {i} * {BETWEEN_SESSIONS_MS})"), i);
        let (task, question, answer) =
            (id("task", &turn_at, "i"), id("msg", &turn_at, "i * 2"), id("msg", &turn_at, "i * 2 + 1"));
        let (approval, message) = (id("apr", &turn_at, "i"), id("msg", &turn_at, &format!("({} + i)", 2 * all)));
        let session = session_id(&format!("({session_of})"));
        let tasks = counter(all);
        let agents = r#"[{"id":"default","name":"Default","description":"","model":"demo/tour","mode":"always_execute","tools":[],"spaces":[],"maxSteps":25}]"#;
        vec![
            format!(
                "{} INSERT INTO teams (team_id, slug, name, claimed_at, created_at) \
                 SELECT {}, 'team-' || i, 'Team ' || i, 1, 1 FROM n",
                counter(teams),
                id("team", "1", "i")
            ),
            format!(
                "{} INSERT INTO vibers (team_id, viber_id, name, labels, hostname, platform, version, agents, \
                 credential_hash, contact_since, created_at) SELECT {team}, {}, 'machine ' || i, \
                 '{{\"pool\":\"bench\"}}', 'lab', 'linux/x86_64', '0.1.0', '{agents}', 'bench ' || i, 1, 1 FROM n",
                counter(vibers),
                id("vib", &FIRST_SESSION_MS.to_string(), "i")
            ),
            "UPDATE vibers SET labels = '{\"pool\":\"bench\"}'".into(),
            "INSERT INTO viber_labels (team_id, viber_id, label, value) SELECT team_id, viber_id, 'pool', 'bench' \
             FROM vibers"
                .into(),
            "INSERT INTO viber_words (team_id, viber_id, words) SELECT team_id, viber_id, name FROM vibers WHERE 1 = 1 \
             ON CONFLICT (team_id, viber_id) DO NOTHING"
                .into(),
            format!(
                "{} INSERT INTO sessions (team_id, session_id, viber_id, agent_id, title, title_folded, created_by, \
                 created_at, active_at, last_seq) SELECT {team}, {}, {viber}, 'default', \
                 'Count the calls of module ' || i, 'count the calls of module ' || i, \
                 CASE WHEN i < {FEW_SESSIONS} THEN 'few' ELSE 'bench' END, {at}, {at}, {} FROM n",
                counter(sessions),
                session_id("i"),
                turns * 2
            ),
            "INSERT INTO unindexed_titles (team_id, session_id) SELECT team_id, session_id FROM sessions WHERE 1 = 1 \
             ON CONFLICT (team_id, session_id) DO NOTHING"
                .into(),
            format!(
                "{tasks} INSERT INTO tasks (team_id, task_id, session_id, viber_id, agent_id, message_id, message_seq, \
                 goal, state, attempt, result, created_by, created_at, offered_at, started_at, ended_at) \
                 SELECT {team}, {task}, {session}, {viber}, 'default', {question}, i % {turns} * 2 + 1, \
                 'Count the calls.', 'completed', 1, '{{\"text\":\"done\",\"summary\":\"done\"}}', 'bench', {turn_at}, \
                 {turn_at}, {turn_at}, {turn_at} FROM n"
            ),
            format!(
                "{tasks} INSERT INTO attempts (team_id, task_id, attempt, viber_id, cmd_seq, last_seq, parts_seq, \
                 message_id, message_seq, outcome, created_at, started_at, ended_at) \
                 SELECT {team}, {task}, 1, {viber}, i + 1, 4, 4, {answer}, i % {turns} * 2 + 2, 'completed', \
                 {turn_at}, {turn_at}, {turn_at} FROM n"
            ),
            format!(
                "{tasks} INSERT INTO events (team_id, task_id, attempt, from_seq, to_seq, body, received_at) \
                 SELECT {team}, {task}, 1, 1, 4, '{EVENTS}', {turn_at} FROM n"
            ),
            format!(
                "{tasks} INSERT INTO messages (team_id, session_id, seq, message_id, role, author, task_id, attempt, \
                 created_at) SELECT {team}, {session}, i % {turns} * 2 + 1, {question}, 'user', 'bench', {task}, 0, \
                 {turn_at} FROM n"
            ),
            format!(
                "{tasks} INSERT INTO messages (team_id, session_id, seq, message_id, role, author, task_id, attempt, \
                 created_at) SELECT {team}, {session}, i % {turns} * 2 + 2, {answer}, 'assistant', 'default', {task}, \
                 1, {turn_at} FROM n"
            ),
            format!(
                "{tasks} INSERT INTO parts (team_id, message_id, idx, kind, body, created_at) SELECT {team}, \
                 {question}, 0, 'text', '{{\"type\":\"text\",\"text\":\"Count the calls of module ' || i || '.\"}}', {turn_at} FROM n"
            ),
            format!(
                "{tasks} INSERT INTO parts (team_id, message_id, idx, kind, body, created_at) SELECT {team}, {answer}, \
                 0, 'text', '{{\"type\":\"text\",\"text\":\"{ANSWER_MARKDOWN}\"}}', {turn_at} FROM n"
            ),
            format!(
                "{tasks} INSERT INTO approvals (team_id, approval_id, session_id, task_id, attempt, event_seq, kind, tool, \
                 digest, args, preview, state, scope, decided_by, created_at, decided_at) SELECT {team}, {approval}, \
                 {session}, {task}, 1, 2, 'tool', 'shell', 'bench', '{{\"command\":\"cargo test\"}}', 'cargo test', \
                 'allowed', 'once', 'bench', {turn_at}, {turn_at} FROM n WHERE i % {TASKS_PER_DECISION} = 0"
            ),
            format!(
                "{tasks} INSERT INTO task_messages (team_id, message_id, session_id, task_id, author, author_name, \
                 content, mode, place, rev, state, attempt, event_seq, turn, created_at, consumed_at) SELECT {team}, \
                 {message}, {session}, {task}, 'bench', 'Bench', 'Count the tests too.', 'steer', 1, 1, 'consumed', 1, 3, \
                 1, {turn_at}, {turn_at} FROM n WHERE i % {TASKS_PER_DECISION} = 0"
            ),
            "INSERT INTO unindexed_texts (team_id, message_id, idx) SELECT team_id, message_id, idx FROM parts \
             WHERE kind = 'text' ON CONFLICT (team_id, message_id, idx) DO NOTHING"
                .into(),
        ]
    }

    /// An id as SQL: a UUIDv7 of an instant and a number.
    fn id(&self, prefix: &str, at: &str, number: &str) -> String {
        match self.engine {
            Engine::Sqlite => format!("printf('{prefix}_%012x70008000%012x', {at}, {number})"),
            Engine::Postgres => format!(
                "'{prefix}_' || lpad(to_hex(({at})::bigint), 12, '0') || '70008000' \
                 || lpad(to_hex(({number})::bigint), 12, '0')"
            ),
        }
    }
}

/// The id of a session of the history.
pub fn session_id(number: usize) -> String {
    format!("ses_{:012x}70008000{number:012x}", active_at(number))
}

/// The id of a viber of the history.
pub fn viber_id(number: usize) -> String {
    format!("vib_{FIRST_SESSION_MS:012x}70008000{number:012x}")
}

/// The cursor before the last page of sessions, which lists the most recently active first.
pub fn last_page(history: History) -> String {
    let number = history.sessions.min(20) - 1;
    format!("{}.{}", active_at(number), session_id(number))
}

fn active_at(session: usize) -> i64 {
    FIRST_SESSION_MS + i64::try_from(session).expect("a small number") * BETWEEN_SESSIONS_MS
}

/// The numbers from 0 up to `count` as table `n` with the column `i`.
fn counter(count: usize) -> String {
    format!(
        "WITH RECURSIVE n(i) AS (SELECT CAST(0 AS BIGINT) WHERE {count} > 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {count})"
    )
}

fn run<T>(done: Result<T, sqlx::Error>, sql: &str) {
    if let Err(error) = done {
        panic!("{error}: {sql}");
    }
}
