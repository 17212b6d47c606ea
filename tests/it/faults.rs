//! Faults: what may break does break, and nothing that was promised is lost. Each case bears its number in reliability.md.

mod bounds;
mod daemon;
mod database;
mod network;
mod process;
