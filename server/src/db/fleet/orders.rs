//! What people ordered of vibers' daemons, and what these answered: a table for each kind of order, and one way to read and
//! write them.

use protocol::{CommandDone, ViberId};

use crate::{
    args,
    db::{Arg, Change, DbError, Row, TeamTx, json},
    domain::{AllowedTools, Order, OrderState, OrderedSkill},
};

/// Longest reason that is kept, bytes.
const MAX_ERROR_BYTES: usize = 500;

/// Where orders of one kind are.
#[derive(Clone, Copy, Debug)]
pub enum OrderTable {
    Mcp,
    Skill,
}

/// What an order is about: what its table has beside that of all orders.
pub trait OrderSubject: Clone + Send + Sync + 'static {
    const TABLE: OrderTable;
    /// Its columns, in the order of [`insert`].
    fn values(&self) -> Result<Vec<Arg>, DbError>;
    fn read(row: &Row) -> Result<Self, DbError>;
}

impl OrderSubject for AllowedTools {
    const TABLE: OrderTable = OrderTable::Mcp;

    fn values(&self) -> Result<Vec<Arg>, DbError> {
        Ok(args![&self.hash].to_vec())
    }

    fn read(row: &Row) -> Result<Self, DbError> {
        Ok(Self { hash: row.text("hash")? })
    }
}

impl OrderSubject for OrderedSkill {
    const TABLE: OrderTable = OrderTable::Skill;

    fn values(&self) -> Result<Vec<Arg>, DbError> {
        let agents = self.agents.as_ref().map(json).transpose()?;
        let (rollout, stage) = self.rollout.as_ref().map(|(id, stage)| (id, *stage)).unzip();
        Ok(args![self.op, self.digest.clone(), self.version.clone(), agents, rollout, stage].to_vec())
    }

    fn read(row: &Row) -> Result<Self, DbError> {
        let rollout = row.optional_parse("rollout_id")?;
        Ok(Self {
            op: row.parse("op")?,
            digest: row.optional_text("digest")?,
            version: row.optional_text("version")?,
            agents: row.optional_json("agents")?,
            rollout: rollout.map(|id| row.count("stage").map(|stage| (id, stage))).transpose()?,
        })
    }
}

/// A statement about one of the tables.
macro_rules! sql {
    ($table:expr, $before:literal, $after:literal) => {
        match $table {
            OrderTable::Mcp => concat!($before, "mcp_orders", $after),
            OrderTable::Skill => concat!($before, "skill_orders", $after),
        }
    };
}

macro_rules! select {
    (@of $own:literal, $rest:literal) => {
        concat!(
            "SELECT o.viber_id, o.cmd_seq, o.name, o.state, o.error, o.ordered_by, o.orderer, o.ordered_at, o.ended_at, ",
            $own,
            " o ",
            $rest
        )
    };
    ($table:expr, $rest:literal) => {
        match $table {
            OrderTable::Mcp => select!(@of "o.hash FROM mcp_orders", $rest),
            OrderTable::Skill => {
                select!(@of "o.op, o.digest, o.version, o.agents, o.rollout_id, o.stage FROM skill_orders", $rest)
            }
        }
    };
}

/// Adds an order.
pub async fn insert<S: OrderSubject>(tx: &mut Change<'_>, order: &Order<S>) -> Result<(), DbError> {
    let sql = match S::TABLE {
        OrderTable::Mcp => {
            "INSERT INTO mcp_orders (team_id, viber_id, cmd_seq, name, state, ordered_by, orderer, ordered_at, hash) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
        }
        OrderTable::Skill => {
            "INSERT INTO skill_orders (team_id, viber_id, cmd_seq, name, state, ordered_by, orderer, ordered_at, op, digest, \
             version, agents, rollout_id, stage) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
        }
    };
    let (by, at) = (&order.ordered_by, order.ordered_at);
    let mut args = args![&order.viber_id, order.cmd_seq, &order.name, order.state, by, &order.orderer, at].to_vec();
    args.extend(order.subject.values()?);
    tx.execute(sql, &args).await.map(drop)
}

