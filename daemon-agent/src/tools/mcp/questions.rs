//! What a server asks people during a call: each question of its form is one as `ask_operator` puts it, one after the other.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use protocol::{
    ActivityState, AgentQuestion, AgentStreamEvent, AgentWait, ApprovalId, ApprovalKind, ApprovalRequest, Decision,
    PauseCause,
};
use serde_json::{Map, Value, json};

use crate::{
    clock::Clock,
    mcp::{Elicitation, ElicitationForm, McpTool},
    report::{ActiveTime, Approvals, Sink},
    workspace::hex,
};

/// How often one question is put again when its answer is none.
const MAX_REPEATS: usize = 2;
/// Forms that people are shown during one call; further ones are declined.
const MAX_FORMS: usize = 10;

/// Where questions of servers are put.
#[derive(Clone)]
pub struct QuestionDesk {
    pub approvals: Approvals,
    pub clock: Clock,
    /// How long a question stays open, minutes.
    pub minutes: u32,
    /// Held while people are asked: that is not the task's work.
    pub active_time: ActiveTime,
}

/// The questions of one call.
pub(super) struct AskedPeople<'c> {
    desk: &'c QuestionDesk,
    sink: &'c Sink,
    call_id: &'c str,
    tool: &'c McpTool,
    /// The question that is open.
    open: Mutex<Option<ApprovalId>>,
    /// How often the server has asked.
    forms: AtomicUsize,
}

impl<'c> AskedPeople<'c> {
    pub(super) fn new(desk: &'c QuestionDesk, sink: &'c Sink, call_id: &'c str, tool: &'c McpTool) -> Self {
        Self { desk, sink, call_id, tool, open: Mutex::default(), forms: AtomicUsize::new(0) }
    }

    /// Asks what the server wants to know, and answers it.
    pub(super) async fn ask(&self, elicitation: Elicitation) {
        let Elicitation { params, mut answer } = elicitation;
        // It was taken back while others were put.
        if answer.is_closed() {
            return;
        }
        let may_ask = self.forms.fetch_add(1, Ordering::SeqCst) < MAX_FORMS;
        let found = match ElicitationForm::read(&self.tool.server, &params).filter(|_| may_ask) {
            Some(form) => tokio::select! {
                biased;
                filled = self.filled(&form) => filled,
                () = answer.closed() => {
                    self.give_up("the server does not ask any more").await;
                    return self.state(ActivityState::Tool, None).await;
                }
            },
            None => {
                self.say_declined().await;
                json!({ "action": "decline" })
            }
        };
        // Nobody waits for it any more if the call has ended.
        let _ = answer.send(found);
    }

    /// Says that the server asked for something, and that nobody saw it.
    async fn say_declined(&self) {
        let content =
            format!("{} asked for something that is asked of nobody here, and was declined.\n", self.tool.server);
        let output = AgentStreamEvent::ToolOutput { call_id: self.call_id.to_owned(), content, before: None };
        self.sink.emit(output).await;
    }

    /// The form as people filled it in.
    async fn filled(&self, form: &ElicitationForm) -> Value {
        let mut content = Map::new();
        for n in 0..form.count() {
            let mut wrong = None;
            for repeat in 0.. {
                let answer = match self.put(form.question(n, wrong.as_deref())).await {
                    Ok(answer) => answer,
                    Err(action) => return json!({ "action": action }),
                };
                match form.take(n, &answer, &mut content) {
                    Ok(true) => break,
                    Ok(false) => return json!({ "action": "decline" }),
                    Err(_) if repeat >= MAX_REPEATS => return json!({ "action": "cancel" }),
                    Err(why) => wrong = Some(why),
                }
            }
        }
        json!({ "action": "accept", "content": content })
    }

    /// Puts one question; `Err` is what the server is told instead of an answer.
    async fn put(&self, question: AgentQuestion) -> Result<String, &'static str> {
        let desk = self.desk;
        let wait = Duration::from_secs(u64::from(desk.minutes) * 60);
        let (id, expires_at) = (ApprovalId::new(desk.clock.now().millis()), desk.clock.after(wait));
        let digest = hex(json!([self.tool.name, self.call_id, question.text]).to_string().as_bytes());
        let asked = desk.approvals.ask(id.clone(), digest.clone());
        self.remember(Some(id.clone()));
        desk.active_time.hold();
        let request = ApprovalRequest {
            approval_id: id,
            kind: ApprovalKind::Question,
            digest,
            tool: self.tool.name.clone(),
            args: json!({}),
            call_id: Some(self.call_id.to_owned()),
            cwd: String::new(),
            preview: question.text.clone(),
            risk: String::new(),
            reason: String::new(),
            rule: None,
            files: Vec::new(),
            question: Some(question),
            limit: None,
            replaces: None,
            expires_at: Some(expires_at),
        };
        self.sink.emit(AgentStreamEvent::ApprovalRequired(Box::new(request))).await;
        let waiting = AgentWait { until: Some(expires_at), ..AgentWait::of(PauseCause::Input) };
        self.state(ActivityState::Waiting, Some(waiting)).await;
        let response = tokio::select! {
            biased;
            response = asked.answer().wait() => Some(response),
            () = desk.clock.pass(wait) => None,
        };
        desk.active_time.go_on();
        self.state(ActivityState::Tool, None).await;
        let Some(response) = response else {
            self.give_up("nobody answered in time").await;
            return Err("cancel");
        };
        self.remember(None);
        let answer = response.answer.filter(|answer| !answer.trim().is_empty());
        answer.filter(|_| response.decision != Decision::Deny).ok_or("decline")
    }

    /// Says that the question that is open, if there is one, is answered by nobody any more.
    pub(super) async fn give_up(&self, reason: &str) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(approval_id) = open {
            self.desk.active_time.go_on();
            self.sink.emit(AgentStreamEvent::ApprovalExpired { approval_id, reason: reason.to_owned() }).await;
        }
    }

    fn remember(&self, id: Option<ApprovalId>) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = id;
    }

    async fn state(&self, state: ActivityState, waiting: Option<AgentWait>) {
        self.sink.emit(AgentStreamEvent::StateChange { state, waiting }).await;
    }
}
