//! `policy.yaml`: what this machine denies its agents or has asked, and how freely a task may run here. Whoever can write
//! the file decides; the Board can neither write nor loosen it.

use protocol::{
    AgentMode, ConfigError,
    mcp::MCP_PREFIX,
    rules::{MAX_RULES, Rule, RuleSet, SKILL_RULE},
};
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::{toolset, yaml::YamlFile};
use crate::home::Home;

/// The file's name, below the home.
pub const POLICY_FILE: &str = "policy.yaml";

/// The machine's own word on calls of tools.
#[derive(Clone, Debug, Default)]
pub struct MachinePolicy {
    /// Without `allow`: the file only restricts.
    pub rules: RuleSet,
    /// The freest mode that a task may have.
    pub max_mode: Option<AgentMode>,
    /// Set if the file is there and cannot be read. What it denies is not known then, so no agent accepts tasks.
    pub error: Option<ConfigError>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct PolicyFile {
    deny: Vec<Spanned<String>>,
    ask: Vec<Spanned<String>>,
    max_mode: Option<AgentMode>,
}

/// `approvals` in an agent's file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalsSection {
    deny: Vec<Spanned<String>>,
    ask: Vec<Spanned<String>>,
    allow: Vec<Spanned<String>>,
}

impl ApprovalsSection {
    /// The rules, with those of `requireApproval` among the ones that ask.
    pub fn read(&self, require_approval: &[Spanned<String>], source: &YamlFile) -> Result<RuleSet, ConfigError> {
        let mut ask = rules(require_approval, source)?;
        ask.extend(rules(&self.ask, source)?);
        Ok(RuleSet { deny: rules(&self.deny, source)?, ask, allow: rules(&self.allow, source)? })
    }
}

/// Reads the file; without one nothing is restricted.
pub fn read(home: &Home) -> MachinePolicy {
    read_file(home).unwrap_or_else(|error| MachinePolicy { error: Some(error), ..MachinePolicy::default() })
}

fn read_file(home: &Home) -> Result<MachinePolicy, ConfigError> {
    let Some(source) = YamlFile::read(&home.policy(), POLICY_FILE)? else { return Ok(MachinePolicy::default()) };
    if source.text().lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        // It may have been cut by accident, and what it denied is not known any more.
        let message = "is empty: write `ask: []`, or delete the file, to restrict nothing".to_owned();
        return Err(ConfigError { file: POLICY_FILE.to_owned(), line: 0, message });
    }
    let written: PolicyFile = source.parse()?;
    let (deny, ask) = (rules(&written.deny, &source)?, rules(&written.ask, &source)?);
    Ok(MachinePolicy { rules: RuleSet { deny, ask, allow: Vec::new() }, max_mode: written.max_mode, error: None })
}

/// Rules of one list, expanded. A tool that does not exist is an error, because the rule would restrict nothing.
fn rules(written: &[Spanned<String>], source: &YamlFile) -> Result<Vec<Rule>, ConfigError> {
    let mut all = Vec::new();
    for text in written {
        let rule = Rule::read(&text.value).map_err(|why| source.wrong(text, why))?;
        all.extend(expand_rule(rule).map_err(|why| source.wrong(text, why))?);
        if all.len() > MAX_RULES {
            return Err(source.wrong(text, format!("more than {MAX_RULES} rules")));
        }
    }
    Ok(all)
}

/// What a rule stands for: one about a group of tools is a rule about each of them. `Err` is a sentence about a tool that does
/// not exist, or a pattern that is none for a tool of the group. A skill, or a tool of an MCP server,
/// need not be there: it may come.
pub fn expand_rule(rule: Rule) -> Result<Vec<Rule>, String> {
    if rule.tool().starts_with(SKILL_RULE) || rule.tool().starts_with(MCP_PREFIX) {
        return Ok(vec![rule]);
    }
    let tools = toolset::tools_of(rule.tool()).ok_or_else(|| toolset::unknown(rule.tool()))?;
    if tools == [rule.tool()] {
        return Ok(vec![rule]);
    }
    let pattern = rule.as_str().strip_prefix(rule.tool()).unwrap_or_default();
    tools.into_iter().map(|tool| Rule::read(&format!("{tool}{pattern}"))).collect()
}
