//! Vibers, and skills.

pub(in crate::web::api) mod skills;
pub(in crate::web::api) mod vibers;
