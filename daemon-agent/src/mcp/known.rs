//! Tools as agents are offered them: those of the list of a server that people know.

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
};

use protocol::McpChange;
use serde_json::json;

use super::{
    json_text::JsonText,
    names,
    pins::{MAX_REPORTED_DIFF_BYTES, PinnedTools, ToolDefinition, ToolList},
};
use crate::config::McpUse;

/// Our own tool of a server that has resources.
const READ_RESOURCE: &str = "read_resource";
/// Longest schema of a tool that is offered, as JSON, bytes: a model reads it with every call.
const MAX_SCHEMA_BYTES: usize = 32 * 1024;

/// A tool of a server as an agent is offered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpTool {
    /// As a model calls it.
    pub name: String,
    pub server: String,
    /// The server's words.
    pub description: String,
    /// A JSON Schema.
    pub parameters: JsonText,
    pub(super) kind: ToolKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ToolKind {
    /// As the server names it.
    Call(String),
    ReadResource,
}

impl McpTool {
    /// The server's name for it, or ours.
    fn original(&self) -> &str {
        match &self.kind {
            ToolKind::Call(name) => name,
            ToolKind::ReadResource => READ_RESOURCE,
        }
    }
}

/// The tools that an agent is offered at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct McpTools(Arc<Vec<Arc<McpTool>>>);

impl McpTools {
    pub(super) fn new(all: Vec<Arc<McpTool>>) -> Self {
        Self(Arc::new(all))
    }

    /// All of them, server by server.
    pub fn all(&self) -> impl Iterator<Item = &McpTool> {
        self.0.iter().map(Arc::as_ref)
    }

    /// The one of this name.
    pub fn find(&self, name: &str) -> Option<&Arc<McpTool>> {
        self.0.iter().find(|tool| tool.name == name)
    }
}

/// What is known of a server's tools, made ready once for all who ask.
#[derive(Debug)]
pub(super) struct KnownTools {
    pub pinned: PinnedTools,
    /// Those of the list that may be offered, whether or not another one waits.
    pub tools: Vec<Arc<McpTool>>,
    /// How many of its tools are offered to nobody, because their schemas are too long.
    pub left_out: usize,
    /// How many are not, because they are called as tasks of MCP alone.
    pub need_tasks: usize,
    change: OnceLock<Option<McpChange>>,
}

impl KnownTools {
    pub fn of(server: &str, pinned: PinnedTools) -> Self {
        let definitions = pinned.allowed.iter().flat_map(|list| &list.tools);
        let tasks: BTreeSet<&str> = definitions.filter(|tool| tool.needs_task).map(|tool| tool.name.as_str()).collect();
        let needs_task = |tool: &McpTool| matches!(&tool.kind, ToolKind::Call(name) if tasks.contains(name.as_str()));
        let all = pinned.allowed.iter().flat_map(|list| tools_of(server, list));
        let all = all.filter(|tool| !needs_task(tool)).collect::<Vec<_>>();
        let (count, need_tasks) = (all.len(), tasks.len());
        let tools: Vec<_> = all.into_iter().filter(is_short).map(Arc::new).collect();
        Self { left_out: count - tools.len(), need_tasks, tools, change: OnceLock::new(), pinned }
    }

    /// The tools that an agent is offered: none while another list waits.
    pub fn offered<'k>(&'k self, used: &'k McpUse) -> impl Iterator<Item = &'k Arc<McpTool>> {
        let tools: &[_] = if self.pinned.offered().is_some() { &self.tools } else { &[] };
        let is_named = |tool: &str| used.tools.as_ref().is_none_or(|named| named.iter().any(|name| name == tool));
        tools.iter().filter(move |tool| is_named(tool.original()))
    }

    /// How the list that waits differs, as much of it as is reported. The first to ask takes a while.
    pub fn change(&self) -> Option<McpChange> {
        self.change.get_or_init(|| self.pinned.change(MAX_REPORTED_DIFF_BYTES)).clone()
    }
}

fn is_short(tool: &McpTool) -> bool {
    tool.parameters.as_str().len() <= MAX_SCHEMA_BYTES
}

/// The tools of a list, and ours if the server has resources.
fn tools_of(server: &str, list: &ToolList) -> Vec<McpTool> {
    let mut originals: Vec<&str> = list.tools.iter().map(|tool| tool.name.as_str()).collect();
    if list.has_resources {
        originals.push(READ_RESOURCE);
    }
    let mut definitions = list.tools.iter();
    let made = names::names(server, &originals).into_iter().map(|name| match definitions.next() {
        Some(definition) => called(server, name, definition),
        None => resource_reader(server, name),
    });
    made.collect()
}

