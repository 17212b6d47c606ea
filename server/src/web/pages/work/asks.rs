//! What the agent waits with for a person, at the end of the conversation: a card for each question, a region of the live
//! stream. Whoever decides has read the whole text first: the buttons stand behind it.

pub(in crate::web::pages) mod decide;
mod revealed;
mod text;

use askama::Template;
use protocol::{AgentQuestion, ApprovalId, ApprovalKind, Instant, ReachedLimit};
use serde_json::Value;

use crate::{
    domain::{Approval, Role},
    web::pages::conversation::Conversation,
    web::{
        extract::Caller,
        urls,
        view::{
            call::{ToolKind, tool_words},
            filters,
            timeline::amount,
        },
    },
};

pub use revealed::{hides_something, leaves_out, revealed};

pub use text::AskedText;

/// Arguments that a person can change on the page, bytes of JSON.
const MAX_CHANGEABLE_BYTES: usize = 64 * 1024;

/// HTML of a question's text, bytes: nobody reads more, and every viewer is sent it.
const MAX_CARD_HTML_BYTES: usize = 150_000;
/// Stands where a viber left something out: see `protocol::text::head_and_tail`.
const OMISSION_MARK: &str = " bytes omitted …]";

/// The cards.
#[derive(Clone, Debug, Template)]
#[template(path = "work/asks/_asks.html")]
pub struct Asks {
    now: Instant,
    agent: String,
    cards: Vec<AskCard>,
    /// Decides all calls that wait; `None` when there is one, one is not shown whole, or the reader may not.
    all: Option<String>,
    /// What became of a decision that came too late.
    notice: Option<String>,
}

/// One question.
#[derive(Clone, Debug)]
pub struct AskCard {
    id: ApprovalId,
    kind: ApprovalKind,
    digest: String,
    /// Where the decision goes; `None` for viewers.
    action: Option<String>,
    since: Instant,
    expires_at: Option<Instant>,
    /// The number of this call among those that wait, and theirs.
    place: Option<(usize, usize)>,
    tool: String,
    tool_kind: ToolKind,
    /// HTML, as everything that a viber says here: what does not show is shown.
    cwd: String,
    risk: String,
    reason: String,
    text: AskedText,
    /// The call's other arguments as JSON.
    args: Option<AskedText>,
    files: Vec<String>,
    is_odd: bool,
    /// Not all of it is shown: nobody allows it from here.
    is_cut: bool,
    /// Its arguments, for a person to change.
    changeable: Option<String>,
    /// A rule that would allow it, where the reader may write one.
    rule: Option<String>,
    question: Option<AgentQuestion>,
    limit: Option<ReachedLimit>,
    /// Where a plan is read and decided.
    review: Option<String>,
    /// What somebody sent and why it was refused.
    refused: Option<RefusedDecision>,
}

/// A decision that was not taken, with what was typed.
#[derive(Clone, Debug, Default)]
pub struct RefusedDecision {
    pub why: String,
    pub note: String,
    pub rule: Option<String>,
    pub scope: Option<protocol::DecisionScope>,
    pub args: Option<String>,
    pub reply: String,
    pub amount: String,
    /// An owner may decide all the same, and says why.
    pub asks_reason: bool,
}

impl Asks {
    /// From the conversation as it is.
    pub fn of(conversation: &Conversation, caller: &Caller, now: Instant) -> Self {
        let calls = conversation.asked.iter().filter(|asked| asked.kind == ApprovalKind::Tool).count();
        let mut n = 0;
        let cards = conversation.asked.iter().map(|asked| {
            let is_call = asked.kind == ApprovalKind::Tool;
            n += usize::from(is_call);
            AskCard::of(asked, (is_call && calls > 1).then_some((n, calls)), caller, now)
        });
        let cards: Vec<AskCard> = cards.collect();
        // Whoever decides all has seen all of each.
        let is_open = |card: &AskCard| card.kind != ApprovalKind::Tool || card.action.is_some() && !card.is_cut;
        let all = (calls > 1 && cards.iter().all(is_open))
            .then(|| urls::session_verb(&caller.team.slug, &conversation.session.id, "approvals"));
        Self { now, agent: conversation.agent_name(), cards, all, notice: None }
    }

    /// The same without ages, to compare two of them.
    pub fn ageless(&self) -> String {
        Self { now: Instant(0), ..self.clone() }.to_string()
    }

