//! Where the work of a session began: the commit that each space had when the session's first task did.

use std::{collections::BTreeMap, fs, time::Duration};

use protocol::{Instant, SessionId, Since};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::{Space, git::Git, id};
use crate::{
    config::Agent,
    home::{Home, read_plain, write_private},
};

/// How long a task waits for it: without it, changes are shown since the last commit.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);
/// Most sessions that are remembered; the oldest are forgotten.
const MAX_SESSIONS: usize = 2_000;

/// By the name of the space.
#[derive(Debug, Default, Serialize, Deserialize)]
struct BaseCommits(BTreeMap<String, Since>);

/// Records where a session begins to work, for each space of its agent that has no record yet.
pub async fn remember(home: &Home, session: &SessionId, agent: &Agent, now: Instant) {
    if agent.spaces.is_empty() {
        return;
    }
    let mut heads = read(home, session);
    let before = heads.0.len();
    for (root, reported) in agent.spaces.iter().zip(agent.info().spaces) {
        let id = id(&reported);
        if heads.0.contains_key(&id) {
            continue;
        }
        // A folder that is not a repository has no commits either.
        let Ok(space) = Space::open(root, &agent.reach, home, &id) else { continue };
        if let Ok(Some(commit)) = timeout(LOOKUP_TIMEOUT, head(&space)).await {
            heads.0.insert(id, Since { commit, at: now });
        }
    }
    if heads.0.len() > before
        && let Err(error) = write(home, session, &heads)
    {
        tracing::warn!(session.id = %session, "where the session's work began could not be kept: {error}");
    }
}

/// Where a session began to work in a space, if it did.
pub fn of(space: &Space, session: &SessionId) -> Option<Since> {
    read(&space.home, session).0.remove(&space.id).filter(|since| is_commit(&since.commit))
}

/// The checked-out commit; empty before the first one, `None` if git cannot tell.
async fn head(space: &Space) -> Option<String> {
    let git = Git::of(space).await.ok()?;
    match git.try_ask(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], 200).await.ok()? {
        Some(output) => {
            Some(String::from_utf8(output.bytes).ok()?.trim().to_owned()).filter(|commit| is_commit(commit))
        }
        None => Some(String::new()),
    }
}

fn is_commit(text: &str) -> bool {
    text.is_empty() || ((40..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn read(home: &Home, session: &SessionId) -> BaseCommits {
    let text = read_plain(&home.heads(session.as_str())).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn write(home: &Home, session: &SessionId, heads: &BaseCommits) -> std::io::Result<()> {
    let path = home.heads(session.as_str());
    write_private(&path, serde_json::to_string(heads)?.as_bytes())?;
    let folder = path.parent().unwrap_or(&path);
    let mut all: Vec<_> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    if all.len() > MAX_SESSIONS {
        // Files are named after sessions, whose ids sort by time.
        all.sort_unstable();
        for old in &all[..all.len() - MAX_SESSIONS] {
            fs::remove_file(old)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_beginnings_are_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        let since = |n: i64| Since { commit: "a".repeat(40), at: Instant(n) };
        let (first, last) = (SessionId::new(1_000), SessionId::new(9_000_000));
        write(&home, &first, &BaseCommits([("x".to_owned(), since(1))].into())).expect("written");
        for n in 0..MAX_SESSIONS {
            let name = home.heads(SessionId::new(2_000 + n as i64).as_str());
            fs::write(name, "{}").expect("written");
        }
        write(&home, &last, &BaseCommits([("x".to_owned(), since(2))].into())).expect("written");
        assert_eq!(read(&home, &last).0["x"], since(2));
        assert!(read(&home, &first).0.is_empty());
        for bad in ["HEAD", "a", "--output=x", &"g".repeat(40)] {
            assert!(!is_commit(bad), "{bad}");
        }
    }
}
