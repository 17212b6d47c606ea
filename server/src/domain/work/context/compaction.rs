//! Compaction: which of a session's older turns a summary takes the place of, and what is told to whoever writes it. The turns
//! themselves stay.

use protocol::{
    CompactRequest, TaskId, Turn, TurnPart, TurnRole,
    context::marked_summary,
    prune::{self, ResultCaps},
    tokens,
};
use serde::{Deserialize, Serialize};

use super::{
    ContextPlan, Past, PlanReason, PlanSettings, PlannedMessage,
    form::{Caps, FormedExchange},
    past::{PieceBody, words_cost},
    plan::{TurnsWriter, WAYS, left_out, notices_cost, plan, shares, ways},
    scaled,
};

/// Newest turns that a compaction lets stand, unless it is said otherwise.
pub const DEFAULT_STANDING_TURNS: usize = 6;
/// Fewest of them when fewer have to do, unless turns would be left out with these.
const MIN_STANDING_TURNS: usize = 2;
/// Share of what a conversation may take that a compaction is to free, percent.
const MIN_FREED_PERCENT: u64 = 20;
/// Less than this is not worth a summary, tokens.
const MIN_REPLACED_TOKENS: u64 = 200;
/// Bounds of a summary's length, tokens.
const MIN_SUMMARY_TOKENS: u64 = 128;
const MAX_SUMMARY_TOKENS: u64 = 4_096;
/// Most tokens of a summary that another session begins with.
pub const LONGEST_TRANSFER_TOKENS: u64 = 2_048;
/// Most tokens of evidence and of pinned results that the summary is made of; of other results a line is.
const MAX_RESULT_TOKENS: u64 = 500;
/// Longest summary, bytes.
pub const MAX_SUMMARY_BYTES: usize = 64 * 1024;
/// What stands before pins at the end of a summary.
const PINNED_HEADING: &str = "\n\n### Pinned";
/// Windows that what is summarized at once fills at most: older turns are left out of the summary.
const MAX_COMPACTED_WINDOWS: u64 = 4;
/// Most tokens of a past that are read for it, however large a viber says that its window is.
const MAX_READ_TOKENS: u64 = 4_000_000;

/// Shares of what a conversation may take that are offered as the one from which on it is compacted by itself, percent.
pub const OFFERED_PERCENTS: [u64; 5] = [30, 40, 50, 60, 70];

crate::words! {
    /// What a session takes along of the one that it goes on from, beside the summary.
    Carried {
        /// The newest plan.
        Plan = "plan",
        /// References to the artifacts.
        Artifacts = "artifacts",
    }
}

/// What is done with a conversation, decided when it was asked for: the payload of a task that is no work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Compaction {
    /// Seq of the last question whose turn belongs to it.
    pub up_to: u64,
    /// The summary before, which is merged: the task that made it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub base: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub instructions: Option<String>,
    /// How many of the newest turns were to stand, if somebody said so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub keep: Option<usize>,
    /// Notes are taken of the turns after this seq; `None`: no notes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub notes_after: Option<u64>,
    /// The summary takes the place of its turns by itself, without anybody who reads it before.
    pub applies: bool,
    /// Nobody asked for it.
    pub automatic: bool,
    /// Of a summary that another session begins with: what that takes along.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub carries: Vec<Carried>,
    /// Of a summary that another session begins with: the task whose question is asked there again.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub resubmits: Option<TaskId>,
    /// Estimated tokens of what the summary takes the place of, and most of the summary.
    pub replaced: u64,
    pub longest: u64,
    /// Most tokens of a summary that a request carries whole; `None`: about a quarter more than `longest`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub carried: Option<u64>,
    /// What is pinned, for the end of a summary that another session begins with.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pinned: Option<String>,
    /// Tokens of the next request without it.
    pub before: u64,
    /// What that request consists of beside the summary.
    #[serde(flatten)]
    pub rest: RestOfRequest,
}

