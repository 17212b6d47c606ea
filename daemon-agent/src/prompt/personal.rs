//! Personalization: the files with which people shape an agent, as blocks of the system prompt. `MEMORY.md` is none of them:
//! it goes with the request, within its share.
//!
//! They lie where agents may write, so they are opened without following links, and only plain files are read: a link
//! from here into `secrets/` must not carry a key into a prompt.

use std::{
    io::{ErrorKind, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use protocol::text::head_and_tail;
use rustix::fs::OFlags;

use crate::home::{Home, open_plain};

/// Tag, file name and bound in bytes (about a quarter of that in tokens), in the order of the blocks.
const FILES: [(&str, &str, usize); 5] = [
    ("soul", "SOUL.md", 8 * 1024),
    ("user", "USER.md", 8 * 1024),
    ("identity", "IDENTITY.md", 4 * 1024),
    ("agents", "AGENTS.md", 8 * 1024),
    ("tools", "TOOLS.md", 8 * 1024),
];
/// More of a file is not even read, bytes.
const LARGEST: u64 = 1024 * 1024;

/// A file in the prompt.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub tag: &'static str,
    pub name: &'static str,
    pub text: String,
    /// Bytes of the whole file, when this is not all of it.
    pub of: Option<usize>,
}

/// The blocks that there are.
pub(super) async fn blocks(agent: &str, home: &Home) -> Vec<Block> {
    let (agent, home) = (agent.to_owned(), home.clone());
    let reading = tokio::task::spawn_blocking(move || {
        let found = FILES.iter().filter_map(|(tag, name, bound)| {
            let text = places(&agent, &home, name).iter().find_map(|path| read(path))?;
            let text = text.trim();
            let of = (text.len() > *bound).then_some(text.len());
            Some(Block { tag, name, text: head_and_tail(text, *bound), of })
        });
        found.filter(|block| !block.text.is_empty()).collect()
    });
    reading.await.unwrap_or_default()
}

/// Where `name` may lie, the winner first: the agent's own, the workspace, the root; lower case behind the proper name.
fn places(agent: &str, home: &Home, name: &str) -> Vec<PathBuf> {
    let folders = [home.agents().join(agent), home.workspace(), home.root().to_owned()];
    folders.iter().flat_map(|folder| [folder.join(name), folder.join(name.to_lowercase())]).collect()
}

fn read(path: &Path) -> Option<String> {
    let told = || tracing::warn!(file = %path.display(), "not read into the prompt: it is a link or no plain file");
    let file = match open_plain(path, OFlags::NOFOLLOW) {
        Ok(file) => file,
        Err(error) => {
            if error.kind() == ErrorKind::InvalidInput {
                told();
            }
            return None;
        }
    };
    if file.metadata().ok()?.nlink() > 1 {
        told();
        return None;
    }
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).replace('\0', ""))
}
