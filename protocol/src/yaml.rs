//! YAML that people wrote, read within bounds, and its errors in words.

use serde::de::DeserializeOwned;
use serde_saphyr::budget::BudgetBreach;

use crate::ConfigError;

/// Parses a text as `T`, within bounds on nesting, nodes and aliases.
pub fn parse_bounded<T: DeserializeOwned>(text: &str) -> Result<T, serde_saphyr::Error> {
    let budget = serde_saphyr::budget! {
        max_events: 20_000,
        max_aliases: 64,
        max_anchors: 64,
        max_depth: 16,
        max_documents: 1,
        max_nodes: 10_000,
        max_recorded_anchor_events: 10_000,
        max_recorded_anchor_bytes: 1024 * 1024,
    };
    let options = serde_saphyr::options! {
        budget: budget,
        strict_booleans: true,
        reject_unsupported_tags: true,
    };
    serde_saphyr::from_str_with_options(text, options)
}

/// What is wrong with the file `name`, in words.
pub fn config_error(error: &serde_saphyr::Error, name: &str) -> ConfigError {
    let line = error.location().map_or(0, |at| at.line() as u32);
    let message = beyond_bounds(error).map_or_else(|| plain(&error.render()), str::to_owned);
    ConfigError { file: name.to_owned(), line, message }
}

/// The same in one line, without the lines of the file that it is about.
pub fn brief_error(error: &serde_saphyr::Error, name: &str) -> ConfigError {
    let error = config_error(error, name);
    ConfigError { message: error.message.lines().next().unwrap_or_default().to_owned(), ..error }
}

/// Which bound a text does not keep.
fn beyond_bounds(error: &serde_saphyr::Error) -> Option<&'static str> {
    let serde_saphyr::Error::Budget { breach, .. } = error.without_snippet() else { return None };
    Some(match breach {
        BudgetBreach::Aliases { .. }
        | BudgetBreach::Anchors { .. }
        | BudgetBreach::AliasAnchorRatio { .. }
        | BudgetBreach::RecordedAnchorEvents { .. }
        | BudgetBreach::RecordedAnchorBytes { .. } => "there are too many aliases",
        BudgetBreach::Depth { .. } => "it is nested too deep",
        BudgetBreach::Documents { .. } => "there is more than one document",
        BudgetBreach::Events { .. } | BudgetBreach::Nodes { .. } => "there are too many values",
        _ => "it is larger than it may be",
    })
}

/// The parser's message without the file and line, which are reported separately.
fn plain(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let located = text.strip_prefix("line ").and_then(|rest| rest.split_once(": "));
    let text = match located {
        Some((place, rest)) if place.bytes().all(|b| b.is_ascii_digit() || b" column".contains(&b)) => rest,
        _ => text,
    };
    let mut kept = text.lines().filter(|line| !line.trim_start().starts_with("--> ") && line.trim() != "|");
    let first = kept.next().unwrap_or_default().to_owned();
    kept.map(|line| match line.trim_start().strip_prefix("| ").filter(|marked| marked.trim_start().starts_with('^')) {
        // The marker line repeats the whole message.
        Some(marked) => marked.chars().take_while(|c| " ^".contains(*c)).collect::<String>(),
        None => line.to_owned(),
    })
    .filter(|line| line.trim().chars().any(|c| c != '^'))
    .fold(first, |all, line| format!("{all}\n{line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_bounds_is_said_in_words() {
        let aliases = format!("a: &a 1\nb: [{}]\n", "*a , ".repeat(70));
        let deep = format!("a: {}1{}\n", "[".repeat(20), "]".repeat(20));
        let many = format!("a: [{}]\n", "1, ".repeat(15_000));
        for (text, words) in [(aliases, "too many aliases"), (deep, "nested too deep"), (many, "too many values")] {
            let error = parse_bounded::<serde_json::Value>(&text).expect_err(words);
            let message = config_error(&error, "x.yaml").message;
            assert!(message.contains(words) && !message.contains('{'), "{message}");
        }
    }

    #[test]
    fn the_parsers_words_are_said_once() {
        let text = "error: line 2 column 1: unknown field `modle`\n --> <input>:2:1\n  |\n1 | name: X\n2 | modle: a/b\n  | ^ unknown field `modle`";
        assert_eq!(plain(text), "unknown field `modle`\n1 | name: X\n2 | modle: a/b");
        assert_eq!(plain("line noise: x"), "line noise: x");
    }
}
