//! One answer of the model. Each attempt is a `step`; a failed one is discarded, so that nothing it said is mistaken for
//! part of the answer.

mod failure;
mod pictures;
mod prune;
mod skills;

use std::collections::HashSet;

use protocol::{ActivityState, AgentStreamEvent, Instant, StepState, Usage, UsageSource, text::head, tokens};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc;

use super::{
    AgentLoop, Halt, Stage,
    budget::{
        Boundary,
        cost::{self, Pricing},
    },
};
use crate::{
    model::{Answer, Delta, ModelError, ToolCall},
    prompt::RequestTokens,
};
pub(super) use failure::Tries;

/// Deltas that may wait between the stream and the log.
const MAX_QUEUED_DELTAS: usize = 64;
/// Largest delta that is reported as one event, bytes: even escaped, it fits an event.
const MAX_DELTA_BYTES: usize = 16 * 1024;
/// Longest call id that is kept as the provider sent it, bytes.
const MAX_CALL_ID_BYTES: usize = 64;
/// Longest tool name that is passed on, bytes.
const MAX_TOOL_NAME_BYTES: usize = 128;
/// Larger token counts are implausible.
const MAX_PLAUSIBLE_TOKENS: u64 = 1 << 40;

/// What a model call has streamed.
#[derive(Debug, Default)]
struct HeardDeltas {
    /// Its reasoning.
    thought: String,
    /// Tokens of text and reasoning, about.
    tokens: u64,
}

impl HeardDeltas {
    fn take(&mut self, delta: &Delta) {
        let (Delta::Text(piece) | Delta::Reasoning(piece)) = delta;
        self.tokens += tokens::estimate(piece);
        if matches!(delta, Delta::Reasoning(_)) {
            self.thought.push_str(piece);
        }
    }
}

/// How a model call ended.
enum Streamed {
    Answered(Result<Answer, ModelError>),
    /// It was dropped, because this person has something to say.
    Steered(String),
    Stopped,
}

/// What comes before a model call that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum DueCall {
    /// It is the next one.
    Next,
    /// It takes the place of one that was dropped.
    Again,
    /// It is tried again.
    Retry,
    /// It is tried again at this moment, which its provider asked for.
    At(Instant),
}

impl AgentLoop {
    /// Sends the conversation as it stands to the model.
    pub(super) async fn ask(&mut self, mut due: DueCall) -> Result<Answer, Halt> {
        loop {
            self.stage = Stage::Model(due);
            self.prepare_call(due).await?;
            self.tell_steering().await;
            self.take_up_skills();
            self.leave_old_pictures();
            let fits = self.make_room().await;
            self.step += 1;
            self.step(StepState::Started, None).await;
            self.state(ActivityState::Thinking, None).await;
            let mut heard = HeardDeltas::default();
            let streamed = match fits {
                Ok(()) => self.stream(&mut heard).await,
                Err(too_long) => Streamed::Answered(Err(too_long)),
            };
            match streamed {
                Streamed::Answered(Ok(answer)) => {
                    self.tries = Tries::default();
                    return self.said(answer, &heard.thought).await;
                }
                Streamed::Answered(Err(failure)) => {
                    // What it has streamed was paid for.
                    if heard.tokens > 0 {
                        self.count_dropped(&heard).await;
                    }
                    due = self.after_failure(failure).await?;
                }
                Streamed::Steered(author) => {
                    self.count_dropped(&heard).await;
                    self.step(StepState::Discarded, Some(format!("steered by {author}"))).await;
                    self.tries = Tries::default();
                    due = DueCall::Again;
                }
                Streamed::Stopped => {
                    self.step(StepState::Finished, Some("stopped".to_owned())).await;
                    return Err(Halt::Stopped);
                }
            }
        }
    }

