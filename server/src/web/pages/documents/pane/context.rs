//! The tab Context: what fills the window, what the next request carries of each message, and what would make room.

pub mod compact;
mod kept;

use std::sync::Arc;

use askama::Template;
use axum::{
    extract::{Form, State},
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use protocol::{
    MessageId, SessionId, TeamId, UsageSource,
    context::{Layer, WindowSource},
};
use serde::Deserialize;
use tokio::time::Instant;

use super::{PaneContext, PaneData, Tab, TabData, answer};
use crate::{
    actions::sessions::pins::{self, PinChange},
    db,
    domain::{
        MessageRole, Session,
        context::{
            MessageShare, PlanReason,
            compaction::OFFERED_PERCENTS,
            overview::{CompactionWaits, ContextOverview, HistoryEntry, TaskTokens, WhatIf, WhatIfAction, percent},
            pins::MAX_PINS,
        },
    },
    error::Error,
    state::Board,
    web::{
        AsOperator, Rejection,
        extract::Id,
        pages::Wants,
        urls,
        view::filters::{self, token_words},
    },
};
use compact::CompactPane;
use kept::KeptOverviews;

/// Items of a layer, and messages, that are shown.
const MAX_SHOWN_ITEMS: usize = 20;
const MAX_SHOWN_MESSAGES: usize = 40;
/// Longest name that is shown, bytes.
const MAX_NAME_BYTES: usize = 120;
/// Messages after one that may stand on the newest page with it.
const NEWEST_PAGE_MESSAGES: u64 = 40;
/// Height of the chart of tasks, in its own units; it is 200 wide, ten for each of the tasks that are told.
const CHART_HEIGHT: u64 = 40;

/// What the database holds for this tab.
#[derive(Clone, Debug)]
pub struct ContextPane {
    overview: Arc<ContextOverview>,
    /// When what the overview is made of was read.
    read: Instant,
    compact: CompactPane,
    pins: u64,
    last_seq: u64,
}

impl ContextPane {
    /// Plans without holding a reader. A stream, which goes on, takes an overview that another one made just now.
    pub(super) async fn read(board: &Board, team: &TeamId, session: &Session, is_stream: bool) -> Result<Self, Error> {
        let (of, read) = ((team, &session.id), Instant::now());
        let shared = if is_stream { KeptOverviews::here().shared(of, read) } else { None };
        let (source, pins, compact) = {
            let mut tx = board.db.reader_of(team).await?;
            let source = match &shared {
                Some(_) => None,
                None => Some(db::contexts::overview(&mut tx, session).await?),
            };
            let pins = db::messages::pins::count(&mut tx, &session.id).await?;
            (source, pins, CompactPane::read(&mut tx, session).await?)
        };
        let (overview, read) = match (shared, source) {
            (None, Some((past, told))) => {
                let made = tokio::task::spawn_blocking(move || ContextOverview::of(&past, told)).await;
                let made = made.map_err(|error| Error::Internal(format!("an overview of a context: {error}")))?;
                let made = Arc::new(made);
                KeptOverviews::here().share(of, made.clone(), (read, Instant::now()));
                (made, read)
            }
            (Some(shared), _) => shared,
            (None, None) => return Err(Error::Internal("no overview of a context was read".into())),
        };
        Ok(Self { overview, read, compact, pins, last_seq: session.last_seq })
    }
}

impl PaneData {
    /// Whether it may lack what was announced at an instant.
    pub fn is_older(&self, than: Instant) -> bool {
        matches!(&self.body, TabData::Context(context) if context.read < than)
    }
}

/// The tab as a reader sees it.
#[derive(Template)]
#[template(path = "documents/context/pane.html")]
pub struct ContextView<'a> {
    data: &'a ContextOverview,
    compact: &'a CompactPane,
    context: &'a PaneContext,
    layers: Vec<LayerRow<'a>>,
    bars: Vec<TaskBar>,
    /// How many pins there may be, when there are no fewer.
    most_pins: Option<u64>,
    last_seq: u64,
}

