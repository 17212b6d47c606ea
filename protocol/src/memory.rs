//! What a viber remembers: what an agent asks its memory, what is found, and what went with a request.

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
    pub items: Vec<Remembered>,
    pub ranking: Ranking,
    /// How many passages are known altogether.
    pub known: u64,
}

/// One passage: a section of a memory file, or a part of a conversation on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Remembered {
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

/// Where a passage stands.
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

/// How passages were put in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = MemoryRanking))]
#[serde(rename_all = "kebab-case")]
pub enum Ranking {
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
    /// Where it comes from, as `Remembered::path`; of a caller's own: its name.
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
    pub became: NoteBecame,
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

/// What became of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoteBecame {
    /// It is written.
    Applied,
    /// A person decides about it.
    Proposed,
    /// It stood there already.
    Known,
    Refused,
}
