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
    domain::{ContactState, McpOrder, Role, SkillOrderState, Viber, skills::marked},
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
/// Orders that are looked at, and those that are shown.
const MAX_ORDERS: u64 = 50;
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
    orders: Vec<McpOrder>,
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
        let orders = db::mcp_orders::newest(&mut tx, &viber.id, MAX_ORDERS).await?;
        let slug = caller.team.slug.clone();
        let is_able = viber.capabilities.iter().any(|word| word == MCP_CAPABILITY);
        let view = |info: &McpServerInfo| ServerView { badge: badge(info.state), info: info.clone() };
        Ok(Self {
            now: board.clock.now(),
            allow_action: urls::viber_verb(&slug, &viber.id, "mcp"),
            test_action: urls::viber_verb(&slug, &viber.id, "mcp/test"),
            refused: None,
            servers: viber.mcp.iter().take(MAX_SERVERS).map(view).collect(),
            orders: open_orders(orders),
            is_connected: viber.contact.state == ContactState::Connected,
            may_act: is_able && caller.role >= Role::Operator,
            may_change: is_able && caller.role >= Role::Admin,
        })
    }
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

/// Orders that wait, and the newest of each server if it failed.
fn open_orders(orders: Vec<McpOrder>) -> Vec<McpOrder> {
    let mut seen = std::collections::BTreeSet::new();
    let mut open = Vec::new();
    for order in orders {
        let is_newest = seen.insert(order.name.clone());
        let is_failure = is_newest && order.state == SkillOrderState::Failed;
        if order.state == SkillOrderState::Queued || is_failure {
            open.push(order);
        }
    }
    open.truncate(MAX_SHOWN_ORDERS);
    open
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
    fn a_failure_is_shown_until_it_is_tried_again() {
        let order = |cmd_seq, name: &str, state| McpOrder {
            viber_id: ViberId::new(1),
            cmd_seq,
            name: name.to_owned(),
            hash: String::new(),
            state,
            error: None,
            ordered_by: String::new(),
            orderer: String::new(),
            ordered_at: Instant(0),
            ended_at: None,
        };
        let orders = vec![
            order(4, "a", SkillOrderState::Done),
            order(3, "a", SkillOrderState::Failed),
            order(2, "b", SkillOrderState::Failed),
            order(1, "b", SkillOrderState::Queued),
        ];
        let shown: Vec<u64> = open_orders(orders).into_iter().map(|order| order.cmd_seq).collect();
        assert_eq!(shown, [2, 1]);
    }
}
