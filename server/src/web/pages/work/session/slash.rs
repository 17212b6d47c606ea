//! What is said to the conversation itself: `/compact`, `/flush`, `/reset` and `/context` in the composer.

use axum::{
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use protocol::SessionId;

use super::{SessionQuery, composer, composer::Composer, page, say::Sent};
use crate::{
    actions::tasks::compact::NewCompaction,
    domain::{TaskKind, context::compaction::Carried},
    error::Error,
    state::Board,
    web::{
        AsOperator, Rejection, html, html_with,
        pages::{
            Wants, cache::SessionPageData, conversation::Conversation, pane::PaneSelection, pane::compact,
            status_panel::StatusPanel,
        },
        urls,
    },
};

/// A word that is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlashCommand {
    Compact,
    Flush,
    Reset,
    Context,
}

impl SlashCommand {
    /// All of them, in the order in which they are offered.
    pub const ALL: [Self; 4] = [Self::Compact, Self::Context, Self::Flush, Self::Reset];

    /// How it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::Compact => "/compact",
            Self::Context => "/context",
            Self::Flush => "/flush",
            Self::Reset => "/reset",
        }
    }

    /// What it does.
    pub fn effect(self) -> &'static str {
        match self {
            Self::Compact => "Puts a summary in the place of older turns; what it should heed may follow",
            Self::Context => "Shows what fills the model's window",
            Self::Flush => "Notes for the memory what should be kept",
            Self::Reset => "Starts afresh in a new session, with a summary of this one",
        }
    }

    /// The command that a message is, and what follows it.
    pub(super) fn read(message: &str) -> Option<(Self, &str)> {
        let (word, rest) = message.trim().split_once(char::is_whitespace).unwrap_or((message.trim(), ""));
        let command = Self::ALL.into_iter().find(|command| command.word() == word)?;
        Some((command, rest.trim()))
    }

    /// Does it, and answers as to a message.
    pub(super) async fn run(
        self,
        board: &Board,
        caller: &AsOperator,
        id: &SessionId,
        (wants, message, rest): (Wants, &str, &str),
    ) -> Result<Response, Rejection> {
        let tab = urls::pane(&caller.team.slug, id, "context");
        let kind = match self {
            Self::Compact => Some(TaskKind::Compact),
            Self::Flush => Some(TaskKind::Flush),
            Self::Reset => Some(TaskKind::Transfer),
            Self::Context => None,
        };
        let (mut started, mut begun) = (Ok(()), None);
        if let Some(kind) = kind {
            let instructions = Some(rest.to_owned());
            let carries = vec![Carried::Plan, Carried::Artifacts];
            let new = NewCompaction { instructions, carries, ..NewCompaction::of(kind) };
            started = match self {
                Self::Reset => {
                    compact::begin_afresh(board, caller, id, (new, wants)).await.map(|address| begun = address)
                }
                _ => compact::start(board, caller, id, new).await,
            };
        }
        if let Some(begun) = begun {
            return Ok((StatusCode::NO_CONTENT, [("hx-redirect", begun)]).into_response());
        }
        match (started, wants) {
            (Ok(()), Wants::Page) => Ok(Redirect::to(&tab).into_response()),
            (Ok(()), Wants::Fragment) if self == Self::Context => {
                Ok((StatusCode::NO_CONTENT, [("hx-redirect", tab)]).into_response())
            }
            (Ok(()), Wants::Fragment) => {
                let conversation = Conversation::load(board, &caller.team.id, id, None).await?;
                let dock = StatusPanel::of(&conversation, caller, board.clock.now()).out_of_band();
                let waiting = composer::waiting(board, &caller.team.id, id).await?;
                let modes = composer::modes(board, caller, id).await?;
                let composer = Composer::of(board, &conversation, (&waiting, modes), caller);
                Ok(html(&Sent { composer, dock })?.into_response())
            }
            (Err(Error::Unacceptable { message: why, .. } | Error::Conflict { message: why, .. }), _) => {
                let read = SessionPageData::load(board, caller, id, None, &PaneSelection::default()).await?;
                let mut page = page(board, caller, id, &SessionQuery::default(), &read).await?;
                (page.composer.content, page.composer.error) = (message.to_owned(), Some(why));
                match wants {
                    Wants::Page => html_with(StatusCode::UNPROCESSABLE_ENTITY, &page),
                    Wants::Fragment => html_with(StatusCode::UNPROCESSABLE_ENTITY, &page.composer),
                }
            }
            (Err(error), _) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_word_at_the_beginning_is_a_command() {
        let read = SlashCommand::read;
        assert_eq!(read(" /compact keep the names\n"), Some((SlashCommand::Compact, "keep the names")));
        assert_eq!(read("/flush"), Some((SlashCommand::Flush, "")));
        for message in ["/compacted", "say /compact", "/etc/passwd", "", "/"] {
            assert_eq!(read(message), None, "{message}");
        }
    }
}
