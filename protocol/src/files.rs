//! Files of a viber's workspace: how an edit is requested and what became of it, how files are listed and read.
//!
//! A path is relative to the workspace, with parts joined by `/`. A hash is the SHA-256 of the whole file in
//! hexadecimal; for a file that is too large to be read for it, it begins with `~` and only tells whether the file is
//! still the same.

use serde::{Deserialize, Serialize};

use crate::{ids::EditId, instant::Instant};

/// The version of every folder: its content is not compared, because nothing of it is lost.
pub const FOLDER_VERSION: &str = "/";

/// An edit of one file, or of a folder as a whole: applied only to the version that its author saw. Applying it twice
/// has the same effect as applying it once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceWrite {
    pub edit_id: EditId,
    pub path: String,
    /// What the author saw; absent: there was no file. Of a folder that is deleted or renamed: [`FOLDER_VERSION`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub base_hash: Option<String>,
    #[serde(default)]
    pub op: WriteOp,
    /// The new text of a `put`, unless it is too large for a frame.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub content: Option<String>,
    /// Where the new text is fetched instead, below the Board's address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub content_url: Option<String>,
    /// The new path of a `rename`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub to: Option<String>,
}

/// What an edit does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteOp {
    #[default]
    Put,
    /// Into the trash folder of the workspace.
    Delete,
    Rename,
}

impl WriteOp {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Delete => "delete",
            Self::Rename => "rename",
        }
    }
}

/// The outcome of an edit. Kept on the disk and sent after every welcome until the Board has it (`ack:written`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceWritten {
    pub edit_id: EditId,
    pub path: String,
    pub state: WriteState,
    /// The file as it is now; absent: there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hash: Option<String>,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
}

/// The outcome of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteState {
    Applied,
    /// The file is not what the author saw: nothing was written.
    Conflict,
    /// The path or the content is not allowed: nothing was written.
    Refused,
}

/// The entries of a folder: the answer to `workspace.list {path, from}` and `space.list {space, path, from}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Listing {
    /// The folder; empty for the root.
    pub path: String,
    /// How many entries stand before these.
    pub from: u64,
    /// Folders first, then by name.
    pub entries: Vec<Entry>,
    /// How many come after these: asked for by `from`.
    pub omitted: u64,
}

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub name: String,
    pub kind: EntryKind,
    #[serde(default)]
    pub size: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mtime: Option<Instant>,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = FolderEntryKind))]
#[serde(rename_all = "kebab-case")]
pub enum EntryKind {
    Folder,
    File,
    /// A link, a pipe, a device: shown, never opened.
    Other,
}

/// A piece of a file: the answer to `workspace.read {path, offset, limit}` and `space.read {space, path, offset,
/// limit}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FilePiece {
    pub path: String,
    /// The hash of the whole file, not of the piece.
    pub hash: String,
    pub size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtime: Option<Instant>,
    pub offset: u64,
    /// Base64 of the bytes from `offset` on, at most 128 KiB of them.
    pub content: String,
}

/// The matches of a search: the answer to `workspace.search {query}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FileMatches {
    pub hits: Vec<FileMatch>,
    /// There are more matches, or not everything could be searched in time.
    pub cut: bool,
}

/// A file whose name, or a line of which, contains the query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileMatch {
    pub path: String,
    pub kind: EntryKind,
    /// Counted from 1; absent when the name contains it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<u64>,
    /// The line, or the part of it around what was found.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub text: Option<String>,
}
