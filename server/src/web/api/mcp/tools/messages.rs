//! `send_message`.

use protocol::{InjectionPoint, SessionId, TaskId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ToolText, closed, key_property};
use crate::{
    actions::tasks::{self, NewMessage, NewTask, Said},
    db,
    error::{Error, Result},
    web::{
        api::{
            gate::keyed_call,
            json,
            mcp::context::{ToolContext, compact},
        },
        urls,
    },
};

pub fn text() -> ToolText {
    let task = json!({ "type": "string", "description": "The running task whose agent is told." });
    let session = json!({ "type": "string",
        "description": "The session in which it is said: to its task while that runs, else as its next task." });
    let content = json!({ "type": "string", "minLength": 1, "maxLength": 262_144, "description": "What is said." });
    let mode = json!({ "type": "string", "enum": ["followup", "collect", "steer"],
        "description": "When a running agent is told: followup (when absent) in a turn of its own after this one, \
            collect at the end of its turn, steer now. What an agent asks people is not answered by any of them; steer \
            takes it back unanswered." });
    ToolText {
        title: "Send a message",
        description: "Says something to the agent of a running task, or in a session: name one of both. It approves \
            nothing: what waits for a person's decision goes on waiting, or counts as denied when you steer.",
        input: closed(
            json!({ "content": content, "taskId": task, "sessionId": session, "mode": mode, "key": key_property() }),
            &["content"],
        ),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SendMessageArguments {
    content: String,
    task_id: Option<TaskId>,
    session_id: Option<SessionId>,
    mode: Option<InjectionPoint>,
    key: Option<String>,
}

pub async fn send(context: &ToolContext, arguments: Value) -> Result<Value> {
    let body = arguments.to_string();
    let SendMessageArguments { content, task_id, session_id, mode, key } = json::from_value(arguments)?;
    let once = key.map(|key| keyed_call(&key, "send_message", body.as_bytes())).transpose()?;
    let session = match (&task_id, session_id) {
        (Some(id), None) => {
            let task = db::tasks::load(&mut context.board.db.reader_of(context.team()).await?, id).await?;
            task.ok_or(Error::NotFound)?.session_id
        }
        (None, Some(session)) => session,
        _ => return Err(Error::unacceptable("invalid_body", "name either taskId or sessionId")),
    };
    let task = NewTask { goal: content, session: Some(session), once, ..NewTask::default() };
    let mode = mode.unwrap_or_default();
    let said = NewMessage { task, mode, only_to: task_id, ..NewMessage::default() };
    let said = tasks::say(&context.board, context.team(), &context.caller.by, said).await?;
    let slug = &context.caller.team.slug;
    Ok(match said {
        Said::Message(message) => json!({
            "became": "message", "messageId": message.id, "taskId": message.task_id, "sessionId": message.session_id,
            "state": message.state, "mode": message.mode, "url": context.url(&urls::session(slug, &message.session_id)),
        }),
        Said::Task(task, why) => compact(json!({
            "became": "task", "taskId": task.id, "sessionId": task.session_id, "state": task.state,
            "why": why.map(tasks::WhyNextTask::sentence), "url": context.url(&urls::session(slug, &task.session_id)),
        })),
    })
}
