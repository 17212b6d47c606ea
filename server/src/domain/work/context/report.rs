//! What an agent reports about a request: read with care, because it is a machine's word, and bounded.

use protocol::{
    Instant, UsageSource,
    context::{ContextWindow, ESTIMATE_PERCENT, Layer, WindowSource},
    text::head,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::MAX_WINDOW_TOKENS;

/// Layers, and items of one, that are kept.
const MAX_LAYERS: usize = 32;
const MAX_ITEMS: usize = 200;
/// Longest name that is kept, bytes.
const MAX_NAME_BYTES: usize = 200;
/// Parts of a request that are named as its largest.
const MAX_NAMED_PARTS: usize = 3;
/// Largest number that is believed, tokens: the sum of all of them stays a number.
const MAX_TOKENS: u64 = 1_000_000_000_000;

/// The contents of a request in numbers. What is missing or makes no sense is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContextReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_source: Option<WindowSource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_at: Option<Instant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<u64>,
    pub source: UsageSource,
    /// `provider/model`, and how many tokens its provider counts for 100 that are estimated.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate_percent: Option<u64>,
    /// Counts the model calls of an attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// Turns of the session were missing in it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub left_out: bool,
    pub layers: Vec<ReportedLayer>,
}

/// A layer by the name that the agent gives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedLayer {
    pub layer: String,
    pub tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<UsageSource>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<LayerItem>,
    /// Items that are not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_items: Option<MoreItems>,
}

/// A file, an excerpt or the like in a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ContextLayerItem)]
pub struct LayerItem {
    pub name: String,
    pub tokens: u64,
    /// It was too long to be sent whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<Truncated>,
}

/// Tokens of a text that were sent, of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ContextTruncation)]
pub struct Truncated {
    pub kept: u64,
    pub of: u64,
}

/// What is not listed one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ContextMoreItems)]
pub struct MoreItems {
    pub count: u64,
    pub tokens: u64,
}

impl MoreItems {
    /// With these.
    pub fn add(&mut self, count: u64, tokens: u64) {
        self.count = self.count.saturating_add(count).min(MAX_TOKENS);
        self.tokens = self.tokens.saturating_add(tokens).min(MAX_TOKENS);
    }
}

impl ContextReport {
    /// Of `{window, windowSource, windowAt, reserve, used, source, model, estimatePercent, step, leftOut?,
    /// layers: [{layer, tokens, source?, items?}]}`.
    pub fn read(body: &Value) -> Self {
        let layers = body["layers"].as_array().map(Vec::as_slice).unwrap_or_default();
        Self {
            window: number(&body["window"]).filter(|window| *window > 0),
            window_source: read(&body["windowSource"]),
            window_at: read(&body["windowAt"]),
            reserve: number(&body["reserve"]),
            used: number(&body["used"]),
            source: read(&body["source"]).unwrap_or_default(),
            model: body["model"].as_str().map(|model| head(model, MAX_NAME_BYTES).to_owned()),
            estimate_percent: number(&body["estimatePercent"]).map(believed_percent),
            step: number(&body["step"]),
            left_out: body["leftOut"] == Value::Bool(true),
            layers: layers.iter().filter_map(ReportedLayer::read).take(MAX_LAYERS).collect(),
        }
    }

    /// Tokens of the request: as they were counted, else what its layers are estimated at.
    pub fn used(&self) -> u64 {
        let is_sent = |layer: &&ReportedLayer| !matches!(layer.kind(), Some(Layer::Reserve | Layer::Free));
        self.used.unwrap_or_else(|| self.layers.iter().filter(is_sent).map(|layer| layer.tokens).sum())
    }

    /// How many tokens the provider of `model` counts for 100 that are estimated; `None`: this is not about that model, or
    /// does not say.
    pub fn percent_of(&self, model: &str) -> Option<u64> {
        self.estimate_percent.filter(|_| self.model.as_deref() == Some(model))
    }

