//! What pages have in common: the shell around them, rendered texts, and the words and icons of states.
//!
//! Has no URL of its own; pages use it.

mod ansi;
pub mod badge;
pub mod call;
pub mod diff;
pub mod filters;
pub mod markdown;
pub mod message;
pub mod preview;
pub mod shell;
pub mod time;
pub mod timeline;
pub mod truncate;

pub use badge::Badge;
pub use shell::{PageLocation, Shell, ShellData};

/// Text between tags. Spaces stay spaces: what ammonia makes of a log takes five times its size.
pub fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len() + text.len() / 8);
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            '\0' => html.push('\u{fffd}'),
            c => html.push(c),
        }
    }
    html
}
