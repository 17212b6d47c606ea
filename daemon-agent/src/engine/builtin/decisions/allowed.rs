//! Decisions of people that hold for more than one call.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::builtin::gate::Gate;

/// What a person allowed until the task ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::engine::builtin) enum AllowedForTask {
    Call {
        tool: String,
        args: Value,
        /// The digest of the skill that it is.
        #[serde(default)]
        skill: Option<String>,
    },
    Rule {
        rule: String,
        by: String,
    },
}

impl AllowedForTask {
    /// Lets it pass from now on; `Err` says why it does not.
    pub fn apply(&self, gate: &mut Gate) -> Result<(), String> {
        match self {
            Self::Call { tool, args, skill } => {
                gate.allow_call(tool, args, skill.as_deref());
                Ok(())
            }
            Self::Rule { rule, by } => gate.allow_rule(rule, by),
        }
    }
}
