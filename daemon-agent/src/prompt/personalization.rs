//! Personalization: the files with which people shape an agent, as blocks of the system prompt. `MEMORY.md` is not one
//! of them: it goes with the request, within its share of tokens.
//!
//! Agents may write where these files lie, so they are opened without following links, and only plain files are read: a
//! link from here into `secrets/` must not carry a key into a prompt.

use std::{
    io::{ErrorKind, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use protocol::{text::head_and_tail, tokens};
use rustix::fs::OFlags;

use crate::home::{Home, open_plain};

/// Tag, file name and limit in bytes (about four bytes make a token), in the order of the blocks.
const PERSONALIZATION_FILES: [(&str, &str, usize); 5] = [
    ("soul", "SOUL.md", 8 * 1024),
    ("user", "USER.md", 8 * 1024),
    ("identity", "IDENTITY.md", 4 * 1024),
    ("agents", "AGENTS.md", 8 * 1024),
    ("tools", "TOOLS.md", 8 * 1024),
];
/// Longest part of a file that is read, bytes.
const MAX_READ_BYTES: u64 = 1024 * 1024;

/// A file in the prompt.
#[derive(Clone, Debug)]
pub(super) struct PersonalizationBlock {
    pub tag: &'static str,
    pub name: &'static str,
    pub text: String,
    /// Tokens of the whole file, if this is only a part of it.
    pub of: Option<u64>,
}

/// The blocks of the existing files.
pub(super) async fn blocks(agent: &str, home: &Home) -> Vec<PersonalizationBlock> {
    let (agent, home) = (agent.to_owned(), home.clone());
    let reading = tokio::task::spawn_blocking(move || {
        let found = PERSONALIZATION_FILES.iter().filter_map(|(tag, name, bound)| {
            let text = places(&agent, &home, name).iter().find_map(|path| read(path))?;
            let text = text.trim();
            let of = (text.len() > *bound).then(|| tokens::estimate(text));
            Some(PersonalizationBlock { tag, name, text: head_and_tail(text, *bound), of })
        });
        found.filter(|block| !block.text.is_empty()).collect()
    });
    reading.await.unwrap_or_default()
}

/// Where `name` may lie, in order of precedence: the agent's own folder, the workspace, the root; the lower-case name
/// comes after the proper one.
fn places(agent: &str, home: &Home, name: &str) -> Vec<PathBuf> {
    let folders = [home.agents().join(agent), home.workspace(), home.root().to_owned()];
    folders.iter().flat_map(|folder| [folder.join(name), folder.join(name.to_lowercase())]).collect()
}

fn read(path: &Path) -> Option<String> {
    let warn = || tracing::warn!(file = %path.display(), "not read into the prompt: it is a link or not a plain file");
    let file = match open_plain(path, OFlags::NOFOLLOW) {
        Ok(file) => file,
        Err(error) => {
            if error.kind() == ErrorKind::InvalidInput {
                warn();
            }
            return None;
        }
    };
    if file.metadata().ok()?.nlink() > 1 {
        warn();
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_READ_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).replace('\0', ""))
}
