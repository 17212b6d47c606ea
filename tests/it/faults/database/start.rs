//! A database that a Board must not serve: damaged, of another schema, or half migrated (F48, F53).

use std::{
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::Path,
};

use board_tests::{Board, Engine, FakeDaemon, Fixture, eventually, postgres::Database};
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqliteConnection};

use super::{Asking, absent, absent_on, count, file};

crate::on_both_databases!(
    f48_a_schema_that_is_newer_is_refused_untouched,
    f48_a_schema_that_is_not_ours_is_refused_untouched,
);

/// A Board that has served and was stopped in order, with some pages of everything.
async fn stopped(engine: Engine) -> Fixture<FakeDaemon> {
    let mut fixture = absent_on(engine).await;
    let talker = fixture.talker(3_000).await;
    for n in 0..10 {
        fixture.ask(&format!("task {n}")).await;
    }
    talker.finish(&fixture.operator).await;
    fixture.board.stop().await;
    fixture
}

/// All that the database holds, in a few bytes.
async fn held(board: &Board) -> String {
    match board.engine {
        Engine::Sqlite => {
            let folder = file(board);
            let hash = |path: &Path| format!("{:?}", std::fs::read(path).map(Sha256::digest).ok());
            // An empty log holds nothing.
            let wal = folder.with_extension("db-wal");
            let log = std::fs::metadata(&wal).map_or(0, |meta| meta.len());
            format!("{} {log}", hash(&folder))
        }
        Engine::Postgres => {
            let mut connection = PgConnection::connect(&board.database_url).await.expect("the database");
            let all = "SELECT md5(schema_to_xml('public', true, false, '')::text) || md5(schema_to_xmlschema('public', true, false, '')::text)";
            let held: String = sqlx::query_scalar(all).fetch_one(&mut connection).await.expect("a hash");
            held
        }
    }
}

/// Changes the database as another version's Board or a hand would.
async fn change(board: &Board, sql: &str) {
    let sql = AssertSqlSafe(sql.to_owned());
    match board.engine {
        Engine::Sqlite => {
            let mut connection = SqliteConnection::connect(&board.database_url).await.expect("the file");
            connection.execute(sql).await.expect("a good statement");
            connection.close().await.expect("a clean goodbye");
        }
        Engine::Postgres => {
            let mut connection = PgConnection::connect(&board.database_url).await.expect("the database");
            connection.execute(sql).await.expect("a good statement");
            connection.close().await.expect("a clean goodbye");
        }
    }
}

/// Starts a Board that must refuse: its exit code, what it said, and that nothing was written.
async fn refused(board: &mut Board, what: &str) -> (i32, String) {
    let (before, said) = (held(board).await, board.log().len());
    board.serve();
    let status = board.ended().await;
    let code = status.code().unwrap_or_else(|| panic!("{what}: {status}"));
    let log = board.log()[said..].to_owned();
    assert_ne!(code, 0, "{what}: {log}");
    assert!(!log.contains("panicked") && !log.contains("serving"), "{what}: {log}");
    assert_eq!(held(board).await, before, "{what}: nothing is written");
    (code, log)
}

async fn f48_a_schema_that_is_newer_is_refused_untouched(engine: Engine) {
    let mut fixture = stopped(engine).await;
    let bytes = if engine == Engine::Sqlite { "x'00'" } else { "'\\x00'" };
    let newer = format!(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (9999, 'from the future', TRUE, {bytes}, 0)"
    );
    change(&fixture.board, &newer).await;
    let (code, said) = refused(&mut fixture.board, "newer").await;
    assert_eq!(code, 78, "{said}");
    assert!(said.contains("9999") && said.contains("newer viber-board"), "it says what to do: {said}");
    for verb in [&["migrate"][..], &["token", "add", "--team", "home", "--name", "x", "--role", "viewer"]] {
        let before = held(&fixture.board).await;
        let said = fixture.board.cli(verb).await;
        assert_ne!(said.code(), 0, "{verb:?}: {said:?}");
        assert_eq!(held(&fixture.board).await, before, "{verb:?}: nothing is written");
    }
    change(&fixture.board, "DELETE FROM _sqlx_migrations WHERE version = 9999").await;
    fixture.board.restart().await;
    fixture.board.assert_invariants().await;
}

