//! The built-in agent loop: model → tool calls → results → … until an answer contains no call.
//!
//! Owns the order of steps, retries and limits. Does not know wire formats (`model`), what tools do (`tools`), or how
//! an attempt's end is recorded (`task`). There are no hidden model calls: every one is a `step` that people see.

use std::collections::{BTreeMap, HashSet};

use protocol::{
    ActivityState, AgentStreamEvent, AgentWait, ApprovalId, ErrorCode, NoticeLevel, PauseCause, PlaybookTask,
    TaskError, TaskResult, TaskSubmit, Usage, context::leaves_turns_out, suggestion::without_suggestions,
    text::summary,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

mod ask_operator;
mod boundary;
mod budget;
mod compact;
mod decisions;
mod gate;
mod messages;
mod model_call;
mod planning;
mod questions;
mod repeats;
mod tool_calls;

use super::{EngineOutcome, EngineRun, limits};
use crate::{
    clock::Clock,
    config::toolset::DELEGATE,
    confinement,
    memory::Recall,
    model::{Answer, FinishReason, Message, Model, ModelRequest},
    prompt,
    report::{
        memory::MemoryEditor,
        plan::{PlanEditor, PlanText},
    },
    session_log::{self, SessionLog},
    tools::{ToolContext, Toolbox},
};
use budget::{
    Budget,
    cost::{self, Pricing},
};
use compact::Folding;
use decisions::{AllowedForTask, CHILD_PROMPT, MESH_PROMPT, SUPERVISOR_PROMPT};
use gate::Gate;
use model_call::{DueCall, Tries};
use planning::Planning;
pub use questions::LoopRecord;
use questions::OpenQuestion;
use repeats::FailedCalls;
use tool_calls::PendingCalls;

/// Why the loop ended without a result.
#[derive(Debug)]
enum Halt {
    Stopped,
    Failed(TaskError),
}

/// Runs one attempt with the agent's model and tools.
pub async fn run(run: EngineRun) -> EngineOutcome {
    let context = ToolContext {
        home: run.home.clone(),
        workspace: run.memory.workspace(),
        agent: run.agent.clone(),
        config: run.config.clone(),
        task_id: run.submit.task_id.clone(),
        attempt: run.submit.attempt,
        sink: run.sink.clone(),
        collector: run.collector.clone(),
        stop: run.stop.clone(),
    };
    run_with(run, Toolbox::new(context)).await
}

/// Like [`run`], with tools that the caller provides.
pub async fn run_with(run: EngineRun, tools: Toolbox) -> EngineOutcome {
    run_by(run, tools, Clock::system()).await
}

async fn run_by(mut run: EngineRun, tools: Toolbox, clock: Clock) -> EngineOutcome {
    let mut log = SessionLog::of(&run.submit, &run.home, clock.clone());
    let resumed = run.resumed.take();
    if resumed.is_none() {
        let mut goal = json!({ "text": run.submit.goal, "model": run.agent.model });
        if let Some(asked) = &run.submit.compact {
            goal["kind"] = json!(session_log::kind_of(asked));
        }
        log.part("goal", goal).await;
    }
    let model = match Model::for_agent(&run.agent, &run.config) {
        Ok(model) => model,
        Err(error) => return failed(error, &mut log).await,
    };
    let gate = match Gate::of(&run) {
        Ok(gate) => gate,
        Err(error) => return failed(error, &mut log).await,
    };
    let pricing = Pricing::of(&run.agent.model, &run.submit.prices, &run.config);
    let allowed = limits::of_task(&run.submit, &run.agent, run.local);
    if allowed.cost_usd.is_some() && pricing == Pricing::Unknown {
        return failed(cost::unknown(&run.agent.model), &mut log).await;
    }
    let model = model.with_findings(&run.agent, &run.home, &clock).await;
    let mut agent_loop = AgentLoop::open(run, model, (tools, gate), log, &clock).await;
    match resumed {
        Some(resumed) => agent_loop.go_on_from(*resumed),
        None if agent_loop.run.submit.compact.is_none() => agent_loop.begin().await,
        None => {}
    }
    let ended = match agent_loop.run.submit.compact.clone() {
        Some(asked) => agent_loop.compact(&asked).await,
        None => agent_loop.until_answered().await,
    };
    agent_loop.state(ActivityState::Idle, None).await;
    match ended {
        Ok(result) => {
            agent_loop.log.part("completed", json!({ "summary": result.summary, "usage": result.usage })).await;
            EngineOutcome::Completed(result)
        }
        Err(Halt::Stopped) => {
            agent_loop.log.part("stopped", json!({ "killed": agent_loop.killed })).await;
            EngineOutcome::Stopped { killed: agent_loop.killed }
        }
        Err(Halt::Failed(error)) => failed(agent_loop.with_budget(error), &mut agent_loop.log).await,
    }
}

async fn failed(error: TaskError, log: &mut SessionLog) -> EngineOutcome {
    log.part("error", json!({ "error": error })).await;
    EngineOutcome::Failed(error)
}

/// One attempt under way.
struct AgentLoop {
    run: EngineRun,
    model: Model,
    tools: Toolbox,
    /// Which calls of them people are asked about.
    gate: Gate,
    clock: Clock,
    log: SessionLog,
    /// The next model call's request; the conversation grows at its end.
    request: ModelRequest,
    /// Skills that the session loaded before, and what the system prompt says of skills.
    loaded_skills: Vec<String>,
    skills_prompt: String,
    /// What the request takes by layer; `None` after a rest whose record is of an earlier version.
    layers: Option<prompt::RequestLayers>,
    budget: Budget,
    /// How the cost of the model's calls is known.
    pricing: Pricing,
    usage: Usage,
    /// Number of the last model call, including withdrawn ones.
    step: u32,
    /// Ids of calls in the conversation: providers refuse an id that occurs twice.
    ids: HashSet<String>,
    /// Calls of which the model has a part of the result, and all of it is kept nowhere.
    lost_results: HashSet<String>,
    killed: u32,
    failed_calls: FailedCalls,
    /// Number of the turn, from 1: people may ask for more while the task runs.
    turn: u32,
    /// What people said before the plan was approved: the conversation begins anew with every plan.
    said_while_planning: Vec<Message>,
    /// Questions instead of which somebody said something that the agent was not told yet.
    overtaken: Vec<ApprovalId>,
    /// The session's plan.
    plan: PlanEditor,
    memory: MemoryEditor,
    /// The excerpts of the memory that go with every request.
    recall: Recall,
    /// While nothing is approved yet, the agent may only look around and plan.
    planning: Option<Planning>,
    stage: Stage,
    /// Tries of the model call that is due.
    tries: Tries,
    calls: PendingCalls,
    /// The summary with which it has finished the run that it supervises.
    finished: Option<String>,
    /// The question of the task itself that is open: about its plan, or about a limit.
    asked: Option<OpenQuestion>,
    /// How far it has summarized, if that is its task.
    folding: Option<Folding>,
    /// Whether the agent's `fallbackModel` answers.
    is_fallback: bool,
    /// What people allowed until the task ends.
    allowed: Vec<AllowedForTask>,
    /// The wait that people know of already, when the task goes on after a restart.
    known_wait: Option<AgentWait>,
}

/// What comes next.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Stage {
    /// A model call.
    Model(DueCall),
    /// The calls of the last answer that are left.
    Calls,
    /// What people say about calls that fail again and again.
    CallsMade,
    /// A person's word on this plan.
    Plan(PlanText),
    /// What people said since this answer, or the end.
    EndOfTurn(Answer),
}