    /// The window of `model`; `None`: this is not about that model, or does not say.
    pub fn window_of(&self, model: &str) -> Option<ContextWindow> {
        let tokens = self.window.filter(|_| self.model.as_deref() == Some(model))?.min(MAX_WINDOW_TOKENS);
        Some(ContextWindow { tokens, source: self.window_source.unwrap_or(WindowSource::Assumed), at: self.window_at })
    }

    /// Tokens of all that is not history, results and files; `None` while no layers are known.
    pub fn fixed(&self) -> Option<u64> {
        let fixed = self.layers.iter().filter(|layer| layer.is_fixed()).map(|layer| layer.tokens);
        (!self.layers.is_empty()).then(|| fixed.sum())
    }

    /// Tokens of what `OverflowRung::NoFiles` leaves out.
    pub fn left_out_files(&self) -> u64 {
        let is_left_out = |layer: &&ReportedLayer| matches!(layer.kind(), Some(Layer::Personalization | Layer::Memory));
        self.layers.iter().filter(is_left_out).map(|layer| layer.tokens).sum()
    }

    /// The largest parts of the request, in words, with a question of so many tokens.
    pub fn largest(&self, question: u64) -> String {
        let mut parts = vec![("the question", question)];
        for layer in &self.layers {
            let Some(kind) = layer.kind() else { continue };
            let (words, tokens) = match kind {
                Layer::System => ("the system prompt", layer.tokens),
                Layer::Tools => ("tools", layer.tokens),
                Layer::Skills => ("skills", layer.tokens),
                Layer::Personalization => ("personalization", layer.tokens),
                Layer::Memory => ("memory", layer.tokens),
                Layer::Plan => ("the plan", layer.tokens),
                Layer::Artifacts => ("artifacts", layer.tokens),
                Layer::Files => ("files and what was looked at", layer.tokens),
                Layer::History => ("the conversation", layer.tokens.saturating_sub(question)),
                Layer::Results => ("results of tools", layer.tokens),
                Layer::Reserve | Layer::Free => continue,
            };
            parts.push((words, tokens));
        }
        parts.sort_by_key(|(_, tokens)| std::cmp::Reverse(*tokens));
        let words = parts.iter().filter(|(_, tokens)| *tokens > 0).take(MAX_NAMED_PARTS);
        words.map(|(words, tokens)| format!("{words} ({tokens} tokens)")).collect::<Vec<_>>().join(", ")
    }
}

