//! A task's events as plain text, for the command lines of both programs.

use crate::{AgentStreamEvent, EventBody, NoticeLevel, StepState, text};

/// Longest part of a tool call's arguments that is shown, bytes.
const MAX_SHOWN_ARGUMENT_BYTES: usize = 200;

/// What a reader sees of an event, with its line ends; empty when there is nothing to see. Not yet safe for a terminal
/// ([`text::printable`]).
pub fn plain(body: &EventBody) -> String {
    match body {
        EventBody::Started { model, .. } => format!("[{model}]\n"),
        EventBody::Completed { .. } => "\n".to_owned(),
        EventBody::Progress { event } => match &event.event {
            AgentStreamEvent::TextDelta { content } => content.clone(),
            AgentStreamEvent::ToolCall { tool, args, .. } => {
                format!("\n→ {tool} {}\n", text::head(&args.to_string(), MAX_SHOWN_ARGUMENT_BYTES))
            }
            AgentStreamEvent::ToolOutput { content, .. } => content.clone(),
            AgentStreamEvent::ToolResult { tool, ok: false, .. } => format!("\n× {tool} failed\n"),
            AgentStreamEvent::Step { state: StepState::Discarded, .. } => "\n[withdrawn]\n".to_owned(),
            AgentStreamEvent::Notice { level, text } if *level != NoticeLevel::Info => format!("\n! {text}\n"),
            _ => String::new(),
        },
        _ => String::new(),
    }
}