/// A layer, and its piece of the bar.
struct LayerRow<'a> {
    word: &'static str,
    title: &'static str,
    tokens: u64,
    percent: u64,
    is_estimated: bool,
    /// Where its piece begins and how wide it is: `12.34%`.
    x: String,
    width: String,
    truncated: usize,
    items: Vec<ItemRow<'a>>,
    /// Items that are not shown, and their tokens.
    more: Option<(u64, u64)>,
}

struct ItemRow<'a> {
    name: &'a str,
    tokens: u64,
    /// Tokens that were kept, of all.
    truncated: Option<(u64, u64)>,
}

/// A task in the chart, the oldest first.
struct TaskBar {
    x: usize,
    y: u64,
    height: u64,
}

/// What is to be pinned of a message, or not any more: a call, or all of it where none is named.
#[derive(Debug, Deserialize)]
pub struct PinForm {
    message: MessageId,
    pin: Option<String>,
    unpin: Option<String>,
    /// Its seq, when the form stands in the conversation.
    at: Option<u64>,
}

/// `POST /t/{team}/sessions/{id}/pins`
pub async fn pin(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    wants: Wants,
    Form(form): Form<PinForm>,
) -> Result<Response, Rejection> {
    let (call, pinned) = match (form.pin, form.unpin) {
        (Some(call), None) => (call, true),
        (None, Some(call)) => (call, false),
        _ => return Err(Error::NotFound.into()),
    };
    let change = PinChange { message: form.message, call: Some(call).filter(|call| !call.is_empty()), pinned };
    match pins::set(&board, &caller.team.id, &caller.by, &id, change).await {
        // The tab says so, and has what can be taken away.
        Err(Error::Conflict { code: "too_many_pins", .. }) if wants == Wants::Fragment && form.at.is_some() => {
            let tab = urls::pane(&caller.team.slug, &id, Tab::Context.word());
            return Ok((StatusCode::NO_CONTENT, [("hx-redirect", tab)]).into_response());
        }
        Err(Error::Conflict { code: "too_many_pins", .. }) => {
            return answer(&board, &caller, &id, wants, Tab::Context).await;
        }
        set => set?,
    }
    if let Some(seq) = form.at {
        let last = db::sessions::load(&mut board.db.reader_of(&caller.team.id).await?, &id).await?;
        // A fragment is cut from the page that ends with the message.
        let is_far = last.is_none_or(|session| is_far(session.last_seq, seq)) || wants == Wants::Fragment;
        return Ok(Redirect::to(&urls::message(&caller.team.slug, &id, seq, is_far)).into_response());
    }
    answer(&board, &caller, &id, wants, Tab::Context).await
}

impl<'a> ContextView<'a> {
    pub fn of(pane: &'a ContextPane, context: &'a PaneContext) -> Self {
        let data = &*pane.overview;
        let sum: u64 = data.layers.iter().map(|layer| layer.tokens).sum();
        let whole = sum.max(data.window).max(1);
        let share = |tokens: u64| {
            let parts = u128::from(tokens) * 10_000 / u128::from(whole);
            format!("{}.{:02}%", parts / 100, parts % 100)
        };
        let mut before = 0;
        let tokens: Vec<u64> = data.layers.iter().map(|layer| layer.tokens).collect();
        let layers = data.layers.iter().zip(percents(&tokens, data.window)).map(|(layer, percent)| {
            let (word, title) = words(layer.layer);
            let items = layer.items.iter().take(MAX_SHOWN_ITEMS).map(|item| ItemRow {
                name: protocol::text::head(&item.name, MAX_NAME_BYTES),
                tokens: item.tokens,
                truncated: item.truncated.map(|cut| (cut.kept, cut.of)),
            });
            let rest = layer.items.iter().skip(MAX_SHOWN_ITEMS);
            let mut more = layer.more_items.unwrap_or_default();
            rest.for_each(|item| more.add(1, item.tokens));
            let row = LayerRow {
                word,
                title,
                tokens: layer.tokens,
                percent,
                is_estimated: layer.source == UsageSource::Estimated,
                x: share(before),
                width: share(layer.tokens),
                truncated: layer.truncated(),
                items: items.collect(),
                more: (more.count > 0).then_some((more.count, more.tokens)),
            };
            before += layer.tokens;
            row
        });
        let cost = |task: &TaskTokens| task.input_tokens.saturating_add(task.output_tokens);
        let most = data.tasks.iter().map(cost).max().unwrap_or(0).max(1);
        let bars = data.tasks.iter().rev().enumerate().map(|(n, task)| {
            let height = u128::from(cost(task)) * u128::from(CHART_HEIGHT) / u128::from(most);
            let height = u64::try_from(height).unwrap_or(CHART_HEIGHT).max(1);
            TaskBar { x: n * 10, y: CHART_HEIGHT - height, height }
        });
        let (layers, bars) = (layers.collect(), bars.collect());
        let most_pins = (context.may_act && pane.pins >= MAX_PINS).then_some(MAX_PINS);
        Self { data, compact: &pane.compact, context, layers, bars, most_pins, last_seq: pane.last_seq }
    }

