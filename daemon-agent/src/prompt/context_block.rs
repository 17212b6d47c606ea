//! The context message: the plan, artifacts, memory, tasks that earlier attempts asked for, the ledger of a run and what the caller
//! added.

use protocol::{
    TaskSubmit,
    mesh::marked_result,
    text::{fenced, head_and_tail, kept_ends, tame},
    tokens::estimate,
};
use serde_json::Value;

use super::quoted;
use crate::{
    home::Home,
    memory::{Recall, RecalledExcerpt},
};

/// Largest part, bytes.
const MAX_PART_BYTES: usize = 16 * 1024;

/// A part of the message.
pub(super) struct ContextPart {
    pub tag: &'static str,
    pub text: String,
    pub pieces: Vec<ContextPiece>,
}

/// A named piece of a part.
pub(super) struct ContextPiece {
    pub name: String,
    /// Of what is sent of it.
    pub tokens: u64,
    /// Tokens of all of it, if that is more.
    pub of: Option<u64>,
}

/// The message; `None` if there is nothing to say.
pub(super) fn message(submit: &TaskSubmit, home: &Home, recall: &Recall) -> Option<String> {
    let parts: Vec<String> = parts(submit, home, recall).into_iter().map(|part| part.text).collect();
    (!parts.is_empty()).then(|| format!("What is known beside the conversation:\n\n{}", parts.join("\n\n")))
}

/// The parts with content, in their order.
pub(super) fn parts(submit: &TaskSubmit, home: &Home, recall: &Recall) -> Vec<ContextPart> {
    let artifacts = submit.artifacts.iter().map(|artifact| {
        let (title, kind) =
            (artifact.title.as_deref().unwrap_or("untitled"), artifact.kind.as_deref().unwrap_or("file"));
        let line = format!("- {title} ({kind}, {}) {}", artifact.id, artifact.reference.as_deref().unwrap_or(""));
        (artifact.id.clone(), line)
    });
    let attached = submit.attachments.iter().map(|file| {
        let place = home.attachment(submit.task_id.as_str(), &file.name).unwrap_or_default();
        (file.name.clone(), format!("- {} ({} bytes)", place.display(), file.size))
    });
    let children = submit.children.iter().map(|child| {
        let line = format!("Asked for {}:\n{}", quoted(&child.title), marked_result(child));
        (child.title.clone(), line)
    });
    let (ledger, context) = ledger_apart(submit.context.as_ref());
    let all = [
        listed("plan", submit.plan.as_ref().map(|plan| ("plan".to_owned(), shown(plan)))),
        listed("artifacts", artifacts),
        listed("attachments", attached),
        memory(recall),
        listed("children", children),
        listed("ledger", ledger.map(|text| ("ledger".to_owned(), text))),
        listed("context", context.map(|context| ("context".to_owned(), shown(&context)))),
    ];
    all.into_iter().flatten().collect()
}

fn listed(tag: &'static str, pieces: impl IntoIterator<Item = (String, String)>) -> Option<ContextPart> {
    let pieces: Vec<(String, String)> = pieces.into_iter().collect();
    let text = pieces.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n");
    let whole = text.trim();
    if matches!(whole, "" | "null" | "{}" | "[]") {
        return None;
    }
    let (start, mut next) = (text.len() - text.trim_start().len(), 0);
    let pieces = pieces.into_iter().map(|(name, piece)| {
        let place = [next, next + piece.len()].map(|at| at.saturating_sub(start).min(whole.len()));
        next += piece.len() + 1;
        sent(name, whole, place)
    });
    Some(ContextPart { tag, pieces: pieces.collect(), text: fenced(tag, "", &head_and_tail(whole, MAX_PART_BYTES)) })
}

/// How much is sent of the piece between two places of a part's whole text.
fn sent(name: String, whole: &str, [from, to]: [usize; 2]) -> ContextPiece {
    let all = estimate(&whole[from..to]);
    let Some((first, last)) = kept_ends(whole, MAX_PART_BYTES) else {
        return ContextPiece { name, tokens: all, of: None };
    };
    let (end, begin) = (first.len(), whole.len() - last.len());
    let kept = [&whole[from.min(end)..to.min(end)], &whole[from.max(begin)..to.max(begin)]];
    let is_cut = kept.map(str::len).iter().sum::<usize>() < to - from;
    ContextPiece { name, tokens: kept.map(estimate).iter().sum(), of: is_cut.then_some(all) }
}

/// Each excerpt in tags of its own that say where it comes from.
fn memory(recall: &Recall) -> Option<ContextPart> {
    let piece = |item: &RecalledExcerpt| {
        let excerpt = &item.excerpt;
        let title = if excerpt.title.is_empty() { String::new() } else { format!(" title={}", quoted(&excerpt.title)) };
        let text = tame(&excerpt.text, "memory");
        (excerpt.path.clone(), fenced("excerpt", &format!("from={}{title}", quoted(&excerpt.path)), &text))
    };
    let texts: Vec<(String, String)> = recall.0.iter().map(piece).collect();
    let text = texts.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n");
    let known = recall.0.iter().zip(texts);
    let pieces = known.map(|(item, (name, text))| ContextPiece { name, tokens: estimate(&text), of: item.of });
    let pieces: Vec<ContextPiece> = pieces.collect();
    (!pieces.is_empty()).then(|| ContextPart { tag: "memory", text: format!("<memory>\n{text}\n</memory>"), pieces })
}

/// The ledger of a playbook's run, which is a text of many lines, and the rest of the context.
fn ledger_apart(context: Option<&Value>) -> (Option<String>, Option<Value>) {
    let mut rest = context.cloned();
    let fields = rest.as_mut().and_then(Value::as_object_mut);
    let ledger = fields.and_then(|fields| {
        let text = fields.get("ledger")?.as_str()?.to_owned();
        fields.remove("ledger");
        Some(text)
    });
    (ledger, rest)
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(fields) if fields.get("markdown").is_some_and(Value::is_string) => {
            fields["markdown"].as_str().unwrap_or_default().to_owned()
        }
        other => serde_json::to_string_pretty(other).unwrap_or_default(),
    }
}