impl AgentLoop {
    /// A loop whose conversation is empty.
    async fn open(
        mut run: EngineRun,
        model: Model,
        (tools, gate): (Toolbox, Gate),
        log: SessionLog,
        clock: &Clock,
    ) -> Self {
        let plan = PlanEditor::open(&run.submit, &run.home, run.memory.workspace(), run.sink.clone(), run.local).await;
        let memory =
            MemoryEditor::open(&run.submit.agent_id, run.submit.memory_policy, run.memory.clone(), run.sink.clone());
        let tools = tools.with_plan(plan.clone()).with_memory(memory.clone()).with_skills(
            run.skills.clone(),
            run.submit.session_id.clone(),
            clock.clone(),
        );
        let tools = tools.with_mcp(run.mcp.clone(), questions::desk(&run, clock));
        let tools = tools.in_mesh(run.submit.parent.is_some());
        let tools = if supervises(&run.submit) { tools.for_supervisor() } else { tools };
        // Whoever opens the plan again takes over no text that came with the task: that was done.
        run.submit.plan = run.submit.plan.take().filter(|plan| plan.get("hash").is_some_and(|hash| !hash.is_null()));
        let recall = if run.submit.no_files { Recall::default() } else { run.memory.recall(&run.submit).await };
        let request = ModelRequest {
            model: model.name().to_owned(),
            system: String::new(),
            messages: Vec::new(),
            tools: tools.specs(),
            temperature: run.agent.temperature,
            max_tokens: run.agent.max_tokens,
            context_window: model.window().tokens,
        };
        let allowed = limits::of_task(&run.submit, &run.agent, run.local);
        let mut budget = Budget::new(allowed, limits::leash(&run.submit, &run.agent), run.active_time.clone());
        if let Some(spent) = &run.submit.spent {
            budget.count_spent(spent);
        }
        if let Some(before) = &run.submit.budget {
            budget.go_on_from(before);
        }
        let pricing = Pricing::of(&run.agent.model, &run.submit.prices, &run.config);
        Self {
            run,
            model,
            tools,
            gate,
            clock: clock.clone(),
            log,
            request,
            loaded_skills: Vec::new(),
            skills_prompt: String::new(),
            layers: None,
            budget,
            pricing,
            usage: Usage::default(),
            step: 0,
            ids: HashSet::new(),
            lost_results: HashSet::new(),
            killed: 0,
            failed_calls: FailedCalls::default(),
            turn: 1,
            said_while_planning: Vec::new(),
            overtaken: Vec::new(),
            plan,
            memory,
            recall,
            folding: None,
            is_fallback: false,
            allowed: Vec::new(),
            planning: None,
            stage: Stage::Model(DueCall::Next),
            tries: Tries::default(),
            calls: PendingCalls::none(),
            finished: None,
            asked: None,
            known_wait: None,
        }
    }

