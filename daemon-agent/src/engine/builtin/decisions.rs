//! Calls that wait for a decision: asked together, made in their order, each as soon as it may be.
//!
//! Owns what a decision means for its call. It holds for exactly what was asked, and once: right before the call is made, what
//! it would do is looked at again.

mod allowed;
mod mesh;
mod steps;

use std::collections::{HashMap, HashSet};

use protocol::{
    ActivityState, AffectedFile, AgentStreamEvent, ApprovalId, ApprovalKind, ApprovalRequest, ApprovalResponse,
    Decision, DecisionScope, NoticeLevel, text::head_and_tail,
};
use serde_json::{Value, json};

use super::{
    AgentLoop, Halt,
    ask_operator::{self, ASK_OPERATOR, OperatorQuestion},
    gate::{AskedCall, CallVerdict, digest},
    questions::{AwaitedDecision, OpenQuestion, Reply, STEPPED_IN, span},
    tool_calls::shown,
};
use crate::{
    model::{FinishReason, ToolCall},
    tools::{CallBounds, CallProposal, ProposalSubject, ToolErrorKind, ToolFailure, ToolOutcome},
};
pub(super) use allowed::AllowedForTask;
pub(super) use mesh::{CHILD_PROMPT, MESH_PROMPT};
pub(super) use steps::SUPERVISOR_PROMPT;

/// Longest preview of a question, bytes of JSON: it fits an event.
const MAX_PREVIEW_BYTES: usize = 40 * 1024;
/// Longest note, and longest arguments, that are told to a model, bytes.
const MAX_NOTE_BYTES: usize = 8 * 1024;
/// What is said of a question about a call that has become another one.
const CHANGED_CALL: &str = "what the call would do has changed since it was asked";

/// The questions about the calls of one answer.
#[derive(Default)]
pub(super) struct AskedCalls {
    /// By their calls.
    pub open: HashMap<String, OpenQuestion>,
    /// Calls that were reported, because a question about them was.
    pub announced: HashSet<String>,
    /// Calls that a person allowed and that then wait for another task, with that decision.
    pub allowed: HashMap<String, ApprovalId>,
}

impl AskedCalls {
    /// The decision about a call, if it is asked about.
    pub fn awaited(&self, call_id: &str) -> Option<AwaitedDecision> {
        self.open.get(call_id).map(OpenQuestion::awaited)
    }
}

/// What becomes of a call whose turn it is.
pub(super) enum Admission {
    Run(AdmittedCall),
    /// It is not made, and this is its result.
    Settled(ToolOutcome),
    /// Somebody steps in. The call is not decided.
    Steered,
}

/// A call that may be made now.
pub(super) struct AdmittedCall {
    pub call: ToolCall,
    /// What it was looked at for; `None` if nobody and no rule had to decide.
    pub bounds: Option<CallBounds>,
    /// What a person decided about it.
    pub approval: Option<ApprovalId>,
    /// What the model is told before the result.
    pub preface: Option<String>,
}

/// What a call is, before anybody is asked.
enum Considered {
    /// It may be made, within these bounds if it was looked at.
    Free(Option<CallBounds>),
    Settled(ToolOutcome),
    Asked {
        request: Box<ApprovalRequest>,
        bounds: CallBounds,
        minutes: Option<u32>,
    },
}

impl AgentLoop {
    /// Puts the questions about calls together, before the first of them is made. A call that writes what an earlier one
    /// writes is asked when its turn comes: only then is it known what it would do. So is one that has others do something.
    pub(super) async fn ask_ahead(&mut self) {
        self.open_steps().await;
        let mut written = HashSet::new();
        for call in self.calls.left.clone() {
            let Considered::Asked { request, minutes, .. } = self.consider(&call).await else { continue };
            let is_first = request.files.iter().all(|file| !written.contains(&file.path));
            written.extend(request.files.iter().map(|file| file.path.clone()));
            if is_first && request.kind != ApprovalKind::Step {
                self.open_about(call.id, *request, minutes);
            }
        }
        if !self.calls.asked.open.is_empty() {
            self.rest(false).await;
            self.report_questions().await;
        }
    }

