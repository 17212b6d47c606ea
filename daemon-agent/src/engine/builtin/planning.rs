//! The plan of an attempt: taking it from the closing answer, and planning first if a person wants to approve the plan.
//!
//! While planning, an agent can only look around and write the plan. The approved plan becomes part of the conversation
//! that it then works with; only what people said meanwhile follows the goal.

use protocol::{
    ActivityState, ApprovalKind, ApprovalRequest, Decision, ErrorCode, NoticeLevel, Policy, TaskError, TaskMessage,
    plan,
    text::{head, head_and_tail},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    AgentLoop, Halt, Stage,
    ask_operator::ASK_OPERATOR,
    model_call::DueCall,
    questions::{OpenQuestion, Reply, span},
};
use crate::{model::AssistantMessage, prompt, report::plan::PlanText, tools};

/// The plan that waits for approval, beside the session's plan.
const IMPLEMENTATION_PLAN_FILE: &str = "implementation_plan.md";
/// How often an agent may present another plan.
const MAX_PLAN_ROUNDS: usize = 5;
/// Longest preview in an approval request, bytes: it fits an event.
const MAX_PREVIEW_BYTES: usize = 32 * 1024;
/// What ends a plan that is longer.
const LEFT_OUT: &str = "\n\n(The plan was longer: the rest was left out and is not approved.)\n";
/// Longest note of a person that is passed on, bytes.
const MAX_NOTE_BYTES: usize = 8 * 1024;

/// Added to the system prompt until a plan is approved.
pub(super) const PLANNING_PROMPT: &str = "
<planning>
An operator approves the plan before anything is done. You can look around with the reading tools, write the plan with \
`update_plan` and ask with `ask_operator`; nothing else is possible now. Find out what you need, then answer with the plan itself in Markdown: what you \
understood, what you will change and where, in which steps (a task list with `- [ ]` below the heading `## Plan`), how it will \
be verified, what could go wrong. Do not begin the work.
</planning>
";

/// What an attempt keeps in mind until its plan is approved.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Planning {
    /// How many plans were denied.
    rounds: usize,
    /// What people said instead of deciding. It counts as told with the next model call.
    pub said: Vec<TaskMessage>,
}

/// A person's word on a plan.
enum Verdict {
    /// Approved; the text of the plan.
    Allowed(String),
    /// Denied; the person's note.
    Denied(String),
    /// Somebody said this instead.
    Steered(Vec<TaskMessage>),
}

impl AgentLoop {
    /// Whether a call may be carried out now.
    pub(super) fn may_call(&self, tool: &str) -> bool {
        self.planning.is_none() || looks_only(tool)
    }

    /// Makes a plan in the closing answer the session's plan, as the policy allows.
    pub(super) async fn take_plan(&mut self, answer: &str) {
        let Some(said) = plan::of_answer(answer) else { return };
        if self.gate.restricts_words("update_plan") {
            let text =
                "The plan in the answer was not taken: by a rule `update_plan` is denied, or asked about.".to_owned();
            return self.notice(NoticeLevel::Warning, text).await;
        }
        if let Err(why) = self.plan.change("", |now| plan::markdown_of_change(&said, now)).await {
            let text = format!("The plan in the answer was not accepted: {why}.");
            self.notice(NoticeLevel::Warning, text).await;
        }
    }

    /// Lets the agent look around and plan, and nothing else, until a person approved the plan.
    pub(super) fn plan_first(&mut self, planning: Planning) {
        self.planning = Some(planning);
        self.plan.treat(Policy::Apply);
        self.request.tools.retain(|tool| looks_only(&tool.name));
        if !self.request.system.ends_with(PLANNING_PROMPT) {
            self.request.system.push_str(PLANNING_PROMPT);
        }
    }

    /// Takes an answer without calls for the plan, unless people have something to say first.
    pub(super) async fn take_planning_answer(&mut self, answer: &AssistantMessage) -> Result<Stage, Halt> {
        let said = self.take_steering();
        if said.is_empty() {
            return Ok(Stage::Plan(self.write_plan_for_approval(&answer.text).await?));
        }
        self.hear_while_planning(said);
        self.budget.check_rounds(&self.run.agent).map_err(Halt::Failed)?;
        self.remember_answer(answer);
        Ok(Stage::Model(DueCall::Next))
    }

    /// Lets people decide about a plan. The conversation then begins anew: with the approved plan, or to make a better one.
    pub(super) async fn decide_plan(&mut self, asked: PlanText) -> Result<(), Halt> {
        let plan = asked.markdown.clone();
        match self.ask_about_plan(asked).await? {
            Verdict::Allowed(text) => {
                self.planning = None;
                self.request.tools = self.tools.specs();
                let system = self.request.system.strip_suffix(PLANNING_PROMPT).map(str::to_owned);
                self.request.system = system.unwrap_or_else(|| std::mem::take(&mut self.request.system));
                self.plan.treat(self.run.submit.plan_policy);
                let file = self.run.home.workspace().join(self.plan.folder()).join("walkthrough.md");
                let note = format!(
                    "An operator approved the plan below. Carry it out now: this, and nothing beyond it. When you are done, \
                     write what was done and how it was verified to {}.\n\n<approved_plan>\n{text}\n</approved_plan>",
                    file.display()
                );
                self.begin_again(&note).await;
            }
            Verdict::Denied(why) => {
                self.count_denied_plan()?;
                let said = if why.is_empty() { String::new() } else { format!("\n\nTheir words:\n{why}") };
                let note = format!(
                    "An operator did not approve the plan below. Make a better one.{said}\n\n\
                     <refused_plan>\n{plan}\n</refused_plan>"
                );
                self.begin_again(&note).await;
            }
            Verdict::Steered(messages) => {
                // It is no further try of the agent's; what bounds these rounds are its steps.
                self.budget.check_rounds(&self.run.agent).map_err(Halt::Failed)?;
                self.hear_while_planning(messages);
                let note = format!(
                    "An operator did not approve the plan below; what they said about it follows the goal. Make a better \
                     one.\n\n<refused_plan>\n{plan}\n</refused_plan>"
                );
                self.begin_again(&note).await;
            }
        }
        self.stage = Stage::Model(DueCall::Next);
        Ok(())
    }

