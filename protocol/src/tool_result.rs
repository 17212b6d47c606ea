//! The result of a call as a model reads it: the same while a task runs and in the history of a later one.

use serde_json::{Map, Value};

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
    let output = word("output").unwrap_or_default();
    let between = if output.is_empty() || output.ends_with('\n') { "" } else { "\n" };
    format!("{output}{between}[{}]", remarks.join("; "))
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