    /// Opens a question about a call.
    fn open_about(&mut self, call_id: String, request: ApprovalRequest, minutes: Option<u32>) {
        let question = self.opened(request, minutes);
        self.calls.asked.open.insert(call_id, question);
    }

    /// Reports the questions about calls that are still to be reported, each behind its call.
    pub(super) async fn report_questions(&mut self) {
        for call in self.calls.left.clone() {
            let unreported = self.calls.asked.open.get_mut(&call.id).filter(|question| !question.is_reported);
            let Some(question) = unreported else { continue };
            question.is_reported = true;
            let request = question.request.clone();
            self.announce(&call).await;
            self.announce_question(&request).await;
        }
    }

    /// Reports a call, unless that was done when it was asked about.
    pub(super) async fn announce(&mut self, call: &ToolCall) {
        if self.calls.asked.announced.insert(call.id.clone()) {
            self.report_call(call).await;
        }
    }

    /// Decides about the call whose turn it is, or lets people decide.
    pub(super) async fn admit(&mut self, call: &ToolCall) -> Result<Admission, Halt> {
        loop {
            // What a person decided already goes before what meanwhile frees or changes the call.
            if let Some(response) = self.calls.asked.awaited(&call.id).and_then(|awaited| awaited.given()) {
                self.go_on().await?;
                self.record(&response).await;
                match self.obey(call, response).await? {
                    Some(admission) => return Ok(admission),
                    None => continue,
                }
            }
            let (request, minutes) = match self.consider(call).await {
                Considered::Asked { request, minutes, .. } => (*request, minutes),
                Considered::Free(bounds) => {
                    self.withdraw(call, "the call is allowed by now").await?;
                    let (call, approval) = (call.clone(), self.calls.asked.allowed.remove(&call.id));
                    return Ok(Admission::Run(AdmittedCall { call, bounds, approval, preface: None }));
                }
                Considered::Settled(outcome) => {
                    self.withdraw(call, "the call cannot be made any more").await?;
                    return Ok(Admission::Settled(outcome));
                }
            };
            if self.calls.asked.open.get(&call.id).is_some_and(|open| open.request.digest != request.digest) {
                self.withdraw(call, CHANGED_CALL).await?;
            }
            if !self.calls.asked.open.contains_key(&call.id) {
                if request.kind == ApprovalKind::Step {
                    self.open_steps().await;
                } else {
                    self.open_about(call.id.clone(), request, minutes);
                }
                self.rest(false).await;
                self.report_questions().await;
            }
            let Some(awaited) = self.calls.asked.awaited(&call.id) else { continue };
            match self.reply(&awaited, ActivityState::Tool).await? {
                Reply::Steered => return Ok(Admission::Steered),
                Reply::Expired => {
                    let question = self.calls.asked.open.remove(&call.id);
                    return Ok(Admission::Settled(unanswered(question.as_ref(), awaited.minutes)));
                }
                Reply::Decided(response) => {
                    if let Some(admission) = self.obey(call, *response).await? {
                        return Ok(admission);
                    }
                }
            }
        }
    }

    /// Follows a decision, unless somebody steps in first. `None` if the call is to be asked again.
    async fn obey(&mut self, call: &ToolCall, response: ApprovalResponse) -> Result<Option<Admission>, Halt> {
        if response.decision == Decision::Allow {
            // Somebody may have paused the task while it waited, and said something meanwhile.
            self.begin_call(call).await?;
            if self.steering_author().is_some() {
                self.withdraw(call, STEPPED_IN).await?;
                return Ok(Some(Admission::Steered));
            }
        }
        let Some(question) = self.calls.asked.open.remove(&call.id) else { return Ok(None) };
        Ok(self.follow(call, &question, response).await)
    }

