//! Files, edits, plans, proposals, artifacts and their bytes, and what stands beside a conversation.

pub mod artifacts;
pub mod blobs;
pub mod edits;
pub mod files;
pub mod listings;
pub mod panes;
pub mod plans;
pub mod proposals;
pub mod touched_files;
