//! What calls of a model tell about it: its window, and how far our estimates are off. Kept in `state/models.json`.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use protocol::{ErrorCode, Usage, UsageSource};

use super::window_query;
use crate::{
    clock::Clock,
    config::known_models::{AskedWindow, KnownModel, KnownModels, LearntWindow, is_plausible},
    home::Home,
    model::{Answer, ModelError, ModelRequest, http::HttpProvider},
};

/// How long a provider's word is taken.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// When a provider that gave no answer is asked again.
const RETRY_AFTER: Duration = Duration::from_secs(60 * 60);
/// Smaller requests are not compared, tokens: what a provider adds to each outweighs them.
const MIN_COMPARED_TOKENS: u64 = 500;
/// Counts that are further apart are not of the same text: it was cut, or the count left something out.
const MAX_COMPARED_RATIO: u64 = 4;

/// One model at one address.
pub(super) struct ModelFindings {
    home: Home,
    clock: Clock,
    /// `provider/model`.
    model: String,
    base_url: String,
    /// `KnownModel::estimate_percent`.
    percent: AtomicU64,
}

impl ModelFindings {
    /// Of `model` (`provider/model`) at its provider's address, with what is known already.
    pub async fn open(model: &str, base_url: &str, home: &Home, clock: &Clock) -> (Self, Option<KnownModel>) {
        let read_home = home.clone();
        let all = tokio::task::spawn_blocking(move || KnownModels::read(&read_home)).await.unwrap_or_default();
        let known = all.find(model, base_url).cloned();
        let percent = AtomicU64::new(known.as_ref().map_or(100, KnownModel::estimate_percent));
        let (model, base_url) = (model.to_owned(), base_url.to_owned());
        (Self { home: home.clone(), clock: clock.clone(), model, base_url, percent }, known)
    }

    /// Asks the provider for the window, unless it was asked lately. Returns what is known then.
    pub async fn ask(&self, known: Option<KnownModel>, http: &HttpProvider, name: &str) -> Option<KnownModel> {
        let asked = known.as_ref().and_then(|known| known.asked);
        let now = self.clock.now();
        let is_fresh = asked.is_some_and(|asked| {
            let keep = if asked.answered { ASK_AGAIN_AFTER } else { RETRY_AFTER };
            let age = now.millis().saturating_sub(asked.at.millis());
            u128::try_from(age).is_ok_and(|age| age < keep.as_millis())
        });
        if is_fresh {
            return known;
        }
        let answer = match window_query::ask(http, name).await {
            Ok(tokens) => AskedWindow { at: now, tokens, answered: true },
            // What it said before still holds.
            Err(error) => {
                tracing::debug!(model = self.model, "the provider does not tell the window: {}", error.message);
                AskedWindow { at: now, tokens: asked.and_then(|asked| asked.tokens), answered: false }
            }
        };
        self.change(move |known| known.asked = Some(answer)).await.or(known)
    }

    /// How many tokens the provider counts for 100 that we estimate.
    pub fn percent(&self) -> u64 {
        self.percent.load(Ordering::Relaxed)
    }

    /// Learns from the answer to `request`.
    pub async fn take(&self, request: &ModelRequest, answer: &Result<Answer, ModelError>) {
        match answer {
            Ok(answer) => self.compare(request, &answer.usage).await,
            Err(error) => self.learn(request, error).await,
        }
    }

    async fn compare(&self, request: &ModelRequest, usage: &Usage) {
        // What pictures cost is hardly known.
        if usage.source != UsageSource::Measured || request.has_pictures() {
            return;
        }
        let (estimated, counted) = (request.estimated_tokens(), usage.input_tokens);
        let are_alike = counted <= estimated.saturating_mul(MAX_COMPARED_RATIO)
            && estimated <= counted.saturating_mul(MAX_COMPARED_RATIO);
        if estimated < MIN_COMPARED_TOKENS || !are_alike {
            return;
        }
        let off = counted * 100 / estimated;
        // The file need not be written for less than what smoothing leaves of it.
        if off.abs_diff(self.percent()) > 2 {
            self.change(move |known| known.compare(estimated, counted)).await;
        }
    }

    async fn learn(&self, request: &ModelRequest, error: &ModelError) {
        if error.code != ErrorCode::ContextOverflow {
            return;
        }
        let told = error.details.as_ref().and_then(|details| details.get("maxTokens")?.as_u64());
        // An error without numbers repeats ours.
        let Some(tokens) = told.filter(|tokens| *tokens != request.context_window && is_plausible(*tokens)) else {
            return;
        };
        let learnt = LearntWindow { at: self.clock.now(), tokens };
        self.change(move |known| known.learnt = Some(learnt)).await;
    }

    async fn change(&self, change: impl FnOnce(&mut KnownModel) + Send + 'static) -> Option<KnownModel> {
        let (home, model, base_url, now) =
            (self.home.clone(), self.model.clone(), self.base_url.clone(), self.clock.now());
        let writing = move || KnownModels::change(&home, (&model, &base_url), now, change);
        match tokio::task::spawn_blocking(writing).await {
            Ok(Ok(known)) => {
                self.percent.store(known.estimate_percent(), Ordering::Relaxed);
                Some(known)
            }
            Ok(Err(error)) => {
                tracing::warn!(model = self.model, "state/models.json was not written: {error}");
                None
            }
            // The daemon ends.
            Err(_) => None,
        }
    }
}
