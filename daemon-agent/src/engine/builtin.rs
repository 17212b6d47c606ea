//! The built-in agent loop: model → tool calls → results → … until an answer calls nothing.
//!
//! Owns the order of things, retries and limits. Refuses wire formats (`model`), what tools do (`tools`) and how an
//! attempt's end is recorded (`task`). There are no hidden model calls: every one is a `step` that people see.

use std::collections::HashSet;

use protocol::{
    ActivityState, AgentStreamEvent, ErrorCode, NoticeLevel, Pause, TaskError, TaskResult, Usage, text::summary,
};
use serde_json::json;

mod ask;
mod budget;
mod calls;
mod planned;

use super::{Outcome, Run};
use crate::{
    clock::Clock,
    confinement,
    memory::Recall,
    model::{Answer, Finish, Message, Model, Request},
    prompt,
    report::{memory::MemoryEditor, plan::PlanEditor},
    session_log::SessionLog,
    tools::{ToolContext, Toolbox},
};
use budget::Budget;

/// Why the loop ended without a result.
#[derive(Debug)]
enum Halt {
    Stopped,
    Failed(TaskError),
}

/// Runs one attempt with the agent's model and tools.
pub async fn run(run: Run) -> Outcome {
    let context = ToolContext {
        home: run.home.clone(),
        workspace: run.memory.workspace(),
        agent: run.agent.clone(),
        config: run.config.clone(),
        task_id: run.submit.task_id.clone(),
        attempt: run.submit.attempt,
        sink: run.sink.clone(),
        shelf: run.shelf.clone(),
        stop: run.stop.clone(),
    };
    run_with(run, Toolbox::new(context)).await
}

/// The same with tools that the caller made.
pub async fn run_with(run: Run, tools: Toolbox) -> Outcome {
    let clock = Clock::system();
    let mut log = SessionLog::of(&run.submit, &run.home, clock.clone());
    log.part("goal", json!({ "text": run.submit.goal, "model": run.agent.model })).await;
    let model = match Model::for_agent(&run.agent, &run.config) {
        Ok(model) => model,
        Err(error) => return failed(error, &mut log).await,
    };
    let mut work = Work::begin(run, model, tools, log, &clock).await;
    let ended = work.until_answered().await;
    work.state(ActivityState::Idle, None).await;
    match ended {
        Ok(result) => {
            work.log.part("completed", json!({ "summary": result.summary, "usage": result.usage })).await;
            Outcome::Completed(result)
        }
        Err(Halt::Stopped) => {
            work.log.part("stopped", json!({ "killed": work.killed })).await;
            Outcome::Stopped { killed: work.killed }
        }
        Err(Halt::Failed(error)) => failed(error, &mut work.log).await,
    }
}

async fn failed(error: TaskError, log: &mut SessionLog) -> Outcome {
    log.part("error", json!({ "error": error })).await;
    Outcome::Failed(error)
}

/// One attempt under way.
struct Work {
    run: Run,
    model: Model,
    tools: Toolbox,
    clock: Clock,
    log: SessionLog,
    /// What the next model call sends; the conversation grows at its end.
    request: Request,
    budget: Budget,
    usage: Usage,
    /// Number of the last model call, withdrawn ones included.
    step: u32,
    /// Ids of calls in the conversation: providers refuse a second one.
    ids: HashSet<String>,
    killed: u32,
    /// The session's plan.
    plan: PlanEditor,
    memory: MemoryEditor,
    /// What of the memory goes with every request.
    recall: Recall,
    /// Nothing is approved yet: it looks and plans.
    planning: bool,
}

impl Work {
    async fn begin(mut run: Run, model: Model, tools: Toolbox, log: SessionLog, clock: &Clock) -> Self {
        let plan = PlanEditor::open(&run.submit, run.memory.workspace(), run.sink.clone(), run.local).await;
        let memory = MemoryEditor::open(&run.submit, run.memory.clone(), run.sink.clone());
        let tools = tools.with_plan(plan.clone()).with_memory(memory.clone());
        // The machine's file goes before what the Board knew when it sent the task.
        run.submit.plan = plan.shown().await;
        let place = prompt::Place::here(confinement::found().layers.confine(), clock);
        let recall = run.memory.recall(&run.submit).await;
        let messages = prompt::messages(&run.submit, &run.home, &recall);
        let ids = messages.iter().filter_map(|message| match message {
            Message::Tool { call_id, .. } => Some(call_id.clone()),
            _ => None,
        });
        let ids = ids.collect();
        let system = prompt::system(&run.agent, &run.home, &place).await;
        let asked = prompt::Asked { system: &system, submit: &run.submit, recall: &recall, plan: plan.path() };
        let layers = prompt::context(&asked, &run.home, &tools.specs(), model.window());
        run.sink.emit(AgentStreamEvent::Context(layers)).await;
        let request = Request {
            model: model.name().to_owned(),
            system: system.text,
            messages,
            tools: tools.specs(),
            temperature: run.agent.temperature,
            max_tokens: run.agent.max_tokens,
            context_window: model.window(),
        };
        let budget = Budget::of(&run.agent, &run.submit);
        Self {
            run,
            model,
            tools,
            clock: clock.clone(),
            log,
            request,
            budget,
            usage: Usage::default(),
            step: 0,
            ids,
            killed: 0,
            plan,
            memory,
            recall,
            planning: false,
        }
    }

    async fn emit(&self, event: AgentStreamEvent) {
        self.run.sink.emit(event).await;
    }

    async fn state(&self, state: ActivityState, waiting: Option<Pause>) {
        self.emit(AgentStreamEvent::StateChange { state, waiting }).await;
    }

    async fn notice(&mut self, level: NoticeLevel, text: String) {
        self.log.part("notice", json!({ "text": text })).await;
        self.emit(AgentStreamEvent::Notice { level, text }).await;
    }

    async fn until_answered(&mut self) -> Result<TaskResult, Halt> {
        if self.run.submit.approve_first {
            self.plan_first().await?;
        }
        loop {
            self.budget.take_step().map_err(Halt::Failed)?;
            let answer = self.ask().await?;
            if answer.finish == Finish::ContentFilter {
                return Err(Halt::Failed(filtered()));
            }
            if answer.message.calls.is_empty() {
                return Ok(self.result(answer).await);
            }
            self.request.messages.push(Message::Assistant(answer.message.clone()));
            self.budget.check_tokens(&self.usage).map_err(Halt::Failed)?;
            self.perform(answer).await?;
            self.budget.check_rounds(&self.run.agent).map_err(Halt::Failed)?;
        }
    }

    async fn result(&mut self, answer: Answer) -> TaskResult {
        if answer.finish == Finish::Length {
            let text =
                "The answer was cut: it reached the model's output limit (`maxTokens` in the agent's file).".to_owned();
            self.notice(NoticeLevel::Warning, text).await;
        } else if answer.message.text.trim().is_empty() {
            self.notice(NoticeLevel::Info, "The model ended without a closing word.".to_owned()).await;
        }
        // All of it: whoever reports it cuts it to size and keeps the whole beside.
        let text = answer.message.text;
        self.take_plan(&text).await;
        for why in self.memory.take_suggestions(&text).await {
            self.notice(NoticeLevel::Warning, format!("A suggestion for the memory was not taken: {why}.")).await;
        }
        let (plan, memory) = (self.plan.result().await, self.memory.result());
        TaskResult { summary: summary(&text), text, plan, memory, usage: self.usage.clone(), ..TaskResult::default() }
    }
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
