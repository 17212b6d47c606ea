//! What engines and tools use while they work on an attempt: where they report, where they ask a person, and the plan
//! and the memory, which they change as the session's policies allow.
//!
//! Owns how a report becomes events of the attempt's log. Does not know who works (`engine`), with what (`tools`), and
//! when an attempt begins and ends (`task`).

pub mod activity;
mod approval;
pub mod memory;
mod outcome;
pub mod plan;
mod reporter;
mod sink;

pub use approval::Approvals;
pub use outcome::EngineOutcome;
pub use reporter::Reporter;
pub use sink::Sink;
