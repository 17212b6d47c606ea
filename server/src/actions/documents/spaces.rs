//! Reading the spaces of a viber's agents. The Board remembers nothing of them: while the viber is away there is nothing
//! to show.

use base64::{Engine, prelude::BASE64_STANDARD};
use protocol::{
    DiffPiece, Listing, SessionId, SpaceLog, SpaceStatus, TeamId, ViberId,
    limits::{MAX_ENTRIES, MAX_PIECE_BYTES},
    path,
    space::{MAX_CHANGES, MAX_COMMITS, MAX_DIFF_BYTES},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    actions::files::{self, FileContents, VIBER_AWAY},
    db,
    domain::{Space, Viber},
    error::{Error, Result},
    hub::RequestError,
    state::Board,
};

/// How long a viber may take to answer: its git may run for ten seconds.
const ANSWER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(14);
/// How often the diff of a file that changes meanwhile is read again.
const MAX_READ_ATTEMPTS: usize = 3;

/// One space of one viber.
#[derive(Clone, Debug)]
pub struct ViberSpace {
    pub viber: Viber,
    pub space: Space,
}

/// What changed in one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// A unified diff; what is not UTF-8 in it is replaced.
    pub text: String,
    pub binary: bool,
    /// The rest is left out.
    pub cut: bool,
}

/// The file whose diff is read.
#[derive(Clone, Debug, Default)]
pub struct DiffPaths<'a> {
    pub path: &'a str,
    /// The name it had before it was renamed.
    pub from: Option<&'a str>,
}

/// The spaces of a viber.
pub async fn all(board: &Board, team: &TeamId, id: &ViberId) -> Result<(Viber, Vec<Space>)> {
    let found = db::vibers::load(&mut board.db.reader_of(team).await?, id).await?;
    let viber = found.ok_or(Error::NotFound)?;
    let spaces = Space::all(&viber.agents);
    Ok((viber, spaces))
}

impl ViberSpace {
    /// The space `space` of a viber; one that no agent declares does not exist.
    pub async fn find(board: &Board, team: &TeamId, id: &ViberId, space: &str) -> Result<Self> {
        let (viber, spaces) = all(board, team, id).await?;
        let space = spaces.into_iter().find(|one| one.id == space).ok_or(Error::NotFound)?;
        Ok(Self { viber, space })
    }

    /// A folder of it, from its entry number `from` on.
    pub async fn list(&self, board: &Board, path: &str, from: u64) -> Result<Listing> {
        path::folder(path).map_err(|bad| Error::unacceptable("forbidden_path", bad.to_string()))?;
        let listing: Listing = self.ask(board, "space.list", json!({ "path": path, "from": from })).await?;
        if listing.entries.len() > MAX_ENTRIES {
            return Err(strange());
        }
        Ok(Listing { path: path.to_owned(), from, ..listing })
    }

    /// A file of it; of a file too large to be shown whole, the bytes from `from` on.
    pub async fn read(&self, board: &Board, path: &str, from: Option<u64>) -> Result<FileContents> {
        path::file(path).map_err(|bad| Error::unacceptable("forbidden_path", bad.to_string()))?;
        let space = Some(self.space.id.as_str());
        files::fetch(board, &self.viber.id, space, path, from).await?.ok_or_else(away)
    }

    /// The branch, and what changed since the session's work began, or since the last commit.
    pub async fn status(&self, board: &Board, session: Option<&SessionId>) -> Result<SpaceStatus> {
        let status: SpaceStatus = self.ask(board, "space.status", json!({ "session": session })).await?;
        if status.changes.len() > MAX_CHANGES {
            return Err(strange());
        }
        Ok(status)
    }

    /// Commits, newest first.
    pub async fn log(
        &self,
        board: &Board,
        session: Option<&SessionId>,
        (from, limit): (u64, usize),
    ) -> Result<SpaceLog> {
        let asked = json!({ "from": from, "limit": limit.clamp(1, MAX_COMMITS), "session": session });
        let log: SpaceLog = self.ask(board, "space.log", asked).await?;
        let known = |hash: &str| (40..=64).contains(&hash.len()) && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        if log.commits.len() > MAX_COMMITS || !log.commits.iter().all(|commit| known(&commit.hash)) {
            return Err(strange());
        }
        Ok(log)
    }

    /// What changed in one file.
    pub async fn diff(&self, board: &Board, which: &DiffPaths<'_>, session: Option<&SessionId>) -> Result<Difference> {
        for path in which.from.iter().chain([&which.path]) {
            path::file(path).map_err(|bad| Error::unacceptable("forbidden_path", bad.to_string()))?;
        }
        for _ in 0..MAX_READ_ATTEMPTS {
            let (mut bytes, mut first) = (Vec::new(), None::<DiffPiece>);
            loop {
                let asked =
                    json!({ "path": which.path, "from": which.from, "session": session, "offset": bytes.len() });
                let piece: DiffPiece = self.ask(board, "space.diff", asked).await?;
                let more = BASE64_STANDARD.decode(&piece.content).map_err(|_| strange())?;
                if more.len() as u64 > MAX_PIECE_BYTES || piece.size > MAX_DIFF_BYTES as u64 {
                    return Err(strange());
                }
                let first = first.get_or_insert_with(|| piece.clone());
                if first.hash != piece.hash || first.size != piece.size {
                    // It changed meanwhile.
                    break;
                }
                let ends = more.is_empty();
                bytes.extend(more);
                if ends || bytes.len() as u64 >= piece.size {
                    let text = String::from_utf8_lossy(&bytes).replace('\0', "\u{fffd}");
                    return Ok(Difference { text, binary: piece.binary, cut: piece.cut });
                }
            }
        }
        Err(Error::Unavailable { what: "the file, which changes all the time,", retry_after: 2 })
    }

    async fn ask<T: DeserializeOwned>(&self, board: &Board, method: &str, mut params: Value) -> Result<T> {
        params["space"] = json!(self.space.id);
        match board.hub.request(&self.viber.id, method, params, ANSWER_TIMEOUT).await {
            Ok(value) => serde_json::from_value(value).map_err(|_| strange()),
            Err(RequestError::Refused(told)) => Err(files::refusal(&told)),
            Err(RequestError::Disconnected) => Err(away()),
            Err(RequestError::TimedOut | RequestError::Busy) => {
                Err(Error::unacceptable("viber_busy", "the viber does not answer right now: try again in a moment"))
            }
        }
    }
}

fn away() -> Error {
    Error::conflict(VIBER_AWAY, "the viber is away: a space can be seen only while it is connected")
}

fn strange() -> Error {
    Error::unacceptable("viber_refused", "the viber's answer is not understood")
}
