//! The context windows of well-known models, for agents that do not set one.

use protocol::limits::DEFAULT_CONTEXT_WINDOW_TOKENS;

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

/// The window of `model` in tokens; a small one if it is unknown. Gateways' vendor prefixes are skipped.
pub(super) fn of(model: &str) -> u64 {
    let name = model.rsplit('/').next().unwrap_or(model);
    CONTEXT_WINDOWS
        .iter()
        .find(|(start, _)| name.starts_with(start))
        .map_or(DEFAULT_CONTEXT_WINDOW_TOKENS, |(_, window)| *window)
}
