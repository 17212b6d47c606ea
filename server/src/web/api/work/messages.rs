//! Messages to tasks that have not ended: saying them, and what becomes of them.

use axum::{
    Extension, Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use protocol::{Attachment, InjectionPoint, Instant, MessageId, SessionId, TaskId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    actions::tasks::{self, MessageChange, NewMessage, NewTask, Said},
    db,
    domain::{TaskMessage, TaskMessageState, idempotency::IdempotentCall},
    error::Error,
    state::Board,
    web::api::{
        Answers, PREFIX,
        json::JsonBody,
        page::{Page, PageQuery, bad_cursor, number},
        shapes::{self, List},
    },
    web::{
        AsOperator, AsViewer, Rejection,
        extract::{Id, Ids},
    },
};

/// The places of the messages of a task, as cursors name them.
const PLACES: &str = "task-messages";
/// Longest id that a client gives its message, bytes.
const MAX_CLIENT_ID_BYTES: usize = 100;

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new().routes(routes!(say)).routes(routes!(say_to_task, list)).routes(routes!(change, withdraw))
}

/// A message to a task that has not ended.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TaskMessage)]
pub struct TaskMessageResource {
    id: MessageId,
    task_id: TaskId,
    session_id: SessionId,
    content: String,
    /// Operator or token id.
    author: String,
    /// How its author wants it to be told.
    injection_mode: InjectionPoint,
    /// How it is told instead; absent: as its author wants.
    #[serde(skip_serializing_if = "Option::is_none")]
    used_mode: Option<InjectionPoint>,
    /// Why that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// Ascending in the task, with gaps: the order in which its agent is told.
    position: u64,
    /// `held`: the task ended without success before its agent was told, or these words came too late: see `lateFor`.
    state: TaskMessageState,
    /// Somebody takes it back, and the viber has not said yet whether that came in time.
    withdrawing: bool,
    context: Option<Value>,
    /// Files that go with it.
    attachments: Vec<Attachment>,
    /// The task that it became, when its own task was over before its agent was told.
    next_task_id: Option<TaskId>,
    /// The message whose newer words these are: the viber had told its agent the version before. They are held until a
    /// person sends or discards them.
    #[serde(skip_serializing_if = "Option::is_none")]
    late_for: Option<MessageId>,
    created_at: Instant,
    consumed_at: Option<Instant>,
}

impl From<TaskMessage> for TaskMessageResource {
    fn from(message: TaskMessage) -> Self {
        let injection_mode = message.asked_mode();
        Self {
            id: message.id,
            task_id: message.task_id,
            session_id: message.session_id,
            content: message.content,
            author: message.author,
            injection_mode,
            used_mode: message.why.is_some().then_some(message.mode),
            why: message.why,
            position: message.place,
            state: message.state,
            withdrawing: message.withdrawing,
            context: message.context,
            attachments: message.attachments,
            next_task_id: message.next_task,
            late_for: message.late_for,
            created_at: message.created_at,
            consumed_at: message.consumed_at,
        }
    }
}

/// What is said, and when a running task is told.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = NewTaskMessage, examples(json!({ "content": "Keep the signature as it is", "injectionMode": "steer" })))]
pub struct SayMessage {
    /// The client's own id: a second message with it is the first one.
    #[schema(max_length = 100)]
    id: Option<String>,
    #[schema(min_length = 1, max_length = 262144)]
    content: String,
    /// `collect`: at the end of the turn, with others next to it; `steer`: now; `followup`, when absent: in a turn of its own.
    injection_mode: Option<InjectionPoint>,
    /// Attachments that wait for the session's next task, by their ids. They go with the message, also to a running task.
    attachments: Option<Vec<Value>>,
    /// `{currentFile?, selection?}`: what its author looks at.
    context: Option<Value>,
    /// A task that is held goes on with it.
    #[serde(default)]
    resume: bool,
}

