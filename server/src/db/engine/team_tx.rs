//! Transactions that know their team: a team's data is read and changed only through these.

use std::ops::{Deref, DerefMut};

use protocol::{Instant, TeamId};

use crate::db::{
    Answer, Arg, DbError, Query, Tx,
    audit::AuditChain,
    readers::Reader,
    tx::{BoundStatement, deferred::DeferredWrite},
};
use crate::domain::By;

/// A transaction or reader of one team: its id is `$1` of every statement, so that no statement can miss it.
pub struct TeamTx<'t> {
    tx: BorrowedTx<'t>,
    pub team: TeamId,
    /// The team's id as the first parameter of every statement.
    first: Arg,
}

enum BorrowedTx<'t> {
    Reader(Box<Reader<'t>>),
    Tx(&'t mut Tx),
}

/// A change of one team, made by an actor at one instant.
pub struct Change<'t> {
    tx: TeamTx<'t>,
    pub by: By,
    pub now: Instant,
}

impl Tx {
    /// The same transaction for one team.
    pub fn of<'t>(&'t mut self, team: &TeamId) -> TeamTx<'t> {
        TeamTx::new(BorrowedTx::Tx(self), team)
    }

    /// The same transaction as a change of one team.
    pub fn change<'t>(&'t mut self, team: &TeamId, by: &By, now: Instant) -> Change<'t> {
        Change { tx: self.of(team), by: by.clone(), now }
    }
}

impl<'t> TeamTx<'t> {
    pub(in crate::db) fn reader(reader: Reader<'t>, team: &TeamId) -> Self {
        Self::new(BorrowedTx::Reader(Box::new(reader)), team)
    }

    fn new(tx: BorrowedTx<'t>, team: &TeamId) -> Self {
        Self { tx, team: team.clone(), first: Arg::from(team) }
    }

    /// The same transaction without the team, for rows that belong to a person or to the Board.
    pub fn without_team(&mut self) -> &mut Tx {
        match &mut self.tx {
            BorrowedTx::Reader(reader) => reader,
            BorrowedTx::Tx(tx) => tx,
        }
    }

    /// Runs a statement and returns how many rows it touched.
    pub async fn execute(&mut self, sql: &'static str, args: &[Arg]) -> Result<u64, DbError> {
        Ok(self.answer(sql, args).await?.touched)
    }

    /// Runs a write with those that follow: see [`Tx::defer`].
    pub async fn defer(&mut self, sql: &'static str, args: &[Arg]) -> Result<(), DbError> {
        let write = DeferredWrite::new(sql, &self.first, args);
        self.without_team().defer(write).await
    }

    /// Runs a query and returns all its rows: bound every list with a LIMIT.
    pub async fn rows(&mut self, sql: &'static str, args: &[Arg]) -> Result<Vec<crate::db::Row>, DbError> {
        Ok(self.answer(sql, args).await?.rows)
    }

    /// Runs a query that returns at most one row.
    pub async fn row(&mut self, sql: &'static str, args: &[Arg]) -> Result<Option<crate::db::Row>, DbError> {
        Ok(self.rows(sql, args).await?.into_iter().next())
    }

    /// Runs one prepared query.
    pub async fn query<T>(&mut self, query: Query<T>) -> Result<T, DbError> {
        let [answer] = self.answers(|team| [query.of(team)]).await?;
        (query.read)(answer)
    }

    /// Runs two prepared queries in this order, pipelined: on SQLite they take one round trip.
    pub async fn query_two<A, B>(&mut self, a: Query<A>, b: Query<B>) -> Result<(A, B), DbError> {
        let [first, second] = self.answers(|team| [a.of(team), b.of(team)]).await?;
        Ok(((a.read)(first)?, (b.read)(second)?))
    }

    /// The same for three.
    pub async fn query_three<A, B, C>(&mut self, a: Query<A>, b: Query<B>, c: Query<C>) -> Result<(A, B, C), DbError> {
        let [first, second, third] = self.answers(|team| [a.of(team), b.of(team), c.of(team)]).await?;
        Ok(((a.read)(first)?, (b.read)(second)?, (c.read)(third)?))
    }

    /// The same for four.
    pub async fn query_four<A, B, C, D>(
        &mut self,
        (a, b): (Query<A>, Query<B>),
        (c, d): (Query<C>, Query<D>),
    ) -> Result<(A, B, C, D), DbError> {
        let [first, second, third, fourth] =
            self.answers(|team| [a.of(team), b.of(team), c.of(team), d.of(team)]).await?;
        Ok(((a.read)(first)?, (b.read)(second)?, (c.read)(third)?, (d.read)(fourth)?))
    }

