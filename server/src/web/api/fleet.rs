//! Vibers.

pub(in crate::web::api) mod vibers;
