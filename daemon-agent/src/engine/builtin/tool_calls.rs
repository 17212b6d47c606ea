//! Performs the tool calls of an answer: read-only ones in parallel, everything else in order, each with its result.

use std::{collections::VecDeque, io, path::PathBuf};

use futures_util::future::join_all;
use protocol::{
    ActivityState, AgentStreamEvent, NoticeLevel, limits::MAX_CALLS_PER_ANSWER, prune::ResultCaps, text::head_and_tail,
    tokens,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    AgentLoop, Halt,
    decisions::{Admission, AdmittedCall, AskedCalls},
};
use crate::{
    model::{Answer, FinishReason, Message, ToolCall},
    tools::{self, CallBounds, READ_OUTPUT, ToolErrorKind, ToolOutcome},
};

/// Calls that run in parallel.
const MAX_PARALLEL_CALLS: usize = 8;
/// Longest string in reported arguments that are large, bytes.
const MAX_REPORTED_STRING_BYTES: usize = 8 * 1024;
/// Largest arguments that are reported, bytes.
const MAX_REPORTED_ARGS_BYTES: usize = 48 * 1024;

/// Calls of one answer that are still to be made.
pub(super) struct PendingCalls {
    /// The next one first.
    pub left: VecDeque<ToolCall>,
    /// Those that are more than one answer may hold.
    pub too_many: Vec<ToolCall>,
    pub finish: FinishReason,
    /// Whether all were looked at that need somebody.
    pub are_asked: bool,
    pub asked: AskedCalls,
}

impl PendingCalls {
    /// All calls of an answer.
    pub fn of(answer: Answer) -> Self {
        let mut left = VecDeque::from(answer.message.calls);
        let too_many = left.split_off(left.len().min(MAX_CALLS_PER_ANSWER)).into();
        Self { left, too_many, finish: answer.finish, are_asked: false, asked: AskedCalls::default() }
    }

    /// No calls.
    pub fn none() -> Self {
        let (left, too_many, asked) = Default::default();
        Self { left, too_many, finish: FinishReason::Stop, are_asked: false, asked }
    }
}

impl AgentLoop {
    /// Performs the calls that are left and appends their results to the conversation.
    pub(super) async fn perform(&mut self) -> Result<(), Halt> {
        self.tools.begin_calls(self.run.stop.child_token());
        self.tools.bound_results(self.result_caps());
        self.count_children();
        if self.calls.are_asked {
            self.expect_children_again();
            self.report_questions().await;
        } else {
            self.state(ActivityState::Tool, None).await;
            self.calls.are_asked = true;
            self.ask_ahead().await;
        }
        while let Some(first) = self.calls.left.front().cloned() {
            self.begin_call(&first).await?;
            if let Some(author) = self.steering_author() {
                while let Some(call) = self.calls.left.pop_front() {
                    self.pass_over(&call, &author).await?;
                }
                break;
            }
            if self.tools.has_ended_calls() && !self.run.stop.is_cancelled() {
                // Whoever stepped in took it back meanwhile: the other calls are carried out.
                self.tools.begin_calls(self.run.stop.child_token());
            }
            let is_free_reader = |call: &&ToolCall| tools::is_read_only(&call.name) && self.gate.lets_pass(&call.name);
            let at_once = self.budget.room_for_calls(MAX_PARALLEL_CALLS);
            let readers = self.calls.left.iter().take(at_once).take_while(is_free_reader).count();
            if readers > 0 {
                let now: Vec<ToolCall> = self.calls.left.drain(..readers).collect();
                self.perform_together(&now).await?;
            } else {
                let admission = self.admit(&first).await?;
                if matches!(admission, Admission::Steered) {
                    continue;
                }
                self.calls.left.pop_front();
                match admission {
                    Admission::Steered => {}
                    Admission::Settled(outcome) => {
                        if self.tools.delegates_by(&first.name) {
                            self.budget.count_calls(1);
                        }
                        self.settle(&first, outcome).await?;
                    }
                    Admission::Run(admitted) => {
                        self.go_on().await?;
                        self.budget.count_calls(1);
                        self.announce(&first).await;
                        self.perform_admitted(admitted).await;
                    }
                }
            }
            if self.run.stop.is_cancelled() {
                return Err(Halt::Stopped);
            }
        }
        let too_many = std::mem::replace(&mut self.calls, PendingCalls::none()).too_many;
        if !too_many.is_empty() {
            let text = format!(
                "One answer asked for {} calls more than the {MAX_CALLS_PER_ANSWER} that are executed.",
                too_many.len()
            );
            self.notice(NoticeLevel::Warning, text).await;
        }
        for call in &too_many {
            let why = format!("Nothing was executed: one answer may hold at most {MAX_CALLS_PER_ANSWER} calls.");
            self.took(call, ToolOutcome::refused(why), None).await;
        }
        Ok(())
    }

    /// Performs calls that only read.
    async fn perform_together(&mut self, calls: &[ToolCall]) -> Result<(), Halt> {
        self.go_on().await?;
        self.budget.count_calls(calls.len());
        let work = join_all(calls.iter().map(|call| self.report_and_carry_out(call)));
        let outcomes = self.finished_or_steered(work).await;
        for (call, outcome) in calls.iter().zip(outcomes) {
            self.took(call, outcome, None).await;
        }
        Ok(())
    }

    /// Performs a call that was reported.
    async fn perform_admitted(&mut self, AdmittedCall { call, bounds, approval, preface }: AdmittedCall) {
        let outcome = self.finished_or_steered(self.carry_out(&call, bounds.as_ref())).await;
        self.keep_promises();
        self.report_outcome(approval, &call.id, outcome.ok).await;
        self.took(&call, outcome, preface).await;
    }

