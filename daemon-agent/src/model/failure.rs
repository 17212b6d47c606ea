//! How a model call can fail, and the one function that classifies a failure by its status, its body or an error inside
//! a stream. The rules are ordered by the providers' known responses: overflow by code, rate limits, overflow by
//! wording, then the rest.

use std::{sync::LazyLock, time::Duration};

use protocol::{ErrorCode, TaskError};
use regex::{Regex, RegexSet};
use serde_json::{Value, json};

mod body;
pub(in crate::model) mod retry_after;

use body::ErrorBody;

/// Why a model call gave no answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelError {
    pub code: ErrorCode,
    pub message: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// How long the provider asks to wait.
    pub wait: Option<Duration>,
    pub suggestion: Option<String>,
    pub details: Option<Value>,
    /// The `max_tokens` that would have fitted beside this input: one more try with it is worthwhile.
    pub fits: Option<u32>,
}

impl From<ModelError> for TaskError {
    fn from(failure: ModelError) -> Self {
        let ModelError { code, message, retryable, suggestion, details, .. } = failure;
        TaskError { code, message, retryable, suggestion, details }
    }
}

/// The provider and the request: details for the failure's message.
#[derive(Clone, Debug, Default)]
pub(super) struct CallContext {
    pub provider: String,
    pub model: String,
    /// Never shown: it is removed from whatever a provider echoes.
    pub key: Option<String>,
    /// Our estimate of the request's size, tokens.
    pub estimate: u64,
    /// The model's window as far as we know it, tokens.
    pub window: u64,
}

impl CallContext {
    /// A failure that the same request may not meet again a little later.
    pub fn unavailable(&self, message: impl std::fmt::Display) -> ModelError {
        self.accident(format!("{}: {message}", self.provider))
    }

    fn accident(&self, message: String) -> ModelError {
        let suggestion = format!("Retry the task; if it keeps failing, check whether {} has an outage.", self.provider);
        ModelError { retryable: true, suggestion: Some(suggestion), ..plain(ErrorCode::ProviderUnavailable, message) }
    }

    /// The stream ended without content: an overflow if the request cannot have fitted, otherwise a transient failure.
    pub fn empty(&self) -> ModelError {
        if self.estimate > self.window {
            return self.overflow("the model answered with an empty stream", None);
        }
        self.unavailable("the answer was empty: the stream ended before it began")
    }

    /// The conversation does not fit the model's window.
    pub fn overflow(&self, message: &str, numbers: Option<(u64, u64)>) -> ModelError {
        let (current, max) = numbers.unwrap_or((self.estimate, self.window));
        let suggestion = "Start a new session or send a shorter message; a model with a larger window also helps.";
        ModelError {
            suggestion: Some(suggestion.to_owned()),
            details: Some(json!({ "currentTokens": current, "maxTokens": max, "suggestion": suggestion })),
            ..plain(
                ErrorCode::ContextOverflow,
                format!("The conversation does not fit the window of {}/{}: {message}", self.provider, self.model),
            )
        }
    }

    /// Our estimate of the request, and the window that it exceeds by so many tokens; `None`: these do not go together.
    fn around(&self, excess: u64) -> Option<(u64, u64)> {
        let window = self.estimate.checked_sub(excess).filter(|window| *window > 0 && excess > 0)?;
        Some((self.estimate, window))
    }

    /// The provider does not accept our key, or there is none.
    pub fn auth(&self, message: &str) -> ModelError {
        let provider = &self.provider;
        let suggestion = format!(
            "On the viber run `daemon-agent key set {provider}` with a valid key (or set `providers.{provider}.apiKey` in \
             config.yaml), then retry the task."
        );
        let message = format!("{provider}: {message}");
        ModelError { suggestion: Some(suggestion), ..plain(ErrorCode::ProviderAuth, message) }
    }

    /// The failure behind an answer that is not 2xx, or behind an error inside a stream (`status` is then `None`, or
    /// what the stream says). `hint` is the wait that headers ask for.
    pub fn classify(&self, status: Option<u16>, hint: Option<Duration>, text: &str) -> ModelError {
        let body = ErrorBody::read(text);
        let status = status.or(body.status);
        let said = self.redact(&body.message(status));
        let message = format!("{}: {said}", self.provider);
        let bytes = body.strings.join("\n");

        if body.has(&["context_length_exceeded", "exceed_context_size_error", "model_max_prompt_tokens_exceeded"]) {
            return self.overflow(&said, body.tokens());
        }
        if body.has(&["insufficient_quota", "billing_hard_limit_reached", "billing_not_active"])
            || status == Some(402)
            || QUOTA_PATTERN.is_match(&bytes)
            // Gemini uses the same words for a limit per minute, but then says when to come back.
            || (BILLING_PATTERN.is_match(&bytes) && body.wait().is_none())
        {
            let suggestion = Some(format!(
                "The account at {} has no credit or quota left: top it up or use another model.",
                self.provider
            ));
            return ModelError { suggestion, ..plain(ErrorCode::ProviderRateLimited, message) };
        }
        if body.has(&["rate_limit_exceeded"]) || RATE_LIMIT_PATTERN.is_match(&bytes) {
            return self.rate_limited(message, hint, &body);
        }
        if OVERFLOW_PATTERNS.is_match(&bytes) {
            let fits = body.fits();
            return ModelError { fits, ..self.overflow(&said, body.tokens().or_else(|| self.around(body.excess()?))) };
        }
        if body.has(&["content_filter", "content_policy_violation", "responsibleaipolicyviolation"])
            || (status == Some(403) && MODERATION_PATTERN.is_match(&bytes))
        {
            let suggestion = Some("Say it differently, or use another model.".to_owned());
            return ModelError { suggestion, ..plain(ErrorCode::ContentPolicy, message) };
        }
        if matches!(status, Some(401 | 403))
            || body.has(&["authentication_error", "invalid_api_key", "permission_error", "unauthenticated"])
        {
            return self.auth(&format!("the key was refused ({said})"));
        }
        let nearly_full = self.estimate.saturating_mul(5) > self.window.saturating_mul(4);
        if nearly_full && (status == Some(413) || (status == Some(400) && text.trim().is_empty())) {
            return self.overflow(&said, None);
        }
        if status == Some(429)
            || body.has(&["rate_limit_error", "usage_limit_reached", "resource_exhausted"])
            || body.throttled()
        {
            return self.rate_limited(message, hint, &body);
        }
        self.other(status, &body, message, hint)
    }

