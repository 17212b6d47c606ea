//! What people order of a viber's daemon: a durable command, queued while the viber is away, that ends with what the daemon
//! answers.

use std::collections::BTreeSet;

use protocol::{Instant, RolloutId, ViberId};

use crate::domain::SkillOp;

crate::words! {
    /// What came of an order.
    OrderState {
        /// The viber has not answered.
        Queued = "queued",
        Done = "done",
        Failed = "failed",
    }
}

/// An order and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order<S> {
    pub viber_id: ViberId,
    /// The number of its command.
    pub cmd_seq: u64,
    /// Of the skill or the server.
    pub name: String,
    /// What is ordered of it.
    pub subject: S,
    pub state: OrderState,
    /// Why it failed, in the viber's words.
    pub error: Option<String>,
    pub ordered_by: String,
    pub orderer: String,
    pub ordered_at: Instant,
    pub ended_at: Option<Instant>,
}

/// An order about a skill.
pub type SkillOrder = Order<OrderedSkill>;
/// An order about an MCP server: to offer its tools.
pub type McpOrder = Order<AllowedTools>;

/// What is ordered of a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedSkill {
    pub op: SkillOp,
    pub digest: Option<String>,
    pub version: Option<String>,
    pub agents: Option<Vec<String>>,
    /// The rollout that it belongs to, and the label there.
    pub rollout: Option<(RolloutId, u64)>,
}

/// The tools of a server that somebody has seen, to be offered by its viber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedTools {
    /// Of the list of tools.
    pub hash: String,
}

/// Orders that wait, and the newest of each name if it failed: the first `most` of `orders`, which come newest first, and how
/// many more there are.
pub fn open_orders<S>(orders: Vec<Order<S>>, most: usize) -> (Vec<Order<S>>, usize) {
    let mut seen = BTreeSet::new();
    let is_open = |order: &Order<S>| {
        let is_newest = seen.insert(order.name.clone());
        order.state == OrderState::Queued || (is_newest && order.state == OrderState::Failed)
    };
    let mut open: Vec<Order<S>> = orders.into_iter().filter(is_open).collect();
    let more = open.len().saturating_sub(most);
    open.truncate(most);
    (open, more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_shown_until_it_is_tried_again() {
        let order = |cmd_seq, name: &str, state| Order {
            viber_id: ViberId::new(1),
            cmd_seq,
            name: name.to_owned(),
            subject: (),
            state,
            error: None,
            ordered_by: String::new(),
            orderer: String::new(),
            ordered_at: Instant(0),
            ended_at: None,
        };
        let orders = vec![
            order(4, "a", OrderState::Done),
            order(3, "a", OrderState::Failed),
            order(2, "b", OrderState::Failed),
            order(1, "b", OrderState::Queued),
        ];
        let shown = |most| {
            let (open, more) = open_orders(orders.clone(), most);
            (open.into_iter().map(|order| order.cmd_seq).collect::<Vec<_>>(), more)
        };
        assert_eq!((shown(10), shown(1)), ((vec![2, 1], 0), (vec![2], 1)));
    }
}