async fn f48_a_schema_that_is_not_ours_is_refused_untouched(engine: Engine) {
    let mut fixture = stopped(engine).await;
    let bytes = if engine == Engine::Sqlite { "x'00'" } else { "'\\x00'" };
    change(&fixture.board, "CREATE TABLE kept AS SELECT * FROM _sqlx_migrations").await;
    let wrong = [
        ("another text under our number", format!("UPDATE _sqlx_migrations SET checksum = {bytes} WHERE version = 1")),
        (
            "a migration that was not finished",
            "UPDATE _sqlx_migrations SET success = FALSE WHERE version = 1".to_owned(),
        ),
        ("tables, and nothing that says whose", "DROP TABLE _sqlx_migrations".to_owned()),
    ];
    for (what, sql) in wrong {
        change(&fixture.board, &sql).await;
        let (_, said) = refused(&mut fixture.board, what).await;
        assert!(said.contains("schema") || said.contains("migration") || said.contains("exists"), "{what}: {said}");
        if sql.starts_with("DROP") {
            change(&fixture.board, "CREATE TABLE _sqlx_migrations AS SELECT * FROM kept").await;
        }
        let back = "DELETE FROM _sqlx_migrations; INSERT INTO _sqlx_migrations SELECT * FROM kept";
        change(&fixture.board, back).await;
    }
    change(&fixture.board, "DROP TABLE kept").await;
    fixture.board.restart().await;
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f48_a_damaged_file_is_refused_untouched() {
    let mut fixture = stopped(Engine::Sqlite).await;
    let path = file(&fixture.board);
    let log = std::fs::metadata(path.with_extension("db-wal")).map_or(0, |meta| meta.len());
    assert_eq!(log, 0, "a Board that was stopped has everything in one file");
    let mut connection = SqliteConnection::connect(&fixture.board.database_url).await.expect("the file");
    let roots = "SELECT name, rootpage FROM sqlite_master WHERE name IN ('tasks', 'events', 'operators', \
                 'tasks_session', 'sqlite_autoindex_tasks_1') ORDER BY rootpage";
    let mut pages: Vec<(String, i64)> = sqlx::query_as(roots).fetch_all(&mut connection).await.expect("pages");
    // Somewhere in the middle of the events.
    let leaf = "SELECT 'a page of events', MAX(pageno) FROM dbstat WHERE name = 'events' AND pagetype = 'leaf'";
    if let Ok(page) = sqlx::query_as(leaf).fetch_one(&mut connection).await {
        pages.push(page);
    }
    connection.close().await.expect("a clean goodbye");
    assert!(pages.len() >= 4, "{pages:?}");
    let whole = std::fs::read(&path).expect("the file");
    for (name, page) in &pages {
        damage(&path, &whole, u64::try_from(page - 1).expect("a page") * 4096, 4096);
        let (_, said) = refused(&mut fixture.board, name).await;
        assert!(said.contains("damaged") && said.contains("backup"), "{name}: it says what to do: {said}");
    }
    damage(&path, &whole, 0, 100);
    refused(&mut fixture.board, "the head of the file").await;
    damage(&path, &whole, 100, 200);
    refused(&mut fixture.board, "the schema's page").await;
    std::fs::write(&path, &whole[..whole.len() / 2]).expect("half of it");
    refused(&mut fixture.board, "half a file").await;
    std::fs::write(&path, "no database at all\n".repeat(1000)).expect("a text");
    refused(&mut fixture.board, "a text").await;

    std::fs::write(&path, &whole).expect("all of it");
    fixture.board.restart().await;
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f48_damage_that_nobody_wrote_is_found_while_the_board_serves() {
    let mut fixture = stopped(Engine::Sqlite).await;
    let path = file(&fixture.board);
    let lock = path.with_extension("db.lock");
    let noted = std::fs::read_to_string(&lock).expect("a lock file");
    let left = state(&path);
    assert!(noted.contains(&left), "it was left in order: {noted}");
    let page = unread_page(&fixture.board).await;
    let whole = std::fs::read(&path).expect("the file");
    damage(&path, &whole, page * 4096, 4096);
    // A disk that loses bytes does not change the file's times.
    std::fs::write(&lock, noted.replace(&left, &state(&path))).expect("the lock file");
    let said = fixture.board.log().len();
    fixture.board.serve();
    assert_eq!(fixture.board.ended().await.code(), Some(1));
    let log = fixture.board.log()[said..].to_owned();
    assert!(log.contains("serving") && log.contains("damaged") && log.contains("backup"), "{log}");
    let noted = std::fs::read_to_string(&lock).expect("a lock file");
    assert!(noted.lines().any(|line| line.starts_with("damaged: ")), "{noted}");
    let (_, said) = refused(&mut fixture.board, "what was found").await;
    assert!(said.contains("damaged") && said.contains("backup"), "{said}");

    std::fs::write(&path, &whole).expect("all of it");
    fixture.board.restart().await;
    fixture.board.assert_invariants().await;
}

/// Damage in a file that is too large for the second that a start has for its check.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f48_damage_in_a_large_file_is_served_once_and_refused_from_then_on() {
    let mut fixture = stopped(Engine::Sqlite).await;
    let path = file(&fixture.board);
    let page = unread_page(&fixture.board).await;
    let whole = std::fs::read(&path).expect("the file");
    damage(&path, &whole, page * 4096, 4096);
    fixture.board.fail("integrity::question", "1*sleep(1500)").await;
    let said = fixture.board.log().len();
    fixture.board.serve();
    assert_eq!(fixture.board.ended().await.code(), Some(1));
    let log = fixture.board.log()[said..].to_owned();
    assert!(log.contains("serving") && log.contains("damaged"), "found while it served: {log}");
    for turn in ["the next start", "and the one after it"] {
        let (code, said) = refused(&mut fixture.board, turn).await;
        assert!(code == 1 && said.contains("damaged") && said.contains("backup"), "{turn}: {said}");
    }
    // A file that was mended in its place is checked to its end, and the damage is forgotten.
    std::fs::write(&path, &whole).expect("all of it");
    fixture.board.restart().await;
    let lock = std::fs::read_to_string(path.with_extension("db.lock")).expect("a lock file");
    assert!(!lock.contains("damaged"), "{lock}");
    fixture.board.assert_invariants().await;
}

/// A check that hangs in the disk does not keep the process from ending, and the file is not noted as in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f48_a_stop_does_not_wait_for_the_check_behind() {
    let mut fixture = stopped(Engine::Sqlite).await;
    fixture.board.fail("integrity::question", "1*sleep(300000)").await;
    fixture.board.restart().await;
    let said = fixture.board.log().len();
    fixture.board.begin_stop();
    eventually("it is stopping", || async { fixture.board.log()[said..].contains("asked to stop").then_some(()) })
        .await;
    // Eight seconds later it would stop hard by itself.
    fixture.board.begin_stop();
    assert!(fixture.board.ended().await.success(), "{}", fixture.board.log());
    let lock = std::fs::read_to_string(file(&fixture.board).with_extension("db.lock")).expect("a lock file");
    assert!(!lock.contains("left in order"), "{lock}");
    fixture.board.heal().await;
    fixture.board.restart().await;
    fixture.board.assert_invariants().await;
}

