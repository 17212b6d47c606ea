//! Vibers and their connections.

pub mod connection;
pub mod library;
pub mod rollout;
pub mod viber;
