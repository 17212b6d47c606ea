//! What models cost a team, for limits of money where a provider does not say it.

use protocol::{ModelPrice, TeamId};
use serde_json::json;

use crate::{
    actions::{VersionedChange, team_rules},
    db::{self, audit::Entry},
    domain::{
        By, TeamPrices,
        prices::{MAX_MODEL_BYTES, MAX_PRICES},
    },
    error::{Error, Result},
    state::Board,
};

/// The highest price, USD for a million tokens.
const MAX_USD: f64 = 1e6;

/// Replaces the team's prices; tasks that begin from now on have them. `base`: the version that the author saw, if they
/// say it.
pub async fn change(
    board: &Board,
    team: &TeamId,
    by: &By,
    list: Vec<ModelPrice>,
    base: Option<u64>,
) -> Result<VersionedChange<TeamPrices>> {
    let list = check(list)?;
    let stored = board.change(team, by, move |tx| {
        let list = list.clone();
        Box::pin(async move {
            // Two changes at once would lose one of them.
            db::teams::lock(tx).await?;
            let before = db::prices::load(tx).await?;
            if base.is_some_and(|base| base != before.version) {
                return Ok(VersionedChange::Stale(before));
            }
            let changed = Some((tx.by.actor.id().to_owned(), tx.now));
            let now = TeamPrices { list, version: before.version + 1, changed };
            db::prices::store(tx, &now).await?;
            let team = tx.team.clone();
            let (before, after) = (json!(before.list).to_string(), json!(now.list).to_string());
            let detail = format!("{} prices", now.list.len());
            let entry = Entry::new("prices.change", team.as_str()).detail(&detail);
            db::audit::append(tx, entry.before(before.as_str()).after(after.as_str())).await?;
            Ok::<_, Error>(VersionedChange::Made(now))
        })
    });
    let done = stored.await?;
    if matches!(done, VersionedChange::Made(_)) {
        team_rules::tell(board, team);
    }
    Ok(done)
}

/// The list as it is stored; a refusal names what is wrong.
fn check(list: Vec<ModelPrice>) -> Result<Vec<ModelPrice>> {
    let bad = |message: String| Err(Error::unacceptable("bad_price", message));
    if list.len() > MAX_PRICES {
        return Err(Error::unacceptable("too_many_prices", format!("a team has at most {MAX_PRICES} prices")));
    }
    let mut kept: Vec<ModelPrice> = Vec::with_capacity(list.len());
    for price in list {
        let model = price.model.trim().to_owned();
        let is_odd = |c: char| c.is_whitespace() || c.is_control();
        if model.is_empty() || model.len() > MAX_MODEL_BYTES || model.contains(is_odd) {
            return bad(format!(
                "a model is named in one word of at most {MAX_MODEL_BYTES} bytes, such as acme/m1 or acme/*"
            ));
        }
        if kept.iter().any(|known| known.model == model) {
            return bad(format!("{model} is named twice"));
        }
        let is_amount = |usd: f64| usd.is_finite() && (0.0..=MAX_USD).contains(&usd);
        if !is_amount(price.input) || !is_amount(price.output) || !price.cached.is_none_or(is_amount) {
            return bad(format!("{model}: a price is 0 to {MAX_USD} USD for a million tokens"));
        }
        kept.push(ModelPrice { model, ..price });
    }
    Ok(kept)
}
