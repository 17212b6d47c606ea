//! Which calls of tools a person is asked about: rules first, then the task's mode.
//!
//! Owns the verdict on a call and the words of the question. Does not ask (`decisions`), and does nothing to the machine.
//! No model is called for it: the mode `viber_decides` goes by a table.

mod digest;
mod propose_rule;
mod table;

use std::{borrow::Cow, collections::HashSet};

use protocol::{
    AgentMode, ErrorCode, TaskError,
    mcp::mcp_server_of,
    rules::{ApprovalRules, CallSubject, ProposedCall, Rule, RuleSet, RuleVerdict, SKILL_RULE, judge},
};
use serde_json::Value;

use crate::{
    config::expand_rule,
    engine::EngineRun,
    sandbox::Network,
    tools::{CallProposal, ProposalSubject, is_read_only, speaks_to_people},
};

pub(super) use digest::digest;

/// The rules and the mode of one task.
#[derive(Debug)]
pub(super) struct Gate {
    mode: AgentMode,
    /// Where the mode comes from, in words.
    mode_origin: String,
    sets: Vec<NamedRules>,
    /// Calls that a person allowed until the task ends, whatever they then find: tools with their arguments.
    allowed: HashSet<String>,
    network: Network,
}

/// A set of rules, and where it stands.
#[derive(Debug)]
struct NamedRules {
    origin: String,
    rules: RuleSet,
}

/// What becomes of a call.
#[derive(Debug)]
pub(super) enum CallVerdict {
    Free,
    /// The sentence for the agent.
    Denied(String),
    Asked(AskedCall),
}

/// What a person reads about a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AskedCall {
    /// The mode, or the rule and where it stands.
    pub reason: String,
    pub risk: String,
    /// A rule that would have allowed it.
    pub rule: Option<String>,
}

impl Gate {
    /// The gate for a task; an error if the rules that came with it cannot be read.
    pub fn of(run: &EngineRun) -> Result<Self, TaskError> {
        let (agent, policy) = (&run.agent, &run.config.policy);
        let own = run.submit.mode.unwrap_or(agent.mode);
        let bound = policy.max_mode.filter(|most| *most < own);
        // Also of a task that asks for less than its machine allows: a stricter mode frees nothing.
        let is_unbound = policy.max_mode.is_none_or(|most| most == AgentMode::AlwaysExecute);
        let team = team_rules(&run.submit.rules, is_unbound).map_err(|why| unreadable(&why))?;
        let (mode, mode_origin) = match bound {
            Some(most) => (most, "`maxMode` in policy.yaml".to_owned()),
            None if run.submit.mode.is_some() => (own, "the task's mode".to_owned()),
            None => (own, format!("the mode of the agent {}", agent.id)),
        };
        let named = |origin: &str, rules| NamedRules { origin: origin.to_owned(), rules };
        let sets = vec![
            named("policy.yaml", policy.rules.clone()),
            named("the agent's file", RuleSet::clone(&agent.rules)),
            named("the team's rules", team),
        ];
        Ok(Self { mode, mode_origin, sets, allowed: HashSet::new(), network: run.config.sandbox.network })
    }

    /// Whether calls of this tool are neither asked nor denied, whatever they say.
    pub fn lets_pass(&self, tool: &str) -> bool {
        // Rules for commands are also about the scripts of skills, whose names only the machine knows.
        let may_be_skill = crate::config::toolset::tools_of(tool).is_none() && mcp_server_of(tool).is_none();
        let skill = may_be_skill.then(|| format!("{SKILL_RULE}{tool}"));
        let is_about_skill =
            |rule: &Rule| skill.as_deref().is_some_and(|skill| rule.is_for(skill) || rule.is_for("shell"));
        let is_named = |rules: &[Rule]| rules.iter().any(|rule| rule.is_for(tool) || is_about_skill(rule));
        let is_restricted = self.sets.iter().any(|set| is_named(&set.rules.deny) || is_named(&set.rules.ask));
        !is_restricted && !self.mode_could_ask(tool)
    }