/// What a request with a summary consists of beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestOfRequest {
    /// Tokens beside the conversation.
    #[serde(alias = "rest")]
    pub fixed: u64,
    /// Estimated tokens of the turns that stand, and how many tokens the provider counts for 100 of them.
    #[serde(default)]
    pub standing: u64,
    #[serde(default = "as_estimated")]
    pub estimate_percent: u64,
    /// What those turns take where a summary needs the room; `None`: not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tighter: Option<TighterTurns>,
}

/// How much less the turns that stand behind a summary can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TighterTurns {
    /// Most tokens of the conversation, estimated.
    pub room: u64,
    /// All of these turns in each way that a plan tries, the one that says most first.
    pub ways: [u64; WAYS],
}

fn as_estimated() -> u64 {
    100
}

impl RestOfRequest {
    /// Of a request that carries nothing of the conversation but a summary.
    pub fn bare(settings: &PlanSettings) -> Self {
        let estimate_percent = settings.estimate_percent;
        Self { fixed: settings.budget.fixed, standing: 0, estimate_percent, tighter: None }
    }

    /// Of the next request when a summary takes the place of everything up to a message.
    fn behind(past: &Past, up_to: u64, settings: &PlanSettings) -> Self {
        let past = past.compacted(up_to);
        let marks = words_cost(&marked_summary(""));
        let ways = ways(&past, settings).map(|tokens| tokens.saturating_sub(marks));
        Self {
            standing: plan(&past, settings).estimated.saturating_sub(marks),
            tighter: Some(TighterTurns { room: settings.estimated_room(), ways }),
            ..Self::bare(settings)
        }
    }

    /// Tokens of the request with a summary that is estimated at so many, its marks included.
    fn with(self, summary: u64) -> u64 {
        let all = self.standing.saturating_add(summary);
        let taken = match self.tighter {
            Some(TighterTurns { room, ways }) if all > room => {
                ways.into_iter().map(|tokens| tokens.saturating_add(summary)).find(|all| *all <= room).unwrap_or(room)
            }
            _ => all,
        };
        self.fixed.saturating_add(scaled(taken, self.estimate_percent, 100))
    }

    /// Estimated tokens of the turns that stand when none of them is left out and their results are as short as they can be.
    fn least(self) -> u64 {
        self.tighter.map_or(self.standing, |tighter| tighter.ways[WAYS - 1])
    }
}

impl Compaction {
    /// One of which only a machine's log tells: what it stood for is not known, and nothing can take its place.
    pub fn unknown() -> Self {
        Self {
            up_to: 0,
            base: None,
            instructions: None,
            keep: None,
            notes_after: None,
            applies: true,
            automatic: false,
            carries: Vec::new(),
            resubmits: None,
            replaced: 0,
            longest: 0,
            carried: None,
            pinned: None,
            before: 0,
            rest: RestOfRequest { fixed: 0, standing: 0, estimate_percent: as_estimated(), tighter: None },
        }
    }

    /// Tokens of the next request with this summary.
    pub fn after(&self, summary: &str) -> u64 {
        self.rest.with(words_cost(&marked_summary(summary)))
    }

    /// Whether a summary is shorter than what it takes the place of.
    pub fn is_shorter(&self, summary: &str) -> bool {
        tokens::estimate(summary) < self.replaced
    }

    /// Whether a summary can take that place: it says something, is shorter, and is carried whole.
    pub fn is_sound(&self, summary: &str) -> bool {
        !summary.trim().is_empty()
            && summary.len() <= MAX_SUMMARY_BYTES
            && self.is_shorter(summary)
            && tokens::estimate(summary) <= self.most()
    }

    /// Most tokens of a summary that a request carries whole.
    pub fn most(&self) -> u64 {
        self.carried.unwrap_or(self.longest.saturating_add(self.longest / 4))
    }

