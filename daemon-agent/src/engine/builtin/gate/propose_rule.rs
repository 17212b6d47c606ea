//! A rule that would allow calls like one that is asked about: narrow, and for a person to change before it counts.

use protocol::rules::{Rule, RuleSet, RuleVerdict, judge};

use super::{proposed, table};
use crate::tools::{CallProposal, ProposalSubject, ProposedFile};

/// The first of some candidates that allows the call and not too much.
pub fn propose(tool: &str, proposal: &CallProposal) -> Option<String> {
    if proposal.skill.is_some() {
        // A rule does not say which version of the skill it allows.
        return None;
    }
    let patterns = match &proposal.subject {
        ProposalSubject::Command(line) => of_command(line),
        ProposalSubject::File(file) => of_file(file),
        ProposalSubject::Other => return Some(tool.to_owned()).filter(|text| allows(text, tool, proposal)),
    };
    patterns.into_iter().map(|pattern| format!("{tool}({pattern})")).find(|text| allows(text, tool, proposal))
}

fn allows(text: &str, tool: &str, proposal: &CallProposal) -> bool {
    let Ok(rule) = Rule::read(text) else { return false };
    if rule.is_too_wide().is_some() {
        return false;
    }
    let rules = RuleSet { allow: vec![rule], ..RuleSet::default() };
    matches!(judge([&rules], &proposed(tool, proposal)), Some(RuleVerdict::Allow(_)))
}

/// The program with its first argument, when that reads like the name of a part of it; else the whole command.
fn of_command(line: &str) -> Vec<String> {
    let mut words = line.split_whitespace();
    let (program, argument) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let is_part = argument.starts_with(|c: char| c.is_ascii_lowercase())
        && argument.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_:".contains(c));
    let wide = is_part.then(|| format!("{program} {argument} **"));
    wide.into_iter().chain([line.to_owned()]).collect()
}

/// The folder that the file lies in, unless it is one of those that people want to see each by itself; else the file.
fn of_file(file: &ProposedFile) -> Vec<String> {
    let path = file.inside.as_deref().unwrap_or(&file.absolute);
    let folder = path.rsplit_once('/').map(|(folder, _)| folder).filter(|folder| !folder.is_empty());
    let wide = folder.filter(|_| !table::is_configuration(file)).map(|folder| format!("{}/**", escaped(folder)));
    wide.into_iter().chain([escaped(path)]).collect()
}

/// A path as a pattern that matches nothing else.
fn escaped(path: &str) -> String {
    path.chars().flat_map(|c| "*?[]{}\\!".contains(c).then_some('\\').into_iter().chain([c])).collect()
}
