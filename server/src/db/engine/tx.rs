//! A transaction, or a reader: runs statements and returns their answers.
//!
//! Statements that belong together can be sent together: on SQLite that takes one turn of the connection's thread and one
//! wake-up of the caller. PostgreSQL runs the same statements one after the other.

pub(in crate::db) mod deferred;

use std::{
    collections::{BTreeSet, HashMap},
    future::poll_fn,
    sync::Arc,
};

use futures_util::TryStreamExt as _;
use protocol::TeamId;
use sqlx::{
    AssertSqlSafe, Either, Executor as _, Postgres, SqlSafeStr as _, SqlStr, SqliteConnection, pool::PoolConnection,
};

use crate::db::{
    DbError,
    audit::AuditChain,
    change_limits::ChangeCost,
    completion::{Completion, CompletionWait},
    ownership::Fence,
    row::{self, Arg, Row},
};

use deferred::{DeferredWrite, DeferredWrites};

/// Texts of statements that were sent together, kept at most; as many as there are prepared statements, and some more.
const MAX_KEPT_TEXTS: usize = 500;

/// One connection inside (or, for reads, outside) a transaction, of no team: only the stores that `tests/it/tidy.rs` lists
/// take it. What belongs to a team is read and changed through a [`crate::db::TeamTx`].
pub struct Tx {
    connection: EngineConnection,
    /// The audit's shared state of this database.
    chain: Arc<AuditChain>,
    /// Teams whose audit this transaction adds to.
    grown: BTreeSet<TeamId>,
    /// Statements without parameters that are sent before the next one: on SQLite what begins and ends savepoints.
    pub(in crate::db) ahead: Vec<&'static str>,
    /// Writes that are sent with the next statement, or at the end.
    pub(in crate::db) deferred: DeferredWrites,
    /// The last rows of audits that were added to. It holds while nobody else can add to them: from one `BEGIN` to its end.
    pub(in crate::db) audit_ends: HashMap<TeamId, (u64, String)>,
    /// A statement lost a serialization race or a deadlock: the whole change may be tried again.
    pub(in crate::db) raced: bool,
    /// The connection cannot be used any more.
    pub(in crate::db) broken: bool,
    /// The first error of a statement: PostgreSQL commits nothing of a transaction that had one.
    pub(in crate::db) refused: Option<DbError>,
    /// It was the connection or the server that failed.
    pub(in crate::db) lost: bool,
    /// What the change has written so far.
    pub(in crate::db) spent: ChangeCost,
}

enum EngineConnection {
    Sqlite(Box<Sqlite>),
    Postgres(PoolConnection<Postgres>),
}

/// A SQLite connection.
struct Sqlite {
    connection: SqliteConnection,
    waiting: CompletionWait,
    /// The combined texts of statements that are sent together, by the addresses of the single texts.
    texts: HashMap<Vec<(usize, usize)>, Arc<str>>,
}

/// The answer to one statement.
#[derive(Default)]
pub struct Answer {
    pub rows: Vec<Row>,
    /// Rows that it changed.
    pub touched: u64,
}

impl Answer {
    /// The first row, if there is one.
    pub fn row(&self) -> Option<&Row> {
        self.rows.first()
    }
}

/// A statement with its parameters, and how its answer is read. Prepared first, so that several can be sent together
/// ([`TeamTx::query_two`](crate::db::TeamTx::query_two)).
pub struct Query<T> {
    sql: &'static str,
    args: Vec<Arg>,
    pub(in crate::db) read: fn(Answer) -> Result<T, DbError>,
}

/// A statement as it is sent: a team's statement has its team before the other parameters.
#[derive(Clone, Copy)]
pub(in crate::db) struct BoundStatement<'a> {
    sql: &'static str,
    team: Option<&'a Arg>,
    args: &'a [Arg],
}

impl<'a> BoundStatement<'a> {
    /// A statement of the whole database.
    pub fn new(sql: &'static str, args: &'a [Arg]) -> Self {
        Self { sql, team: None, args }
    }

    /// A statement of one team.
    pub fn of(team: &'a Arg, sql: &'static str, args: &'a [Arg]) -> Self {
        Self { sql, team: Some(team), args }
    }

    /// All parameters, the first one is `$1`.
    pub fn args(self) -> impl Iterator<Item = &'a Arg> {
        self.team.into_iter().chain(self.args)
    }

    /// Whether the highest parameter that the text names is the last one that it is given.
    fn is_complete(self) -> bool {
        let numbers = self.sql.split('$').skip(1).map(|piece| {
            let digits = piece.bytes().take_while(u8::is_ascii_digit).count();
            piece[..digits].parse().unwrap_or(0)
        });
        numbers.max().unwrap_or(0) == self.count()
    }

    fn count(self) -> usize {
        usize::from(self.team.is_some()) + self.args.len()
    }
}