/// A page that nothing reads when a Board starts, counted from 0: comments are read with their session.
async fn unread_page(board: &Board) -> u64 {
    let mut connection = SqliteConnection::connect(&board.database_url).await.expect("the file");
    let root = "SELECT rootpage FROM sqlite_master WHERE name = 'comments_author'";
    let page: i64 = sqlx::query_scalar(root).fetch_one(&mut connection).await.expect("a page");
    connection.close().await.expect("a clean goodbye");
    u64::try_from(page - 1).expect("a page")
}

/// How a Board's lock file names the state of the database that it left.
fn state(database: &Path) -> String {
    let meta = std::fs::metadata(database).expect("the file");
    let time = |seconds: i64, nanoseconds: i64| format!("{seconds}.{nanoseconds:09}");
    let (written, changed) = (time(meta.mtime(), meta.mtime_nsec()), time(meta.ctime(), meta.ctime_nsec()));
    format!("left in order: {} {} {} {written} {changed}", meta.dev(), meta.ino(), meta.len())
}

/// Writes `whole` with `length` bytes from `at` on overwritten.
fn damage(path: &Path, whole: &[u8], at: u64, length: usize) {
    std::fs::write(path, whole).expect("the file");
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("the file");
    file.write_all_at(&vec![0xa5; length], at).expect("damage");
    file.sync_all().expect("on the disk");
}

