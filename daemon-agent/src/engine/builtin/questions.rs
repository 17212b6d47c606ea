//! Questions to people, and every other wait: put, waited for, given up.
//!
//! Owns how long one stays open and what is reported of it. What is asked, and what an answer means, is up to those who ask.

mod rest;

use std::time::Duration;

use protocol::{
    ActivityState, AgentStreamEvent, AgentWait, ApprovalId, ApprovalKind, ApprovalRequest, ApprovalResponse, Decision,
    Instant, PauseCause,
};
use serde_json::{Value, json};

use super::{AgentLoop, Halt};
use crate::{
    clock::Clock,
    engine::EngineRun,
    report::{PendingAnswer, Question, children::is_key},
    tools::QuestionDesk,
};
pub use rest::LoopRecord;

/// How long a question stays open if the team does not say, minutes.
const DEFAULT_APPROVAL_MINUTES: u32 = 24 * 60;
/// How long a call waits for other tasks, whatever the team says, minutes: they take their time, and some wait for people.
const STEP_MINUTES: u32 = 30 * 24 * 60;
/// What is said of a question that was allowed when somebody stepped in.
pub(super) const STEPPED_IN: &str = "somebody stepped in before it was followed";

/// A question that people can answer.
pub(super) struct OpenQuestion {
    pub request: ApprovalRequest,
    /// How long it stays open.
    pub minutes: u32,
    pub is_reported: bool,
    open: Question,
}

/// What a wait for people needs of their question, which stays where it is.
pub(super) struct AwaitedDecision {
    pub approval_id: ApprovalId,
    pub minutes: u32,
    kind: ApprovalKind,
    expires_at: Option<Instant>,
    answer: PendingAnswer,
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

impl OpenQuestion {
    /// The decision about it, to be waited for.
    pub fn awaited(&self) -> AwaitedDecision {
        let ApprovalRequest { approval_id, kind, expires_at, .. } = &self.request;
        AwaitedDecision {
            approval_id: approval_id.clone(),
            minutes: self.minutes,
            kind: *kind,
            expires_at: *expires_at,
            answer: self.open.answer(),
        }
    }
}

impl AwaitedDecision {
    /// What was decided already.
    pub fn given(&self) -> Option<ApprovalResponse> {
        self.answer.given()
    }

    fn cause(&self) -> PauseCause {
        match self.kind {
            ApprovalKind::Question => PauseCause::Input,
            ApprovalKind::Budget => PauseCause::Budget,
            ApprovalKind::Step => PauseCause::Child,
            _ => PauseCause::Approval,
        }
    }
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

    /// Opens a question, which is still to be reported. It stays open for as long as the team says, or for `minutes` if that
    /// is less; what the Board answers is no matter of the team's.
    pub(super) fn opened(&self, mut request: ApprovalRequest, minutes: Option<u32>) -> OpenQuestion {
        let most = match request.kind {
            ApprovalKind::Step => STEP_MINUTES,
            _ => self.run.submit.approval_minutes.unwrap_or(DEFAULT_APPROVAL_MINUTES),
        };
        let minutes = minutes.map_or(most, |minutes| minutes.min(most));
        request.expires_at = Some(self.clock.after(Duration::from_secs(u64::from(minutes) * 60)));
        let open = self.run.approvals.ask_request(&request);
        OpenQuestion { request, minutes, is_reported: false, open }
    }

    /// Reports a question, and records it in the session's log.
    pub(super) async fn announce_question(&mut self, request: &ApprovalRequest) {
        if request.kind == ApprovalKind::Step && self.tools.delegates_by(&request.tool) {
            return self.announce_child(request).await;
        }
        let ApprovalRequest { approval_id, kind, digest, tool, call_id, .. } = request;
        let line =
            json!({ "approvalId": approval_id, "kind": kind, "digest": digest, "tool": tool, "callId": call_id });
        self.log.part("approval-required", line).await;
        self.emit(AgentStreamEvent::ApprovalRequired(Box::new(request.clone()))).await;
    }

    /// Puts the question of the task itself that `request` makes, unless it is open already, and waits for a decision; the
    /// agent then does `next` again. The question stays, as [`AgentLoop::asked`].
    pub(super) async fn ask_people(
        &mut self,
        request: impl FnOnce(&Self) -> ApprovalRequest,
        next: ActivityState,
    ) -> Result<Reply, Halt> {
        let awaited = match &self.asked {
            Some(question) => question.awaited(),
            None => {
                let question = self.opened(request(self), None);
                let awaited = question.awaited();
                self.asked = Some(question);
                self.rest(false).await;
                awaited
            }
        };
        if let Some(question) = self.asked.as_mut().filter(|question| !question.is_reported) {
            question.is_reported = true;
            let request = question.request.clone();
            self.announce_question(&request).await;
        }
        self.reply(&awaited, next).await
    }

