//! Vibers and their connections.

pub mod connection;
pub mod library;
pub mod order;
pub mod rollout;
pub mod viber;