    /// What its viber is asked for.
    pub fn request(&self, summary: bool) -> CompactRequest {
        CompactRequest {
            summary,
            notes: self.notes_after.is_some(),
            instructions: self.instructions.clone(),
            replaced_tokens: self.replaced,
            max_tokens: self.longest,
        }
    }
}

/// Which turns a summary would take the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactedRange {
    /// Seq of the newest question among them.
    pub up_to: u64,
    pub replaced: u64,
    pub longest: u64,
    pub before: u64,
    pub rest: RestOfRequest,
}

impl CompactedRange {
    /// Fewer tokens of the next request, at least: however long its summary is.
    pub fn frees(&self) -> u64 {
        self.before.saturating_sub(self.rest.with(self.summary()))
    }

    /// The same while the turns that stand keep all their results: that these become shorter is not what a summary is for.
    fn frees_by_itself(&self) -> u64 {
        self.before.saturating_sub(RestOfRequest { tighter: None, ..self.rest }.with(self.summary()))
    }

    /// The same with the figures of a request that is planned in another way than the one that it was decided for.
    #[must_use]
    pub fn shown(self, past: &Past, settings: &PlanSettings) -> Self {
        Self {
            before: settings.budget.fixed + plan(past, settings).total,
            rest: RestOfRequest::behind(past, self.up_to, settings),
            ..self
        }
    }

    /// Estimated tokens of the longest summary with its marks.
    fn summary(&self) -> u64 {
        words_cost(&marked_summary("")) + self.longest
    }

    /// With a summary short enough for the turns that stand to be carried whole beside it; `None`: there is no room for one.
    fn fitted(self, settings: &PlanSettings) -> Option<Self> {
        let beside = self.rest.least() + words_cost(&marked_summary("")) + notices_cost();
        let longest = self.longest.min(settings.estimated_room().saturating_sub(beside));
        (longest >= MIN_SUMMARY_TOKENS.min(self.longest)).then_some(Self { longest, ..self })
    }

    /// Estimated tokens of the past with it when nothing is left out.
    fn least(&self) -> u64 {
        self.rest.least() + self.summary()
    }
}

/// How many of the newest turns stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandingTurns {
    /// So many, whatever that frees.
    Exactly(usize),
    /// Six, or fewer where six free too little; two when nothing frees enough. Where turns would be left out with two, one or
    /// none: what a request does not carry is in the summary.
    Enough,
    /// The same, but nothing is compacted when that does not free enough and nothing is left out.
    NoneLost,
    /// At least two, and nothing is compacted when that does not free enough.
    OnlyEnough,
}

/// The range that a compaction of this past has; `None`: there is nothing to compact.
///
/// A plan that leaves turns out stays below its room by that, and gives the others their results back when a summary takes the
/// place of some: what counts then is what would have to be carried to lose nothing.
pub fn range(past: &Past, settings: &PlanSettings, standing: StandingTurns) -> Option<CompactedRange> {
    let turns = past.turns();
    let next = plan(past, settings);
    let of = |kept: usize| {
        let up_to = turns.get(kept)?.question.seq;
        let replaced = told(past, kept).tokens;
        let longest = longest(replaced, settings);
        let is_worth_it = replaced >= MIN_REPLACED_TOKENS && longest > 0;
        is_worth_it.then(|| CompactedRange {
            up_to,
            replaced,
            longest,
            before: settings.budget.fixed + next.total,
            rest: RestOfRequest::behind(past, up_to, settings),
        })
    };
    if let StandingTurns::Exactly(kept) = standing {
        return of(kept);
    }
    let enough = u128::from(settings.budget.available()) * u128::from(MIN_FREED_PERCENT) / 100;
    let is_enough = |tokens: u64| u128::from(tokens) >= enough;
    // Behind a summary that leaves them no room, turns would be neither in it nor in the request.
    let of = |kept: usize| of(kept)?.fitted(settings);
    let mut fitted = Vec::new();
    for range in (MIN_STANDING_TURNS..=DEFAULT_STANDING_TURNS).rev().filter_map(of) {
        if is_enough(range.frees_by_itself()) {
            return Some(range);
        }
        fitted.push(range);
    }
    let found = match next.why {
        PlanReason::LeftOut { .. } => {
            let least = ways(past, settings)[WAYS - 1];
            let frees = |range: &&CompactedRange| is_enough(settings.counted(least.saturating_sub(range.least())));
            // The fewest leave room for the next turns.
            let found = fitted.iter().find(frees).or(fitted.last()).copied();
            let fewer = || (0..MIN_STANDING_TURNS).rev().find_map(of);
            if standing == StandingTurns::OnlyEnough { found } else { found.or_else(fewer) }
        }
        _ => None,
    };
    found.or(fitted.last().copied().filter(|_| standing == StandingTurns::Enough))
}

