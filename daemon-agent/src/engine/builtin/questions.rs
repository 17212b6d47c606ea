//! Questions to people: put, waited for, given up.
//!
//! Owns how long one stays open and what is reported of it. What is asked, and what an answer means, is up to those who ask.

use std::time::Duration;

use protocol::{
    ActivityState, AgentStreamEvent, AgentWait, ApprovalId, ApprovalKind, ApprovalRequest, ApprovalResponse, Decision,
    PauseCause,
};
use serde_json::{Value, json};

use super::{AgentLoop, Halt};
use crate::report::Question;

/// How long a question stays open if the team does not say, minutes.
const DEFAULT_APPROVAL_MINUTES: u32 = 24 * 60;
/// What is said of a question that was allowed when somebody stepped in.
pub(super) const STEPPED_IN: &str = "somebody stepped in before it was followed";

/// A question that people can answer.
pub(super) struct OpenQuestion {
    pub request: ApprovalRequest,
    answers: Question,
    /// How long it stays open.
    pub minutes: u32,
}

/// How a wait for people ended.
#[derive(Debug)]
pub(super) enum Reply {
    Decided(Box<ApprovalResponse>),
    /// Somebody says something instead; it was not taken from the inbox. The question is still open.
    Steered,
    /// Nobody answered in time.
    Expired,
}

impl AgentLoop {
    /// A question about nothing yet.
    pub(super) fn question(&self, kind: ApprovalKind, tool: &str) -> ApprovalRequest {
        ApprovalRequest {
            approval_id: ApprovalId::new(self.clock.now().millis()),
            kind,
            digest: String::new(),
            tool: tool.to_owned(),
            args: Value::Null,
            call_id: None,
            cwd: String::new(),
            preview: String::new(),
            risk: String::new(),
            reason: String::new(),
            rule: None,
            files: Vec::new(),
            question: None,
            limit: None,
            replaces: None,
            expires_at: None,
        }
    }

    /// Puts a question. It stays open for as long as the team says, or for `minutes` if that is less.
    pub(super) async fn pose(&mut self, mut request: ApprovalRequest, minutes: Option<u32>) -> OpenQuestion {
        let most = self.run.submit.approval_minutes.unwrap_or(DEFAULT_APPROVAL_MINUTES);
        let minutes = minutes.map_or(most, |minutes| minutes.min(most));
        request.expires_at = Some(self.clock.after(Duration::from_secs(u64::from(minutes) * 60)));
        let answers = self.run.approvals.ask(request.approval_id.clone(), request.digest.clone());
        self.announce_question(&request).await;
        OpenQuestion { request, answers, minutes }
    }

    /// Reports a question, and records it in the session's log.
    pub(super) async fn announce_question(&mut self, request: &ApprovalRequest) {
        let ApprovalRequest { approval_id, kind, digest, tool, call_id, .. } = request;
        let line =
            json!({ "approvalId": approval_id, "kind": kind, "digest": digest, "tool": tool, "callId": call_id });
        self.log.part("approval-required", line).await;
        self.emit(AgentStreamEvent::ApprovalRequired(Box::new(request.clone()))).await;
    }

    /// What a person decided about a question already, recorded in the session's log.
    pub(super) async fn decided(&mut self, question: &mut OpenQuestion) -> Option<ApprovalResponse> {
        let response = question.answers.decided()?;
        self.record(&response).await;
        Some(response)
    }

    /// Waits for a decision; the agent then does `next` again.
    pub(super) async fn reply(&mut self, question: &mut OpenQuestion, next: ActivityState) -> Result<Reply, Halt> {
        if self.run.stop.is_cancelled() {
            return Err(Halt::Stopped);
        }
        if let Some(response) = self.decided(question).await {
            return Ok(Reply::Decided(Box::new(response)));
        }
        let cause = match question.request.kind {
            ApprovalKind::Question => PauseCause::Input,
            _ => PauseCause::Approval,
        };
        let wait = AgentWait { until: question.request.expires_at, ..AgentWait::of(cause) };
        self.state(ActivityState::Waiting, Some(wait)).await;
        let due = question.request.expires_at.map_or(i64::MAX, protocol::Instant::millis);
        let left = u64::try_from(due.saturating_sub(self.clock.now().millis())).unwrap_or(0);
        let reply = tokio::select! {
            biased;
            () = self.run.stop.cancelled() => return Err(Halt::Stopped),
            response = question.answers.answer() => Reply::Decided(Box::new(response)),
            _ = self.run.inbox.steered() => Reply::Steered,
            () = self.clock.pass(Duration::from_millis(left)) => Reply::Expired,
        };
        self.state(next, None).await;
        match &reply {
            Reply::Decided(response) => self.record(response).await,
            Reply::Expired => {
                self.give_up(question, &format!("nobody answered within {}", span(question.minutes))).await;
            }
            Reply::Steered => {}
        }
        Ok(reply)
    }

    async fn record(&mut self, response: &ApprovalResponse) {
        let ApprovalResponse { approval_id, decision, scope, rule, note, args, answer, by, .. } = response;
        let line = json!({
            "approvalId": approval_id, "decision": decision, "scope": scope, "rule": rule, "note": note,
            "args": args, "answer": answer, "by": by,
        });
        self.log.part("approval", line).await;
    }

    /// Reports that a question is not open any more, whatever is decided about it from now on.
    pub(super) async fn give_up(&mut self, question: &OpenQuestion, reason: &str) {
        let approval_id = question.request.approval_id.clone();
        let line = json!({ "approvalId": approval_id, "decision": "expired", "note": reason });
        self.log.part("approval", line).await;
        self.emit(AgentStreamEvent::ApprovalExpired { approval_id, reason: reason.to_owned() }).await;
    }

    /// Records that somebody said something instead of deciding. The Board knows it by the message, unless the question was
    /// allowed just before: then it is told that nothing follows.
    pub(super) async fn overtake(&mut self, question: &mut OpenQuestion, note: &str) {
        let decided = self.decided(question).await;
        if decided.is_some_and(|response| response.decision == Decision::Allow) {
            return self.give_up(question, STEPPED_IN).await;
        }
        let id = &question.request.approval_id;
        self.log.part("approval", json!({ "approvalId": id, "decision": "deny", "note": note })).await;
    }
}

/// A number of minutes in words.
pub(super) fn span(minutes: u32) -> String {
    match (minutes / 60, minutes % 60) {
        (0, 1) => "1 minute".to_owned(),
        (1, 0) => "1 hour".to_owned(),
        (hours, 0) if hours > 0 => format!("{hours} hours"),
        _ => format!("{minutes} minutes"),
    }
}
