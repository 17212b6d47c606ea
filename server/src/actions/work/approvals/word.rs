//! What a decision may say about what was asked.

use protocol::{
    ApprovalKind, Decision, DecisionScope, TaskLimits,
    rules::{CallSubject, MAX_RULE_BYTES, ProposedCall, Rule, RuleSet, RuleVerdict, judge},
};
use serde_json::Value;

use crate::{
    actions::tasks::is_within,
    domain::{Approval, ApprovalState},
    error::{Error, Result},
};

/// Longest note to the agent, bytes; also of a reason.
const MAX_NOTE_BYTES: usize = 8 * 1024;
/// Longest answer to a question, bytes.
const MAX_ANSWER_BYTES: usize = 16 * 1024;
/// Largest arguments that somebody gives, bytes of JSON: the decision fits a frame.
const MAX_ARGS_BYTES: usize = 32 * 1024;
/// How deep arguments nest at most.
const MAX_ARGS_LEVELS: usize = 32;
/// Most money that is granted at once, USD.
const MAX_GRANT_USD: f64 = 1e6;

/// The decision of a person.
#[derive(Clone, Debug)]
pub struct NewDecision {
    pub decision: Decision,
    /// Digest of what they saw.
    pub digest: String,
    /// Once when absent.
    pub scope: Option<DecisionScope>,
    /// With `DecisionScope::Rule`: what is allowed from now on; what was proposed when absent.
    pub rule: Option<String>,
    pub note: Option<String>,
    /// Arguments that are allowed instead.
    pub args: Option<Value>,
    /// With `Decision::Answer`: the label of an option, or their own words.
    pub answer: Option<String>,
    /// How much more than until now the task may use.
    pub grant: Option<TaskLimits>,
    /// The task is stopped with the denial.
    pub then_stop: bool,
    /// Why an owner decides what the team's settings do not let them.
    pub reason: Option<String>,
}

/// What a decision means for what was asked.
pub(super) struct Outcome<'a> {
    pub state: ApprovalState,
    pub scope: Option<DecisionScope>,
    /// The rule to write.
    pub rule: Option<Rule>,
    pub note: Option<&'a str>,
    pub answer: Option<&'a str>,
    pub args: Option<&'a Value>,
    pub grant: Option<TaskLimits>,
}

fn no<T>(code: &'static str, message: impl Into<String>) -> Result<T> {
    Err(Error::unacceptable(code, message))
}

fn said(text: Option<&String>) -> Option<&str> {
    text.map(|text| text.trim()).filter(|text| !text.is_empty())
}

impl NewDecision {
    /// A decision and nothing else.
    pub fn new(decision: Decision, digest: String) -> Self {
        Self {
            decision,
            digest,
            scope: None,
            rule: None,
            note: None,
            args: None,
            answer: None,
            grant: None,
            then_stop: false,
            reason: None,
        }
    }

    /// Refuses what is too large, or contradicts itself whatever was asked.
    pub(super) fn checked(self) -> Result<Self> {
        let is_longer = |text: &Option<String>, most| text.as_ref().is_some_and(|text| text.len() > most);
        if is_longer(&self.note, MAX_NOTE_BYTES) || is_longer(&self.reason, MAX_NOTE_BYTES) {
            return no("note_too_long", "a note or a reason has at most 8 KiB");
        }
        if is_longer(&self.answer, MAX_ANSWER_BYTES) {
            return no("answer_too_long", "an answer has at most 16 KiB");
        }
        if is_longer(&self.rule, MAX_RULE_BYTES) {
            return no("bad_rule", "a rule has at most 500 bytes");
        }
        if let Some(args) = &self.args
            && (!args.is_object() || args.to_string().len() > MAX_ARGS_BYTES || !is_within(args, MAX_ARGS_LEVELS))
        {
            return no("bad_args", "arguments are an object of at most 32 KiB and 32 levels");
        }
        let is_wide = self.scope.is_some_and(|scope| scope != DecisionScope::Once);
        let is_allowance = self.args.is_some() || self.grant.is_some() || self.rule.is_some() || is_wide;
        if self.decision != Decision::Allow && is_allowance {
            return no("contradictory", "args, grant, rule and a scope beyond once go with allow");
        }
        if self.decision != Decision::Answer && self.answer.is_some() {
            return no("contradictory", "an answer goes with the decision answer");
        }
        if self.decision != Decision::Deny && self.then_stop {
            return no("contradictory", "thenStop goes with deny");
        }
        if self.rule.is_some() && self.scope != Some(DecisionScope::Rule) {
            return no("contradictory", "a rule goes with the scope rule");
        }
        Ok(self)
    }

    /// Why an owner breaks the glass.
    pub(super) fn break_glass(&self) -> Option<&str> {
        said(self.reason.as_ref())
    }

    /// Whether it allows a call with other arguments than `asked` has.
    pub(super) fn changes(&self, asked: &Approval) -> bool {
        // The same arguments again are no others.
        asked.kind == ApprovalKind::Tool && self.args.as_ref().is_some_and(|args| *args != asked.args)
    }

