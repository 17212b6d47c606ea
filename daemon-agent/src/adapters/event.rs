//! An event of an attempt as adapters get it, and as JSON for programs of this machine.

use protocol::{AttemptRef, Event, EventBody, parse_event};
use serde_json::{Value, json, value::RawValue};

/// What an agent did, with where it stands in the log of its attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamedEvent {
    pub attempt: AttemptRef,
    pub event: Event,
}

impl StreamedEvent {
    /// An event of an attempt's log; `None` for one of a later version.
    pub fn read(attempt: &AttemptRef, item: &RawValue) -> Option<Self> {
        Some(Self { attempt: attempt.clone(), event: parse_event(item).ok()? })
    }

    /// Whether nothing follows in its attempt.
    pub fn is_last(&self) -> bool {
        self.event.body.is_terminal()
    }

    /// The `AgentStreamEvent` of specification 3 with its fields, or the task's event as it is, and beside either `taskId`,
    /// `attempt`, `seq` and `at`.
    pub fn json(&self) -> Value {
        let AttemptRef { task_id, attempt } = &self.attempt;
        let mut json = match &self.event.body {
            EventBody::Progress { event } => json!(event),
            body => json!(body),
        };
        if let Value::Object(fields) = &mut json {
            fields.insert("taskId".to_owned(), json!(task_id));
            fields.insert("attempt".to_owned(), json!(attempt));
            fields.insert("seq".to_owned(), json!(self.event.seq));
            fields.insert("at".to_owned(), json!(self.event.at));
        }
        json
    }
}

#[cfg(test)]
mod tests {
    use protocol::{ActivityState, AgentEvent, AgentStreamEvent, Instant, TaskId, TaskResult};

    use super::*;

    fn of(body: EventBody) -> Value {
        let attempt = AttemptRef { task_id: TaskId::new(1), attempt: 1 };
        StreamedEvent { attempt, event: Event { seq: 7, at: Instant(1), body } }.json()
    }

    fn progress(event: AgentStreamEvent) -> Value {
        of(EventBody::Progress { event: AgentEvent { agent_id: "coder".to_owned(), event } })
    }

    #[test]
    fn the_four_types_of_the_specification_keep_their_fields() {
        let (call_id, tool) = ("c".to_owned(), "shell".to_owned());
        let delta = progress(AgentStreamEvent::TextDelta { content: "hi".to_owned() });
        let call =
            progress(AgentStreamEvent::ToolCall { call_id: call_id.clone(), tool: tool.clone(), args: json!({}) });
        let result = AgentStreamEvent::ToolResult { call_id, tool, result: json!("ok"), ok: true, duration_ms: 1 };
        let state = AgentStreamEvent::StateChange { state: ActivityState::Thinking, waiting: None };
        for (event, kind, fields) in [
            (delta, "text-delta", ["content", "agentId"]),
            (call, "tool-call", ["tool", "args"]),
            (progress(result), "tool-result", ["tool", "result"]),
            (progress(state), "state-change", ["state", "agentId"]),
        ] {
            assert_eq!(event["type"], kind);
            for field in fields.iter().chain(&["agentId", "taskId", "attempt", "seq"]) {
                assert!(!event[field].is_null(), "{field} of {event}");
            }
        }
    }

    #[test]
    fn what_becomes_of_a_task_is_as_on_the_wire() {
        let done = of(EventBody::Completed { result: TaskResult { text: "done".to_owned(), ..TaskResult::default() } });
        assert_eq!(
            (&done["type"], &done["result"]["text"], &done["seq"]),
            (&json!("task:completed"), &json!("done"), &json!(7))
        );
    }
}
