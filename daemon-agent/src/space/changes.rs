//! What changed in a space, parsed field by field from git's output.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use protocol::{
    Change, ChangeKind, SessionId, Since, SpaceStatus, Upstream, limits::MAX_LISTING_BYTES, space::MAX_CHANGES,
};

use tokio::{
    sync::{SemaphorePermit, mpsc},
    time::{Instant, timeout_at},
};

use super::{Space, SpaceError, base_commits, git::Git};

/// Bytes of a list of git's that are read.
const MAX_LIST_BYTES: usize = 4 * 1024 * 1024;
/// What a change takes as JSON in addition to its names, bytes.
const CHANGE_JSON_BYTES: usize = 80;

/// Bytes of one new file whose lines are counted, and of all of them together: git does not count lines of files that it
/// does not know.
const MAX_COUNTED_FILE_BYTES: u64 = 256 * 1024;
const MAX_COUNTED_BYTES: u64 = 4 * 1024 * 1024;
/// New files whose lines are counted.
const MAX_COUNTED_FILES: usize = 200;

/// What a space is compared with.
pub(super) struct ComparisonBase {
    /// A tree in git's notation.
    pub tree: String,
    pub since: Option<Since>,
    pub head: Option<String>,
}

impl ComparisonBase {
    /// The beginning of the session's work if it is known and still exists, otherwise the last commit.
    pub async fn of(space: &Space, git: &Git, session: Option<&SessionId>) -> Result<Self, SpaceError> {
        let head = git.try_ask(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], 200).await?;
        let head = head.map(|output| String::from_utf8_lossy(&output.bytes).trim().to_owned());
        let mut since = session.and_then(|session| base_commits::of(space, session));
        if let Some(known) = since.as_ref().filter(|since| !since.commit.is_empty()) {
            let commit = format!("{}^{{commit}}", known.commit);
            if git.try_ask(&["cat-file", "-e", &commit], 200).await?.is_none() {
                since = None;
            }
        }
        let tree = match (&since, &head) {
            (Some(since), _) if !since.commit.is_empty() => since.commit.clone(),
            (None, Some(_)) => "HEAD".to_owned(),
            _ => empty(git).await?,
        };
        Ok(Self { tree, since, head })
    }
}

/// The name of the empty tree, whichever hash the repository uses.
async fn empty(git: &Git) -> Result<String, SpaceError> {
    let output = git.ask(&["hash-object", "-t", "tree", "/dev/null"], 200).await?;
    Ok(String::from_utf8_lossy(&output.bytes).trim().to_owned())
}

impl Space {
    /// The branch, and what changed since the session's work began, or since the last commit.
    pub async fn status(&self, session: Option<&SessionId>) -> Result<SpaceStatus, SpaceError> {
        let git = Git::of(self).await?;
        let base = ComparisonBase::of(self, &git, session).await?;
        let args = [
            "status",
            "--porcelain=v2",
            "--branch",
            "-z",
            "--untracked-files=no",
            "--ignore-submodules=all",
            "--",
            ".",
        ];
        let output = git.ask(&args, MAX_LIST_BYTES).await?;
        let mut status = branch(&output.bytes);
        let conflicts =
            conflicts(&output.bytes, self.root.strip_prefix(&git.repository().top).unwrap_or(Path::new("")));
        let args = [
            "diff",
            "--raw",
            "--numstat",
            "-z",
            "-M",
            "--relative",
            "--no-ext-diff",
            "--no-textconv",
            "--ignore-submodules=dirty",
            &base.tree,
            "--",
            ".",
        ];
        let output = git.ask(&args, MAX_LIST_BYTES).await?;
        let mut cut = output.cut;
        let mut changes = tracked(&output.bytes);
        let clashing = changes.iter_mut().filter(|change| conflicts.contains(&change.path));
        clashing.for_each(|change| change.kind = ChangeKind::Conflict);
        let args = ["ls-files", "--others", "--exclude-standard", "-z", "--", "."];
        let output = git.ask(&args, MAX_LIST_BYTES).await?;
        cut |= output.cut;
        let mut names = words(&output.bytes);
        if output.cut {
            // The last word is incomplete.
            names.pop();
        }
        changes.extend(names.into_iter().map(|path| Change {
            path,
            kind: ChangeKind::New,
            added: None,
            removed: None,
            renamed_from: None,
        }));
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        let all = changes.len() as u64;
        let mut bytes = 0;
        changes.truncate(MAX_CHANGES);
        let fits = changes.iter().take_while(|change| {
            let names = change.path.len() + change.renamed_from.as_ref().map_or(0, String::len);
            // JSON may take six bytes for one byte of a name.
            bytes += CHANGE_JSON_BYTES + names * if change.path.is_ascii() { 2 } else { 6 };
            bytes <= MAX_LISTING_BYTES
        });
        let fits = fits.count();
        changes.truncate(fits);
        let (until, place) = git.rest();
        let (space, mut left) = (self.clone(), MAX_COUNTED_BYTES);
        count_new_lines(&mut changes, until, place, move |path| space.lines_of(path, &mut left)).await;
        (status.head, status.since) = (base.head, base.since);
        status.omitted = (all - changes.len() as u64).max(u64::from(cut));
        status.changes = changes;
        Ok(status)
    }
}

