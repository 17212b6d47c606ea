//! What names a call exactly: a decision about another digest is none.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::tools::{CallProposal, ProposalSubject};

/// SHA-256 in hex of the canonical JSON of what would run: tool, arguments, folder, the path that is meant, names of
/// variables, files as they are, a skill with its script.
pub fn digest(tool: &str, args: &Value, proposal: &CallProposal) -> String {
    let bounds = proposal.bounds();
    let mut subject = json!({
        "tool": tool,
        "args": args,
        "cwd": bounds.cwd.display().to_string(),
        "path": bounds.path.map(|path| path.display().to_string()),
        "env": proposal.variables,
        "files": bounds.files.iter().map(|file| json!({ "path": file.path, "hash": file.hash })).collect::<Vec<_>>(),
    });
    if let (Some(skill), ProposalSubject::Command(script)) = (&proposal.skill, &proposal.subject) {
        subject["skill"] = json!({ "digest": skill, "script": script });
    }
    hex(&canonical(&subject))
}

/// Names a tool with its arguments, and the version of the skill that it is.
pub fn arguments(tool: &str, args: &Value, skill: Option<&str>) -> String {
    canonical(&match skill {
        Some(skill) => json!([tool, args, skill]),
        None => json!([tool, args]),
    })
}

/// JSON without spaces, keys sorted by their bytes.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeMap<&String, &Value> = fields.iter().collect();
            let fields = sorted.into_iter().map(|(key, value)| format!("{}:{}", json!(key), canonical(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

fn hex(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_in_another_order_has_the_same_name() {
        let (one, other) = (r#"{"b":[1,{"y":2,"x":"\n"}],"a":null}"#, r#"{"a":null,"b":[1,{"x":"\n","y":2}]}"#);
        let read = |text: &str| canonical(&serde_json::from_str(text).expect("JSON"));
        assert_eq!(read(one), r#"{"a":null,"b":[1,{"x":"\n","y":2}]}"#);
        assert_eq!(read(one), read(other));
        let named = |args: Value, skill: Option<&str>| arguments("shell", &args, skill);
        assert_ne!(named(json!({"a": 1}), None), named(json!({"a": "1"}), None));
        assert_ne!(named(json!({"a": 1}), Some("ab")), named(json!({"a": 1}), Some("ac")));
    }
}
