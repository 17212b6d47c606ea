//! The plan of an attempt: taking it from the closing answer, and planning first if a person wants to approve the plan.
//!
//! While planning, an agent can only look around and write the plan. The approved plan becomes part of the conversation
//! that it then works with; the goal stays the last message.

use std::collections::BTreeMap;

use protocol::{
    ActivityState, AgentStreamEvent, AgentWait, ApprovalId, Decision, ErrorCode, NoticeLevel, PauseCause, Policy,
    TaskError, plan,
    text::{head, head_and_tail},
};
use serde_json::{Value, json};

use super::{AgentLoop, Halt, filtered};
use crate::{
    model::{FinishReason, Message},
    prompt,
    report::plan::PlanText,
    tools,
};

/// The plan that waits for approval, beside the session's plan.
const IMPLEMENTATION_PLAN_FILE: &str = "implementation_plan.md";
/// How often an agent may present another plan.
const MAX_PLAN_ROUNDS: usize = 5;
/// Longest preview in an approval request, bytes: it fits an event.
const MAX_PREVIEW_BYTES: usize = 32 * 1024;
/// Longest note of a person that is passed on, bytes.
const MAX_NOTE_BYTES: usize = 8 * 1024;

/// Added to the system prompt until a plan is approved.
const PLANNING_PROMPT: &str = "
<planning>
An operator approves the plan before anything is done. You can look around with the reading tools and write the plan with \
`update_plan`; nothing else is possible now. Find out what you need, then answer with the plan itself in Markdown: what you \
understood, what you will change and where, in which steps (a task list with `- [ ]` below the heading `## Plan`), how it will \
be verified, what could go wrong. Do not begin the work.
</planning>
";

/// A person's answer to a plan.
enum Verdict {
    /// Approved; the text of the plan.
    Allowed(String),
    /// Denied; the person's note.
    Denied(String),
}

impl AgentLoop {
    /// Whether a call may be carried out now.
    pub(super) fn may_call(&self, tool: &str) -> bool {
        !self.planning || looks_only(tool)
    }

    /// Makes a plan in the closing answer the session's plan, as the policy allows.
    pub(super) async fn take_plan(&mut self, answer: &str) {
        let Some(said) = plan::of_answer(answer) else { return };
        if let Err(why) = self.plan.change("", |now| plan::markdown_of_change(&said, now)).await {
            let text = format!("The plan in the answer was not accepted: {why}.");
            self.notice(NoticeLevel::Warning, text).await;
        }
    }

    /// Plans, and returns once a person approved the plan; the conversation then continues with it.
    pub(super) async fn plan_first(&mut self) -> Result<(), Halt> {
        let (tools, system) = (self.request.tools.clone(), self.request.system.clone());
        self.planning = true;
        self.plan.treat(Policy::Apply);
        self.request.tools.retain(|tool| looks_only(tool.name));
        self.request.system.push_str(PLANNING_PROMPT);
        for _ in 0..MAX_PLAN_ROUNDS {
            let words = self.until_planned().await?;
            let asked = self.write_plan_for_approval(&words).await?;
            let plan = asked.markdown.clone();
            match self.ask_person(asked).await? {
                Verdict::Allowed(text) => {
                    (self.request.tools, self.request.system) = (tools, system);
                    self.planning = false;
                    self.plan.treat(self.run.submit.plan_policy);
                    let file = self.run.home.workspace().join(self.plan.folder()).join("walkthrough.md");
                    let note = format!(
                        "An operator approved the plan below. Carry it out now: this, and nothing beyond it. When you are \
                         done, write what was done and how it was verified to {}.\n\n<approved_plan>\n{text}\n</approved_plan>",
                        file.display()
                    );
                    self.begin_again(&note).await;
                    return Ok(());
                }
                Verdict::Denied(why) => {
                    let said = if why.is_empty() { String::new() } else { format!("\n\nTheir words:\n{why}") };
                    let note = format!(
                        "An operator did not approve the plan below. Make a better one.{said}\n\n\
                         <refused_plan>\n{plan}\n</refused_plan>"
                    );
                    self.begin_again(&note).await;
                }
            }
        }
        Err(Halt::Failed(TaskError {
            code: ErrorCode::BadRequest,
            message: format!("No plan was approved in {MAX_PLAN_ROUNDS} rounds."),
            retryable: true,
            suggestion: Some("Say in the goal what the plan should be like, or let the agent work at once.".to_owned()),
            details: None,
        }))
    }

    /// Calls the model and lets it look around until it answers without a tool call.
    async fn until_planned(&mut self) -> Result<String, Halt> {
        loop {
            self.budget.take_step().map_err(Halt::Failed)?;
            let answer = self.ask().await?;
            if answer.finish == FinishReason::ContentFilter {
                return Err(Halt::Failed(filtered()));
            }
            if answer.message.calls.is_empty() {
                return Ok(answer.message.text);
            }
            self.request.messages.push(Message::Assistant(answer.message.clone()));
            self.budget.check_tokens(&self.usage).map_err(Halt::Failed)?;
            self.perform(answer).await?;
            self.budget.check_rounds(&self.run.agent).map_err(Halt::Failed)?;
        }
    }

