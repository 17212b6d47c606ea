//! A task as the API shows it.

use protocol::{
    AgentMode, ChildState, Instant, MessageId, ParentCall, PausePoint, ReportedDetail, RunId, SessionId, TaskError,
    TaskId, TaskLimits, TaskResult, Usage, ViberId,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::ContactResource;
use crate::domain;

/// One unit of work in a session.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Task)]
pub struct TaskResource {
    pub id: TaskId,
    pub session_id: SessionId,
    pub viber_id: ViberId,
    pub agent_id: String,
    /// `work`, or what is done with the conversation.
    pub kind: domain::TaskKind,
    /// `board`, `playbook`, `agent`, or where on the machine it began: `job`, `cli`, `websocket`, `slack`.
    pub origin: String,
    /// Who asked for it where it began, as the adapter there knows them, such as a name in Slack: text of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// The run of a playbook that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub playbook: Option<TaskPlaybook>,
    /// The call of another task that asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentCall>,
    /// The tasks that it asked for, where it was read by itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<TaskChild>,
    /// The user's message that asked for it.
    pub message_id: MessageId,
    pub goal: String,
    pub state: domain::TaskState,
    /// While pending: `queued` behind another task of its session, `offered` to the viber, `accepted` by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<domain::Delivery>,
    /// While running: what it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<domain::Waiting>,
    /// Where people want it to be held; once it is, it waits for `paused`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pausing: Option<PausePoint>,
    /// Contact with its viber.
    pub contact: ContactResource,
    /// The number of the newest attempt; a retry starts another.
    pub attempt: u32,
    /// Attempts that began by themselves because a request was too long, each with what made its own smaller.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub smaller: Vec<domain::SmallerAttempt>,
    pub stream: ReportedDetail,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<AgentMode>,
    pub limits: TaskLimits,
    /// After how many calls of tools its agent checks in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leash: Option<u32>,
    /// The model, as the viber reported it when the task started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Set when the task is `completed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<TaskResult>,
    /// Set when the task is in the state `error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<TaskError>,
    /// Usage of all attempts together.
    pub usage: Usage,
    /// Operator or token id.
    pub created_by: String,
    pub created_at: Instant,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_at: Option<Instant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Instant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Instant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<String>,
    /// When the viber confirmed that every process of a stopped task has ended; until then some may still run there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_confirmed_at: Option<Instant>,
}

/// A task that another one asked for.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskChild {
    /// Absent when it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<TaskId>,
    pub call: ParentCall,
    pub agent_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub viber_id: Option<ViberId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Its goal in one line.
    pub title: String,
    /// From 1.
    pub depth: u32,
    pub state: ChildState,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// What it used by itself.
    pub usage: Usage,
}

impl From<&domain::Kin> for TaskChild {
    fn from(kin: &domain::Kin) -> Self {
        let task = kin.task.as_ref();
        Self {
            id: kin.asked.child.clone(),
            call: kin.asked.call.clone(),
            agent_id: kin.asked.agent_id.clone(),
            viber_id: task.map(|task| task.viber_id.clone()),
            session_id: task.map(|task| task.session_id.clone()),
            title: kin.asked.title(),
            depth: kin.asked.depth,
            state: kin.state(),
            refusal: kin.asked.refusal.clone(),
            usage: task.map(|task| task.usage.clone()).unwrap_or_default(),
        }
    }
}

/// All that was asked for beneath a task that no other one asked for.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TaskTree)]
pub struct TreeResource {
    /// The task that it begins with.
    pub root: TaskId,
    /// How deep it is.
    pub depth: u32,
    /// In the order in which they were asked for.
    pub items: Vec<TaskChild>,
    /// More calls were refused than are among `items`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub more_refused: bool,
    /// What all of them have used together.
    pub usage: Usage,
}

impl From<&domain::TaskTree> for TreeResource {
    fn from(tree: &domain::TaskTree) -> Self {
        Self {
            root: tree.root.id.clone(),
            depth: tree.depth(),
            items: tree.kin.iter().map(TaskChild::from).collect(),
            more_refused: tree.is_cut,
            usage: tree.usage(&tree.root.id),
        }
    }
}

/// What a task is to the run of a playbook.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskPlaybook {
    pub run_id: RunId,
    /// The label of the step that it does; absent: it supervises the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

impl From<domain::Task> for TaskResource {
    fn from(task: domain::Task) -> Self {
        let leash = task.leash();
        let author = task.author().map(str::to_owned);
        let parent = task.parent().map(|place| place.call);
        let playbook = task.playbook().map(|of| TaskPlaybook { run_id: of.run_id, step: of.step });
        Self {
            id: task.id,
            session_id: task.session_id,
            viber_id: task.viber_id,
            agent_id: task.agent_id,
            kind: task.kind,
            origin: task.origin,
            author,
            playbook,
            parent,
            children: Vec::new(),
            message_id: task.message_id,
            goal: task.goal,
            state: task.state,
            delivery: task.delivery,
            waiting: task.waiting,
            pausing: task.pausing,
            contact: task.contact.into(),
            attempt: task.attempt,
            smaller: task.smaller,
            stream: task.stream,
            mode: task.mode,
            limits: task.limits,
            leash,
            model: task.model,
            result: task.result,
            error: task.error,
            usage: task.usage,
            created_by: task.created_by,
            created_at: task.created_at,
            offered_at: task.offered_at,
            started_at: task.started_at,
            ended_at: task.ended_at,
            stopped_by: task.stopped_by,
            stop_confirmed_at: task.stop_confirmed_at,
        }
    }
}
