//! What a Board does by itself with much history: it trims what is older than its team keeps events, tells a viber that lost
//! its disk where it stands, and looks after everything while nobody calls.

use std::time::{Duration, Instant, SystemTime};

use sqlx::{Connection as _, PgConnection, SqliteConnection};

use super::{
    Scale, client,
    http::Http,
    load::Latencies,
    machine::{BenchViber, TaskHandling},
    proc::Watch,
    report::{Bound, Measured},
    slopes::{
        processor,
        seed::{History, Seed},
        settled,
    },
    stage::Stage,
};
use crate::board::Engine;

/// Attempts that are due to be trimmed.
const DUE_ATTEMPTS: [usize; 3] = [50_000, 150_000, 500_000];
/// Commands that a viber had before it lost its disk, all of them of tasks that have ended.
const OLD_COMMANDS: [usize; 3] = [500, 5_000, 50_000];
/// Vibers that are away, and a tenth as many teams.
const VIBERS_AT_REST: [usize; 3] = [10, 1_000, 10_000];
/// After a start, before its rest is watched.
const SETTLING_TIME: Duration = Duration::from_secs(15);
/// Days that a team keeps events.
const KEPT_DAYS: i64 = 30;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
const TURNS_PER_SESSION: usize = 5;
/// After a start, before trimming is watched.
const START_TIME: Duration = Duration::from_secs(4);
/// Times that the viber comes back.
const RETURNS: usize = 10;

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    let mut measured = Vec::new();
    for engine in [Engine::Sqlite, Engine::Postgres] {
        measured.push(trimming(engine, scale).await);
        measured.push(lost_disk(engine, scale).await);
        measured.push(at_rest(engine, scale).await);
    }
    measured
}

/// Events that are due for half a day: trimming keeps up, and takes a tenth of a core at most.
async fn trimming(engine: Engine, scale: Scale) -> Measured {
    let (machine, mut costs, mut share, mut rate) = (Watch::machine(), Vec::new(), 0.0, 0.0);
    for attempts in DUE_ATTEMPTS.map(|count| scale.count(count, 20_000)) {
        let due = now_ms() - KEPT_DAYS * DAY_MS - DAY_MS / 2;
        let further = [
            format!("UPDATE teams SET retention_days = {KEPT_DAYS}"),
            format!("UPDATE attempts SET ended_at = {due} + cmd_seq"),
        ];
        let stage = seeded(engine, attempts, &further).await;
        tokio::time::sleep(START_TIME).await;
        // The time first: whoever counts has a backend of the server, too.
        let (spent, began) = (processor(&stage), Instant::now());
        let rows = trimmed(&stage).await;
        tokio::time::sleep(scale.seconds(15)).await;
        let (spent, seconds) = (processor(&stage) - spent, began.elapsed().as_secs_f64());
        let rows = trimmed(&stage).await - rows;
        assert!(rows > 0, "nothing was trimmed:\n{}", stage.board.log());
        costs.push(spent / rows as f64 * 1e3);
        (share, rate) = (spent / seconds * 100.0, rows as f64 / seconds);
    }
    Measured::new(format!("trimming of old events, {engine:?}"), "", 0, machine.stop(0))
        .growth("CPU an attempt", costs, Bound::AtMost(0.05))
        .figure("CPU, of a core", share, "%", Bound::AtMost(10.0))
        .figure("attempts a second", rate, "/s", None)
}