    /// Returns once nothing stands in the way of the call, and counts it.
    async fn prepare_call(&mut self, due: DueCall) -> Result<(), Halt> {
        match due {
            DueCall::Next => {
                self.pass_to_work(Boundary::Step, None).await?;
                self.budget.count_step();
                let said = self.planning.as_mut().map(|planning| std::mem::take(&mut planning.said));
                let said = said.unwrap_or_default();
                self.tell(&said).await;
                if !said.is_empty() {
                    self.settle_overtaken(true).await;
                }
            }
            DueCall::Again => {
                // The message waits as long as this does: without another call the agent would never hear it.
                self.pass_to_work(Boundary::Step, None).await?;
                self.budget.count_step_again();
            }
            DueCall::Retry => self.pass_to_work(Boundary::Retry, None).await?,
            DueCall::At(moment) => {
                self.wait_for_provider(moment).await?;
                self.stage = Stage::Model(DueCall::Retry);
                self.pass_to_work(Boundary::Retry, None).await?;
            }
        }
        Ok(())
    }

    /// One model call, reported while it streams.
    async fn stream(&self, heard: &mut HeardDeltas) -> Streamed {
        let (to, mut from) = mpsc::channel(MAX_QUEUED_DELTAS);
        let call = async move {
            let answer = self.model.call(&self.request, &to).await;
            drop(to);
            answer
        };
        let forward = async {
            while let Some(delta) = from.recv().await {
                heard.take(&delta);
                // A summary is said once it was checked.
                if self.folding.is_none() {
                    self.report(delta).await;
                }
            }
        };
        tokio::select! {
            biased;
            () = self.run.stop.cancelled() => Streamed::Stopped,
            (answer, ()) = async { tokio::join!(call, forward) } => Streamed::Answered(answer),
            author = self.run.inbox.steered() => Streamed::Steered(author),
        }
    }

    /// A provider charges for a call that was dropped, too, and no longer says how much.
    async fn count_dropped(&mut self, heard: &HeardDeltas) {
        let usage = Usage {
            input_tokens: self.request.estimated_tokens() * self.model.estimate_percent() / 100,
            output_tokens: heard.tokens,
            source: UsageSource::Estimated,
            ..Usage::default()
        };
        self.count(usage).await;
    }

    /// Reports and counts what a call consumed.
    async fn count(&mut self, mut usage: Usage) {
        usage.cost_usd = self.pricing.cost(&usage);
        usage.model_calls = 1;
        self.emit(AgentStreamEvent::Usage(usage.clone())).await;
        self.budget.count_usage(&usage);
        self.usage.add(&usage);
    }

    /// Reports what filled the window in a call that has ended.
    async fn tell_context(&mut self, usage: &Usage) {
        let tokens = match usage {
            Usage { source: UsageSource::Measured, input_tokens: 1.., .. } => {
                RequestTokens::Measured(usage.input_tokens)
            }
            _ => RequestTokens::Estimated(self.model.estimate_percent()),
        };
        let Some(layers) = &mut self.layers else { return };
        let mut told = layers.report(&self.request, self.model.window(), tokens);
        told.insert("step".to_owned(), json!(self.step));
        self.emit_context(told).await;
    }

    pub(super) async fn report(&self, delta: Delta) {
        let (text, is_text) = match delta {
            Delta::Text(text) => (text, true),
            Delta::Reasoning(text) => (text, false),
        };
        let mut rest = plain(&text);
        while !rest.is_empty() {
            let later = rest.split_off(head(&rest, MAX_DELTA_BYTES).len());
            let content = std::mem::replace(&mut rest, later);
            let event = if is_text {
                AgentStreamEvent::TextDelta { content }
            } else {
                AgentStreamEvent::ReasoningDelta { content }
            };
            self.emit(event).await;
        }
    }

    /// Records a complete answer.
    async fn said(&mut self, mut answer: Answer, thought: &str) -> Result<Answer, Halt> {
        answer.message.text = plain(&answer.message.text);
        let mut usage = believable(std::mem::take(&mut answer.usage));
        usage.tool_calls = u32::try_from(answer.message.calls.len()).unwrap_or(u32::MAX);
        let is_counted = usage.cost_usd.is_some() || self.pricing != Pricing::Stated;
        self.name_calls(&mut answer);
        self.tell_context(&usage).await;
        self.count(usage).await;
        self.step(StepState::Finished, None).await;
        self.tell_what_is_nearly_used().await;
        if !thought.is_empty() {
            self.log.part("reasoning", json!({ "text": thought })).await;
        }
        if !answer.message.text.is_empty() {
            self.log.part("text", json!({ "text": answer.message.text })).await;
        }
        if self.budget.limits_cost() && !is_counted {
            return Err(Halt::Failed(cost::unknown(&self.run.agent.model)));
        }
        Ok(answer)
    }

