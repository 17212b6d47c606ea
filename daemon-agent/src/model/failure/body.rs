//! An error body of whatever shape: nested, flat, wrapped in a list, or plain text.

use std::{sync::LazyLock, time::Duration};

use protocol::text;
use regex::Regex;
use serde_json::Value;

use super::{regex, retry_after};

/// Longest part of a provider's message that is passed on, bytes.
const MAX_MESSAGE_BYTES: usize = 600;

/// What can be learnt from an error body.
pub(super) struct ErrorBody {
    value: Value,
    raw: String,
    /// Every string in it, at any depth; the text itself if it is not JSON.
    pub strings: Vec<String>,
    /// Values of `code`, `type` and the like, in lower case.
    codes: Vec<String>,
    /// An HTTP status given inside the body.
    pub status: Option<u16>,
}

impl ErrorBody {
    /// Reads `text`; never fails.
    pub fn read(text: &str) -> Self {
        let value = serde_json::from_str(text).unwrap_or(Value::Null);
        let mut body =
            Self { value: Value::Null, raw: text.trim().to_owned(), strings: vec![], codes: vec![], status: None };
        body.walk(&value, 0);
        if body.strings.is_empty() {
            body.strings.push(body.raw.clone());
        }
        body.value = value;
        body
    }

    fn walk(&mut self, value: &Value, depth: usize) {
        match value {
            Value::String(text) => {
                self.strings.push(text.clone());
                // Gateways wrap the provider's own body as text.
                if depth < 4
                    && text.trim_start().starts_with('{')
                    && let Ok(inner) = serde_json::from_str::<Value>(text)
                {
                    self.walk(&inner, depth + 1);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.walk(item, depth)),
            Value::Object(fields) => {
                for (name, field) in fields {
                    if matches!(name.as_str(), "code" | "type" | "error_type" | "status" | "status_code" | "reason") {
                        match field {
                            Value::String(code) => self.codes.push(code.to_lowercase()),
                            Value::Number(_) => self.status = self.status.or(field.as_u64().and_then(http_status)),
                            _ => {}
                        }
                    }
                    self.walk(field, depth);
                }
            }
            _ => {}
        }
    }

    /// Whether one of `codes` (lower case) is its code or type.
    pub fn has(&self, codes: &[&str]) -> bool {
        self.codes.iter().any(|code| codes.contains(&code.as_str()))
    }

    /// Alibaba's family of codes: `Throttling.AllocationQuota` and others.
    pub fn throttled(&self) -> bool {
        self.codes.iter().any(|code| code.starts_with("throttling"))
    }

    /// The sentence that is meant for people.
    pub fn message(&self, status: Option<u16>) -> String {
        let value = match &self.value {
            Value::Array(items) => items.first().unwrap_or(&Value::Null),
            other => other,
        };
        let places = ["/error/message", "/response/error/message", "/message", "/error_message", "/error", "/detail"];
        let said = places
            .iter()
            .find_map(|place| value.pointer(place).and_then(Value::as_str).filter(|said| !said.is_empty()));
        let said = text::head(said.unwrap_or(&self.raw), MAX_MESSAGE_BYTES).to_owned();
        match (said.is_empty() || said.trim_start().starts_with('<'), status) {
            (false, Some(status)) => format!("{said} (HTTP {status})"),
            (false, None) => said,
            (true, Some(status)) => format!("HTTP {status} without a message"),
            (true, None) => "an error without a message".to_owned(),
        }
    }

    /// How long to wait, if the body says so.
    pub fn wait(&self) -> Option<Duration> {
        let delay = find(&self.value, &["retryDelay", "resets_in_seconds", "retry_after", "retry_after_seconds"]);
        let field = delay.and_then(|delay| match delay {
            Value::String(text) => retry_after::duration(text),
            number => number.as_f64().and_then(retry_after::seconds),
        });
        field.max(self.strings.iter().filter_map(|text| retry_after::in_text(text)).max())
    }

    /// Tokens of the request and of the window: (current, maximum).
    pub fn tokens(&self) -> Option<(u64, u64)> {
        let number = |name| find(&self.value, &[name]).and_then(Value::as_u64);
        if let (Some(current), Some(max)) = (number("n_prompt_tokens"), number("n_ctx")) {
            return Some((current, max));
        }
        let text = self.strings.join("\n").replace(',', "");
        if let Some(found) = SUM_PATTERN.captures(&text) {
            let n = |i: usize| found[i].parse::<u64>().unwrap_or(0);
            return Some((n(1).saturating_add(n(2)), n(3)));
        }
        TOKEN_COUNT_PATTERNS.iter().find_map(|(pattern, current, max)| {
            let found = pattern.captures(&text)?;
            Some((found[*current].parse().ok()?, found[*max].parse().ok()?))
        })
    }

    /// By how many tokens the request exceeds the window, where nothing else is said (Ollama).
    pub fn excess(&self) -> Option<u64> {
        EXCESS_PATTERN.captures(&self.strings.join("\n").replace(',', ""))?[1].parse().ok()
    }

    /// Whether the request alone exceeds a limit per minute: then waiting does not help.
    pub fn asks_too_much(&self) -> bool {
        let text = self.strings.join("\n").replace(',', "");
        let numbers =
            |found: &regex::Captures<'_>| Some((found[1].parse::<u64>().ok()?, found[2].parse::<u64>().ok()?));
        LIMIT_PATTERN.captures(&text).as_ref().and_then(numbers).is_some_and(|(limit, requested)| requested > limit)
    }

    /// For "input + max_tokens > limit": the room left for the answer, with a small margin.
    pub fn fits(&self) -> Option<u32> {
        let text = self.strings.join("\n").replace(',', "");
        let found = SUM_PATTERN.captures(&text)?;
        let (input, limit): (u64, u64) = (found[1].parse().ok()?, found[3].parse().ok()?);
        let left = limit.saturating_sub(input).saturating_sub(64);
        u32::try_from(left).ok().filter(|left| *left >= 256)
    }
}

fn http_status(number: u64) -> Option<u16> {
    u16::try_from(number).ok().filter(|status| (400..600).contains(status))
}

fn find<'a>(value: &'a Value, names: &[&str]) -> Option<&'a Value> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .find(|(name, field)| names.contains(&name.as_str()) && !field.is_object() && !field.is_null())
            .map(|(_, field)| field)
            .or_else(|| fields.values().find_map(|field| find(field, names))),
        Value::Array(items) => items.iter().find_map(|item| find(item, names)),
        _ => None,
    }
}

