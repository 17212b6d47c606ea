//! What fills a session's window, what its next request carries, and what would free room: one answer for pages and
//! programs.

use std::collections::BTreeMap;

use protocol::{
    Instant, MessageId, TaskId, Usage, UsageSource,
    context::{ContextBudget, Layer, WindowSource},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    AppliedSummary, ContextPlan, MessageShare, Past, PlanReason, PlanSettings, SessionPast,
    compaction::{on_request, to_each_turn},
    plan,
    report::{ContextReport, LayerItem, MoreItems},
};
use crate::domain::MessageRole;

/// Items of a layer that are listed.
const MAX_LISTED_ITEMS: usize = 50;
/// Messages that are listed.
const MAX_LISTED_MESSAGES: usize = 100;
/// Turns that keep their results in a comparison.
const FEW_TURNS: usize = 2;

/// The context of a session: the window, what took it in the newest request, and what the next one carries.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SessionContext)]
pub struct ContextOverview {
    /// Tokens of the model's window.
    pub window: u64,
    pub window_source: WindowSource,
    /// When the provider said it, or an error told it.
    pub window_at: Option<Instant>,
    /// Tokens of a request from which on its results are pruned.
    pub threshold: u64,
    /// Tokens that are kept for the answer.
    pub reserve: u64,
    /// Tokens of the newest request; before the first one, of the next.
    pub used: u64,
    pub free: u64,
    pub source: UsageSource,
    /// At least 70 % of what history, results and files may take are taken, or the next request leaves turns out.
    pub hint: bool,
    /// The model call that reported it, when, and in which task; null while none has.
    pub step: Option<u64>,
    pub at: Option<Instant>,
    pub task_id: Option<TaskId>,
    pub layers: Vec<LayerTokens>,
    pub next: NextRequest,
    /// Newest first.
    pub history: Vec<HistoryEntry>,
    /// Older messages; null: there are none.
    pub history_beyond: Option<HistoryBeyond>,
    pub what_if: Vec<WhatIf>,
    /// The summary that stands for the oldest turns; null: none does.
    pub summary: Option<StandingSummary>,
    /// From which share of what history, results and files may take the session is compacted by itself, percent; 0: never.
    pub compact_at: u64,
    /// Why it is not compacted by itself for now; null: it does not wait, or never is.
    pub compact_waits: Option<CompactionWaits>,
    /// The newest ones, newest first.
    pub tasks: Vec<TaskTokens>,
}

/// Compactions, notes and new beginnings of a session failed twice in a row: it is compacted by itself again after one that
/// succeeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompactionWaits {
    /// The newer one, and its error's message.
    pub task_id: TaskId,
    pub reason: String,
    pub at: Option<Instant>,
    /// The seq of its question.
    #[serde(skip)]
    pub seq: u64,
}

/// A summary that is sent in the place of the oldest turns.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StandingSummary {
    /// The compaction that made it.
    pub task_id: TaskId,
    pub text: String,
    /// Seq of the newest question that it stands for.
    pub up_to_seq: u64,
    /// Tokens of the next request at that time, without it and with it.
    pub tokens_before: u64,
    pub tokens_after: u64,
    pub at: Instant,
}

impl From<&AppliedSummary> for StandingSummary {
    fn from(applied: &AppliedSummary) -> Self {
        Self {
            task_id: applied.task.clone(),
            text: applied.summary.text.clone(),
            up_to_seq: applied.summary.up_to,
            tokens_before: applied.tokens_before,
            tokens_after: applied.tokens_after,
            at: applied.at,
        }
    }
}

/// Tokens of a layer.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ContextLayerTokens)]
pub struct LayerTokens {
    pub layer: Layer,
    pub tokens: u64,
    pub source: UsageSource,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<LayerItem>,
    /// Items that are not listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_items: Option<MoreItems>,
}

impl LayerTokens {
    /// Items that were too long to be sent whole.
    pub fn truncated(&self) -> usize {
        self.items.iter().filter(|item| item.truncated.is_some()).count()
    }

    /// Whether it has anything to list.
    pub fn has_items(&self) -> bool {
        !self.items.is_empty() || self.more_items.is_some()
    }
}

/// What the next request is planned to carry, estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = NextContext)]
pub struct NextRequest {
    /// All of it, and what of it is the session's past.
    pub tokens: u64,
    pub history: u64,
    /// How far the plan had to go.
    pub plan: PlanReason,
    /// Messages of which not all that is pinned is carried.
    pub pins_cut: u64,
}

/// What the next request carries of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ContextMessage)]
pub struct HistoryEntry {
    pub message_id: MessageId,
    pub seq: u64,
    pub role: MessageRole,
    pub tokens: u64,
    pub share: MessageShare,
    /// The message or one of its calls.
    pub pinned: bool,
    /// The message itself.
    pub pinned_whole: bool,
    /// What is pinned of it is too long for the room that pins have: its ends are sent, or nothing.
    pub pin_cut: bool,
    /// Other turns may be missing between it and the newer ones.
    #[serde(skip)]
    pub is_apart: bool,
    /// A compaction of everything up to this question's turn; absent: there is too little to compact, or it is no question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compact_to_here: Option<CompactToHere>,
}

