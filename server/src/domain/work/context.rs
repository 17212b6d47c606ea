//! What a request carries of a session's past: planned, measured and explained. Pure; the same plan is sent, shown and
//! compared with others.
//!
//! A turn is what was asked with all that was answered. Everything is carried while it fits: results of the newest turns up to
//! their caps, those of older turns as a line, but for what proves that work was checked and what people pinned. When it does
//! not fit, fewer turns keep their results, then results are cut shorter, then the oldest turns are left out.

pub mod compaction;
mod form;
pub mod overview;
mod past;
mod pin_room;
pub mod pins;
mod plan;
pub mod report;
#[cfg(test)]
mod tests;

use protocol::{
    AgentInfo, Instant, MessageId, TaskId, Turn,
    context::{ContextBudget, ContextWindow, DEFAULT_THRESHOLD_PERCENT, WindowSource, reserve, summary_room},
    limits,
    prune::ResultCaps,
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::{MessageRole, OverflowRung, Part, SmallerAttempt, TaskState, memory::RequestContext};

pub use past::{Past, TakenBytes};
pub use pins::{Pin, Pins};
pub use plan::plan;

/// Turns that keep their results, unless it is said otherwise.
pub const DEFAULT_KEPT_TURNS: usize = 6;
/// Taken by the system prompt, tools and the like while no agent has reported it, tokens; a quarter of a small window.
const DEFAULT_FIXED_TOKENS: u64 = 6_000;
/// Least and most that a window is believed to have, tokens.
const MIN_WINDOW_TOKENS: u64 = 1_024;
const MAX_WINDOW_TOKENS: u64 = 16_000_000;
/// Most of a window that all but the conversation takes of a request that is made smaller, as its divisor.
const MAX_FIXED_SHARE: u64 = 3;
/// Shares of what a conversation may take that its past may take with each `OverflowRung`, percent: an estimate that was
/// too low once may be so again.
const SMALLER_PERCENT: [u64; 3] = [50, 40, 30];
/// Most tokens of a result that stays when others become a line.
const SMALLER_RESULT_TOKENS: u64 = 500;
/// Largest share of the room for the past that a summary takes, as its divisor.
const MAX_SUMMARY_SHARE: u64 = 4;
/// Share of that room which the past has beside however long a question, as its divisor, as far as the window holds both: a
/// summary and pins come before the newest turns.
const MIN_PAST_SHARE: u64 = 3;

/// One message of a session's past.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastMessage {
    /// `None`: there is no such message.
    pub id: Option<MessageId>,
    /// Messages of earlier attempts that are one answer with it.
    pub earlier: Vec<MessageId>,
    pub seq: u64,
    pub parts: Vec<Part>,
}

/// One earlier task: what was asked, and what its newest attempt answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    pub question: PastMessage,
    pub answer: PastMessage,
    pub state: TaskState,
}

/// A text that stands for the beginning of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub text: String,
    /// Seq of the last message that it stands for.
    pub up_to: u64,
}

/// A summary that was put in the place of its turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedSummary {
    /// The task that made it.
    pub task: TaskId,
    pub summary: Summary,
    /// Tokens of the next request without it, and with it.
    pub tokens_before: u64,
    pub tokens_after: u64,
    pub by: String,
    pub at: Instant,
    /// The turns are carried again since then.
    pub undone_at: Option<Instant>,
}

/// How much of a request a session's past may take.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanSettings {
    pub budget: ContextBudget,
    /// Share of what a conversation may take that its past may take, percent: the rest is for the work itself.
    pub threshold_percent: u64,
    pub caps: ResultCaps,
    /// Newest turns that keep their results.
    pub kept_turns: usize,
    /// Tokens of what is asked now, estimated.
    pub asked: u64,
    /// How many tokens the model's provider counts for 100 that are estimated.
    pub estimate_percent: u64,
}

impl PlanSettings {
    /// For a model, with what a session's newest request took beside the conversation, and how far estimates were off there if
    /// it was that model's; where nobody has reported that, with about as much as it takes.
    pub fn of(model: &ModelLimits, reported: Option<&RequestContext>) -> Self {
        let report = reported.map(RequestContext::report).unwrap_or_default();
        let fixed = report.fixed().unwrap_or_else(|| DEFAULT_FIXED_TOKENS.min(model.window.tokens / 4));
        let percent = model.name.as_deref().and_then(|name| report.percent_of(name));
        Self {
            budget: ContextBudget { window: model.window.tokens, reserve: model.reserve, fixed },
            threshold_percent: DEFAULT_THRESHOLD_PERCENT,
            caps: model.caps.clone(),
            kept_turns: DEFAULT_KEPT_TURNS,
            asked: 0,
            estimate_percent: percent.unwrap_or(100),
        }
    }

