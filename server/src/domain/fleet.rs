//! Vibers and their connections.

pub mod connection;
pub mod library;
pub mod mcp;
pub mod rollout;
pub mod viber;
