//! The MCP servers of one viber, on its page: how each fares, what it offers, and how that changed.

use askama::Template;
use axum::{
    Form,
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use protocol::{Instant, MCP_CAPABILITY, McpKind, McpServerInfo, McpState, ViberId, mcp::MCP_PREFIX};
use serde::Deserialize;

use super::skills::refusal;
use crate::{
    actions::mcp_orders::{self, SeenTools},
    db,
    domain::{ContactState, McpOrder, Role, Viber, open_orders, skills::marked},
    error::Result,
    state::Board,
    web::pages::viber,
    web::{
        AsAdmin, AsOperator, Rejection,
        extract::{Caller, Id},
        html_with, urls,
        view::{Badge, filters},
    },
};

/// Servers that are shown.
const MAX_SERVERS: usize = 100;
/// Orders that are looked at, as many as may wait, and those that are shown.
const MAX_ORDERS: u64 = 100;
const MAX_SHOWN_ORDERS: usize = 10;

/// The section.
#[derive(Clone, Debug, Template)]
#[template(path = "fleet/mcp/_of_viber.html")]
pub struct ViberMcpSection {
    now: Instant,
    allow_action: String,
    test_action: String,
    /// Why nothing was done.
    pub refused: Option<String>,
    servers: Vec<ServerView>,
    /// How many more servers there are.
    omitted: usize,
    orders: Vec<McpOrder>,
    more_orders: usize,
    is_connected: bool,
    may_act: bool,
    may_change: bool,
}

/// A server.
#[derive(Clone, Debug)]
struct ServerView {
    info: McpServerInfo,
    badge: Badge,
}

impl ServerView {
    fn is_open(&self) -> bool {
        self.info.change.is_some() || matches!(self.info.state, McpState::Failed | McpState::AuthRequired)
    }

    fn kind(&self) -> &'static str {
        match self.info.kind {
            McpKind::Stdio => "A program on the machine",
            McpKind::Http => "Over HTTP",
        }
    }

    /// `16 tools`; empty while nobody knows them.
    fn tools(&self) -> String {
        let count = self.info.tools.len();
        if self.info.hash.is_none() && count == 0 {
            return String::new();
        }
        format!("{count} {}", if count == 1 { "tool" } else { "tools" })
    }

    /// The names of its tools, without what each begins with.
    fn tool_names(&self) -> String {
        let before = format!("{MCP_PREFIX}{}__", self.info.name);
        let names = self.info.tools.iter().map(|tool| tool.strip_prefix(&before).unwrap_or(tool));
        names.map(marked).collect::<Vec<_>>().join(", ")
    }

    /// How its tools differ: `2 new, 1 described otherwise`.
    fn differs(&self) -> String {
        let Some(change) = &self.info.change else { return String::new() };
        let counts = [
            (change.added.len(), "new"),
            (change.removed.len(), "gone"),
            (change.changed.len(), "described otherwise"),
        ];
        let said = counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}"));
        said.collect::<Vec<_>>().join(", ")
    }

    fn needs_sign_in(&self) -> bool {
        self.info.state == McpState::AuthRequired
    }

    fn short_hash(&self) -> String {
        self.info.hash.as_deref().map(|hash| protocol::text::head(hash, 12).to_owned()).unwrap_or_default()
    }
}

fn badge(state: McpState) -> Badge {
    match state {
        McpState::Ready => Badge { state: "done", icon: "check", word: "Connected" },
        McpState::Idle => Badge { state: "idle", icon: "stopped", word: "Idle" },
        McpState::Starting => Badge { state: "running", icon: "working", word: "Starting" },
        McpState::Changed => Badge { state: "waiting", icon: "conflict", word: "Changed" },
        McpState::AuthRequired => Badge { state: "waiting", icon: "key", word: "Sign in" },
        McpState::Failed => Badge { state: "failed", icon: "failed", word: "Failed" },
    }
}