    fn hear_while_planning(&mut self, messages: Vec<TaskMessage>) {
        if let Some(planning) = &mut self.planning {
            planning.said = messages;
        }
    }

    fn count_denied_plan(&mut self) -> Result<(), Halt> {
        let Some(planning) = &mut self.planning else { return Ok(()) };
        planning.rounds += 1;
        if planning.rounds < MAX_PLAN_ROUNDS {
            return Ok(());
        }
        Err(Halt::Failed(TaskError {
            code: ErrorCode::BadRequest,
            message: format!("No plan was approved in {MAX_PLAN_ROUNDS} rounds."),
            retryable: true,
            suggestion: Some("Say in the goal what the plan should be like, or let the agent work at once.".to_owned()),
            details: None,
        }))
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
        // What is approved is what was shown.
        let mut markdown = head(&text, MAX_PREVIEW_BYTES - LEFT_OUT.len()).to_owned();
        if markdown.len() < text.len() {
            markdown.push_str(LEFT_OUT);
        }
        let written = self.plan.write_beside(IMPLEMENTATION_PLAN_FILE, &markdown).await;
        let hash = written.map_err(|why| Halt::Failed(not_written(&why)))?;
        Ok(PlanText { markdown, hash: Some(hash) })
    }

    /// Waits for a person. If the plan was changed before it was approved, the changed plan needs a new approval. Without an
    /// answer the task ends: no other plan would help.
    async fn ask_about_plan(&mut self, mut asked: PlanText) -> Result<Verdict, Halt> {
        loop {
            let reply = self.ask_people(|task| task.plan_question(&asked), ActivityState::Thinking).await?;
            let Some(awaited) = self.asked.as_ref().map(OpenQuestion::awaited) else { continue };
            let word = match reply {
                Reply::Decided(word) => word,
                Reply::Expired => return Err(Halt::Failed(not_decided(awaited.minutes))),
                Reply::Steered => {
                    let messages = self.take_steering();
                    if messages.is_empty() {
                        continue;
                    }
                    if self.overtake(&awaited, &prompt::said(&messages, &self.run.home)).await {
                        self.overtaken.push(awaited.approval_id);
                    }
                    self.asked = None;
                    return Ok(Verdict::Steered(messages));
                }
            };
            self.asked = None;
            if word.decision != Decision::Allow {
                let note = word.note.as_deref().unwrap_or_default().trim();
                return Ok(Verdict::Denied(head_and_tail(note, MAX_NOTE_BYTES)));
            }
            let now = self.plan.beside(IMPLEMENTATION_PLAN_FILE).await;
            if now.hash == asked.hash {
                return Ok(Verdict::Allowed(asked.markdown));
            }
            self.give_up(&awaited.approval_id, "the plan was changed while it waited").await;
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
            self.stage = Stage::Plan(asked.clone());
        }
    }

    fn plan_question(&self, asked: &PlanText) -> ApprovalRequest {
        let cwd = self.run.agent.spaces.first().cloned().unwrap_or_else(|| self.run.home.workspace());
        ApprovalRequest {
            digest: asked.hash.clone().unwrap_or_default(),
            args: json!({ "file": format!("{}/{IMPLEMENTATION_PLAN_FILE}", self.plan.folder()) }),
            cwd: cwd.display().to_string(),
            preview: head_and_tail(&asked.markdown, MAX_PREVIEW_BYTES),
            risk: "The agent begins to work.".to_owned(),
            ..self.question(ApprovalKind::Plan, "plan")
        }
    }

    /// Restarts the conversation with `note` in its context message, and what people said since after the goal.
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
        self.request.messages.extend(self.said_while_planning.iter().cloned());
        self.recall_loaded_skills().await;
        if let Some(layers) = &mut self.layers {
            layers.begin_again();
        }
    }
}

/// Whether a tool changes nothing except the plan.
pub(super) fn looks_only(tool: &str) -> bool {
    tools::is_read_only(tool) || tool == "update_plan" || tool == ASK_OPERATOR
}

fn not_decided(minutes: u32) -> TaskError {
    TaskError {
        code: ErrorCode::Timeout,
        message: format!("Nobody decided about the plan within {}.", span(minutes)),
        retryable: true,
        suggestion: Some("Retry the task: the agent plans again and asks.".to_owned()),
        details: None,
    }
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
