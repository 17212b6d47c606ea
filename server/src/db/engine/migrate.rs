//! Schema versions: paired files in `migrations/{sqlite,postgres}/`, append-only, applied by sqlx's migrator.

use std::borrow::Cow;

use sqlx::{
    Connection as _, PgConnection, SqlStr, SqliteConnection,
    migrate::{MigrateError, Migration, MigrationType, Migrator},
};

use crate::db::{Db, DbError, Pools};
use crate::fault;

/// Instructions of SQLite's virtual machine between two failpoints of a migration.
const FAILPOINT_INSTRUCTIONS: i32 = 10;

/// Version, name and both texts of every migration, oldest first.
const MIGRATIONS: &[(i64, &str, &str, &str)] = &[
    (
        1,
        "first",
        include_str!("../../../../migrations/sqlite/0001_first.sql"),
        include_str!("../../../../migrations/postgres/0001_first.sql"),
    ),
    (
        2,
        "workspace",
        include_str!("../../../../migrations/sqlite/0002_workspace.sql"),
        include_str!("../../../../migrations/postgres/0002_workspace.sql"),
    ),
    (
        3,
        "usage",
        include_str!("../../../../migrations/sqlite/0003_usage.sql"),
        include_str!("../../../../migrations/postgres/0003_usage.sql"),
    ),
    (
        4,
        "bounds",
        include_str!("../../../../migrations/sqlite/0004_bounds.sql"),
        include_str!("../../../../migrations/postgres/0004_bounds.sql"),
    ),
    (
        5,
        "damage",
        include_str!("../../../../migrations/sqlite/0005_damage.sql"),
        include_str!("../../../../migrations/postgres/0005_damage.sql"),
    ),
    (
        6,
        "logins",
        include_str!("../../../../migrations/sqlite/0006_logins.sql"),
        include_str!("../../../../migrations/postgres/0006_logins.sql"),
    ),
    (
        7,
        "confinement",
        include_str!("../../../../migrations/sqlite/0007_confinement.sql"),
        include_str!("../../../../migrations/postgres/0007_confinement.sql"),
    ),
    (
        8,
        "audit_pending",
        include_str!("../../../../migrations/sqlite/0008_audit_pending.sql"),
        include_str!("../../../../migrations/postgres/0008_audit_pending.sql"),
    ),
    (
        9,
        "lists",
        include_str!("../../../../migrations/sqlite/0009_lists.sql"),
        include_str!("../../../../migrations/postgres/0009_lists.sql"),
    ),
    (
        10,
        "open_weight",
        include_str!("../../../../migrations/sqlite/0010_open_weight.sql"),
        include_str!("../../../../migrations/postgres/0010_open_weight.sql"),
    ),
    (
        11,
        "session_versions",
        include_str!("../../../../migrations/sqlite/0011_session_versions.sql"),
        include_str!("../../../../migrations/postgres/0011_session_versions.sql"),
    ),
    (
        12,
        "title_search",
        include_str!("../../../../migrations/sqlite/0012_title_search.sql"),
        include_str!("../../../../migrations/postgres/0012_title_search.sql"),
    ),
    (
        13,
        "viber_search",
        include_str!("../../../../migrations/sqlite/0013_viber_search.sql"),
        include_str!("../../../../migrations/postgres/0013_viber_search.sql"),
    ),
    (
        14,
        "viber_counts",
        include_str!("../../../../migrations/sqlite/0014_viber_counts.sql"),
        include_str!("../../../../migrations/postgres/0014_viber_counts.sql"),
    ),
    (
        15,
        "panes",
        include_str!("../../../../migrations/sqlite/0015_panes.sql"),
        include_str!("../../../../migrations/postgres/0015_panes.sql"),
    ),
    (
        16,
        "session_filters",
        include_str!("../../../../migrations/sqlite/0016_session_filters.sql"),
        include_str!("../../../../migrations/postgres/0016_session_filters.sql"),
    ),
    (
        17,
        "message_search",
        include_str!("../../../../migrations/sqlite/0017_message_search.sql"),
        include_str!("../../../../migrations/postgres/0017_message_search.sql"),
    ),
    (
        18,
        "waiting_files",
        include_str!("../../../../migrations/sqlite/0018_waiting_files.sql"),
        include_str!("../../../../migrations/postgres/0018_waiting_files.sql"),
    ),
    (
        19,
        "task_messages",
        include_str!("../../../../migrations/sqlite/0019_task_messages.sql"),
        include_str!("../../../../migrations/postgres/0019_task_messages.sql"),
    ),
    (
        20,
        "approvals",
        include_str!("../../../../migrations/sqlite/0020_approvals.sql"),
        include_str!("../../../../migrations/postgres/0020_approvals.sql"),
    ),
    (
        21,
        "decisions",
        include_str!("../../../../migrations/sqlite/0021_decisions.sql"),
        include_str!("../../../../migrations/postgres/0021_decisions.sql"),
    ),
    (
        22,
        "messages",
        include_str!("../../../../migrations/sqlite/0022_messages.sql"),
        include_str!("../../../../migrations/postgres/0022_messages.sql"),
    ),
    (
        23,
        "context",
        include_str!("../../../../migrations/sqlite/0023_context.sql"),
        include_str!("../../../../migrations/postgres/0023_context.sql"),
    ),
    (
        24,
        "compaction",
        include_str!("../../../../migrations/sqlite/0024_compaction.sql"),
        include_str!("../../../../migrations/postgres/0024_compaction.sql"),
    ),
    (
        25,
        "overflow",
        include_str!("../../../../migrations/sqlite/0025_overflow.sql"),
        include_str!("../../../../migrations/postgres/0025_overflow.sql"),
    ),
    (
        26,
        "limits",
        include_str!("../../../../migrations/sqlite/0026_limits.sql"),
        include_str!("../../../../migrations/postgres/0026_limits.sql"),
    ),
    (
        27,
        "open_tasks",
        include_str!("../../../../migrations/sqlite/0027_open_tasks.sql"),
        include_str!("../../../../migrations/postgres/0027_open_tasks.sql"),
    ),
    (
        28,
        "skills",
        include_str!("../../../../migrations/sqlite/0028_skills.sql"),
        include_str!("../../../../migrations/postgres/0028_skills.sql"),
    ),
    (
        29,
        "playbooks",
        include_str!("../../../../migrations/sqlite/0029_playbooks.sql"),
        include_str!("../../../../migrations/postgres/0029_playbooks.sql"),
    ),
    (
        30,
        "rollouts",
        include_str!("../../../../migrations/sqlite/0030_rollouts.sql"),
        include_str!("../../../../migrations/postgres/0030_rollouts.sql"),
    ),
    (
        31,
        "mesh",
        include_str!("../../../../migrations/sqlite/0031_mesh.sql"),
        include_str!("../../../../migrations/postgres/0031_mesh.sql"),
    ),
    (
        32,
        "mcp",
        include_str!("../../../../migrations/sqlite/0032_mcp.sql"),
        include_str!("../../../../migrations/postgres/0032_mcp.sql"),
    ),
    (
        33,
        "adapters",
        include_str!("../../../../migrations/sqlite/0033_adapters.sql"),
        include_str!("../../../../migrations/postgres/0033_adapters.sql"),
    ),
    (
        34,
        "asked sessions",
        include_str!("../../../../migrations/sqlite/0034_asked_sessions.sql"),
        include_str!("../../../../migrations/postgres/0034_asked_sessions.sql"),
    ),
];

