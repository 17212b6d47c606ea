//! The skills of an agent: those that a message to it may begin with, and those that its machine lacks something for.

use protocol::{AgentInfo, SkillCheck, SkillInfo, SkillScope, SkillState, agent::is_id};

use super::Fact;
use crate::domain::skills::marked;

/// Skills that are offered while a message is written.
const MAX_OFFERED_SKILLS: usize = 50;
/// Longest description beside one, bytes.
const MAX_EFFECT_BYTES: usize = 120;
/// Skills of which it is said what they lack.
const MAX_NEEDY_SKILLS: usize = 3;
/// Things that are said to be missing for one skill, and commands that mend it.
const MAX_NAMED_CHECKS: usize = 4;
/// Longest name of such a thing, bytes.
const MAX_LABEL_BYTES: usize = 100;
/// Longest command, bytes.
const MAX_FIX_BYTES: usize = 400;

/// A word that a message can begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillWord {
    /// `/name`
    pub word: String,
    /// What the skill is for.
    pub effect: String,
}

/// The skills that an agent is offered and people may call, by their names.
pub fn words(skills: &[SkillInfo], agent: &str) -> Vec<SkillWord> {
    let is_callable = |skill: &&SkillInfo| {
        let is_offered = skill.state == SkillState::Ready && skill.agents.iter().any(|id| id == agent);
        is_offered && !skill.agents_only && is_id(&skill.name)
    };
    let mut callable: Vec<&SkillInfo> = skills.iter().filter(is_callable).collect();
    callable.sort_by(|one, other| one.name.cmp(&other.name));
    let word = |skill: &SkillInfo| SkillWord {
        word: format!("/{}", skill.name),
        effect: shortened(&skill.description, MAX_EFFECT_BYTES),
    };
    callable.into_iter().take(MAX_OFFERED_SKILLS).map(word).collect()
}

/// The skills that an agent's file lists, and that it is not offered because the machine lacks something.
pub fn needy<'s>(skills: &'s [SkillInfo], agent: &AgentInfo) -> Vec<&'s SkillInfo> {
    let is_needy = |skill: &&SkillInfo| {
        let is_listed = agent.skills.iter().any(|listed| listed == "*" || *listed == skill.name);
        // Another one of this name may go first.
        let has_other = skills.iter().any(|other| other.name == skill.name && other.agents.contains(&agent.id));
        skill.state == SkillState::NeedsSetup && is_listed && is_within_reach(skill, agent) && !has_other
    };
    skills.iter().filter(is_needy).collect()
}

/// Whether a skill lies where an agent's are looked for.
fn is_within_reach(skill: &SkillInfo, agent: &AgentInfo) -> bool {
    let lies_below = |folder: &str| skill.path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    match skill.scope {
        SkillScope::Agent => lies_below(&format!("agents/{}", agent.id)),
        SkillScope::Home => true,
        SkillScope::Space => agent.spaces.iter().any(|space| lies_below(space)),
    }
}

/// What these skills lack, with the commands that mend it; nothing is run by itself. `page` has the viber's skills.
pub fn facts(needy: &[&SkillInfo], page: &str) -> Vec<Fact> {
    let of = |skill: &&SkillInfo| {
        let missing: Vec<&SkillCheck> = skill.checks.iter().filter(|check| !check.ok).take(MAX_NAMED_CHECKS).collect();
        let lead = format!("The skill {} needs setup:", shortened(&skill.name, MAX_LABEL_BYTES));
        let rest = format!(" {}, so the agent is not offered it.", missing_words(&missing));
        let mut fixes: Vec<String> = Vec::new();
        // How variables are set is a sentence, which the viber's page has.
        for fix in missing.iter().filter(|check| check.kind != "env").filter_map(|check| check.fix.as_deref()) {
            let fix = shortened(fix, MAX_FIX_BYTES);
            if !fixes.contains(&fix) {
                fixes.push(fix);
            }
        }
        Fact { fixes, ..Fact::new("wait", "key", lead, rest).linked(page.to_owned(), "Its page") }
    };
    let mut facts: Vec<Fact> = needy.iter().take(MAX_NEEDY_SKILLS).map(of).collect();
    let more = needy.len().saturating_sub(MAX_NEEDY_SKILLS);
    if more > 0 {
        let lead = format!("{more} more {}", if more == 1 { "skill needs setup." } else { "skills need setup." });
        facts.push(Fact::new("wait", "key", lead, "").linked(page.to_owned(), "All of them"));
    }
    facts
}

/// `git, the variable GH_TOKEN and jq are missing`.
fn missing_words(missing: &[&SkillCheck]) -> String {
    let name = |check: &&SkillCheck| {
        let label = shortened(&check.label, MAX_LABEL_BYTES);
        match check.kind.as_str() {
            "env" => format!("the variable {label}"),
            "os" => format!("a machine with {label}"),
            _ => label,
        }
    };
    let names: Vec<String> = missing.iter().map(name).collect();
    match names.as_slice() {
        [] => "something is missing on the machine".to_owned(),
        [one] => format!("{one} is missing"),
        [some @ .., last] => format!("{} and {last} are missing", some.join(", ")),
    }
}