    fn threshold_x(&self) -> String {
        format!("{}%", percent(self.data.threshold, self.data.window).min(100))
    }

    /// Where the size of the window comes from.
    fn window_words(&self) -> &'static str {
        match self.data.window_source {
            WindowSource::Configured => "from the agent’s file",
            WindowSource::Provider => "from the provider",
            WindowSource::Table => "known of this model",
            WindowSource::Learnt => "learnt from an error",
            WindowSource::Assumed => "assumed, because nothing is known of this model",
        }
    }

    fn source_words(&self) -> &'static str {
        match (self.data.source, self.data.at) {
            (UsageSource::Measured, _) => "measured by the provider",
            (UsageSource::Estimated, Some(_)) => "estimated by the agent",
            (UsageSource::Estimated, None) => "estimated for the next request",
        }
    }

    fn plan_words(&self) -> String {
        match self.data.next.plan {
            PlanReason::Fits { kept_turns } => {
                format!("Everything fits. Results of the newest {kept_turns} turns are sent, of older ones a line.")
            }
            PlanReason::FewerTurns { kept_turns } => {
                format!("To fit, only the newest {kept_turns} turns keep their results.")
            }
            PlanReason::SmallerResults { result_tokens } => {
                format!("To fit, results are cut to {} tokens.", token_words(result_tokens))
            }
            PlanReason::LeftOut { result_tokens } => format!(
                "To fit, the oldest turns are left out, and results are cut to {} tokens.",
                token_words(result_tokens)
            ),
        }
    }

    /// Whether the next request leaves turns out.
    fn leaves_out(&self) -> bool {
        matches!(self.data.next.plan, PlanReason::LeftOut { .. })
    }

    fn what_ifs(&self) -> impl Iterator<Item = (&'static str, &WhatIf)> {
        self.data.what_if.iter().filter(|other| other.frees > 0).map(|other| {
            let words = match other.action {
                WhatIfAction::PruneResults => "A line in place of each result",
                WhatIfAction::KeepTwoTurns => "Results of the newest 2 turns alone",
                WhatIfAction::DropFiles => "No files",
                WhatIfAction::Compact => "A summary of the older turns",
            };
            (words, other)
        })
    }

    fn messages(&self) -> &[HistoryEntry] {
        &self.data.history[..self.data.history.len().min(MAX_SHOWN_MESSAGES)]
    }

    /// Messages that are not shown, and their tokens.
    fn beyond(&self) -> Option<(u64, u64)> {
        let listed = self.data.history.iter().skip(MAX_SHOWN_MESSAGES);
        let (mut messages, mut tokens) =
            self.data.history_beyond.map_or((0, 0), |beyond| (beyond.messages, beyond.tokens));
        listed.for_each(|message| (messages, tokens) = (messages + 1, tokens + message.tokens));
        (messages > 0).then_some((messages, tokens))
    }

    /// Whether it is the first message that others may be missing before.
    fn is_first_apart(&self, message: &HistoryEntry) -> bool {
        self.messages().iter().find(|other| other.is_apart).is_some_and(|first| first.seq == message.seq)
    }

    /// Whether those are older than all that are shown.
    fn leaves_older(&self) -> bool {
        self.data.history_beyond.is_some_and(|beyond| beyond.more)
            && !self.messages().iter().any(|message| message.is_apart)
    }

    fn money(&self, dollars: &f64) -> String {
        format!("${dollars:.2}")
    }

    fn pins(&self) -> String {
        self.verb("pins")
    }

    /// The address of a form of this tab.
    fn verb(&self, verb: &str) -> String {
        urls::session_verb(&self.context.slug, &self.context.session, verb)
    }

    fn session_link(&self, id: &SessionId) -> String {
        urls::session(&self.context.slug, id)
    }

    /// Shares from which on a session is compacted by itself, to choose from.
    fn percents(&self) -> &'static [u64] {
        &OFFERED_PERCENTS
    }

    fn automatic_words(&self) -> String {
        match self.data.compact_at {
            0 => "Not by itself.".to_owned(),
            _ if self.data.compact_waits.is_some() => "Not by itself after two failures.".to_owned(),
            percent => format!("By itself when the next request would pass {percent} % of what it may take."),
        }
    }

    /// What the newest compaction that failed says of it.
    fn failure(&self, waits: &CompactionWaits) -> String {
        match protocol::text::summary(&waits.reason) {
            empty if empty.is_empty() => "gives no reason.".to_owned(),
            reason => format!("says: “{reason}”"),
        }
    }

    fn at(&self, seq: &u64) -> String {
        urls::message(&self.context.slug, &self.context.session, *seq, is_far(self.last_seq, *seq))
    }
}

