//! What follows a model call that failed: another try, a long wait for the provider, the agent's other model, or the end.

use std::{sync::Arc, time::Duration};

use protocol::{ActivityState, AgentWait, ErrorCode, Instant, NoticeLevel, PauseCause, StepState};
use serde::{Deserialize, Serialize};

use super::{AgentLoop, DueCall, Halt, Pricing};
use crate::{
    config::Agent,
    model::{Message, Model, ModelError},
};

/// Most attempts of one model call.
const MAX_ATTEMPTS: u32 = 3;
/// Delay before the first retry; it doubles with each further one.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Longest delay of a usual retry.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Longest that one model call waits for a provider that limits the rate, all such waits together.
const MAX_RATE_LIMIT_WAIT: Duration = Duration::from_secs(6 * 60 * 60);
/// Longest that is added to a wait, so that many vibers do not retry at once.
const MAX_JITTER: Duration = Duration::from_secs(15);

/// Tries of one model call.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(in super::super) struct Tries {
    /// Since the last long wait.
    failed: u32,
    /// In long waits.
    waited: Duration,
    /// The last command that had let the task go on when the long wait began: a later one ends that wait.
    #[serde(default)]
    seen_resume: u64,
}

impl AgentLoop {
    /// What comes before the call is tried again. Returns after the usual delay of a retry.
    pub(super) async fn after_failure(&mut self, failure: ModelError) -> Result<DueCall, Halt> {
        self.step(StepState::Discarded, Some(failure.message.clone())).await;
        let said = failure.message.trim_end_matches('.').to_owned();
        if self.leave_refused_pictures(&failure) {
            let text = format!("{said}. The pictures in the request may be why: trying again without them.");
            self.notice(NoticeLevel::Warning, text).await;
            return Ok(DueCall::Retry);
        }
        self.tries.failed += 1;
        let wait = retry_delay(&failure, self.tries.failed);
        let is_limited = failure.retryable && failure.code == ErrorCode::ProviderRateLimited;
        if is_limited && wait > MAX_RETRY_DELAY && self.tries.waited.saturating_add(wait) <= MAX_RATE_LIMIT_WAIT {
            let minutes = wait.as_secs().div_ceil(60);
            let text = format!("{said}. The provider asks to wait: going on in {minutes} min by itself.");
            self.notice(NoticeLevel::Warning, text).await;
            let seen_resume = self.run.pause.last_resume();
            self.tries = Tries { failed: 0, waited: self.tries.waited + wait, seen_resume };
            return Ok(DueCall::At(self.clock.after(wait)));
        }
        if !failure.retryable || self.tries.failed >= MAX_ATTEMPTS || wait > MAX_RETRY_DELAY {
            self.use_fallback(failure).await?;
            self.tries = Tries::default();
            return Ok(DueCall::Retry);
        }
        let (seconds, next) = (wait.as_secs_f64(), self.tries.failed + 1);
        let text = format!("{said}. Trying again in {seconds:.1} s (attempt {next} of {MAX_ATTEMPTS}).");
        self.notice(NoticeLevel::Warning, text).await;
        self.state(ActivityState::Waiting, Some(rate_limit(self.clock.after(wait)))).await;
        let waited = self.run.stop.run_until_cancelled(self.clock.pass(wait)).await;
        waited.map(|()| DueCall::Retry).ok_or(Halt::Stopped)
    }

    /// Waits until the moment that the provider asked for, unless people stop the task or want it to go on.
    pub(super) async fn wait_for_provider(&mut self, moment: Instant) -> Result<(), Halt> {
        let (pause, seen, clock) = (self.run.pause.clone(), self.tries.seen_resume, self.clock.clone());
        let left = u64::try_from(moment.millis().saturating_sub(clock.now().millis())).unwrap_or(0);
        let end = async move {
            tokio::select! {
                () = clock.pass(Duration::from_millis(left)) => {}
                () = pause.resumed_after(seen) => {}
            }
        };
        self.wait(rate_limit(moment), end).await
    }

    /// Goes on with the agent's `fallbackModel` if it has one and the other model cannot be had; or ends with `failure`.
    async fn use_fallback(&mut self, failure: ModelError) -> Result<(), Halt> {
        let is_away = matches!(failure.code, ErrorCode::ProviderUnavailable | ErrorCode::ProviderRateLimited);
        let failed = self.run.agent.model.clone();
        let named = self.run.agent.fallback_model.clone().filter(|model| is_away && *model != failed);
        let Some(named) = named else { return Err(Halt::Failed(failure.into())) };
        let agent = Arc::new(Agent { fallback_model: None, ..Agent::clone(&self.run.agent.with_model(&named)) });
        let said = failure.message.trim_end_matches('.').to_owned();
        let pricing = Pricing::of(&named, &self.run.submit.prices, &self.run.config);
        let unusable = match Model::for_agent(&agent, &self.run.config) {
            Err(error) => error.message,
            Ok(_) if self.budget.limits_cost() && pricing == Pricing::Unknown => {
                "nobody says what it costs, and the task has `limits.costUsd`.".to_owned()
            }
            Ok(model) => {
                let text =
                    format!("{failed} gave no answer ({said}). Going on with {named}, the agent's fallbackModel.");
                self.notice(NoticeLevel::Warning, text).await;
                let model = model.with_findings(&agent, &self.run.home, &self.clock).await;
                self.switch_model(agent, model, pricing);
                return Ok(());
            }
        };
        let text = format!("{failed} gave no answer, and the agent's fallbackModel {named} cannot be used: {unusable}");
        self.notice(NoticeLevel::Warning, text).await;
        Err(Halt::Failed(failure.into()))
    }

    fn switch_model(&mut self, agent: Arc<Agent>, model: Model, pricing: Pricing) {
        model.name().clone_into(&mut self.request.model);
        self.request.context_window = model.window().tokens;
        for message in &mut self.request.messages {
            if let Message::Assistant(answer) = message {
                // It is in the form of the provider that sent it.
                answer.reasoning.clear();
            }
        }
        (self.run.agent, self.model, self.pricing) = (agent, model, pricing);
        self.is_fallback = true;
    }
}

/// A wait whose cause is the provider, whether or not it asked for it.
fn rate_limit(until: Instant) -> AgentWait {
    AgentWait { until: Some(until), ..AgentWait::of(PauseCause::RateLimit) }
}

/// The delay that the provider asked for, or a doubling one; with jitter, so that many vibers do not retry at once.
fn retry_delay(failure: &ModelError, failed: u32) -> Duration {
    let least = failure.wait.unwrap_or(FIRST_RETRY_DELAY * 2u32.saturating_pow(failed - 1).min(16) * 3 / 4);
    let jitter = least.mul_f64(rand::random_range(0.0..0.25)).min(MAX_JITTER);
    least.saturating_add(jitter)
}
