//! What a task produces: files in `artifacts/{taskId}/`, reported to the Board with their size, hash and type.
//!
//! Owns that folder and the three ways into it: the tool, fenced blocks in the answer, and files that commands put
//! there. Never sends content by itself: the Board asks for the bytes when somebody opens an artifact.

mod collector;
mod fenced_blocks;
mod read_limits;
mod reference;
mod versions;

pub use collector::{ArtifactSource, Collector, NewArtifact, ReportedArtifacts};
pub use fenced_blocks::{FencedSource, deltas};
pub use reference::{FileDigest, find, measure};

/// The folder for earlier versions, named by their hash, beside the newest ones.
const VERSIONS_FOLDER: &str = ".versions";