/// Records what its viber answered. `false`: it had ended, or is another viber's.
pub async fn end(tx: &mut Change<'_>, viber: &ViberId, done: &CommandDone) -> Result<bool, DbError> {
    let state = if done.ok { OrderState::Done } else { OrderState::Failed };
    let error = done.error.as_deref().filter(|_| !done.ok);
    let error = error.map(|error| crate::db::clean(protocol::text::head(error, MAX_ERROR_BYTES)));
    // A number is that of one command of the viber.
    for table in [OrderTable::Skill, OrderTable::Mcp] {
        let sql = sql!(
            table,
            "UPDATE ",
            " SET state = $4, error = $5, ended_at = $6 \
             WHERE team_id = $1 AND viber_id = $2 AND cmd_seq = $3 AND state = 'queued'"
        );
        if tx.execute(sql, args![viber, done.cmd_seq, state, error.clone(), tx.now]).await? > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// One order.
pub async fn load<S: OrderSubject>(
    tx: &mut TeamTx<'_>,
    viber: &ViberId,
    cmd_seq: u64,
) -> Result<Option<Order<S>>, DbError> {
    let sql = select!(S::TABLE, "WHERE o.team_id = $1 AND o.viber_id = $2 AND o.cmd_seq = $3");
    tx.row(sql, args![viber, cmd_seq]).await?.as_ref().map(order).transpose()
}

/// The newest orders of a viber, the newest first.
pub async fn newest<S: OrderSubject>(
    tx: &mut TeamTx<'_>,
    viber: &ViberId,
    limit: u64,
) -> Result<Vec<Order<S>>, DbError> {
    let sql = select!(S::TABLE, "WHERE o.team_id = $1 AND o.viber_id = $2 ORDER BY o.cmd_seq DESC LIMIT $3 + 0");
    tx.rows(sql, args![viber, limit]).await?.iter().map(order).collect()
}

/// How many orders a viber has not answered, at most `limit`.
pub async fn queued_count(tx: &mut TeamTx<'_>, table: OrderTable, viber: &ViberId, limit: u64) -> Result<u64, DbError> {
    let sql = sql!(
        table,
        "SELECT COUNT(*) AS n FROM (SELECT o.cmd_seq FROM ",
        " o WHERE o.team_id = $1 AND o.viber_id = $2 AND o.state = 'queued' LIMIT $3 + 0) AS waiting"
    );
    tx.row(sql, args![viber, limit]).await?.map_or(Ok(0), |row| row.count("n"))
}

/// Deletes ended orders of a viber but for the newest `most`, and for the last installation of each skill: it says what is
/// put back.
pub async fn forget(tx: &mut Change<'_>, table: OrderTable, viber: &ViberId, most: u64) -> Result<(), DbError> {
    macro_rules! old {
        ($table:literal, $but:literal) => {
            concat!(
                "DELETE FROM ",
                $table,
                " WHERE team_id = $1 AND viber_id = $2 AND state <> 'queued' AND cmd_seq < \
                 COALESCE((SELECT MIN(n.cmd_seq) FROM (SELECT o.cmd_seq FROM ",
                $table,
                " o WHERE o.team_id = $1 AND o.viber_id = $2 ORDER BY o.cmd_seq DESC LIMIT $3 + 0) n), 0)",
                $but
            )
        };
    }
    let sql = match table {
        OrderTable::Mcp => old!("mcp_orders", ""),
        OrderTable::Skill => old!(
            "skill_orders",
            " AND cmd_seq <> COALESCE((SELECT MAX(i.cmd_seq) FROM skill_orders i WHERE i.team_id = $1 AND i.viber_id = $2 \
             AND i.name = skill_orders.name AND i.op = 'install' AND i.state = 'done'), -1)"
        ),
    };
    tx.execute(sql, args![viber, most]).await.map(drop)
}

fn order<S: OrderSubject>(row: &Row) -> Result<Order<S>, DbError> {
    Ok(Order {
        viber_id: row.parse("viber_id")?,
        cmd_seq: row.count("cmd_seq")?,
        name: row.text("name")?,
        subject: S::read(row)?,
        state: row.parse("state")?,
        error: row.optional_text("error")?,
        ordered_by: row.text("ordered_by")?,
        orderer: row.text("orderer")?,
        ordered_at: row.instant("ordered_at")?,
        ended_at: row.optional_instant("ended_at")?,
    })
}
