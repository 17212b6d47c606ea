//! Rules that say which calls of tools are denied, asked or allowed: `shell`, `shell(git push **)`, `write_file(src/**)`,
//! `skill:git-commit`, `mcp__fs__*`.
//!
//! They are pure. However many sets of rules there are, a call that one of them denies is denied, and one that none denies and
//! one asks is asked: a rule more in `deny` or `ask` never frees anything. An allow matches only what can be read
//! without doubt, a deny whatever might be meant.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::IgnoredAny};

use crate::{mcp::MCP_PREFIX, text};

mod command;
mod lexer;
mod pattern;
mod programs;

use command::CommandLine;
use pattern::{Meant, PathPattern, PatternWord};

/// Longest rule, bytes.
pub const MAX_RULE_BYTES: usize = 500;
/// Most rules in each list of a set.
pub const MAX_RULES: usize = 200;
/// What a rule about tools of an MCP server ends with if it means several: `mcp__fs__*`.
const ANY_ENDING: char = '*';
/// What stands before the name of a skill, in a rule about calls of its script.
pub const SKILL_RULE: &str = "skill:";

/// The rules of an agent, a team or a machine, as they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenRules")]
pub struct ApprovalRules {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Names of lists that this version does not know: such rules cannot be read, because one could restrict something.
    #[serde(skip_serializing)]
    pub unknown: Vec<String>,
}

#[derive(Deserialize)]
struct WrittenRules {
    #[serde(default)]
    deny: Vec<String>,
    #[serde(default)]
    ask: Vec<String>,
    #[serde(default)]
    allow: Vec<String>,
    #[serde(flatten)]
    unknown: BTreeMap<String, IgnoredAny>,
}

impl From<WrittenRules> for ApprovalRules {
    fn from(WrittenRules { deny, ask, allow, unknown }: WrittenRules) -> Self {
        Self { deny, ask, allow, unknown: unknown.into_keys().map(|name| text::head(&name, 64).to_owned()).collect() }
    }
}

impl ApprovalRules {
    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.deny.is_empty() && self.ask.is_empty() && self.allow.is_empty() && self.unknown.is_empty()
    }

    /// The rules ready to be asked; `Err` is a sentence that names the first that cannot be read.
    pub fn read(&self) -> Result<RuleSet, String> {
        if let Some(name) = self.unknown.first() {
            return Err(format!("{name} is no list of rules that this version knows"));
        }
        let list = |name: &str, texts: &[String]| {
            if texts.len() > MAX_RULES {
                return Err(format!("{name} has more than {MAX_RULES} rules"));
            }
            texts.iter().map(|text| Rule::read(text).map_err(|why| format!("{name}: {why}"))).collect()
        };
        Ok(RuleSet {
            deny: list("deny", &self.deny)?,
            ask: list("ask", &self.ask)?,
            allow: list("allow", &self.allow)?,
        })
    }
}

/// Rules that were read.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    pub deny: Vec<Rule>,
    pub ask: Vec<Rule>,
    pub allow: Vec<Rule>,
}

/// One rule.
#[derive(Clone, Debug)]
pub struct Rule {
    text: String,
    tool: String,
    pattern: Option<Pattern>,
}

#[derive(Clone, Debug)]
enum Pattern {
    Words(Vec<PatternWord>),
    Path(PathPattern),
}

/// A call as rules see it.
#[derive(Clone, Copy, Debug)]
pub struct ProposedCall<'a> {
    /// Of a skill's: its name behind [`SKILL_RULE`].
    pub tool: &'a str,
    pub subject: CallSubject<'a>,
}

/// What a call is about, as far as a pattern can say.
#[derive(Clone, Copy, Debug)]
pub enum CallSubject<'a> {
    /// A command for `sh -c`.
    Command(&'a str),
    /// A file: its path beneath the space that it lies in, if it lies in one, and its absolute path.
    Path { inside: Option<&'a str>, absolute: &'a str },
    /// Neither.
    Other,
}

/// What rules say of a call, and the rule that says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleVerdict {
    Deny(String),
    Ask(String),
    Allow(String),
}

/// What all these rules together say of a call: a denial before a question before a permission. `None` when no rule matches.
/// What a denial may mean or not is asked.
pub fn judge<'a>(sets: impl IntoIterator<Item = &'a RuleSet> + Clone, call: &ProposedCall<'_>) -> Option<RuleVerdict> {
    let line = match call.subject {
        CallSubject::Command(text) => Some(CommandLine::read(text)),
        _ => None,
    };
    let line = line.as_ref();
    let found = |list: fn(&RuleSet) -> &[Rule], is_it: &dyn Fn(&Rule) -> bool| {
        let mut rules = sets.clone().into_iter().flat_map(list).filter(|rule| rule.is_for(call.tool));
        rules.find(|rule| is_it(rule)).map(|rule| rule.text.clone())
    };
    if let Some(rule) = found(|set| &set.deny, &|rule| rule.means(call, line) == Meant::Yes) {
        return Some(RuleVerdict::Deny(rule));
    }
    let may_be_meant = |rule: &Rule| rule.means(call, line) > Meant::No;
    let asked = found(|set| &set.ask, &may_be_meant).or_else(|| found(|set| &set.deny, &may_be_meant));
    if let Some(rule) = asked {
        return Some(RuleVerdict::Ask(rule));
    }
    // A command whose name is not written out could be one that a rule denies or asks.
    if line.is_some_and(CommandLine::hides_a_name) {
        let is_about_words = |rule: &Rule| matches!(rule.pattern, Some(Pattern::Words(_)));
        let about_words = found(|set| &set.deny, &is_about_words).or_else(|| found(|set| &set.ask, &is_about_words));
        if let Some(rule) = about_words {
            return Some(RuleVerdict::Ask(rule));
        }
    }
    found(|set| &set.allow, &|rule| rule.names(call.tool) && rule.surely_matches(call, line)).map(RuleVerdict::Allow)
}

