//! Tools that are called as tasks of MCP alone, which are not supported here. The protocol's library reads past what says so
//! (`execution.taskSupport`, revision 2025-11-25), so it is looked for in what arrives.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use serde::Deserialize;
use serde_json::{Value, json};

/// Longest message that is looked at, bytes: a longer list of tools is refused.
pub const MAX_LOOKED_BYTES: usize = 4 * 1024 * 1024;
/// Stands in every list of tools.
const MARK: &str = "\"inputSchema\"";
/// Names that are kept of one server, and the longest of them, bytes: a server could send ever other ones.
const MAX_NAMES: usize = 4_096;
const MAX_NAME_BYTES: usize = 512;

/// The names of such tools of one server.
#[derive(Debug, Default)]
pub struct TaskTools(Mutex<BTreeSet<String>>);

#[derive(Deserialize)]
struct Message {
    result: Listed,
}

#[derive(Deserialize)]
struct Listed {
    tools: Vec<ListedTool>,
}

#[derive(Deserialize)]
struct ListedTool {
    name: String,
    #[serde(default)]
    execution: Value,
}

impl TaskTools {
    /// Looks at a message of the server, as JSON.
    pub fn look(&self, message: &[u8]) {
        let is_short = message.len() <= MAX_LOOKED_BYTES;
        let is_list = is_short && str::from_utf8(message).is_ok_and(|text| text.contains(MARK));
        let listed = is_list.then(|| serde_json::from_slice::<Message>(message).ok()).flatten();
        let Some(Message { result: Listed { tools } }) = listed else { return };
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for tool in tools {
            if tool.execution["taskSupport"] != "required" {
                names.remove(&tool.name);
            } else if names.len() < MAX_NAMES && tool.name.len() <= MAX_NAME_BYTES {
                names.insert(tool.name);
            }
        }
    }

    /// Says it again of those among these tools.
    pub fn mark(&self, tools: &mut [Value]) {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_one = |tool: &Value| tool["name"].as_str().is_some_and(|name| names.contains(name));
        for tool in tools.iter_mut().filter(|tool| is_one(tool)) {
            tool["execution"] = json!({ "taskSupport": "required" });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_library_reads_past_is_said_again() {
        let known = TaskTools::default();
        let listed = |support: &str| {
            let tool = |name: &str, support: &str| json!({ "name": name, "inputSchema": {}, "execution": { "taskSupport": support } });
            json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": [tool("long", support), tool("short", "optional")] } })
        };
        let marked = || {
            let mut tools = ["long", "short"].map(|name| json!({ "name": name }));
            known.mark(&mut tools);
            tools.map(|tool| tool["execution"]["taskSupport"] == "required")
        };
        known.look(listed("required").to_string().as_bytes());
        assert_eq!(marked(), [true, false]);
        known.look(b"{\"result\":{\"content\":\"\\\"inputSchema\\\"\"}}");
        known.look(b"\xff");
        assert_eq!(marked(), [true, false]);
        known.look(listed("forbidden").to_string().as_bytes());
        assert_eq!(marked(), [false, false], "it is another list by now");
    }
    #[test]
    fn few_and_short_names_are_kept_whatever_is_sent() {
        let known = TaskTools::default();
        let look = |names: &[String]| {
            let tool =
                |name: &String| json!({ "name": name, "inputSchema": {}, "execution": { "taskSupport": "required" } });
            let tools: Vec<Value> = names.iter().map(tool).collect();
            known.look(json!({ "result": { "tools": tools } }).to_string().as_bytes());
            let names = known.0.lock().expect("no test panics with it");
            names.iter().map(String::len).sum::<usize>()
        };
        assert_eq!(look(&["x".repeat(MAX_NAME_BYTES), "y".repeat(MAX_NAME_BYTES + 1)]), MAX_NAME_BYTES);
        let many: Vec<String> = (0..2 * MAX_NAMES).map(|n| format!("{n:08}")).collect();
        assert_eq!(look(&many), MAX_NAME_BYTES + (MAX_NAMES - 1) * 8);
    }
}
