//! Vibers: joining, names, labels, drain, and taking every credential back.

pub mod enrol;
pub mod revoke_all;
pub mod vibers;
