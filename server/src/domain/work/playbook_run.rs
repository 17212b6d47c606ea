//! Runs of playbooks: what was frozen when one started, its steps, and what became of them.
//!
//! ```text
//! pending ─→ gate ─→ running ─→ done          (a gate before the step)
//!    │        │         └─────→ gate ─→ done   (a gate after it)
//!    └────────┴─────────┴──→ failed │ skipped │ stopped
//! ```
//!
//! A failed step may be started again.

pub mod calls;
pub mod gates;
pub mod goal;
pub mod ledger;
pub mod plan;
pub mod transitions;

use std::collections::BTreeMap;

use protocol::{
    ApprovalId, Instant, RunId, SessionId, TaskId, TaskLimits, Usage, ViberId,
    playbook::{GatePoint, StepViber},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

crate::words! {
    /// The state of a run. The last three are final.
    RunState as PlaybookRunState {
        Running = "running",
        Completed = "completed",
        Error = "error",
        Stopped = "stopped",
    }
}

impl RunState {
    /// Whether the run has ended.
    pub fn is_final(self) -> bool {
        self != Self::Running
    }
}

crate::words! {
    /// How far a step is.
    StepPhase as PlaybookStepPhase {
        /// Its turn has not come.
        Pending = "pending",
        /// A person decides whether it begins, or whether it is done.
        Gate = "gate",
        /// Its task has not ended.
        Running = "running",
        Done = "done",
        /// It may be started again.
        Failed = "failed",
        Skipped = "skipped",
        /// The run was stopped before the step had ended.
        Stopped = "stopped",
    }
}

impl StepPhase {
    /// Whether the steps after it may begin.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Skipped)
    }
}

crate::words! {
    /// What of a run waits for a person.
    RunNeed as PlaybookRunNeed {
        /// A decision about a step.
        Gate = "gate",
        /// A step that failed: it is started again or skipped.
        Step = "step",
        /// The supervisor failed too often.
        Supervisor = "supervisor",
    }
}

/// What was frozen when a playbook was started, and how far it is.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaybookRun {
    pub id: RunId,
    /// Whose playbook it is. The supervisor works there, and so does each step that names no other viber.
    pub viber_id: ViberId,
    /// The playbook's name.
    pub playbook: String,
    /// Its file beneath the workspace.
    pub path: String,
    /// SHA-256 of the text, in hex.
    pub hash: String,
    /// The playbook as it was. Lists leave it out.
    pub text: String,
    pub inputs: BTreeMap<String, String>,
    /// A supervisor starts the steps; otherwise they run as they are written.
    pub supervised: bool,
    /// How many steps the playbook has; the supervisor may have added some.
    pub step_count: u32,
    pub state: RunState,
    /// Nothing new is started.
    pub paused: bool,
    pub needs: Option<RunNeed>,
    /// What the supervisor said at the end, or why the run ended.
    pub summary: Option<String>,
    /// The supervisor's newest task.
    pub supervisor: Option<TaskId>,
    pub supervisor_session: Option<SessionId>,
    /// How often it was started since a person last wanted it.
    pub supervisor_attempts: u32,
    /// The ids of those who told its agents something by what they did: a denial's or a retry's note, or why a step is left out.
    pub told_by: Vec<String>,
    /// It was started on its machine: it may use no other one.
    pub by_viber: bool,
    /// Operator, token or viber, and the name then.
    pub started_by: String,
    pub starter: String,
    pub created_at: Instant,
    pub ended_at: Option<Instant>,
    /// Rises with every change.
    pub version: u64,
    /// The version whose ledger its viber was sent.
    pub ledger_version: u64,
    /// It has ended, and nothing of it is left to do.
    pub settled: bool,
}

