//! Reading a workspace: from the machine while it is connected, from what the Board remembers while it is not.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use protocol::{FileMatches, FilePiece, Instant, Listing, TeamId, ViberId, WriteOp, limits, path};
use serde_json::{Value, json};

use crate::{
    actions::unanswered::VIBER_AWAY,
    db,
    domain::{By, Edit, File, FileReport, FileText, Viber},
    error::{Error, Result},
    hub::RequestError,
    state::Board,
};

/// How long a viber may take to answer before the remembered version is shown.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);
/// How often a file that changes while it is read is read again.
const MAX_READ_ATTEMPTS: usize = 3;

/// A file as it is shown.
#[derive(Clone, Debug)]
pub struct FileContents {
    pub path: String,
    pub hash: String,
    pub size: u64,
    pub mtime: Option<Instant>,
    /// Where the bytes begin, and the bytes: all of a small file, a part of a large one.
    pub from: u64,
    pub bytes: Vec<u8>,
    /// Since when this may be outdated; `None`: it is current.
    pub as_of: Option<Instant>,
    /// Who changed it last, if known.
    pub by: Option<String>,
    /// A change made here that the viber has not applied yet: the content already includes it.
    pub pending: Option<Edit>,
}

impl FileContents {
    /// Whether the bytes are not all of it.
    pub fn is_part(&self) -> bool {
        self.bytes.len() as u64 != self.size
    }

    /// Its text, if it is text and complete.
    pub fn text(&self) -> Option<&str> {
        let text = std::str::from_utf8(&self.bytes).ok()?;
        (!self.is_part() && !text.contains('\0')).then_some(text)
    }
}

/// A folder as it is shown.
#[derive(Clone, Debug)]
pub struct FolderContents {
    pub listing: Listing,
    /// Since when this may be outdated; `None`: it is current.
    pub as_of: Option<Instant>,
}

/// The answer of a viber, if it gives one.
pub enum ViberAnswer {
    Value(Value),
    /// The viber is away or too busy: the remembered version is shown instead.
    Away,
}

pub async fn ask(board: &Board, viber: &ViberId, method: &str, params: Value) -> Result<ViberAnswer> {
    let refused = match board.hub.request(viber, method, params, ANSWER_TIMEOUT).await {
        Ok(value) => return Ok(ViberAnswer::Value(value)),
        Err(RequestError::Refused(text)) => text,
        Err(RequestError::Disconnected | RequestError::TimedOut | RequestError::Busy) => return Ok(ViberAnswer::Away),
    };
    Err(refusal(&refused))
}

/// The error for a viber's refusal, whose text begins with a code that both ends know.
pub fn refusal(text: &str) -> Error {
    let (code, why) = text.split_once(": ").unwrap_or((text, text));
    let why = protocol::text::head(why, 400).to_owned();
    let known = [
        "forbidden_path",
        "is_folder",
        "no_repository",
        "leads_elsewhere",
        "unreadable_repository",
        "no_git",
        "no_confinement",
        "space_away",
        "too_slow",
        "too_large",
        "viber_busy",
        "git",
    ];
    match code {
        "not_found" | "no_folder" => Error::NotFound,
        _ => Error::unacceptable(known.into_iter().find(|known| *known == code).unwrap_or("viber_refused"), why),
    }
}

async fn viber(board: &Board, team: &TeamId, id: &ViberId) -> Result<Viber> {
    let found = db::vibers::load(&mut board.db.reader_of(team).await?, id).await?;
    found.ok_or(Error::NotFound)
}

/// The folder at `path` (empty: the root), from its entry number `from` on.
pub async fn list(board: &Board, team: &TeamId, id: &ViberId, path: &str, from: u64) -> Result<FolderContents> {
    path::folder(path).map_err(|bad| Error::unacceptable("forbidden_path", bad.to_string()))?;
    viber(board, team, id).await?;
    if let ViberAnswer::Value(value) = ask(board, id, "workspace.list", json!({ "path": path, "from": from })).await? {
        let listing: Listing = serde_json::from_value(value).map_err(|_| strange())?;
        let listing = Listing { path: path.to_owned(), from, ..listing };
        if listing.entries.len() > limits::MAX_ENTRIES {
            return Err(strange());
        }
        if from == 0 {
            let (id, kept) = (id.clone(), listing.clone());
            let keeping = board.change(team, &By::board(), move |tx| {
                let (id, kept) = (id.clone(), kept.clone());
                Box::pin(async move { db::listings::keep(tx, &id, &kept).await })
            });
            keeping.await?;
        }
        return Ok(FolderContents { listing, as_of: None });
    }
    let kept = db::listings::load(&mut board.db.reader_of(team).await?, id, path).await?;
    match kept {
        Some((listing, at)) if from == 0 => Ok(FolderContents { listing, as_of: Some(at) }),
        _ => Err(away()),
    }
}