/// A viber comes back without its journal, and gets a task.
async fn lost_disk(engine: Engine, scale: Scale) -> Measured {
    let (machine, mut costs, mut times) = (Watch::machine(), Vec::new(), Vec::new());
    for commands in OLD_COMMANDS.map(|count| scale.count(count, count.min(500))) {
        let further = [
            format!(
                "INSERT INTO commands (team_id, viber_id, cmd_seq, kind, task_id, attempt, body, created_at, acked_at) \
                 SELECT team_id, viber_id, cmd_seq, 'task:submit', task_id, attempt, '{{}}', {now}, {now} FROM attempts",
                now = now_ms()
            ),
            format!("UPDATE vibers SET cmd_seq = {commands}, acked_cmd_seq = {commands}"),
            "UPDATE teams SET retention_days = 0".to_owned(),
        ];
        let stage = seeded(engine, commands, &further).await;
        settled(&stage).await;
        let mut http = Http::connect(&stage.host, stage.token(0)).await.expect("the Board listens");
        let (mut took, before) = (Latencies::default(), processor(&stage));
        for _ in 0..RETURNS {
            let began = Instant::now();
            let viber = BenchViber::connect(&stage, &stage.vibers[0], TaskHandling::Completes).await;
            client::round_trip(&mut http, client::Target::Viber(&viber.id)).await.expect("a round trip");
            took.push(began.elapsed());
        }
        costs.push((processor(&stage) - before) / RETURNS as f64 * 1e3);
        times.push(took.ms(50.0));
    }
    Measured::new(format!("a viber without its disk, {engine:?}"), "", 0, machine.stop(0))
        .growth("CPU up to a result", costs, None)
        .growth("wall, p50", times, Bound::AtMost(1_000.0))
}

/// Nobody calls, and nobody is connected.
async fn at_rest(engine: Engine, scale: Scale) -> Measured {
    let (machine, mut costs) = (Watch::machine(), Vec::new());
    for vibers in VIBERS_AT_REST.map(|count| scale.count(count, 10)) {
        let history = History { sessions: 100, turns_per_session: TURNS_PER_SESSION, vibers, teams: vibers / 10 };
        let stage = with_history(engine, history, &[]).await;
        tokio::time::sleep(SETTLING_TIME).await;
        let (before, time) = (processor(&stage), scale.seconds(30));
        tokio::time::sleep(time).await;
        costs.push((processor(&stage) - before) / time.as_secs_f64() * 1e3);
    }
    Measured::new(format!("a Board at rest, {engine:?}"), "", 0, machine.stop(0)).growth(
        "CPU a second",
        costs,
        Bound::AtMost(1.0),
    )
}

/// A running Board whose viber has had so many tasks, all of them completed.
async fn seeded(engine: Engine, tasks: usize, further: &[String]) -> Stage {
    let sessions = tasks / TURNS_PER_SESSION;
    let history = History { sessions, turns_per_session: TURNS_PER_SESSION, vibers: 1, teams: 0 };
    with_history(engine, history, further).await
}

async fn with_history(engine: Engine, history: History, further: &[String]) -> Stage {
    let mut stage = Stage::set_on(engine, 1, 1).await;
    assert!(stage.board.stop().await.success(), "a clean end");
    let seed = Seed { engine, url: &stage.board.database_url, viber: &stage.vibers[0].id };
    // The search is not looked at here.
    let mut all = vec!["DELETE FROM unindexed_titles".to_owned(), "DELETE FROM unindexed_texts".to_owned()];
    all.extend_from_slice(further);
    seed.write(history, &all).await;
    // The rows came by another hand: the Board has to leave them in order first, or it checks them all meanwhile.
    stage.board.serve();
    stage.board.ready().await;
    assert!(stage.board.stop().await.success(), "a clean end");
    stage.board.serve();
    stage.board.ready().await;
    stage
}

/// Attempts that have been trimmed.
async fn trimmed(stage: &Stage) -> i64 {
    let (sql, url) = ("SELECT COUNT(*) FROM attempts WHERE trimmed_at IS NOT NULL", &stage.board.database_url);
    let counted = match stage.board.engine {
        Engine::Sqlite => {
            let mut connection = SqliteConnection::connect(url).await.expect("the Board's database");
            let counted = sqlx::query_scalar(sql).fetch_one(&mut connection).await;
            connection.close().await.expect("a clean goodbye");
            counted
        }
        Engine::Postgres => {
            let mut connection = PgConnection::connect(url).await.expect("the Board's database");
            let counted = sqlx::query_scalar(sql).fetch_one(&mut connection).await;
            connection.close().await.expect("a clean goodbye");
            counted
        }
    };
    counted.expect("a count")
}

fn now_ms() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "the machine's clock, which the Board reads, too")]
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("a small number")
}
