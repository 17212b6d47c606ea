//! What comes before every model call and every call of a tool: a paused task is held, people are told that a limit is
//! nearly used, and one that is reached is a question for them, or ends the task.

use std::time::Duration;

use protocol::{
    ActivityState, AgentStreamEvent, AgentWait, ApprovalId, ApprovalKind, ApprovalRequest, ApprovalResponse, Decision,
    NextCall, NoticeLevel, PauseCause, PausePoint, text::head_and_tail,
};
use serde_json::{Value, json};

use super::{
    AgentLoop, Halt,
    budget::{Boundary, Limit, LimitState, number},
    tool_calls::shown,
};
use crate::{model::ToolCall, workspace::hex};

/// How long a question waits for a person if nothing says how long.
const USUAL_APPROVAL_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// Longest arguments in a preview, bytes.
const MAX_PREVIEW_ARGS_BYTES: usize = 8 * 1024;

impl AgentLoop {
    /// Comes before a model call, and counts it.
    pub(super) async fn begin_step(&mut self) -> Result<(), Halt> {
        self.pass(Boundary::Step, None).await?;
        self.budget.count_step();
        Ok(())
    }

    /// Comes before a call of a tool. One that is not made because somebody stepped in holds up nobody.
    pub(super) async fn begin_call(&mut self, call: &ToolCall) -> Result<(), Halt> {
        if self.steering_author().is_some() {
            return Ok(());
        }
        self.pass(Boundary::Call, Some(call)).await
    }

    /// Returns once nothing stands in the way of what comes next.
    pub(super) async fn pass(&mut self, at: Boundary, next: Option<&ToolCall>) -> Result<(), Halt> {
        loop {
            self.hold(at, next).await?;
            self.tell_what_is_nearly_used().await;
            let Some(reached) = self.budget.used_up(at) else { return Ok(()) };
            if self.budget.stops_at(reached.limit) {
                return Err(Halt::Failed(reached.error(None)));
            }
            self.ask_for_more(reached, next).await?;
        }
    }

    /// Holds the task here as long as people want it to be.
    async fn hold(&mut self, at: Boundary, next: Option<&ToolCall>) -> Result<(), Halt> {
        if self.run.stop.is_cancelled() {
            return Err(Halt::Stopped);
        }
        let (point, then) = match at {
            Boundary::Step | Boundary::Retry => (PausePoint::Step, ActivityState::Thinking),
            Boundary::Call => (PausePoint::Tool, ActivityState::Tool),
        };
        let pause = self.run.pause.clone();
        if !pause.holds(point) {
            return Ok(());
        }
        let next = next.map(|call| NextCall { call_id: call.id.clone(), tool: call.name.clone(), args: shown(call) });
        self.state(ActivityState::Waiting, Some(AgentWait { next, ..AgentWait::of(PauseCause::Paused) })).await;
        let released = self.run.stop.run_until_cancelled(pause.released(point)).await;
        released.ok_or(Halt::Stopped)?;
        self.state(then, None).await;
        Ok(())
    }

    /// Says once of each limit that little of it is left.
    pub(super) async fn tell_what_is_nearly_used(&mut self) {
        for state in self.budget.nearly_used() {
            let (name, used, allowed) = (state.limit.name(), number(state.used), number(state.allowed));
            let text = format!("The task's budget is nearly used: {used} of limits.{name} {allowed}.");
            self.notice(NoticeLevel::Warning, text).await;
        }
    }