    fn mode_could_ask(&self, tool: &str) -> bool {
        self.mode != AgentMode::AlwaysExecute && !is_read_only(tool) && !speaks_to_people(tool)
    }

    /// What the rules, earlier decisions and the mode say of a call.
    pub fn judge(&self, tool: &str, args: &Value, proposal: &CallProposal) -> CallVerdict {
        let name = name_in_rules(tool, proposal);
        let call = proposed(&name, proposal);
        let ruled = judge(self.sets.iter().map(|set| &set.rules), &call);
        // A permission for git is one for the repository, not for what else its configuration could name.
        let ruled =
            ruled.filter(|ruled| !matches!(ruled, RuleVerdict::Allow(_)) || !table::is_git_of_no_repository(proposal));
        let is_allowed = self.allowed.contains(&digest::arguments(tool, args, proposal.skill.as_deref()));
        let reason = match (ruled, self.judge_script(tool, proposal)) {
            (Some(RuleVerdict::Deny(rule)), _) => return CallVerdict::Denied(self.denial(&rule, &call)),
            (_, Some(denied @ CallVerdict::Denied(_))) => return denied,
            _ if is_allowed => return CallVerdict::Free,
            (_, Some(asked)) => return asked,
            (Some(RuleVerdict::Allow(_)), None) => return CallVerdict::Free,
            (Some(RuleVerdict::Ask(rule)), None) => {
                let (reason, risk) = (self.asking(&rule, &call), table::risk(tool, proposal, self.network));
                // A permission would not change it: the rule that asks goes first.
                return CallVerdict::Asked(AskedCall { reason, risk, rule: None });
            }
            (None, None) if !self.mode_could_ask(tool) => return CallVerdict::Free,
            (None, None) if self.mode == AgentMode::AlwaysAsk => String::new(),
            (None, None) => match table::objection(tool, proposal) {
                Some(why) => format!(": {why}"),
                None => return CallVerdict::Free,
            },
        };
        CallVerdict::Asked(AskedCall {
            reason: format!("{} is {}{reason}", self.mode_origin, self.mode.as_str()),
            risk: table::risk(tool, proposal, self.network),
            rule: propose_rule::propose(tool, proposal),
        })
    }

    /// What the rules for commands forbid, or ask about, in a skill's script. What they allow is not meant for it.
    fn judge_script(&self, tool: &str, proposal: &CallProposal) -> Option<CallVerdict> {
        proposal.skill.as_ref()?;
        let command = proposed("shell", proposal);
        match judge(self.sets.iter().map(|set| &set.rules), &command)? {
            RuleVerdict::Deny(rule) => Some(CallVerdict::Denied(self.denial(&rule, &command))),
            RuleVerdict::Ask(rule) => {
                let (reason, risk) = (self.asking(&rule, &command), table::risk(tool, proposal, self.network));
                Some(CallVerdict::Asked(AskedCall { reason, risk, rule: None }))
            }
            RuleVerdict::Allow(_) => None,
        }
    }

    /// Whether a rule denies the call, and the sentence for the agent.
    pub fn denies(&self, tool: &str, proposal: &CallProposal) -> Option<String> {
        if let Some(CallVerdict::Denied(why)) = self.judge_script(tool, proposal) {
            return Some(why);
        }
        let name = name_in_rules(tool, proposal);
        let call = proposed(&name, proposal);
        match judge(self.sets.iter().map(|set| &set.rules), &call) {
            Some(RuleVerdict::Deny(rule)) => Some(self.denial(&rule, &call)),
            _ => None,
        }
    }

    /// Whether a rule denies, or asks about, what an answer does with this tool's means without a call: nobody can be asked
    /// about that.
    pub fn restricts_words(&self, tool: &str) -> bool {
        let call = ProposedCall { tool, subject: CallSubject::Other };
        let ruled = judge(self.sets.iter().map(|set| &set.rules), &call);
        matches!(ruled, Some(RuleVerdict::Deny(_) | RuleVerdict::Ask(_)))
    }

