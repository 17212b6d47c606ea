//! An attempt at rest: while it only waits, what it needs to go on lies on disk, and after a restart of the daemon it does.
//!
//! Owns what of the loop belongs into the record. The record is removed before anything is done that must not be done twice.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    future::Future,
};

use protocol::{ActivityState, AgentWait, ApprovalId, ApprovalRequest, ChildReport, PauseCause, Usage};
use serde::{Deserialize, Serialize};

use super::OpenQuestion;
use crate::{
    engine::{
        builtin::{
            AgentLoop, Halt, Stage,
            budget::Budget,
            compact::Folding,
            decisions::{AllowedForTask, AskedCalls},
            model_call::Tries,
            planning::Planning,
            repeats::FailedCalls,
            tool_calls::PendingCalls,
        },
        waiting::{Resumed, WaitingRecord},
    },
    model::{FinishReason, Message, ToolCall},
    prompt::RequestLayers,
    report::{Approvals, memory::MemoryProgress},
};

/// What the loop needs to go on.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoopRecord {
    system: String,
    messages: Vec<Message>,
    #[serde(default)]
    loaded_skills: Vec<String>,
    #[serde(default)]
    skills_prompt: String,
    #[serde(default)]
    layers: Option<RequestLayers>,
    #[serde(default)]
    folding: Option<Folding>,
    budget: Budget,
    usage: Usage,
    step: u32,
    ids: HashSet<String>,
    #[serde(default)]
    lost_results: HashSet<String>,
    killed: u32,
    failed_calls: FailedCalls,
    turn: u32,
    tries: Tries,
    planning: Option<Planning>,
    said_while_planning: Vec<Message>,
    #[serde(default)]
    overtaken: Vec<ApprovalId>,
    proposed_plan: Option<String>,
    memory: MemoryProgress,
    allowed: Vec<AllowedForTask>,
    stage: Stage,
    calls: CallsRecord,
    /// Of a supervisor.
    #[serde(default)]
    finished: Option<String>,
    asked: Option<QuestionRecord>,
    /// Tasks that it asked for, as it knew them.
    #[serde(default)]
    children: Vec<ChildReport>,
}

/// Calls that are still to be made.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallsRecord {
    left: VecDeque<ToolCall>,
    too_many: Vec<ToolCall>,
    finish: FinishReason,
    are_asked: bool,
    /// By their calls.
    open: Vec<(String, QuestionRecord)>,
    announced: HashSet<String>,
    #[serde(default)]
    allowed: HashMap<String, ApprovalId>,
}

/// An open question, as it was put.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct QuestionRecord {
    request: ApprovalRequest,
    minutes: u32,
    is_reported: bool,
}

impl QuestionRecord {
    fn of(question: &OpenQuestion) -> Self {
        let OpenQuestion { request, minutes, is_reported, .. } = question;
        Self { request: request.clone(), minutes: *minutes, is_reported: *is_reported }
    }

    /// Opens it again: the same question.
    fn open(self, approvals: &Approvals, reported: &HashSet<ApprovalId>) -> OpenQuestion {
        let Self { request, minutes, is_reported } = self;
        let open = approvals.ask_request(&request);
        let is_reported = is_reported || reported.contains(&request.approval_id);
        OpenQuestion { request, minutes, is_reported, open }
    }
}

impl CallsRecord {
    fn of(calls: &PendingCalls) -> Self {
        let PendingCalls { left, too_many, finish, are_asked, asked: AskedCalls { open, announced, allowed } } = calls;
        Self {
            left: left.clone(),
            too_many: too_many.clone(),
            finish: *finish,
            are_asked: *are_asked,
            open: open.iter().map(|(id, question)| (id.clone(), QuestionRecord::of(question))).collect(),
            announced: announced.clone(),
            allowed: allowed.clone(),
        }
    }

    fn open(self, approvals: &Approvals, resumed: &Reported<'_>) -> PendingCalls {
        let Self { left, too_many, finish, are_asked, open, mut announced, allowed } = self;
        announced.extend(resumed.calls.iter().filter(|id| left.iter().any(|call| call.id == **id)).cloned());
        let open = open.into_iter().map(|(id, question)| (id, question.open(approvals, resumed.questions)));
        let asked = AskedCalls { open: open.collect(), announced, allowed };
        PendingCalls { left, too_many, finish, are_asked, asked }
    }
}

/// What the log has behind the record.
struct Reported<'a> {
    questions: &'a HashSet<ApprovalId>,
    calls: &'a HashSet<String>,
}

impl LoopRecord {
    /// The questions that are open.
    pub fn questions(&self) -> impl Iterator<Item = &ApprovalRequest> {
        let of_calls = self.calls.open.iter().map(|(_, question)| question);
        of_calls.chain(&self.asked).map(|question| &question.request)
    }
}

impl AgentLoop {
    /// Waits at rest for what ends the wait, or a stop. Returns once the attempt may go on.
    pub(in crate::engine::builtin) async fn wait<T>(
        &mut self,
        wait: AgentWait,
        end: impl Future<Output = T>,
    ) -> Result<T, Halt> {
        if self.run.stop.is_cancelled() {
            return Err(Halt::Stopped);
        }
        self.known_wait.take_if(|known| *known != wait);
        let cause = wait.cause;
        self.rest(cause == PauseCause::RateLimit).await;
        match self.known_wait.take() {
            Some(wait) => self.count_time(Some(wait.cause)),
            None => self.state(ActivityState::Waiting, Some(wait)).await,
        }
        match cause {
            // What it waits for may need that place.
            PauseCause::Child => self.run.rest.free_place(),
            _ => self.run.rest.leave_place(),
        }
        let ended = self.run.stop.run_until_cancelled(end).await.ok_or(Halt::Stopped)?;
        self.go_on().await?;
        Ok(ended)
    }

