//! Spaces as the Board knows them: the working directories of agents, as vibers report them. And comments on lines of
//! files there, gathered by a person until they are sent to the agent as one message.

use std::fmt::Write as _;

use protocol::{AgentInfo, CommentId, Instant, SessionId, space::ID_DIGITS};
use sha2::{Digest, Sha256};

use crate::{secret, words};

/// A declared working directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// The Board's id for it: the Board never sends a path.
    pub id: String,
    /// As the viber reports it.
    pub path: String,
    /// The agents that declare it.
    pub agents: Vec<String>,
}

impl Space {
    /// All spaces of a viber's agents, in the agents' order.
    pub fn all(agents: &[AgentInfo]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for (agent, path) in agents.iter().flat_map(|agent| agent.spaces.iter().map(move |path| (agent, path))) {
            match all.iter_mut().find(|space| space.path == *path) {
                Some(space) if !space.agents.contains(&agent.id) => space.agents.push(agent.id.clone()),
                Some(_) => {}
                None => all.push(Self { id: id(path), path: path.clone(), agents: vec![agent.id.clone()] }),
            }
        }
        all
    }

    /// The last part of its path, by which people know it.
    pub fn name(&self) -> &str {
        let path = self.path.trim_end_matches('/');
        path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(&self.path)
    }
}

fn id(path: &str) -> String {
    secret::hex(&Sha256::digest(path.as_bytes()))[..ID_DIGITS].to_owned()
}

words! {
    /// The version of a file that a line belongs to.
    Side {
        /// Before the change.
        Old = "old",
        /// After the change.
        New = "new",
    }
}

/// An unsent comment on a line. It belongs to its author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment {
    pub id: CommentId,
    pub session_id: SessionId,
    /// The space's id, and its path when the comment was written.
    pub space: String,
    pub folder: String,
    pub path: String,
    pub side: Side,
    /// Counted from 1.
    pub line: u64,
    /// The text of the line as its author saw it.
    pub quote: String,
    pub remark: String,
    pub at: Instant,
}

/// Composes one message from comments: each with its place, the quoted line, and the remark.
pub fn compose(comments: &[Comment]) -> String {
    let mut text = if comments.len() == 1 { "A comment on a line:" } else { "Comments on lines:" }.to_owned();
    let mut folder = "";
    for comment in comments {
        if comment.folder != folder {
            folder = &comment.folder;
            let _ = write!(text, "\n\nIn {folder}:");
        }
        let before = if comment.side == Side::Old { " (before the change)" } else { "" };
        let _ =
            write!(text, "\n\n{}:{}{before}\n> {}\n\n{}", comment.path, comment.line, comment.quote, comment.remark);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_space_is_named_by_what_was_told_of_it() {
        let agent = |id: &str, spaces: &[&str]| AgentInfo {
            id: id.into(),
            spaces: spaces.iter().map(|path| (*path).to_owned()).collect(),
            ..AgentInfo::default()
        };
        let all = Space::all(&[agent("a", &["/srv/app", "/srv/docs/"]), agent("b", &["/srv/app"])]);
        let told: Vec<_> = all.iter().map(|space| (space.name(), space.agents.join(" "))).collect();
        assert_eq!(told, [("app", "a b".to_owned()), ("docs", "a".to_owned())]);
        assert_eq!(all[0].id.len(), ID_DIGITS);
    }

    #[test]
    fn remarks_become_one_message() {
        let comment = |folder: &str, line, side, remark: &str| Comment {
            id: CommentId::new(1),
            session_id: SessionId::new(1),
            space: "x".into(),
            folder: folder.into(),
            path: "src/a.rs".into(),
            side,
            line,
            quote: "let a = 1;".into(),
            remark: remark.into(),
            at: Instant(0),
        };
        let all = [
            comment("/srv/app", 3, Side::New, "Why?"),
            comment("/srv/app", 9, Side::Old, "Keep this."),
            comment("/srv/docs", 1, Side::New, "Hm."),
        ];
        assert_eq!(
            compose(&all),
            "Comments on lines:\n\nIn /srv/app:\n\nsrc/a.rs:3\n> let a = 1;\n\nWhy?\n\nsrc/a.rs:9 (before the change)\n\
             > let a = 1;\n\nKeep this.\n\nIn /srv/docs:\n\nsrc/a.rs:1\n> let a = 1;\n\nHm."
        );
    }
}
