//! What came of orders that were just given: the address of a version's page names them, and the page says how they stand.

use askama::Template;
use protocol::ViberId;

use crate::{
    db::{self, DbError, TeamTx},
    domain::{LibrarySkill, OrderState, SkillOrder},
    web::{
        urls,
        view::{Badge, filters},
    },
};

/// Orders that an address names; of the others it says how many they are.
const MAX_TOLD_ORDERS: usize = 25;
/// Before the number of those.
const MORE_ORDERS: &str = "more";
/// Why nothing is ordered for one viber of several.
const NOT_ORDERED: &str =
    "nothing was ordered: its daemon is too old for skills from the Board, or too many orders wait for it";

/// An order for one viber.
pub struct Ordered {
    pub viber: ViberId,
    pub name: String,
    /// Its number; `Err`: why it was not given.
    pub result: Result<u64, String>,
}

impl Ordered {
    /// What is said of one that was not given.
    pub fn refused(self, slug: &str) -> Option<OrderOutcome> {
        let reason = self.result.err()?;
        Some(OrderOutcome { href: urls::viber_skills(slug, &self.viber), viber: self.name, result: Err(reason) })
    }
}

/// What an address says of orders: `{viber}.{order}`, `{viber}` where none was given, `more.{count}`.
pub fn told(orders: &[Ordered]) -> String {
    let item = |ordered: &Ordered| match ordered.result {
        Ok(order) => format!("{}.{order}", ordered.viber),
        Err(_) => ordered.viber.to_string(),
    };
    let mut items: Vec<String> = orders.iter().take(MAX_TOLD_ORDERS).map(item).collect();
    let more = orders.len().saturating_sub(MAX_TOLD_ORDERS);
    if more > 0 {
        items.push(format!("{MORE_ORDERS}.{more}"));
    }
    items.join("-")
}

/// What came of an order for one viber.
#[derive(Clone, Debug)]
pub struct OrderOutcome {
    pub viber: String,
    pub href: String,
    /// `Err`: it was not ordered, or the viber refused it, with the reason.
    pub result: Result<OrderState, String>,
}

impl OrderOutcome {
    fn badge(&self) -> Badge {
        match self.result {
            Ok(OrderState::Queued) => Badge { state: "pending", icon: "pending", word: "Queued" },
            Ok(_) => Badge { state: "done", icon: "done", word: "Done" },
            Err(_) => Badge { state: "failed", icon: "failed", word: "Refused" },
        }
    }

    fn words(&self) -> &str {
        match &self.result {
            Ok(OrderState::Queued) => "it is installed when the viber answers",
            Ok(_) => "the viber has it",
            Err(reason) => reason,
        }
    }
}

/// The orders that an address names, as they stand now: a region of the live stream.
#[derive(Clone, Debug, Default, Template)]
#[template(path = "fleet/skills/version/_orders.html")]
pub struct OrderList {
    pub orders: Vec<OrderOutcome>,
    /// How many more were given than are listed.
    pub more: u32,
}

impl OrderList {
    /// Those of the version that the address names in `told`; others are left out.
    pub async fn load(tx: &mut TeamTx<'_>, slug: &str, skill: &LibrarySkill, told: &str) -> Result<Self, DbError> {
        let mut list = Self::default();
        for item in told.split('-').take(MAX_TOLD_ORDERS + 1) {
            let (viber, number) = item.split_once('.').unwrap_or((item, ""));
            if viber == MORE_ORDERS {
                list.more = number.parse().unwrap_or_default();
                continue;
            }
            let Ok(id) = viber.parse::<ViberId>() else { continue };
            let Some(viber) = db::vibers::named(tx, &id).await? else { continue };
            let result = match number.parse::<u32>() {
                Err(_) => Some(Err(NOT_ORDERED.to_owned())),
                Ok(number) => {
                    let order = db::orders::load(tx, &id, number.into()).await?;
                    order.and_then(|order| state(order, skill))
                }
            };
            let href = urls::viber_skills(slug, &id);
            list.orders.extend(result.map(|result| OrderOutcome { viber: viber.name, href, result }));
        }
        Ok(list)
    }
}

/// How an order of this version stands.
fn state(order: SkillOrder, skill: &LibrarySkill) -> Option<Result<OrderState, String>> {
    let is_meant = order.name == skill.name && order.subject.digest.as_deref() == Some(skill.digest.as_str());
    is_meant.then(|| match order.state {
        OrderState::Failed => Err(order.error.unwrap_or_else(|| "the viber did not say why".to_owned())),
        state => Ok(state),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_no_more_orders_than_fit() {
        let ordered = |n: u64| Ordered { viber: ViberId::new(1), name: String::new(), result: Ok(n) };
        let few = [ordered(7), Ordered { result: Err("no".to_owned()), ..ordered(8) }];
        assert_eq!(told(&few), format!("{}.7-{}", few[0].viber, few[1].viber));
        let many: Vec<Ordered> = (0..200).map(ordered).collect();
        assert!(told(&many).ends_with("-more.175") && told(&many).len() < 2_000);
    }
}