impl Space {
    /// The lines of a file that git does not know, if it is text and small; `left` is how many bytes may be read. Blocks.
    fn lines_of(&self, path: &str, left: &mut u64) -> Option<u64> {
        let (bytes, size) = self.files.beginning(path, MAX_COUNTED_FILE_BYTES.min(*left)).ok()?;
        *left = left.saturating_sub(bytes.len() as u64);
        let whole_text = bytes.len() as u64 == size && !bytes.contains(&0);
        whole_text.then(|| bytes.split_inclusive(|byte| *byte == b'\n').count() as u64)
    }
}

/// Counts the lines of files that git does not know, by `lines_of`, which blocks. What is not counted at `until`, when the
/// inspection must be over, stays without a number: the disk may be slow, or not respond at all.
async fn count_new_lines(
    changes: &mut [Change],
    until: Instant,
    place: SemaphorePermit<'static>,
    mut lines_of: impl FnMut(&str) -> Option<u64> + Send + 'static,
) {
    let new = changes.iter().enumerate().filter(|(_, change)| change.kind == ChangeKind::New && change.added.is_none());
    let new: Vec<(usize, String)> = new.take(MAX_COUNTED_FILES).map(|(at, change)| (at, change.path.clone())).collect();
    let (counted, mut counts) = mpsc::channel(MAX_COUNTED_FILES);
    tokio::task::spawn_blocking(move || {
        // The thread cannot be cancelled: it counts as an inspection for as long as it works.
        let _place = place;
        for (at, path) in new {
            if Instant::now() >= until || counted.is_closed() {
                return;
            }
            if let Some(lines) = lines_of(&path) {
                // There is room for all.
                let _ = counted.try_send((at, lines));
            }
        }
    });
    while let Ok(Some((at, lines))) = timeout_at(until, counts.recv()).await {
        (changes[at].added, changes[at].removed) = (Some(lines), Some(0));
    }
}

