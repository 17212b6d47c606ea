//! Changes of a team at the same time: each stands or falls by itself, whatever others do in its commit.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use board_tests::{Engine, postgres::Database};
use futures_util::future::join_all;
use protocol::TeamId;
use server::{
    args,
    db::{Db, DbError},
    domain::By,
};
use sqlx::{Connection as _, PgConnection};
use tokio::sync::Semaphore;

use super::{NOW, open, team};

crate::on_both_databases!(
    changes_at_once_stand_or_fall_one_by_one,
    a_refusal_that_a_change_lives_with_costs_no_other_change,
    a_change_whose_caller_has_gone_is_made,
    changes_of_a_team_run_in_their_order,
);

/// What happens in a change after its row was added.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Nothing,
    /// It says no.
    Fail,
    Panic,
    /// It adds the row again, takes the database's no for an answer, and goes on.
    AddAgain,
}

/// A database with a team, and where it lies on SQLite.
async fn fresh(engine: Engine) -> (tempfile::TempDir, Db, TeamId) {
    let (folder, db) = open(engine).await;
    let home = db.write(|tx| Box::pin(async move { Ok::<_, DbError>(team(tx, "home").await?.id) })).await;
    (folder, db, home.expect("a team"))
}

async fn add(db: &Db, team: &TeamId, key: String, then: Then) -> Result<u64, DbError> {
    let change = db.change(team, &By::board(), NOW, move |tx| {
        let key = key.clone();
        Box::pin(async move {
            let tx = tx.without_team();
            let sql = "INSERT INTO board (key, value) VALUES ($1, 'x')";
            let added = tx.execute(sql, args![&key]).await?;
            match then {
                Then::Nothing => Ok(added),
                Then::Fail => Err(DbError::Broken("on purpose".into())),
                Then::Panic => panic!("on purpose"),
                Then::AddAgain => {
                    assert!(matches!(tx.execute(sql, args![&key]).await, Err(DbError::Taken)));
                    drop(tx.row("SELECT 1 AS n", &[]).await);
                    Ok(0)
                }
            }
        })
    });
    change.await
}

/// A change that lasts until `held` is released.
async fn wait(db: &Db, team: &TeamId, held: &Arc<Semaphore>) -> Result<(), DbError> {
    let held = held.clone();
    let change = db.change(team, &By::board(), NOW, move |_| {
        let held = held.clone();
        Box::pin(async move {
            drop(held.acquire().await);
            Ok::<_, DbError>(())
        })
    });
    change.await
}

async fn keys(db: &Db) -> Vec<String> {
    let mut tx = db.reader().await.expect("a reader");
    let rows = tx.rows("SELECT key FROM board WHERE key LIKE 'k%' ORDER BY key", &[]).await.expect("rows");
    rows.iter().map(|row| row.text("key").expect("a key")).collect()
}

async fn changes_at_once_stand_or_fall_one_by_one(engine: Engine) {
    let (_folder, db, home) = fresh(engine).await;
    let then = |n| match n % 10 {
        3 => Then::Fail,
        7 => Then::Panic,
        _ => Then::Nothing,
    };
    let done = join_all((0..60).map(|n| add(&db, &home, format!("k{n:02}"), then(n)))).await;
    for (n, outcome) in done.iter().enumerate() {
        let expected = if then(n) == Then::Nothing { matches!(outcome, Ok(1)) } else { outcome.is_err() };
        assert!(expected, "{n}: {outcome:?}");
    }
    let kept: Vec<String> = (0..60).filter(|n| then(*n) == Then::Nothing).map(|n| format!("k{n:02}")).collect();
    assert_eq!(keys(&db).await, kept);
    assert!(matches!(add(&db, &home, "k00".into(), Then::Nothing).await, Err(DbError::Taken)));
    db.close().await;
}

async fn a_refusal_that_a_change_lives_with_costs_no_other_change(engine: Engine) {
    let (_folder, db, home) = fresh(engine).await;
    let then = |n| if n % 5 == 2 { Then::AddAgain } else { Then::Nothing };
    let done = join_all((0..40).map(|n| add(&db, &home, format!("k{n:02}"), then(n)))).await;
    let kept = keys(&db).await;
    for (n, outcome) in done.iter().enumerate() {
        assert_eq!(
            kept.contains(&format!("k{n:02}")),
            outcome.is_ok(),
            "{n}: what is acknowledged is there: {outcome:?}"
        );
        assert!(outcome.is_ok() || then(n) == Then::AddAgain && engine == Engine::Postgres, "{n}: {outcome:?}");
    }
    db.close().await;
}

async fn a_change_whose_caller_has_gone_is_made(engine: Engine) {
    let (_folder, db, home) = fresh(engine).await;
    for n in 0..20 {
        let change = add(&db, &home, format!("k{n:02}"), Then::Nothing);
        // It has been given to the writer, and nobody waits for it.
        drop(tokio::time::timeout(Duration::from_nanos(1), change).await);
    }
    add(&db, &home, "k99".into(), Then::Nothing).await.expect("a change");
    assert_eq!(keys(&db).await.len(), 21);
    db.close().await;
}

