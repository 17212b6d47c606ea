//! What a call of `shell` would run, for a person to decide about. Nothing is started.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{ARTIFACTS_VARIABLE, ATTEMPT_VARIABLE, TASK_VARIABLE, check, environment};
use crate::tools::{ToolFailure, Toolbox};

/// A command that was not run.
#[derive(Debug)]
pub struct ProposedCommand {
    /// For `sh -c`.
    pub line: String,
    pub cwd: PathBuf,
    /// Names of the variables in its environment, sorted.
    pub variables: Vec<String>,
}

/// What the call would run.
pub fn propose(toolbox: &Toolbox, args: &Value) -> Result<ProposedCommand, ToolFailure> {
    let call = check(toolbox, args)?;
    let line = match args["command"].as_str() {
        Some(line) => line.to_owned(),
        None => call.argv.iter().map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" "),
    };
    Ok(ProposedCommand { line, cwd: call.cwd, variables: variable_names(toolbox) })
}

/// Names of the variables that every command of the agent gets, sorted.
pub(super) fn variable_names(toolbox: &Toolbox) -> Vec<String> {
    let environment = environment::environment(std::env::vars_os(), &toolbox.context.agent.env, Path::new(""));
    let mut names: Vec<String> = environment.into_iter().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
    names.extend([TASK_VARIABLE, ATTEMPT_VARIABLE, ARTIFACTS_VARIABLE].map(str::to_owned));
    names.sort();
    names
}

/// A word as a shell reads it back.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+,=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) && !word.contains('=') {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_read_more_into_them() {
        let line = ["rm", "-rf", "a b", "it's", "", "$HOME", "A=b"].map(quoted).join(" ");
        assert_eq!(line, "rm -rf 'a b' 'it'\\''s' '' '$HOME' 'A=b'");
    }
}