/// The schema version this binary speaks.
pub fn newest() -> i64 {
    MIGRATIONS.last().map_or(0, |migration| migration.0)
}

/// The schema version of a database; 0 when it is empty.
pub async fn version(db: &Db) -> Result<i64, DbError> {
    let mut tx = db.reader().await?;
    let sql = match tx.is_sqlite() {
        true => "SELECT 1 AS n FROM sqlite_master WHERE name = '_sqlx_migrations'",
        false => "SELECT CAST(1 AS BIGINT) AS n FROM pg_class WHERE oid = to_regclass('_sqlx_migrations')",
    };
    if tx.row(sql, &[]).await?.is_none() {
        return Ok(0);
    }
    let row = tx.row("SELECT COALESCE(MAX(version), 0) AS version FROM _sqlx_migrations", &[]).await?;
    row.map_or(Ok(0), |row| row.int("version"))
}

/// Whether a Board's tables are there, whatever made them.
async fn has_tables(db: &Db) -> Result<bool, DbError> {
    let mut tx = db.reader().await?;
    let sql = match tx.is_sqlite() {
        true => "SELECT 1 AS n FROM sqlite_master WHERE name = 'teams'",
        false => "SELECT CAST(1 AS BIGINT) AS n FROM pg_class WHERE oid = to_regclass('teams')",
    };
    Ok(tx.row(sql, &[]).await?.is_some())
}