/// Anthropic: input + max_tokens > limit.
static SUM_PATTERN: LazyLock<Regex> = LazyLock::new(|| regex(r"(\d+) \+ (\d+) > (\d+)"));
/// Ollama: "exceeded max context length by 3072 tokens".
static EXCESS_PATTERN: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)exceed(?:s|ed)? .*?by (\d+) tokens"));
/// OpenAI, Groq: "Limit 12000, Used 3, Requested 14137".
static LIMIT_PATTERN: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)limit:? (\d+)(?: used:? \d+)? requested:? (\d+)"));
/// Wordings with both numbers, and the groups of the current and of the maximum count.
static TOKEN_COUNT_PATTERNS: LazyLock<Vec<(Regex, usize, usize)>> = LazyLock::new(|| {
    vec![
        (regex(r"(?i)too long: (\d+) tokens > (\d+)"), 1, 2),
        (
            regex(
                r"(?is)maximum context length (?:is|of) (\d+).*?(?:resulted in|requested(?: about)?|has|contains) (\d+)",
            ),
            2,
            1,
        ),
        (regex(r"(?is)maximum prompt length is (\d+).*?contains (\d+)"), 2, 1),
        (regex(r"(?i)token count \((\d+)\) exceeds .*?\((\d+)\)"), 1, 2),
        (regex(r"(?i)token limit: (\d+) \(requested: (\d+)\)"), 2, 1),
        (regex(r"(?i)token count of (\d+) exceeds the limit of (\d+)"), 1, 2),
        (regex(r"(?i)context length.*?\((\d+) ?>=? ?(\d+)\)"), 1, 2),
    ]
});
