//! How much of the window each layer of a request takes: estimated, and reported once per attempt.

use std::collections::BTreeMap;

use protocol::{Excerpt, TaskSubmit, tokens::estimate};
use serde_json::{Value, json};

use super::{SystemPrompt, context_block, history};
use crate::{
    home::Home,
    memory::Recall,
    model::{Message, ToolSpec},
};

/// When this share of the window is used, the conversation should be compacted, percent.
const COMPACTION_PERCENT: u64 = 70;
/// Most items of a layer that are listed.
const MAX_ITEMS: usize = 64;
/// Most bytes of JSON for excerpts that are reported as they were sent.
const MAX_EXCERPT_BYTES: usize = 16 * 1024;
/// Longest name, bytes.
const MAX_NAME_BYTES: usize = 200;

/// What a request consists of.
pub struct PromptParts<'a> {
    pub system: &'a SystemPrompt,
    pub submit: &'a TaskSubmit,
    pub recall: &'a Recall,
    /// The plan's file, beneath the workspace.
    pub plan: &'a str,
}

struct PromptLayer {
    layer: &'static str,
    tokens: u64,
    items: Vec<Value>,
}

/// The event: `{window, threshold, used, source, hint, layers, memory}`. `hint` means that the conversation should be
/// compacted; `memory` holds the excerpts as they were sent.
pub fn context(asked: &PromptParts<'_>, home: &Home, tools: &[ToolSpec], window: u64) -> BTreeMap<String, Value> {
    let layers = layers(asked, home, tools);
    let used: u64 = layers.iter().map(|layer| layer.tokens).sum();
    let threshold = window * COMPACTION_PERCENT / 100;
    let layers: Vec<Value> = layers.into_iter().map(PromptLayer::into_json).collect();
    let fields = [
        ("window", json!(window)),
        ("threshold", json!(threshold)),
        ("used", json!(used)),
        ("source", json!("estimated")),
        ("hint", json!(used >= threshold)),
        ("layers", json!(layers)),
        ("memory", json!(sent_excerpts(asked.recall))),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn layers(asked: &PromptParts<'_>, home: &Home, tools: &[ToolSpec]) -> Vec<PromptLayer> {
    let personal: Vec<Value> = asked
        .system
        .personal
        .iter()
        .map(|block| {
            let tokens = estimate(&block.text);
            item(block.name, tokens, block.of.map(|of| (of as u64).div_ceil(4)))
        })
        .collect();
    let personal_tokens: u64 = asked.system.personal.iter().map(|block| estimate(&block.text)).sum();
    let mut all = vec![
        PromptLayer::of("system", estimate(&asked.system.text).saturating_sub(personal_tokens), Vec::new()),
        PromptLayer::of("personalization", personal_tokens, personal),
        PromptLayer::of("history", history::messages(&asked.submit.messages).iter().map(cost).sum(), Vec::new()),
    ];
    let mut beside: BTreeMap<&str, PromptLayer> = BTreeMap::new();
    for part in context_block::parts(asked.submit, home, asked.recall) {
        // Attachments are material to work with, as artifacts are.
        let layer = if part.tag == "attachments" { "artifacts" } else { part.tag };
        let items = match part.tag {
            "plan" => vec![item(&format!("workspace/{}", asked.plan), estimate(&part.text), None)],
            "memory" => {
                let pairs = asked.recall.0.iter().zip(&part.pieces);
                pairs.map(|(known, (name, text))| item(name, estimate(text), known.of)).collect()
            }
            _ => part.pieces.iter().map(|(name, text)| item(name, estimate(text), None)).collect(),
        };
        let found = beside.entry(layer).or_insert_with(|| PromptLayer::of(layer, 0, Vec::new()));
        found.tokens += estimate(&part.text);
        found.items.extend(items);
    }
    all.extend(["plan", "artifacts", "memory", "context"].into_iter().filter_map(|name| beside.remove(name)));
    all.push(PromptLayer::of("goal", estimate(&asked.submit.goal), Vec::new()));
    let tools: Vec<(&str, u64)> = tools.iter().map(|tool| (tool.name, spec(tool))).collect();
    let named = tools.iter().map(|(name, tokens)| item(name, *tokens, None)).collect();
    all.push(PromptLayer::of("tools", tools.iter().map(|(_, tokens)| tokens).sum(), named));
    all
}

impl PromptLayer {
    fn of(layer: &'static str, tokens: u64, items: Vec<Value>) -> Self {
        Self { layer, tokens, items }
    }

    fn into_json(mut self) -> Value {
        let more = self.items.len().saturating_sub(MAX_ITEMS);
        if more > 0 {
            let rest: u64 = self.items.drain(MAX_ITEMS..).filter_map(|item| item["tokens"].as_u64()).sum();
            self.items.push(item(&format!("and {more} more"), rest, None));
        }
        let mut layer = json!({ "layer": self.layer, "tokens": self.tokens });
        if !self.items.is_empty() {
            layer["items"] = self.items.into();
        }
        layer
    }
}

fn item(name: &str, tokens: u64, of: Option<u64>) -> Value {
    let mut item = json!({ "name": protocol::text::head(name, MAX_NAME_BYTES), "tokens": tokens });
    if let Some(of) = of {
        item["truncated"] = json!({ "kept": tokens.min(of), "of": of });
    }
    item
}

fn cost(message: &Message) -> u64 {
    match message {
        Message::User(text) => estimate(text),
        Message::Pictures(_) => 0,
        Message::Assistant(said) => {
            let calls = said.calls.iter().map(|call| estimate(&call.name) + estimate(&call.object().to_string()));
            estimate(&said.text) + calls.sum::<u64>()
        }
        Message::Tool { content, .. } => estimate(content),
    }
}

fn spec(tool: &ToolSpec) -> u64 {
    estimate(tool.name) + estimate(tool.description) + estimate(&tool.parameters.to_string())
}

/// The excerpts, as far as there is room for them.
fn sent_excerpts(recall: &Recall) -> Vec<Excerpt> {
    let (mut all, mut room) = (Vec::new(), MAX_EXCERPT_BYTES);
    for item in &recall.0 {
        let mut excerpt = item.excerpt.clone();
        let mut size = encoded(&excerpt);
        while size > room && excerpt.text.len() > 64 {
            // Escaping may turn one byte into six.
            let kept = (excerpt.text.len() * room / size).min(excerpt.text.len() - 1).saturating_sub(16);
            excerpt.text = format!("{}…", protocol::text::head(&excerpt.text, kept));
            size = encoded(&excerpt);
        }
        if size > room {
            break;
        }
        room -= size;
        all.push(excerpt);
    }
    all
}

fn encoded(excerpt: &Excerpt) -> usize {
    serde_json::to_string(excerpt).map_or(usize::MAX, |json| json.len() + 1)
}