fn migrator(pick: fn(&(i64, &'static str, &'static str, &'static str)) -> &'static str) -> Migrator {
    let list = MIGRATIONS.iter().map(|all| {
        Migration::new(all.0, Cow::Borrowed(all.1), MigrationType::Simple, SqlStr::from_static(pick(all)), false)
    });
    Migrator::with_migrations(list.collect())
}

/// Migrates an SQLite database that nobody else uses to a version, or to the newest.
pub(in crate::db) async fn sqlite_up_to(
    connection: &mut SqliteConnection,
    version: Option<i64>,
) -> Result<(), DbError> {
    migrator(|all| all.2).run_direct(version, connection, false).await.map_err(failed)
}

/// Makes the newest schema inside a transaction of PostgreSQL, where there is none.
pub(in crate::db) async fn postgres_inside(connection: &mut PgConnection) -> Result<(), DbError> {
    let mut migrator = migrator(|all| all.3);
    // Whoever replaces a database has it to itself.
    migrator.set_locking(false);
    migrator.run_direct(None, connection, false).await.map_err(failed)
}

fn failed(error: MigrateError) -> DbError {
    match error {
        MigrateError::Execute(error) => error.into(),
        other => DbError::Broken(format!("the schema could not be brought up to date: {other}")),
    }
}

/// Applies what is missing. A database newer than this binary is refused before anything is written.
pub(in crate::db) async fn run(db: &Db) -> Result<(), DbError> {
    let found = version(db).await?;
    if found > newest() {
        return Err(DbError::Broken(format!(
            "the database has schema version {found}, this binary knows only {}: use the newer viber-board, or restore a backup",
            newest()
        )));
    }
    // The version is read again: another process may have made the tables just now.
    if found == 0 && has_tables(db).await? && version(db).await? == 0 {
        return Err(DbError::Broken(
            "the database has tables, but nothing in it says of which schema version: restore a backup, or use an empty one"
                .into(),
        ));
    }
    let done = match &db.pools {
        Pools::Sqlite(readers) => {
            let mut alone = readers.writable().await?;
            if cfg!(feature = "failpoints") {
                // Where a test can end the Board in the middle of a migration.
                let mut machine = alone.lock_handle().await?;
                machine.set_progress_handler(FAILPOINT_INSTRUCTIONS, || !fault::at("migrate::step"));
            }
            let done = migrator(|all| all.2).run(&mut alone).await;
            alone.close().await?;
            done
        }
        Pools::Postgres(pool) => {
            // A migration has no time limit, and neither has waiting for another process's.
            let mut alone = pool.acquire().await?.detach();
            sqlx::raw_sql("SET statement_timeout = 0; SET lock_timeout = 0").execute(&mut alone).await?;
            migrator(|all| all.3).run(&mut alone).await
        }
    };
    done.map_err(failed)
}
