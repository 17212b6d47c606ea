//! Tools whose results are for people to read: the plan, the memory, artifacts.

pub mod artifact;
pub mod memory;
pub mod plan;
