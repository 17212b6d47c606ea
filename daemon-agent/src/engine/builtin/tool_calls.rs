//! Performs the tool calls of an answer: read-only ones in parallel, everything else in order, each with its result.

use futures_util::future::join_all;
use protocol::{ActivityState, AgentStreamEvent, NoticeLevel, limits::MAX_TOOL_TEXT_BYTES, text::head_and_tail};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{AgentLoop, Halt};
use crate::{
    model::{Answer, FinishReason, Message, ToolCall},
    tools::{self, ToolOutcome},
};

/// Most calls of one answer that are executed: an answer with more calls is considered broken.
const MAX_CALLS_PER_ANSWER: usize = 64;
/// Calls that run in parallel.
const MAX_PARALLEL_CALLS: usize = 8;
/// Longest string in reported arguments that are large, bytes.
const MAX_REPORTED_STRING_BYTES: usize = 8 * 1024;
/// Largest arguments that are reported, bytes.
const MAX_REPORTED_ARGS_BYTES: usize = 48 * 1024;

impl AgentLoop {
    /// Performs the calls of `answer` and appends their results to the conversation.
    pub(super) async fn perform(&mut self, answer: Answer) -> Result<(), Halt> {
        self.state(ActivityState::Tool, None).await;
        let (mut calls, too_many) = answer.message.calls.split_at(answer.message.calls.len().min(MAX_CALLS_PER_ANSWER));
        while let Some(first) = calls.first() {
            let readers =
                calls.iter().take(MAX_PARALLEL_CALLS).take_while(|call| tools::is_read_only(&call.name)).count();
            let (now, later) = calls.split_at(if tools::is_read_only(&first.name) { readers } else { 1 });
            calls = later;
            for _ in now {
                self.budget.take_call().map_err(Halt::Failed)?;
            }
            let outcomes = join_all(now.iter().map(|call| self.carry_out(call, answer.finish))).await;
            for (call, outcome) in now.iter().zip(outcomes) {
                self.took(call, outcome).await;
            }
            if self.run.stop.is_cancelled() {
                return Err(Halt::Stopped);
            }
        }
        if !too_many.is_empty() {
            let text = format!(
                "One answer asked for {} calls more than the {MAX_CALLS_PER_ANSWER} that are executed.",
                too_many.len()
            );
            self.notice(NoticeLevel::Warning, text).await;
        }
        for call in too_many {
            let why = format!("Nothing was executed: one answer may hold at most {MAX_CALLS_PER_ANSWER} calls.");
            self.took(call, refused(&why)).await;
        }
        Ok(())
    }

    /// Performs and reports one call. The tool itself notices a stop, ends what it started and returns.
    async fn carry_out(&self, call: &ToolCall, finish: FinishReason) -> ToolOutcome {
        let (call_id, tool) = (call.id.clone(), call.name.clone());
        self.emit(AgentStreamEvent::ToolCall { call_id: call_id.clone(), tool: tool.clone(), args: shown(call) }).await;
        let begun = Instant::now();
        let outcome = match (&call.args, finish) {
            (_, FinishReason::Length) => refused(
                "Nothing was executed: the answer reached the output limit before this call was complete. \
                 Ask again with less content, in several calls if need be.",
            ),
            (Err(_), _) => refused(
                "Nothing was executed: the arguments are not a JSON object. Send the call again with valid arguments.",
            ),
            (Ok(_), _) if !self.may_call(&call.name) => {
                refused("Nothing was executed: no plan is approved yet. Look around, then answer with the plan.")
            }
            (Ok(args), _) => self.tools.call(&call.id, &call.name, args).await,
        };
        let duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (result, ok) = (outcome.result.clone(), outcome.ok);
        self.emit(AgentStreamEvent::ToolResult { call_id, tool, result, ok, duration_ms }).await;
        outcome
    }

    async fn took(&mut self, call: &ToolCall, outcome: ToolOutcome) {
        self.killed += outcome.killed;
        self.log.part("tool-call", json!({ "callId": call.id, "tool": call.name, "args": shown(call) })).await;
        let line = json!({ "callId": call.id, "tool": call.name, "result": outcome.result, "ok": outcome.ok });
        self.log.part("tool-result", line).await;
        let content = outcome.text();
        // One result takes at most a quarter of the window (a token is about four bytes).
        let bound = usize::try_from(self.request.context_window).unwrap_or(usize::MAX).clamp(2048, MAX_TOOL_TEXT_BYTES);
        let content = head_and_tail(&content, bound);
        self.request.messages.push(Message::Tool {
            call_id: call.id.clone(),
            tool: call.name.clone(),
            content,
            ok: outcome.ok,
        });
    }
}

fn refused(why: &str) -> ToolOutcome {
    ToolOutcome { ok: false, result: Value::String(why.to_owned()), killed: 0 }
}

/// The arguments as they are reported: whole, or with long strings shortened to their ends.
fn shown(call: &ToolCall) -> Value {
    let mut args = call.object();
    if args.to_string().len() <= MAX_REPORTED_ARGS_BYTES {
        return args;
    }
    cut(&mut args);
    let size = args.to_string().len();
    if size <= MAX_REPORTED_ARGS_BYTES { args } else { json!({ "omitted": format!("{size} bytes of arguments") }) }
}

fn cut(value: &mut Value) {
    match value {
        Value::String(text) => *text = head_and_tail(text, MAX_REPORTED_STRING_BYTES),
        Value::Array(items) => items.iter_mut().for_each(cut),
        Value::Object(fields) => fields.values_mut().for_each(cut),
        _ => {}
    }
}
