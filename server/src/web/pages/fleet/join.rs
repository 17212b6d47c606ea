//! Adding a viber: one command, the same as a QR code, and a page that shows when the machine has joined.

use std::{collections::BTreeMap, fmt::Write};

use askama::Template;
use axum::{extract::State, response::Html};
use protocol::{Instant, JoinTokenId, ViberId};
use qrcodegen::{QrCode, QrCodeEcc};

use crate::{
    actions, db,
    domain::{ContactState, JoinToken, Role},
    error::Result,
    state::Board,
    web::{
        AsOperator, Rejection,
        extract::Caller,
        html, urls,
        view::{PageLocation, Shell, filters},
    },
};

/// The join card: an offer to make a command, or the command.
#[derive(Clone, Debug, Template)]
#[template(path = "fleet/vibers/_join.html")]
pub struct JoinCard {
    slug: String,
    may_add: bool,
    /// Only the Board's own machine can reach it.
    local_only: bool,
    made: Option<JoinCommand>,
}

/// A command that was just made; its secret is shown this once.
#[derive(Clone, Debug)]
struct JoinCommand {
    command: String,
    already: String,
    code: QrPath,
    live: JoinStatus,
}

/// A QR code as one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QrPath {
    pub size: i32,
    pub path: String,
}

/// Whether the machine has joined: a region of the live stream.
#[derive(Clone, Debug, Template)]
#[template(path = "fleet/vibers/_join_status.html")]
pub struct JoinStatus {
    slug: String,
    now: Instant,
    state: JoinState,
}

/// What became of a join token.
#[derive(Clone, Debug, PartialEq, Eq)]
enum JoinState {
    Waiting { until: Instant },
    Expired,
    Joined { viber: ViberId, name: String, connected: bool },
}

/// The page after a command was made.
#[derive(Template)]
#[template(path = "fleet/vibers/join.html")]
struct Page {
    shell: Shell,
    joining: JoinCard,
}

impl JoinCard {
    /// Nothing made yet: a button, for those who may.
    pub fn offer(board: &Board, caller: &Caller) -> Self {
        Self {
            slug: caller.team.slug.clone(),
            may_add: caller.role >= Role::Operator,
            local_only: local_only(board),
            made: None,
        }
    }
}

/// Whether the Board's address leads to its own machine alone.
pub fn local_only(board: &Board) -> bool {
    let base = board.config.base_url();
    ["//127.", "//localhost", "//[::1]"].iter().any(|local| base.contains(local))
}

/// `POST /t/{team}/vibers/join`
pub async fn make(State(board): State<Board>, caller: AsOperator) -> Result<Html<String>, Rejection> {
    let (secret, token) = actions::vibers::join_token(&board, &caller.team.id, &caller.by, &BTreeMap::new()).await?;
    let base = board.config.base_url();
    let command = format!("curl -fsSL {base}/install.sh | sh -s -- {}", secret.reveal());
    let made = JoinCommand {
        already: format!("daemon-agent join {base} {} --service", secret.reveal()),
        code: QrPath::of(&command),
        live: JoinStatus::of(&board, &caller, &token).await?,
        command,
    };
    let shell = Shell::load(&board, &caller).await?.at(PageLocation::Joining(token.id.clone()));
    html(&Page { shell, joining: JoinCard { made: Some(made), ..JoinCard::offer(&board, &caller) } })
}

impl JoinStatus {
    /// As it is now.
    pub async fn of(board: &Board, caller: &Caller, token: &JoinToken) -> Result<Self> {
        let now = board.clock.now();
        let state = match &token.viber_id {
            Some(id) => {
                let found = db::vibers::load(&mut board.db.reader_of(&caller.team.id).await?, id).await?;
                found.map_or(JoinState::Expired, |viber| JoinState::Joined {
                    viber: viber.id,
                    name: viber.name,
                    connected: viber.contact.state == ContactState::Connected,
                })
            }
            None if token.expires_at <= now => JoinState::Expired,
            None => JoinState::Waiting { until: token.expires_at },
        };
        Ok(Self { slug: caller.team.slug.clone(), now, state })
    }

    /// By the token's id, for the stream; `None` when it is not there.
    pub async fn load(board: &Board, caller: &Caller, id: &JoinTokenId) -> Result<Option<Self>> {
        let found = db::join_tokens::load(&mut board.db.reader_of(&caller.team.id).await?, id).await?;
        match found {
            Some(token) => Ok(Some(Self::of(board, caller, &token).await?)),
            None => Ok(None),
        }
    }
}

impl QrPath {
    /// The text as a code; an empty one when it is too long for a code.
    pub fn of(text: &str) -> Self {
        let Ok(code) = QrCode::encode_text(text, QrCodeEcc::Low) else { return Self { size: 1, path: String::new() } };
        let mut path = String::new();
        for y in 0..code.size() {
            for x in (0..code.size()).filter(|x| code.get_module(*x, y)) {
                // Writing to a String cannot fail.
                let _ = write!(path, "M{x} {y}h1v1h-1z");
            }
        }
        Self { size: code.size(), path }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_fits_a_code() {
        let code = QrPath::of("curl -fsSL https://board.example/install.sh | sh -s -- vbj_0123456789");
        assert!(code.size >= 25 && code.path.starts_with("M0 0h1"), "{code:?}");
        assert_eq!(QrPath::of(&"x".repeat(10_000)).path, "");
    }
}