/// A text of somebody else's, with what does not show marked.
fn shortened(text: &str, max: usize) -> String {
    let kept = protocol::text::head(text, max);
    let end = if kept.len() < text.len() { "…" } else { "" };
    format!("{}{end}", marked(kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skill(name: &str, agents: &[&str]) -> SkillInfo {
        SkillInfo {
            name: name.to_owned(),
            description: format!("Does {name}"),
            path: format!("skills/{name}"),
            agents: agents.iter().map(|id| (*id).to_owned()).collect(),
            ..SkillInfo::default()
        }
    }

    fn lacking(name: &str, checks: &[(&str, &str, Option<&str>)]) -> SkillInfo {
        let check = |(kind, label, fix): &(&str, &str, Option<&str>)| SkillCheck {
            kind: (*kind).to_owned(),
            label: (*label).to_owned(),
            ok: false,
            fix: fix.map(str::to_owned),
        };
        let there = SkillCheck { label: "sh".to_owned(), ok: true, ..SkillCheck::default() };
        let checks = std::iter::once(there).chain(checks.iter().map(check)).collect();
        SkillInfo { state: SkillState::NeedsSetup, checks, ..skill(name, &[]) }
    }

    fn agent(skills: &[&str]) -> AgentInfo {
        let skills = skills.iter().map(|name| (*name).to_owned()).collect();
        AgentInfo {
            id: "default".to_owned(),
            skills,
            spaces: vec!["/home/mia/shop".to_owned()],
            ..AgentInfo::default()
        }
    }

    #[test]
    fn a_message_begins_with_what_its_agent_is_offered() {
        let quiet = SkillInfo { agents_only: true, ..skill("quiet", &["default"]) };
        let broken = SkillInfo { state: SkillState::Modified, ..skill("changed", &["default"]) };
        let long = SkillInfo { description: "x".repeat(200), ..skill("long", &["default"]) };
        let all = [
            skill("release", &["other", "default"]),
            quiet,
            broken,
            long,
            skill("notes", &["other"]),
            skill("<b>", &["default"]),
        ];
        let words = words(&all, "default");
        let named: Vec<_> = words.iter().map(|word| word.word.as_str()).collect();
        assert_eq!(named, ["/long", "/release"]);
        assert_eq!(words[0].effect, format!("{}…", "x".repeat(120)));
        assert_eq!(words[1].effect, "Does release");
    }

    #[test]
    fn what_is_missing_is_said_with_what_mends_it() {
        let checks = [
            ("bin", "gh", Some("apt install gh")),
            ("env", "GH_TOKEN", Some("set GH_TOKEN for the daemon")),
            ("bin", "jq", Some("apt install gh")),
        ];
        let all = [lacking("release", &checks), lacking("notes", &[]), skill("ready", &["default"])];
        let told = facts(&needy(&all, &agent(&["release"])), "/t/home/vibers/x#skills");
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].lead, "The skill release needs setup:");
        assert_eq!(told[0].rest, " gh, the variable GH_TOKEN and jq are missing, so the agent is not offered it.");
        assert_eq!(told[0].fixes, ["apt install gh"], "commands alone");
        let all: Vec<SkillInfo> = (0..5).map(|n| lacking(&format!("s{n}"), &[("os", "darwin", None)])).collect();
        let told = facts(&needy(&all, &agent(&["*"])), "");
        assert_eq!((told.len(), told[3].lead.as_str()), (4, "2 more skills need setup."));
        assert_eq!(told[0].rest, " a machine with darwin is missing, so the agent is not offered it.");
    }

    #[test]
    fn only_what_the_agent_would_have_is_needed() {
        let in_space =
            |path: &str| SkillInfo { scope: SkillScope::Space, path: path.to_owned(), ..lacking("in-space", &[]) };
        let own = |id: &str| SkillInfo {
            scope: SkillScope::Agent,
            path: format!("agents/{id}/skills/own"),
            ..lacking("own", &[])
        };
        for (all, names) in [
            (vec![lacking("one", &[])], vec!["one"]),
            (vec![lacking("one", &[]), skill("one", &["default"])], vec![]),
            (vec![own("default"), own("other")], vec!["own"]),
            (vec![own("other")], vec![]),
            (vec![in_space("/home/mia/shop/.agents/skills/x")], vec!["in-space"]),
            (vec![in_space("/home/mia/shop2/.agents/skills/x")], vec![]),
        ] {
            let found: Vec<&str> = needy(&all, &agent(&["*"])).iter().map(|skill| skill.name.as_str()).collect();
            assert_eq!(found, names, "{all:?}");
        }
        assert!(needy(&[lacking("one", &[])], &agent(&[])).is_empty(), "an agent without skills lacks none");
    }
}