    /// Gives every call an id of its own in the attempt, because some providers send none, give several calls the same one,
    /// number them anew in every answer, or use text that another provider would refuse. What is asked, made and kept for a
    /// call is known by its id. Also limits the length of tool names, which a model can choose freely.
    fn name_calls(&mut self, answer: &mut Answer) {
        let task = self.run.submit.task_id.as_str();
        let prefix = format!("call_{}_{}", &task[task.len() - 8..], self.step);
        for call in &mut answer.message.calls {
            call.name = plain(head(&call.name, MAX_TOOL_NAME_BYTES));
        }
        give_ids(&mut answer.message.calls, &prefix, &mut self.ids);
    }

    async fn step(&self, state: StepState, reason: Option<String>) {
        self.emit(AgentStreamEvent::Step { n: self.step, state, reason }).await;
    }
}

/// Gives a call whose id cannot be used, or is in `taken`, another one that begins with `prefix`. All are taken then.
fn give_ids(calls: &mut [ToolCall], prefix: &str, taken: &mut HashSet<String>) {
    let mut next = 0;
    for (i, call) in calls.iter_mut().enumerate() {
        let usable =
            (1..=MAX_CALL_ID_BYTES).contains(&call.id.len()) && call.id.bytes().all(|byte| byte.is_ascii_graphic());
        if !usable || taken.contains(&call.id) {
            // A model that names its calls itself may have taken some of these, too. None is tried twice.
            next = next.max(i);
            call.id = format!("{prefix}_{next}");
            while taken.contains(&call.id) {
                next += 1;
                call.id = format!("{prefix}_{next}");
            }
        }
        taken.insert(call.id.clone());
    }
}

/// Limits token counts to values that can be added up and stored, whatever a provider reports.
fn believable(usage: Usage) -> Usage {
    Usage {
        input_tokens: usage.input_tokens.min(MAX_PLAUSIBLE_TOKENS),
        output_tokens: usage.output_tokens.min(MAX_PLAUSIBLE_TOKENS),
        cached_tokens: usage.cached_tokens.min(usage.input_tokens).min(MAX_PLAUSIBLE_TOKENS),
        cost_usd: usage.cost_usd.filter(|cost| cost.is_finite() && *cost >= 0.0),
        source: usage.source,
        ..Usage::default()
    }
}

/// Removes NUL characters, which databases and terminals cannot handle.
fn plain(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(ids: impl Iterator<Item = String>, taken: &mut HashSet<String>) -> Vec<String> {
        let call = |id| ToolCall { id, name: "read".to_owned(), args: Ok(json!({})) };
        let mut calls: Vec<ToolCall> = ids.map(call).collect();
        give_ids(&mut calls, "call_t_1", taken);
        calls.into_iter().map(|call| call.id).collect()
    }

    #[test]
    fn every_call_has_an_id_of_its_own() {
        let said = ["a", "", "a", "call_t_1_4", "not one", "old"].map(str::to_owned);
        let mut taken = HashSet::from(["old".to_owned()]);
        let given = given(said.into_iter(), &mut taken);
        assert_eq!(given, ["a", "call_t_1_1", "call_t_1_2", "call_t_1_4", "call_t_1_5", "call_t_1_6"]);
        assert_eq!(taken.len(), 7);
    }

    #[test]
    fn a_model_that_takes_our_ids_holds_nothing_up() {
        let half = 20_000;
        let said = (0..2 * half).map(|n| if n < half { format!("call_t_1_{}", n + half) } else { String::new() });
        let began = std::time::Instant::now();
        let given = given(said, &mut HashSet::new());
        assert_eq!(given.iter().collect::<HashSet<_>>().len(), 2 * half);
        assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    }
}
