//! The file that `backup` writes: a tar with the rows of each table as lines of JSON, the same for both databases.
//!
//! ```text
//! backup.json                     what it is, for whoever looks at the first bytes
//! tables/{table}/{n}.jsonl        rows, each an array in the order of the columns
//! blobs/{team}/{sha256}           with --blobs
//! manifest.json                   schema, columns, and of every file its rows, size and SHA-256
//! manifest.sha256                 the end: a file that was cut is noticed
//! ```

mod read;
mod write;

use serde::{Deserialize, Serialize};

pub use read::{ArchiveKind, BlobEntry, Part, kind, parts, verify};
pub use write::ArchiveWriter;

/// What the first entry says.
pub const FORMAT: &str = "viber-board-backup";
/// Raised when older programs could not read it any more.
pub const FORMAT_VERSION: u32 = 1;

const HEAD: &str = "backup.json";
const MANIFEST: &str = "manifest.json";
const SEAL: &str = "manifest.sha256";

/// The first entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    pub format: String,
    pub format_version: u32,
}

/// What an archive holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Version of the database's schema.
    pub schema: i64,
    /// Where it came from.
    pub engine: String,
    pub board_version: String,
    pub created_at: protocol::Instant,
    pub tables: Vec<TableEntry>,
    /// Absent: blobs were not asked for.
    pub blobs: Option<Blobs>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TableEntry {
    pub name: String,
    pub columns: Vec<String>,
    pub rows: u64,
    pub files: Vec<FileEntry>,
}

/// A file of a table's rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileEntry {
    pub path: String,
    pub rows: u64,
    pub bytes: u64,
    pub sha256: String,
}

/// The blobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Blobs {
    pub count: u64,
    pub bytes: u64,
    /// Those that the database names and the store did not have.
    pub missing: u64,
}

impl Manifest {
    /// Rows of all tables.
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|table| table.rows).sum()
    }
}