    /// Gives up the question about a call, if there is one, and says why.
    async fn withdraw(&mut self, call: &ToolCall, why: &str) -> Result<(), Halt> {
        if self.calls.asked.open.contains_key(&call.id) {
            self.go_on().await?;
        }
        let Some(question) = self.calls.asked.open.remove(&call.id) else { return Ok(()) };
        self.give_up(&question.request.approval_id, why).await;
        if why == CHANGED_CALL {
            self.ask_anew_notice(call).await;
        }
        Ok(())
    }

    async fn ask_anew_notice(&mut self, call: &ToolCall) {
        let text =
            format!("What `{}` would do has changed while it waited for a decision: it is asked again.", call.name);
        self.notice(NoticeLevel::Info, text).await;
    }

    /// What a call is by the rules and the mode.
    async fn consider(&self, call: &ToolCall) -> Considered {
        let Ok(args) = &call.args else { return Considered::Free(None) };
        // What is not carried out anyway says so by itself.
        if self.calls.finish == FinishReason::Length || !self.may_call(&call.name) || !self.tools.offers(&call.name) {
            return Considered::Free(None);
        }
        if self.tools.supervises_by(&call.name) {
            return self.consider_step(call, args);
        }
        if self.tools.delegates_by(&call.name) {
            return self.consider_mesh(call, args);
        }
        if self.gate.lets_pass(&call.name) && call.name != ASK_OPERATOR {
            return Considered::Free(None);
        }
        let proposal = match self.tools.propose(&call.name, args).await {
            Ok(proposal) => proposal,
            Err(why) => return Considered::Settled(ToolOutcome::refused(why)),
        };
        if call.name == ASK_OPERATOR {
            return self.consider_question(call, args, &proposal);
        }
        let bounds = proposal.bounds();
        let asked = match self.gate.judge(&call.name, args, &proposal) {
            CallVerdict::Free => return Considered::Free(Some(bounds)),
            CallVerdict::Denied(why) => return Considered::Settled(forbidden(why)),
            CallVerdict::Asked(asked) => asked,
        };
        match self.call_question(call, args, proposal, asked) {
            Ok(request) => Considered::Asked { request: Box::new(request), bounds, minutes: None },
            Err(why) => Considered::Settled(ToolOutcome::refused(why)),
        }
    }

    /// A question of the agent's own is asked in every mode; a rule may deny it.
    fn consider_question(&self, call: &ToolCall, args: &Value, proposal: &CallProposal) -> Considered {
        let question = match self.gate.denies(&call.name, proposal) {
            Some(why) => return Considered::Settled(forbidden(why)),
            None => OperatorQuestion::read(args),
        };
        let OperatorQuestion { question, minutes } = match question {
            Ok(question) => question,
            Err(why) => return Considered::Settled(ToolOutcome::refused(why)),
        };
        let request = ApprovalRequest {
            digest: digest(&call.name, args, proposal),
            args: shown(call),
            call_id: Some(call.id.clone()),
            cwd: proposal.cwd.display().to_string(),
            preview: question.text.clone(),
            question: Some(question),
            ..self.question(ApprovalKind::Question, &call.name)
        };
        Considered::Asked { request: Box::new(request), bounds: proposal.bounds(), minutes }
    }

    /// The question about a call; `Err` if a person could not see what they decide about.
    fn call_question(
        &self,
        call: &ToolCall,
        args: &Value,
        proposal: CallProposal,
        AskedCall { reason, risk, rule }: AskedCall,
    ) -> Result<ApprovalRequest, String> {
        let (preview, shown_args) = (fitting(&proposal.preview), shown(call));
        if preview != proposal.preview || shown_args != *args {
            let why = if matches!(proposal.subject, ProposalSubject::Command(_)) {
                "Not run: a person has to allow this command, and it is too long to be shown in full. Write it to a file and \
                 run that."
            } else {
                "Not run: a person has to allow this call, and it is too long to be shown in full. Write it in several calls."
            };
            return Err(why.to_owned());
        }
        Ok(ApprovalRequest {
            digest: digest(&call.name, args, &proposal),
            args: shown_args,
            call_id: Some(call.id.clone()),
            cwd: proposal.cwd.display().to_string(),
            preview,
            risk,
            reason,
            rule,
            files: proposal.files,
            ..self.question(ApprovalKind::Tool, &call.name)
        })
    }