/// The range of a compaction that somebody asks for: beside its summary there is room for a question as long as the newest one.
pub fn on_request(past: &Past, settings: &PlanSettings) -> Option<CompactedRange> {
    let asked = settings.asked.max(past.newest_question());
    let roomy = PlanSettings { asked, ..settings.clone() };
    let of = |settings: &PlanSettings| range(past, settings, StandingTurns::Enough);
    Some(of(&roomy).or_else(|| of(settings))?.shown(past, settings))
}

/// Most tokens of a summary of so many.
fn longest(replaced: u64, settings: &PlanSettings) -> u64 {
    (replaced / 2).clamp(MIN_SUMMARY_TOKENS, MAX_SUMMARY_TOKENS).min(settings.summary_room())
}

/// A compaction of everything up to a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionTo {
    /// Seq of its question.
    pub up_to: u64,
    /// Newer turns, which stand.
    pub keep: u64,
    /// Fewer tokens of the next request, about.
    pub frees: u64,
}

/// What compacting up to each turn but the newest would free of what is planned, oldest first: from the plan's own numbers,
/// in one pass, however long the summary becomes. Turns with pins count as if all of them stayed.
pub fn to_each_turn(past: &Past, settings: &PlanSettings, next: &ContextPlan) -> Vec<CompactionTo> {
    let tokens = |messages: &[PlannedMessage]| messages.iter().map(|message| message.tokens).sum::<u64>();
    let turns = past.turns();
    // The summary before goes, too.
    let mut freed = next.total.saturating_sub(tokens(&next.messages));
    let mut before = TurnsWriter::default();
    begin(past, &mut before);
    let (mut replaced, marks) = (before.tokens, words_cost(&marked_summary("")));
    let mut found = Vec::new();
    for (keep, (up_to, told)) in (0..turns.len()).rev().zip(formed(past, 0)) {
        replaced += told.tokens;
        if !turns[keep].has_pin() {
            freed += next.messages.chunks(2).nth(keep).map_or(0, tokens);
        }
        let longest = longest(replaced, settings);
        let frees = freed.saturating_sub(settings.counted(marks + longest));
        if keep > 0 && replaced >= MIN_REPLACED_TOKENS && longest > 0 && frees > 0 {
            found.push(CompactionTo { up_to, keep: keep as u64, frees });
        }
    }
    found
}

/// Most tokens of a past that are read for a summary that an agent with this window writes.
pub fn readable(window: u64) -> u64 {
    window.saturating_mul(MAX_COMPACTED_WINDOWS).min(MAX_READ_TOKENS)
}