/// What a compaction that ends at a turn does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CompactToHere {
    /// The turns after it, which stand: the `keep` of that compaction.
    pub keep: u64,
    /// Fewer tokens of the next request, about.
    pub frees: u64,
}

/// Messages that are older than the listed ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct HistoryBeyond {
    pub messages: u64,
    pub tokens: u64,
    /// There are still older ones, which the next request leaves out.
    pub more: bool,
}

/// What the next request would be with other settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ContextWhatIf)]
pub struct WhatIf {
    pub action: WhatIfAction,
    /// Tokens of the request then, and how many fewer these are.
    pub tokens: u64,
    pub frees: u64,
}

crate::words! {
    /// A way to make room.
    WhatIfAction {
        /// A line is left of each result, but for evidence and pins.
        PruneResults = "prune results",
        /// Only the newest two turns keep their results.
        KeepTwoTurns = "keep 2 turns",
        /// Files are not sent along.
        DropFiles = "drop files",
        /// A summary takes the place of the older turns.
        Compact = "compact",
    }
}

/// What is told of a session's tasks.
#[derive(Clone, Debug, Default)]
pub struct SessionTasks {
    /// The newest ones, newest first.
    pub newest: Vec<TaskTokens>,
    pub compact_waits: Option<CompactionWaits>,
}

/// What a task took, all its model calls together.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TaskTokens)]
pub struct TaskTokens {
    pub task_id: TaskId,
    pub input_tokens: u64,
    pub output_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    pub source: UsageSource,
    /// Its goal, for people.
    #[serde(skip)]
    pub goal: String,
    /// The seq of its question.
    #[serde(skip)]
    pub seq: u64,
}

impl TaskTokens {
    /// Of a task's usage.
    pub fn new(task_id: TaskId, usage: &Usage, goal: String, seq: u64) -> Self {
        let Usage { input_tokens, output_tokens, cost_usd, source, .. } = *usage;
        Self { task_id, input_tokens, output_tokens, cost_usd, source, goal, seq }
    }
}

impl ContextOverview {
    /// From what the agent reported last, and from what the next request is planned to carry.
    pub fn of(session: &SessionPast, tasks: SessionTasks) -> Self {
        let SessionPast { model, settings, past, .. } = session;
        let reported = session.reported.as_ref();
        let report = reported.map(|reported| ContextReport::read(&reported.body)).unwrap_or_default();
        let next = plan(past, settings);
        let window = report.window.unwrap_or(model.window.tokens);
        let is_own = report.window.is_none_or(|window| window == model.window.tokens);
        let reserve = report.reserve.unwrap_or(model.reserve).min(window);
        let budget = ContextBudget { window, reserve, fixed: settings.budget.fixed };
        let mut layers = match report.layers.is_empty() {
            false => reported_layers(&report),
            true => planned_layers(&next, settings.budget.fixed),
        };
        let conversation: u64 =
            layers.iter().filter(|layer| is_conversation(layer.layer)).map(|layer| layer.tokens).sum();
        let used = if report.layers.is_empty() { settings.budget.fixed + next.total } else { report.used() };
        let free = window.saturating_sub(used).saturating_sub(reserve);
        let files = layers.iter().find(|layer| layer.layer == Layer::Files).map_or(0, |layer| layer.tokens);
        for (layer, tokens) in [(Layer::Reserve, reserve), (Layer::Free, free)] {
            layers.push(LayerTokens { layer, tokens, source: report.source, items: Vec::new(), more_items: None });
        }
        let (mut history, history_beyond) = history(&next);
        let to_each: BTreeMap<u64, CompactToHere> = to_each_turn(past, settings, &next)
            .into_iter()
            .map(|to| (to.up_to, CompactToHere { keep: to.keep, frees: to.frees }))
            .collect();
        for question in history.iter_mut().filter(|message| message.role == MessageRole::User) {
            question.compact_to_here = to_each.get(&question.seq).copied();
        }
        let tokens = settings.budget.fixed + files + next.total;
        let available = budget.available();
        Self {
            window,
            window_source: report.window_source.filter(|_| report.window.is_some()).unwrap_or(model.window.source),
            window_at: if report.window_at.is_some() { report.window_at } else { model.window.at.filter(|_| is_own) },
            threshold: budget.threshold(settings.threshold_percent),
            reserve,
            used,
            free,
            source: report.source,
            hint: matches!(next.why, PlanReason::LeftOut { .. })
                || conversation > 0
                    && u128::from(conversation) * 100 >= u128::from(available) * u128::from(settings.threshold_percent),
            step: report.step,
            at: reported.map(|reported| reported.at),
            task_id: reported.map(|reported| reported.task_id.clone()),
            layers,
            next: NextRequest {
                tokens,
                history: next.total,
                plan: next.why,
                pins_cut: next.messages.iter().filter(|message| message.pin_cut).count() as u64,
            },
            history,
            history_beyond,
            what_if: what_if(past, settings, &next, files),
            summary: session.standing.as_ref().map(StandingSummary::from),
            compact_at: session.percent,
            compact_waits: tasks.compact_waits.filter(|_| session.percent > 0),
            tasks: tasks.newest,
        }
    }