/// A step of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunStep {
    pub run_id: RunId,
    /// The order on the page, from 1.
    pub position: u32,
    /// `3`, or `3a` for one that the supervisor added.
    pub label: String,
    pub title: String,
    /// As it would run, or runs.
    pub instruction: String,
    /// Its other bullets, verbatim.
    pub bullets: Vec<String>,
    pub agent_id: String,
    /// Once it is chosen.
    pub viber_id: Option<ViberId>,
    /// What the playbook says about its viber.
    pub target: Option<StepViber>,
    /// Labels of the steps that come before it.
    pub after: Vec<String>,
    pub gate: Option<GatePoint>,
    /// Names of files that it has to produce.
    pub gives: Vec<String>,
    /// How often it is started again by itself.
    pub retry: u32,
    pub limits: TaskLimits,
    pub phase: StepPhase,
    pub task_id: Option<TaskId>,
    pub session_id: Option<SessionId>,
    /// How often it was started.
    pub attempt: u32,
    /// By the supervisor.
    pub added: bool,
    /// The supervisor or a person asked for it: it begins as soon as it may.
    pub wanted: bool,
    /// It failed because its task did: should that be completed after all, the step is done.
    pub broke: bool,
    /// What a decision about its gate is about, SHA-256 in hex.
    pub gate_digest: Option<String>,
    pub gate_opened_at: Option<Instant>,
    pub gate_word: Option<GateWord>,
    pub skipped: Option<SkippedStep>,
    /// Why it failed.
    pub failure: Option<String>,
    /// What its task said at the end.
    pub summary: Option<String>,
    /// What it took until now, all attempts together.
    pub usage: Usage,
    pub started_at: Option<Instant>,
    pub ended_at: Option<Instant>,
}

impl RunStep {
    /// A step that waits for its turn, and for nothing else.
    pub fn new(run_id: RunId, label: String, agent_id: String, instruction: String) -> Self {
        Self {
            run_id,
            position: 0,
            label,
            title: protocol::text::title(&instruction),
            instruction,
            bullets: Vec::new(),
            agent_id,
            viber_id: None,
            target: None,
            after: Vec::new(),
            gate: None,
            gives: Vec::new(),
            retry: 0,
            limits: TaskLimits::default(),
            phase: StepPhase::Pending,
            task_id: None,
            session_id: None,
            attempt: 0,
            added: false,
            wanted: false,
            broke: false,
            gate_digest: None,
            gate_opened_at: None,
            gate_word: None,
            skipped: None,
            failure: None,
            summary: None,
            usage: Usage::default(),
            started_at: None,
            ended_at: None,
        }
    }

    /// What its label says about the order of steps.
    pub fn place(&self) -> u64 {
        place(&self.label)
    }
}

/// Places between two steps of a playbook, for those that are added.
const PLACES_PER_STEP: u64 = 1_000;

/// The place of a label: `3` comes before `3a`, `3b`, …, `3z`, `3aa` and `4`.
fn place(label: &str) -> u64 {
    let digits = label.len() - label.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 = label[..digits].parse().unwrap_or_default();
    let letter =
        |place: u64, byte: u8| place.saturating_mul(26).saturating_add(u64::from(byte.saturating_sub(b'a')) + 1);
    let letters = label[digits..].bytes().fold(0, letter);
    number.saturating_mul(PLACES_PER_STEP).saturating_add(letters.min(PLACES_PER_STEP - 1))
}

/// What a person decided about a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlaybookGateWord)]
pub struct GateWord {
    pub allowed: bool,
    /// Operator or token, and the name then.
    pub by: String,
    pub by_name: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
    /// Why an owner decided what the team's settings do not let them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub break_glass: Option<String>,
    pub at: Instant,
}

/// Who left a step out, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlaybookSkippedStep)]
pub struct SkippedStep {
    /// Operator or token, or `supervisor`.
    pub by: String,
    pub by_name: String,
    pub reason: String,
}

crate::words! {
    /// What happened in a run.
    RunEventKind as PlaybookRunEventKind {
        Started = "started",
        StepStarted = "step_started",
        StepDone = "step_done",
        StepFailed = "step_failed",
        StepRetried = "step_retried",
        StepAdded = "step_added",
        StepSkipped = "step_skipped",
        GateOpened = "gate_opened",
        GateAllowed = "gate_allowed",
        GateDenied = "gate_denied",
        Paused = "paused",
        Resumed = "resumed",
        SupervisorRetried = "supervisor_retried",
        Completed = "completed",
        Failed = "failed",
        Stopped = "stopped",
    }
}

/// A line of a run's ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEvent {
    pub at: Instant,
    pub kind: RunEventKind,
    /// The label of the step that it is about.
    pub step: Option<String>,
    pub text: String,
    /// The name of whoever did it; absent: the Board.
    pub by: Option<String>,
}

/// A call of the supervisor that waits for the Board's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct SupervisorCall {
    pub id: ApprovalId,
    pub run_id: RunId,
    pub task_id: TaskId,
    pub attempt: u32,
    /// Of the event that asked: the order of the calls.
    pub seq: u64,
    /// What its answer names.
    pub digest: String,
    /// `run_step`, `add_step`, `skip_step` or `finish`.
    pub tool: String,
    pub args: Value,
    /// The label of the step whose end it waits for.
    pub waits_for: Option<String>,
    pub created_at: Instant,
}

#[cfg(test)]
mod tests;
