//! Files of a viber as the Board knows them: the last report, the text if somebody read it, and the edits that people made
//! on the Board.

use protocol::{EditId, Instant, SessionId, ViberId, WriteOp};

/// The folder of a workspace that has a folder for each session.
pub const SESSIONS_FOLDER: &str = "sessions";

/// The session in whose folder something of a workspace lies, or whose folder it is.
pub fn session_of(path: &str) -> Option<SessionId> {
    let rest = path.strip_prefix(SESSIONS_FOLDER)?.strip_prefix('/')?;
    rest.split('/').next()?.parse().ok()
}

/// A file as it was reported last, and its text if somebody read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub path: String,
    /// `None`: it no longer exists.
    pub hash: Option<String>,
    pub size: u64,
    pub mtime: Option<Instant>,
    /// `board`, `agent` or `file`.
    pub changed_by: String,
    pub heard_at: Instant,
    pub text: Option<FileText>,
}

/// The text of a file, in the version that was read last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileText {
    pub content: String,
    pub hash: String,
    pub at: Instant,
}

/// What a viber reports about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReport {
    pub path: String,
    pub hash: Option<String>,
    pub size: u64,
    pub mtime: Option<Instant>,
    pub by: String,
}

/// A change to a file that a person made on the Board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub id: EditId,
    pub viber_id: ViberId,
    pub path: String,
    pub op: WriteOp,
    /// Hash of the version that the author saw; `None`: there was no file.
    pub base_hash: Option<String>,
    pub base: Option<String>,
    pub content: Option<String>,
    pub hash: Option<String>,
    pub to: Option<String>,
    pub state: EditState,
    pub reason: Option<String>,
    /// Of a conflict: hash of the version on the machine.
    pub theirs_hash: Option<String>,
    /// The id of the author, and below it the name to show.
    pub made_by: String,
    pub author: String,
    pub created_at: Instant,
    pub ended_at: Option<Instant>,
}

/// The state of an edit, as the Board stores it. A viber reports how it ended as `protocol::WriteState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditState {
    /// It waits until its viber is connected and has answered.
    Queued,
    /// The viber has written it.
    Applied,
    /// The file is not the version that the author saw: nothing was written, and a person has to decide.
    Conflict,
    /// The viber refused it: the path or the content is not allowed.
    Refused,
    /// A conflict that a person has settled.
    Settled,
}

impl EditState {
    /// The word in the database and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Applied => "applied",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
            Self::Settled => "settled",
        }
    }
}

impl std::str::FromStr for EditState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Queued, Self::Applied, Self::Conflict, Self::Refused, Self::Settled];
        all.into_iter().find(|state| state.as_str() == text).ok_or_else(|| format!("{text:?} is no state of an edit"))
    }
}

/// Merges two changes of a text: what only one side changed is taken; where both changed the same lines, both are kept
/// between marks. Returns the merged text, and whether there are such places.
pub fn merge(base: &str, theirs: &str, mine: &str) -> (String, bool) {
    if mine == theirs || base == mine {
        return (theirs.to_owned(), false);
    }
    if base == theirs {
        return (mine.to_owned(), false);
    }
    let (base, theirs, mine): (Vec<_>, Vec<_>, Vec<_>) = (lines(base), lines(theirs), lines(mine));
    let (of_theirs, of_mine) = (matches(&base, &theirs), matches(&base, &mine));
    let (mut merged, mut clash) = (String::new(), false);
    let (mut at, mut their, mut my) = (0, 0, 0);
    loop {
        // The next line of the base that both sides kept.
        let kept = (at..base.len()).find(|line| of_theirs[*line].is_some() && of_mine[*line].is_some());
        let (to, their_to, my_to) = match kept {
            Some(line) => (line, of_theirs[line].unwrap_or(their), of_mine[line].unwrap_or(my)),
            None => (base.len(), theirs.len(), mine.len()),
        };
        clash |= gap(&mut merged, &base[at..to], &theirs[their..their_to], &mine[my..my_to]);
        let Some(line) = kept else { return (merged, clash) };
        merged.push_str(base[line]);
        (at, their, my) = (line + 1, their_to + 1, my_to + 1);
    }
}

/// Merges what lies between two kept lines; returns whether both sides changed it, and differently.
fn gap(merged: &mut String, base: &[&str], theirs: &[&str], mine: &[&str]) -> bool {
    let one = match () {
        () if theirs == mine || base == mine => theirs,
        () if base == theirs => mine,
        () => {
            let mut side = |mark: &str, lines: &[&str]| {
                merged.push_str(mark);
                for line in lines {
                    merged.push_str(line);
                    if !line.ends_with('\n') {
                        merged.push('\n');
                    }
                }
            };
            side("<<<<<<< theirs\n", theirs);
            side("=======\n", mine);
            merged.push_str(">>>>>>> yours\n");
            return true;
        }
    };
    one.iter().for_each(|line| merged.push_str(line));
    false
}

fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// For each line of `base` where it stands in `other`, if it was kept.
fn matches(base: &[&str], other: &[&str]) -> Vec<Option<usize>> {
    let mut found = vec![None; base.len()];
    for op in similar::capture_diff_slices(similar::Algorithm::Patience, base, other) {
        if let similar::DiffOp::Equal { old_index, new_index, len } = op {
            for n in 0..len {
                found[old_index + n] = Some(new_index + n);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_in_different_places_are_both_taken() {
        let base = "one\ntwo\nthree\nfour\n";
        let (merged, clash) = merge(base, "one\n2\nthree\nfour\n", "one\ntwo\nthree\nfour\nfive\n");
        assert_eq!((merged.as_str(), clash), ("one\n2\nthree\nfour\nfive\n", false));
        assert_eq!(merge(base, base, "x"), ("x".into(), false));
        assert_eq!(merge(base, "x", base), ("x".into(), false));
        assert!(merge(base, "", "one\n2\nthree\nfour\n").1, "one side took away what the other changed");
    }

    #[test]
    fn where_both_changed_the_same_lines_nothing_is_lost() {
        let (merged, clash) = merge("a\nb\nc\n", "a\ntheirs\nc\n", "a\nmine\nc");
        assert!(clash);
        assert_eq!(merged, "a\n<<<<<<< theirs\ntheirs\nc\n=======\nmine\nc\n>>>>>>> yours\n");
        let (merged, clash) = merge("", "theirs", "mine");
        assert!(clash && merged.contains("theirs\n") && merged.contains("mine\n"), "{merged}");
    }
}
