//! How large the windows of well-known models are, for agents that do not say it.

use protocol::limits::DEFAULT_WINDOW;

/// Tokens by the beginning of the model's name, the more specific first (providers' model pages, 2026).
const KNOWN: &[(&str, u64)] = &[
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

/// The window of `model` in tokens; a small one when it is unknown. Vendors' prefixes of gateways are looked behind.
pub(super) fn of(model: &str) -> u64 {
    let name = model.rsplit('/').next().unwrap_or(model);
    KNOWN.iter().find(|(start, _)| name.starts_with(start)).map_or(DEFAULT_WINDOW, |(_, window)| *window)
}
