//! The connection to one viber: a pure state machine, and one loop that does its I/O.
//!
//! Owns the handshake, commands composed when they are sent, acknowledgements, silence, rates and superseded connections.
//! Refuses SQL (that is `db`, through `actions`) and HTTP (that is `web`, which authenticates the upgrade).

mod batching;
mod compose;
mod connection;
mod ingest_limits;
mod pending;
mod send_queue;

pub use compose::payload;
pub use connection::{AuthenticatedViber, serve};