/// The file at `path`; of one that is too large to be shown whole the bytes from `from` on.
pub async fn read(board: &Board, team: &TeamId, id: &ViberId, path: &str, from: Option<u64>) -> Result<FileContents> {
    read_as(board, (team, id), path, from, false).await
}

/// The same, asked of the viber when it is connected even if it has reported this version: its report of a newer one may
/// be on its way.
pub async fn read_anew(board: &Board, team: &TeamId, id: &ViberId, path: &str) -> Result<FileContents> {
    read_as(board, (team, id), path, None, true).await
}

async fn read_as(
    board: &Board,
    (team, id): (&TeamId, &ViberId),
    path: &str,
    from: Option<u64>,
    anew: bool,
) -> Result<FileContents> {
    path::file(path).map_err(|bad| Error::unacceptable("forbidden_path", bad.to_string()))?;
    let viber = viber(board, team, id).await?;
    let (file, pending) = {
        let mut tx = board.db.reader_of(team).await?;
        let pending = db::edits::pending(&mut tx, id, path).await?;
        (db::files::load(&mut tx, id, path).await?, pending)
    };
    let connected = board.hub.is_connected(id);
    // A version reported on this connection is current: the viber need not be asked.
    let current = |file: &&File| {
        !anew && file.heard_at >= viber.contact.since && file.text.as_ref().map(|text| &text.hash) == file.hash.as_ref()
    };
    if connected && let Some(file) = file.as_ref().filter(current) {
        return shown(file, None, None).ok_or(Error::NotFound);
    }
    if connected {
        match fetch(board, id, None, path, from).await {
            Ok(Some(fresh)) => {
                let by = file.filter(|file| file.hash.as_ref() == Some(&fresh.hash)).map(|file| file.changed_by);
                let fresh = FileContents { by, ..fresh };
                keep(board, team, id, &fresh).await?;
                return Ok(fresh);
            }
            Ok(None) => {}
            Err(Error::NotFound) => {
                gone(board, team, id, path).await?;
                return Err(Error::NotFound);
            }
            Err(error) => return Err(error),
        }
    }
    match (pending, file) {
        (Some(edit), _) if edit.op == WriteOp::Put => Ok(of_pending(edit)),
        (Some(_), _) => Err(Error::NotFound),
        (None, Some(file)) if file.hash.is_none() => Err(Error::NotFound),
        (None, Some(file)) => shown(&file, file.text.as_ref().map(|text| text.at), None).ok_or_else(away),
        (None, None) => Err(away()),
    }
}

/// The file as it will be when its viber has applied the change.
fn of_pending(edit: Edit) -> FileContents {
    let bytes = edit.content.clone().unwrap_or_default().into_bytes();
    FileContents {
        path: edit.path.clone(),
        hash: edit.hash.clone().unwrap_or_default(),
        size: bytes.len() as u64,
        mtime: None,
        from: 0,
        bytes,
        as_of: Some(edit.created_at),
        by: Some("board".to_owned()),
        pending: Some(edit),
    }
}

fn shown(file: &File, as_of: Option<Instant>, pending: Option<Edit>) -> Option<FileContents> {
    let text = file.text.clone()?;
    Some(FileContents {
        path: file.path.clone(),
        hash: text.hash,
        size: text.content.len() as u64,
        mtime: file.mtime,
        from: 0,
        bytes: text.content.into_bytes(),
        as_of,
        by: Some(file.changed_by.clone()),
        pending,
    })
}

