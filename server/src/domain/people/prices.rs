//! What models cost a team, where their provider does not say it with each answer.

use protocol::{Instant, ModelPrice};

/// Prices of a team at most: they go with each task.
pub const MAX_PRICES: usize = 100;
/// Longest name or pattern of a model, bytes.
pub const MAX_MODEL_BYTES: usize = 200;

/// A team's prices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TeamPrices {
    /// The first one that matches a model is its price.
    pub list: Vec<ModelPrice>,
    /// Rises with every change; 0 for a team that never had any.
    pub version: u64,
    /// Who changed them last, and when.
    pub changed: Option<(String, Instant)>,
}

impl TeamPrices {
    /// Whether one of them is the price of `provider/model`.
    pub fn has(&self, model: &str) -> bool {
        self.list.iter().any(|price| price.is_of(model))
    }
}
