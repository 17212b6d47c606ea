//! What a task did since a place in its events, short enough for a model: what its agent thinks, raw output and measures
//! are left out, long texts are cut, and text that came in pieces is put together.

use protocol::{AgentStreamEvent, EventBody, StepState, TeamId};
use serde_json::{Value, json};

use crate::{db, domain::Task, error::Result, live::Cursor, state::Board, web::api::page};

/// Runs that are read from the database at once, and how often for one answer.
const RUNS_PER_READ: u64 = 25;
const MAX_READS: usize = 4;
/// Events of one answer, and bytes of JSON of them.
const MAX_EVENTS: usize = 60;
const MAX_EVENTS_BYTES: usize = 24 * 1024;
/// Longest text within an event, bytes.
const MAX_TEXT_BYTES: usize = 2 * 1024;
/// How deep an event's arguments and results are shown.
const MAX_LEVELS: usize = 6;
/// Longest event, bytes of JSON; of a longer one those fields stay that are short, and the ends of its JSON.
const MAX_VALUE_BYTES: usize = 8 * 1024;
const MAX_SHORT_FIELD_BYTES: usize = 256;

/// Events of a task.
pub struct ToolEvents {
    pub items: Vec<Value>,
    /// Where the next ones begin.
    pub next: Cursor,
    /// There are more already.
    pub more: bool,
}

/// What came after `at`, as far as an answer has room.
pub async fn after(board: &Board, team: &TeamId, task: &Task, mut at: Cursor) -> Result<ToolEvents> {
    if at.attempt > task.attempt {
        return Err(page::bad_cursor());
    }
    let mut told = ToldEvents::default();
    for _ in 0..MAX_READS {
        let runs = {
            let mut tx = board.db.reader_of(team).await?;
            db::events::after(&mut tx, &task.id, at.attempt, at.seq, RUNS_PER_READ).await?
        };
        if runs.is_empty() {
            if at.attempt >= task.attempt {
                return Ok(ToolEvents { items: told.items, next: at, more: false });
            }
            at = Cursor { attempt: at.attempt + 1, seq: 0 };
            continue;
        }
        for item in runs.iter().flat_map(|run| &run.items) {
            if told.is_full() {
                return Ok(ToolEvents { items: told.items, next: at, more: true });
            }
            at.seq = item.seq;
            if let Some(body) = item.report().body {
                told.add(at, body);
            }
        }
    }
    Ok(ToolEvents { items: told.items, next: at, more: true })
}

/// What an answer has already.
#[derive(Default)]
struct ToldEvents {
    items: Vec<Value>,
    bytes: usize,
    /// The newest one is text, to which more may be added.
    is_text_open: bool,
}

impl ToldEvents {
    fn is_full(&self) -> bool {
        self.items.len() >= MAX_EVENTS || self.bytes >= MAX_EVENTS_BYTES
    }

    fn add(&mut self, at: Cursor, body: EventBody) {
        if let EventBody::Progress { event } = &body
            && let AgentStreamEvent::TextDelta { content } = &event.event
        {
            self.add_text(at, content);
            return;
        }
        let Some(event) = shown(body) else { return };
        let mut event = bounded(event);
        event["cursor"] = json!(at.to_string());
        self.bytes += event.to_string().len();
        self.items.push(event);
        self.is_text_open = false;
    }

    fn add_text(&mut self, at: Cursor, content: &str) {
        let content = &protocol::text::head_and_tail(content, MAX_EVENTS_BYTES);
        self.bytes += content.len();
        if self.is_text_open
            && let Some(last) = self.items.last_mut()
            && let Value::String(text) = &mut last["text"]
        {
            text.push_str(content);
            last["cursor"] = json!(at.to_string());
            return;
        }
        self.items.push(json!({ "type": "text", "text": content, "cursor": at.to_string() }));
        self.is_text_open = true;
    }
}

