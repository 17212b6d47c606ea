//! The result of a call as a model reads it: the same while a task runs and in the history of a later one.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::{text::omission, tokens};

/// Plain text; for a command, its output and then how it ended in brackets. Anything else is JSON.
pub fn text(result: &Value) -> String {
    match result {
        Value::String(text) => text.clone(),
        Value::Object(fields) if fields.contains_key("error") => failure(fields),
        Value::Object(fields) if fields.contains_key("output") => command(fields),
        other => other.to_string(),
    }
}

/// A failed call: what happened, what kind of failure it is, and what to do about it.
fn failure(fields: &Map<String, Value>) -> String {
    let said = match fields.get("output").and_then(Value::as_str) {
        Some(message) if fields.len() == 2 => message.to_owned(),
        _ => command(fields),
    };
    let word = |name: &str| fields["error"].get(name).and_then(Value::as_str).unwrap_or_default();
    let (kind, suggestion) = (word("type"), word("suggestion"));
    if suggestion.is_empty() { said } else { format!("{said}\n[{kind}: {suggestion}]") }
}

/// What a command printed, then remarks in brackets.
fn command(fields: &Map<String, Value>) -> String {
    let mut remarks = Vec::new();
    match (fields.get("exitCode"), fields.get("signal")) {
        (Some(code), _) => remarks.push(format!("exit code {code}")),
        (None, Some(signal)) => remarks.push(format!("ended by signal {signal}")),
        (None, None) => {}
    }
    let word = |name: &str| fields.get(name).and_then(Value::as_str);
    remarks.extend(word("note").map(str::to_owned));
    if let Some(file) = word("file") {
        let part = if fields.contains_key("fileNote") { "beginning of the" } else { "whole" };
        remarks
            .push(format!("the {part} output of {} bytes is in {file}", fields.get("bytes").unwrap_or(&Value::Null)));
    }
    remarks.extend(word("fileNote").map(str::to_owned));
    let output = counted(word("output").unwrap_or_default(), fields.get("omitted").and_then(Value::as_u64));
    let between = if output.is_empty() || output.ends_with('\n') { "" } else { "\n" };
    format!("{output}{between}[{}]", remarks.join("; "))
}

/// What a command printed with the tokens that are missing in it instead of the bytes: what is cut further adds to them.
fn counted(output: &str, omitted: Option<u64>) -> Cow<'_, str> {
    let Some(bytes) = omitted else { return Cow::Borrowed(output) };
    match output.split_once(&omission(bytes)) {
        Some((first, last)) => Cow::Owned(format!("{first}{}{last}", tokens::omission(first, last, bytes))),
        None => Cow::Borrowed(output),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_reads_as_the_model_read_it() {
        let table = [
            (json!("text"), "text"),
            (json!({"output": "two\nlines\n", "exitCode": 0}), "two\nlines\n[exit code 0]"),
            (
                json!({"output": "cut", "signal": 9, "note": "timed out", "file": "a/b", "bytes": 7}),
                "cut\n[ended by signal 9; timed out; the whole output of 7 bytes is in a/b]",
            ),
            (
                json!({"output": "aaaa bbbb\n[… 900 bytes omitted …]\ncccc dddd", "omitted": 900, "exitCode": 0}),
                "aaaa bbbb\n[truncated, 206 tokens omitted]\ncccc dddd\n[exit code 0]",
            ),
            (json!({"output": "a\n[… 9 bytes omitted …]\nb"}), "a\n[… 9 bytes omitted …]\nb\n[]"),
            (
                json!({"output": "no such file", "error": {"type": "not_found", "suggestion": "Look for it."}}),
                "no such file\n[not_found: Look for it.]",
            ),
            (
                json!({"output": "x", "exitCode": 1, "error": {"type": "timeout", "suggestion": "Do less."}}),
                "x\n[exit code 1]\n[timeout: Do less.]",
            ),
            (json!({"output": "no", "error": 7}), "no"),
            (json!([1]), "[1]"),
            (json!(null), "null"),
        ];
        for (result, expected) in table {
            assert_eq!(text(&result), expected, "{result}");
        }
    }
}