    /// Reports a call that is not performed, and its result.
    async fn settle(&mut self, call: &ToolCall, outcome: ToolOutcome) -> Result<(), Halt> {
        self.go_on().await?;
        self.announce(call).await;
        let (call_id, tool, result, ok) = (call.id.clone(), call.name.clone(), outcome.result.clone(), outcome.ok);
        self.emit(AgentStreamEvent::ToolResult { call_id, tool, result, ok, duration_ms: 0 }).await;
        self.took(call, outcome, None).await;
        Ok(())
    }

    /// Reports that a call begins.
    pub(super) async fn report_call(&self, call: &ToolCall) {
        let (call_id, tool) = (call.id.clone(), call.name.clone());
        self.emit(AgentStreamEvent::ToolCall { call_id, tool, args: shown(call) }).await;
    }

    async fn report_and_carry_out(&self, call: &ToolCall) -> ToolOutcome {
        self.report_call(call).await;
        self.carry_out(call, None).await
    }

    /// Performs one call and reports its result. The tool itself notices a stop, ends what it started and returns.
    async fn carry_out(&self, call: &ToolCall, bounds: Option<&CallBounds>) -> ToolOutcome {
        let (call_id, tool) = (call.id.clone(), call.name.clone());
        let begun = Instant::now();
        let outcome = match (&call.args, self.calls.finish) {
            (_, FinishReason::Length) => ToolOutcome::refused(
                "Nothing was executed: the answer reached the output limit before this call was complete. \
                 Ask again with less content, in several calls if need be.",
            ),
            (Err(_), _) => ToolOutcome::refused(
                "Nothing was executed: the arguments are not a JSON object. Send the call again with valid arguments.",
            ),
            (Ok(_), _) if !self.may_call(&call.name) => ToolOutcome::refused(
                ToolErrorKind::Permission
                    .because("Nothing was executed: no plan is approved yet. Look around, then answer with the plan."),
            ),
            (Ok(args), _) if self.tools.delegates_by(&call.name) => self.mesh_call(call, args).await,
            (Ok(args), _) => self.tools.call(&call.id, &call.name, args, bounds).await,
        };
        let duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (result, ok) = (outcome.result.clone(), outcome.ok);
        self.emit(AgentStreamEvent::ToolResult { call_id, tool, result, ok, duration_ms }).await;
        outcome
    }

    /// Reports a call that is not begun, because somebody stepped in.
    async fn pass_over(&mut self, call: &ToolCall, author: &str) -> Result<(), Halt> {
        if self.tools.supervises_by(&call.name) {
            let outcome = self.leave_step(call, author).await?;
            return self.settle(call, outcome).await;
        }
        if self.tools.delegates_by(&call.name) {
            let outcome = self.leave_child(call, author).await?;
            return self.settle(call, outcome).await;
        }
        let why = format!("not run: {author} stepped in");
        self.step_over(call, &why).await?;
        self.settle(call, ToolOutcome::ended(why)).await
    }

    /// Records a result and adds it to the conversation, behind what the model is to know of it.
    async fn took(&mut self, call: &ToolCall, outcome: ToolOutcome, preface: Option<String>) {
        self.killed += outcome.killed;
        self.log.part("tool-call", json!({ "callId": call.id, "tool": call.name, "args": shown(call) })).await;
        let line = json!({ "callId": call.id, "tool": call.name, "result": outcome.result, "ok": outcome.ok });
        self.log.part("tool-result", line).await;
        let text = self.failed_calls.remark(self.step, call, outcome.ok, outcome.text());
        let content = preface.map_or(text.clone(), |preface| format!("{preface}\n\n{text}"));
        let content = self.within_cap(call, content, outcome.result["file"].as_str()).await;
        let pictures = if self.model.sees() { outcome.pictures } else { Vec::new() };
        self.request.messages.push(Message::Tool {
            call_id: call.id.clone(),
            tool: call.name.clone(),
            content,
            ok: outcome.ok,
            pictures,
        });
    }

    /// A result as the model reads it: cut to its cap, and then kept whole. `file` has all that a command put out.
    async fn within_cap(&mut self, call: &ToolCall, content: String, file: Option<&str>) -> String {
        let cap = self.result_caps().of(&call.name);
        if call.name == READ_OUTPUT || (tokens::estimate(&content) <= cap && file.is_none()) {
            return tokens::head_and_tail(&content, cap);
        }
        let (kept, id, whole) = (self.tools.kept_results(), call.id.clone(), content.clone());
        let file = file.map(PathBuf::from);
        let keeping = tokio::task::spawn_blocking(move || match file {
            Some(file) => kept.keep_file(&id, &file).or_else(|_| kept.keep(&id, &whole)),
            None => kept.keep(&id, &whole),
        });
        match keeping.await.map_err(io::Error::other).flatten() {
            Ok(()) => tools::cut(&content, &call.id, cap),
            Err(error) => {
                tracing::warn!(task.id = %self.run.submit.task_id, "a result cannot be kept whole: {error}");
                self.lost_results.insert(call.id.clone());
                tokens::head_and_tail(&content, cap)
            }
        }
    }

    /// How much the model is given of a result: what the agent's file says, but at most a quarter of the window.
    pub(super) fn result_caps(&self) -> ResultCaps {
        self.run.agent.results.at_most(self.request.context_window / 4)
    }
}

/// The arguments as they are reported: whole, or with long strings shortened to their ends.
pub(super) fn shown(call: &ToolCall) -> Value {
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
