//! The Board: signs operators in, keeps teams apart, routes work to vibers, and keeps what they report.

pub mod clock;
pub mod config;
pub mod db;
pub mod domain;
pub mod error;
pub mod hub;
pub mod live;
pub mod state;
pub mod web;