/// Whether a Board's schema is complete, or there is nothing of it at all.
const MIGRATIONS_SQL: &str = "SELECT COUNT(*) AS n FROM _sqlx_migrations WHERE success";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f53_a_board_killed_in_a_migration_starts_over_on_sqlite() {
    // A step is so many instructions of SQLite's machine: in the first tables, in the middle, and in the last ones.
    for actions in ["return(crash)", "10*off->return(crash)", "60*off->return(crash)"] {
        let point = actions;
        let mut board = Board::prepare(Engine::Sqlite, &[]).await;
        board.fail("migrate::step", actions).await;
        board.serve();
        let status = board.ended().await;
        assert!(status.code().is_none(), "{point}: it did not die in the migration: {status}");
        let mut connection = SqliteConnection::connect(&board.database_url).await.expect("the file");
        let sql =
            "SELECT COUNT(*) FROM sqlite_master WHERE name NOT LIKE '\\_sqlx%' ESCAPE '\\' AND name NOT LIKE 'sqlite%'";
        let tables: i64 = sqlx::query_scalar(sql).fetch_one(&mut connection).await.expect("a count");
        connection.close().await.expect("a clean goodbye");
        assert_eq!(tables, 0, "{point}: half a schema");
        board.heal().await;
        board.restart().await;
        assert_eq!(count(&board.database_url, MIGRATIONS_SQL).await, server::db::newest().cast_unsigned(), "{point}");
        let fixture = absent(board).await;
        fixture.ask("works").await;
        fixture.board.assert_invariants().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f53_a_board_killed_in_a_migration_starts_over_on_postgres() {
    let mut board = Board::prepare(Engine::Postgres, &[]).await;
    let mut outsider = PgConnection::connect(&board.database_url).await.expect("the database");
    // The migration's last table cannot be made while somebody else is about to make it: all others are there by then.
    outsider.execute("BEGIN").await.expect("a transaction");
    outsider.execute("CREATE TABLE audit (n INT)").await.expect("a table");
    board.serve();
    let waits = "SELECT COUNT(*) AS n FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
                 WHERE NOT l.granted AND a.datname = current_database()";
    board_tests::eventually("the migration stands at its last table", || async {
        (count(&board.database_url, waits).await > 0).then_some(())
    })
    .await;
    board.kill9();
    outsider.execute("ROLLBACK").await.expect("nothing");
    board.restart().await;
    assert_eq!(count(&board.database_url, MIGRATIONS_SQL).await, server::db::newest().cast_unsigned());
    let left =
        "SELECT COUNT(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'";
    eventually("nothing is left open", || async { (count(&board.database_url, left).await == 0).then_some(()) }).await;
    let fixture = absent(board).await;
    fixture.ask("works").await;
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f53_of_two_boards_that_begin_on_one_empty_database_one_serves() {
    let database = Database::create().await;
    let mut boards = Vec::new();
    for _ in 0..2 {
        let mut board = Board::prepare(Engine::Sqlite, &[]).await;
        (board.engine, board.database_url) = (Engine::Postgres, database.url.clone());
        boards.push(board);
    }
    boards.iter_mut().for_each(Board::serve);
    let early = board_tests::eventually("one of them ends", || {
        let ended = boards.iter_mut().position(Board::has_ended);
        async move { ended }
    })
    .await;
    let mut refused = boards.remove(early);
    assert_eq!(refused.ended().await.code(), Some(78), "{}", refused.log());
    boards[0].ready().await;
    assert_eq!(count(&database.url, MIGRATIONS_SQL).await, server::db::newest().cast_unsigned());
    let fixture = absent(boards.remove(0)).await;
    let super::Asked::Kept(task) = fixture.ask("on the first").await else { panic!("it serves") };
    assert_eq!(fixture.operator.task(&task).await["goal"], "on the first");
    fixture.board.assert_invariants().await;
}