    /// Lets this call pass until the task ends; one of a skill as long as its files have this digest.
    pub fn allow_call(&mut self, tool: &str, args: &Value, skill: Option<&str>) {
        self.allowed.insert(digest::arguments(tool, args, skill));
    }

    /// Lets everything pass that the rule allows, until the task ends; `Err` says why it does not.
    pub fn allow_rule(&mut self, text: &str, by: &str) -> Result<(), String> {
        let rule = Rule::read(text)?;
        if let Some(why) = rule.is_too_wide() {
            return Err(format!("“{}” is not allowed as a rule: {why}", rule.as_str()));
        }
        let rules = RuleSet { allow: vec![rule], ..RuleSet::default() };
        self.sets.push(NamedRules { origin: format!("what {by} allowed"), rules });
        Ok(())
    }

    fn denial(&self, rule: &str, call: &ProposedCall<'_>) -> String {
        format!(
            "Not run: the rule `{rule}` under `deny` of {} forbids it. Do not try to get around it: find another way, or say \
             what you need.",
            self.origin(call, |verdict| matches!(verdict, RuleVerdict::Deny(_)))
        )
    }

    fn asking(&self, rule: &str, call: &ProposedCall<'_>) -> String {
        let origin = self.origin(call, |verdict| matches!(verdict, RuleVerdict::Ask(_)));
        let is_ask = |set: &NamedRules| set.rules.ask.iter().any(|known| known.as_str() == rule);
        if self.sets.iter().any(is_ask) {
            format!("the rule `{rule}` under `ask` of {origin}")
        } else {
            format!("the rule `{rule}` under `deny` of {origin} could be meant: the command's name is not written out")
        }
    }

    /// Where the rule stands that decides like this.
    fn origin(&self, call: &ProposedCall<'_>, like: impl Fn(&RuleVerdict) -> bool) -> &str {
        let decides = |set: &&NamedRules| judge([&set.rules], call).as_ref().is_some_and(&like);
        self.sets.iter().find(decides).map_or("the rules", |set| &set.origin)
    }
}

/// The team's rules as they hold on this machine. What they allow counts only if it is narrow, and not where the machine bounds
/// the mode (`may_allow` is false): the Board cannot loosen that. Only there may a rule name a tool that does not exist here.
fn team_rules(written: &ApprovalRules, may_allow: bool) -> Result<RuleSet, String> {
    let RuleSet { deny, ask, allow } = written.read()?;
    let expanded = |name: &str, rules: Vec<Rule>| {
        let all: Result<Vec<_>, _> = rules.into_iter().map(expand_rule).collect();
        all.map(|rules| rules.concat()).map_err(|why| format!("{name}: {why}"))
    };
    let known = allow.into_iter().filter(|_| may_allow).filter_map(|rule| expand_rule(rule).ok()).flatten();
    let allow = known.filter(|rule| rule.is_too_wide().is_none()).collect();
    Ok(RuleSet { deny: expanded("deny", deny)?, ask: expanded("ask", ask)?, allow })
}

/// What rules call a tool: a skill's name stands apart from the names of tools.
fn name_in_rules<'t>(tool: &'t str, proposal: &CallProposal) -> Cow<'t, str> {
    match proposal.skill {
        Some(_) => Cow::Owned(format!("{SKILL_RULE}{tool}")),
        None => Cow::Borrowed(tool),
    }
}

fn proposed<'a>(tool: &'a str, proposal: &'a CallProposal) -> ProposedCall<'a> {
    let subject = match &proposal.subject {
        ProposalSubject::Command(line) => CallSubject::Command(line),
        ProposalSubject::File(file) => CallSubject::Path { inside: file.inside.as_deref(), absolute: &file.absolute },
        ProposalSubject::Other => CallSubject::Other,
    };
    ProposedCall { tool, subject }
}

fn unreadable(why: &str) -> TaskError {
    TaskError {
        code: ErrorCode::BadRequest,
        message: format!("The team's rules cannot be read by this viber: {why}."),
        retryable: false,
        suggestion: Some("Correct the rules in the team's settings, or update daemon-agent.".to_owned()),
        details: None,
    }
}

#[cfg(test)]
mod tests;
