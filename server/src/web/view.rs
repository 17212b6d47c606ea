//! What every page has in common: the shell around it, and the words and icons that states are shown with.
//!
//! Owns no URL and no query of its own; pages fill it.

pub mod badge;
pub mod call;
pub mod diff;
pub mod filters;
pub mod lanes;
pub mod message;
pub mod shell;
pub mod time;

pub use badge::Badge;
pub use shell::{Frame, Place, Shell};
