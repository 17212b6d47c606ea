//! The strip of tabs beside a conversation.

use askama::Template;

use crate::web::view::filters;

/// All tabs, with their numbers.
#[derive(Template)]
#[template(path = "documents/pane/_tabs.html")]
pub(super) struct Strip {
    pub(super) conversation: String,
    /// Where a choice is kept.
    pub(super) keep: String,
    pub(super) on_talk: bool,
    pub(super) open: bool,
    /// Whether it asks for the approval of the whole plan.
    pub(super) asks_about_plan: bool,
    /// What the reader chose last; empty: nothing yet.
    pub(super) kept: &'static str,
    /// The tab that is shown on a wide screen; empty: none.
    pub(super) shown: &'static str,
    pub(super) tabs: Vec<Link>,
}

/// One of them.
pub(super) struct Link {
    pub(super) title: &'static str,
    pub(super) href: String,
    /// A number, and what it counts.
    pub(super) count: Option<(String, &'static str)>,
    /// How many things wait for a person there.
    pub(super) waits: usize,
    /// A narrow screen shows it instead of the conversation.
    pub(super) named: bool,
    /// A wide screen shows it beside the conversation.
    pub(super) shown: bool,
}

/// A number in the strip and what it counts; nothing where there is nothing.
pub(super) fn count(n: u64, of: &'static str, most: u64) -> Option<(String, &'static str)> {
    match n {
        0 => None,
        _ if n >= most => Some((format!("{most}+"), of)),
        _ => Some((n.to_string(), of)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_says_when_there_is_more() {
        assert_eq!(count(0, "files", 100), None);
        assert_eq!(count(8, "files", 100), Some(("8".to_owned(), "files")));
        assert_eq!(count(100, "files", 100), Some(("100+".to_owned(), "files")));
    }
}
