//! Vibers and their connections.

pub mod connection;
pub mod viber;
