//! What breaks: the cases F01 and up of the register (`cases.rs`). Whatever fails, nothing that was promised is lost.

mod bounds;
mod daemon;
mod database;
mod network;
mod process;
