//! The list of vibers, one viber, its model providers, how one joins, and skills.

pub(in crate::web::pages) mod join;
pub(in crate::web::pages) mod preflight;
pub(in crate::web::pages) mod providers;
pub(in crate::web::pages) mod skills;
pub(in crate::web::pages) mod viber;
pub(in crate::web::pages) mod vibers;
