//! The tools with which agents have others do a part of their work.

use serde_json::json;

use super::{flag, spec, text};
use crate::{
    config::toolset::{CHECK_TASK, DELEGATE, MESSAGE_AGENT},
    model::ToolSpec,
};

/// The specification of the tool `name`, if it is one of them.
pub(super) fn of(name: &str) -> Option<ToolSpec> {
    let of = match name {
        "list_agents" => spec(
            (
                "list_agents",
                "List the agents that may do a part of your work: who they are, where they live, and what they are busy with.",
            ),
            json!({}),
            &[],
        ),
        DELEGATE => spec(
            (
                DELEGATE,
                "Have another agent do a part of the work, in a task of its own, and wait until that has ended: you are told its \
                 result. It knows nothing of your conversation, so the goal says everything. Parts that do not wait for each other \
                 are given away in one answer: they run side by side. What it uses comes out of what you have left.",
            ),
            json!({
                "agent": text("The agent's id, as list_agents has it."),
                "viber": text("Where it lives, if it is not on this machine: as list_agents has it."),
                "goal": text("What it is to do and what it is to answer, complete."),
                "artifacts": {
                    "type": "array",
                    "items": { "type": "string" },
                    "description": "Ids of artifacts of yours that it gets, at most 16."
                },
                "limits": {
                    "type": "object",
                    "description": "The most that it may use; a part of what you have left when absent.",
                    "properties": {
                        "steps": { "type": "integer", "minimum": 1, "description": "Calls of its model." },
                        "toolCalls": { "type": "integer", "minimum": 1, "description": "Calls of tools." },
                        "tokens": { "type": "integer", "minimum": 1, "description": "Tokens in and out together." },
                        "costUsd": { "type": "number", "description": "US dollars." },
                        "minutes": { "type": "integer", "minimum": 1, "description": "Minutes." },
                    },
                    "additionalProperties": false,
                },
                "wait": { "type": "boolean", "description": "false: go on with your own work, and ask with check_task later." },
            }),
            &["agent", "goal"],
        ),
        CHECK_TASK => spec(
            (CHECK_TASK, "Ask how far a task is that you gave away, and what came of it."),
            json!({ "task": text("The task's id."), "wait": flag("Wait until it has ended.") }),
            &["task"],
        ),
        MESSAGE_AGENT => spec(
            (
                MESSAGE_AGENT,
                "Say something to an agent that you gave a task to, or that gave you yours. While it works it is told when its turn \
                 ends; after that, what you say is its next task in the same conversation. It does not answer by itself.",
            ),
            json!({
                "to": text("The task's id, the agent's id, or `parent` for whoever gave you your task."),
                "content": text("What it is to know, at most 16 KiB."),
            }),
            &["to", "content"],
        ),
        "stop_task" => spec(
            ("stop_task", "End a task that you gave away, with everything that it gave away itself."),
            json!({ "task": text("The task's id."), "reason": text("Why, in a sentence.") }),
            &["task"],
        ),
        _ => return None,
    };
    Some(of)
}
