//! Vibers: joining, names, labels, drain, keys of their providers.

pub mod enrol;
pub mod provider_keys;
pub mod vibers;
