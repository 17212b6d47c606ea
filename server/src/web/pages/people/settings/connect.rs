//! Connecting a tool: the lines that make Claude Code, Codex, Cursor or another client of MCP use this team's vibers, with a
//! token that is made in place and shown once.

use askama::Template;
use axum::{Form, extract::State, http::StatusCode, response::Response};
use serde::Deserialize;

use super::{Tabs, roles_up_to};
use crate::{
    actions::tokens,
    domain::Role,
    error::Error,
    state::Board,
    web::{
        AsAdmin, AsViewer, Caller, Rejection, html_with,
        pages::join,
        respond, urls,
        view::{PageLocation, Shell, filters},
    },
};

/// What stands for the token in the lines until one is made.
const NO_TOKEN: &str = "vbt_…";

#[derive(Template)]
#[template(path = "people/settings/connect.html")]
struct Page {
    shell: Shell,
    tabs: Tabs,
    /// Those that a tool's token may have; none where the reader may not make one.
    roles: Vec<Role>,
    name: String,
    chosen: Role,
    /// The secret that was just made: shown this once.
    made: Option<String>,
    lines: ClientLines,
    /// Only programs on the Board's own machine reach it by this address.
    local_only: bool,
    error: Option<String>,
}

/// What each client is given, to the letter.
struct ClientLines {
    address: String,
    header: String,
    claude: String,
    codex_token: String,
    codex: String,
    cursor: String,
    any: String,
    attempt: String,
}

impl ClientLines {
    fn of(board: &Board, token: &str) -> Self {
        let address = format!("{}{}", board.config.base_url(), urls::MCP);
        let header = format!("Authorization: Bearer {token}");
        let server = |more: &str| {
            format!(
                "{{\n  \"mcpServers\": {{\n    \"viber-board\": {{\n{more}      \"url\": \"{address}\",\n      \
                 \"headers\": {{ \"Authorization\": \"Bearer {token}\" }}\n    }}\n  }}\n}}"
            )
        };
        Self {
            claude: format!("claude mcp add --transport http --scope user viber-board {address} --header \"{header}\""),
            codex_token: format!("export VIBER_BOARD_TOKEN={token}"),
            codex: format!("codex mcp add viber-board --url {address} --bearer-token-env-var VIBER_BOARD_TOKEN"),
            cursor: server(""),
            any: server("      \"type\": \"http\",\n"),
            attempt: format!(
                "curl -sS {address} -H '{header}' -H 'Content-Type: application/json' \
                 -H 'MCP-Protocol-Version: 2025-11-25' -d '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}}'"
            ),
            address,
            header,
        }
    }
}

#[derive(Deserialize)]
pub(super) struct ConnectForm {
    name: String,
    role: Role,
}

async fn show(
    board: &Board,
    caller: &Caller,
    typed: Option<ConnectForm>,
    made: Option<String>,
    error: Option<Error>,
) -> Result<Response, Rejection> {
    let ConnectForm { name, role } = typed.unwrap_or(ConnectForm { name: String::new(), role: Role::Operator });
    let may_make = caller.role >= Role::Admin;
    let page = Page {
        shell: Shell::load(board, caller).await?.at(PageLocation::Settings),
        tabs: Tabs::new(caller, "connect"),
        // No tool does what needs more.
        roles: if may_make { roles_up_to(Role::Operator) } else { Vec::new() },
        name,
        chosen: role,
        lines: ClientLines::of(board, made.as_deref().unwrap_or(NO_TOKEN)),
        made,
        local_only: join::local_only(board),
        error: error.as_ref().map(ToString::to_string),
    };
    html_with(error.as_ref().map_or(StatusCode::OK, respond::status), &page)
}

/// The lines, with a place for the token.
pub(super) async fn page(State(board): State<Board>, caller: AsViewer) -> Result<Response, Rejection> {
    show(&board, &caller, None, None, None).await
}

/// Makes a token and shows the lines with it, this once: nobody can read it again.
pub(super) async fn create(
    State(board): State<Board>,
    caller: AsAdmin,
    Form(typed): Form<ConnectForm>,
) -> Result<Response, Rejection> {
    if typed.role > Role::Operator {
        let error = Error::unacceptable("bad_role", "a tool needs no role above operator");
        return show(&board, &caller, Some(typed), None, Some(error)).await;
    }
    match tokens::create(&board, &caller.team.id, caller.maker(), &typed.name, typed.role).await {
        Ok((secret, _)) => show(&board, &caller, None, Some(secret.reveal().to_owned()), None).await,
        Err(error @ Error::Unacceptable { .. }) => show(&board, &caller, Some(typed), None, Some(error)).await,
        Err(error) => Err(error.into()),
    }
}