    /// Begins the conversation.
    async fn begin(&mut self) {
        // The file on this machine takes precedence over what the Board knew when it sent the task.
        let submit = TaskSubmit { plan: self.plan.shown().await, ..self.run.submit.clone() };
        let home = &self.run.home;
        let place = prompt::PromptEnvironment::here(confinement::found().layers.confine(), &self.clock);
        self.request.messages = prompt::messages(&submit, home, &self.recall);
        let ids = self.request.messages.iter().filter_map(|message| match message {
            Message::Tool { call_id, .. } => Some(call_id.clone()),
            _ => None,
        });
        self.ids = ids.collect();
        let mut system = prompt::system(&self.run.agent, home, &place, self.run.submit.no_files).await;
        if supervises(&submit) {
            system.text.push_str(SUPERVISOR_PROMPT);
        }
        if self.tools.delegates_by(DELEGATE) {
            system.text.push_str(MESH_PROMPT);
        }
        if submit.parent.is_some() {
            system.text.push_str(CHILD_PROMPT);
        }
        let asked =
            prompt::PromptParts { system: &system, submit: &submit, recall: &self.recall, plan: self.plan.path() };
        self.layers = Some(prompt::RequestLayers::new(&asked, home, &self.request.tools));
        self.request.system = system.text;
        for failure in self.tools.list_mcp().await {
            self.notice(NoticeLevel::Warning, failure).await;
        }
        self.begin_with_skills().await;
        let percent = self.model.estimate_percent();
        if let Some(layers) = &mut self.layers {
            let tokens = prompt::RequestTokens::Estimated(percent);
            let mut told = layers.report(&self.request, self.model.window(), tokens);
            told.insert("memory".to_owned(), json!(prompt::sent_excerpts(&self.recall)));
            self.emit_context(told).await;
        }
        if submit.approve_first {
            self.plan_first(Planning::default());
        }
    }

    async fn emit(&self, event: AgentStreamEvent) {
        self.run.sink.emit(event).await;
    }

    /// Reports what a request consists of, with the model, how many tokens its provider counts for 100 that are estimated, and
    /// whether turns of the session are missing in it.
    async fn emit_context(&self, mut told: BTreeMap<String, Value>) {
        told.insert("model".to_owned(), json!(self.run.agent.model));
        told.insert("estimatePercent".to_owned(), json!(self.model.estimate_percent()));
        if leaves_turns_out(&self.run.submit.messages) {
            told.insert("leftOut".to_owned(), json!(true));
        }
        self.emit(AgentStreamEvent::Context(told)).await;
    }

    /// Reports what the agent is busy with.
    async fn state(&self, state: ActivityState, waiting: Option<AgentWait>) {
        self.count_time(waiting.as_ref().map(|waiting| waiting.cause));
        self.emit(AgentStreamEvent::StateChange { state, waiting }).await;
    }

    /// Time in which the agent waits for a person, or for other tasks, does not count.
    fn count_time(&self, waiting: Option<PauseCause>) {
        match waiting {
            Some(
                PauseCause::Approval | PauseCause::Input | PauseCause::Budget | PauseCause::Paused | PauseCause::Child,
            ) => self.run.active_time.hold(),
            Some(PauseCause::RateLimit | PauseCause::Unknown) | None => self.run.active_time.go_on(),
        }
    }

