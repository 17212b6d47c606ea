//! What engines and tools use while they work on an attempt: where they report, where they ask a person and hear
//! people, and the plan and the memory, which they change as the session's policies allow.
//!
//! Owns how a report becomes events of the attempt's log. Does not know who works (`engine`), with what (`tools`), and
//! when an attempt begins and ends (`task`).

mod active_time;
pub mod activity;
mod approval;
pub mod children;
mod inbox;
pub mod memory;
mod outcome;
mod pause;
pub mod plan;
mod reporter;
mod rest;
mod sink;

pub use active_time::ActiveTime;
pub use approval::{Approvals, PendingAnswer, Question};
pub use children::Children;
pub use inbox::{Inbox, MessageQueue, NextMessages};
pub use outcome::EngineOutcome;
pub use pause::PauseSwitch;
pub use reporter::Reporter;
pub use rest::{Place, Rest};
pub use sink::Sink;
