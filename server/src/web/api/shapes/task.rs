//! A task as the API shows it.

use protocol::{Instant, Limits, MessageId, Mode, SessionId, Stream, TaskError, TaskId, TaskResult, Usage, ViberId};
use serde::Serialize;
use utoipa::ToSchema;

use super::Contact;
use crate::domain;

/// One unit of work in a session.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    #[schema(value_type = String, example = "task_0192d1c7a0f07a3cb1f0c6f8d1f1a2b3")]
    pub id: TaskId,
    #[schema(value_type = String)]
    pub session_id: SessionId,
    #[schema(value_type = String)]
    pub viber_id: ViberId,
    pub agent_id: String,
    /// The user's message that asked for it.
    #[schema(value_type = String)]
    pub message_id: MessageId,
    pub goal: String,
    #[schema(value_type = String, pattern = "^(pending|running|completed|error|stopped)$")]
    pub state: domain::TaskState,
    /// While pending: `queued` behind another task of its session, `offered` to the viber, `accepted` by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^(queued|offered|accepted)$")]
    pub delivery: Option<domain::Delivery>,
    /// While running: what it waits for, `{for, until?, id?}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub waiting: Option<domain::Waiting>,
    /// With its viber.
    pub contact: Contact,
    /// The newest one; a retry makes another.
    pub attempt: u32,
    #[schema(value_type = String, pattern = "^(none|text|full)$")]
    pub stream: Stream,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^(always_ask|viber_decides|always_execute)$")]
    pub mode: Option<Mode>,
    /// `{steps?, toolCalls?, tokens?, costUsd?, minutes?}`.
    #[schema(value_type = Object)]
    pub limits: Limits,
    /// As the viber told when it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `{text, summary, artifactRefs, usage}` of a completed task.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub result: Option<TaskResult>,
    /// `{code, message, retryable, suggestion?, details?}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub error: Option<TaskError>,
    /// `{inputTokens, outputTokens, cachedTokens, costUsd?, source}` of all attempts.
    #[schema(value_type = Object)]
    pub usage: Usage,
    /// Operator or token id.
    pub created_by: String,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Instant,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub offered_at: Option<Instant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Instant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Instant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<String>,
    /// When the viber told that everything of a stopped task is dead; until then it may still run there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub stop_confirmed_at: Option<Instant>,
}

impl From<domain::Task> for Task {
    fn from(task: domain::Task) -> Self {
        Self {
            id: task.id,
            session_id: task.session_id,
            viber_id: task.viber_id,
            agent_id: task.agent_id,
            message_id: task.message_id,
            goal: task.goal,
            state: task.state,
            delivery: task.delivery,
            waiting: task.waiting,
            contact: task.contact.into(),
            attempt: task.attempt,
            stream: task.stream,
            mode: task.mode,
            limits: task.limits,
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