impl<T> Query<T> {
    /// Prepares a query. A [`TeamTx`](crate::db::TeamTx) sends it.
    pub fn new(sql: &'static str, args: &[Arg], read: fn(Answer) -> Result<T, DbError>) -> Self {
        Self { sql, args: args.to_vec(), read }
    }

    /// Its text.
    #[cfg(test)]
    pub(in crate::db) fn sql(&self) -> &'static str {
        self.sql
    }

    pub(in crate::db) fn of<'a>(&'a self, team: &'a Arg) -> BoundStatement<'a> {
        BoundStatement::of(team, self.sql, &self.args)
    }
}

impl Tx {
    pub(in crate::db) fn sqlite(connection: SqliteConnection, completion: Completion) -> Self {
        let connection = Sqlite { connection, waiting: CompletionWait::new(completion), texts: HashMap::new() };
        Self::over(EngineConnection::Sqlite(Box::new(connection)))
    }

    pub(in crate::db) fn postgres(connection: PoolConnection<Postgres>) -> Self {
        Self::over(EngineConnection::Postgres(connection))
    }

    fn over(connection: EngineConnection) -> Self {
        Self {
            connection,
            chain: Arc::default(),
            grown: BTreeSet::new(),
            ahead: Vec::new(),
            deferred: DeferredWrites::default(),
            audit_ends: HashMap::new(),
            raced: false,
            broken: false,
            refused: None,
            lost: false,
            spent: ChangeCost::new(),
        }
    }

    /// Whether the change has reached its limits (`change_limits`): the rest belongs in the next change.
    pub fn is_full(&self) -> bool {
        self.spent.is_enough()
    }

    /// Counts rows that triggers wrote along with a statement's own.
    pub fn also_wrote(&mut self, rows: u64) {
        self.spent.add("", rows);
    }

    /// Makes it a transaction for changes, which may add to the audit.
    pub(in crate::db) fn writing(self, chain: &Arc<AuditChain>) -> Self {
        Self { chain: chain.clone(), ..self }
    }

    /// The audit's shared state.
    pub(in crate::db) fn audit_chain(&self) -> &AuditChain {
        &self.chain
    }

    /// Marks that this transaction adds to a team's audit.
    pub(in crate::db) fn audit_grows(&mut self, team: &TeamId) {
        self.grown.insert(team.clone());
    }

    /// Reports the teams whose audit grew: the transaction was committed, or may have been.
    pub(in crate::db) fn report_audit_growth(&mut self) {
        self.chain.grew(std::mem::take(&mut self.grown));
    }

    /// Runs a statement and returns how many rows it touched.
    pub async fn execute(&mut self, sql: &'static str, args: &[Arg]) -> Result<u64, DbError> {
        Ok(self.answer(sql, args).await?.touched)
    }

    /// Runs a query and returns all its rows: bound every list with a LIMIT.
    pub async fn rows(&mut self, sql: &'static str, args: &[Arg]) -> Result<Vec<Row>, DbError> {
        Ok(self.answer(sql, args).await?.rows)
    }

    /// Runs a query that returns at most one row.
    pub async fn row(&mut self, sql: &'static str, args: &[Arg]) -> Result<Option<Row>, DbError> {
        Ok(self.rows(sql, args).await?.into_iter().next())
    }

    /// Whether this is SQLite: for the few statements where the two really differ.
    pub fn is_sqlite(&self) -> bool {
        matches!(self.connection, EngineConnection::Sqlite(_))
    }

    async fn answer(&mut self, sql: &'static str, args: &[Arg]) -> Result<Answer, DbError> {
        let [answer] = self.answers([BoundStatement::new(sql, args)]).await?;
        Ok(answer)
    }

