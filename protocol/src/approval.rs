//! Questions of agents that wait for a person, and what people decide.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{command::TaskLimits, ids::ApprovalId, instant::Instant, rules::ApprovalRules};

/// What a question is about. One of a later version is `Unknown`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalKind {
    /// Whether the agent may begin to carry out its plan.
    #[default]
    Plan,
    /// Whether a tool may be called.
    Tool,
    /// What the agent asks by itself.
    Question,
    /// Whether the task may use more than its limit.
    Budget,
    /// What a playbook's supervisor wants done. The Board answers it by itself: with `Decision::Answer` and the outcome, or
    /// with `Decision::Deny` and why not.
    Step,
    #[serde(other)]
    Unknown,
}

impl ApprovalKind {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Tool => "tool",
            Self::Question => "question",
            Self::Budget => "budget",
            Self::Step => "step",
            Self::Unknown => "unknown",
        }
    }
}

/// A question that an agent waits with. Its digest names exactly what is asked: a decision about another one is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequest {
    pub approval_id: ApprovalId,
    #[serde(default)]
    pub kind: ApprovalKind,
    /// SHA-256 in hex of what would run or is asked.
    pub digest: String,
    /// The tool to be called; `plan`, `ask_operator` or `budget` where none is.
    #[serde(default)]
    pub tool: String,
    /// The call's arguments. Long ones are shortened where the preview has them in full.
    #[serde(default)]
    pub args: Value,
    /// The call that waits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub call_id: Option<String>,
    /// The folder that it would run in.
    #[serde(default)]
    pub cwd: String,
    /// What a person reads before they decide: the plan, the command, the changes of a file as a diff.
    #[serde(default)]
    pub preview: String,
    /// What could go wrong, one sentence.
    #[serde(default)]
    pub risk: String,
    /// Why it is asked: the mode, or the rule and where it stands.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub reason: String,
    /// A rule that would allow calls like this one, for a person to change and to write down.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rule: Option<String>,
    /// Files that the call would write, as they are now.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub files: Vec<AffectedFile>,
    /// With `ApprovalKind::Question`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub question: Option<AgentQuestion>,
    /// With `ApprovalKind::Budget`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit: Option<ReachedLimit>,
    /// The approval that this one was made of, when a person allowed other arguments: it is decided with it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub replaces: Option<ApprovalId>,
    /// When it counts as denied.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires_at: Option<Instant>,
}

/// A file that a call would write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AffectedFile {
    /// Absolute.
    pub path: String,
    /// SHA-256 in hex of its bytes; absent for a file that is not there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hash: Option<String>,
}

/// What an agent asks by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AgentQuestion {
    pub text: String,
    /// Two to four; none when only words are asked for.
    pub options: Vec<AnswerOption>,
    /// The index of the option that the agent would take, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recommended: Option<u32>,
    /// What the agent does when nobody answers in time, one sentence.
    pub on_timeout: String,
}

/// One of the answers that an agent offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AnswerOption {
    pub label: String,
    /// What speaks for and against it.
    pub trade_off: String,
}

/// A limit that a task has reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ReachedLimit {
    /// The key in the limits, such as `costUsd`, or `leash`.
    pub name: String,
    pub allowed: f64,
    pub used: f64,
}

/// What a person decided. `digest` names what they saw: for anything else it is no answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalResponse {
    pub approval_id: ApprovalId,
    pub digest: String,
    pub decision: Decision,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub scope: Option<DecisionScope>,
    /// With `DecisionScope::Rule`: what is allowed from now on, as in [`crate::rules`]. The Board keeps it for later tasks.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rule: Option<String>,
    /// What they say to the agent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
    /// Arguments to call the tool with instead.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub args: Option<Value>,
    /// With `Decision::Answer`: the label of an option, or their own words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub answer: Option<String>,
    /// How much more than until now the task may use.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub grant: Option<TaskLimits>,
    /// The name of whoever decided.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub by: String,
    /// The adapter of the machine that they used; absent for a decision of the Board.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub adapter: Option<String>,
}

impl ApprovalResponse {
    /// A decision about the content with this digest, and nothing else.
    pub fn new(approval_id: ApprovalId, digest: String, decision: Decision) -> Self {
        let by = String::new();
        Self {
            approval_id,
            digest,
            decision,
            scope: None,
            rule: None,
            note: None,
            args: None,
            answer: None,
            grant: None,
            by,
            adapter: None,
        }
    }
}

/// Whether the agent may proceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = ApprovalDecision))]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    Allow,
    Deny,
    /// To a question.
    Answer,
}

/// How far a decision reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = ApprovalScope))]
#[serde(rename_all = "kebab-case")]
pub enum DecisionScope {
    #[default]
    Once,
    /// To every call of the same tool with the same arguments, until the task ends.
    Task,
    /// To every call that the rule matches.
    Rule,
}

impl DecisionScope {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Task => "task",
            Self::Rule => "rule",
        }
    }
}

/// What a team decided for all its tasks, as its machines are told: it holds for tasks that begin there, too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TeamRules {
    pub rules: ApprovalRules,
    pub limits: TaskLimits,
    /// A question that nobody answers in so many minutes counts as denied.
    pub approval_minutes: Option<u32>,
    pub prices: Vec<ModelPrice>,
}

/// What a model's tokens cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ModelPrice {
    /// `provider/model`, or a model of whatever provider; `*` stands for any characters. Of several the first one counts.
    pub model: String,
    /// USD for a million tokens.
    pub input: f64,
    pub output: f64,
    /// Of input that the provider had kept; like other input when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached: Option<f64>,
}

impl ModelPrice {
    /// Whether it is the price of this `provider/model`.
    pub fn is_of(&self, model: &str) -> bool {
        let alone = model.split_once('/').map_or(model, |(_, model)| model);
        matches(&self.model, model) || !self.model.contains('/') && matches(&self.model, alone)
    }
}

/// Whether `*` in the pattern can stand for characters that make it the text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = pieces.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_of_what_its_pattern_matches() {
        for (pattern, model, is_of) in [
            ("acme/m1", "acme/m1", true),
            ("acme/m1", "acme/m10", false),
            ("m1", "acme/m1", true),
            ("m1", "m1", true),
            ("acme", "acme/m1", false),
            ("acme/*", "acme/m1", true),
            ("acme/*", "other/acme/m1", false),
            ("*", "acme/m1", true),
            ("*/m1", "router/acme/m1", true),
            ("claude-*", "anthropic/claude-x", true),
            ("claude-*-mini", "anthropic/claude-mini", false),
            ("a*b*c", "p/a-b-b-c", true),
            ("a*b*c", "p/a-c-b", false),
            ("", "acme/m1", false),
        ] {
            let price = ModelPrice { model: pattern.to_owned(), ..ModelPrice::default() };
            assert_eq!(price.is_of(model), is_of, "{pattern} {model}");
        }
    }
}