impl ReportedLayer {
    fn read(value: &Value) -> Option<Self> {
        let items = value["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let more = &value["moreItems"];
        let mut more_items = MoreItems::default();
        more_items.add(number(&more["count"]).unwrap_or(0), number(&more["tokens"]).unwrap_or(0));
        for item in items.iter().skip(MAX_ITEMS) {
            more_items.add(1, number(&item["tokens"]).unwrap_or(0));
        }
        Some(Self {
            layer: head(value["layer"].as_str()?, MAX_NAME_BYTES).to_owned(),
            tokens: number(&value["tokens"])?,
            source: read(&value["source"]),
            items: items.iter().take(MAX_ITEMS).filter_map(LayerItem::read).collect(),
            more_items: Some(more_items).filter(|more| more.count > 0),
        })
    }

    /// The layer that it is; daemons before the layers had these names called some of them differently.
    pub fn kind(&self) -> Option<Layer> {
        match self.layer.as_str() {
            "goal" => Some(Layer::History),
            "context" => Some(Layer::Files),
            name => serde_json::from_value(Value::String(name.to_owned())).ok(),
        }
    }

    fn is_fixed(&self) -> bool {
        use Layer::{Files, Free, History, Reserve, Results};
        !matches!(self.kind(), Some(History | Results | Files | Reserve | Free))
    }
}

impl LayerItem {
    fn read(value: &Value) -> Option<Self> {
        let cut = &value["truncated"];
        let truncated = number(&cut["kept"]).zip(number(&cut["of"])).map(|(kept, of)| Truncated { kept, of });
        Some(Self {
            name: head(value["name"].as_str()?, MAX_NAME_BYTES).to_owned(),
            tokens: number(&value["tokens"])?,
            truncated,
        })
    }
}

/// Whatever is said: texts of a kind are not further off.
fn believed_percent(told: u64) -> u64 {
    told.clamp(*ESTIMATE_PERCENT.start(), *ESTIMATE_PERCENT.end())
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64().map(|number| number.min(MAX_TOKENS))
}

fn read<T: for<'de> Deserialize<'de>>(value: &Value) -> Option<T> {
    T::deserialize(value).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_is_read_as_far_as_it_makes_sense() {
        let report = ContextReport::read(&json!({
            "window": 200_000, "windowSource": "provider", "windowAt": "2026-06-19T13:58:04.000Z", "reserve": 8_192,
            "used": 5_300, "source": "measured", "model": "a/b", "estimatePercent": 130, "step": 3, "hint": false, "leftOut": true,
            "layers": [
                { "layer": "system", "tokens": 4_000, "source": "estimated" },
                { "layer": "files", "tokens": 900, "items": [
                    { "name": "a.rs", "tokens": 300, "truncated": { "kept": 300, "of": 9_000 } }, { "name": 7 }, "x"] },
                { "layer": "results", "tokens": 400 }, { "layer": 9, "tokens": 1 }, { "layer": "skills" }, null,
                { "layer": "free", "tokens": 100_000 }],
        }));
        assert_eq!((report.window, report.reserve, report.step), (Some(200_000), Some(8_192), Some(3)));
        assert!(report.left_out && !ContextReport::read(&json!({ "leftOut": "yes" })).left_out);
        assert_eq!((report.percent_of("a/b"), report.percent_of("a/c")), (Some(130), None));
        assert_eq!((report.window_source, report.source), (Some(WindowSource::Provider), UsageSource::Measured));
        assert_eq!((report.used(), report.fixed(), report.layers.len()), (5_300, Some(4_000), 4));
        let files = &report.layers[1];
        assert_eq!(files.items.len(), 1);
        assert_eq!(files.items[0].truncated, Some(Truncated { kept: 300, of: 9_000 }));
        let again = serde_json::to_value(&report).expect("JSON");
        assert_eq!(ContextReport::read(&again), report);
    }

    #[test]
    fn earlier_daemons_are_understood() {
        let layers =
            ["system", "personalization", "history", "plan", "artifacts", "memory", "context", "goal", "tools"];
        let layers: Vec<Value> = layers.iter().map(|name| json!({ "layer": name, "tokens": 10 })).collect();
        let report = ContextReport::read(&json!({ "layers": layers }));
        assert_eq!((report.used(), report.fixed()), (90, Some(60)));
        assert_eq!((report.source, report.window, report.percent_of("")), (UsageSource::Estimated, None, None));
        assert_eq!(ContextReport::read(&Value::Null).fixed(), None);
    }

    #[test]
    fn a_hostile_report_is_bounded() {
        let items: Vec<Value> = (0..100_000)
            .map(|n| json!({ "name": format!("<b>{n}</b>{}", "x".repeat(400)), "tokens": u64::MAX }))
            .collect();
        let layers: Vec<Value> = (0..100).map(|n| json!({ "layer": n.to_string(), "tokens": u64::MAX })).collect();
        let mut body = json!({ "window": 0, "used": -1, "step": 1.5, "source": [], "layers": layers });
        body["layers"][0]["items"] = items.into();
        body["model"] = "m".repeat(9_000).into();
        let percents = [(json!(0), Some(50)), (json!(u64::MAX), Some(200)), (json!(-1), None), (json!("9"), None)];
        for (told, believed) in percents {
            body["estimatePercent"] = told;
            assert_eq!(ContextReport::read(&body).percent_of(&"m".repeat(MAX_NAME_BYTES)), believed);
        }
        let report = ContextReport::read(&body);
        assert_eq!((report.window, report.step, report.layers.len()), (None, None, MAX_LAYERS));
        assert_eq!(report.used(), MAX_LAYERS as u64 * MAX_TOKENS);
        assert_eq!(report.layers[0].items.len(), MAX_ITEMS);
        assert!(report.layers[0].items.iter().all(|item| item.name.len() <= MAX_NAME_BYTES));
        assert_eq!(report.layers[0].more_items, Some(MoreItems { count: 99_800, tokens: MAX_TOKENS }));
    }
}
