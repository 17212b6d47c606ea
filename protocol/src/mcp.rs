//! What a viber reports about the MCP servers that its agents use. How the tools of one are called is below.

use serde::{Deserialize, Serialize};

use crate::instant::Instant;

/// Among the capabilities of its hello: a daemon that takes `mcp:allow` and answers `mcp.list` and `mcp.test`.
pub const MCP_CAPABILITY: &str = "mcp";
/// What stands before the name of a server in the name of a tool: `mcp__NAME__tool`.
pub const MCP_PREFIX: &str = "mcp__";
/// Longest name of a server, bytes: it leaves room for those of tools.
pub const MAX_MCP_NAME_BYTES: usize = 32;

/// Whether a server can be called so: letters, digits, `-` and single `_`.
pub fn is_mcp_name(name: &str) -> bool {
    crate::agent::is_id(name) && name.len() <= MAX_MCP_NAME_BYTES && !name.contains("__") && !name.ends_with('_')
}

/// The server that a tool of this name belongs to; `None` if it is no server's.
pub fn mcp_server_of(tool: &str) -> Option<&str> {
    let (server, _) = tool.strip_prefix(MCP_PREFIX)?.split_once("__")?;
    Some(server).filter(|server| !server.is_empty())
}

/// One server as the viber knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct McpServerInfo {
    pub name: String,
    pub kind: McpKind,
    pub state: McpState,
    /// SHA-256 in hex of the list of tools that may be offered; absent until it was listed once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Names of these tools, as a model calls them.
    pub tools: Vec<String>,
    /// What the server calls itself, and its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The revision of the protocol that it speaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Why it cannot be used, or could not be used last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Since when its state is this one; absent: since the daemon's start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Instant>,
    /// Ids of the agents that use it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    /// The list that it has now, if that is another one. Nothing of it is offered until somebody allows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<McpChange>,
}

/// How a server is reached. One of a later version is `Http`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum McpKind {
    /// The daemon starts it, and talks to it through its standard input and output.
    Stdio,
    #[default]
    #[serde(other)]
    Http,
}

/// How a server fares. One of a later version is `Failed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum McpState {
    /// It is connected.
    Ready,
    /// It is started when it is needed.
    #[default]
    Idle,
    Starting,
    /// Its tools are not the ones that may be offered.
    Changed,
    /// Somebody has to sign in on the machine: `daemon-agent mcp login NAME`.
    AuthRequired,
    #[serde(other)]
    Failed,
}

impl McpState {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Idle => "idle",
            Self::Starting => "starting",
            Self::Changed => "changed",
            Self::AuthRequired => "auth_required",
            Self::Failed => "failed",
        }
    }
}

/// Another list of tools than the one that may be offered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct McpChange {
    /// Of the new list; whoever allows it names it.
    pub hash: String,
    pub added: Vec<String>,
    pub removed: Vec<String>,
    pub changed: Vec<String>,
    /// A unified diff of both lists as text: names, descriptions, schemas.
    pub diff: String,
    /// The diff is longer than what is reported: whoever wants to see all of it looks on the machine.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_servers_can_be_told_from_those_of_tools() {
        for good in ["fs", "my-wiki", "a_b", "x1"] {
            assert!(is_mcp_name(good), "{good}");
        }
        for bad in ["", "a__b", "a_", "_a", "a b", "a/b", &"n".repeat(33)] {
            assert!(!is_mcp_name(bad), "{bad}");
        }
        assert_eq!(mcp_server_of("mcp__fs__read_file"), Some("fs"));
        assert_eq!(mcp_server_of("mcp__a_b__x__y"), Some("a_b"));
        for none in ["read_file", "mcp__fs", "mcp____x", "xmcp__fs__a"] {
            assert_eq!(mcp_server_of(none), None, "{none}");
        }
    }

    #[test]
    fn a_server_is_written_as_the_board_reads_it() {
        let info = McpServerInfo {
            name: "fs".to_owned(),
            kind: McpKind::Stdio,
            state: McpState::AuthRequired,
            tools: vec!["mcp__fs__read".to_owned()],
            ..McpServerInfo::default()
        };
        let written = serde_json::to_value(&info).expect("JSON");
        let expected = json!({ "name": "fs", "kind": "stdio", "state": "auth_required", "tools": ["mcp__fs__read"] });
        assert_eq!(written, expected);
        assert_eq!(serde_json::from_value::<McpServerInfo>(written).expect("read back"), info);
        let later: McpServerInfo =
            serde_json::from_value(json!({ "name": "x", "kind": "pigeon", "state": "sleepy" })).expect("a server");
        assert_eq!((later.kind, later.state), (McpKind::Http, McpState::Failed));
    }
}