/// A change of a message that its agent was not told yet.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = TaskMessageChange, examples(json!({ "injectionMode": "steer" })))]
pub struct ChangeMessage {
    #[schema(min_length = 1, max_length = 65536)]
    content: Option<String>,
    injection_mode: Option<InjectionPoint>,
    /// The message of the same task before which it is told.
    before: Option<MessageId>,
    /// Sends one that is held: it becomes the next task (`nextTaskId`), or is said to its task while that goes on.
    #[serde(default)]
    send: bool,
}

/// Says something in a session: to its task while that has not ended (202), else as its next task (201). A header
/// `Said-As-Task` tells why a message became the next task although one runs.
#[utoipa::path(post, path = "/api/v1/sessions/{id}/messages", operation_id = "messages.say", tag = "sessions",
    params(("id" = SessionId, Path)), request_body = SayMessage,
    responses((status = 202, body = TaskMessageResource), (status = 201, body = shapes::TaskResource), Answers))]
async fn say(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    once: Option<Extension<IdempotentCall>>,
    JsonBody(said): JsonBody<SayMessage>,
) -> Result<Response, Rejection> {
    answer(&board, &caller, said.message(id, None, once)?).await
}

/// Says something to a task that runs or is the next to run, and to no other (202). What its agent cannot be told becomes the
/// task after it (201), and a header `Said-As-Task` tells why.
#[utoipa::path(post, path = "/api/v1/tasks/{id}/messages", operation_id = "taskMessages.say", tag = "tasks",
    params(("id" = TaskId, Path)), request_body = SayMessage,
    responses((status = 202, body = TaskMessageResource), (status = 201, body = shapes::TaskResource), Answers))]
async fn say_to_task(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<TaskId>,
    once: Option<Extension<IdempotentCall>>,
    JsonBody(said): JsonBody<SayMessage>,
) -> Result<Response, Rejection> {
    let task = db::tasks::load(&mut board.db.reader_of(&caller.team.id).await?, &id).await?.ok_or(Error::NotFound)?;
    answer(&board, &caller, said.message(task.session_id, Some(id), once)?).await
}

impl SayMessage {
    fn message(
        self,
        session: SessionId,
        only_to: Option<TaskId>,
        once: Option<Extension<IdempotentCall>>,
    ) -> Result<NewMessage, Error> {
        if self.id.as_ref().is_some_and(|id| id.is_empty() || id.len() > MAX_CLIENT_ID_BYTES) {
            return Err(Error::unacceptable("bad_id", "an id has 1 to 100 bytes"));
        }
        // Only its id decides whether it was said before, as the message's own clients repeat it.
        let named = self.id.map(|id| IdempotentCall { key: format!("message {session} {id}"), asks: String::new() });
        let fields = [("attachments", self.attachments.map(Value::Array)), ("context", self.context.clone())];
        let payload: serde_json::Map<_, _> =
            fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        let task = NewTask {
            goal: self.content,
            session: Some(session),
            payload: (!payload.is_empty()).then_some(Value::Object(payload)),
            once: named.or(once.map(|Extension(once)| once)),
            ..NewTask::default()
        };
        let mode = self.injection_mode.unwrap_or_default();
        Ok(NewMessage { task, mode, context: self.context, only_to, resume: self.resume, own_model: false })
    }
}

async fn answer(board: &Board, caller: &AsOperator, said: NewMessage) -> Result<Response, Rejection> {
    let said = tasks::say(board, &caller.team.id, &caller.by, said).await.map_err(crate::web::api::foreign)?;
    Ok(match said {
        Said::Message(message) => (StatusCode::ACCEPTED, Json(TaskMessageResource::from(*message))).into_response(),
        Said::Task(task, why) => {
            let place = format!("{PREFIX}/tasks/{}", task.id);
            let body = Json(shapes::TaskResource::from(*task));
            let mut answer = (StatusCode::CREATED, [(header::LOCATION, place)], body).into_response();
            if let Some(why) = why {
                answer.headers_mut().insert("said-as-task", header::HeaderValue::from_static(why.sentence()));
            }
            answer
        }
    })
}

