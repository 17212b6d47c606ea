//! What follows a model call that failed: another try, a long wait for the provider, the agent's other model, or the end.

use std::{sync::Arc, time::Duration};

use protocol::{ActivityState, AgentWait, ErrorCode, NoticeLevel, PauseCause, StepState};

use super::{AgentLoop, Halt, Pricing};
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
#[derive(Debug, Default)]
pub(super) struct Tries {
    /// Since the last long wait.
    failed: u32,
    /// In long waits.
    waited: Duration,
}

impl AgentLoop {
    /// Returns once the call may be tried again.
    pub(super) async fn after_failure(&mut self, failure: ModelError, tries: &mut Tries) -> Result<(), Halt> {
        self.step(StepState::Discarded, Some(failure.message.clone())).await;
        tries.failed += 1;
        let wait = retry_delay(&failure, tries.failed);
        let said = failure.message.trim_end_matches('.').to_owned();
        let is_limited = failure.retryable && failure.code == ErrorCode::ProviderRateLimited;
        if is_limited && wait > MAX_RETRY_DELAY && tries.waited.saturating_add(wait) <= MAX_RATE_LIMIT_WAIT {
            let minutes = wait.as_secs().div_ceil(60);
            let text = format!("{said}. The provider asks to wait: going on in {minutes} min by itself.");
            self.wait_for_provider(wait, text).await?;
            *tries = Tries { failed: 0, waited: tries.waited + wait };
            return Ok(());
        }
        if !failure.retryable || tries.failed >= MAX_ATTEMPTS || wait > MAX_RETRY_DELAY {
            self.use_fallback(failure).await?;
            *tries = Tries::default();
            return Ok(());
        }
        let (seconds, next) = (wait.as_secs_f64(), tries.failed + 1);
        let text = format!("{said}. Trying again in {seconds:.1} s (attempt {next} of {MAX_ATTEMPTS}).");
        self.wait_for_provider(wait, text).await
    }

    /// Waits; only a stop shortens it.
    async fn wait_for_provider(&mut self, wait: Duration, text: String) -> Result<(), Halt> {
        self.notice(NoticeLevel::Warning, text).await;
        // The provider is the cause of the wait, whether or not it asked for one.
        let waiting = AgentWait { until: Some(self.clock.after(wait)), ..AgentWait::of(PauseCause::RateLimit) };
        self.state(ActivityState::Waiting, Some(waiting)).await;
        let waited = self.run.stop.run_until_cancelled(self.clock.pass(wait)).await;
        waited.ok_or(Halt::Stopped)
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
        self.request.context_window = model.window();
        for message in &mut self.request.messages {
            if let Message::Assistant(answer) = message {
                // It is in the form of the provider that sent it.
                answer.reasoning.clear();
            }
        }
        (self.run.agent, self.model, self.pricing) = (agent, model, pricing);
    }
}

/// The delay that the provider asked for, or a doubling one; with jitter, so that many vibers do not retry at once.
fn retry_delay(failure: &ModelError, failed: u32) -> Duration {
    let least = failure.wait.unwrap_or(FIRST_RETRY_DELAY * 2u32.saturating_pow(failed - 1).min(16) * 3 / 4);
    let jitter = least.mul_f64(rand::random_range(0.0..0.25)).min(MAX_JITTER);
    least.saturating_add(jitter)
}
