//! The memory of a viber as the Board shows it. Pure.

use protocol::{Excerpt, Instant, TaskId, tokens};
use serde_json::Value;

use crate::domain::context::report::ContextReport;

/// The file that people and agents curate, beneath the workspace.
pub const MEMORY_FILE: &str = "MEMORY.md";
/// Excerpts of one request that are shown.
const MAX_SHOWN_EXCERPTS: usize = 200;

/// What an agent reported about the contents of its request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestContext {
    pub task_id: TaskId,
    pub attempt: u32,
    /// In numbers: a [`ContextReport`].
    pub body: Value,
    /// The excerpts of the memory, if it is about them: `[Excerpt]`.
    pub memory: Option<Value>,
    pub at: Instant,
}

/// An excerpt of the memory that was part of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct SentExcerpt {
    pub excerpt: Excerpt,
    pub tokens: u64,
    /// Estimated here, because the agent did not report it.
    pub estimated: bool,
}

impl RequestContext {
    /// What was reported as `{layers, memory?, …}`, bounded.
    pub fn reported(task_id: TaskId, attempt: u32, fields: &Value, at: Instant) -> Self {
        let body = serde_json::to_value(ContextReport::read(fields)).unwrap_or_default();
        let memory = fields["memory"]
            .as_array()
            .map(|excerpts| excerpts.iter().take(MAX_SHOWN_EXCERPTS).cloned().collect::<Vec<_>>().into());
        Self { task_id, attempt, body, memory, at }
    }

    /// It in numbers.
    pub fn report(&self) -> ContextReport {
        ContextReport::read(&self.body)
    }

    /// The excerpts, with what they cost.
    pub fn memory(&self) -> Vec<SentExcerpt> {
        let items = self.memory.as_ref().and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let excerpts = items.iter().filter_map(|item| serde_json::from_value::<Excerpt>(item.clone()).ok());
        let mut costs = self.costs();
        excerpts
            .take(MAX_SHOWN_EXCERPTS)
            .map(|excerpt| {
                let told = costs.iter().position(|(name, _)| *name == excerpt.path).map(|at| costs.remove(at).1);
                let tokens = told.unwrap_or_else(|| tokens::estimate(&excerpt.text));
                SentExcerpt { excerpt, tokens, estimated: told.is_none() }
            })
            .collect()
    }

    /// Tokens of the whole memory layer, if the agent reported them.
    pub fn layer(&self) -> Option<u64> {
        self.layers().find_map(|layer| layer["tokens"].as_u64())
    }

    fn layers(&self) -> impl Iterator<Item = &Value> {
        let layers = self.body["layers"].as_array().map(Vec::as_slice).unwrap_or_default();
        layers.iter().filter(|layer| layer["layer"] == "memory")
    }

    /// The tokens of each excerpt by its name, in the reported order.
    fn costs(&self) -> Vec<(String, u64)> {
        let items = self.layers().filter_map(|layer| layer["items"].as_array()).flatten();
        items.filter_map(|item| Some((item["name"].as_str()?.to_owned(), item["tokens"].as_u64()?))).collect()
    }

    /// With the excerpts of an earlier report about the same attempt, when this one has none.
    #[must_use]
    pub fn after(self, earlier: Self) -> Self {
        let same = (&self.task_id, self.attempt) == (&earlier.task_id, earlier.attempt);
        let memory = self.memory.clone().or(earlier.memory.filter(|_| same));
        Self { memory, ..self }
    }
}

/// A piece of a text, marked when it matches the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedText {
    pub text: String,
    pub marked: bool,
}

/// A text with the words of `query` marked, in any case.
pub fn marked(text: &str, query: &str) -> Vec<MarkedText> {
    let words: Vec<String> = words(query).map(str::to_lowercase).collect();
    let mut pieces: Vec<MarkedText> = Vec::new();
    let mut push = |text: &str, marked: bool| match pieces.last_mut() {
        Some(last) if last.marked == marked => last.text.push_str(text),
        _ if text.is_empty() => {}
        _ => pieces.push(MarkedText { text: text.to_owned(), marked }),
    };
    let mut rest = text;
    while !rest.is_empty() {
        let before = rest.find(char::is_alphanumeric).unwrap_or(rest.len());
        push(&rest[..before], false);
        rest = &rest[before..];
        let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
        let word = rest[..end].to_lowercase();
        push(&rest[..end], words.iter().any(|wanted| word.starts_with(wanted.as_str())));
        rest = &rest[end..];
    }
    pieces
}

fn words(query: &str) -> impl Iterator<Item = &str> {
    query.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).take(32)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(fields: &Value) -> RequestContext {
        RequestContext::reported(TaskId::new(1), 1, fields, Instant(1))
    }

    #[test]
    fn an_excerpt_is_shown_with_what_it_cost() {
        let fields = json!({
            "layers": [{ "layer": "history", "tokens": 9 }, { "layer": "memory", "tokens": 30, "items": [
                { "name": "workspace/MEMORY.md", "tokens": 21 }, { "name": 7 }] }],
            "memory": [{ "path": "workspace/MEMORY.md", "title": "Team", "text": "Thursdays" }, "?",
                { "path": "workspace/memory/2026-03-01.md", "text": "12345678" }],
        });
        let told = told(&fields);
        let costs: Vec<_> = told.memory().iter().map(|went| (went.tokens, went.estimated)).collect();
        let estimated = tokens::estimate("12345678");
        assert_eq!((costs, told.layer()), (vec![(21, false), (estimated, true)], Some(30)));
        let bare = super::tests::told(&json!({ "layers": 3, "memory": "?" }));
        assert!(bare.memory().is_empty() && bare.layer().is_none());
    }

    #[test]
    fn a_later_word_about_the_same_attempt_keeps_the_excerpts() {
        let first = told(&json!({ "memory": [1] }));
        let layers = json!({ "layers": [{ "layer": "plan", "tokens": 2 }] });
        let later = RequestContext::reported(first.task_id.clone(), 1, &layers, Instant(2));
        let kept = later.clone().after(first.clone());
        assert_eq!((kept.memory, kept.body), (Some(json!([1])), later.body.clone()));
        let other = RequestContext { attempt: 2, ..later };
        assert_eq!(other.after(first).memory, None);
    }

    #[test]
    fn words_are_marked_in_any_case_and_from_their_beginning() {
        let brief = |text, query| -> String {
            let piece = |piece: MarkedText| if piece.marked { format!("[{}]", piece.text) } else { piece.text };
            marked(text, query).into_iter().map(piece).collect()
        };
        assert_eq!(brief("The KIOSK, kiosks and <b>", "kiosk b"), "The [KIOSK], [kiosks] and <[b]>");
        assert_eq!(brief("Äpfel sind da", "äpfel \"*("), "[Äpfel] sind da");
        assert_eq!(brief("nothing", ""), "nothing");
    }
}