    /// For an attempt whose request has to be smaller than the one before. `no_files`: tokens of what is left out with the
    /// files.
    #[must_use]
    pub fn smaller(mut self, how: &SmallerAttempt, no_files: u64) -> Self {
        let told = how.window.map_or(u64::MAX, |window| window.max(MIN_WINDOW_TOKENS));
        self.budget.window = self.budget.window.min(told);
        self.budget.reserve = self.budget.reserve.min(self.budget.window / 4);
        // Were it more, nothing would help.
        self.budget.fixed = self.budget.fixed.min(self.budget.window / MAX_FIXED_SHARE);
        self.threshold_percent = SMALLER_PERCENT[how.rung as usize];
        if how.rung >= OverflowRung::ResultLines {
            (self.kept_turns, self.caps) = (0, self.caps.at_most(SMALLER_RESULT_TOKENS));
        }
        if how.rung >= OverflowRung::NoFiles {
            self.budget.fixed = self.budget.fixed.saturating_sub(no_files);
        }
        self
    }

    /// Most tokens of the past, as the provider counts them.
    pub fn room(&self) -> u64 {
        let (usual, asked) = (self.usual_room(), self.counted(self.asked));
        let beside = self.budget.available().saturating_sub(asked);
        usual.saturating_sub(asked).max(beside.min(usual / MIN_PAST_SHARE))
    }

    /// The same beside a question of no length.
    fn usual_room(&self) -> u64 {
        self.budget.threshold(self.threshold_percent).saturating_sub(self.budget.fixed)
    }

    /// The same as they are estimated.
    pub fn estimated_room(&self) -> u64 {
        scaled(self.room(), 100, self.estimate_percent)
    }

    /// Most tokens of a summary that is carried whole, estimated.
    pub fn summary_room(&self) -> u64 {
        summary_room(self.summary_share())
    }

    /// The same with its marks. A long question leaves a summary its share as long as there is room for it at all.
    fn summary_share(&self) -> u64 {
        let usual = scaled(self.usual_room(), 100, self.estimate_percent);
        (usual / MAX_SUMMARY_SHARE).min(self.estimated_room())
    }

    /// What the provider is likely to count of tokens that are estimated.
    pub fn counted(&self, estimated: u64) -> u64 {
        scaled(estimated, self.estimate_percent, 100)
    }
}

fn scaled(tokens: u64, by: u64, of: u64) -> u64 {
    u64::try_from(u128::from(tokens) * u128::from(by) / u128::from(of.max(1))).unwrap_or(u64::MAX)
}

/// What is known of the model that a session works with.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelLimits {
    /// `provider/model`.
    pub name: Option<String>,
    pub window: ContextWindow,
    /// Tokens that are kept for the answer.
    pub reserve: u64,
    pub caps: ResultCaps,
}

impl ModelLimits {
    /// Of an agent's own model; `None`: of a model that nothing is known of.
    pub fn of(agent: Option<&AgentInfo>) -> Self {
        let known = agent.and_then(|agent| agent.context_window).filter(|tokens| *tokens > 0);
        let told = agent.and_then(|agent| agent.context_window_source).unwrap_or(WindowSource::Configured);
        let source = if known.is_some() { told } else { WindowSource::Assumed };
        // Whatever a viber says: so much of a session's past may be read.
        let tokens = known.unwrap_or(limits::DEFAULT_CONTEXT_WINDOW_TOKENS).min(MAX_WINDOW_TOKENS);
        let window = ContextWindow { tokens, source, at: None };
        Self::with(agent, agent.map(|agent| agent.model.clone()), window)
    }

