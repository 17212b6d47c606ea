//! The memory of a viber: `MEMORY.md`, which agents propose changes to, and search in everything it remembers.
//!
//! The file on the machine is the truth. A change to it is an edit of the version that its author saw.

use std::time::Duration;

use protocol::{MemoryFound, MemorySearch, TeamId, ViberId, text::head};
use serde_json::json;

use crate::{
    actions::{
        AfterCommit,
        files::{self, FileChange, FileOp},
        unanswered::refused,
    },
    db,
    domain::{By, Edit, EditState, memory::MEMORY_FILE},
    error::{Error, Result},
    state::Board,
};

/// How long a viber may take to search.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);
/// Longest query, bytes.
pub const MAX_QUERY_BYTES: usize = 1000;
/// Search results when no limit is given, and the highest limit.
pub const DEFAULT_RESULTS: u32 = 20;
pub const MAX_RESULTS: u32 = 100;
/// Longest excerpt and longest title shown, bytes.
const MAX_EXCERPT_BYTES: usize = 4 * 1024;
const MAX_TITLE_BYTES: usize = 500;

/// Proposals that get their base text in one change: each holds all of it.
const PROPOSALS_PER_CHANGE: u64 = 4;

/// The current state of `MEMORY.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryState {
    /// Its hash and its text; `None`: there is no file.
    Known(Option<(String, String)>),
    /// The viber is away, and the Board has never read the file.
    Unknown,
}

/// `MEMORY.md` as it is on the machine, else as it was read last.
pub async fn current(board: &Board, team: &TeamId, viber: &ViberId) -> Result<MemoryState> {
    match files::read(board, team, viber, MEMORY_FILE, None).await {
        Ok(shown) => match shown.text() {
            Some(text) => Ok(MemoryState::Known(Some((shown.hash.clone(), text.to_owned())))),
            None => Err(Error::unacceptable("not_text", "MEMORY.md is no text, or larger than 1 MiB")),
        },
        Err(Error::NotFound) => Ok(MemoryState::Known(None)),
        Err(Error::Conflict { code: files::VIBER_AWAY, .. }) => Ok(MemoryState::Unknown),
        Err(error) => Err(error),
    }
}

/// A new text for `MEMORY.md`.
#[derive(Clone, Debug)]
pub struct MemoryDraft {
    /// The version that they saw; `None`: there was none.
    pub base: Option<String>,
    /// What it said, when that is known.
    pub seen: Option<String>,
    pub text: String,
}

/// Writes `MEMORY.md`.
pub async fn put(board: &Board, team: &TeamId, by: &By, viber: &ViberId, rewrite: MemoryDraft) -> Result<Edit> {
    let MemoryDraft { base: base_hash, seen, text: content } = rewrite;
    let change = FileChange { path: MEMORY_FILE.to_owned(), base_hash, op: FileOp::Put { content, seen } };
    let edit = files::edit(board, team, by, viber, change).await?;
    if edit.state == EditState::Refused {
        return Err(Error::unacceptable("viber_refused", edit.reason.clone().unwrap_or_default()));
    }
    Ok(edit)
}

/// Reads `MEMORY.md` after it changed, or after a change was proposed, if somebody has to decide about a proposal.
pub async fn follow(board: Board, team: TeamId, viber: ViberId) {
    if let Err(error) = look(&board, &team, &viber).await {
        tracing::warn!(viber.id = %viber, %error, "a viber's memory was not read");
    }
}

async fn look(board: &Board, team: &TeamId, viber: &ViberId) -> Result<()> {
    let waiting = db::proposals::about_memory(&mut board.db.reader_of(team).await?, viber).await?;
    if waiting.is_empty() {
        return Ok(());
    }
    // The remembered text may be the one an agent saw; reading the new text replaces it.
    keep_base(board, team, viber).await?;
    current(board, team, viber).await?;
    keep_base(board, team, viber).await?;
    let mut after = AfterCommit::default();
    waiting.iter().for_each(|session| after.session(session));
    after.publish(board, team);
    Ok(())
}

/// Stores the remembered text with the proposals that were made for that version.
async fn keep_base(board: &Board, team: &TeamId, viber: &ViberId) -> Result<()> {
    loop {
        let viber = viber.clone();
        let keeping = board.piece(team, &By::board(), move |tx| {
            let viber = viber.clone();
            Box::pin(async move {
                let text = db::files::load(tx, &viber, MEMORY_FILE).await?.and_then(|file| file.text);
                let Some(text) = text else { return Ok(true) };
                let base = (text.hash.as_str(), text.content.as_str());
                let kept = db::proposals::keep_base(tx, &viber, base, PROPOSALS_PER_CHANGE).await?;
                Ok::<_, Error>(kept < PROPOSALS_PER_CHANGE)
            })
        });
        if keeping.await? || board.shutdown.soft.is_cancelled() {
            return Ok(());
        }
    }
}

/// Searches the memory of an agent on its viber.
pub async fn search(board: &Board, team: &TeamId, viber: &ViberId, asked: MemorySearch) -> Result<MemoryFound> {
    let found = db::vibers::load(&mut board.db.reader_of(team).await?, viber).await?;
    found.ok_or(Error::NotFound)?;
    if asked.query.len() > MAX_QUERY_BYTES || asked.query.contains('\0') {
        return Err(Error::unacceptable("bad_query", "a query has at most 1,000 bytes, without U+0000"));
    }
    let limit = asked.limit.unwrap_or(DEFAULT_RESULTS).clamp(1, MAX_RESULTS);
    let asked = MemorySearch { limit: Some(limit), ..asked };
    let answer = board.hub.request(viber, "memory.search", json!(asked), ANSWER_TIMEOUT).await.map_err(refused)?;
    let strange = |_| Error::unacceptable("viber_refused", "the viber's answer is not understood");
    let mut found: MemoryFound = serde_json::from_value(answer).map_err(strange)?;
    found.items.truncate(limit as usize);
    for item in &mut found.items {
        item.excerpt = head(&item.excerpt, MAX_EXCERPT_BYTES).to_owned();
        item.title = head(&item.title, MAX_TITLE_BYTES).to_owned();
        item.path = head(&item.path, protocol::limits::MAX_PATH_BYTES).to_owned();
    }
    Ok(found)
}