    /// Writes the text that a person is to approve: the answer, and the plan unless the answer contains it.
    async fn write_plan_for_approval(&mut self, words: &str) -> Result<PlanText, Halt> {
        self.take_plan(words).await;
        let plan = self.plan.now().await.markdown;
        let mut text = words.trim().to_owned();
        let steps = |text: &str| plan::Steps::of(text).steps.len();
        if !plan.trim().is_empty() && (text.is_empty() || steps(&text) < steps(&plan)) {
            text = if text.is_empty() { plan.trim().to_owned() } else { format!("{text}\n\n{}", plan.trim()) };
        }
        if text.is_empty() {
            "(The agent answered with no plan.)".clone_into(&mut text);
        }
        text.push('\n');
        let markdown = head(&text, plan::MAX_PLAN_BYTES).to_owned();
        let written = self.plan.write_beside(IMPLEMENTATION_PLAN_FILE, &markdown).await;
        let hash = written.map_err(|why| Halt::Failed(not_written(&why)))?;
        Ok(PlanText { markdown, hash: Some(hash) })
    }

    /// Waits for a person. If the plan was changed before it was approved, the changed plan needs a new approval.
    async fn ask_person(&mut self, mut asked: PlanText) -> Result<Verdict, Halt> {
        loop {
            let digest = asked.hash.clone().unwrap_or_default();
            let id = ApprovalId::new(self.clock.now().millis());
            let mut question = self.run.approvals.ask(id.clone(), digest.clone());
            self.log.part("approval-required", json!({ "approvalId": id, "digest": digest })).await;
            self.emit(AgentStreamEvent::ApprovalRequired(self.question(&id, &digest, &asked.markdown))).await;
            let wait = AgentWait { cause: PauseCause::Approval, until: None };
            self.state(ActivityState::Waiting, Some(wait)).await;
            let stop = self.run.stop.clone();
            let word = tokio::select! {
                biased;
                () = stop.cancelled() => return Err(Halt::Stopped),
                word = question.answer() => word,
            };
            let said = json!({ "approvalId": id, "decision": word.decision, "note": word.note });
            self.log.part("approval", said).await;
            self.state(ActivityState::Thinking, None).await;
            if word.decision == Decision::Deny {
                let note = word.note.as_deref().unwrap_or_default().trim();
                return Ok(Verdict::Denied(head_and_tail(note, MAX_NOTE_BYTES)));
            }
            let now = self.plan.beside(IMPLEMENTATION_PLAN_FILE).await;
            if now.hash == asked.hash {
                return Ok(Verdict::Allowed(asked.markdown));
            }
            let text =
                "The plan was changed while it waited for approval; the changed plan needs a new approval.".to_owned();
            self.notice(NoticeLevel::Info, text).await;
            asked = match now.hash {
                Some(_) => now,
                None => {
                    let hash = self.plan.write_beside(IMPLEMENTATION_PLAN_FILE, &asked.markdown).await;
                    PlanText { hash: Some(hash.map_err(|why| Halt::Failed(not_written(&why)))?), ..asked }
                }
            };
        }
    }

    fn question(&self, id: &ApprovalId, digest: &str, text: &str) -> BTreeMap<String, Value> {
        let cwd = self.run.agent.spaces.first().cloned().unwrap_or_else(|| self.run.home.workspace());
        let fields = [
            ("approvalId", json!(id)),
            ("digest", json!(digest)),
            ("tool", json!("plan")),
            ("args", json!({ "file": format!("{}/{IMPLEMENTATION_PLAN_FILE}", self.plan.folder()) })),
            ("cwd", json!(cwd.display().to_string())),
            ("preview", json!(head_and_tail(text, MAX_PREVIEW_BYTES))),
            ("risk", json!("The agent begins to work.")),
        ];
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Restarts the conversation with `note` in its context message.
    async fn begin_again(&mut self, note: &str) {
        let mut submit = self.run.submit.clone();
        submit.plan = self.plan.shown().await;
        let before = match &submit.context {
            Some(Value::String(text)) => format!("{text}\n\n"),
            Some(Value::Null) | None => String::new(),
            Some(other) => format!("{other}\n\n"),
        };
        submit.context = Some(Value::String(format!("{before}{note}")));
        self.request.messages = prompt::messages(&submit, &self.run.home, &self.recall);
    }
}

/// Whether a tool changes nothing except the plan.
fn looks_only(tool: &str) -> bool {
    tools::is_read_only(tool) || tool == "update_plan"
}

fn not_written(why: &str) -> TaskError {
    TaskError {
        code: ErrorCode::ToolFailed,
        message: format!("The plan could not be saved: {why}."),
        retryable: true,
        suggestion: None,
        details: None,
    }
}
