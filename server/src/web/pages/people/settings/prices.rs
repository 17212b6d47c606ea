//! What models cost the team, and which of its vibers' models have no price.

use std::collections::BTreeMap;

use askama::Template;
use axum::{
    Form,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use protocol::{Instant, ModelPrice};
use serde::Deserialize;

use super::{Names, Tabs};
use crate::{
    actions::{VersionedChange, prices},
    db,
    domain::{Role, TeamPrices, Viber},
    error::Error,
    state::Board,
    web::{
        AsAdmin, AsViewer, Caller, Rejection, html_with, respond, urls,
        view::{PageLocation, Shell, filters},
    },
};

/// Vibers whose models are looked at.
const MAX_VIBERS: u64 = 200;
/// Models without a price that are named.
const MAX_NAMED_MODELS: usize = 50;

#[derive(Template)]
#[template(path = "people/settings/prices.html")]
struct Page {
    shell: Shell,
    tabs: Tabs,
    typed: PricesForm,
    is_admin: bool,
    error: Option<String>,
    /// What is there now, when somebody else changed it while this form was filled in.
    there: Option<String>,
    /// Who changed them last, and when.
    changed: Option<(String, Instant)>,
    /// Models without a price, each with the vibers that have an agent with it.
    unpriced: Vec<(String, String)>,
    /// Not all of them are named.
    is_cut: bool,
}

#[derive(Deserialize)]
pub(super) struct PricesForm {
    /// One price a line: `model input output [cached input]`.
    #[serde(default)]
    prices: String,
    /// The version that the form was made of.
    #[serde(default)]
    version: u64,
}

impl PricesForm {
    fn of(prices: &TeamPrices) -> Self {
        Self { prices: lines(&prices.list), version: prices.version }
    }

    fn list(&self) -> Result<Vec<ModelPrice>, Error> {
        self.prices.lines().map(str::trim).filter(|line| !line.is_empty()).map(price).collect()
    }
}

/// One price a line.
fn lines(list: &[ModelPrice]) -> String {
    let line = |price: &ModelPrice| {
        let cached = price.cached.map(|usd| format!(" {usd}")).unwrap_or_default();
        format!("{} {} {}{cached}", price.model, price.input, price.output)
    };
    list.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn price(line: &str) -> Result<ModelPrice, Error> {
    let bad = || {
        let line = protocol::text::head(line, 120);
        Error::unacceptable("bad_price", format!("“{line}” is no price: write a model, then USD for input and output"))
    };
    let mut words = line.split_whitespace();
    let model = words.next().ok_or_else(bad)?.to_owned();
    let amounts: Vec<f64> = words
        .map(|word| word.trim_start_matches('$').replace(',', ".").parse().map_err(|_| bad()))
        .collect::<Result<_, _>>()?;
    match amounts.as_slice() {
        [input, output] => Ok(ModelPrice { model, input: *input, output: *output, cached: None }),
        [input, output, cached] => Ok(ModelPrice { model, input: *input, output: *output, cached: Some(*cached) }),
        _ => Err(bad()),
    }
}

/// Models of agents that nobody says the price of, with the names of their vibers.
fn unpriced(vibers: &[Viber], prices: &TeamPrices) -> Vec<(String, String)> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for viber in vibers {
        for agent in viber.agents.iter().filter(|agent| !agent.model.is_empty() && !prices.has(&agent.model)) {
            let provider = agent.model.split('/').next().unwrap_or_default();
            let api = viber.providers.iter().find(|known| known.id == provider).map_or("", |known| known.api.as_str());
            // Those of the first cost nothing, and the last says what each answer cost.
            if matches!(api, "ollama" | "demo") || matches!(provider, "echo" | "demo" | "openrouter") {
                continue;
            }
            let on = found.entry(&agent.model).or_default();
            if !on.contains(&viber.name.as_str()) {
                on.push(&viber.name);
            }
        }
    }
    found.into_iter().map(|(model, on)| (model.to_owned(), names(&on))).collect()
}

/// The first few names.
fn names(all: &[&str]) -> String {
    match all {
        [a, b, c, rest @ ..] if !rest.is_empty() => format!("{a}, {b}, {c} and {} more", rest.len()),
        few => few.join(", "),
    }
}

async fn show(
    board: &Board,
    caller: &Caller,
    typed: Option<PricesForm>,
    refused: Option<(StatusCode, String)>,
) -> Result<Response, Rejection> {
    let (prices, mut vibers) = {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        (db::prices::load(&mut tx).await?, db::vibers::list(&mut tx, None, MAX_VIBERS + 1).await?)
    };
    let mut is_cut = vibers.len() as u64 > MAX_VIBERS;
    vibers.truncate(MAX_VIBERS as usize);
    let mut unpriced = unpriced(&vibers, &prices);
    is_cut |= unpriced.len() > MAX_NAMED_MODELS;
    unpriced.truncate(MAX_NAMED_MODELS);
    let (status, error) = refused.map_or((StatusCode::OK, None), |(status, error)| (status, Some(error)));
    let names = Names::load(board, caller).await?;
    let there = typed.as_ref().filter(|typed| typed.version != prices.version).map(|_| lines(&prices.list));
    let typed = match typed {
        Some(typed) => PricesForm { version: prices.version, ..typed },
        None => PricesForm::of(&prices),
    };
    let page = Page {
        shell: Shell::load(board, caller).await?.at(PageLocation::Settings),
        tabs: Tabs::new(caller, "prices"),
        typed,
        is_admin: caller.role >= Role::Admin,
        error,
        there,
        changed: prices.changed.map(|(by, at)| (names.of(&by), at)),
        unpriced,
        is_cut,
    };
    html_with(status, &page)
}

/// `GET /t/{team}/settings/prices`
pub(super) async fn page(State(board): State<Board>, caller: AsViewer) -> Result<Response, Rejection> {
    show(&board, &caller, None, None).await
}

/// `POST /t/{team}/settings/prices`
pub(super) async fn update(
    State(board): State<Board>,
    caller: AsAdmin,
    Form(typed): Form<PricesForm>,
) -> Result<Response, Rejection> {
    let done = match typed.list() {
        Ok(list) => prices::change(&board, &caller.team.id, &caller.by, list, Some(typed.version)).await,
        Err(error) => Err(error),
    };
    let refused = match done {
        Ok(VersionedChange::Made(_)) => {
            return Ok(Redirect::to(&urls::settings_page(&caller.team.slug, "prices")).into_response());
        }
        Ok(VersionedChange::Stale(_)) => {
            (StatusCode::CONFLICT, "Somebody else changed the prices meanwhile".to_owned())
        }
        Err(error @ Error::Unacceptable { .. }) => (respond::status(&error), error.to_string()),
        Err(error) => return Err(error.into()),
    };
    show(&board, &caller, Some(typed), Some(refused)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_price() {
        let price = |line: &str| price(line).ok();
        let listed = |cached| ModelPrice { model: "a/b".to_owned(), input: 3.0, output: 15.5, cached };
        assert_eq!(price("a/b  3 15.5"), Some(listed(None)));
        assert_eq!(price("a/b $3 15,5 $0.3"), Some(listed(Some(0.3))));
        for bad in ["a/b", "a/b 3", "a/b three 4", "a/b 1 2 3 4"] {
            assert_eq!(price(bad), None, "{bad}");
        }
        let list = [listed(Some(0.3)), listed(None)];
        let again = PricesForm { prices: lines(&list), version: 1 }.list().expect("prices");
        assert_eq!(again, list);
    }
}