    /// Does with a call what a person decided. `None` if it has become another one meanwhile: then it is asked again.
    async fn follow(
        &mut self,
        call: &ToolCall,
        question: &OpenQuestion,
        response: ApprovalResponse,
    ) -> Option<Admission> {
        if question.request.kind == ApprovalKind::Step {
            return Some(Admission::Settled(match self.tools.delegates_by(&call.name) {
                true => self.take_child_answer(call, &response).await,
                false => self.take_step_answer(call, &response),
            }));
        }
        if let Some(asked) = &question.request.question {
            return Some(Admission::Settled(ask_operator::answered(asked, &response)));
        }
        if response.decision != Decision::Allow {
            return Some(Admission::Settled(not_allowed(call, &response)));
        }
        if let Some(args) = response.args.clone().filter(|args| call.args.as_ref() != Ok(args)) {
            let changed = ToolCall { args: Ok(args), ..call.clone() };
            return self.replace(changed, question, &response).await;
        }
        let bounds = match self.consider(call).await {
            Considered::Asked { request, .. } if request.digest != question.request.digest => {
                return self.ask_anew(call, question).await;
            }
            Considered::Asked { .. } if self.tools.delegates_by(&call.name) => {
                self.allow_mesh_call(call, &question.request.approval_id);
                self.remember(call, None, &response).await;
                return None;
            }
            Considered::Settled(outcome) => {
                self.give_up(&question.request.approval_id, "the call cannot be made any more").await;
                return Some(Admission::Settled(outcome));
            }
            Considered::Asked { bounds, .. } => Some(bounds),
            Considered::Free(bounds) => bounds,
        };
        self.remember(call, bounds.as_ref(), &response).await;
        let approval = Some(question.request.approval_id.clone());
        Some(Admission::Run(AdmittedCall { call: call.clone(), bounds, approval, preface: None }))
    }

    /// Gives up a decided question whose call has become another one; `None`, as [`AgentLoop::follow`] answers then.
    async fn ask_anew(&mut self, call: &ToolCall, question: &OpenQuestion) -> Option<Admission> {
        self.give_up(&question.request.approval_id, CHANGED_CALL).await;
        self.ask_anew_notice(call).await;
        None
    }

    /// A person allowed this call in the place of the one that was asked about. `None` if a file that it writes is not any
    /// more what they saw.
    async fn replace(
        &mut self,
        call: ToolCall,
        question: &OpenQuestion,
        response: &ApprovalResponse,
    ) -> Option<Admission> {
        let args = call.object();
        let refused = |why: ToolFailure| {
            let by = &response.by;
            let message = format!("{by} changed the arguments of this call to {}.\n{}", args_text(&args), why.message);
            ToolOutcome::refused(ToolFailure { message, ..why })
        };
        let proposal = match self.tools.propose(&call.name, &args).await {
            Ok(proposal) => proposal,
            Err(why) => {
                self.give_up(
                    &question.request.approval_id,
                    &format!("the changed call cannot be made: {}", head_and_tail(&why.message, 300)),
                )
                .await;
                return Some(Admission::Settled(refused(why)));
            }
        };
        if let Some(why) = self.gate.denies(&call.name, &proposal) {
            self.give_up(&question.request.approval_id, "a rule denies the changed call").await;
            return Some(Admission::Settled(refused(ToolErrorKind::Permission.because(why))));
        }
        let seen = |file: &AffectedFile| question.request.files.iter().find(|seen| seen.path == file.path).cloned();
        if proposal.files.iter().any(|file| seen(file).is_some_and(|seen| seen.hash != file.hash)) {
            return self.ask_anew(&call, question).await;
        }
        let bounds = Some(proposal.bounds());
        let asked = AskedCall {
            reason: format!("{} changed the arguments", response.by),
            risk: question.request.risk.clone(),
            rule: None,
        };
        let request = match self.call_question(&call, &args, proposal, asked) {
            Ok(request) => request,
            Err(why) => {
                self.give_up(&question.request.approval_id, "the changed call is too long").await;
                return Some(Admission::Settled(refused(why.into())));
            }
        };
        let replaces = Some(question.request.approval_id.clone());
        let request = ApprovalRequest { replaces, ..request };
        self.announce_question(&request).await;
        self.report_call(&call).await;
        self.remember(&call, bounds.as_ref(), response).await;
        let preface =
            format!("{} changed the arguments of this call. It was made with {}", response.by, args_text(&args));
        let approval = Some(request.approval_id);
        Some(Admission::Run(AdmittedCall { call, bounds, approval, preface: Some(preface) }))
    }

