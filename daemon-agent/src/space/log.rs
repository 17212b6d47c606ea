//! Commits of a space, newest first.

use protocol::{Commit, Instant, SessionId, SpaceLog, space::MAX_COMMITS};

use super::{Space, SpaceError, changes::ComparisonBase, git::Git};

/// Bytes of names of changed files that are read.
const MAX_LIST_BYTES: usize = 4 * 1024 * 1024;
/// Longest author name that is reported, bytes.
const MAX_AUTHOR_BYTES: usize = 120;
/// Longest first line of a commit message that is reported, bytes.
const MAX_SUBJECT_BYTES: usize = 300;
/// Largest offset: the Board's pages go no further back.
const MAX_OFFSET: u64 = 1_000_000;

impl Space {
    /// Commits that changed something here, after the first `from` ones; with a session, those since its work began.
    pub async fn log(&self, from: u64, limit: u64, session: Option<&SessionId>) -> Result<SpaceLog, SpaceError> {
        let git = Git::of(self).await?;
        let base = ComparisonBase::of(self, &git, session).await?;
        let mut log = SpaceLog { from, since: base.since, ..SpaceLog::default() };
        // Without a commit there is nothing to list. If HEAD names one that does not exist, git has to report that.
        if base.head.is_none() && git.try_ask(&["rev-parse", "--verify", "--quiet", "HEAD"], 200).await?.is_none() {
            return Ok(log);
        }
        let range = match log.since.as_ref().filter(|since| !since.commit.is_empty()) {
            Some(since) => format!("{}..HEAD", since.commit),
            None => "HEAD".to_owned(),
        };
        let limit = usize::try_from(limit).unwrap_or(MAX_COMMITS).clamp(1, MAX_COMMITS);
        let (skip, count) = (format!("--skip={}", from.min(MAX_OFFSET)), format!("--max-count={}", limit + 1));
        let args = [
            "log",
            "-z",
            "--no-show-signature",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
            "--ignore-submodules=all",
            "--name-only",
            "--relative",
            "--encoding=UTF-8",
            "--format=tformat:%x00%H%x00%an%x00%at%x00%s",
            &skip,
            &count,
            &range,
            "--",
            ".",
        ];
        let output = git.ask(&args, MAX_LIST_BYTES).await?;
        log.commits = commits(&output.bytes);
        log.more = output.cut || log.commits.len() > limit;
        log.commits.truncate(limit);
        Ok(log)
    }
}

/// Parses commits: each is `NUL hash NUL author NUL seconds NUL subject NUL`, followed by its files, each with a NUL.
fn commits(bytes: &[u8]) -> Vec<Commit> {
    let mut words = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let mut commits: Vec<Commit> = Vec::new();
    // Names are files of a commit until an empty word ends them.
    let mut files = false;
    while let Some(word) = words.next() {
        if word.is_empty() {
            files = false;
            continue;
        }
        if files {
            if let Some(last) = commits.last_mut() {
                last.files += 1;
            }
            continue;
        }
        let (Some(author), Some(at), Some(subject)) = (words.next(), words.next(), words.next()) else { break };
        let seconds: i64 = at.parse().unwrap_or(0);
        commits.push(Commit {
            hash: word.into_owned(),
            author: protocol::text::head(&author, MAX_AUTHOR_BYTES).to_owned(),
            at: Instant(seconds.clamp(0, 253_402_300_799).saturating_mul(1000)),
            subject: protocol::text::head(&subject, MAX_SUBJECT_BYTES).to_owned(),
            files: 0,
        });
        files = true;
    }
    commits.retain(|commit| commit.hash.len() >= 40 && commit.hash.bytes().all(|byte| byte.is_ascii_hexdigit()));
    commits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_read_with_their_files() {
        let (a, b, c) = ("a".repeat(40), "b".repeat(40), "c".repeat(40));
        let text = format!(
            "\0{a}\0A B\x001795203363\0second \x01 body\0\na.txt\0{b}\0\0{b}\0\x001795203362\0\0\0{c}\0C\0x\0third\0\nx\0"
        );
        let output = commits(text.as_bytes());
        let short = output.iter().map(|one| (&one.hash[..1], one.author.as_str(), one.subject.as_str(), one.files));
        let short: Vec<_> = short.collect();
        assert_eq!(short, [("a", "A B", "second \u{1} body", 2), ("b", "", "", 0), ("c", "C", "third", 1)]);
        assert_eq!(output[0].at, Instant(1_795_203_363_000));
        for end in 0..text.len() {
            assert!(commits(&text.as_bytes()[..end]).len() <= 3);
        }
    }
}
