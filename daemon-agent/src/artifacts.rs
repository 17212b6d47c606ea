//! What a task produces: files in `artifacts/{taskId}/`, told to the Board with their size, hash and type.
//!
//! Owns that folder and the three ways into it: the tool, fences in the answer, and files that simply appear. Refuses to
//! send anything by itself: the Board asks for the bytes when somebody opens one.

mod fences;
mod place;
mod reading;
mod shelf;

pub use fences::{Delta, Source, deltas};
pub use place::{Measure, find, measure};
pub use shelf::{From, New, Shelf};

/// Where earlier versions lie, by their hash, beside the newest one.
const VERSIONS: &str = ".versions";
