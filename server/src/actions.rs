//! The verbs that change things, one function each, whoever asks: pages, the API, the link, the scheduler, the console.
//!
//! Each opens one change, writes the audit inside it, and rings the hub after the commit.

pub mod accounts;
pub mod invitations;
pub mod members;
pub mod setup;
pub mod teams;
pub mod tokens;
