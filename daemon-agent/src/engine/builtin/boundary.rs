//! What comes before every model call and every call of a tool: a paused task is held, people are told that a limit is
//! nearly used, and one that is reached is a question for them, or ends the task.

use protocol::{
    ActivityState, AgentWait, ApprovalKind, ApprovalRequest, ApprovalResponse, Decision, NextCall, NoticeLevel,
    PauseCause, PausePoint, text::head_and_tail,
};
use serde_json::{Value, json};

use super::{
    AgentLoop, Halt,
    budget::{Boundary, Limit, LimitState, number},
    questions::Reply,
    tool_calls::shown,
};
use crate::{model::ToolCall, workspace::hex};

/// Longest arguments in a preview, bytes.
const MAX_PREVIEW_ARGS_BYTES: usize = 8 * 1024;

impl AgentLoop {
    /// Comes before a call of a tool. One that is not made because somebody stepped in holds up nobody.
    pub(super) async fn begin_call(&mut self, call: &ToolCall) -> Result<(), Halt> {
        if self.steering_author().is_some() {
            return Ok(());
        }
        let at = if self.tools.delegates_by(&call.name) { Boundary::MeshCall } else { Boundary::Call };
        // A call that people still have to decide about needs no place.
        if self.calls.asked.awaited(&call.id).is_some() {
            return self.pass(at, Some(call)).await;
        }
        self.pass_to_work(at, Some(call)).await
    }

    /// Returns once nothing stands in the way of what comes next, and the attempt has a place to do it.
    pub(super) async fn pass_to_work(&mut self, at: Boundary, next: Option<&ToolCall>) -> Result<(), Halt> {
        loop {
            self.pass(at, next).await?;
            self.go_on().await?;
            // Somebody may have paused the task while it waited for its place.
            if !self.run.pause.holds(point(at)) {
                return Ok(());
            }
        }
    }

    /// Returns once nothing stands in the way of what comes next.
    pub(super) async fn pass(&mut self, at: Boundary, next: Option<&ToolCall>) -> Result<(), Halt> {
        loop {
            // A question that is open goes first: it was asked before the task was paused.
            if self.asked.is_none() {
                self.hold(at, next).await?;
            }
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
        let (point, then) = (point(at), at_work(at));
        while self.run.pause.holds(point) {
            let pause = self.run.pause.clone();
            let next =
                next.map(|call| NextCall { call_id: call.id.clone(), tool: call.name.clone(), args: shown(call) });
            let wait = AgentWait { next, ..AgentWait::of(PauseCause::Paused) };
            self.wait(wait, async move { pause.released(point).await }).await?;
            self.state(then, None).await;
        }
        Ok(())
    }

    /// Says once of each limit that little of it is left.
    pub(super) async fn tell_what_is_nearly_used(&mut self) {
        for state in self.budget.nearly_used() {
            let text = format!("The budget is nearly used: {}.", state.used_of_allowed());
            self.notice(NoticeLevel::Warning, text).await;
        }
    }

    /// Waits until a person has allowed more, which need not be enough.
    async fn ask_for_more(&mut self, reached: LimitState, next: Option<&ToolCall>) -> Result<(), Halt> {
        let then = if next.is_some() { ActivityState::Tool } else { ActivityState::Thinking };
        let reply = self.ask_people(|task| task.budget_question(&reached, next), then).await?;
        self.asked = None;
        let ApprovalResponse { decision, note, grant, by, .. } = match reply {
            Reply::Decided(response) => *response,
            Reply::Expired => {
                return Err(Halt::Failed(reached.error(Some("nobody answered whether it may use more"))));
            }
            Reply::Steered => return Ok(()),
        };
        match decision {
            Decision::Deny => return Err(Halt::Failed(reached.error(Some(&denial(&by, note.as_deref()))))),
            Decision::Allow => self.budget.grant(reached.limit, grant.as_ref()),
            // Not an answer to this question: it is asked again.
            Decision::Answer => {}
        }
        Ok(())
    }

    fn budget_question(&self, reached: &LimitState, next: Option<&ToolCall>) -> ApprovalRequest {
        let limit = reached.reported();
        let submit = &self.run.submit;
        let asked = json!({ "limit": limit, "taskId": submit.task_id, "attempt": submit.attempt });
        let cwd = self.run.agent.spaces.first().cloned().unwrap_or_else(|| self.run.home.workspace());
        ApprovalRequest {
            // Objects are sorted by their keys.
            digest: hex(asked.to_string().as_bytes()),
            args: next.map_or(Value::Null, |call| json!({ "tool": call.name, "args": shown(call) })),
            cwd: cwd.display().to_string(),
            preview: preview(reached, next),
            risk: risk(reached.limit).to_owned(),
            limit: Some(limit),
            ..self.question(ApprovalKind::Budget, "budget")
        }
    }
}

/// Where a pause holds a task before this.
fn point(at: Boundary) -> PausePoint {
    match at {
        Boundary::Step | Boundary::Retry => PausePoint::Step,
        Boundary::Call | Boundary::MeshCall => PausePoint::Tool,
    }
}

/// What the agent does behind it.
fn at_work(at: Boundary) -> ActivityState {
    match at {
        Boundary::Step | Boundary::Retry => ActivityState::Thinking,
        Boundary::Call | Boundary::MeshCall => ActivityState::Tool,
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
    let (used, bound) = (reached.limit.amount(reached.used), reached.bound());
    let said = match reached.limit {
        Limit::Steps | Limit::ToolCalls => format!("The task has made {used}; {bound}."),
        Limit::Tokens => format!("The task has used {used}; {bound}."),
        Limit::CostUsd => format!("The task has cost {used}; {bound}."),
        Limit::Minutes => format!("The task has worked for {used}; {bound}."),
        Limit::Leash => {
            format!("The agent has made {used} since somebody last looked (leash: {}).", number(reached.allowed))
        }
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
