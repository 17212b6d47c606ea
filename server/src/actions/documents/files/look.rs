//! Looking at a workspace: what the machine says while it is there, and what is remembered while it is not.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use protocol::{Found, Instant, Listing, Piece, TeamId, ViberId, WriteOp, limits, path};
use serde::Deserialize;
use serde_json::{Value, json};

use super::heard;
use crate::{
    db,
    domain::{By, Connection, Edit, File, Heard, Text, Viber},
    error::{Error, Result},
    hub::RequestError,
    state::Board,
};

/// The code of a refusal because there is nothing to show while a viber is away.
pub const AWAY: &str = "viber_away";
/// How long a viber may take to answer, before what is remembered is shown.
const ANSWER: Duration = Duration::from_secs(8);
/// A file that changes while it is read is read again so often.
const TRIES: usize = 3;
/// Files that were looked at and may have changed while their viber was away: asked about at once.
const ASKED: u64 = 500;

/// A file as it is shown.
#[derive(Clone, Debug)]
pub struct Shown {
    pub path: String,
    pub hash: String,
    pub size: u64,
    pub mtime: Option<Instant>,
    /// Where the bytes begin, and the bytes: all of a small file, a part of a large one.
    pub from: u64,
    pub bytes: Vec<u8>,
    /// Since when this may be old; `None`: it is so on the machine now.
    pub as_of: Option<Instant>,
    /// Who changed it last, if that was heard.
    pub by: Option<String>,
    /// A change made here that its viber has not made yet: what is shown is what it will be.
    pub pending: Option<Edit>,
}

impl Shown {
    /// Whether the bytes are not all of it.
    pub fn is_part(&self) -> bool {
        self.bytes.len() as u64 != self.size
    }

    /// Its text, if it is one and all here.
    pub fn text(&self) -> Option<&str> {
        let text = std::str::from_utf8(&self.bytes).ok()?;
        (!self.is_part() && !text.contains('\0')).then_some(text)
    }
}

/// A folder as it is shown.
#[derive(Clone, Debug)]
pub struct Folder {
    pub listing: Listing,
    /// Since when this may be old; `None`: it is so on the machine now.
    pub as_of: Option<Instant>,
}

/// What a viber may answer beside what was asked for.
enum Answer {
    Value(Value),
    /// It is not there, or too busy: what is remembered has to do.
    Away,
}

async fn ask(board: &Board, viber: &ViberId, method: &str, params: Value) -> Result<Answer> {
    let told = match board.hub.request(viber, method, params, ANSWER).await {
        Ok(value) => return Ok(Answer::Value(value)),
        Err(RequestError::Refused(told)) => told,
        Err(RequestError::Disconnected | RequestError::TimedOut | RequestError::Busy) => return Ok(Answer::Away),
    };
    Err(refusal(&told))
}

