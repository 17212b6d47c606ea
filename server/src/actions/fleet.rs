//! Vibers: joining, names, labels, drain.

pub mod enrol;
pub mod vibers;
