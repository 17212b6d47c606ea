//! Playbooks: procedures of several steps, for agents, that people write in Markdown.
//!
//! ```text
//! # Playbook: NAME
//!
//! ## Goal
//! What is to be achieved.
//!
//! ## Inputs                                       optional
//! - version: what it is (required)
//!
//! ## Steps
//! 1. [Agent: NAME] What to do.                    or `1. [NAME] …`
//! 2. [NAME] What to do next.
//!    - Constraint: any other bullet is for the agent
//!    - Viber: gpu-1                               or labels, `gpu=yes, region=eu`
//!    - After: 1                                   or `none`; else the step before
//!    - Approve: before                            or `after`
//!    - Gives: notes-<version>.md, report.csv
//!    - Retry: 2
//!    - Limits: minutes 20, costUsd 2
//! ```
//!
//! Headings and keys may be written in capitals or not, keys also with emphasis. Other sections, and comments, are for readers.
//! `<name>`, with a name of the form `[a-z][a-z0-9_-]*`, is a *placeholder* wherever it stands in the goal, in an instruction, in
//! a bullet for the agent or in `Gives`, also between backticks and in blocks of code. One that `## Inputs` does not declare is
//! a required input. Only markup is none: a name of which the text has an end tag, `</name>`, and `br`, `hr`, `img` and `wbr`,
//! unless they are declared.
//!
//! Owns this form, its mistakes, and how inputs are filled in. Refuses I/O, and what becomes of a playbook when it runs.

mod bullets;
mod fill;
mod parse;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{command::TaskLimits, ids::RunId, path, text::head};

/// Among the capabilities of its hello: a daemon that offers a supervisor its tools, and takes
/// [`Command::Ledger`](crate::Command::Ledger).
pub const PLAYBOOKS_CAPABILITY: &str = "playbooks";
/// Largest text of a playbook, bytes.
pub const MAX_PLAYBOOK_BYTES: usize = 256 * 1024;
/// Most steps of a playbook.
pub const MAX_PLAYBOOK_STEPS: usize = 200;
/// The folder of playbooks, beneath a workspace.
pub const PLAYBOOK_FOLDER: &str = "playbooks";
/// Longest name of a playbook's file without its ending, bytes.
const MAX_FILE_NAME_BYTES: usize = 120;
/// Agents that are named in an error about another one.
const MAX_NAMED_AGENTS: usize = 12;

/// The whole ledger of a run. It becomes `playbooks/runs/{run}.md` of the workspace, instead of what is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlaybookLedger {
    pub run_id: RunId,
    /// Markdown; as JSON it has to fit into a frame.
    pub text: String,
}

/// What a task is in a run of a playbook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlaybookTask {
    pub run_id: RunId,
    /// The step that it does, such as `3` or `3a`; absent: it is the supervisor, and its agent is offered `run_step` and the
    /// other tools of one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub step: Option<String>,
}

impl PlaybookTask {
    /// Whether the task supervises the run.
    pub fn is_supervisor(&self) -> bool {
        self.step.is_none()
    }
}

/// A playbook as its text describes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Playbook {
    pub name: String,
    /// What is to be achieved.
    pub goal: String,
    /// Those that it declares, then those that it uses without, in the order in which they occur.
    pub inputs: Vec<PlaybookInput>,
    pub steps: Vec<PlaybookStep>,
}

/// Something that a run has to be given, for `<name>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PlaybookInput {
    pub name: String,
    /// What it is, for people; empty if the playbook does not say.
    pub text: String,
    /// Without it there is no run. Of another one that is not given nothing stands in its place.
    pub required: bool,
    /// Where it is declared or first used, from 1.
    pub line: u32,
}

/// A step of a playbook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PlaybookStep {
    /// Its number, from 1.
    pub n: u32,
    /// Where it begins, from 1.
    pub line: u32,
    /// The agent as it is written; [`agent_id`] tells which one that is.
    pub agent: String,
    pub instruction: String,
    /// Its other bullets as they are written, each without its dash.
    pub bullets: Vec<String>,
    /// Where it runs; absent: on the viber of the playbook.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub viber: Option<StepViber>,
    /// The numbers of the steps that come before it, each once, in their order.
    pub after: Vec<u32>,
    /// When a person decides about it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gate: Option<GatePoint>,
    /// Names of the files that it has to hand over.
    pub gives: Vec<String>,
    /// How often it is started again when it fails.
    pub retry: u32,
    pub limits: TaskLimits,
}

/// Which viber a step runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum StepViber {
    /// The one of this name.
    Name(String),
    /// One that has all of these.
    Labels(BTreeMap<String, String>),
}

/// When a person decides about a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum GatePoint {
    /// Whether it begins.
    Before,
    /// Whether it is done.
    After,
}

impl GatePoint {
    /// The word in the playbook and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }
}

/// A mistake in a playbook, or in what is given to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PlaybookError {
    /// Of the text, from 1; 0 where no line is meant.
    pub line: u32,
    /// What was expected, without the line.
    pub message: String,
}

/// Reads a text as far as it can be read, with its mistakes in the order of their lines. Only one without any may run.
pub fn parse(text: &str) -> (Playbook, Vec<PlaybookError>) {
    parse::read(text)
}

/// The name of a version of a text: its SHA-256, in hex.
pub fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The agent among the `known` ids that a step names like this: capitals do not matter unless two differ by them alone.
pub fn agent_id(known: &[&str], name: &str) -> Option<String> {
    let mut alike = known.iter().filter(|id| id.eq_ignore_ascii_case(name));
    let only = alike.next().filter(|_| alike.next().is_none());
    known.iter().find(|id| **id == name).or(only).map(|id| (*id).to_owned())
}

/// Where the playbook of this name lies, beneath a workspace; `None` if none can be called so. A playbook's name is that of its
/// file without `.md`.
pub fn file_path(name: &str) -> Option<String> {
    let is_name = (1..=MAX_FILE_NAME_BYTES).contains(&name.len()) && !name.starts_with('.') && !name.contains('/');
    let path = format!("{PLAYBOOK_FOLDER}/{name}.md");
    (is_name && path::file(&path).is_ok()).then_some(path)
}

impl Playbook {
    /// The steps whose agent is none of these ids.
    pub fn unknown_agents(&self, known: &[&str]) -> Vec<PlaybookError> {
        let named = known.iter().take(MAX_NAMED_AGENTS).copied().collect::<Vec<_>>().join(", ");
        let more = if known.len() > MAX_NAMED_AGENTS { ", …" } else { "" };
        let there = if named.is_empty() { "none".to_owned() } else { format!("{named}{more}") };
        let is_unknown = |step: &&PlaybookStep| !step.agent.is_empty() && agent_id(known, &step.agent).is_none();
        let unknown = self.steps.iter().filter(is_unknown).map(|step| {
            let message = format!("there is no agent {:?}; there are: {there}", head(&step.agent, 80));
            PlaybookError { line: step.line, message }
        });
        unknown.collect()
    }
}