/// The messages of a task, in the order in which its agent is told.
#[utoipa::path(get, path = "/api/v1/tasks/{id}/messages", operation_id = "taskMessages.list", tag = "tasks",
    params(("id" = TaskId, Path), PageQuery),
    responses((status = 200, body = List<TaskMessageResource>), Answers))]
async fn list(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<TaskId>,
    page: Page,
) -> Result<Json<List<TaskMessageResource>>, Rejection> {
    let after = match page.after(PLACES)?.as_deref() {
        None => None,
        Some([place, id]) => {
            let place = number(place).ok_or_else(bad_cursor)?;
            Some((place, id.parse::<MessageId>().map_err(|_| bad_cursor())?))
        }
        Some(_) => return Err(bad_cursor().into()),
    };
    let mut tx = board.db.reader_of(&caller.team.id).await?;
    db::tasks::load(&mut tx, &id).await?.ok_or(Error::NotFound)?;
    let found = db::tasks::messages::page_of_task(&mut tx, &id, after.as_ref(), page.fetch()).await?;
    Ok(Json(page.list(PLACES, found, |message| vec![message.place.to_string(), message.id.to_string()])))
}

/// Changes a message that its agent was not told yet: its text, when it is told, or its place. The viber decides whether the
/// change comes in time: 200 when it said so, 202 while it has not, 409 `consumed` when the agent was told before. Only its
/// author changes its text.
#[utoipa::path(patch, path = "/api/v1/tasks/{id}/messages/{message}", operation_id = "taskMessages.change", tag = "tasks",
    params(("id" = TaskId, Path), ("message" = MessageId, Path)), request_body = ChangeMessage,
    responses((status = 200, body = TaskMessageResource), (status = 202, body = TaskMessageResource), Answers))]
async fn change(
    State(board): State<Board>,
    caller: AsOperator,
    Ids((task, id)): Ids<(TaskId, MessageId)>,
    JsonBody(asked): JsonBody<ChangeMessage>,
) -> Result<Response, Rejection> {
    let ChangeMessage { content, injection_mode: mode, before, send } = asked;
    if send {
        if content.is_some() || mode.is_some() || before.is_some() {
            return Err(Error::unacceptable("bad_message", "a message is sent as it is").into());
        }
        let message = tasks::send_held(&board, &caller.team.id, &caller.by, (&task, &id)).await?;
        let is_over = message.state == TaskMessageState::Consumed;
        return Ok(confirmed(message, is_over));
    }
    let change = MessageChange { content, mode, before, ..MessageChange::default() };
    changed(&board, &caller, (&task, &id), change).await
}

/// Withdraws a message that its agent was not told yet: 200 when its viber said so, 202 while it has not, 409 `consumed` when
/// the agent was told before. One that is held is discarded, once its viber has confirmed the stop.
#[utoipa::path(delete, path = "/api/v1/tasks/{id}/messages/{message}", operation_id = "taskMessages.withdraw", tag = "tasks",
    params(("id" = TaskId, Path), ("message" = MessageId, Path)),
    responses((status = 200, body = TaskMessageResource), (status = 202, body = TaskMessageResource), Answers))]
async fn withdraw(
    State(board): State<Board>,
    caller: AsOperator,
    Ids((task, id)): Ids<(TaskId, MessageId)>,
) -> Result<Response, Rejection> {
    changed(&board, &caller, (&task, &id), MessageChange { withdraw: true, ..MessageChange::default() }).await
}

async fn changed(
    board: &Board,
    caller: &AsOperator,
    which: (&TaskId, &MessageId),
    change: MessageChange,
) -> Result<Response, Rejection> {
    let (message, is_certain) =
        tasks::change_message_confirmed(board, &caller.team.id, &caller.by, which, change).await?;
    Ok(confirmed(message, is_certain))
}

fn confirmed(message: TaskMessage, is_certain: bool) -> Response {
    let status = if is_certain { StatusCode::OK } else { StatusCode::ACCEPTED };
    (status, Json(TaskMessageResource::from(message))).into_response()
}