/// Reads a file of the workspace or of a space from the machine: a small one whole, a piece of a large one. `None` when
/// the viber is away.
pub async fn fetch(
    board: &Board,
    viber: &ViberId,
    space: Option<&str>,
    path: &str,
    from: Option<u64>,
) -> Result<Option<FileContents>> {
    let method = if space.is_some() { "space.read" } else { "workspace.read" };
    let mut lies = false;
    for _ in 0..MAX_READ_ATTEMPTS {
        let start = from.unwrap_or(0);
        let mut whole: Option<FileContents> = None;
        loop {
            let offset = start + whole.as_ref().map_or(0, |shown| shown.bytes.len() as u64);
            let params = json!({ "space": space, "path": path, "offset": offset, "limit": limits::MAX_PIECE_BYTES });
            let ViberAnswer::Value(value) = ask(board, viber, method, params).await? else { return Ok(None) };
            let piece: FilePiece = serde_json::from_value(value).map_err(|_| strange())?;
            let bytes = BASE64_STANDARD.decode(&piece.content).map_err(|_| strange())?;
            let sized = bytes.len() as u64 <= limits::MAX_PIECE_BYTES && piece.size <= i64::MAX as u64;
            if !sized || piece.hash.is_empty() || piece.hash.len() > 64 || !piece.hash.is_ascii() {
                return Err(strange());
            }
            let ends = bytes.is_empty();
            let shown = whole.get_or_insert_with(|| FileContents {
                path: path.to_owned(),
                hash: piece.hash.clone(),
                size: piece.size,
                mtime: piece.mtime,
                from: start,
                bytes: Vec::new(),
                as_of: None,
                by: None,
                pending: None,
            });
            lies = false;
            if shown.hash != piece.hash {
                // It changed while it was read.
                break;
            }
            shown.bytes.extend(bytes);
            let read = shown.bytes.len() as u64;
            let all = start + read >= shown.size || ends;
            if all || shown.size > limits::MAX_TEXT_FILE_BYTES || from.is_some() {
                let whole_of = all && start == 0 && !shown.hash.starts_with('~');
                lies = whole_of && shown.hash != super::hash(&shown.bytes);
                if lies {
                    break;
                }
                return Ok(whole);
            }
        }
    }
    let changes = Error::Unavailable { what: "the file, which changes all the time,", retry_after: 2 };
    Err(if lies { strange() } else { changes })
}

/// Files whose names contain `query`, and lines that do, as the machine finds them now.
pub async fn search(board: &Board, team: &TeamId, id: &ViberId, query: &str) -> Result<FileMatches> {
    viber(board, team, id).await?;
    match ask(board, id, "workspace.search", json!({ "query": query })).await? {
        ViberAnswer::Value(value) => {
            let found: FileMatches = serde_json::from_value(value).map_err(|_| strange())?;
            if found.hits.len() > limits::MAX_ENTRIES { Err(strange()) } else { Ok(found) }
        }
        ViberAnswer::Away => {
            Err(Error::conflict(VIBER_AWAY, "the viber is away: its files can be searched only while it is connected"))
        }
    }
}

/// Remembers a file that was read.
async fn keep(board: &Board, team: &TeamId, viber: &ViberId, shown: &FileContents) -> Result<()> {
    let now = board.clock.now();
    let heard = FileReport {
        path: shown.path.clone(),
        hash: Some(shown.hash.clone()),
        size: shown.size,
        mtime: shown.mtime,
        by: shown.by.clone().unwrap_or_else(|| "file".to_owned()),
    };
    let text = shown.text().filter(|_| shown.from == 0);
    let text = text.map(|text| FileText { content: text.to_owned(), hash: shown.hash.clone(), at: now });
    let viber = viber.clone();
    let keeping = board.db.change(team, &By::board(), now, move |tx| {
        let (viber, heard, text) = (viber.clone(), heard.clone(), text.clone());
        Box::pin(async move {
            db::files::record_report(tx, &viber, &heard).await?;
            match text {
                Some(text) => db::files::keep_text(tx, &viber, &heard.path, &text).await,
                None => Ok(()),
            }
        })
    });
    Ok(keeping.await?)
}

/// Remembers that a file no longer exists.
async fn gone(board: &Board, team: &TeamId, viber: &ViberId, path: &str) -> Result<()> {
    let viber = viber.clone();
    let heard = FileReport { path: path.to_owned(), hash: None, size: 0, mtime: None, by: "file".to_owned() };
    let hearing = board.change(team, &By::board(), move |tx| {
        let (viber, heard) = (viber.clone(), heard.clone());
        Box::pin(async move { db::files::record_report(tx, &viber, &heard).await })
    });
    Ok(hearing.await?)
}

fn away() -> Error {
    Error::conflict(VIBER_AWAY, "the viber is away, and nobody has looked at this before")
}

fn strange() -> Error {
    Error::unacceptable("viber_refused", "the viber's answer is not understood")
}
