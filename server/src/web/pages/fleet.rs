//! The list of vibers, one viber, and how one joins.

pub(in crate::web::pages) mod join;
pub(in crate::web::pages) mod preflight;
pub(in crate::web::pages) mod viber;
pub(in crate::web::pages) mod vibers;
