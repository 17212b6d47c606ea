//! What an agent can do on the machine: read, write, edit, list, glob, grep, shell.
//!
//! Owns the tools and their bounds. Refuses paths outside the agent's spaces and the workspace, and anything a model
//! should decide.

use serde_json::Value;

/// Every tool that is built, in the order it is offered.
pub const ALL: &[&str] = &["read_file", "write_file", "edit_file", "list_files", "glob", "grep", "shell"];

/// What came of a call. A failure is told to the model, not to the task.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub ok: bool,
    /// For the model and the log: at most 64 KiB, head and tail.
    pub result: Value,
    /// Processes that had to be killed for it.
    pub killed: u32,
}