    /// Runs statements in order, on SQLite in one command.
    pub(in crate::db) async fn answers<const N: usize>(
        &mut self,
        statements: [BoundStatement<'_>; N],
    ) -> Result<[Answer; N], DbError> {
        // SQLite takes a parameter that nobody bound for NULL.
        debug_assert!(statements.iter().all(|one| one.is_complete()), "a statement has other parameters than it names");
        let writes = self.deferred.take();
        if !self.is_sqlite() && !writes.is_empty() {
            let together = matches!(&statements[..], [one] if writes.iter().all(|write| write.goes_with(one.sql)));
            if !together {
                self.send(&writes, &[]).await?;
                return self.send(&[], &statements).await.map(array);
            }
        }
        self.send(&writes, &statements).await.map(array)
    }

    /// Sends deferred writes and the statements after them in one trip, but on PostgreSQL each statement of several in a
    /// trip of its own. Returns the answers to the statements.
    async fn send(
        &mut self,
        writes: &[DeferredWrite],
        statements: &[BoundStatement<'_>],
    ) -> Result<Vec<Answer>, DbError> {
        let ahead = std::mem::take(&mut self.ahead);
        let ahead = ahead.iter().map(|sql| BoundStatement::new(sql, &[]));
        let before = ahead.len() + writes.len();
        let writes_and_statements = writes.iter().map(DeferredWrite::bound).chain(statements.iter().copied());
        let all: Vec<BoundStatement<'_>> = ahead.chain(writes_and_statements).collect();
        let mut answers: Vec<Answer> = all.iter().map(|_| Answer::default()).collect();
        let done = match &mut self.connection {
            EngineConnection::Sqlite(sqlite) => sqlite.run(&all, &mut answers).await,
            EngineConnection::Postgres(connection) if writes.is_empty() => {
                postgres(connection, &all, &mut answers).await
            }
            EngineConnection::Postgres(connection) => postgres_together(connection, &all, &mut answers).await,
        };
        done.map_err(|error| self.note(error))?;
        for (one, answer) in all.iter().zip(&answers).skip(before - writes.len()) {
            self.spent.add(one.sql, answer.touched);
        }
        Ok(answers.split_off(before))
    }

    /// Runs a write at the latest before the next statement whose answer is read, or when the change ends: its own error
    /// comes then. A write that may fail for a reason that the caller handles is executed instead.
    pub(in crate::db) async fn defer(&mut self, write: DeferredWrite) -> Result<(), DbError> {
        debug_assert!(write.bound().is_complete(), "a statement has other parameters than it names");
        // SQLite runs them in order.
        if self.deferred.is_full() || (!self.is_sqlite() && !self.deferred.go_with(write.sql())) {
            self.flush().await?;
        }
        self.deferred.push(write);
        Ok(())
    }

    /// Sends the deferred writes.
    pub(in crate::db) async fn flush(&mut self) -> Result<(), DbError> {
        let writes = self.deferred.take();
        if writes.is_empty() { Ok(()) } else { self.send(&writes, &[]).await.map(drop) }
    }

    /// Begins a change on PostgreSQL; behind a fence it fails when another Board has the database.
    pub(in crate::db) async fn begin_postgres(&mut self, fence: Option<&Fence>) -> Result<(), DbError> {
        match (fence, &mut self.connection) {
            (Some(fence), EngineConnection::Postgres(connection)) => {
                let begun = fence.begin(connection).await;
                begun.map_err(|error| self.note(error))
            }
            _ => self.execute("BEGIN ISOLATION LEVEL READ COMMITTED", &[]).await.map(drop),
        }
    }

    /// Discards a connection whose transaction did not end properly, so that nobody else gets it.
    pub(in crate::db) fn forsake(self) {
        if let EngineConnection::Postgres(connection) = self.connection {
            drop(connection.detach());
        }
    }

    /// Closes its SQLite connection.
    pub(in crate::db) async fn close(self) {
        use sqlx::Connection as _;
        if let EngineConnection::Sqlite(sqlite) = self.connection
            && let Err(error) = sqlite.connection.close().await
        {
            tracing::debug!(%error, "a connection was not closed in order");
        }
    }

    fn note(&mut self, error: sqlx::Error) -> DbError {
        // PostgreSQL: serialization_failure and deadlock_detected.
        let code = error.as_database_error().and_then(|database| database.code());
        self.raced |= matches!(code.as_deref(), Some("40001" | "40P01"));
        self.broken |= matches!(error, sqlx::Error::WorkerCrashed);
        // Also PostgreSQL's connection_exception, its shutdowns, and idle_in_transaction_session_timeout.
        let is_gone =
            |code: &str| code.len() == 5 && (code.starts_with("08") || code.starts_with("57P") || code == "25P03");
        self.lost |= code.as_deref().is_some_and(is_gone)
            || matches!(error, sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::WorkerCrashed);
        let error = DbError::from(error);
        if self.refused.is_none() {
            self.refused = Some(error.clone());
        }
        error
    }
}

impl Sqlite {
    /// Runs statements in one command.
    async fn run(&mut self, statements: &[BoundStatement<'_>], answers: &mut [Answer]) -> Result<(), sqlx::Error> {
        let args = row::sqlite_arguments(statements.iter().flat_map(|one| one.args()))?;
        let query = match statements {
            [one] => sqlx::query_with(SqlStr::from_static(one.sql), args),
            _ => sqlx::query_with(AssertSqlSafe(self.text(statements)).into_sql_str(), args),
        };
        let mut stream = self.connection.fetch_many(query);
        let mut statement = 0;
        while let Some(came) = poll_fn(|context| self.waiting.poll(&mut stream, context)).await {
            match (came?, answers.get_mut(statement)) {
                (Either::Left(done), answer) => {
                    statement += 1;
                    if let Some(answer) = answer {
                        answer.touched = done.rows_affected();
                    }
                }
                (Either::Right(row), Some(answer)) => answer.rows.push(Row::Sqlite(row)),
                (Either::Right(_), None) => {}
            }
        }
        Ok(())
    }

    /// Several statements as one text: each one's parameter numbers continue after those before it.
    fn text(&mut self, statements: &[BoundStatement<'_>]) -> Arc<str> {
        let key = statements.iter().map(|one| (one.sql.as_ptr() as usize, one.sql.len())).collect();
        if self.texts.len() >= MAX_KEPT_TEXTS {
            self.texts.clear();
        }
        let text = self.texts.entry(key).or_insert_with(|| {
            let (mut text, mut bound) = (String::new(), 0);
            for one in statements {
                shift(&mut text, one.sql, bound);
                text.push_str(";\n");
                bound += one.count();
            }
            text.into()
        });
        text.clone()
    }
}

/// Appends `sql` with every `$n` raised by `by`. No statement of ours has a `$` in a literal.
fn shift(text: &mut String, sql: &str, by: usize) {
    let mut pieces = sql.split('$');
    text.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let digits = piece.bytes().take_while(u8::is_ascii_digit).count();
        let number: usize = piece[..digits].parse().unwrap_or_default();
        text.push_str(&format!("${}{}", number + by, &piece[digits..]));
    }
}

async fn postgres(
    connection: &mut PoolConnection<Postgres>,
    statements: &[BoundStatement<'_>],
    answers: &mut [Answer],
) -> Result<(), sqlx::Error> {
    for (one, answer) in statements.iter().zip(answers) {
        let query = row::bind_postgres(SqlStr::from_static(one.sql), one.args());
        let mut stream = connection.fetch_many(query);
        while let Some(came) = stream.try_next().await? {
            match came {
                Either::Left(done) => answer.touched += done.rows_affected(),
                Either::Right(row) => answer.rows.push(Row::Postgres(row)),
            }
        }
    }
    Ok(())
}

/// Runs writes as the parts of one statement, of which none sees what the others do. The last one may return rows.
async fn postgres_together(
    connection: &mut PoolConnection<Postgres>,
    writes: &[BoundStatement<'_>],
    answers: &mut [Answer],
) -> Result<(), sqlx::Error> {
    let (Some((last, others)), Some(answer)) = (writes.split_last(), answers.last_mut()) else { return Ok(()) };
    let (mut text, mut bound) = (String::new(), 0);
    for (n, one) in others.iter().enumerate() {
        text.push_str(&format!("{} w{n} AS (", if n == 0 { "WITH" } else { "," }));
        shift(&mut text, one.sql, bound);
        text.push(')');
        bound += one.count();
    }
    text.push(' ');
    shift(&mut text, last.sql, bound);
    let args = writes.iter().flat_map(|one| one.args());
    let mut stream = connection.fetch_many(row::bind_postgres(AssertSqlSafe(text).into_sql_str(), args));
    while let Some(came) = stream.try_next().await? {
        match came {
            Either::Left(done) => answer.touched += done.rows_affected(),
            Either::Right(row) => answer.rows.push(Row::Postgres(row)),
        }
    }
    drop(stream);
    // How many rows the others touched is not told: one each is the rule.
    let count = others.len();
    answers.iter_mut().take(count).for_each(|answer| answer.touched = 1);
    Ok(())
}

/// The answers to as many statements as were asked.
fn array<const N: usize>(answers: Vec<Answer>) -> [Answer; N] {
    let mut answers = answers.into_iter();
    std::array::from_fn(|_| answers.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_statements_that_travel_together_are_counted_on() {
        let mut text = String::new();
        shift(&mut text, "UPDATE a SET b = $2 WHERE c = $1 AND d = $2", 0);
        shift(&mut text, "; SELECT $1, $10 || 'x'", 2);
        assert_eq!(text, "UPDATE a SET b = $2 WHERE c = $1 AND d = $2; SELECT $3, $12 || 'x'");
    }
}
