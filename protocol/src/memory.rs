//! A viber's memory: searches, their results, and the excerpts that went with a model request.

use serde::{Deserialize, Serialize};

use crate::instant::Instant;

/// `memory.search {agentId, query, limit?}`. The query is words, not a language: whatever is typed finds or doesn't.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemorySearch {
    pub agent_id: String,
    pub query: String,
    /// How many at most; 20 when absent, never more than 100.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit: Option<u32>,
}

/// What was found, best first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MemoryFound {
    pub items: Vec<RecalledPassage>,
    pub ranking: MemoryRanking,
    /// How many passages are known altogether.
    pub known: u64,
}

/// One passage: a section of a memory file, or a part of a conversation on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecalledPassage {
    pub source: MemorySource,
    /// Beneath the viber's home: `workspace/memory/2026-03-01.md`, `agents/default/sessions/ses_….jsonl`.
    pub path: String,
    /// The heading it stands under, or what was asked in that conversation; may be empty.
    #[serde(default)]
    pub title: String,
    /// At most 600 characters around what was found.
    pub excerpt: String,
    /// Of a log: which conversation.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at: Option<Instant>,
}

/// The kind of source that contains a passage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MemorySource {
    /// `MEMORY.md`.
    Curated,
    /// A daily log.
    Daily,
    /// What was said in a session.
    Session,
}

/// How passages were ranked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MemoryRanking {
    /// By words.
    #[default]
    Text,
    /// By words and by meaning: an embeddings provider is configured and answered.
    Meaning,
}

/// An excerpt that went with a request, or what came of one: a layer's item of the `context` event, and an item of
/// `task:submit {memory}` when a caller sends its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Excerpt {
    /// Where it comes from, as `RecalledPassage::path`; of a caller's own: its name.
    pub path: String,
    #[serde(default)]
    pub title: String,
    pub text: String,
}

/// Something that an agent wanted to be remembered, and what became of it: an item of `result.memory.notes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    /// Its first line, cut.
    pub note: String,
    pub kind: NoteKind,
    pub became: NoteOutcome,
    /// Of a refused one: the reason.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
}

/// Where a note belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoteKind {
    /// The log of the day.
    #[default]
    Daily,
    /// `MEMORY.md`.
    Memory,
}

/// The outcome of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoteOutcome {
    /// It is written.
    Applied,
    /// It is proposed; a person decides about it.
    Proposed,
    /// The file contains it already.
    Known,
    Refused,
}
