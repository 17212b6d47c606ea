//! The context windows of models: what the agent's file says, else what is known of well-known models.

use protocol::{
    context::{ContextWindow, WindowSource},
    limits::DEFAULT_CONTEXT_WINDOW_TOKENS,
};

/// Tokens by the beginning of the model's name, more specific names first (providers' model pages, 2026).
const CONTEXT_WINDOWS: &[(&str, u64)] = &[
    ("claude-", 200_000),
    ("gpt-5", 400_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-4o", 128_000),
    ("o1", 200_000),
    ("o3", 200_000),
    ("o4", 200_000),
    ("gemini-", 1_048_576),
    ("deepseek-", 131_072),
];

/// The window of `model`, `own` when the agent's file says it; a small one is assumed if nothing is known. Gateways' vendor
/// prefixes are skipped.
pub fn of(model: &str, own: Option<u64>) -> ContextWindow {
    let name = model.rsplit('/').next().unwrap_or(model);
    let known = || CONTEXT_WINDOWS.iter().find(|(start, _)| name.starts_with(start)).map(|(_, window)| *window);
    let (tokens, source) = match (own, known()) {
        (Some(own), _) => (own, WindowSource::Configured),
        (None, Some(known)) => (known, WindowSource::Table),
        (None, None) => (DEFAULT_CONTEXT_WINDOW_TOKENS, WindowSource::Assumed),
    };
    ContextWindow { tokens, source, at: None }
}
