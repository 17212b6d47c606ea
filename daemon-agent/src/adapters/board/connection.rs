//! One connection to the Board: a loop that does the I/O (`run`) and a state machine that decides what is sent (`state`).

mod run;
pub(crate) mod state;

pub(crate) use run::{ConnectionOutcome, serve};
