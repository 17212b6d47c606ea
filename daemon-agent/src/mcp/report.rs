//! What is reported of the servers, as much of it as fits.

use protocol::{McpServerInfo, McpState};

use super::{
    McpServers, offered,
    pins::{MAX_REPORTED_DIFF_BYTES, PinnedTools},
};
use crate::config::{ConfigSnapshot, McpUse};

/// Most bytes that the report takes, as JSON: it fits a frame beside everything else.
const MAX_REPORT_BYTES: usize = 40 * 1024;
/// Longest error, and longest name of a tool, in it, bytes.
const MAX_ERROR_BYTES: usize = 600;
/// Agents and tools that are named of one server.
const MAX_NAMED_AGENTS: usize = 20;
const MAX_NAMED_TOOLS: usize = 200;

impl McpServers {
    /// Every configured server. Reads the disk once for each.
    pub fn report(&self) -> Vec<McpServerInfo> {
        let files = self.shared.files.borrow().clone();
        let mut room = MAX_REPORT_BYTES;
        let mut reported = Vec::new();
        for name in files.config.mcp.keys() {
            let mut info = self.info(name, &files, MAX_REPORTED_DIFF_BYTES);
            let size = |info: &McpServerInfo| serde_json::to_string(info).map_or(usize::MAX, |json| json.len());
            if size(&info) > room {
                info = self.info(name, &files, 0);
                info.tools.clear();
            }
            room = room.saturating_sub(size(&info));
            reported.push(info);
        }
        reported
    }

    /// One server, with at most so many bytes of how its tools changed.
    fn info(&self, name: &str, files: &ConfigSnapshot, most_bytes: usize) -> McpServerInfo {
        let pinned = self.pinned(name);
        let health = self.health().get(name).cloned().unwrap_or_default();
        let server = files.config.mcp.get(name);
        let problem = server.and_then(|server| server.problem.clone());
        let state = match (&problem, &pinned.pending) {
            (Some(_), _) => McpState::Failed,
            (None, Some(_)) => McpState::Changed,
            (None, None) => health.state,
        };
        let users = files.agents.values().filter_map(|agent| agent.as_ref().ok());
        let users = users.filter(|agent| agent.mcp.iter().any(|used| used.server == name));
        let error = problem.or(health.error).map(|error| protocol::text::head(&error, MAX_ERROR_BYTES).to_owned());
        McpServerInfo {
            name: name.to_owned(),
            kind: server.map(|server| server.kind()).unwrap_or_default(),
            state,
            hash: pinned.allowed.as_ref().map(|list| list.hash.clone()),
            tools: tool_names(name, &pinned),
            version: pinned.version.clone(),
            revision: pinned.revision.clone(),
            error,
            since: health.since,
            agents: users.map(|agent| agent.id.clone()).take(MAX_NAMED_AGENTS).collect(),
            change: pinned.change(most_bytes),
        }
    }

    /// How the tools of a server changed, all of it; `None` if they did not.
    pub fn whole_change(&self, name: &str) -> Option<protocol::McpChange> {
        self.pinned(name).change(usize::MAX)
    }
}

fn tool_names(server: &str, pinned: &PinnedTools) -> Vec<String> {
    let whole = McpUse { server: server.to_owned(), tools: None };
    let tools = pinned.allowed.iter().flat_map(|list| offered(&whole, list));
    tools.map(|tool| tool.name).take(MAX_NAMED_TOOLS).collect()
}
