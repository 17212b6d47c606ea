//! `remember` and `search_memory`: what should be known later, and what was known before.

use protocol::{NoteBecame, NoteKind};
use serde_json::Value;

use super::Outcome;
use crate::report::memory::MemoryEditor;

/// Passages of one call.
const MOST: u64 = 20;
/// When the call names no number.
const USUAL: u32 = 8;

/// Runs `remember {note, kind?}`.
pub async fn remember(desk: &MemoryEditor, args: &Value) -> Outcome {
    let Some(note) = args["note"].as_str() else {
        return Outcome::refused("say `note`: what is to be remembered");
    };
    let kind = match args["kind"].as_str() {
        None | Some("" | "daily") => NoteKind::Daily,
        Some("memory") => NoteKind::Memory,
        Some(other) => {
            let other = protocol::text::head(other, 64);
            return Outcome::refused(format!("there is no kind {other:?}; it is daily or memory"));
        }
    };
    match desk.remember(note, kind).await {
        Ok(NoteBecame::Applied) if kind == NoteKind::Daily => Outcome::done("It stands in the log of today."),
        Ok(NoteBecame::Applied) => Outcome::done("It stands in MEMORY.md."),
        Ok(NoteBecame::Proposed) => Outcome::done("It is proposed for MEMORY.md: an operator decides about it. Go on."),
        Ok(NoteBecame::Known | NoteBecame::Refused) => Outcome::done("MEMORY.md says that already."),
        Err(why) => Outcome::refused(why),
    }
}

/// Runs `search_memory {query, limit?}`.
pub async fn search(desk: &MemoryEditor, args: &Value) -> Outcome {
    let Some(query) = args["query"].as_str().filter(|query| !query.trim().is_empty()) else {
        return Outcome::refused("say `query`: a few words that stand in what you look for");
    };
    let limit = args["limit"].as_u64().and_then(|limit| u32::try_from(limit.clamp(1, MOST)).ok()).unwrap_or(USUAL);
    match desk.search(query, Some(limit)).await {
        Ok(text) => Outcome::done(text),
        Err(why) => Outcome::refused(why),
    }
}
