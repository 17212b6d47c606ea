//! Files, plans, memory, proposals, artifacts and spaces.

pub mod artifacts;
pub mod file_reports;
pub mod files;
pub mod memory;
pub mod panes;
pub mod plan;
pub mod proposals;
pub mod spaces;
