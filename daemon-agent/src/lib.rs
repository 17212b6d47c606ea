//! The daemon of a work machine: it dials out to the Board, runs tasks with this machine's models and keys, and keeps
//! all durable context as plain files under its home.

pub(crate) mod adapters;
pub mod artifacts;
pub mod cli;
pub mod clock;
pub mod config;
pub mod confinement;
pub(crate) mod damaged;
pub(crate) mod engine;
pub(crate) mod fault;
pub mod hold;
pub mod home;
pub(crate) mod journal;
pub(crate) mod leftovers;
pub mod mcp;
pub(crate) mod memory;
pub(crate) mod mesh;
pub(crate) mod model;
pub(crate) mod outbox;
pub(crate) mod prompt;
pub(crate) mod removal;
pub mod report;
pub mod sandbox;
pub(crate) mod session_log;
pub mod skills;
pub mod space;
pub(crate) mod task;
pub mod tools;
pub mod workspace;
