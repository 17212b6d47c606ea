//! `remember` and `search_memory`: taking notes for later, and finding earlier ones.

use protocol::{NoteKind, NoteOutcome};
use serde_json::Value;

use crate::{report::memory::MemoryEditor, tools::ToolOutcome};

/// Most passages in one call.
const MAX_RESULTS: u64 = 20;
/// Passages that a call returns by default.
const DEFAULT_RESULTS: u32 = 8;

/// Runs `remember {note, kind?}`.
pub async fn remember(editor: &MemoryEditor, args: &Value) -> ToolOutcome {
    let Some(note) = args["note"].as_str() else {
        return ToolOutcome::refused("give `note`: the text to remember");
    };
    let kind = match args["kind"].as_str() {
        None | Some("" | "daily") => NoteKind::Daily,
        Some("memory") => NoteKind::Memory,
        Some(other) => {
            let other = protocol::text::head(other, 64);
            return ToolOutcome::refused(format!("there is no kind {other:?}; it is daily or memory"));
        }
    };
    match editor.remember(note, kind).await {
        Ok(NoteOutcome::Applied) if kind == NoteKind::Daily => ToolOutcome::done("It is in today's log."),
        Ok(NoteOutcome::Applied) => ToolOutcome::done("It is in MEMORY.md."),
        Ok(NoteOutcome::Proposed) => {
            ToolOutcome::done("It is proposed for MEMORY.md: an operator decides about it. Go on.")
        }
        Ok(NoteOutcome::Known | NoteOutcome::Refused) => ToolOutcome::done("MEMORY.md says that already."),
        Err(why) => ToolOutcome::refused(why),
    }
}

/// Runs `search_memory {query, limit?}`.
pub async fn search(editor: &MemoryEditor, args: &Value) -> ToolOutcome {
    let Some(query) = args["query"].as_str().filter(|query| !query.trim().is_empty()) else {
        return ToolOutcome::refused("give `query`: a few words that occur in what you are looking for");
    };
    let limit = args["limit"]
        .as_u64()
        .and_then(|limit| u32::try_from(limit.clamp(1, MAX_RESULTS)).ok())
        .unwrap_or(DEFAULT_RESULTS);
    match editor.search(query, Some(limit)).await {
        Ok(text) => ToolOutcome::done(text),
        Err(why) => ToolOutcome::refused(why),
    }
}
