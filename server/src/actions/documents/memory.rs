//! What a viber remembers: `MEMORY.md`, which agents propose changes of, and what is found in all of its memory.
//!
//! The file is the machine's. A change of it is an edit to the version that its author saw.

use std::time::Duration;

use protocol::{MemoryFound, MemorySearch, TeamId, ViberId, text::head};
use serde_json::json;

use crate::{
    actions::{
        After,
        files::{self, FileChange, FileOp},
    },
    db,
    domain::{By, Connection, Edit, EditState, memory::MEMORY},
    error::{Error, Result},
    hub::RequestError,
    state::Board,
};

/// How long a viber may take to search.
const ANSWER: Duration = Duration::from_secs(8);
/// Longest query, bytes.
pub const MAX_QUERY: usize = 1000;
/// What is found at once unless more is asked for, and at most.
pub const USUAL: u32 = 20;
pub const MOST: u32 = 100;
/// Longest excerpt and longest title that is shown, bytes.
const MAX_EXCERPT: usize = 4 * 1024;
const MAX_TITLE: usize = 500;

/// Proposals that get the text they were made for in one change: each holds all of it.
const BASES: u64 = 4;

/// A file as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its version and its text; `None`: there is no file.
    Known(Option<(String, String)>),
    /// Its viber is away, and nobody has looked at it before.
    Unknown,
}

/// `MEMORY.md` as it is on the machine, else as it was seen last.
pub async fn now(board: &Board, team: &TeamId, viber: &ViberId) -> Result<Standing> {
    match files::read(board, team, viber, MEMORY, None).await {
        Ok(shown) => match shown.text() {
            Some(text) => Ok(Standing::Known(Some((shown.hash.clone(), text.to_owned())))),
            None => Err(Error::unacceptable("not_text", "MEMORY.md is no text, or larger than 1 MiB")),
        },
        Err(Error::NotFound) => Ok(Standing::Known(None)),
        Err(Error::Conflict { code: files::AWAY, .. }) => Ok(Standing::Unknown),
        Err(error) => Err(error),
    }
}

/// What somebody wants it to say.
#[derive(Clone, Debug)]
pub struct Rewrite {
    /// The version that they saw; `None`: there was none.
    pub base: Option<String>,
    /// What it said, when that is known.
    pub seen: Option<String>,
    pub text: String,
}

/// Writes it.
pub async fn put(board: &Board, team: &TeamId, by: &By, viber: &ViberId, rewrite: Rewrite) -> Result<Edit> {
    let Rewrite { base: base_hash, seen, text: content } = rewrite;
    let change = FileChange { path: MEMORY.to_owned(), base_hash, op: FileOp::Put { content, seen } };
    let edit = files::edit(board, team, by, viber, change).await?;
    if edit.state == EditState::Refused {
        return Err(Error::unacceptable("viber_refused", edit.reason.clone().unwrap_or_default()));
    }
    Ok(edit)
}

/// `MEMORY.md` is another one, or a change of it was proposed: what it says is fetched, as far as somebody has to decide.
pub async fn follow(board: Board, connection: Connection) {
    if let Err(error) = look(&board, &connection).await {
        tracing::warn!(viber.id = %connection.viber, %error, "a viber's memory was not read");
    }
}

async fn look(board: &Board, connection: &Connection) -> Result<()> {
    let waiting =
        db::proposals::about_memory(&mut board.db.reader_of(&connection.team).await?, &connection.viber).await?;
    if waiting.is_empty() {
        return Ok(());
    }
    // What is remembered of it may be what an agent saw, and is gone when the new text has come.
    keep_base(board, connection).await?;
    now(board, &connection.team, &connection.viber).await?;
    keep_base(board, connection).await?;
    let mut after = After::default();
    waiting.iter().for_each(|session| after.session(session));
    after.tell(board, &connection.team);
    Ok(())
}

/// Keeps what is known of the text with the proposals that were made for it.
async fn keep_base(board: &Board, connection: &Connection) -> Result<()> {
    loop {
        let viber = connection.viber.clone();
        let keeping = board.piece(&connection.team, &connection.by(), move |tx| {
            let viber = viber.clone();
            Box::pin(async move {
                let text = db::files::load(tx, &viber, MEMORY).await?.and_then(|file| file.text);
                let Some(text) = text else { return Ok(true) };
                let base = (text.hash.as_str(), text.content.as_str());
                let kept = db::proposals::keep_base(tx, &viber, base, BASES).await?;
                Ok::<_, Error>(kept < BASES)
            })
        });
        if keeping.await? || board.shutdown.soft.is_cancelled() {
            return Ok(());
        }
    }
}

/// Looks through the memory of an agent on its viber.
pub async fn search(board: &Board, team: &TeamId, viber: &ViberId, asked: MemorySearch) -> Result<MemoryFound> {
    let found = db::vibers::load(&mut board.db.reader_of(team).await?, viber).await?;
    found.ok_or(Error::NotFound)?;
    if asked.query.len() > MAX_QUERY || asked.query.contains('\0') {
        return Err(Error::unacceptable("bad_query", "a query has at most 1,000 bytes, without U+0000"));
    }
    let limit = asked.limit.unwrap_or(USUAL).clamp(1, MOST);
    let asked = MemorySearch { limit: Some(limit), ..asked };
    let answer = board.hub.request(viber, "memory.search", json!(asked), ANSWER).await.map_err(refused)?;
    let strange = |_| Error::unacceptable("viber_refused", "the viber's answer is not understood");
    let mut found: MemoryFound = serde_json::from_value(answer).map_err(strange)?;
    found.items.truncate(limit as usize);
    for item in &mut found.items {
        item.excerpt = head(&item.excerpt, MAX_EXCERPT).to_owned();
        item.title = head(&item.title, MAX_TITLE).to_owned();
        item.path = head(&item.path, protocol::limits::MAX_PATH).to_owned();
    }
    Ok(found)
}

/// Why a viber did not answer.
pub(in crate::actions) fn refused(error: RequestError) -> Error {
    match error {
        RequestError::Disconnected => Error::conflict(files::AWAY, "the viber is away; only it can tell"),
        RequestError::TimedOut => Error::conflict("viber_silent", "the viber did not answer in time"),
        RequestError::Busy => Error::conflict("viber_busy", "the viber has too much to answer right now"),
        RequestError::Refused(told) if told.starts_with("not_found") => Error::NotFound,
        RequestError::Refused(told) => Error::unacceptable("viber_refused", head(&told, 300)),
    }
}
