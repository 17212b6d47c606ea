//! Files, edits, plans, proposals, artifacts and their bytes.

pub mod artifacts;
pub mod blobs;
pub mod edits;
pub mod files;
pub mod listings;
pub mod plans;
pub mod proposals;