async fn changes_of_a_team_run_in_their_order(engine: Engine) {
    let (_folder, db, home) = fresh(engine).await;
    let held = Arc::new(Semaphore::new(0));
    let first = {
        let held = held.clone();
        db.change(&home, &By::board(), NOW, move |tx| {
            let held = held.clone();
            Box::pin(async move {
                drop(held.acquire().await);
                tx.without_team().execute("INSERT INTO board (key, value) VALUES ('k', '')", &[]).await
            })
        })
    };
    let append = |n: u8| {
        db.change(&home, &By::board(), NOW, move |tx| {
            let sql = "UPDATE board SET value = value || $1 WHERE key = 'k'";
            Box::pin(async move { tx.without_team().execute(sql, args![char::from(b'a' + n).to_string()]).await })
        })
    };
    let all = async { tokio::join!(first, join_all((0..26).map(append))) };
    // All of them wait before this is polled.
    let release = async { held.add_permits(1) };
    let ((first, others), ()) = tokio::join!(all, release);
    first.expect("a change");
    assert!(others.iter().all(|touched| matches!(touched, Ok(1))), "{others:?}");
    let mut tx = db.reader().await.expect("a reader");
    let row = tx.row("SELECT value FROM board WHERE key = 'k'", &[]).await.expect("a row").expect("a row");
    assert_eq!(row.text("value").expect("text"), ('a'..='z').collect::<String>());
    drop(tx);
    db.close().await;
}

/// A database that does not answer is reported, also to those who would come after the change that waits for it.
#[tokio::test]
async fn nobody_waits_for_long_behind_a_change_that_hangs() {
    let (_folder, db, home) = fresh(Engine::Postgres).await;
    let held = Arc::new(Semaphore::new(0));
    let hangs = wait(&db, &home, &held);
    let behind = async {
        let began = Instant::now();
        let outcomes = join_all((0..3).map(|n| add(&db, &home, format!("k{n}"), Then::Nothing))).await;
        held.add_permits(1);
        (began.elapsed(), outcomes)
    };
    let (first, (took, outcomes)) = tokio::join!(hangs, behind);
    first.expect("it ended");
    assert!(outcomes.iter().all(|one| matches!(one, Err(DbError::Unavailable(_)))), "{outcomes:?}");
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert_eq!(keys(&db).await, [""; 0], "what was refused is not made later");
    add(&db, &home, "k9".into(), Then::Nothing).await.expect("a change");
    db.close().await;
}

/// A connection that was cut off on its way is silent for ever; others are not.
#[tokio::test]
async fn a_change_that_never_ends_is_given_up() {
    let (_folder, db, home) = fresh(Engine::Postgres).await;
    let never = db.change(&home, &By::board(), NOW, move |tx| {
        Box::pin(async move {
            tx.without_team().execute("INSERT INTO board (key, value) VALUES ('k1', 'x')", &[]).await?;
            std::future::pending::<Result<(), DbError>>().await
        })
    });
    assert!(matches!(never.await, Err(DbError::Unavailable(_))));
    add(&db, &home, "k2".into(), Then::Nothing).await.expect("a change");
    assert_eq!(keys(&db).await, ["k2"]);
    db.close().await;
}

/// A race that is lost among others.
#[tokio::test]
async fn a_lost_race_costs_no_change() {
    let database = Database::with_schema().await;
    let db = Db::open(&database.url).await.expect("a database");
    let home =
        db.write(|tx| Box::pin(async move { Ok::<_, DbError>(team(tx, "home").await?.id) })).await.expect("a team");
    let mut server = PgConnection::connect(&database.url).await.expect("the server");
    let racing = "CREATE SEQUENCE races; CREATE FUNCTION race() RETURNS BIGINT LANGUAGE plpgsql AS $$ BEGIN \
                  IF nextval('races') % 3 = 1 THEN RAISE EXCEPTION 'lost' USING ERRCODE = '40P01'; END IF; RETURN 1; END $$";
    sqlx::raw_sql(racing).execute(&mut server).await.expect("a function");
    let race = |n: usize| {
        db.change(&home, &By::board(), NOW, move |tx| {
            Box::pin(async move {
                let tx = tx.without_team();
                let sql = "INSERT INTO board (key, value) VALUES ($1, 'x')";
                let added = tx.execute(sql, args![format!("k{n:02}")]).await?;
                if n % 8 == 5 {
                    tx.row("SELECT race() AS n", &[]).await?;
                }
                Ok::<_, DbError>(added)
            })
        })
    };
    let done = join_all((0..40).map(race)).await;
    assert!(done.iter().all(|one| matches!(one, Ok(1))), "{done:?}");
    assert_eq!(keys(&db).await.len(), 40);
    db.close().await;
}

/// On SQLite all teams share the one writer.
#[tokio::test]
async fn a_team_does_not_wait_for_another_teams_change() {
    let (_folder, db, home) = fresh(Engine::Postgres).await;
    let far =
        db.write(|tx| Box::pin(async move { Ok::<_, DbError>(team(tx, "far").await?.id) })).await.expect("a team");
    let held = Arc::new(Semaphore::new(0));
    let stuck = wait(&db, &home, &held);
    let other = async {
        let added = add(&db, &far, "k1".into(), Then::Nothing).await;
        held.add_permits(1);
        added
    };
    let (stuck, added) = tokio::join!(stuck, other);
    stuck.and(added).expect("two changes");
    db.close().await;
}
