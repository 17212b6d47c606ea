//! Artifacts, memory, plans, proposals, spaces and files.

pub(in crate::web::api) mod artifacts;
pub(in crate::web::api) mod memory;
pub(in crate::web::api) mod plan;
pub(in crate::web::api) mod proposals;
pub(in crate::web) mod spaces;
pub(in crate::web::api) mod versions;
pub(in crate::web) mod workspace;
