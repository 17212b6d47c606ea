//! What people say while the task runs: when the agent is told, and with which further turn the task goes on.
//!
//! A stop wins: once the task is to end, nothing is told any more.

use std::{future::Future, pin::pin, time::Duration};

use protocol::{AgentStreamEvent, ErrorCode, NoticeLevel, TaskMessage};
use serde_json::json;
use tokio::time::sleep;

use super::{AgentLoop, Halt, budget::Boundary};
use crate::{
    model::{AssistantMessage, Message},
    prompt,
    report::NextMessages,
};

/// How long tools may go on after somebody steered.
const STEER_GRACE: Duration = Duration::from_secs(2);

impl AgentLoop {
    /// Tells the agent what people steer with, if they do.
    pub(super) async fn tell_steering(&mut self) {
        let messages = self.take_steering();
        self.tell(&messages).await;
        self.settle_overtaken(!messages.is_empty()).await;
    }

    /// What people steer with. It counts as told once [`AgentLoop::tell`] told it.
    pub(super) fn take_steering(&self) -> Vec<TaskMessage> {
        if self.run.stop.is_cancelled() { Vec::new() } else { self.run.inbox.take_steering() }
    }

    /// Adds messages to the conversation, as one message of a user and its pictures. That is reported before the model is called.
    pub(super) async fn tell(&mut self, messages: &[TaskMessage]) {
        if messages.is_empty() || self.run.stop.is_cancelled() {
            return;
        }
        self.consume(messages).await;
        self.load_called_by(messages).await;
        let told = prompt::conversation(messages, &self.run.home);
        if !self.model.sees() && told.iter().any(|one| matches!(one, Message::Pictures(_))) {
            let text = format!("{} is shown no pictures: the agent knows where they lie.", self.model.name());
            self.notice(NoticeLevel::Info, text).await;
        }
        if self.planning.is_some() {
            self.said_while_planning.extend(told.iter().cloned());
        }
        self.request.messages.extend(told);
    }

    /// Reports and records that the agent is told these messages.
    async fn consume(&mut self, messages: &[TaskMessage]) {
        self.run.inbox.consumed(messages, self.turn);
        for TaskMessage { author, content, injection_mode, .. } in messages {
            self.log.part("message", json!({ "author": author, "text": content, "mode": injection_mode })).await;
        }
    }

    /// Who waits to be heard now, if somebody does.
    pub(super) fn steering_author(&self) -> Option<String> {
        self.run.inbox.steering_author().filter(|_| !self.run.stop.is_cancelled())
    }

    /// Adds an answer without calls to the conversation, because it goes on.
    pub(super) fn remember_answer(&mut self, answer: &AssistantMessage) {
        // Providers refuse an answer that says nothing.
        if !answer.text.trim().is_empty() {
            self.request.messages.push(Message::Assistant(answer.clone()));
        }
    }

    /// Whether the task goes on after this last answer of a turn, because people said something; if not, the inbox is
    /// closed. What the task's limits leave no room for is left to the Board, unless a person allows more: the task itself
    /// is done.
    pub(super) async fn goes_on_after(&mut self, answer: &AssistantMessage) -> Result<bool, Halt> {
        if self.run.stop.is_cancelled() {
            return Err(Halt::Stopped);
        }
        if let Some(reached) = self.budget.used_up(Boundary::Step) {
            if self.budget.stops_at(reached.limit) || !self.run.inbox.has_messages() {
                self.run.inbox.close();
                return Ok(false);
            }
            match self.pass(Boundary::Step, None).await {
                Err(Halt::Failed(error)) if error.code == ErrorCode::BudgetExceeded => {
                    self.run.inbox.close();
                    return Ok(false);
                }
                passed => passed?,
            }
        }
        let messages = match self.run.inbox.next() {
            NextMessages::Closed => return Ok(false),
            NextMessages::Steering(messages) => messages,
            NextMessages::Turn(messages) => {
                self.turn += 1;
                let message_ids = messages.iter().map(|message| message.message_id.clone()).collect();
                let mode = messages.first().map(|message| message.injection_mode);
                self.emit(AgentStreamEvent::Turn { n: self.turn, message_ids, mode }).await;
                messages
            }
        };
        self.budget.begin_rounds();
        self.remember_answer(answer);
        self.tell(&messages).await;
        Ok(true)
    }

    /// Waits for tool calls. When somebody steers, they get [`STEER_GRACE`], and are then ended.
    pub(super) async fn finished_or_steered<T>(&self, calls: impl Future<Output = T>) -> T {
        let mut calls = pin!(calls);
        loop {
            let author = tokio::select! {
                biased;
                done = &mut calls => return done,
                author = self.run.inbox.steered() => author,
            };
            tokio::select! {
                biased;
                done = &mut calls => return done,
                // It was withdrawn: the calls may go on.
                () = self.run.inbox.no_longer_steered() => continue,
                () = sleep(STEER_GRACE) => {}
            }
            self.tools.end_calls(format!("ended {} s after {author} stepped in", STEER_GRACE.as_secs()));
            return calls.await;
        }
    }
}
