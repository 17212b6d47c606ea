//! Spaces: the working directories that agents declare, as the Board reads them. Nothing here changes a file.
//!
//! The Board names a space by the first [`ID_DIGITS`] hexadecimal digits of the SHA-256 of the viber's text for it
//! (`AgentInfo.spaces`), never by a path. Folders and files are described like those of a workspace (`Listing`, `FilePiece`).

use serde::{Deserialize, Serialize};

use crate::instant::Instant;

/// Digits of a space's id.
pub const ID_DIGITS: usize = 16;
/// Most bytes of one file's diff; what is left out is reported.
pub const MAX_DIFF_BYTES: usize = 256 * 1024;
/// Most changed files in one answer.
pub const MAX_CHANGES: usize = 1_000;
/// Most commits in one answer.
pub const MAX_COMMITS: usize = 50;

/// What changed in a space: the answer to `space.status {space, session?}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpaceStatus {
    /// Absent when no branch is checked out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The commit that is checked out; absent before the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Upstream>,
    /// Of a session: the commit that was checked out when its first task began. The changes are those since then; without
    /// it those since the last commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
    pub changes: Vec<Change>,
    /// How many more changes there are at least.
    pub omitted: u64,
}

/// The branch that a branch follows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Upstream {
    pub name: String,
    pub ahead: u64,
    pub behind: u64,
}

/// Where a session's work began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Since {
    /// Empty: there was no commit yet.
    pub commit: String,
    pub at: Instant,
}

/// A file that is not as it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    pub path: String,
    pub kind: ChangeKind,
    /// Lines; absent for what is no text, and for files that git does not know and the viber did not count: large ones, all
    /// beyond the first 200, and those that it could not read in time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub added: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub removed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub renamed_from: Option<String>,
}

/// How a file changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = FileChangeKind))]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// It is there and git does not know it yet.
    New,
    Added,
    Changed,
    Deleted,
    Renamed,
    /// A file became a link, or the other way round.
    Retyped,
    /// A merge waits for somebody to decide.
    Conflict,
}

/// A piece of one file's unified diff: the answer to `space.diff {space, path, from?, session?, offset}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiffPiece {
    /// Of the whole diff, so that pieces of two different ones are not put together.
    pub hash: String,
    /// Bytes of the diff as far as it is given at all.
    pub size: u64,
    pub offset: u64,
    /// The file is no text.
    pub binary: bool,
    /// There is more, which is not given.
    pub cut: bool,
    /// Base64 of the bytes from `offset` on, at most 128 KiB of them.
    pub content: String,
}

/// Commits, newest first: the answer to `space.log {space, from, limit, session?}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpaceLog {
    pub from: u64,
    pub commits: Vec<Commit>,
    /// There are older ones.
    pub more: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
}

/// One commit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Commit {
    pub hash: String,
    pub author: String,
    pub at: Instant,
    /// The first line of its message.
    pub subject: String,
    /// How many files of the space it changed.
    pub files: u64,
}