    /// Waits for a decision; the agent then does `next` again.
    pub(super) async fn reply(&mut self, awaited: &AwaitedDecision, next: ActivityState) -> Result<Reply, Halt> {
        if self.run.stop.is_cancelled() {
            return Err(Halt::Stopped);
        }
        if let Some(response) = awaited.given() {
            self.go_on().await?;
            self.record(&response).await;
            return Ok(Reply::Decided(Box::new(response)));
        }
        let due = awaited.expires_at.map_or(i64::MAX, Instant::millis);
        let left = u64::try_from(due.saturating_sub(self.clock.now().millis())).unwrap_or(0);
        let (answer, inbox, clock) = (awaited.answer.clone(), self.run.inbox.clone(), self.clock.clone());
        // Whoever steers says nothing about a limit.
        let can_be_steered = awaited.kind != ApprovalKind::Budget;
        let end = async move {
            tokio::select! {
                biased;
                response = answer.wait() => Reply::Decided(Box::new(response)),
                _ = inbox.steered(), if can_be_steered => Reply::Steered,
                () = clock.pass(Duration::from_millis(left)) => Reply::Expired,
            }
        };
        let wait = AgentWait { until: awaited.expires_at, ..AgentWait::of(awaited.cause()) };
        let reply = self.wait(wait, end).await?;
        self.state(next, None).await;
        match &reply {
            Reply::Decided(response) => self.record(response).await,
            Reply::Expired => {
                let reason = format!("nobody answered within {}", span(awaited.minutes));
                self.give_up(&awaited.approval_id, &reason).await;
            }
            Reply::Steered => {}
        }
        Ok(reply)
    }

    /// Records a decision in the session's log, and reports it where the Board does not know it or others follow the task.
    pub(super) async fn record(&mut self, response: &ApprovalResponse) {
        let ApprovalResponse { approval_id, decision, scope, rule, note, args, answer, grant, by, .. } = response;
        let line = json!({
            "approvalId": approval_id, "decision": decision, "scope": scope, "rule": rule, "note": note,
            "args": args, "answer": answer, "grant": grant, "by": by,
        });
        self.log.part("approval", line).await;
        // What became of another task stands in the result of the call that waited for it.
        let is_decided = !is_key(&response.digest);
        if is_decided && (response.adapter.is_some() || self.run.local) {
            let event = AgentStreamEvent::ApprovalDecided {
                approval_id: approval_id.clone(),
                digest: response.digest.clone(),
                decision: *decision,
                by: by.clone(),
                adapter: response.adapter.clone().unwrap_or_else(|| "board".to_owned()),
                note: note.clone(),
                answer: answer.clone(),
            };
            self.emit(event).await;
        }
    }

    /// Reports that a question is not open any more, whatever is decided about it from now on.
    pub(super) async fn give_up(&mut self, id: &ApprovalId, reason: &str) {
        let line = json!({ "approvalId": id, "decision": "expired", "note": reason });
        self.log.part("approval", line).await;
        let (approval_id, reason) = (id.clone(), reason.to_owned());
        self.emit(AgentStreamEvent::ApprovalExpired { approval_id, reason }).await;
    }

    /// Records that somebody said something instead of deciding. The Board knows it by the message, unless the question was
    /// allowed just before: then it is told that nothing follows. `true`: the message alone tells it.
    pub(super) async fn overtake(&mut self, awaited: &AwaitedDecision, note: &str) -> bool {
        let id = &awaited.approval_id;
        if let Some(response) = awaited.given() {
            self.record(&response).await;
            if response.decision == Decision::Allow {
                self.give_up(id, STEPPED_IN).await;
                return false;
            }
        }
        self.log.part("approval", json!({ "approvalId": id, "decision": "deny", "note": note })).await;
        true
    }

    /// What somebody said instead of deciding was told: the Board has denied by that what nobody had decided, and what was
    /// allowed or answered since is over. Or it was taken back before, and nothing tells the Board but this.
    pub(super) async fn settle_overtaken(&mut self, is_told: bool) {
        for approval_id in std::mem::take(&mut self.overtaken) {
            if is_told {
                self.emit(AgentStreamEvent::ApprovalExpired { approval_id, reason: STEPPED_IN.to_owned() }).await;
            } else {
                self.give_up(&approval_id, STEPPED_IN).await;
            }
        }
    }
}

/// Where servers put the questions that they have during a call.
pub(super) fn desk(run: &EngineRun, clock: &Clock) -> QuestionDesk {
    QuestionDesk {
        approvals: run.approvals.clone(),
        clock: clock.clone(),
        minutes: run.submit.approval_minutes.unwrap_or(DEFAULT_APPROVAL_MINUTES),
        active_time: run.active_time.clone(),
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