    /// Of the model that an agent uses when `model` is asked for; its own when none is. The window of another one is what an
    /// agent with that model says, else what the session's newest request told of it.
    pub fn asked(agents: &[AgentInfo], agent: &str, model: Option<&str>, reported: Option<&RequestContext>) -> Self {
        let agent = agents.iter().find(|known| known.id == agent);
        let Some(asked) = model.filter(|asked| agent.is_none_or(|agent| agent.model != *asked)) else {
            return Self::of(agent);
        };
        let has_window = |other: &&AgentInfo| other.context_window.is_some_and(|tokens| tokens > 0);
        let other = agents.iter().filter(|other| other.model == asked).find(has_window);
        let told = || reported.and_then(|reported| reported.report().window_of(asked));
        let window = other.map(|other| Self::of(Some(other)).window).or_else(told);
        Self::with(agent, Some(asked.to_owned()), window.unwrap_or_else(|| Self::of(None).window))
    }

    fn with(agent: Option<&AgentInfo>, name: Option<String>, window: ContextWindow) -> Self {
        let caps = agent.and_then(|agent| agent.results.clone()).unwrap_or_default().at_most(window.tokens);
        let reserve = reserve(window.tokens, agent.and_then(|agent| agent.max_tokens));
        Self { name, reserve, window, caps }
    }
}

/// A session's past, and how its next request carries it.
#[derive(Clone, Debug)]
pub struct SessionPast {
    pub model: ModelLimits,
    /// What an agent reported last.
    pub reported: Option<RequestContext>,
    pub settings: PlanSettings,
    pub past: Past,
    /// The summary that stands for its beginning.
    pub standing: Option<AppliedSummary>,
    /// From which share of its room on it is compacted by itself, percent; 0: never.
    pub percent: u64,
}

impl SessionPast {
    /// Whether a question of so many estimated tokens fits no request, whatever comes before it and whichever files are left
    /// out. `told`: the window that a refusal named.
    pub fn is_too_long(&self, question: u64, told: Option<u64>) -> bool {
        let mut model = self.model.clone();
        let told = told.map_or(u64::MAX, |window| window.max(MIN_WINDOW_TOKENS));
        model.window.tokens = model.window.tokens.min(told);
        let settings = PlanSettings::of(&model, self.reported.as_ref());
        let files = self.reported.as_ref().map_or(0, |reported| reported.report().left_out_files());
        let fixed = settings.budget.fixed.saturating_sub(files);
        fixed.saturating_add(settings.counted(question)) >= settings.budget.window
    }
}

/// What the next request carries.
#[derive(Clone, Debug, PartialEq)]
pub struct ContextPlan {
    /// Oldest first; roles alternate.
    pub turns: Vec<Turn>,
    /// Newest first.
    pub messages: Vec<PlannedMessage>,
    /// Tokens of `turns` as the provider is likely to count them, and the most that they may take.
    pub total: u64,
    pub room: u64,
    /// Tokens of `turns` as they are estimated.
    pub estimated: u64,
    pub why: PlanReason,
    /// Turns that are older than all that was looked at are left out, too.
    pub leaves_unread: bool,
}

/// What a request carries of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedMessage {
    /// `None`: the newest attempt has not answered.
    pub id: Option<MessageId>,
    pub seq: u64,
    pub role: MessageRole,
    /// What it takes of the request, and how much of that is calls with their results.
    pub tokens: u64,
    pub results: u64,
    pub share: MessageShare,
    /// The message or one of its calls.
    pub pinned: bool,
    /// The message itself.
    pub pinned_whole: bool,
    /// Not all of what is pinned of it is carried.
    pub pin_cut: bool,
    /// Its turn is read for its pins alone: others may be missing between it and the newer ones.
    pub is_apart: bool,
}

crate::words! {
    /// How much of a message a request carries.
    MessageShare {
        Verbatim = "verbatim",
        /// Results are cut, or a line is left of them.
        Pruned = "pruned",
        LeftOut = "left_out",
    }
}

/// How far a plan had to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum PlanReason {
    /// Everything fits.
    Fits {
        #[serde(rename = "keptTurns")]
        kept_turns: usize,
    },
    /// Fewer turns keep their results.
    FewerTurns {
        #[serde(rename = "keptTurns")]
        kept_turns: usize,
    },
    /// No result is longer than this, unless it is pinned.
    SmallerResults {
        #[serde(rename = "resultTokens")]
        result_tokens: u64,
    },
    /// The oldest turns are left out.
    LeftOut {
        #[serde(rename = "resultTokens")]
        result_tokens: u64,
    },
}
