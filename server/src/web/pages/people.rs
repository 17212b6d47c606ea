//! What a person sees of their own.

pub(in crate::web::pages) mod theme;
