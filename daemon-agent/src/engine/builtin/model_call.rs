//! One answer of the model, in at most three attempts. Each attempt is a `step`; a failed one is discarded, so that
//! nothing it said is mistaken for part of the answer.

use std::time::Duration;

use protocol::{ActivityState, AgentStreamEvent, AgentWait, NoticeLevel, PauseCause, StepState, Usage, text::head};
use serde_json::json;
use tokio::{sync::mpsc, time::sleep};

use super::{AgentLoop, Halt};
use crate::model::{Answer, Delta, ModelError};

/// Most attempts of one model call.
const MAX_ATTEMPTS: u32 = 3;
/// Delay before the first retry; it doubles with each further one.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Longest retry delay: a provider that asks for more is not waited for.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
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

impl AgentLoop {
    /// Sends the conversation as it stands to the model.
    pub(super) async fn ask(&mut self) -> Result<Answer, Halt> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            self.step += 1;
            self.step(StepState::Started, None).await;
            self.state(ActivityState::Thinking, None).await;
            let mut thought = String::new();
            let Some(answer) = self.stream(&mut thought).await else {
                self.step(StepState::Finished, Some("stopped".to_owned())).await;
                return Err(Halt::Stopped);
            };
            match answer {
                Ok(answer) => return Ok(self.said(answer, &thought).await),
                Err(failure) => self.after_failure(failure, attempt).await?,
            }
        }
    }

    /// One model call, reported while it streams; `None` if it was stopped.
    async fn stream(&self, thought: &mut String) -> Option<Result<Answer, ModelError>> {
        let (to, mut from) = mpsc::channel(MAX_QUEUED_DELTAS);
        let call = async move {
            let answer = self.model.call(&self.request, &to).await;
            drop(to);
            answer
        };
        let forward = async {
            while let Some(delta) = from.recv().await {
                if let Delta::Reasoning(piece) = &delta {
                    thought.push_str(piece);
                }
                self.report(delta).await;
            }
        };
        tokio::select! {
            biased;
            () = self.run.stop.cancelled() => None,
            (answer, ()) = async { tokio::join!(call, forward) } => Some(answer),
        }
    }

    async fn report(&self, delta: Delta) {
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
    async fn said(&mut self, mut answer: Answer, thought: &str) -> Answer {
        answer.message.text = plain(&answer.message.text);
        answer.usage = believable(answer.usage);
        self.name_calls(&mut answer);
        self.emit(AgentStreamEvent::Usage(answer.usage.clone())).await;
        self.usage.add(&answer.usage);
        self.step(StepState::Finished, None).await;
        if !thought.is_empty() {
            self.log.part("reasoning", json!({ "text": thought })).await;
        }
        if !answer.message.text.is_empty() {
            self.log.part("text", json!({ "text": answer.message.text })).await;
        }
        answer
    }

    /// Gives every call an id of its own, because some providers send none, repeat them in every answer, or use text
    /// that another provider would refuse. Also limits the length of tool names, which a model can choose freely.
    fn name_calls(&mut self, answer: &mut Answer) {
        let task = self.run.submit.task_id.as_str();
        let task = &task[task.len() - 8..];
        for (i, call) in answer.message.calls.iter_mut().enumerate() {
            call.name = plain(head(&call.name, MAX_TOOL_NAME_BYTES));
            let usable =
                (1..=MAX_CALL_ID_BYTES).contains(&call.id.len()) && call.id.bytes().all(|byte| byte.is_ascii_graphic());
            if !usable || self.ids.contains(&call.id) {
                call.id = format!("call_{task}_{}_{i}", self.step);
            }
            self.ids.insert(call.id.clone());
        }
    }

    async fn after_failure(&mut self, failure: ModelError, attempt: u32) -> Result<(), Halt> {
        self.step(StepState::Discarded, Some(failure.message.clone())).await;
        let wait = pause(&failure, attempt);
        if !failure.retryable || attempt >= MAX_ATTEMPTS || wait > MAX_RETRY_DELAY {
            return Err(Halt::Failed(failure.into()));
        }
        let message = failure.message.trim_end_matches('.');
        let seconds = wait.as_secs_f64();
        let text = format!("{message}. Trying again in {seconds:.1} s (attempt {} of {MAX_ATTEMPTS}).", attempt + 1);
        self.notice(NoticeLevel::Warning, text).await;
        let millis = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        let until = protocol::Instant(self.clock.now().millis().saturating_add(millis));
        // The provider is the cause of the wait, whether or not it asked for one.
        let waiting = AgentWait { cause: PauseCause::RateLimit, until: Some(until) };
        self.state(ActivityState::Waiting, Some(waiting)).await;
        tokio::select! {
            biased;
            () = self.run.stop.cancelled() => Err(Halt::Stopped),
            () = sleep(wait) => Ok(()),
        }
    }

    async fn step(&self, state: StepState, reason: Option<String>) {
        self.emit(AgentStreamEvent::Step { n: self.step, state, reason }).await;
    }
}

/// The delay that the provider asked for, or a doubling one; with jitter, so that many vibers do not retry at once.
fn pause(failure: &ModelError, attempt: u32) -> Duration {
    let jitter = rand::random_range(0.0..0.25);
    let least = failure.wait.unwrap_or(FIRST_RETRY_DELAY * 2u32.saturating_pow(attempt - 1).min(16) * 3 / 4);
    least.mul_f64(1.0 + jitter)
}

/// Limits token counts to values that can be added up and stored, whatever a provider reports.
fn believable(usage: Usage) -> Usage {
    Usage {
        input_tokens: usage.input_tokens.min(MAX_PLAUSIBLE_TOKENS),
        output_tokens: usage.output_tokens.min(MAX_PLAUSIBLE_TOKENS),
        cached_tokens: usage.cached_tokens.min(usage.input_tokens).min(MAX_PLAUSIBLE_TOKENS),
        cost_usd: usage.cost_usd.filter(|cost| cost.is_finite() && *cost >= 0.0),
        source: usage.source,
    }
}

/// Removes NUL characters, which databases and terminals cannot handle.
fn plain(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
