//! The file that `backup` writes: a tar with the rows of each table as lines of JSON, the same for both databases.
//!
//! ```text
//! backup.json                     format and version, in the first bytes of the file
//! tables/{table}/{n}.jsonl        rows, each an array in the order of the columns
//! blobs/{team}/{sha256}           with --blobs
//! manifest.json                   schema, columns, and the rows, size and SHA-256 of every file
//! manifest.sha256                 the end, so that a truncated file is noticed
//! ```

mod read;
mod write;

use serde::{Deserialize, Serialize};

pub use read::{ArchiveKind, ArchivePart, BlobEntry, kind, parts, verify};
pub use write::ArchiveWriter;

/// The format named in the first entry.
pub const FORMAT: &str = "viber-board-backup";
/// Raised when older programs can no longer read the format.
pub const FORMAT_VERSION: u32 = 1;

const HEAD_FILE: &str = "backup.json";
const MANIFEST_FILE: &str = "manifest.json";
const SEAL_FILE: &str = "manifest.sha256";

/// The first entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArchiveHead {
    pub format: String,
    pub format_version: u32,
}

/// The content of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Version of the database's schema.
    pub schema: i64,
    /// The database engine that it came from.
    pub engine: String,
    pub board_version: String,
    pub created_at: protocol::Instant,
    pub tables: Vec<TableEntry>,
    /// Absent when blobs were not asked for.
    pub blobs: Option<BlobCounts>,
}

/// A table and its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TableEntry {
    pub name: String,
    pub columns: Vec<String>,
    pub rows: u64,
    pub files: Vec<FileEntry>,
}

/// A file with rows of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileEntry {
    pub path: String,
    pub rows: u64,
    pub bytes: u64,
    pub sha256: String,
}

/// How many blobs there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlobCounts {
    pub count: u64,
    pub bytes: u64,
    /// Blobs that the database names and the store did not have.
    pub missing: u64,
}

impl Manifest {
    /// Rows of all tables.
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|table| table.rows).sum()
    }
}
