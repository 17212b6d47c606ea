//! The daemon of a work machine: it dials out to the Board, runs tasks with the models and keys of this machine,
//! and keeps all durable context as plain files under its home.

pub mod adapters;
pub mod artifacts;
pub mod cli;
pub mod clock;
pub mod config;
pub mod confinement;
pub mod damaged;
pub mod engine;
pub mod fault;
pub mod hold;
pub mod home;
pub mod journal;
pub mod leftovers;
pub mod memory;
pub mod mesh;
pub mod model;
pub mod outbox;
pub mod prompt;
pub mod removal;
pub mod report;
pub mod sandbox;
pub mod session_log;
pub mod space;
pub mod task;
pub mod tools;
pub mod workspace;
