//! The names that an agent's `tools:` may contain: single tools and groups of them.

/// Every available tool, in the order in which they are offered.
pub const ALL_TOOLS: &[&str] = &[
    "read_file",
    "write_file",
    "edit_file",
    "list_files",
    "glob",
    "grep",
    "shell",
    "read_output",
    "update_plan",
    "add_artifact",
    "remember",
    "search_memory",
    "ask_operator",
    "list_agents",
    "delegate",
    "check_task",
    "message_agent",
    "stop_task",
];

/// Groups by name. Groups whose tools do not exist yet are known too, so that a file that names them stays valid.
const TOOL_GROUPS: &[(&str, &[&str])] = &[
    ("file", &["read_file", "write_file", "edit_file", "list_files"]),
    ("search", &["glob", "grep"]),
    ("shell", &["shell"]),
    ("plan", &["update_plan"]),
    ("artifact", &["add_artifact"]),
    ("memory", &["remember", "search_memory"]),
    ("ask", &["ask_operator"]),
    ("mesh", MESH_TOOLS),
    ("schedule", &["create_scheduled_job"]),
    ("notify", &["notify"]),
];

/// The tools with which an agent has others do a part of its work. They are offered to whoever may call somebody.
pub const MESH_TOOLS: &[&str] = &["list_agents", DELEGATE, CHECK_TASK, MESSAGE_AGENT, "stop_task"];
/// The tool that has another agent do something.
pub const DELEGATE: &str = "delegate";
/// The tool that asks how far that is.
pub const CHECK_TASK: &str = "check_task";
/// The tool that says something to another agent; also of agents that were called.
pub const MESSAGE_AGENT: &str = "message_agent";

/// Tools of every agent that has any: they read what its own calls answered, and belong to no group.
const IMPLIED_TOOLS: &[&str] = &["read_output"];

/// The tool of every agent that has skills, whatever its `tools:` say.
pub const LOAD_SKILL: &str = "load_skill";

/// The tools of a task that supervises the run of a playbook, whatever its agent's `tools:` say. No list and no rule names them:
/// the Board decides about each call.
pub const SUPERVISOR_TOOLS: &[&str] = &["run_step", "add_step", "skip_step", "finish"];

/// Tools that a supervisor is not offered though its agent has them: work is done by steps, at whose gates people decide.
pub const STEPS_ONLY_TOOLS: &[&str] = &["write_file", "edit_file", "shell", "add_artifact"];

/// What a `tools:` list means today.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpandedTools {
    /// Available tools, each once, in the order of [`ALL_TOOLS`].
    pub tools: Vec<String>,
    /// Entries of the list, as written, that name only tools which do not exist yet.
    pub not_in_effect: Vec<String>,
}

/// Expands the groups in `names`. An unknown name is an error: one sentence with the name and the known ones.
pub fn open_groups(names: &[String]) -> Result<ExpandedTools, String> {
    let mut wanted: Vec<&str> = Vec::new();
    let mut not_in_effect = Vec::new();
    for name in names {
        let tools = tools_of(name).ok_or_else(|| unknown(name))?;
        let built: Vec<_> = tools.into_iter().filter(|tool| ALL_TOOLS.contains(tool)).collect();
        if built.is_empty() && !not_in_effect.contains(name) {
            not_in_effect.push(name.clone());
        }
        wanted.extend(built);
    }
    if !wanted.is_empty() {
        wanted.extend(IMPLIED_TOOLS);
    }
    let tools = ALL_TOOLS.iter().filter(|tool| wanted.contains(tool)).map(|tool| (*tool).to_owned()).collect();
    Ok(ExpandedTools { tools, not_in_effect })
}

/// The sentence for a name that is neither a tool nor a group.
pub fn unknown(name: &str) -> String {
    let groups: Vec<_> = TOOL_GROUPS.iter().map(|(group, _)| *group).collect();
    format!("no tool or group is called {name:?}; groups: {}; tools: {}", groups.join(", "), ALL_TOOLS.join(", "))
}

/// The tools of a group, or the one tool of this name, whether or not they exist yet; `None` for an unknown name.
pub fn tools_of(name: &str) -> Option<Vec<&str>> {
    if let Some((_, tools)) = TOOL_GROUPS.iter().find(|(group, _)| *group == name) {
        return Some(tools.to_vec());
    }
    let single = IMPLIED_TOOLS.contains(&name)
        || name == LOAD_SKILL
        || TOOL_GROUPS.iter().any(|(_, tools)| tools.contains(&name));
    single.then(|| vec![name])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn groups_and_single_tools_open_in_the_offered_order_once() {
        let opened = open_groups(&names(&["shell", "file", "plan", "read_file", "notify"])).expect("known names");
        let tools = ["read_file", "write_file", "edit_file", "list_files", "shell", "read_output", "update_plan"];
        assert_eq!(opened.tools, tools);
        assert_eq!(opened.not_in_effect, ["notify"]);
        assert!(open_groups(&names(&["notify"])).expect("known").tools.is_empty(), "nothing to read the results of");
    }

    #[test]
    fn an_unknown_name_is_told_with_what_is_known() {
        let error = open_groups(&names(&["file", "fiel"])).expect_err("a typing error");
        assert!(error.contains("\"fiel\"") && error.contains("search") && error.contains("read_file"), "{error}");
    }

    #[test]
    fn every_built_tool_is_reached_by_a_group_or_implied() {
        let groups: Vec<_> = TOOL_GROUPS.iter().map(|(group, _)| (*group).to_owned()).collect();
        assert_eq!(open_groups(&groups).expect("groups").tools, ALL_TOOLS);
    }
}
