//! `results`: how many tokens the result of a call may take, by tool.

use std::collections::BTreeMap;

use protocol::{
    ConfigError,
    prune::{DEFAULT_RESULT_TOKENS, MIN_RESULT_TOKENS, ResultCaps},
};
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::{YamlFile, toolset};

/// Largest bound where the agent's file says no window, tokens.
const MAX_RESULT_TOKENS: u64 = 100_000_000;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ResultsSection {
    tokens: Option<Spanned<u64>>,
    per_tool: BTreeMap<String, Spanned<u64>>,
}

impl ResultsSection {
    /// The bounds; an error if one says nothing, is larger than the window that the file says, or is for no tool.
    pub fn read(&self, source: &YamlFile, window: Option<u64>) -> Result<ResultCaps, ConfigError> {
        let most = window.unwrap_or(MAX_RESULT_TOKENS);
        let cap = |key: &str, value: &Spanned<u64>| {
            let why = match value.value {
                cap if cap < MIN_RESULT_TOKENS => format!("expected at least {MIN_RESULT_TOKENS}"),
                cap if cap > most && window.is_some() => format!("more than the contextWindow of {most}"),
                cap if cap > most => format!("expected at most {most}"),
                cap => return Ok(cap),
            };
            Err(source.wrong(value, format!("{key} is {}, {why}", value.value)))
        };
        let tokens = self.tokens.as_ref().map(|tokens| cap("results.tokens", tokens)).transpose()?;
        let mut by_tool = BTreeMap::new();
        for (tool, value) in &self.per_tool {
            if !toolset::ALL_TOOLS.contains(&tool.as_str()) {
                let known = toolset::ALL_TOOLS.join(", ");
                return Err(source.wrong(value, format!("no tool is called {tool:?}; tools: {known}")));
            }
            by_tool.insert(tool.clone(), cap(&format!("results.perTool.{tool}"), value)?);
        }
        Ok(ResultCaps { tokens: tokens.unwrap_or(DEFAULT_RESULT_TOKENS), by_tool })
    }
}
