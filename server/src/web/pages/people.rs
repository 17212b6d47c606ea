//! Accounts, a team's settings, the theme.

pub mod accounts;
pub(in crate::web) mod settings;
pub(in crate::web::pages) mod theme;
