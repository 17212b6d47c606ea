//! What a model's calls cost: as its provider says, or by the prices that came with the task.

use protocol::{ErrorCode, ModelPrice, TaskError, Usage};

use crate::config::{Config, Provider, ProviderApi};

/// Tokens that a price is for.
const TOKENS_PER_PRICE: f64 = 1e6;

/// How the cost of a model's calls is known.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) enum Pricing {
    /// By a price of the task.
    Listed(ModelPrice),
    /// The provider says it with every answer.
    Stated,
    /// It runs on this machine, or is the built-in script.
    Free,
    Unknown,
}

impl Pricing {
    /// Of the model `provider/model`.
    pub fn of(model: &str, prices: &[ModelPrice], config: &Config) -> Self {
        if let Some(price) = prices.iter().find(|price| price.is_of(model) && is_price(price)) {
            return Self::Listed(price.clone());
        }
        let provider_id = model.split_once('/').map_or(model, |(provider, _)| provider);
        match config.providers.get(provider_id) {
            Some(provider) if matches!(provider.api, ProviderApi::Ollama | ProviderApi::Demo) => Self::Free,
            Some(provider) if states_cost(provider) => Self::Stated,
            None if provider_id == "demo" => Self::Free,
            _ => Self::Unknown,
        }
    }

    /// The cost of a call in USD; the provider's own word counts first. `None` where nobody knows it.
    pub fn cost(&self, usage: &Usage) -> Option<f64> {
        match (usage.cost_usd, self) {
            (Some(cost), _) => Some(cost),
            (None, Self::Listed(price)) => {
                let cached = usage.cached_tokens.min(usage.input_tokens);
                let fresh = usage.input_tokens - cached;
                let of = |tokens: u64, usd: f64| tokens as f64 * usd / TOKENS_PER_PRICE;
                let input = of(fresh, price.input) + of(cached, price.cached.unwrap_or(price.input));
                Some(input + of(usage.output_tokens, price.output))
            }
            (None, Self::Stated | Self::Free | Self::Unknown) => None,
        }
    }
}

/// Why a limit of money cannot be kept with this model.
pub(in super::super) fn unknown(model: &str) -> TaskError {
    TaskError {
        code: ErrorCode::BadRequest,
        message: format!(
            "The task has `limits.costUsd`, and nobody says what {model} costs: neither its provider nor the prices that came \
             with the task."
        ),
        retryable: false,
        suggestion: Some(format!(
            "Add the price of {model} to the team's prices, or bound the task by `limits.tokens` instead."
        )),
        details: None,
    }
}

/// OpenRouter's answers say in `usage.cost` what they cost.
fn states_cost(provider: &Provider) -> bool {
    let url = reqwest::Url::parse(&provider.base_url).ok();
    url.is_some_and(|url| url.host_str() == Some("openrouter.ai"))
}

fn is_price(price: &ModelPrice) -> bool {
    let is_amount = |usd: f64| usd.is_finite() && usd >= 0.0;
    is_amount(price.input) && is_amount(price.output) && price.cached.is_none_or(is_amount)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(model: &str, input: f64) -> ModelPrice {
        ModelPrice { model: model.to_owned(), input, output: 10.0, cached: Some(0.5) }
    }

    #[test]
    fn the_providers_word_counts_before_the_list_and_cached_tokens_have_their_own_price() {
        let provider = |api, base_url: &str| Provider {
            api,
            base_url: base_url.to_owned(),
            api_key: None,
            key_source: None,
            models: Vec::new(),
            images: None,
            warning: None,
        };
        let providers = [
            ("acme".to_owned(), provider(ProviderApi::OpenAi, "https://acme.example/v1")),
            ("router".to_owned(), provider(ProviderApi::OpenAi, "https://openrouter.ai/api/v1")),
            ("local".to_owned(), provider(ProviderApi::Ollama, "http://127.0.0.1:11434")),
        ];
        let config = Config { providers: providers.into(), ..Config::default() };
        let prices = [price("acme/m1", 1.0), price("acme/m2", f64::NAN)];
        let of = |model: &str| Pricing::of(model, &prices, &config);
        assert_eq!([of("router/x"), of("local/x"), of("demo/tour")], [Pricing::Stated, Pricing::Free, Pricing::Free]);
        assert_eq!([of("acme/m2"), of("acme/m3"), of("nobody/x")], [const { Pricing::Unknown }; 3]);
        let usage =
            Usage { input_tokens: 3_000_000, cached_tokens: 2_000_000, output_tokens: 100_000, ..Usage::default() };
        assert_eq!(of("acme/m1").cost(&usage), Some(1.0 + 1.0 + 1.0));
        assert_eq!(of("acme/m1").cost(&Usage { cost_usd: Some(0.25), ..usage.clone() }), Some(0.25));
        assert_eq!(of("router/x").cost(&usage), None);
    }
}
