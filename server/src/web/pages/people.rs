//! What a person sees of their own.

pub mod accounts;
pub(in crate::web) mod settings;
pub(in crate::web::pages) mod theme;