/// An event as it is told; `None` for what tells a caller nothing.
fn shown(body: EventBody) -> Option<Value> {
    match body {
        EventBody::Progress { event } => match event.event {
            AgentStreamEvent::TextDelta { .. }
            | AgentStreamEvent::ReasoningDelta { .. }
            | AgentStreamEvent::ToolOutput { .. }
            | AgentStreamEvent::StateChange { .. }
            | AgentStreamEvent::Usage(_)
            | AgentStreamEvent::Context(_)
            | AgentStreamEvent::Step { state: StepState::Started | StepState::Finished, .. } => None,
            event => serde_json::to_value(event).ok(),
        },
        // The task itself says how it ended.
        EventBody::Completed { .. } => Some(json!({ "type": "task:completed" })),
        other => serde_json::to_value(other).ok(),
    }
}

/// An object as short as a model reads it at a glance, however long its texts and lists are.
pub fn bounded(mut value: Value) -> Value {
    cut(&mut value, MAX_LEVELS);
    let whole = value.to_string();
    if whole.len() > MAX_VALUE_BYTES
        && let Value::Object(fields) = &mut value
    {
        fields.retain(|name, field| name.len() + field.to_string().len() <= MAX_SHORT_FIELD_BYTES);
        fields.insert("cut".to_owned(), json!(protocol::text::head_and_tail(&whole, MAX_VALUE_BYTES / 2)));
    }
    value
}

/// Cuts long texts of a value, and what lies deeper than `levels`.
fn cut(value: &mut Value, levels: usize) {
    match value {
        Value::String(text) if text.len() > MAX_TEXT_BYTES => {
            *text = protocol::text::head_and_tail(text, MAX_TEXT_BYTES);
        }
        Value::Array(_) | Value::Object(_) if levels == 0 => *value = json!("…"),
        Value::Array(items) => items.iter_mut().for_each(|item| cut(item, levels - 1)),
        Value::Object(fields) => fields.values_mut().for_each(|field| cut(field, levels - 1)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use protocol::AgentEvent;

    use super::*;

    fn progress(event: AgentStreamEvent) -> EventBody {
        EventBody::Progress { event: AgentEvent { agent_id: "default".into(), event } }
    }

    #[test]
    fn pieces_become_one_text_and_noise_is_left_out() {
        let mut told = ToldEvents::default();
        let text = |content: &str| progress(AgentStreamEvent::TextDelta { content: content.into() });
        let call = AgentStreamEvent::ToolCall {
            call_id: "c1".into(),
            tool: "shell".into(),
            args: json!({ "command": "x".repeat(5 * MAX_TEXT_BYTES), "a": { "b": { "c": { "d": { "e": [1] } } } } }),
        };
        let bodies = [
            EventBody::Accepted {},
            text("Well, "),
            progress(AgentStreamEvent::ReasoningDelta { content: "hm".into() }),
            text("yes."),
            progress(call),
            text("Done."),
        ];
        for (n, body) in bodies.into_iter().enumerate() {
            told.add(Cursor { attempt: 1, seq: n as u64 + 1 }, body);
        }
        let kinds: Vec<&str> = told.items.iter().filter_map(|item| item["type"].as_str()).collect();
        assert_eq!(kinds, ["task:accepted", "text", "tool-call", "text"]);
        assert_eq!((&told.items[1]["text"], &told.items[1]["cursor"]), (&json!("Well, yes."), &json!("1.4")));
        let args = &told.items[2]["args"];
        let command = args["command"].as_str().expect("a text");
        assert!(command.len() < 2 * MAX_TEXT_BYTES && command.contains("omitted"), "{command}");
        assert_eq!(args["a"]["b"]["c"]["d"]["e"], json!("…"));
    }

    #[test]
    fn an_event_of_many_short_texts_is_short_too() {
        let many: Vec<String> = (0..5_000).map(|n| format!("line {n}")).collect();
        let args = json!({ "all": many });
        let call = AgentStreamEvent::ToolCall { call_id: "c1".into(), tool: "edit".into(), args };
        let mut told = ToldEvents::default();
        told.add(Cursor { attempt: 1, seq: 1 }, progress(call));
        let event = &told.items[0];
        assert_eq!((&event["tool"], &event["callId"], &event["cursor"]), (&json!("edit"), &json!("c1"), &json!("1.1")));
        assert!(event.get("args").is_none() && event.to_string().len() < MAX_VALUE_BYTES, "{event}");
        let cut = event["cut"].as_str().expect("a text");
        assert!(cut.contains("line 0") && cut.contains("line 4999") && cut.contains("omitted"), "{cut}");
    }
}
