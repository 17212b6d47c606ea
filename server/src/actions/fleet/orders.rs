//! Orders to a viber's daemon: each is a durable command, queued while the viber is away, and ends with what the daemon
//! answers.

use std::time::Duration;

use protocol::{CommandDone, TeamId, ViberId};

use crate::{
    actions::AfterCommit,
    db::{
        self, Change,
        audit::Entry,
        commands::NewCommand,
        orders::{OrderSubject, OrderTable},
    },
    domain::{Connection, Order, OrderState, Viber},
    error::{Error, Result},
    hub::Changed,
    state::Board,
};

/// How long a caller waits for the daemon's answer before the order counts as queued.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(3);
/// Answers of a daemon that are recorded in one change.
const DONE_PER_CHANGE: usize = 50;

/// An order that was checked, before it has the number of its command.
pub(in crate::actions) struct NewOrder<'a, S> {
    pub viber: &'a Viber,
    /// Of the skill or the server.
    pub name: String,
    pub subject: S,
    /// Its kind and its body.
    pub command: (&'static str, String),
    /// What the audit calls it.
    pub action: &'static str,
    /// Who ordered it, by id and name; `None`: whoever makes the change.
    pub orderer: Option<(&'a str, &'a str)>,
}

/// Orders that a viber may have before it answers, and ended ones that are kept of it.
const fn bounds(table: OrderTable) -> (u64, u64) {
    match table {
        OrderTable::Mcp => (100, 200),
        OrderTable::Skill => (200, 500),
    }
}

/// Refuses an order where too many wait.
pub(in crate::actions) async fn check_room(tx: &mut Change<'_>, table: OrderTable, viber: &ViberId) -> Result<()> {
    let (max_queued, _) = bounds(table);
    if db::orders::queued_count(tx, table, viber, max_queued).await? >= max_queued {
        return Err(Error::conflict("too_many_orders", "too many orders wait for this viber"));
    }
    Ok(())
}

/// Stores an order with its command.
pub(in crate::actions) async fn store<S: OrderSubject>(tx: &mut Change<'_>, new: NewOrder<'_, S>) -> Result<Order<S>> {
    let (kind, body) = new.command;
    let viber = &new.viber.id;
    let command = NewCommand { kind, attempt: None, body: body.clone() };
    let cmd_seq = db::commands::enqueue(tx, viber, command).await?.ok_or(Error::NotFound)?;
    let (id, orderer) = new.orderer.unwrap_or((tx.by.actor.id(), tx.by.actor.name()));
    let order = Order {
        viber_id: viber.clone(),
        cmd_seq,
        name: new.name,
        subject: new.subject,
        state: OrderState::Queued,
        error: None,
        ordered_by: id.to_owned(),
        orderer: orderer.to_owned(),
        ordered_at: tx.now,
        ended_at: None,
    };
    db::orders::insert(tx, &order).await?;
    let (_, max_kept) = bounds(S::TABLE);
    db::orders::forget(tx, S::TABLE, viber, max_kept).await?;
    let detail = format!("{} on {}", order.name, new.viber.name);
    let entry = Entry::new(new.action, viber.as_str()).detail(&detail).after(body.as_str());
    db::audit::append(tx, entry).await?;
    Ok(order)
}

/// Has an order stored by a change, and waits briefly for its outcome; returns it in the state it has then.
pub(in crate::actions) async fn give<S: OrderSubject>(
    board: &Board,
    team: &TeamId,
    viber: &ViberId,
    change: impl Future<Output = Result<Order<S>>>,
) -> Result<Order<S>> {
    let mut news = board.hub.subscribe(team);
    let order = change.await?;
    let mut after = AfterCommit::default();
    after.command(viber);
    after.viber(viber);
    after.publish(board, team);
    if !board.hub.is_connected(viber) {
        return Ok(order);
    }
    let outcome = async {
        loop {
            let found = db::orders::load(&mut board.db.reader_of(team).await?, viber, order.cmd_seq).await?;
            match found {
                Some(now) if now.state == OrderState::Queued => {}
                Some(now) => return Ok::<_, Error>(now),
                None => return Err(Error::NotFound),
            }
            while !matches!(news.next().await, Changed::Viber(changed) if changed == *viber) {}
        }
    };
    tokio::time::timeout(OUTCOME_TIMEOUT, outcome).await.unwrap_or(Ok(order.clone()))
}

/// Records what a daemon answered. A repeated answer changes nothing.
pub async fn done(board: &Board, connection: &Connection, all: &[CommandDone]) -> Result<()> {
    for some in all.chunks(DONE_PER_CHANGE) {
        let (viber, some) = (connection.viber.clone(), some.to_vec());
        let ending = board.change(&connection.team, &connection.by(), move |tx| {
            let (viber, some) = (viber.clone(), some.clone());
            Box::pin(async move {
                for one in &some {
                    db::orders::end(tx, &viber, one).await?;
                }
                Ok::<_, Error>(())
            })
        });
        ending.await?;
    }
    let mut after = AfterCommit::default();
    after.viber(&connection.viber);
    after.publish(board, &connection.team);
    Ok(())
}
