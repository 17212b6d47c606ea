//! A task's events as plain text, for the command lines of both programs.

use crate::{AgentStreamEvent, ApprovalKind, Decision, EventBody, NoticeLevel, StepState, text};

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
            // Nobody is asked about a step of a playbook.
            AgentStreamEvent::ApprovalRequired(asked) if asked.kind == ApprovalKind::Step => String::new(),
            AgentStreamEvent::ApprovalRequired(asked) if asked.replaces.is_none() => {
                let what = if asked.kind == ApprovalKind::Question { &asked.preview } else { &asked.reason };
                format!(
                    "\n? {} waits for a decision on the Board: {}\n",
                    asked.tool,
                    text::head(what, MAX_SHOWN_ARGUMENT_BYTES)
                )
            }
            AgentStreamEvent::ApprovalDecided { decision, by, adapter, .. } => {
                let word = match decision {
                    Decision::Allow => "allowed",
                    Decision::Deny => "denied",
                    Decision::Answer => "answered",
                };
                format!("\n! {word} by {by} ({adapter})\n")
            }
            AgentStreamEvent::UserMessage { author, content, .. } => format!("\n> {author}: {content}\n"),
            AgentStreamEvent::ApprovalExpired { reason, .. } => format!("\n! not decided: {reason}\n"),
            AgentStreamEvent::Delegate(asked) => {
                let place = asked.viber.as_deref().map(|place| format!(" ({place})")).unwrap_or_default();
                format!("\n→ {}{place}: {}\n", asked.to_agent_id, text::title(&asked.goal))
            }
            AgentStreamEvent::Child { state, .. } => format!("\n[{}]\n", state.as_str()),
            AgentStreamEvent::Notice { level, text } if *level != NoticeLevel::Info => format!("\n! {text}\n"),
            _ => String::new(),
        },
        _ => String::new(),
    }
}
