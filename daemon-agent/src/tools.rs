//! What an agent can do on the machine: read, write, edit, list, glob, grep, shell.
//!
//! Owns the tools and their bounds. Refuses paths outside the agent's spaces and the workspace, and anything a model
//! should decide.

use std::{path::PathBuf, sync::Arc};

use protocol::TaskId;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Agent, Config},
    home::Home,
    model::ToolSpec,
    task::Sink,
};

mod groups;
mod specs;

pub use groups::{Opened, open_groups};

/// Every tool that is built, in the order it is offered.
pub const ALL: &[&str] = &["read_file", "write_file", "edit_file", "list_files", "glob", "grep", "shell"];

/// What came of a call. A failure is told to the model, not to the task.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub ok: bool,
    /// For the model and the log: at most 64 KiB as JSON, head and tail. A string for all tools but `shell`, whose
    /// result is `{exitCode | signal, output, timedOut?, stopped?, omitted?, file?, ended?}`.
    pub result: Value,
    /// Processes that had to be ended for it.
    pub killed: u32,
}

impl Outcome {
    fn done(text: impl Into<String>) -> Self {
        Self { ok: true, result: Value::String(text.into()), killed: 0 }
    }

    fn refused(why: impl Into<String>) -> Self {
        Self { ok: false, result: Value::String(why.into()), killed: 0 }
    }
}

/// What the tools of one task may touch, and where they report.
#[derive(Clone)]
pub struct ToolContext {
    pub home: Home,
    pub agent: Arc<Agent>,
    pub config: Arc<Config>,
    pub task_id: TaskId,
    pub sink: Sink,
    /// Cancelled when the task must end now; a running call then ends everything it started and returns.
    pub stop: CancellationToken,
}

/// The tools of one attempt of a task. Dropping it removes the attempt's private TMPDIR.
pub struct Toolbox {
    context: ToolContext,
    /// The program that is started as `… hold`; this one itself, but for tests.
    hold: PathBuf,
}

impl Toolbox {
    /// The tools of `context.agent`. Touches nothing yet.
    pub fn new(context: ToolContext) -> Self {
        Self { context, hold: crate::hold::own_program() }
    }

    /// The same, with `program` as the supervisor of commands instead of the running program.
    pub fn with_hold(mut self, program: impl Into<PathBuf>) -> Self {
        self.hold = program.into();
        self
    }

    /// The agent's tools as a model sees them, in the order of [`ALL`].
    pub fn specs(&self) -> Vec<ToolSpec> {
        ALL.iter().filter(|name| self.offers(name)).filter_map(|name| specs::of(name)).collect()
    }

    /// Runs a call to its end. It returns soon after `stop`, with everything dead that it had started.
    pub async fn call(&self, call_id: &str, name: &str, args: &Value) -> Outcome {
        let _ = (call_id, args, &self.hold);
        if !self.offers(name) {
            let mine: Vec<_> = ALL.iter().filter(|tool| self.offers(tool)).copied().collect();
            return Outcome::refused(format!("there is no tool {name:?}; the tools are {}", mine.join(", ")));
        }
        Outcome::refused(format!("{name} is being built"))
    }

    fn offers(&self, name: &str) -> bool {
        ALL.contains(&name) && self.context.agent.tools.iter().any(|tool| tool == name)
    }
}

/// Whether calls of this tool change nothing, so that several may run side by side.
pub fn is_read_only(name: &str) -> bool {
    matches!(name, "read_file" | "list_files" | "glob" | "grep")
}