/// What is pinned of a past in so many tokens, for the end of a summary that another session begins with: of more than that
/// the newest. `None`: nothing is.
pub fn pinned(past: &Past, most: u64) -> Option<String> {
    let mut left = most.saturating_sub(tokens::estimate(PINNED_HEADING));
    let mut items = Vec::new();
    for turn in past.turns().iter().chain(past.older()).filter(|turn| turn.has_pin()) {
        for piece in turn.pieces().collect::<Vec<_>>().into_iter().rev() {
            let text = match &piece.body {
                PieceBody::Call(call) if call.is_pinned => {
                    format!("`{}` {}: {}", call.tool, prune::short_arguments(&call.args), call.result)
                }
                PieceBody::Words(TurnPart::Text { text }) if turn.message(piece.of).is_pinned => text.clone(),
                _ => continue,
            };
            let item = tokens::head_and_tail(text.trim(), MAX_RESULT_TOKENS).replace('\n', "\n  ");
            let item = format!("\n- {item}");
            let cost = tokens::estimate(&item);
            if cost > left {
                left = 0;
                continue;
            }
            left -= cost;
            items.push(item);
        }
    }
    // What was pinned in the session before that, as long as it stands in the summary.
    let earlier = past.summary().and_then(|summary| summary.text.split_once(PINNED_HEADING)).map(|(_, items)| items);
    items.extend(earlier.filter(|items| tokens::estimate(items) <= left).map(str::to_owned));
    items.reverse();
    (!items.is_empty()).then(|| format!("{PINNED_HEADING}{}", items.concat()))
}

/// Tokens of everything that a summary of the whole past is made of.
pub fn tokens_of_all(past: &Past) -> u64 {
    told(past, 0).tokens
}

/// What whoever writes a summary is told of the past, oldest first: the summary before, all that was said, and lines for most
/// results. Of the turns up to `noted` notes were taken already.
pub fn conversation(past: &Past, noted: Option<u64>) -> Vec<Turn> {
    let mut writer = told(past, 0);
    let turns = past.turns();
    let is_partly_noted = |noted: &u64| turns.iter().any(|turn| turn.question.seq <= *noted);
    if let Some(noted) = noted.filter(is_partly_noted) {
        writer = TurnsWriter::default();
        begin(past, &mut writer);
        let (older, newer): (Vec<_>, Vec<_>) = formed(past, 0).into_iter().partition(|(seq, _)| *seq <= noted);
        put(&mut writer, older);
        let text = "Notes were taken of everything before this line: take none of it again.".to_owned();
        writer.put(TurnRole::User, [TurnPart::Notice { text }]);
        put(&mut writer, newer);
    }
    writer.turns
}

/// The summary before, and the turns older than the newest `kept` ones.
fn told(past: &Past, kept: usize) -> TurnsWriter {
    let mut writer = TurnsWriter::default();
    begin(past, &mut writer);
    put(&mut writer, formed(past, kept));
    writer
}

fn begin(past: &Past, writer: &mut TurnsWriter) {
    if let Some(summary) = past.summary() {
        // Marked as in a request: else it would run into the question after it.
        writer.put(TurnRole::User, [TurnPart::Text { text: marked_summary(&summary.text) }]);
    }
    if !past.is_whole() {
        writer.put(TurnRole::User, [left_out()]);
    }
}

/// The turns older than the newest `kept` ones with the seqs of their questions, oldest first.
fn formed(past: &Past, kept: usize) -> Vec<(u64, FormedExchange)> {
    let caps = ResultCaps::default().at_most(MAX_RESULT_TOKENS);
    let turns = past.turns().get(kept..).unwrap_or_default();
    let shares = shares(turns, 0);
    let whole = turns.iter().zip(&shares).map(|(turn, shares)| {
        (turn.question.seq, FormedExchange::whole(turn, shares, Caps { pinned: &caps, others: &caps }))
    });
    let mut formed: Vec<_> = whole.collect();
    formed.reverse();
    formed
}

fn put(writer: &mut TurnsWriter, formed: Vec<(u64, FormedExchange)>) {
    for (role, parts) in formed.into_iter().flat_map(|(_, formed)| formed.turns) {
        writer.put(role, parts.into_iter().map(|part| part.part));
    }
}

#[cfg(test)]
mod tests;
