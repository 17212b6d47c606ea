//! One connection: a loop that does the I/O (`run`), a state machine that decides what is sent and done (`state`), and why
//! and how it ends (`close`).

mod close;
mod run;
mod state;

pub use run::{AuthenticatedViber, serve};