    /// What it means for `asked`; refused when it does not fit.
    pub(super) fn about(&self, asked: &Approval) -> Result<Outcome<'_>> {
        let is_question = asked.kind == ApprovalKind::Question;
        let answer = said(self.answer.as_ref());
        let state = match self.decision {
            Decision::Allow if is_question => {
                return no("answer_required", "a question is answered, or denied");
            }
            Decision::Answer if !is_question => {
                return no("not_a_question", "an answer is for a question; this is to be allowed or denied");
            }
            Decision::Answer if answer.is_none() => return no("answer_required", "say what the answer is"),
            Decision::Allow => ApprovalState::Allowed,
            Decision::Deny => ApprovalState::Denied,
            Decision::Answer => ApprovalState::Answered,
        };
        let is_wide = self.scope.is_some_and(|scope| scope != DecisionScope::Once);
        if asked.kind != ApprovalKind::Tool && (is_wide || self.args.is_some()) {
            return no("not_a_tool", "other arguments and a scope beyond once are for calls of tools");
        }
        let args = self.args.as_ref().filter(|_| self.changes(asked));
        Ok(Outcome {
            state,
            scope: self.scope,
            rule: self.rule_for(asked, args)?,
            note: said(self.note.as_ref()),
            answer,
            args,
            grant: self.grant_for(asked)?,
        })
    }

    /// The rule to write: one that allows this call, and not everything.
    fn rule_for(&self, asked: &Approval, args: Option<&Value>) -> Result<Option<Rule>> {
        if self.scope != Some(DecisionScope::Rule) {
            return Ok(None);
        }
        let Some(text) = said(self.rule.as_ref()).or(asked.rule.as_deref()) else {
            return no("rule_required", "say which rule is to be written");
        };
        let rule = Rule::read(text).map_err(|why| Error::unacceptable("bad_rule", why))?;
        if let Some(why) = rule.is_too_wide() {
            return no("rule_too_wide", format!("“{text}” is not written from here: {why}"));
        }
        if !allows(&rule, asked, args) {
            return no("other_call", format!("“{text}” does not match this call"));
        }
        Ok(Some(rule))
    }

    /// How much more the task may use. A leash may also be taken off.
    fn grant_for(&self, asked: &Approval) -> Result<Option<TaskLimits>> {
        let grant = self.grant.as_ref().map(|grant| TaskLimits { on_limit: None, ..grant.clone() });
        let grant = grant.filter(|grant| *grant != TaskLimits::default());
        let Some(limit) = asked.limit.as_ref().filter(|_| asked.kind == ApprovalKind::Budget) else {
            return match grant {
                Some(_) => no("not_a_budget", "only a limit that was reached is raised"),
                None => Ok(None),
            };
        };
        if self.decision != Decision::Allow || (grant.is_none() && limit.name == "leash") {
            return Ok(None);
        }
        let amount = |grant: &TaskLimits| match limit.name.as_str() {
            "steps" => grant.steps.map(f64::from),
            "toolCalls" | "leash" => grant.tool_calls.map(f64::from),
            "tokens" => grant.tokens.map(|tokens| tokens as f64),
            "costUsd" => grant.cost_usd,
            "minutes" => grant.minutes.map(f64::from),
            _ => Some(1.0),
        };
        let is_enough = |grant: &TaskLimits| amount(grant).is_some_and(|more| more > 0.0);
        match grant.filter(is_enough) {
            Some(grant) if grant.cost_usd.is_some_and(|usd| !(0.0..=MAX_GRANT_USD).contains(&usd)) => {
                no("grant_required", format!("a grant is what is added, at most {MAX_GRANT_USD} USD"))
            }
            Some(grant) => Ok(Some(grant)),
            None => no("grant_required", format!("say how much more of {} the task may use", limit.name)),
        }
    }
}

/// Whether the rule allows this call beyond doubt.
fn allows(rule: &Rule, asked: &Approval, args: Option<&Value>) -> bool {
    let field = |name: &str| args.unwrap_or(&asked.args).get(name).and_then(Value::as_str);
    let path = field("path").map(|path| match (args, asked.files.as_slice()) {
        // Where it really leads.
        (None, [file]) => file.path.clone(),
        _ if path.starts_with('/') => path.to_owned(),
        _ => format!("{}/{path}", asked.cwd.trim_end_matches('/')),
    });
    let inside = path.as_deref().and_then(|path| path.strip_prefix(asked.cwd.trim_end_matches('/'))?.strip_prefix('/'));
    let subject = match (asked.tool.as_str(), field("command"), &path) {
        ("shell", Some(command), _) => CallSubject::Command(command),
        (_, _, Some(absolute)) if !absolute.split('/').any(|name| name == "..") => {
            CallSubject::Path { inside, absolute }
        }
        _ => CallSubject::Other,
    };
    let alone = RuleSet { allow: vec![rule.clone()], ..RuleSet::default() };
    let call = ProposedCall { tool: &asked.tool, subject };
    matches!(judge([&alone], &call), Some(RuleVerdict::Allow(_)))
}