    /// Share of the window that is used, percent.
    pub fn percent(&self) -> u64 {
        percent(self.used, self.window)
    }
}

/// Percent of the whole, at most 999.
pub fn percent(part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(part) * 100 / u128::from(whole.max(1))).unwrap_or(u64::MAX).min(999)
}

fn is_conversation(layer: Layer) -> bool {
    matches!(layer, Layer::History | Layer::Results | Layer::Files)
}

/// The layers as they were reported, in the order in which they are shown; unknown ones are items of the first.
fn reported_layers(report: &ContextReport) -> Vec<LayerTokens> {
    let mut layers: BTreeMap<Layer, LayerTokens> = BTreeMap::new();
    for reported in &report.layers {
        let kind = reported.kind();
        if matches!(kind, Some(Layer::Reserve | Layer::Free)) {
            continue;
        }
        let layer = layers.entry(kind.unwrap_or(Layer::System)).or_insert_with(|| LayerTokens {
            layer: kind.unwrap_or(Layer::System),
            tokens: 0,
            source: report.source,
            items: Vec::new(),
            more_items: None,
        });
        layer.tokens += reported.tokens;
        if reported.source == Some(UsageSource::Estimated) {
            layer.source = UsageSource::Estimated;
        }
        let itself = LayerItem { name: reported.layer.clone(), tokens: reported.tokens, truncated: None };
        let items = if kind.is_none() { std::slice::from_ref(&itself) } else { &reported.items };
        let mut more = layer.more_items.unwrap_or_default();
        if let (Some(beyond), Some(_)) = (reported.more_items, kind) {
            more.add(beyond.count, beyond.tokens);
        }
        for item in items {
            if layer.items.len() < MAX_LISTED_ITEMS {
                layer.items.push(item.clone());
            } else {
                more.add(1, item.tokens);
            }
        }
        layer.more_items = Some(more).filter(|more| more.count > 0);
    }
    layers.into_values().collect()
}

/// What the layers are about to be, before any was reported.
fn planned_layers(plan: &ContextPlan, fixed: u64) -> Vec<LayerTokens> {
    let results: u64 = plan.messages.iter().map(|message| message.results).sum();
    let layers = [(Layer::System, fixed), (Layer::History, plan.total - results), (Layer::Results, results)];
    let source = UsageSource::Estimated;
    layers.map(|(layer, tokens)| LayerTokens { layer, tokens, source, items: Vec::new(), more_items: None }).to_vec()
}

fn history(plan: &ContextPlan) -> (Vec<HistoryEntry>, Option<HistoryBeyond>) {
    let all = plan.messages.iter().filter_map(|message| {
        Some(HistoryEntry {
            message_id: message.id.clone()?,
            seq: message.seq,
            role: message.role,
            tokens: message.tokens,
            share: message.share,
            pinned: message.pinned,
            pinned_whole: message.pinned_whole,
            pin_cut: message.pin_cut,
            is_apart: message.is_apart,
            compact_to_here: None,
        })
    });
    let mut listed: Vec<HistoryEntry> = all.collect();
    let beyond = listed.split_off(listed.len().min(MAX_LISTED_MESSAGES));
    let (messages, tokens) = (beyond.len() as u64, beyond.iter().map(|message| message.tokens).sum());
    let more = plan.leaves_unread;
    (listed, (messages > 0 || more).then_some(HistoryBeyond { messages, tokens, more }))
}

/// The same plan with other settings.
fn what_if(past: &Past, settings: &PlanSettings, next: &ContextPlan, files: u64) -> Vec<WhatIf> {
    let all = settings.budget.fixed + files + next.total;
    let with = |kept_turns: usize| {
        let kept_turns = kept_turns.min(settings.kept_turns);
        next.total.saturating_sub(plan(past, &PlanSettings { kept_turns, ..settings.clone() }).total)
    };
    let compacted = on_request(past, settings);
    let actions = [
        (WhatIfAction::PruneResults, with(0)),
        (WhatIfAction::KeepTwoTurns, with(FEW_TURNS)),
        (WhatIfAction::DropFiles, files),
        (WhatIfAction::Compact, compacted.map_or(0, |range| range.frees())),
    ];
    actions.map(|(action, frees)| WhatIf { action, tokens: all - frees, frees }).to_vec()
}