/// Whether a message stands on an older page than the newest.
fn is_far(last: u64, seq: u64) -> bool {
    last.saturating_sub(seq) > NEWEST_PAGE_MESSAGES
}

/// Percent of the whole that each takes, rounded so that together they are what all of them take.
fn percents(parts: &[u64], whole: u64) -> Vec<u64> {
    let mut shares: Vec<u64> = parts.iter().map(|part| percent(*part, whole)).collect();
    let whole = u128::from(whole.max(1));
    let sum: u128 = parts.iter().map(|part| u128::from(*part)).sum();
    let left = ((sum * 100 + whole / 2) / whole).saturating_sub(shares.iter().map(|share| u128::from(*share)).sum());
    // Those that lost most by being rounded down get what is left.
    let mut places: Vec<usize> = (0..parts.len()).collect();
    places.sort_by_key(|place| std::cmp::Reverse(u128::from(parts[*place]) * 100 % whole));
    for place in places.into_iter().take(usize::try_from(left).unwrap_or(0)) {
        shares[place] += 1;
    }
    shares
}

/// The word of a layer in the page, and its title.
fn words(layer: Layer) -> (&'static str, &'static str) {
    match layer {
        Layer::System => ("system", "System prompt"),
        Layer::Tools => ("tools", "Tool definitions"),
        Layer::Skills => ("skills", "Skills"),
        Layer::Personalization => ("personalization", "Personalization"),
        Layer::Memory => ("memory", "Memory"),
        Layer::Plan => ("plan", "Plan"),
        Layer::Artifacts => ("artifacts", "Artifacts"),
        Layer::Files => ("files", "Files"),
        Layer::History => ("history", "Conversation"),
        Layer::Results => ("results", "Tool results"),
        Layer::Reserve => ("reserve", "Kept for the answer"),
        Layer::Free => ("free", "Free"),
    }
}

fn role(role: &MessageRole) -> &'static str {
    match role {
        MessageRole::User => "Question",
        MessageRole::Assistant => "Answer",
    }
}

fn share(message: &HistoryEntry) -> &'static str {
    match message.share {
        MessageShare::Pruned if message.pin_cut => "cut to its ends",
        MessageShare::Verbatim => "whole",
        MessageShare::Pruned => "results shortened",
        MessageShare::LeftOut => "left out",
    }
}

#[cfg(test)]
mod tests {
    use super::percents;

    #[test]
    fn percentages_of_a_whole_are_a_hundred() {
        assert_eq!(percents(&[333, 333, 334], 1_000), [33, 33, 34]);
        assert_eq!(percents(&[2_666, 2_667, 2_667, 0], 8_000), [33, 34, 33, 0]);
        assert_eq!(percents(&[4_100, 9_800, 48_600, 137_500], 200_000), [2, 5, 24, 69]);
        assert_eq!((percents(&[], 0), percents(&[5, 5], 1_000)), (vec![], vec![1, 0]));
    }
}