    /// Keeps a decision that holds for more than one call.
    async fn remember(&mut self, call: &ToolCall, bounds: Option<&CallBounds>, response: &ApprovalResponse) {
        let allowed = match response.scope.unwrap_or_default() {
            DecisionScope::Once => return,
            DecisionScope::Task => AllowedForTask::Call {
                tool: call.name.clone(),
                args: call.object(),
                skill: bounds.and_then(|bounds| bounds.skill.clone()),
            },
            DecisionScope::Rule => {
                AllowedForTask::Rule { rule: response.rule.clone().unwrap_or_default(), by: response.by.clone() }
            }
        };
        match allowed.apply(&mut self.gate) {
            Ok(()) => self.allowed.push(allowed),
            Err(why) => self.notice(NoticeLevel::Warning, format!("The call is allowed once: {why}.")).await,
        }
    }

    /// Reports that a call which was decided about has been made.
    pub(super) async fn report_outcome(&self, approval: Option<ApprovalId>, call_id: &str, ok: bool) {
        if let Some(approval_id) = approval {
            self.emit(AgentStreamEvent::ApprovalOutcome { approval_id, call_id: call_id.to_owned(), ok }).await;
        }
    }

    /// Records that a call was not decided, because somebody stepped in.
    pub(super) async fn step_over(&mut self, call: &ToolCall, note: &str) -> Result<(), Halt> {
        self.go_on().await?;
        if let Some(question) = self.calls.asked.open.remove(&call.id) {
            let awaited = question.awaited();
            if self.overtake(&awaited, note).await {
                self.overtaken.push(awaited.approval_id);
            }
        }
        Ok(())
    }
}

/// A call that a rule or a person does not allow.
fn forbidden(why: String) -> ToolOutcome {
    ToolOutcome::refused(ToolErrorKind::Permission.because(why))
}

fn not_allowed(call: &ToolCall, response: &ApprovalResponse) -> ToolOutcome {
    let note = head_and_tail(response.note.as_deref().unwrap_or_default().trim(), MAX_NOTE_BYTES);
    let end = if note.is_empty() { ".".to_owned() } else { format!(": {note}") };
    forbidden(format!("Not run: `{}` was not allowed by {}{end}", call.name, response.by))
}

fn unanswered(question: Option<&OpenQuestion>, minutes: u32) -> ToolOutcome {
    let request = question.map(|question| &question.request);
    match request.and_then(|request| request.question.as_ref()) {
        Some(asked) => ask_operator::unanswered(asked, minutes),
        None if request.is_some_and(|request| request.kind == ApprovalKind::Step) => steps::unanswered(minutes),
        None => forbidden(format!(
            "Not run: a person has to allow this, and nobody answered within {}. Do what is possible without it, and say what \
             is left.",
            span(minutes)
        )),
    }
}

fn args_text(args: &Value) -> String {
    head_and_tail(&args.to_string(), MAX_NOTE_BYTES)
}

/// The text, or its two ends if it would not fit a question.
fn fitting(text: &str) -> String {
    let mut room = MAX_PREVIEW_BYTES;
    loop {
        let short = head_and_tail(text, room);
        // In JSON, some characters take six bytes.
        let bytes = json!(short).to_string().len();
        if bytes <= MAX_PREVIEW_BYTES || room < 256 {
            return short;
        }
        room = room * MAX_PREVIEW_BYTES / (bytes + 1);
    }
}
