//! Agents to begin with: files that `agents add` writes, for people to change.

use std::{io, path::PathBuf};

use protocol::agent::is_id;

use crate::home::{Home, replace_text};

/// An agent to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentTemplate {
    pub name: &'static str,
    /// What it is good for, in a line.
    pub about: &'static str,
    text: &'static str,
    /// What else it needs, in a sentence; empty: nothing.
    pub needs: &'static str,
}

/// All of them.
pub const TEMPLATES: &[AgentTemplate] = &[
    AgentTemplate {
        name: "coder",
        about: "Does coding work in the declared spaces",
        text: "name: Coder\ndescription: Does coding work in the declared spaces\n# model: anthropic/claude-sonnet-4-5   # provider/model; without one the machine's default\nmaxSteps: 25\nmode: always_execute\ntools: [file, search, shell, plan, artifact, memory, ask]\n# spaces: [~/code/my-project]         # folders it may work in; the workspace when there is none\n",
        needs: "",
    },
    AgentTemplate {
        name: "triage",
        about: "Reads what is asked for and gives each part to the agent that is good at it",
        text: "name: Triage\ndescription: Reads what is asked for and gives each part to the agent that is good at it\nmaxSteps: 25\nmode: always_execute\ntools: [search, read_file, plan, artifact, ask, mesh]\ndelegates: [coder, reviewer]          # whom it may call: agents of this machine, agent@viber, \"agent@label=value\"\nlimits: { tokens: 2000000, onLimit: pause } # for it and all that it asks for together\nsystemPrompt: |\n  You do no work on files yourself. Find out what is asked for, split it into parts that do not depend on each\n  other, and give each to an agent with list_agents and delegate. Say in each goal all that the agent has to know:\n  it does not see this conversation. Judge what comes back before you pass it on.\n",
        needs: "The agents under `delegates:` have to exist: daemon-agent agents add coder",
    },
    AgentTemplate {
        name: "reviewer",
        about: "Reads changes and says what is wrong with them; changes nothing",
        text: "name: Reviewer\ndescription: Reads changes and says what is wrong with them; changes nothing\nmaxSteps: 25\nmode: always_execute\ntools: [read_file, list_files, search, artifact, ask]\n# spaces: [~/code/my-project]\nsystemPrompt: |\n  Review what you are given. Name each finding with its file and line, what goes wrong, and how bad that is. Say so\n  if there is none.\n",
        needs: "",
    },
    AgentTemplate {
        name: "browser",
        about: "Uses a browser through an MCP server",
        text: "name: Browser\ndescription: Uses a browser through an MCP server\nmaxSteps: 40\nmode: viber_decides\ntools: [artifact, ask]\nmcp: [browser]\n",
        needs: "An MCP server with the name browser under `mcp:` in config.yaml, such as: browser: { command: npx, args: \
                [-y, \"@playwright/mcp\", --headless] }",
    },
];

/// Why an agent was not added.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    #[error("there is no template {0:?}; there are: {1}")]
    Unknown(String, String),
    #[error("{0:?} is not an agent's id: letters, digits, - and _")]
    BadId(String),
    #[error("an agent {0:?} is there already: name another with --id")]
    Taken(String),
    #[error("its file cannot be written: {0}")]
    Io(#[from] io::Error),
}

/// Writes the file of a new agent; one that is there is never changed. Returns the file and the template.
pub fn add(home: &Home, template: &str, id: Option<&str>) -> Result<(PathBuf, AgentTemplate), TemplateError> {
    let Some(found) = TEMPLATES.iter().find(|known| known.name == template) else {
        let known: Vec<&str> = TEMPLATES.iter().map(|known| known.name).collect();
        return Err(TemplateError::Unknown(protocol::text::head(template, 64).to_owned(), known.join(", ")));
    };
    let id = id.unwrap_or(found.name);
    if !is_id(id) {
        return Err(TemplateError::BadId(protocol::text::head(id, 64).to_owned()));
    }
    let path = home.agents().join(format!("{id}.yaml"));
    let other = path.with_extension("yml");
    if other.exists() || !replace_text(&path, None, found.text)? {
        return Err(TemplateError::Taken(id.to_owned()));
    }
    Ok((path, *found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigSnapshot, Variables, toolset::MESH_TOOLS};

    #[test]
    fn every_template_is_a_sound_agent_and_none_is_written_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        for template in TEMPLATES {
            let (path, _) = add(&home, template.name, None).expect(template.name);
            let mine = std::fs::read_to_string(&path).expect("text") + "# mine\n";
            std::fs::write(&path, &mine).expect("written");
            assert!(matches!(add(&home, template.name, None), Err(TemplateError::Taken(_))));
            assert_eq!(std::fs::read_to_string(&path).expect("text"), mine);
            let agent = ConfigSnapshot::read(&home, &Variables::default()).agent(template.name);
            let agent = agent.expect("there").expect(template.name);
            let reaches = agent.tools.iter().any(|tool| MESH_TOOLS.contains(&tool.as_str()));
            assert_eq!(reaches, template.name == "triage", "only who may call somebody is given the tools for it");
            assert_eq!(agent.limits.cost_usd, None, "a model without a price can do it");
        }
        assert!(add(&home, "coder", Some("second")).is_ok());
        assert!(matches!(add(&home, "coder", Some("../second")), Err(TemplateError::BadId(_))));
        assert!(matches!(add(&home, "painter", None), Err(TemplateError::Unknown(..))));
    }
}