    async fn notice(&mut self, level: NoticeLevel, text: String) {
        self.log.part("notice", json!({ "text": text })).await;
        self.emit(AgentStreamEvent::Notice { level, text }).await;
    }

    async fn until_answered(&mut self) -> Result<TaskResult, Halt> {
        loop {
            match self.stage.clone() {
                Stage::Model(due) => {
                    let answer = self.ask(due).await?;
                    self.take_answer(answer).await?;
                }
                Stage::Calls => {
                    self.perform().await?;
                    self.stage = self.end_of_run().await.map_or(Stage::CallsMade, Stage::EndOfTurn);
                }
                Stage::CallsMade => {
                    self.ask_if_stuck().await?;
                    self.budget.check_rounds(&self.run.agent).map_err(Halt::Failed)?;
                    self.stage = Stage::Model(DueCall::Next);
                }
                Stage::Plan(asked) => self.decide_plan(asked).await?,
                Stage::EndOfTurn(answer) => {
                    if !self.goes_on_after(&answer.message).await? {
                        return Ok(self.result(answer).await);
                    }
                    self.stage = Stage::Model(DueCall::Next);
                }
            }
        }
    }

    /// Decides what comes after an answer of the model.
    async fn take_answer(&mut self, answer: Answer) -> Result<(), Halt> {
        if answer.finish == FinishReason::ContentFilter {
            return Err(Halt::Failed(filtered()));
        }
        self.stage = match (answer.message.calls.is_empty(), self.planning.is_some()) {
            (true, true) => self.take_planning_answer(&answer.message).await?,
            (true, false) => {
                self.take_closing_words(&answer).await;
                Stage::EndOfTurn(answer)
            }
            (false, planning) => {
                if !planning {
                    self.take_suggestions(&answer.message.text).await;
                }
                self.request.messages.push(Message::Assistant(answer.message.clone()));
                self.calls = PendingCalls::of(answer);
                Stage::Calls
            }
        };
        Ok(())
    }

    /// Takes the plan and the suggestions of the last answer of a turn.
    async fn take_closing_words(&mut self, answer: &Answer) {
        if answer.finish == FinishReason::Length {
            let text =
                "The answer was cut: it reached the model's output limit (`maxTokens` in the agent's file).".to_owned();
            self.notice(NoticeLevel::Warning, text).await;
        } else if answer.message.text.trim().is_empty() {
            self.notice(NoticeLevel::Info, "The model ended without a closing word.".to_owned()).await;
        }
        self.take_plan(&answer.message.text).await;
        self.take_suggestions(&answer.message.text).await;
    }

    /// An error after which another attempt may go on from this one, with what that one has to know.
    fn with_budget(&self, mut error: TaskError) -> TaskError {
        if error.code == ErrorCode::ContextOverflow
            && let Some(details) = error.details.get_or_insert_with(|| json!({})).as_object_mut()
        {
            details.insert("budget".to_owned(), json!(self.budget.progress()));
        }
        error
    }

    async fn result(&self, answer: Answer) -> TaskResult {
        // The whole text: the reporter shortens it to size and keeps the full text in a file.
        let text = answer.message.text;
        let (plan, memory) = (self.plan.result().await, self.memory.result());
        let summary = summary(&without_suggestions(&text));
        TaskResult { summary, text, plan, memory, usage: self.usage.clone(), ..TaskResult::default() }
    }
}

impl AgentLoop {
    /// Takes what an answer suggests for the memory, the closing one or one before more work. Returns how many were taken.
    async fn take_suggestions(&mut self, text: &str) -> usize {
        if self.gate.restricts_words("remember") {
            if without_suggestions(text) != text {
                let text = "A suggestion for the memory was not taken: by a rule `remember` is denied, or asked about."
                    .to_owned();
                self.notice(NoticeLevel::Warning, text).await;
            }
            return 0;
        }
        let (taken, wrong) = self.memory.take_suggestions(text).await;
        for why in wrong {
            self.notice(NoticeLevel::Warning, format!("A suggestion for the memory was not accepted: {why}.")).await;
        }
        taken
    }
}

/// Whether a task supervises the run of a playbook.
fn supervises(submit: &TaskSubmit) -> bool {
    submit.playbook.as_ref().is_some_and(PlaybookTask::is_supervisor)
}

fn filtered() -> TaskError {
    TaskError {
        code: ErrorCode::ContentPolicy,
        message: "The provider's content filter ended the answer.".to_owned(),
        retryable: false,
        suggestion: Some("Say it differently, or use another model.".to_owned()),
        details: None,
    }
}

#[cfg(test)]
mod tests;
