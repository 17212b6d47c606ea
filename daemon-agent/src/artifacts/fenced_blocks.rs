//! Fenced blocks in an answer whose info string contains `artifact_deltas`: a JSON list of what the agent produced.
//! This is model output: it is bounded, and what cannot be understood is reported, never guessed.

use protocol::text::head;
use serde_json::Value;

/// Most entries in one answer.
const MAX_ENTRIES: usize = 64;
/// Largest fenced block, bytes.
const MAX_BLOCK_BYTES: usize = 4 * 1024 * 1024;

/// One entry of such a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencedArtifact {
    pub id: String,
    pub title: Option<String>,
    pub kind: Option<String>,
    pub source: FencedSource,
}

/// Where an entry's bytes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FencedSource {
    Content(String),
    /// A file that the agent may read.
    Path(String),
    /// An address or a name that is only shown.
    Reference(String),
}

/// The entries of an answer, and what was wrong with others.
pub fn deltas(answer: &str) -> (Vec<FencedArtifact>, Vec<String>) {
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for fence in fences(answer) {
        if fence.len() > MAX_BLOCK_BYTES {
            wrong.push("a list of artifacts is too large".to_owned());
            continue;
        }
        let entries = match serde_json::from_str::<Value>(fence) {
            Ok(Value::Array(entries)) => entries,
            Ok(Value::Object(mut fields)) => match fields.remove("artifacts") {
                Some(Value::Array(entries)) => entries,
                _ => vec![Value::Object(fields)],
            },
            Ok(_) => Vec::new(),
            Err(error) => {
                wrong.push(format!("a list of artifacts is not JSON: {error}"));
                continue;
            }
        };
        for entry in entries {
            if found.len() + wrong.len() >= MAX_ENTRIES {
                wrong.push(format!("more than {MAX_ENTRIES} artifacts in one answer: the others are left out"));
                return (found, wrong);
            }
            match delta(&entry) {
                Ok(delta) => found.push(delta),
                Err(why) => wrong.push(why),
            }
        }
    }
    (found, wrong)
}

fn delta(entry: &Value) -> Result<FencedArtifact, String> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).map(str::to_owned);
    let id = text("id").ok_or_else(|| format!("an artifact has no id: {}", head(&entry.to_string(), 100)))?;
    let content = match entry.get("content") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        // JSON content may be given as JSON instead of text.
        Some(other) => serde_json::to_string_pretty(other).ok(),
    };
    let source = match (content, text("path"), text("ref")) {
        (Some(content), ..) => FencedSource::Content(content),
        (None, Some(path), _) => FencedSource::Path(path),
        (None, None, Some(reference)) => FencedSource::Reference(reference),
        (None, None, None) => return Err(format!("the artifact {:?} has no content, path or ref", head(&id, 100))),
    };
    Ok(FencedArtifact { id, title: text("title"), kind: text("type"), source })
}

/// The contents of the relevant fenced blocks, by CommonMark's rules, except blocks inside quotes and lists.
fn fences(answer: &str) -> Vec<&str> {
    let mut found = Vec::new();
    // The fence of an open block, and where its content begins if the block is relevant.
    let mut open: Option<(char, usize, Option<usize>)> = None;
    let mut at = 0;
    for line in answer.split_inclusive('\n') {
        let begin = at;
        at += line.len();
        let bare = line.trim_start_matches(' ');
        if line.len() - bare.len() > 3 {
            continue;
        }
        let bare = bare.trim_end();
        let Some(mark) = bare.chars().next().filter(|mark| matches!(mark, '`' | '~')) else { continue };
        let count = bare.chars().take_while(|c| *c == mark).count();
        let info = bare.trim_start_matches(mark);
        match open {
            None if count >= 3 && !(mark == '`' && info.contains('`')) => {
                open = Some((mark, count, info.contains("artifact_deltas").then_some(at)));
            }
            Some((other, least, inside)) if mark == other && count >= least && info.trim().is_empty() => {
                found.extend(inside.map(|from| &answer[from..begin]));
                open = None;
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_in_fences_are_read_and_others_left() {
        let answer = "Done.\n```json artifact_deltas\n[{\"id\":\"a\",\"content\":\"x ``` y\"},{\"id\":\"b\",\"ref\":\"javascript:x\"},\
                      {\"id\":\"c\",\"type\":\"json\",\"content\":{\"k\":1}}]\n```\n\n~~~ artifact_deltas\n{\"id\":\"d\",\"path\":\"out.md\",\"title\":\"Out\"}\n~~~\n\
                      ```json\n[{\"id\":\"no\",\"content\":\"\"}]\n```\n    ```artifact_deltas\n    []\n";
        let (found, wrong) = deltas(answer);
        assert_eq!(wrong, Vec::<String>::new());
        let sources: Vec<_> = found.iter().map(|delta| (delta.id.as_str(), delta.source.clone())).collect();
        assert_eq!(sources[0], ("a", FencedSource::Content("x ``` y".into())));
        assert_eq!(sources[1], ("b", FencedSource::Reference("javascript:x".into())));
        assert_eq!(sources[2].1, FencedSource::Content("{\n  \"k\": 1\n}".into()));
        assert_eq!(sources[3], ("d", FencedSource::Path("out.md".into())));
        assert_eq!(sources.len(), 4);
    }

    #[test]
    fn what_is_wrong_or_too_much_is_told() {
        let (found, wrong) =
            deltas("```artifact_deltas\n[{\"content\":\"x\"},{\"id\":\"a\"},5]\n```\n```artifact_deltas\n[\n```");
        assert!(found.is_empty() && wrong.len() == 4, "{wrong:?}");
        let many: Vec<_> = (0..100_000).map(|n| format!("{{\"id\":\"{n}\",\"ref\":\"x\"}}")).collect();
        let (found, wrong) = deltas(&format!("```artifact_deltas\n[{}]\n```", many.join(",")));
        assert_eq!((found.len(), wrong.len()), (MAX_ENTRIES, 1));
        assert_eq!(deltas("```artifact_deltas\n[").0, []);
    }
}
