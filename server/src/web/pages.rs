//! The pages of the Board, by wing, and their routes.
//!
//! Handlers are thin: authority is in their first parameter, changes are in `actions`, what is shown is in `view`.

mod documents;
mod fleet;
mod palette;
mod people;
mod work;

use documents::{artifacts, files, memory, pane, plan, proposals, spaces};
use fleet::{agents, bus, join, mcp, preflight, providers, skills, viber, vibers};
use people::theme;
use session::{cache, control, say, talk};
use work::{
    asks, comments, conversation, home, imports, live, patches, playbooks, session, sessions, status_panel, transcript,
};

pub use people::accounts;
pub(in crate::web) use people::settings;

use axum::{
    Router,
    extract::FromRequestParts,
    http::request::Parts,
    middleware,
    routing::{get, post},
};
use sha2::{Digest, Sha256};

use crate::{domain::idempotency::IdempotentCall, state::Board, web::layers::bodies};

/// Routes whose bodies may be as large as the team allows.
pub fn uploads() -> Router<Board> {
    let goals = Router::new()
        .route("/t/{team}/tasks", post(home::submit))
        .route("/t/{team}/sessions", post(session::prepare))
        .layer(middleware::from_fn(bodies::forms));
    artifacts::uploads().merge(goals).merge(skills::uploads())
}

/// The pages' routes.
pub fn routes() -> Router<Board> {
    let session = "/t/{team}/sessions/{id}";
    let at = |rest: &str| format!("{session}/{rest}");
    Router::new()
        .route("/t/{team}", get(home::show))
        .route("/t/{team}/live", get(live::watch))
        .route("/t/{team}/palette", get(palette::show))
        .route("/t/{team}/preflight", get(home::preflight))
        .route("/t/{team}/vibers", get(vibers::list))
        .route("/t/{team}/vibers/join", post(join::make))
        .route("/t/{team}/vibers/{id}", get(viber::show))
        .route("/t/{team}/vibers/{id}/rename", post(viber::rename))
        .route("/t/{team}/vibers/{id}/drain", post(viber::drain))
        .route("/t/{team}/vibers/{id}/undrain", post(viber::undrain))
        .route("/t/{team}/vibers/{id}/stop", post(viber::stop))
        .route("/t/{team}/vibers/{id}/test", post(providers::test))
        .route("/t/{team}/vibers/{id}/key", post(providers::set_key))
        .route("/t/{team}/vibers/{id}/key/remove", post(providers::remove_key))
        .route("/t/{team}/vibers/{id}/agents", post(agents::add))
        .route("/t/{team}/vibers/{id}/mcp", post(mcp::allow))
        .route("/t/{team}/vibers/{id}/mcp/test", post(mcp::test))
        .route("/t/{team}/vibers/{id}/revoke", get(viber::confirm_revoke).post(viber::revoke))
        .route("/t/{team}/vibers/{id}/files", get(files::root))
        .route("/t/{team}/vibers/{id}/files/{*path}", get(files::show).post(files::change))
        .route("/t/{team}/vibers/{id}/edits/{edit}", get(files::edits::show).post(files::edits::decide))
        .route("/t/{team}/vibers/{id}/live", get(bus::show))
        .route("/t/{team}/vibers/{id}/bus", get(bus::read))
        .route("/t/{team}/vibers/{id}/memory", get(memory::search))
        .route("/t/{team}/vibers/{id}/sessions", get(imports::list))
        .route("/t/{team}/vibers/{id}/sessions/{session}", get(imports::show))
        .route("/t/{team}/vibers/{id}/sessions/{session}/import", post(imports::import))
        .route("/t/{team}/vibers/{id}/spaces/{space}", get(spaces::show))
        .route("/t/{team}/vibers/{id}/spaces/{space}/diff", get(spaces::diff))
        .route("/t/{team}/vibers/{id}/spaces/{space}/log", get(spaces::log))
        .route("/t/{team}/vibers/{id}/spaces/{space}/files", get(spaces::files))
        .merge(artifacts::routes())
        .merge(proposals::routes())
        .merge(skills::routes())
        .merge(playbooks::routes())
        .route("/account/theme", post(theme::choose))
        .route("/t/{team}/search", get(sessions::search::show))
        .route("/t/{team}/sessions", get(sessions::list))
        .route("/t/{team}/sessions/read", post(sessions::mark_all_read))
        .route(session, get(session::show))
        .route(&at("messages"), post(say::say))
        .route(&at("message-mode"), post(say::choose_mode))
        .route(&at("rename"), post(session::rename))
        .route(&at("archive"), post(session::archive))
        .route(&at("unarchive"), post(session::unarchive))
        .route(&at("pin"), post(session::pin))
        .route(&at("unpin"), post(session::unpin))
        .route(&at("pins"), post(pane::pin))
        .route(&at("compact"), post(pane::compact::compact))
        .route(&at("uncompact"), post(pane::compact::uncompact))
        .route(&at("flush"), post(pane::compact::flush))
        .route(&at("reset"), post(pane::compact::reset))
        .route(&at("policies"), post(plan::policies))
        .route(&at("plan"), post(plan::write))
        .route(&at("plan/steps"), post(plan::step))
        .route(&at("plan/restore"), post(plan::restore))
        .route(&at("plan/conflict"), post(plan::settle))
        .route(&at("comments"), get(comments::list).post(comments::add))
        .route(&at("comments/withdraw"), post(comments::withdraw))
        .route(&at("comments/send"), post(comments::send))
        .route(&at("seen"), post(session::seen))
        .route(&at("pane"), get(pane::show).post(pane::choose))
        .route(&at("writing"), post(live::presence::write))
        .route(&at("delete"), get(session::confirm_delete).post(session::delete))
        .route(&at("transcript.md"), get(transcript::transcript))
        .route(&at("messages/{seq}/calls/{call}"), get(transcript::output))
        .route(&at("messages/{seq}/parts/{part}"), get(transcript::part))
        .route("/t/{team}/tasks/{id}/stop", post(control::stop))
        .route("/t/{team}/tasks/{id}/retry", post(control::retry))
        .route("/t/{team}/tasks/{id}/pause", post(control::pause))
        .route("/t/{team}/tasks/{id}/resume", post(control::resume))
        .route("/t/{team}/tasks/{id}/messages/{message}", post(talk::change))
        .route(&at("approvals"), post(asks::decide::decide_all))
        .route("/t/{team}/approvals/{id}", post(asks::decide::decide))
}

/// Whether the whole page is wanted, or htmx asks for the part that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    Page,
    Fragment,
}

impl<S: Sync> FromRequestParts<S> for Wants {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(if parts.headers.contains_key("hx-request") { Self::Fragment } else { Self::Page })
    }
}

/// The message of a form when the database is not available.
fn busy(what: &str) -> String {
    format!(
        "Not sent: {what} is not available right now. Your words are still here: wait a moment, then send them again."
    )
}

/// An idempotency key for a form: submitting the same form twice is one call.
fn nonce(board: &Board) -> String {
    protocol::MessageId::new(board.clock.now().millis()).to_string()
}

/// The idempotent call that a form's key identifies; `None` for a form without a key.
fn once(key: &str, asks: &[&str]) -> Option<IdempotentCall> {
    let mut hash = Sha256::new();
    for part in asks {
        hash.update(part.len().to_le_bytes());
        hash.update(part.as_bytes());
    }
    let asks = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    (!key.is_empty()).then(|| IdempotentCall { key: protocol::text::head(key, 100).to_owned(), asks })
}