/// What a viber's refusal to show something means here: it begins with a word that both ends know.
pub fn refusal(told: &str) -> Error {
    let (code, why) = told.split_once(": ").unwrap_or((told, told));
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
pub async fn list(board: &Board, team: &TeamId, id: &ViberId, path: &str, from: u64) -> Result<Folder> {
    path::folder(path).map_err(|bad| Error::unacceptable("forbidden_path", bad.to_string()))?;
    viber(board, team, id).await?;
    if let Answer::Value(value) = ask(board, id, "workspace.list", json!({ "path": path, "from": from })).await? {
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
        return Ok(Folder { listing, as_of: None });
    }
    let kept = db::listings::load(&mut board.db.reader_of(team).await?, id, path).await?;
    match kept {
        Some((listing, at)) if from == 0 => Ok(Folder { listing, as_of: Some(at) }),
        _ => Err(away()),
    }
}

/// The file at `path`; of one that is too large to be shown whole the bytes from `from` on.
pub async fn read(board: &Board, team: &TeamId, id: &ViberId, path: &str, from: Option<u64>) -> Result<Shown> {
    path::file(path).map_err(|bad| Error::unacceptable("forbidden_path", bad.to_string()))?;
    let viber = viber(board, team, id).await?;
    let (file, pending) = {
        let mut tx = board.db.reader_of(team).await?;
        let pending = db::edits::pending(&mut tx, id, path).await?;
        (db::files::load(&mut tx, id, path).await?, pending)
    };
    let connected = board.hub.is_connected(id);
    // What was heard on this connection is what is there: nothing has to be asked.
    let current = |file: &&File| {
        file.heard_at >= viber.contact.since && file.text.as_ref().map(|text| &text.hash) == file.hash.as_ref()
    };
    if connected && let Some(file) = file.as_ref().filter(current) {
        return shown(file, None, None).ok_or(Error::NotFound);
    }
    if connected {
        match fetch(board, id, None, path, from).await {
            Ok(Some(fresh)) => {
                let by = file.filter(|file| file.hash.as_ref() == Some(&fresh.hash)).map(|file| file.changed_by);
                let fresh = Shown { by, ..fresh };
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

/// The file that will be there when its viber is back.
fn of_pending(edit: Edit) -> Shown {
    let bytes = edit.content.clone().unwrap_or_default().into_bytes();
    Shown {
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

fn shown(file: &File, as_of: Option<Instant>, pending: Option<Edit>) -> Option<Shown> {
    let text = file.text.clone()?;
    Some(Shown {
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

/// Reads from the machine, from the workspace or a space: all of a small file, a piece of a large one; `None` when it is
/// away.
pub async fn fetch(
    board: &Board,
    viber: &ViberId,
    space: Option<&str>,
    path: &str,
    from: Option<u64>,
) -> Result<Option<Shown>> {
    let method = if space.is_some() { "space.read" } else { "workspace.read" };
    let mut lies = false;
    for _ in 0..TRIES {
        let start = from.unwrap_or(0);
        let mut whole: Option<Shown> = None;
        loop {
            let offset = start + whole.as_ref().map_or(0, |shown| shown.bytes.len() as u64);
            let params = json!({ "space": space, "path": path, "offset": offset, "limit": limits::MAX_PIECE });
            let Answer::Value(value) = ask(board, viber, method, params).await? else { return Ok(None) };
            let piece: Piece = serde_json::from_value(value).map_err(|_| strange())?;
            let bytes = BASE64_STANDARD.decode(&piece.content).map_err(|_| strange())?;
            let sized = bytes.len() as u64 <= limits::MAX_PIECE && piece.size <= i64::MAX as u64;
            if !sized || piece.hash.is_empty() || piece.hash.len() > 64 || !piece.hash.is_ascii() {
                return Err(strange());
            }
            let ends = bytes.is_empty();
            let shown = whole.get_or_insert_with(|| Shown {
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
            if all || shown.size > limits::MAX_TEXT_FILE || from.is_some() {
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

/// Files whose names hold `query`, and lines that do, as the machine finds them now.
pub async fn search(board: &Board, team: &TeamId, id: &ViberId, query: &str) -> Result<Found> {
    viber(board, team, id).await?;
    match ask(board, id, "workspace.search", json!({ "query": query })).await? {
        Answer::Value(value) => {
            let found: Found = serde_json::from_value(value).map_err(|_| strange())?;
            if found.hits.len() > limits::MAX_ENTRIES { Err(strange()) } else { Ok(found) }
        }
        Answer::Away => {
            Err(Error::conflict(AWAY, "the viber is away: its files can be searched only while it is connected"))
        }
    }
}

/// Remembers a text that was read.
async fn keep(board: &Board, team: &TeamId, viber: &ViberId, shown: &Shown) -> Result<()> {
    let now = board.clock.now();
    let heard = Heard {
        path: shown.path.clone(),
        hash: Some(shown.hash.clone()),
        size: shown.size,
        mtime: shown.mtime,
        by: shown.by.clone().unwrap_or_else(|| "file".to_owned()),
    };
    let text = shown.text().filter(|_| shown.from == 0);
    let text = text.map(|text| Text { content: text.to_owned(), hash: shown.hash.clone(), at: now });
    let viber = viber.clone();
    let keeping = board.db.change(team, &By::board(), now, move |tx| {
        let (viber, heard, text) = (viber.clone(), heard.clone(), text.clone());
        Box::pin(async move {
            db::files::hear(tx, &viber, &heard).await?;
            match text {
                Some(text) => db::files::keep(tx, &viber, &heard.path, &text).await,
                None => Ok(()),
            }
        })
    });
    Ok(keeping.await?)
}

/// Remembers that a file is not there any more.
async fn gone(board: &Board, team: &TeamId, viber: &ViberId, path: &str) -> Result<()> {
    let viber = viber.clone();
    let heard = Heard { path: path.to_owned(), hash: None, size: 0, mtime: None, by: "file".to_owned() };
    let hearing = board.change(team, &By::board(), move |tx| {
        let (viber, heard) = (viber.clone(), heard.clone());
        Box::pin(async move { db::files::hear(tx, &viber, &heard).await })
    });
    Ok(hearing.await?)
}

#[derive(Deserialize)]
struct Version {
    hash: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    mtime: Option<Instant>,
}

/// A viber is back: what changed meanwhile of the files that people look at.
pub async fn catch_up(board: Board, connection: Connection) {
    let known = async {
        db::files::looked_at(&mut board.db.reader_of(&connection.team).await?, &connection.viber, ASKED).await
    };
    let known = known.await.unwrap_or_default();
    if known.is_empty() {
        return;
    }
    let paths: Vec<&str> = known.iter().map(|(path, _)| path.as_str()).collect();
    // A viber that does not answer is asked again when somebody looks.
    let Ok(Answer::Value(mut value)) =
        ask(&board, &connection.viber, "workspace.hashes", json!({ "paths": paths })).await
    else {
        return;
    };
    let now: BTreeMap<String, Option<Version>> = serde_json::from_value(value["files"].take()).unwrap_or_default();
    let changed = known.into_iter().filter_map(|(path, before)| {
        let version = now.get(&path)?;
        let hash = version.as_ref().map(|version| version.hash.clone());
        let (size, mtime) = version.as_ref().map_or((0, None), |version| (version.size, version.mtime));
        (hash != before).then(|| Heard { path, hash, size, mtime, by: "file".to_owned() })
    });
    let changed: Vec<Heard> = changed.collect();
    if !changed.is_empty()
        && let Err(error) = heard(&board, &connection, changed).await
    {
        tracing::warn!(viber.id = %connection.viber, %error, "what changed on a viber could not be kept");
    }
}

fn away() -> Error {
    Error::conflict(AWAY, "the viber is away, and nobody has looked at this before")
}

fn strange() -> Error {
    Error::unacceptable("viber_refused", "the viber's answer is not understood")
}
