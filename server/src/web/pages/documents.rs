//! Files, plans, memory, artifacts and spaces.

pub(in crate::web::pages) mod artifacts;
pub(in crate::web::pages) mod files;
pub(in crate::web::pages) mod memory;
pub(in crate::web::pages) mod pane;
pub(in crate::web::pages) mod plan;
pub(in crate::web::pages) mod proposals;
pub(in crate::web::pages) mod spaces;
