//! What is reported of the servers, as much of it as fits.

use protocol::{McpServerInfo, McpState};

use super::{McpServers, known::KnownTools};
use crate::config::ConfigSnapshot;

/// Most bytes that the report takes, as JSON: it fits a frame beside everything else.
const MAX_REPORT_BYTES: usize = 56 * 1024;
/// Bytes of it that each server has, whatever the others take: its name, state and hashes.
const MIN_SERVER_BYTES: usize = 400;
/// Longest error, and longest name of a tool, in it, bytes.
const MAX_ERROR_BYTES: usize = 600;
/// Agents and tools that are named of one server.
const MAX_NAMED_AGENTS: usize = 20;
const MAX_NAMED_TOOLS: usize = 200;

impl McpServers {
    /// Every configured server. Reads the disk once for each.
    pub fn report(&self) -> Vec<McpServerInfo> {
        let files = self.shared.files.borrow().clone();
        let all: Vec<_> = files.config.mcp.keys().map(|name| self.info(name, &files)).collect();
        fitted(all, MAX_REPORT_BYTES)
    }

    fn info(&self, name: &str, files: &ConfigSnapshot) -> McpServerInfo {
        let known = self.known(name);
        let health = self.health().get(name).cloned().unwrap_or_default();
        let server = files.config.mcp.get(name);
        let problem = server.and_then(|server| server.problem.clone());
        let state = match (&problem, &known.pinned.pending) {
            (Some(_), _) => McpState::Failed,
            (None, Some(_)) => McpState::Changed,
            (None, None) => health.state,
        };
        let users = files.agents.values().filter_map(|agent| agent.as_ref().ok());
        let users = users.filter(|agent| agent.mcp.iter().any(|used| used.server == name));
        let error = problem.or(health.error).or_else(|| not_offered(&known));
        McpServerInfo {
            name: name.to_owned(),
            kind: server.map(|server| server.kind()).unwrap_or_default(),
            state,
            hash: known.pinned.allowed.as_ref().map(|list| list.hash.clone()),
            tools: known.tools.iter().map(|tool| tool.name.clone()).take(MAX_NAMED_TOOLS).collect(),
            version: known.pinned.version.clone(),
            revision: known.pinned.revision.clone(),
            error: error.map(|error| protocol::text::head(&error, MAX_ERROR_BYTES).to_owned()),
            since: health.since,
            agents: users.map(|agent| agent.id.clone()).take(MAX_NAMED_AGENTS).collect(),
            change: known.change(),
        }
    }

    /// How the tools of a server changed, all of it; `None` if they did not.
    pub fn whole_change(&self, name: &str) -> Option<protocol::McpChange> {
        self.known(name).pinned.change(usize::MAX)
    }
}

/// Which tools no agent is offered, and why.
fn not_offered(known: &KnownTools) -> Option<String> {
    let told = |count: usize, one: &str, many: &str| match count {
        0 => None,
        1 => Some(format!("1 of its tools is not offered: {one}")),
        more => Some(format!("{more} of its tools are not offered: {many}")),
    };
    let why = [
        told(known.left_out, "its schema is too long", "their schemas are too long"),
        told(
            known.need_tasks,
            "it is called as an MCP task, which is not supported",
            "they are called as MCP tasks, which are not supported",
        ),
    ];
    let why: Vec<String> = why.into_iter().flatten().collect();
    (!why.is_empty()).then(|| why.join("; "))
}

/// The report within so many bytes: what does not fit loses its tools and its differences first, then all but how it fares.
fn fitted(all: Vec<McpServerInfo>, most: usize) -> Vec<McpServerInfo> {
    let size = |info: &McpServerInfo| serde_json::to_string(info).map_or(usize::MAX, |json| json.len());
    // What every server has room for is kept free for those that follow.
    let mut room = most.saturating_sub(all.len() * MIN_SERVER_BYTES);
    let steps: [fn(&mut McpServerInfo); 3] = [|_| {}, without_lists, bare];
    let fit = |mut info: McpServerInfo| {
        for shorten in steps {
            shorten(&mut info);
            let more = size(&info).saturating_sub(MIN_SERVER_BYTES);
            if more <= room {
                room -= more;
                break;
            }
        }
        info
    };
    all.into_iter().map(fit).collect()
}

fn without_lists(info: &mut McpServerInfo) {
    info.tools.clear();
    if let Some(change) = &mut info.change {
        change.diff.clear();
        change.is_cut = true;
    }
}

fn bare(info: &mut McpServerInfo) {
    info.agents.clear();
    (info.version, info.revision, info.error) = (None, None, None);
    if let Some(change) = &mut info.change {
        [&mut change.added, &mut change.removed, &mut change.changed].into_iter().for_each(Vec::clear);
    }
}

#[cfg(test)]
mod tests {
    use protocol::McpChange;

    use super::*;

    #[test]
    fn a_report_fits_however_much_servers_say() {
        let change = McpChange {
            hash: "c".repeat(64),
            added: vec!["n".repeat(100); 50],
            diff: "d".repeat(8_000),
            ..McpChange::default()
        };
        let server = |n: usize| McpServerInfo {
            name: format!("server-{n}"),
            hash: Some("a".repeat(64)),
            tools: vec!["mcp__a__".repeat(8); 200],
            error: Some("e".repeat(MAX_ERROR_BYTES)),
            agents: vec!["a".repeat(60); MAX_NAMED_AGENTS],
            change: Some(change.clone()),
            ..McpServerInfo::default()
        };
        let all: Vec<_> = (0..100).map(server).collect();
        let shown = fitted(all.clone(), MAX_REPORT_BYTES);
        let size = serde_json::to_string(&shown).expect("JSON").len();
        assert!(size <= MAX_REPORT_BYTES + shown.len(), "{size} bytes");
        assert_eq!(shown.len(), 100);
        assert!(shown.iter().all(|info| info.hash.is_some() && info.change.is_some()), "how each fares");
        assert_eq!(fitted(all[..1].to_vec(), MAX_REPORT_BYTES), all[..1], "one has all of it");
    }
}
