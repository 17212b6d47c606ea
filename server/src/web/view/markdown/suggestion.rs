//! An answer without what it suggests for the memory: each suggestion is a line that leads to the session's memory, where
//! people decide about it.

use std::sync::Arc;

use protocol::suggestion::{AnswerPiece, MAX_SUGGESTIONS, SuggestionScanner};

use super::{TextAuthor, render};
use crate::web::assets;

/// An answer that is complete, as HTML.
pub fn answer(source: &str) -> Arc<str> {
    let mut scanner = SuggestionScanner::default();
    let (mut html, mut text, mut notes, mut is_cut) = (String::new(), String::new(), 0, false);
    while let Some(piece) = scanner.next(source) {
        match piece {
            AnswerPiece::Text(some) => text.push_str(&source[some]),
            AnswerPiece::Opened => is_cut = true,
            AnswerPiece::Suggested(note) => {
                html.push_str(&render(&std::mem::take(&mut text), TextAuthor::Agent));
                if notes < MAX_SUGGESTIONS && !source[note].trim().is_empty() {
                    html.push_str(&finished());
                    notes += 1;
                }
            }
        }
    }
    text.push_str(&source[scanner.rest(source)]);
    if !is_cut {
        return render(&text, TextAuthor::Agent);
    }
    html.push_str(&render(&text, TextAuthor::Agent));
    html.into()
}

/// The line that stands for a suggestion. Its link is the page's own: a session shows its memory beside it.
pub(super) fn finished() -> String {
    line(r#" · <a class="link" href="?pane=memory#proposals">Review</a>"#)
}

/// The same while it is being written.
pub(super) fn open() -> String {
    line("")
}

fn line(link: &str) -> String {
    let sprite = assets::path("icons.svg");
    format!(
        r##"<p class="suggestion"><svg class="icon" aria-hidden="true"><use href="{sprite}#edit"/></svg><span>Suggests a note for memory{link}</span></p>"##
    )
}