/// Splits a list at its NULs.
pub(super) fn words(bytes: &[u8]) -> Vec<String> {
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Parses the headers of `status --branch`.
fn branch(bytes: &[u8]) -> SpaceStatus {
    let mut status = SpaceStatus::default();
    let (mut upstream, mut counted) = (None, None);
    for word in words(bytes) {
        let Some((key, value)) = word.strip_prefix("# branch.").and_then(|header| header.split_once(' ')) else {
            continue;
        };
        match key {
            "head" if value != "(detached)" => status.branch = Some(short(value)),
            "upstream" => upstream = Some(short(value)),
            "ab" => {
                let number = |text: Option<&str>| text.and_then(|text| text.get(1..)?.parse().ok()).unwrap_or(0);
                let mut numbers = value.split(' ');
                counted = Some((number(numbers.next()), number(numbers.next())));
            }
            _ => {}
        }
    }
    // An upstream that was never fetched has no counts.
    status.upstream = upstream.zip(counted).map(|(name, (ahead, behind))| Upstream { name, ahead, behind });
    status
}

/// The files below `folder` that `status` reports as conflicts: compared with a commit they are merely changed.
fn conflicts(bytes: &[u8], folder: &Path) -> HashSet<String> {
    let mut found = HashSet::new();
    let mut words = words(bytes).into_iter();
    while let Some(word) = words.next() {
        if word.starts_with("2 ") {
            // The file's former name follows.
            words.next();
        }
        // u XY submodule, four modes, three hashes, path
        let path = word.strip_prefix("u ").and_then(|entry| entry.splitn(10, ' ').nth(9)).map(Path::new);
        found.extend(path.and_then(|path| path.strip_prefix(folder).ok()?.to_str().map(str::to_owned)));
    }
    found
}

fn short(name: &str) -> String {
    protocol::text::head(name, 200).to_owned()
}

/// Parses `diff --raw --numstat -z`: first how each file changed, then by how many lines.
fn tracked(bytes: &[u8]) -> Vec<Change> {
    let mut words = bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    let mut changes: Vec<Change> = Vec::new();
    let mut places = HashMap::new();
    while let Some(word) = words.next() {
        if let Some(raw) = word.strip_prefix(':') {
            let letter = raw.rsplit(' ').next().unwrap_or_default();
            let (kind, renamed) = kind(letter);
            let Some(first) = words.next().filter(|path| !path.is_empty()) else { break };
            let (path, renamed_from) = if renamed {
                let Some(second) = words.next().filter(|path| !path.is_empty()) else { break };
                (second, (kind == ChangeKind::Renamed).then_some(first))
            } else {
                (first, None)
            };
            // A file with a conflict is listed twice.
            if !places.contains_key(&path) {
                places.insert(path.clone(), changes.len());
                changes.push(Change { path, kind, added: None, removed: None, renamed_from });
            }
            continue;
        }
        let mut counts = word.splitn(3, '\t');
        let (Some(added), Some(removed), Some(path)) = (counts.next(), counts.next(), counts.next()) else { continue };
        let path = if path.is_empty() {
            let (Some(_), Some(new)) = (words.next(), words.next()) else { break };
            new
        } else {
            path.to_owned()
        };
        if let Some(change) = places.get(&path).and_then(|place| changes.get_mut(*place)) {
            (change.added, change.removed) = (added.parse().ok(), removed.parse().ok());
        }
    }
    changes
}

/// The meaning of a letter of git's, and whether two names follow it.
fn kind(letter: &str) -> (ChangeKind, bool) {
    match letter.as_bytes().first() {
        Some(b'A') => (ChangeKind::Added, false),
        Some(b'C') => (ChangeKind::Added, true),
        Some(b'D') => (ChangeKind::Deleted, false),
        Some(b'R') => (ChangeKind::Renamed, true),
        Some(b'T') => (ChangeKind::Retyped, false),
        Some(b'U') => (ChangeKind::Conflict, false),
        _ => (ChangeKind::Changed, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that stops responding in the middle takes neither the answer nor what was counted before.
    #[tokio::test]
    async fn counting_ends_with_the_inspection() {
        static PLACES: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(1);
        let new = |path: &str| Change {
            path: path.to_owned(),
            kind: ChangeKind::New,
            added: None,
            removed: None,
            renamed_from: None,
        };
        let mut changes = ["a", "b", "stuck", "c"].map(new);
        let (release, stuck) = std::sync::mpsc::channel::<()>();
        let lines_of = move |path: &str| match path {
            "b" => None,
            "stuck" => stuck.recv().map(|()| 1).ok(),
            _ => Some(7),
        };
        let until = Instant::now() + std::time::Duration::from_millis(100);
        let place = PLACES.acquire().await.expect("open");
        count_new_lines(&mut changes, until, place, lines_of).await;
        assert_eq!(changes.clone().map(|change| change.added), [Some(7), None, None, None]);
        assert_eq!(PLACES.available_permits(), 0, "the stuck thread is still an inspection");
        drop(release);
        let _place = PLACES.acquire().await.expect("the thread ended");
    }

    #[test]
    fn gits_lists_are_read_field_by_field() {
        let raw = b":100644 100644 20b5be9 0000000 M\0bin\0:100644 100644 814f4a4 814f4a4 R100\0a.txt\0c d.txt\0\
                    :000000 100644 0000000 587be6b A\0-x\0:100644 000000 587be6b 0000000 D\0\xff.txt\0\
                    -\t-\tbin\x000\t0\t\0a.txt\0c d.txt\x003\t0\t-x\x000\t7\t\xff.txt\0";
        let changes = tracked(raw);
        let output: Vec<_> = changes.iter().map(|one| (one.path.as_str(), one.kind, one.added, one.removed)).collect();
        assert_eq!(
            output,
            [
                ("bin", ChangeKind::Changed, None, None),
                ("c d.txt", ChangeKind::Renamed, Some(0), Some(0)),
                ("-x", ChangeKind::Added, Some(3), Some(0)),
                ("\u{fffd}.txt", ChangeKind::Deleted, Some(0), Some(7)),
            ]
        );
        assert_eq!(changes[1].renamed_from.as_deref(), Some("a.txt"));
        // Cutting the output anywhere breaks nothing.
        for end in 0..raw.len() {
            assert!(tracked(&raw[..end]).len() <= 4);
        }
        let headers = b"# branch.oid 2f2c5b5\0# branch.head main\0# branch.upstream origin/main\0# branch.ab +2 -1\0";
        let status = branch(headers);
        assert_eq!(status.branch.as_deref(), Some("main"));
        assert_eq!(status.upstream, Some(Upstream { name: "origin/main".into(), ahead: 2, behind: 1 }));
        let output = b"1 .M N... 100644 100644 100644 1 2 u x\x002 R. N... 100644 100644 100644 1 2 R100 in/new\0u U a b c d e f g old\0\
                     u UU N... 100644 100644 100644 100644 1 2 3 in/a b.txt\0u UU N... 0 0 0 0 1 2 3 out/c\0u short\0";
        assert_eq!(conflicts(output, Path::new("in")), HashSet::from(["a b.txt".to_owned()]));
        assert_eq!(branch(b"# branch.oid (initial)\0# branch.head (detached)\0# branch.ab \0").branch, None);
    }
}
