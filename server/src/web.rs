//! Pages, fragments, the JSON API and the daemons' door: everything that speaks HTTP.

pub mod assets;
pub mod links;
pub mod markdown;
pub mod view;