    /// The same with a decision that was refused, in its card.
    #[must_use]
    fn with_refusal(mut self, id: &ApprovalId, refused: RefusedDecision) -> Self {
        match self.cards.iter_mut().find(|card| card.id == *id) {
            Some(card) => card.refused = Some(refused),
            None => self.notice = Some(refused.why),
        }
        self
    }

    fn calls(&self) -> impl Iterator<Item = &AskCard> {
        self.cards.iter().filter(|card| card.kind == ApprovalKind::Tool)
    }
}

/// The first paragraph of a text and the others.
fn paragraphs(text: &str) -> Option<(&str, &str)> {
    text.split_once("\n\n").filter(|(first, rest)| !first.trim().is_empty() && !rest.trim().is_empty())
}

impl AskCard {
    fn of(asked: &Approval, place: Option<(usize, usize)>, caller: &Caller, now: Instant) -> Self {
        let tool_kind = ToolKind::of(&asked.tool);
        let is_call = asked.kind == ApprovalKind::Tool;
        let text = AskedText::of(&asked.preview);
        let args = others(asked, tool_kind, &text).map(|json| AskedText::of(&json));
        let is_cut = match asked.kind {
            ApprovalKind::Plan => !is_whole(asked),
            _ => is_call && is_cut(asked, text.weight() + args.as_ref().map_or(0, AskedText::weight)),
        };
        let changeable = match &asked.args {
            Value::Object(args) if is_call && !is_cut && asked.args.to_string().len() <= MAX_CHANGEABLE_BYTES => {
                match args.get("command").and_then(Value::as_str) {
                    Some(command) if tool_kind == ToolKind::Command => Some(command.to_owned()),
                    _ => serde_json::to_string_pretty(&asked.args).ok(),
                }
            }
            _ => None,
        };
        let files: Vec<String> = asked.files.iter().map(|file| revealed(&file.path)).collect();
        let args_text = asked.args.to_string();
        let said = [&asked.preview, &asked.cwd, &args_text, &asked.reason].into_iter();
        let is_odd = said.chain(asked.files.iter().map(|file| &file.path)).any(|text| hides_something(text));
        // Its time is over, though its viber has not said so yet.
        let is_over = asked.expires_at.is_some_and(|end| end <= now);
        let slug = &caller.team.slug;
        Self {
            id: asked.id.clone(),
            kind: asked.kind,
            digest: asked.digest.clone(),
            action: (caller.role >= Role::Operator && !is_over).then(|| urls::approval(slug, &asked.id)),
            since: asked.created_at,
            expires_at: asked.expires_at,
            place,
            tool: asked.tool.clone(),
            tool_kind,
            cwd: revealed(&asked.cwd),
            risk: revealed(&asked.risk),
            reason: revealed(&asked.reason),
            is_odd,
            is_cut,
            text: text.within(MAX_CARD_HTML_BYTES),
            args: args.filter(|args| !is_cut || args.weight() <= MAX_CARD_HTML_BYTES),
            files,
            changeable,
            rule: asked.rule.clone().filter(|_| is_call && caller.role >= Role::Admin),
            question: asked.question.clone(),
            limit: asked.limit.clone(),
            review: (asked.kind == ApprovalKind::Plan).then(|| urls::pane(slug, &asked.session_id, "plan")),
            refused: None,
        }
    }

    /// What the agent wants, in words.
    fn wants(&self) -> String {
        match (self.kind, self.tool_kind) {
            (ApprovalKind::Plan, _) => "has a plan and asks whether to begin".to_owned(),
            (_, ToolKind::Command) => "wants to run a command".to_owned(),
            (_, ToolKind::Edit) => "wants to change a file".to_owned(),
            _ => format!("wants to use {}", tool_words(&self.tool)),
        }
    }

    /// Whether an MCP server asks, which is told when people decline.
    fn is_of_server(&self) -> bool {
        self.tool_kind == ToolKind::Server
    }

    /// The first paragraph of a question as HTML.
    fn heading(&self, text: &str) -> String {
        paragraphs(text).map_or_else(|| revealed(text), |(first, _)| revealed(first))
    }

    /// What a question says below its first paragraph, as HTML.
    fn details(&self, text: &str) -> String {
        paragraphs(text).map(|(_, rest)| revealed(rest)).unwrap_or_default()
    }