    /// Waits until a person has allowed more, which need not be enough.
    async fn ask_for_more(&mut self, reached: LimitState, next: Option<&ToolCall>) -> Result<(), Halt> {
        let wait = self.run.submit.approval_minutes.map(|minutes| Duration::from_secs(u64::from(minutes) * 60));
        let wait = wait.unwrap_or(USUAL_APPROVAL_TIMEOUT);
        let asked = self.budget_question(&reached, next, wait);
        let (id, digest, until) = (asked.approval_id.clone(), asked.digest.clone(), asked.expires_at);
        let mut question = self.run.approvals.ask(id.clone(), digest.clone());
        self.log.part("approval-required", json!({ "approvalId": id, "digest": digest, "limit": asked.limit })).await;
        self.emit(AgentStreamEvent::ApprovalRequired(Box::new(asked))).await;
        self.state(ActivityState::Waiting, Some(AgentWait { until, ..AgentWait::of(PauseCause::Budget) })).await;
        let response = tokio::select! {
            biased;
            () = self.run.stop.cancelled() => return Err(Halt::Stopped),
            response = question.answer() => response,
            () = self.clock.pass(wait) => {
                let reason = "nobody answered in time".to_owned();
                let line = json!({ "approvalId": id, "decision": "expired", "note": reason });
                self.log.part("approval", line).await;
                self.emit(AgentStreamEvent::ApprovalExpired { approval_id: id, reason }).await;
                return Err(Halt::Failed(reached.error(Some("nobody answered whether it may use more"))));
            }
        };
        let ApprovalResponse { decision, note, grant, by, .. } = response;
        let line = json!({ "approvalId": id, "decision": decision, "note": note, "grant": grant, "by": by });
        self.log.part("approval", line).await;
        match decision {
            Decision::Deny => return Err(Halt::Failed(reached.error(Some(&denial(&by, note.as_deref()))))),
            Decision::Allow => self.budget.grant(reached.limit, grant.as_ref()),
            // Not an answer to this question: it is asked again.
            Decision::Answer => {}
        }
        self.state(if next.is_some() { ActivityState::Tool } else { ActivityState::Thinking }, None).await;
        Ok(())
    }

    fn budget_question(&self, reached: &LimitState, next: Option<&ToolCall>, wait: Duration) -> ApprovalRequest {
        let limit = reached.reported();
        let submit = &self.run.submit;
        let asked = json!({ "limit": limit, "taskId": submit.task_id, "attempt": submit.attempt });
        let cwd = self.run.agent.spaces.first().cloned().unwrap_or_else(|| self.run.home.workspace());
        ApprovalRequest {
            approval_id: ApprovalId::new(self.clock.now().millis()),
            kind: ApprovalKind::Budget,
            // Objects are sorted by their keys.
            digest: hex(asked.to_string().as_bytes()),
            tool: "budget".to_owned(),
            args: next.map_or(Value::Null, |call| json!({ "tool": call.name, "args": shown(call) })),
            call_id: None,
            cwd: cwd.display().to_string(),
            preview: preview(reached, next),
            risk: risk(reached.limit).to_owned(),
            reason: String::new(),
            rule: None,
            files: Vec::new(),
            question: None,
            limit: Some(limit),
            replaces: None,
            expires_at: Some(self.clock.after(wait)),
        }
    }
}

fn denial(by: &str, note: Option<&str>) -> String {
    let by = if by.trim().is_empty() { "an operator" } else { by.trim() };
    let note = note.map(str::trim).filter(|note| !note.is_empty());
    let note = note.map(|note| format!(" ({})", head_and_tail(note, 1024))).unwrap_or_default();
    format!("{by} did not allow more{note}")
}

/// What a person reads before they decide.
fn preview(reached: &LimitState, next: Option<&ToolCall>) -> String {
    let (used, allowed) = (number(reached.used), number(reached.allowed));
    let said = match reached.limit {
        Limit::Steps => format!("The task has made {used} model calls; it may make {allowed} (limits.steps)."),
        Limit::ToolCalls => format!("The task has made {used} tool calls; it may make {allowed} (limits.toolCalls)."),
        Limit::Tokens => format!("The task has used {used} tokens; it may use {allowed} (limits.tokens)."),
        Limit::CostUsd => format!("The task has cost {used} USD; it may cost {allowed} USD (limits.costUsd)."),
        Limit::Minutes => {
            format!("The task has worked for {used} min; it may work for {allowed} min (limits.minutes).")
        }
        Limit::Leash => format!("The agent has made {used} tool calls since somebody last looked (leash: {allowed})."),
    };
    match next {
        Some(call) => {
            let args = head_and_tail(&shown(call).to_string(), MAX_PREVIEW_ARGS_BYTES);
            format!("{said}\n\nIts next call: {} {args}", call.name)
        }
        None => said,
    }
}

/// What could go wrong when a person allows more.
fn risk(limit: Limit) -> &'static str {
    match limit {
        Limit::Leash => "The agent goes on by itself.",
        Limit::Tokens | Limit::CostUsd => "The task costs more than it was to cost.",
        Limit::Steps | Limit::ToolCalls | Limit::Minutes => "The task takes longer than it was to take.",
    }
}
