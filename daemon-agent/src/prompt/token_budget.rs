//! How much of the window each layer of a request takes: estimated before an attempt's first model call, and after each call
//! what its provider counted, shared among the layers as they were estimated.

use std::collections::BTreeMap;

use protocol::{
    Excerpt, TaskSubmit, UsageSource,
    context::{ContextBudget, ContextWindow, DEFAULT_THRESHOLD_PERCENT, Layer, reserve},
    tokens::estimate,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{SystemPrompt, context_block};
use crate::{
    config::toolset::LOAD_SKILL,
    home::Home,
    memory::Recall,
    model::{Message, ModelRequest, PICTURE_TOKENS, ToolSpec},
};

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

/// The layers of an attempt's requests in estimated tokens. The conversation grows; the others stay.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RequestLayers {
    /// All but the conversation and its results.
    beside: Vec<PromptLayer>,
    /// Tokens of `beside` that stand in the conversation's messages.
    within: u64,
    conversation: CountedMessages,
}

/// How the tokens of a whole request are known.
#[derive(Clone, Copy, Debug)]
pub enum RequestTokens {
    /// Its provider counted them.
    Measured(u64),
    /// They are estimated, and its provider counts so many for 100 of them.
    Estimated(u64),
}

/// What the messages take that are counted already, tokens.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct CountedMessages {
    messages: usize,
    history: u64,
    results: u64,
    pictures: u64,
    /// Of loaded skills.
    #[serde(default)]
    skills: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct PromptLayer {
    layer: Layer,
    tokens: u64,
    items: Vec<LayerItem>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct LayerItem {
    name: String,
    tokens: u64,
    /// Tokens of all of it, where only a part is sent.
    of: Option<u64>,
}

impl RequestLayers {
    /// The layers beside a conversation that is not counted yet.
    pub fn new(asked: &PromptParts<'_>, home: &Home, tools: &[ToolSpec]) -> Self {
        let personal = asked.system.personal.iter();
        let personal: Vec<LayerItem> =
            personal.map(|block| item(block.name, estimate(&block.text), block.of)).collect();
        let personal = PromptLayer::of(Layer::Personalization, personal);
        let system = estimate(&asked.system.text).saturating_sub(personal.tokens);
        let mut beside =
            vec![PromptLayer { layer: Layer::System, tokens: system, items: Vec::new() }, tool_layer(tools), personal];
        let mut within = 0;
        for part in context_block::parts(asked.submit, home, asked.recall) {
            let tokens = estimate(&part.text);
            let pieces = part.pieces.iter();
            let (layer, items) = match part.tag {
                "plan" => {
                    let name = format!("workspace/{}", asked.plan);
                    (Layer::Plan, pieces.map(|piece| item(&name, tokens, piece.of)).collect())
                }
                tag => {
                    let layer = match tag {
                        "memory" => Layer::Memory,
                        "artifacts" => Layer::Artifacts,
                        _ => Layer::Files,
                    };
                    (layer, pieces.map(|piece| item(&piece.name, piece.tokens, piece.of)).collect())
                }
            };
            within += tokens;
            add(&mut beside, PromptLayer { layer, tokens, items });
        }
        Self { beside, within, conversation: CountedMessages::default() }
    }

    /// The conversation began anew or became shorter: none of it is counted.
    pub fn begin_again(&mut self) {
        self.conversation = CountedMessages::default();
    }

    /// The tools became others.
    pub fn replace_tools(&mut self, tools: &[ToolSpec]) {
        self.beside.retain(|layer| layer.layer != Layer::Tools);
        self.beside.push(tool_layer(tools));
    }

    /// The skills of the system prompt became others: their names, with their estimated tokens.
    pub fn replace_skills(&mut self, skills: &[(String, u64)]) {
        self.beside.retain(|layer| layer.layer != Layer::Skills);
        if !skills.is_empty() {
            let items = skills.iter().map(|(name, tokens)| item(name, *tokens, None)).collect();
            self.beside.push(PromptLayer::of(Layer::Skills, items));
        }
    }

    /// Tokens that a request is likely to take, and how the window is divided for it.
    pub fn budget(&mut self, request: &ModelRequest, window: &ContextWindow) -> (u64, ContextBudget) {
        divided(&self.estimated(&request.messages), request, window)
    }

    fn estimated(&mut self, messages: &[Message]) -> Vec<PromptLayer> {
        self.conversation.count(messages);
        let CountedMessages { history, results, pictures, skills, .. } = self.conversation;
        let mut layers = self.beside.clone();
        if skills > 0 {
            let items = vec![item("loaded in the conversation", skills, None)];
            add(&mut layers, PromptLayer::of(Layer::Skills, items));
        }
        let history = history.saturating_sub(self.within);
        for (layer, tokens) in [(Layer::Files, pictures), (Layer::History, history), (Layer::Results, results)] {
            if tokens > 0 {
                add(&mut layers, PromptLayer { layer, tokens, items: Vec::new() });
            }
        }
        layers.sort_by_key(|layer| layer.layer);
        layers
    }

    /// The event about a request:
    /// `{window, windowSource, windowAt?, reserve, threshold, used, source, hint, layers}`. `hint` means that the conversation
    /// should be compacted.
    pub fn report(
        &mut self,
        request: &ModelRequest,
        window: &ContextWindow,
        tokens: RequestTokens,
    ) -> BTreeMap<String, Value> {
        let mut layers = self.estimated(&request.messages);
        let (source, all) = match tokens {
            RequestTokens::Measured(counted) => (UsageSource::Measured, counted),
            RequestTokens::Estimated(percent) => {
                let estimated: u64 = layers.iter().map(|layer| layer.tokens).sum();
                (UsageSource::Estimated, estimated.saturating_mul(percent) / 100)
            }
        };
        share(&mut layers, all);
        let (used, budget) = divided(&layers, request, window);
        let (reserve, threshold) = (budget.reserve, budget.threshold(DEFAULT_THRESHOLD_PERCENT));
        let layers: Vec<Value> = layers.into_iter().map(PromptLayer::into_json).collect();
        let fields = [
            ("window", json!(window.tokens)),
            ("windowSource", json!(window.source)),
            ("reserve", json!(reserve)),
            ("threshold", json!(threshold)),
            ("used", json!(used)),
            ("source", json!(source)),
            ("hint", json!(used >= threshold)),
            ("layers", json!(layers)),
        ];
        let at = window.at.map(|at| ("windowAt", json!(at)));
        fields.into_iter().chain(at).map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// Tokens that layers take together, and how the window is divided for them.
fn divided(layers: &[PromptLayer], request: &ModelRequest, window: &ContextWindow) -> (u64, ContextBudget) {
    let is_fixed = |layer: &&PromptLayer| !matches!(layer.layer, Layer::History | Layer::Results | Layer::Files);
    let fixed = layers.iter().filter(is_fixed).map(|layer| layer.tokens).sum();
    let reserve = reserve(window.tokens, request.max_tokens);
    let used = layers.iter().map(|layer| layer.tokens).sum();
    (used, ContextBudget { window: window.tokens, reserve, fixed })
}

/// Tokens that messages are likely to take.
pub fn conversation_tokens(messages: &[Message]) -> u64 {
    let mut counted = CountedMessages::default();
    counted.count(messages);
    counted.history + counted.results + counted.pictures
}

impl CountedMessages {
    /// Counts what came to a conversation.
    fn count(&mut self, messages: &[Message]) {
        for message in messages.iter().skip(self.messages) {
            match message {
                Message::User(text) => self.history += estimate(text),
                Message::Pictures(pictures) => self.pictures += pictures.len() as u64 * PICTURE_TOKENS,
                Message::Assistant(said) => {
                    let calls = said.calls.iter();
                    let calls = calls.map(|call| estimate(&call.name) + estimate(&call.object().to_string()));
                    let reasoning = said.reasoning.iter().map(|block| estimate(&block.to_string()));
                    self.history += estimate(&said.text) + reasoning.sum::<u64>();
                    self.results += calls.sum::<u64>();
                }
                Message::Tool { tool, content, .. } if tool == LOAD_SKILL => self.skills += estimate(content),
                Message::Tool { content, pictures, .. } => {
                    self.results += estimate(content) + pictures.len() as u64 * PICTURE_TOKENS;
                }
            }
        }
        self.messages = messages.len();
    }
}

/// Adds a layer, or what it takes to the same one.
fn add(layers: &mut Vec<PromptLayer>, more: PromptLayer) {
    match layers.iter_mut().find(|known| known.layer == more.layer) {
        Some(known) => {
            known.tokens += more.tokens;
            known.items.extend(more.items);
        }
        None => layers.push(more),
    }
}

/// Shares `all` tokens among the layers as they were estimated, and among their items.
fn share(layers: &mut [PromptLayer], all: u64) {
    let sum = layers.iter().map(|layer| layer.tokens).sum::<u64>().max(1);
    let of = |tokens: u64| u64::try_from(u128::from(tokens) * u128::from(all) / u128::from(sum)).unwrap_or(u64::MAX);
    for layer in layers.iter_mut() {
        layer.tokens = of(layer.tokens);
        for item in &mut layer.items {
            (item.tokens, item.of) = (of(item.tokens), item.of.map(of));
        }
    }
    let rest = all.saturating_sub(layers.iter().map(|layer| layer.tokens).sum());
    if let Some(largest) = layers.iter_mut().max_by_key(|layer| layer.tokens) {
        largest.tokens += rest;
    }
}

impl PromptLayer {
    /// A layer that is its items.
    fn of(layer: Layer, items: Vec<LayerItem>) -> Self {
        Self { layer, tokens: items.iter().map(|item| item.tokens).sum(), items }
    }

    fn into_json(mut self) -> Value {
        let more = self.items.len().saturating_sub(MAX_ITEMS);
        if more > 0 {
            let rest: u64 = self.items.drain(MAX_ITEMS..).map(|item| item.tokens).sum();
            self.items.push(item(&format!("and {more} more"), rest, None));
        }
        // A provider counts a request as a whole.
        let mut layer = json!({ "layer": self.layer, "tokens": self.tokens, "source": UsageSource::Estimated });
        if !self.items.is_empty() {
            layer["items"] = self.items.into_iter().map(LayerItem::into_json).collect();
        }
        layer
    }
}

impl LayerItem {
    fn into_json(self) -> Value {
        let mut item = json!({ "name": self.name, "tokens": self.tokens });
        if let Some(of) = self.of {
            item["truncated"] = json!({ "kept": self.tokens.min(of), "of": of });
        }
        item
    }
}

fn item(name: &str, tokens: u64, of: Option<u64>) -> LayerItem {
    LayerItem { name: protocol::text::head(name, MAX_NAME_BYTES).to_owned(), tokens, of }
}

fn tool_layer(tools: &[ToolSpec]) -> PromptLayer {
    PromptLayer::of(Layer::Tools, tools.iter().map(|tool| item(&tool.name, spec(tool), None)).collect())
}

fn spec(tool: &ToolSpec) -> u64 {
    estimate(&tool.name) + estimate(&tool.description) + estimate(&tool.parameters.to_string())
}

/// The excerpts as they were sent, as far as there is room for them.
pub fn sent_excerpts(recall: &Recall) -> Vec<Excerpt> {
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