    fn kind_word(&self) -> &'static str {
        match self.kind {
            ApprovalKind::Question => "Question",
            ApprovalKind::Budget if self.is_leash() => "Check-in",
            ApprovalKind::Budget => "Budget",
            ApprovalKind::Plan | ApprovalKind::Tool | ApprovalKind::Step | ApprovalKind::Unknown => "Approval",
        }
    }

    fn kind_icon(&self) -> &'static str {
        match self.kind {
            ApprovalKind::Question => "question",
            ApprovalKind::Budget if self.is_leash() => "leash",
            ApprovalKind::Budget => "budget",
            ApprovalKind::Plan | ApprovalKind::Tool | ApprovalKind::Step | ApprovalKind::Unknown => "waiting",
        }
    }

    /// A text of the agent's as HTML.
    fn shown(&self, text: &str) -> String {
        revealed(text)
    }

    fn is_recommended(&self, option: &usize) -> bool {
        let recommended = self.question.as_ref().and_then(|question| question.recommended);
        recommended.is_some_and(|index| usize::try_from(index) == Ok(*option))
    }

    fn is_leash(&self) -> bool {
        self.limit.as_ref().is_some_and(|limit| limit.name == "leash")
    }

    /// The beginning of the digest, in groups.
    fn short_digest(&self) -> String {
        let start: Vec<char> = self.digest.chars().take(8).collect();
        start.chunks(4).map(|four| four.iter().collect::<String>()).collect::<Vec<_>>().join(" ")
    }

    /// What was typed before, or nothing.
    fn typed(&self) -> RefusedDecision {
        self.refused.clone().unwrap_or_default()
    }

    fn is_scope(&self, scope: &str) -> bool {
        self.typed().scope.unwrap_or_default().as_str() == scope
    }

    /// The limit in words: `$2.00`, `20 calls of tools`.
    fn limit_words(&self) -> String {
        self.limit.as_ref().map(|limit| amount(&limit.name, limit.allowed)).unwrap_or_default()
    }

    fn used_words(&self) -> String {
        self.limit.as_ref().map(|limit| amount(&limit.name, limit.used)).unwrap_or_default()
    }

    /// How much more is offered at first: as much again.
    fn offered(&self) -> String {
        let typed = self.typed().amount;
        let again = self.limit.as_ref().map_or(1.0, |limit| limit.allowed.max(0.0));
        match self.limit.as_ref().map(|limit| limit.name.as_str()) {
            _ if !typed.is_empty() => typed,
            Some("costUsd") => format!("{:.2}", again.max(0.01)),
            _ => format!("{:.0}", again.max(1.0)),
        }
    }

    /// What the number of a grant counts.
    fn unit(&self) -> &'static str {
        match self.limit.as_ref().map(|limit| limit.name.as_str()) {
            Some("costUsd") => "$ more",
            Some("tokens") => "tokens more",
            Some("steps") => "model calls more",
            Some("minutes") => "minutes more",
            _ => "calls of tools more",
        }
    }
}

/// The arguments that the text does not show already, as JSON. What a viber calls the text of a command is one only when it is
/// the command.
fn others(asked: &Approval, kind: ToolKind, text: &AskedText) -> Option<String> {
    let is_command = asked.args.get("command").and_then(Value::as_str) == Some(asked.preview.as_str());
    let is_shown = |key: &str| match kind {
        ToolKind::Command => key == "command" && is_command,
        ToolKind::Edit if matches!(text, AskedText::Changes { .. }) => {
            matches!(key, "content" | "old_string" | "new_string" | "edits") || key == "path" && !asked.files.is_empty()
        }
        _ => false,
    };
    let rest = asked.args.as_object()?.iter().filter(|(key, _)| !is_shown(key));
    let rest: serde_json::Map<String, Value> = rest.map(|(key, value)| (key.clone(), value.clone())).collect();
    if rest.is_empty() { None } else { serde_json::to_string_pretty(&rest).ok() }
}

/// Whether a plan is shown whole.
pub fn is_whole(asked: &Approval) -> bool {
    !asked.preview.contains(OMISSION_MARK)
}

/// Whether a part of what would run is not shown: left out by the viber or by the Board, or too much for a page.
fn is_cut(asked: &Approval, weight: usize) -> bool {
    let args = asked.args.to_string();
    asked.args.is_null()
        || weight > MAX_CARD_HTML_BYTES
        || [&asked.preview, &args].iter().any(|text| text.contains(OMISSION_MARK))
}