/// The programs that a command line surely names, each with the words behind it, as far as the command goes.
pub fn programs_of(command: &str) -> Vec<Vec<String>> {
    let line = CommandLine::read(command);
    let sure = line.starts().filter(|start| start.is_sure);
    sure.map(|start| start.words.iter().map(|word| word.text.clone()).collect()).collect()
}

/// Names of tools that are another way of writing a file: a denial or question about one is about the other.
const WRITING_TOOLS: &[&str] = &["edit_file", "write_file"];

impl Rule {
    /// Reads `tool`, `tool(pattern)` or `skill:name`; `Err` is a sentence that names the rule.
    pub fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let bad = |why: &str| format!("“{}” is no rule: {why}", crate::text::head(text, 80));
        if text.len() > MAX_RULE_BYTES {
            return Err(bad("it is longer than 500 bytes"));
        }
        let (tool, pattern) = match text.split_once('(') {
            Some((tool, rest)) => {
                let pattern = rest.strip_suffix(')').ok_or_else(|| bad("the bracket is not closed at its end"))?;
                (tool.trim(), Some(pattern.trim()))
            }
            None => (text, None),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        let skill = tool.strip_prefix(SKILL_RULE);
        let name = skill.unwrap_or(tool);
        let is_mcp = tool.starts_with(MCP_PREFIX);
        let name = name.strip_suffix(ANY_ENDING).filter(|_| is_mcp).unwrap_or(name);
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_name) {
            return Err(bad("it begins with a tool's name, such as shell or write_file, or with skill: and a skill's"));
        }
        if skill.is_some() && pattern.is_some() {
            return Err(bad("a skill's rule has no brackets; those for shell are also about its script"));
        }
        if is_mcp && pattern.is_some() {
            return Err(bad(
                "a rule about tools of an MCP server has no brackets: what they are called with is not known here",
            ));
        }
        if matches!(tool, "sh" | "bash") || tool.eq_ignore_ascii_case("shell") && tool != "shell" {
            return Err(bad("commands are rules of the tool shell"));
        }
        let is_unseen = |c: char| {
            c.is_control()
                || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
        };
        if text.contains(is_unseen) {
            return Err(bad("it has characters that do not show"));
        }
        let pattern = match pattern {
            None => None,
            Some("") => return Err(bad("the brackets are empty; leave them out to mean every call")),
            Some(pattern) if tool == "shell" => Some(Pattern::Words(pattern::words(pattern).map_err(bad)?)),
            Some(pattern) => Some(Pattern::Path(PathPattern::read(pattern).map_err(bad)?)),
        };
        Ok(Self { text: text.to_owned(), tool: tool.to_owned(), pattern })
    }

    /// The rule as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The tool that it is about.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Why a page may not write this rule as a permission: it would allow more than it seems. A person who edits the agent's
    /// file may.
    pub fn is_too_wide(&self) -> Option<&'static str> {
        match &self.pattern {
            None if self.tool == "shell" => Some("it would allow every command"),
            Some(Pattern::Words(words)) => programs::is_too_wide(words),
            Some(Pattern::Path(path)) if path.is_everything() => Some("it would allow every file"),
            None if WRITING_TOOLS.contains(&self.tool.as_str()) => Some("it would allow every file"),
            None if self.tool.starts_with(SKILL_RULE) => Some("it would allow every version of the skill"),
            None if self.tool.ends_with(ANY_ENDING) => Some("it would allow every tool of an MCP server"),
            _ => None,
        }
    }

    /// Whether a denial or question that this rule says concerns calls of the tool.
    pub fn is_for(&self, tool: &str) -> bool {
        self.names(tool) || WRITING_TOOLS.contains(&self.tool.as_str()) && WRITING_TOOLS.contains(&tool)
    }

    /// Whether the tool is called so, or begins so where the rule ends with `*`.
    fn names(&self, tool: &str) -> bool {
        self.tool == tool || self.tool.strip_suffix(ANY_ENDING).is_some_and(|begin| tool.starts_with(begin))
    }

    /// Whether the call is meant, in any part of a command and by any name of a file.
    fn means(&self, call: &ProposedCall<'_>, line: Option<&CommandLine>) -> Meant {
        match (&self.pattern, call.subject, line) {
            (None, ..) => Meant::Yes,
            (Some(Pattern::Words(pattern)), _, Some(line)) => {
                let meant = line.starts().map(|start| {
                    let most = if start.is_sure { Meant::Yes } else { Meant::Maybe };
                    pattern::begins_like(pattern, start.words).min(most)
                });
                meant.max().unwrap_or(Meant::No)
            }
            (Some(Pattern::Path(path)), CallSubject::Path { inside, absolute }, _) => {
                if path.may_match(inside, absolute) { Meant::Yes } else { Meant::No }
            }
            // The pattern says nothing about such a call, and a denial is meant to hold.
            (Some(_), ..) => Meant::Yes,
        }
    }

    /// Whether the call is meant beyond doubt.
    fn surely_matches(&self, call: &ProposedCall<'_>, line: Option<&CommandLine>) -> bool {
        match (&self.pattern, call.subject, line) {
            (None, ..) => true,
            (Some(Pattern::Words(pattern)), _, Some(line)) => {
                line.only_command().is_some_and(|words| pattern::is_like(pattern, words))
            }
            (Some(Pattern::Path(path)), CallSubject::Path { inside, absolute }, _) => {
                path.surely_matches(inside, absolute)
            }
            (Some(_), ..) => false,
        }
    }
}

#[cfg(test)]
mod tests;
