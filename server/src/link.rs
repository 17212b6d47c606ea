//! The conversation with one viber: a pure state machine, and one loop that does its I/O.
//!
//! Owns handshake, commands composed when they are sent, acknowledgements, silence, rates and displacement. Refuses SQL
//! (that is `db`, through `actions`) and HTTP (that is `web`, which authenticates the upgrade).

mod batching;
mod compose;
mod ingest_limits;
mod machine;
mod pending;
mod queue;
mod talk;

pub use compose::payload;
pub use talk::{Guest, converse};