impl ViberMcpSection {
    /// As the viber reported them.
    pub async fn load(board: &Board, caller: &Caller, viber: &Viber) -> Result<Self> {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let orders = db::orders::newest(&mut tx, &viber.id, MAX_ORDERS).await?;
        let slug = caller.team.slug.clone();
        let is_able = viber.capabilities.iter().any(|word| word == MCP_CAPABILITY);
        let view = |info: &&McpServerInfo| ServerView { badge: badge(info.state), info: (*info).clone() };
        let (orders, more_orders) = open_orders(orders, MAX_SHOWN_ORDERS);
        Ok(Self {
            now: board.clock.now(),
            allow_action: urls::viber_verb(&slug, &viber.id, "mcp"),
            test_action: urls::viber_verb(&slug, &viber.id, "mcp/test"),
            refused: None,
            servers: shown(&viber.mcp).iter().map(view).collect(),
            omitted: viber.mcp.len().saturating_sub(MAX_SERVERS),
            orders,
            more_orders,
            is_connected: viber.contact.state == ContactState::Connected,
            may_act: is_able && caller.role >= Role::Operator,
            may_change: is_able && caller.role >= Role::Admin,
        })
    }
}

/// The servers that are shown: of too many rather those that somebody has to look at.
fn shown(servers: &[McpServerInfo]) -> Vec<&McpServerInfo> {
    let mut all: Vec<&McpServerInfo> = servers.iter().collect();
    if all.len() > MAX_SERVERS {
        all.sort_by_key(|info| match info.state {
            McpState::Changed => 0,
            McpState::Failed | McpState::AuthRequired => 1,
            McpState::Ready | McpState::Starting | McpState::Idle => 2,
        });
        all.truncate(MAX_SERVERS);
    }
    all
}

/// What somebody else wrote, with what does not show in it, line by line.
fn marked_lines(text: &str) -> String {
    text.lines().map(marked).collect::<Vec<_>>().join("\n")
}

/// The lines of a difference, each with what it does: `add`, `del`, `hunk` or `same`. All of it is shown, because all of it is
/// allowed.
fn diff_lines(diff: &str) -> Vec<(&'static str, String)> {
    let op = |line: &str| match line.as_bytes().first() {
        Some(b'+') => "add",
        Some(b'-') => "del",
        Some(b'@') => "hunk",
        _ => "same",
    };
    diff.lines().map(|line| (op(line), marked(line))).collect()
}

/// What is wanted of a server.
#[derive(Debug, Deserialize)]
pub struct McpForm {
    #[serde(default)]
    name: String,
    /// Of the tools that were seen.
    #[serde(default)]
    hash: String,
}

/// `POST /t/{team}/vibers/{id}/mcp`: lets a server offer the tools that were seen.
pub async fn allow(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<ViberId>,
    Form(form): Form<McpForm>,
) -> Result<Response, Rejection> {
    let seen = SeenTools { name: form.name, hash: form.hash };
    let done = mcp_orders::allow(&board, &caller.team.id, &caller.by, &id, seen).await.map(drop);
    answer(&board, &caller, &id, done).await
}

/// `POST /t/{team}/vibers/{id}/mcp/test`: has the viber connect to a server.
pub async fn test(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<ViberId>,
    Form(form): Form<McpForm>,
) -> Result<Response, Rejection> {
    let done = mcp_orders::test(&board, &caller.team.id, &id, &form.name).await.map(drop);
    answer(&board, &caller, &id, done).await
}

async fn answer(board: &Board, caller: &Caller, id: &ViberId, done: Result<()>) -> Result<Response, Rejection> {
    match done {
        Ok(()) => Ok(Redirect::to(&urls::viber_mcp(&caller.team.slug, id)).into_response()),
        Err(error) => {
            let (status, reason) = refusal(error)?;
            let mut page = viber::page(board, caller, id).await?;
            page.mcp.refused = Some(reason);
            html_with(status, &page)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_servers_those_that_wait_for_somebody_are_shown() {
        let server = |n: usize, state| McpServerInfo { name: format!("s{n:03}"), state, ..McpServerInfo::default() };
        let mut servers: Vec<McpServerInfo> = (0..=MAX_SERVERS).map(|n| server(n, McpState::Idle)).collect();
        servers.push(server(900, McpState::Changed));
        let names: Vec<&str> = shown(&servers).iter().map(|info| info.name.as_str()).collect();
        assert_eq!((names.len(), names.first(), names.get(1)), (MAX_SERVERS, Some(&"s900"), Some(&"s000")));
    }
}
