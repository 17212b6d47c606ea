//! Files, plans, memory, artifacts and spaces.

pub mod artifact;
pub mod file;
pub mod memory;
pub mod plan;
pub mod space;