    /// Puts on disk what the attempt needs to go on from here; `counts` says that the wait counts as work.
    pub(in crate::engine::builtin) async fn rest(&self, counts: bool) {
        let Some(next_seq) = self.run.rest.next_seq() else { return };
        let record = self.record_at(next_seq, counts).await.bytes().map_err(|error| error.to_string());
        // What cannot be read back is no record: arguments may nest as deep as JSON may, and a sum may be no number.
        match record.and_then(|bytes| WaitingRecord::read(&bytes).map(|_| bytes)) {
            Ok(bytes) => self.run.rest.keep(bytes).await,
            Err(why) => {
                tracing::error!(task.id = %self.run.submit.task_id, "a task that waits cannot be kept: {why}");
                self.run.rest.discard().await;
            }
        }
    }

    /// Comes before whatever must not be done again: the attempt is not at rest any more.
    pub(in crate::engine::builtin) async fn go_on(&mut self) -> Result<(), Halt> {
        self.run.stop.run_until_cancelled(self.run.rest.take_place()).await.ok_or(Halt::Stopped)?;
        self.run.rest.discard().await;
        if self.known_wait.take().is_some() {
            // A wait that ended while no process ran: people still see it.
            let state = match self.stage {
                Stage::Model(_) => ActivityState::Thinking,
                _ => ActivityState::Tool,
            };
            self.state(state, None).await;
        }
        Ok(())
    }

    async fn record_at(&self, next_seq: u64, wait_counts: bool) -> WaitingRecord {
        let run = &self.run;
        let spaces = run.agent.spaces.clone();
        let there = tokio::task::spawn_blocking(move || spaces.into_iter().filter(|space| space.is_dir()).collect());
        WaitingRecord {
            at: self.clock.now(),
            next_seq,
            submit: run.submit.clone(),
            local: run.local,
            space: run.space.clone(),
            model: run.agent.model.clone(),
            is_fallback: self.is_fallback,
            spaces: there.await.unwrap_or_default(),
            pause: run.pause.asked(),
            messages: run.inbox.queue(),
            worked: run.active_time.elapsed(),
            wait_counts,
            reported_wait: self.known_wait.clone(),
            activity: run.activity.activity(),
            artifacts: run.collector.progress(),
            task: LoopRecord {
                system: self.request.system.clone(),
                messages: self.request.messages.clone(),
                loaded_skills: self.loaded_skills.clone(),
                skills_prompt: self.skills_prompt.clone(),
                layers: self.layers.clone(),
                folding: self.folding.clone(),
                budget: self.budget.clone(),
                usage: self.usage.clone(),
                step: self.step,
                ids: self.ids.clone(),
                lost_results: self.lost_results.clone(),
                killed: self.killed,
                failed_calls: self.failed_calls.clone(),
                turn: self.turn,
                tries: self.tries,
                planning: self.planning.clone(),
                said_while_planning: self.said_while_planning.clone(),
                overtaken: self.overtaken.clone(),
                proposed_plan: self.plan.proposed(),
                memory: self.memory.progress(),
                allowed: self.allowed.clone(),
                stage: self.stage.clone(),
                calls: CallsRecord::of(&self.calls),
                finished: self.finished.clone(),
                asked: self.asked.as_ref().map(QuestionRecord::of),
                children: self.run.children.known(),
            },
        }
    }

    /// Goes on from where a former process left it.
    pub(in crate::engine::builtin) fn go_on_from(&mut self, resumed: Resumed) {
        let Resumed { record: WaitingRecord { task, is_fallback, artifacts, reported_wait, .. }, reported } = resumed;
        self.run.collector.go_on_from(artifacts);
        self.is_fallback = is_fallback;
        (self.request.system, self.request.messages, self.layers) = (task.system, task.messages, task.layers);
        (self.loaded_skills, self.skills_prompt) = (task.loaded_skills, task.skills_prompt);
        self.folding = task.folding;
        self.budget = task.budget.resumed(self.run.active_time.clone());
        (self.usage, self.step, self.ids, self.killed) = (task.usage, task.step, task.ids, task.killed);
        self.lost_results = task.lost_results;
        (self.failed_calls, self.turn, self.tries) = (task.failed_calls, task.turn, task.tries);
        (self.said_while_planning, self.overtaken) = (task.said_while_planning, task.overtaken);
        self.plan.go_on_from(task.proposed_plan);
        self.memory.go_on_from(task.memory);
        if let Some(planning) = task.planning {
            self.plan_first(planning);
        }
        for allowed in &task.allowed {
            // Of a rule that is not accepted any more nothing is allowed.
            let _ = allowed.apply(&mut self.gate);
        }
        self.allowed = task.allowed;
        self.stage = task.stage;
        let since = Reported { questions: &reported.questions, calls: &reported.calls };
        self.calls = task.calls.open(&self.run.approvals, &since);
        self.finished = task.finished;
        self.run.children.go_on_from(task.children);
        self.asked = task.asked.map(|asked| asked.open(&self.run.approvals, since.questions));
        self.known_wait = reported.state.map_or(reported_wait, |reported| reported.wait);
    }
}
