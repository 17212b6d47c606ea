//! The Board: signs operators in, keeps teams apart, routes work to vibers, and keeps what they report.

pub mod actions;
pub mod artifacts;
pub mod cli;
pub mod clock;
pub mod config;
pub mod db;
pub mod domain;
pub mod error;
pub mod fault;
pub mod guard;
pub mod hub;
pub mod lifecycle;
pub mod link;
pub mod live;
pub mod measure;
pub mod rate_limit;
pub mod scheduler;
pub mod secret;
pub mod state;
pub mod web;
