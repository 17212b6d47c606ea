//! Playbooks and their runs as the API shows them.

use std::collections::BTreeMap;

use protocol::{
    Instant, RunId, SessionId, TaskId, TaskLimits, Usage, ViberId,
    playbook::{GatePoint, Playbook, PlaybookError, StepViber},
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    actions::playbooks::PlaybookFile,
    domain::{GateWord, PlaybookRun, RunEvent, RunEventKind, RunNeed, RunState, RunStep, SkippedStep, StepPhase},
};

/// A playbook as it lies on a viber.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlaybookFile)]
pub struct PlaybookFileResource {
    /// Of its file, without `.md`.
    pub name: String,
    /// Beneath the workspace.
    pub path: String,
    /// SHA-256 of its text, in hex: a run that names it runs this text or none.
    pub hash: String,
    /// What could be read of it.
    pub playbook: Playbook,
    /// What is wrong with it, by line; it runs only without any.
    pub errors: Vec<PlaybookError>,
}

impl From<PlaybookFile> for PlaybookFileResource {
    fn from(file: PlaybookFile) -> Self {
        let PlaybookFile { name, path, hash, playbook, errors, .. } = file;
        Self { name, path, hash, playbook, errors }
    }
}

/// A run of a playbook.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlaybookRun)]
pub struct RunResource {
    pub id: RunId,
    /// Whose playbook it is; steps that name no other viber run there.
    pub viber_id: ViberId,
    /// The playbook's name.
    pub playbook: String,
    /// Its file beneath the workspace.
    pub path: String,
    /// SHA-256 of its text as it runs, in hex.
    pub hash: String,
    pub inputs: BTreeMap<String, String>,
    /// A supervisor starts the steps; otherwise they run as they are written.
    pub supervised: bool,
    pub state: RunState,
    /// Nothing new is started.
    pub paused: bool,
    /// What of it waits for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs: Option<RunNeed>,
    /// What the supervisor said at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The supervisor's newest task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supervisor_task_id: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supervisor_session_id: Option<SessionId>,
    /// The id and name of whoever started it: an operator, a token or a viber.
    pub started_by: String,
    pub starter: String,
    pub created_at: Instant,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Instant>,
}

impl From<PlaybookRun> for RunResource {
    fn from(run: PlaybookRun) -> Self {
        Self {
            id: run.id,
            viber_id: run.viber_id,
            playbook: run.playbook,
            path: run.path,
            hash: run.hash,
            inputs: run.inputs,
            supervised: run.supervised,
            state: run.state,
            paused: run.paused,
            needs: run.needs,
            summary: run.summary,
            supervisor_task_id: run.supervisor,
            supervisor_session_id: run.supervisor_session,
            started_by: run.started_by,
            starter: run.starter,
            created_at: run.created_at,
            ended_at: run.ended_at,
        }
    }
}

/// A run with its steps and what happened in it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WholePlaybookRun)]
pub struct WholeRunResource {
    #[serde(flatten)]
    pub run: RunResource,
    /// The playbook as it was when the run started.
    pub text: String,
    /// In order.
    pub steps: Vec<RunStepResource>,
    /// The newest first, 500 at most.
    pub events: Vec<RunEventResource>,
    /// There are older events.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub more_events: bool,
}

/// A step of a run.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlaybookRunStep)]
pub struct RunStepResource {
    /// `3`, or `3a` for one that the supervisor added.
    pub label: String,
    pub title: String,
    /// As it would run, or runs.
    pub instruction: String,
    /// Its other bullets.
    pub bullets: Vec<String>,
    pub agent_id: String,
    /// Once it is chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub viber_id: Option<ViberId>,
    /// What the playbook says about its viber.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub viber: Option<StepViber>,
    /// Labels of the steps that come before it.
    pub after: Vec<String>,
    /// When a person decides about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<GatePoint>,
    /// Files that it has to produce.
    pub gives: Vec<String>,
    /// How often it is started again by itself.
    pub retry: u32,
    pub limits: TaskLimits,
    pub state: StepPhase,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// How often it was started.
    pub attempt: u32,
    /// By the supervisor.
    pub added: bool,
    /// What a decision about its gate has to name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate_digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate_opened_at: Option<Instant>,
    /// What a person decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<GateWord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<SkippedStep>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// What its task said at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Of its attempts that have ended, together.
    pub usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Instant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Instant>,
}

impl From<RunStep> for RunStepResource {
    fn from(step: RunStep) -> Self {
        Self {
            label: step.label,
            title: step.title,
            instruction: step.instruction,
            bullets: step.bullets,
            agent_id: step.agent_id,
            viber_id: step.viber_id,
            viber: step.target,
            after: step.after,
            gate: step.gate,
            gives: step.gives,
            retry: step.retry,
            limits: step.limits,
            state: step.phase,
            task_id: step.task_id,
            session_id: step.session_id,
            attempt: step.attempt,
            added: step.added,
            gate_digest: step.gate_digest,
            gate_opened_at: step.gate_opened_at,
            decision: step.gate_word,
            skipped: step.skipped,
            failure: step.failure,
            summary: step.summary,
            usage: step.usage,
            started_at: step.started_at,
            ended_at: step.ended_at,
        }
    }
}

/// Something that happened in a run.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PlaybookRunEvent)]
pub struct RunEventResource {
    pub at: Instant,
    pub kind: RunEventKind,
    /// The label of the step that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    pub text: String,
    /// The name of whoever did it; absent: the Board.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl From<RunEvent> for RunEventResource {
    fn from(event: RunEvent) -> Self {
        let RunEvent { at, kind, step, text, by } = event;
        Self { at, kind, step, text, by }
    }
}
