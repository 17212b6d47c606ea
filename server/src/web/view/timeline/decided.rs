//! What people decided about what an agent asked them, as lines of a conversation.

use std::collections::HashMap;

use protocol::{ApprovalKind, DecisionScope, TaskLimits, text::head};

use super::escaped;
use crate::domain::{ApprovalOutline, ApprovalState};

/// Longest text of a person or an agent in a line, bytes.
const MAX_SAID_BYTES: usize = 2 * 1024;
/// Questions about one call that are shown.
const MAX_LINES_PER_CALL: usize = 4;
/// HTML around a line, bytes at most.
const LINE_FRAME_BYTES: usize = 400;

/// A question and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionLine {
    /// An icon of the sprite.
    pub icon: &'static str,
    /// `Denied by Ada`.
    pub words: String,
    /// What was said with it, and what was asked where something else was allowed.
    pub said: Vec<String>,
    /// Nobody has decided it yet.
    pub waits: bool,
}

/// What became of the questions of one attempt: by the calls that they are about, and by their own ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions(HashMap<String, Vec<DecisionLine>>);

impl Decisions {
    /// Adds the next one; `by` is whoever decided it.
    pub fn add(&mut self, asked: &ApprovalOutline, by: &str) {
        let key = match (&asked.call_id, asked.kind) {
            (Some(call), ApprovalKind::Tool | ApprovalKind::Question | ApprovalKind::Step | ApprovalKind::Unknown) => {
                call.clone()
            }
            _ => asked.id.to_string(),
        };
        self.0.entry(key).or_default().push(DecisionLine::of(asked, by));
    }

    /// The newest ones about a call, or under an id.
    pub fn of(&self, key: &str) -> Vec<DecisionLine> {
        let lines = self.0.get(key).map(Vec::as_slice).unwrap_or_default();
        lines[lines.len().saturating_sub(MAX_LINES_PER_CALL)..].to_vec()
    }
}

impl DecisionLine {
    fn of(asked: &ApprovalOutline, by: &str) -> Self {
        let icon = match asked.state {
            ApprovalState::Pending => "waiting",
            ApprovalState::Allowed | ApprovalState::Answered => "check",
            ApprovalState::Denied => "close",
            ApprovalState::Expired => "stopped",
        };
        let mut words = match asked.kind {
            ApprovalKind::Budget => about_limit(asked, by),
            ApprovalKind::Plan => about_plan(asked.state, by),
            ApprovalKind::Question => about_question(asked, by),
            ApprovalKind::Tool | ApprovalKind::Step | ApprovalKind::Unknown => about_call(asked, by),
        };
        if asked.broke_glass {
            words.push_str(", beyond the team's settings");
        }
        let (rule, expiry) = (
            asked.rule.as_deref().filter(|_| asked.scope == Some(DecisionScope::Rule)),
            asked.expiry.as_deref().filter(|_| asked.state == ApprovalState::Expired),
        );
        let instead = asked.preview.lines().next().filter(|_| asked.is_changed);
        let said = [
            instead.map(|line| format!("Asked for: {line}")),
            rule.map(|rule| format!("Rule: {rule}")),
            asked.answer.clone(),
            asked.note.clone(),
            expiry.map(str::to_owned),
        ];
        let said = said.into_iter().flatten().map(|text| head(&text, MAX_SAID_BYTES).to_owned());
        Self {
            icon,
            words,
            said: said.filter(|text| !text.trim().is_empty()).collect(),
            waits: asked.state == ApprovalState::Pending,
        }
    }

    /// How many bytes of HTML it takes at most.
    pub fn weight(&self) -> usize {
        LINE_FRAME_BYTES + escaped(&self.words) + self.said.iter().map(|text| 40 + escaped(text)).sum::<usize>()
    }
}

fn about_call(asked: &ApprovalOutline, by: &str) -> String {
    match asked.state {
        ApprovalState::Pending => "Waits for a decision".to_owned(),
        ApprovalState::Allowed if asked.is_changed => format!("Allowed with other arguments by {by}"),
        ApprovalState::Allowed | ApprovalState::Answered => match asked.scope {
            Some(DecisionScope::Task) => format!("Allowed for this task by {by}"),
            Some(DecisionScope::Rule) => format!("Allowed by a rule that {by} wrote"),
            _ => format!("Allowed by {by}"),
        },
        ApprovalState::Denied => format!("Denied by {by}"),
        ApprovalState::Expired => unanswered(asked, by),
    }
}

fn about_question(asked: &ApprovalOutline, by: &str) -> String {
    match asked.state {
        ApprovalState::Pending => "Waits for an answer".to_owned(),
        ApprovalState::Allowed | ApprovalState::Answered => format!("Answered by {by}"),
        ApprovalState::Denied => format!("Left to the agent by {by}"),
        ApprovalState::Expired => unanswered(asked, by),
    }
}

fn unanswered(asked: &ApprovalOutline, by: &str) -> String {
    match asked.decided_by {
        Some(_) => format!("Decided too late by {by}"),
        None => "Nobody answered".to_owned(),
    }
}

fn about_plan(state: ApprovalState, by: &str) -> String {
    match state {
        ApprovalState::Pending => "The plan waits for a decision".to_owned(),
        ApprovalState::Allowed | ApprovalState::Answered => format!("The plan was allowed by {by}"),
        ApprovalState::Denied => format!("The plan was denied by {by}"),
        ApprovalState::Expired => "Nobody decided about the plan".to_owned(),
    }
}

fn about_limit(asked: &ApprovalOutline, by: &str) -> String {
    let limit = asked.limit.clone().unwrap_or_default();
    let is_leash = limit.name == "leash";
    let what = match is_leash {
        true => format!("Checked in after {}", amount(&limit.name, limit.used)),
        false => format!("The limit of {} was reached", amount(&limit.name, limit.allowed)),
    };
    let more = asked.grant.as_ref().map(granted).filter(|more| !more.is_empty());
    match (asked.state, more) {
        (ApprovalState::Pending, _) => format!("{what}: a person is asked"),
        (ApprovalState::Allowed | ApprovalState::Answered, Some(more)) => format!("{what}: {by} granted {more} more"),
        (ApprovalState::Allowed | ApprovalState::Answered, None) => format!("{what}: {by} let it go on"),
        (ApprovalState::Denied, _) => format!("{what}: {by} ended it here"),
        (ApprovalState::Expired, _) => format!("{what}: nobody answered"),
    }
}

/// What a grant adds, in words.
fn granted(grant: &TaskLimits) -> String {
    let more = [
        ("steps", grant.steps.map(f64::from)),
        ("toolCalls", grant.tool_calls.map(f64::from)),
        ("tokens", grant.tokens.map(|tokens| tokens as f64)),
        ("costUsd", grant.cost_usd),
        ("minutes", grant.minutes.map(f64::from)),
    ];
    let words: Vec<String> = more.into_iter().filter_map(|(name, more)| Some(amount(name, more?))).collect();
    words.join(", ")
}

/// A number of what a limit counts: `$2.00`, `20 calls of tools`.
pub fn amount(name: &str, n: f64) -> String {
    let counted = |one: &str, many: &str| format!("{n:.0} {}", if n == 1.0 { one } else { many });
    match name {
        "costUsd" => format!("${n:.2}"),
        "tokens" => counted("token", "tokens"),
        "steps" => counted("model call", "model calls"),
        "minutes" => counted("minute", "minutes"),
        _ => counted("call of a tool", "calls of tools"),
    }
}