    /// Whether this is SQLite: for the few statements where the two really differ.
    pub fn is_sqlite(&self) -> bool {
        match &self.tx {
            BorrowedTx::Reader(reader) => reader.is_sqlite(),
            BorrowedTx::Tx(tx) => tx.is_sqlite(),
        }
    }

    /// Whether the change has reached its limits (`change_limits`): the rest belongs in the next change.
    pub fn is_full(&mut self) -> bool {
        self.without_team().is_full()
    }

    /// Counts rows that triggers wrote along with a statement's own.
    pub fn also_wrote(&mut self, rows: u64) {
        self.without_team().also_wrote(rows);
    }

    async fn answer(&mut self, sql: &'static str, args: &[Arg]) -> Result<Answer, DbError> {
        let [answer] = self.answers(|team| [BoundStatement::of(team, sql, args)]).await?;
        Ok(answer)
    }

    async fn answers<'a, const N: usize>(
        &'a mut self,
        statements: impl FnOnce(&'a Arg) -> [BoundStatement<'a>; N],
    ) -> Result<[Answer; N], DbError> {
        let tx = match &mut self.tx {
            BorrowedTx::Reader(reader) => reader,
            BorrowedTx::Tx(tx) => &mut **tx,
        };
        tx.answers(statements(&self.first)).await
    }
}

impl Change<'_> {
    /// The same change at another instant: when something happened that is only reported now.
    pub fn at(&mut self, now: Instant) -> Change<'_> {
        let by = self.by.clone();
        Change { tx: self.reborrow(), by, now }
    }

    /// The same change by another actor.
    pub fn by(&mut self, by: &By) -> Change<'_> {
        let now = self.now;
        Change { tx: self.reborrow(), by: by.clone(), now }
    }

    fn reborrow(&mut self) -> TeamTx<'_> {
        let team = self.team.clone();
        self.without_team().of(&team)
    }

    /// Runs a statement and returns how many rows it touched.
    pub async fn execute(&mut self, sql: &'static str, args: &[Arg]) -> Result<u64, DbError> {
        self.tx.execute(sql, args).await
    }

    /// Runs a write with those that follow: see [`Tx::defer`].
    pub async fn defer(&mut self, sql: &'static str, args: &[Arg]) -> Result<(), DbError> {
        self.tx.defer(sql, args).await
    }

    /// Runs a query and returns all its rows.
    pub async fn rows(&mut self, sql: &'static str, args: &[Arg]) -> Result<Vec<crate::db::Row>, DbError> {
        self.tx.rows(sql, args).await
    }

    /// Runs a query that returns at most one row.
    pub async fn row(&mut self, sql: &'static str, args: &[Arg]) -> Result<Option<crate::db::Row>, DbError> {
        self.tx.row(sql, args).await
    }

    /// The audit's shared state.
    pub(in crate::db) fn audit_chain(&self) -> &AuditChain {
        match &self.tx.tx {
            BorrowedTx::Reader(reader) => reader.audit_chain(),
            BorrowedTx::Tx(tx) => tx.audit_chain(),
        }
    }

    /// The number and hash of the last row of the team's audit, when this transaction knows it.
    pub(in crate::db) fn audit_end(&mut self) -> Option<(u64, String)> {
        let team = self.team.clone();
        self.without_team().audit_ends.get(&team).cloned()
    }

    /// Remembers the last row of the team's audit until the transaction ends or is undone.
    pub(in crate::db) fn set_audit_end(&mut self, end: (u64, String)) {
        let team = self.team.clone();
        self.without_team().audit_ends.insert(team, end);
    }

    /// Forgets the last row of the team's audit.
    pub(in crate::db) fn forget_audit_end(&mut self) {
        let team = self.team.clone();
        self.without_team().audit_ends.remove(&team);
    }

    /// Marks that the change adds to the team's audit.
    pub(in crate::db) fn audit_grows(&mut self) {
        let team = self.team.clone();
        self.without_team().audit_grows(&team);
    }
}

impl<'t> Deref for Change<'t> {
    type Target = TeamTx<'t>;

    fn deref(&self) -> &TeamTx<'t> {
        &self.tx
    }
}

impl<'t> DerefMut for Change<'t> {
    fn deref_mut(&mut self) -> &mut TeamTx<'t> {
        &mut self.tx
    }
}