    fn other(&self, status: Option<u16>, body: &ErrorBody, message: String, hint: Option<Duration>) -> ModelError {
        let model_unknown = status == Some(404) || body.has(&["model_not_found", "not_found_error"]);
        let refused = model_unknown
            || match status {
                Some(408 | 409 | 425 | 500..) => false,
                Some(_) => true,
                None => body.has(&["invalid_request_error", "badrequesterror", "invalid_argument"]),
            };
        if !refused {
            let wait = hint.max(body.wait());
            return ModelError { wait, ..self.accident(message) };
        }
        let suggestion = if message.contains("not support tools") {
            format!("{} cannot call tools: choose another model for this agent.", self.model)
        } else if model_unknown {
            format!(
                "Check the agent's `model: {}/{}` and the provider's baseUrl; `daemon-agent models` lists what there is.",
                self.provider, self.model
            )
        } else {
            "The provider refused the request as it is: check the agent's model settings.".to_owned()
        };
        ModelError { suggestion: Some(suggestion), ..plain(ErrorCode::ProviderBadRequest, message) }
    }

    fn rate_limited(&self, message: String, hint: Option<Duration>, body: &ErrorBody) -> ModelError {
        let wait = hint.max(body.wait());
        if body.asks_too_much() {
            let suggestion = "This one request is larger than the account's limit per minute: send less, use another model, or raise the limit.";
            return ModelError {
                suggestion: Some(suggestion.to_owned()),
                ..plain(ErrorCode::ProviderRateLimited, message)
            };
        }
        let suggestion = match wait {
            Some(wait) => format!("The provider asks to wait {}.", retry_after::words(wait)),
            None => "The provider asks to slow down: retry in a few minutes.".to_owned(),
        };
        let details = wait.map(|wait| json!({ "retryAfterSeconds": wait.as_secs_f64().ceil() }));
        ModelError {
            retryable: true,
            wait,
            suggestion: Some(suggestion),
            details,
            ..plain(ErrorCode::ProviderRateLimited, message)
        }
    }

    /// `text` without the key or anything that looks like one.
    pub fn redact(&self, text: &str) -> String {
        let text = match self.key.as_deref() {
            Some(key) if key.len() >= 4 => text.replace(key, "[key]"),
            _ => text.to_owned(),
        };
        KEY_PATTERN.replace_all(&text, "[key]").into_owned()
    }
}

/// A failure about which nothing more is known.
pub(super) fn plain(code: ErrorCode, message: String) -> ModelError {
    ModelError { code, message, retryable: false, wait: None, suggestion: None, details: None, fits: None }
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern of ours compiles")
}

/// The providers' wordings for a conversation that is too long.
static OVERFLOW_PATTERNS: LazyLock<RegexSet> = LazyLock::new(|| {
    RegexSet::new([
        r"(?i)prompt (is )?too long",
        r"(?i)exceed(s|ed) (the )?max(imum)? context length",
        r"(?i)exceeds? the (model'?s? )?(context window|context limit|maximum context)",
        r"(?i)exceed context limit",
        r"(?i)input token count.*exceeds the maximum",
        r"(?i)maximum (context|prompt) length (is|of)",
        r"(?i)reduce the length of the (messages|input|prompt)",
        r"(?i)exceeds the available context size",
        r"(?i)greater than the context length",
        r"(?i)when context the overflows",
        r"(?i)context window exceeds limit",
        r"(?i)exceeded model token limit",
        r"(?i)token count of \d+ exceeds the limit",
        r"(?i)input is too long for requested model",
        r"(?i)input length .*exceeds .*context length",
        r"(?i)too large for model with",
    ])
    .expect("patterns of ours compile")
});
static RATE_LIMIT_PATTERN: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?i:per[ -]min)|\bTPM\b|\bRPM\b|(?i:rate limit reached)"));
static QUOTA_PATTERN: LazyLock<Regex> =
    LazyLock::new(|| regex(r"PerDay|(?i:credit balance is too low|insufficient (balance|credits?))"));
static BILLING_PATTERN: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)exceeded your current quota"));
static MODERATION_PATTERN: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)moderation|flagged"));
static KEY_PATTERN: LazyLock<Regex> =
    LazyLock::new(|| regex(r"\b(sk|gsk|xai|key)-[A-Za-z0-9_*\-]{6,}|Bearer [A-Za-z0-9._\-]{8,}"));

#[cfg(test)]
mod tests;