fn called(server: &str, name: String, definition: &ToolDefinition) -> McpTool {
    let title = definition.title.iter().map(|title| format!("{title}. ")).collect::<String>();
    let parameters = match definition.input_schema.is_object() {
        true => definition.input_schema.clone(),
        false => JsonText::of(&json!({ "type": "object", "properties": {} })),
    };
    McpTool {
        name,
        server: server.to_owned(),
        description: format!("{title}{}", definition.description),
        parameters,
        kind: ToolKind::Call(definition.name.clone()),
    }
}

fn resource_reader(server: &str, name: String) -> McpTool {
    let parameters = JsonText::of(&json!({
        "type": "object",
        "properties": { "uri": { "type": "string", "description": "The address of a resource; without it they are listed." } },
    }));
    McpTool {
        name,
        server: server.to_owned(),
        description: format!("Reads a resource of the MCP server {server}, or lists its resources."),
        parameters,
        kind: ToolKind::ReadResource,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn known(tools: &[Value], has_resources: bool) -> KnownTools {
        let mut pinned = PinnedTools::default();
        pinned.listed(ToolList::of(tools, has_resources).expect("a list"));
        KnownTools::of("fs", pinned)
    }

    fn named(names: &[&str]) -> Vec<Value> {
        names.iter().map(|name| json!({ "name": name, "description": "d" })).collect()
    }

    fn names(known: &KnownTools, used: &McpUse) -> Vec<String> {
        known.offered(used).map(|tool| tool.name.clone()).collect()
    }

    #[test]
    fn an_agent_is_offered_what_its_file_names() {
        let whole = McpUse { server: "fs".to_owned(), tools: None };
        let two = known(&named(&["read", "write"]), true);
        assert_eq!(names(&two, &whole), ["mcp__fs__read", "mcp__fs__write", "mcp__fs__read_resource"]);
        let part = McpUse { tools: Some(vec!["write".to_owned()]), ..whole.clone() };
        assert_eq!(names(&two, &part), ["mcp__fs__write"]);
        let own = names(&known(&named(&["read_resource"]), true), &whole);
        assert_eq!((own.len(), own[0].as_str()), (2, "mcp__fs__read_resource"));
        assert!(own[1].starts_with("mcp__fs__read_resource_"), "{own:?}");
    }

    #[test]
    fn nothing_is_offered_while_another_list_waits() {
        let whole = McpUse { server: "fs".to_owned(), tools: None };
        let mut pinned = known(&named(&["read"]), false).pinned;
        pinned.listed(ToolList::of(&named(&["read", "rm"]), false).expect("a list"));
        let now = KnownTools::of("fs", pinned);
        assert_eq!((names(&now, &whole).len(), now.tools.len()), (0, 1));
        assert_eq!(now.change().expect("a change").added, ["rm"]);
    }

    #[test]
    fn a_tool_that_is_called_as_a_task_alone_is_left_out() {
        let tool = |support: &str| json!({ "name": support, "execution": { "taskSupport": support } });
        let all = known(&[tool("required"), tool("optional"), tool("forbidden")], false);
        let whole = McpUse { server: "fs".to_owned(), tools: None };
        assert_eq!(names(&all, &whole), ["mcp__fs__forbidden", "mcp__fs__optional"]);
        assert_eq!((all.need_tasks, all.left_out), (1, 0));
        // A list that was kept by a daemon that did not look is the same, and becomes this one.
        let plain = ["forbidden", "optional", "required"].map(|name| json!({ "name": name }));
        let mut before = known(&plain, false).pinned;
        assert!(before.listed(all.pinned.allowed.clone().expect("a list")));
        assert_eq!(KnownTools::of("fs", before).need_tasks, 1);
    }

    #[test]
    fn a_tool_without_a_schema_takes_an_object_and_one_with_a_book_is_left_out() {
        let book = json!({ "type": "object", "description": "x".repeat(MAX_SCHEMA_BYTES) });
        let known = known(&[json!({ "name": "a" }), json!({ "name": "b", "inputSchema": book })], false);
        assert_eq!((known.tools.len(), known.left_out), (1, 1));
        assert_eq!(known.tools[0].parameters.value()["type"], "object");
    }
}
