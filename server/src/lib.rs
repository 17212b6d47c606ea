//! The Board: signs operators in, keeps teams apart, routes work to vibers, and keeps what they report.

pub(crate) mod actions;
pub(crate) mod artifacts;
pub mod cli;
pub(crate) mod clock;
pub(crate) mod config;
pub mod db;
pub mod domain;
pub(crate) mod error;
pub mod fault;
pub mod guard;
pub(crate) mod hub;
pub(crate) mod lifecycle;
pub(crate) mod link;
pub(crate) mod live;
pub(crate) mod measure;
pub(crate) mod rate_limit;
pub(crate) mod registry;
pub(crate) mod scheduler;
pub mod secret;
pub(crate) mod state;
pub mod web;
