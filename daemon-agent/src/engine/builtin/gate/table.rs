//! The table of `viber_decides`, and what could go wrong with a call: by tool, command and path.

use std::{path::Path, sync::LazyLock};

use protocol::{
    mcp::mcp_server_of,
    rules::{CallSubject, ProposedCall, Rule, RuleSet, judge, programs_of},
};

use crate::{
    config::toolset::MESH_TOOLS,
    sandbox::Network,
    tools::{CallProposal, FileArea, ProposalSubject, ProposedFile},
};

/// Commands that only look, whatever words follow them but [`WRITING_OPTIONS`].
const LOOKING_PROGRAMS: &[&str] = &[
    "basename", "cat", "cut", "df", "diff", "dirname", "du", "grep", "head", "id", "ls", "nl", "ps", "realpath",
    "stat", "tail", "uname", "wc", "which", "whoami",
];
/// Commands of git that only look, and run no program that a repository's configuration names (as `status` does with
/// `core.fsmonitor`, `diff` with `diff.external`, `log` with `gpg.program`). They are run where `.git` lies: in any other folder,
/// files that an agent wrote could be taken for a repository.
const LOOKING_GIT_COMMANDS: &[&str] = &["rev-parse"];
/// Commands without any further word.
const LOOKING_LINES: &[&str] = &["pwd", "date", "true", "git branch", "git remote -v"];
/// Beginnings of options with which one of these would write a file or run a program. Git takes shortened ones.
const WRITING_OPTIONS: &[&str] = &["--ou", "--ext"];

/// Files that tell people's tools, or agents, what to do, by their names. So do all whose names begin with a dot.
const CONFIGURATION_NAMES: &[&str] = &[
    "AGENTS.md",
    "CLAUDE.md",
    "GEMINI.md",
    "IDENTITY.md",
    "MEMORY.md",
    "SOUL.md",
    "TOOLS.md",
    "USER.md",
    "Jenkinsfile",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
];

static LOOKING_RULES: LazyLock<RuleSet> = LazyLock::new(|| {
    let further = LOOKING_PROGRAMS.iter().map(|name| format!("shell({name} **)"));
    let git = LOOKING_GIT_COMMANDS.iter().map(|name| format!("shell(git {name} **)"));
    let alone = LOOKING_LINES.iter().map(|line| format!("shell({line})"));
    let rules = further.chain(git).chain(alone).filter_map(|text| Rule::read(&text).ok());
    RuleSet { allow: rules.collect(), ..RuleSet::default() }
});

/// Why `viber_decides` asks about a call of a tool that changes something; `None` if it does not.
pub fn objection(tool: &str, proposal: &CallProposal) -> Option<&'static str> {
    match &proposal.subject {
        ProposalSubject::Command(line) if only_looks(tool, line, &proposal.cwd) => None,
        ProposalSubject::Command(_) => Some("a command that may change something"),
        ProposalSubject::File(file) => match file.area {
            FileArea::Session => None,
            FileArea::Elsewhere => Some("a file outside of the agent's spaces"),
            FileArea::Space if is_configuration(file) => Some("a file that configures tools or agents"),
            FileArea::Space => None,
        },
        // What another agent does is asked about where it does it.
        ProposalSubject::Other if MESH_TOOLS.contains(&tool) => None,
        ProposalSubject::Other => Some("a tool that may change something"),
    }
}

/// Whether a command is a simple one that reads and prints. The words are taken apart by the same reader as for rules.
fn only_looks(tool: &str, line: &str, cwd: &Path) -> bool {
    // Without quotes and the like, what stands between the spaces are the words themselves. A pattern for names of files
    // could stand for an option: an agent may have made a file of that name.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || " _-./:@%+,=^~".contains(c);
    let call = ProposedCall { tool, subject: CallSubject::Command(line) };
    let mut words = line.split_whitespace();
    let is_git = words.clone().next() == Some("git");
    line.chars().all(is_plain)
        && judge([&*LOOKING_RULES], &call).is_some()
        && !words.any(|word| WRITING_OPTIONS.iter().any(|option| word.starts_with(option)))
        && (!is_git || cwd.join(".git").symlink_metadata().is_ok())
}

/// Whether git would run in no repository, or in what an agent's files make look like one: its configuration names programs.
pub fn is_git_of_no_repository(proposal: &CallProposal) -> bool {
    let ProposalSubject::Command(line) = &proposal.subject else { return false };
    let is_git = |words: &Vec<String>| words.first().is_some_and(|name| name.rsplit('/').next() == Some("git"));
    programs_of(line).iter().any(is_git) && !is_in_repository(&proposal.cwd)
}

/// Whether git finds a folder `.git` from here upwards before anything that it takes for a repository without one.
fn is_in_repository(folder: &Path) -> bool {
    let is_there = |folder: &Path, name: &str| folder.join(name).symlink_metadata().is_ok();
    let marks = |folder: &&Path| is_there(folder, ".git") || is_there(folder, "HEAD") && is_there(folder, "objects");
    folder.ancestors().find(marks).is_some_and(|found| is_there(found, ".git"))
}

pub fn is_configuration(file: &ProposedFile) -> bool {
    let path = file.inside.as_deref().unwrap_or(&file.absolute);
    let name = path.rsplit('/').next().unwrap_or_default();
    path.split('/').any(|part| part.starts_with('.'))
        || CONFIGURATION_NAMES.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// What could go wrong, one sentence.
pub fn risk(tool: &str, proposal: &CallProposal, network: Network) -> String {
    let sentence = match &proposal.subject {
        ProposalSubject::Command(line) if only_looks(tool, line, &proposal.cwd) => {
            "The command reads and prints; what it prints goes to the model."
        }
        ProposalSubject::Command(_) => match network {
            Network::None => "The command may change or delete files in the spaces and the workspace.",
            Network::Open => {
                "The command may change or delete files in the spaces and the workspace, and send data over the network."
            }
        },
        ProposalSubject::File(file) if !proposal.files.is_empty() => {
            match (is_configuration(file), file.area, proposal.files.iter().any(|file| file.hash.is_some())) {
                (true, ..) => "The file tells tools or agents what to do: what is written there may be run later.",
                (false, FileArea::Elsewhere, _) => {
                    "The file lies in the workspace, which all agents of this viber share."
                }
                (false, _, true) => "What the file says now is replaced as shown.",
                (false, _, false) => "A new file is made.",
            }
        }
        ProposalSubject::File(_) => "What is read goes to the model.",
        ProposalSubject::Other if MESH_TOOLS.contains(&tool) => {
            "Another agent is asked: what it does, it does with its own rules and its own sandbox."
        }
        ProposalSubject::Other if mcp_server_of(tool).is_some() => {
            "An MCP server gets these arguments; what it does with them is not known here, whatever it says about itself."
        }
        ProposalSubject::Other => "The tool is called with these arguments.",
    };
    sentence.to_owned()
}
