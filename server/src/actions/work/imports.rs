//! Sessions that a machine remembers and the Board does not: listed, looked at and imported.
//!
//! A log is the machine's own account: nothing of it reaches beyond its viber's team. A session that the Board has under
//! another viber or team is treated as unknown. Each line is imported once.

mod import;
mod log_batch;

use std::time::Duration;

use protocol::{LogPlace, LoggedSession, SessionId, SessionList, SessionPiece, TeamId, ViberId, sessions, text::head};
use serde_json::json;

use crate::{
    actions::unanswered::refused,
    db,
    domain::{
        Session, Viber,
        logbook::{Logbook, LoggedTask},
    },
    error::{Error, Result},
    state::Board,
};

pub use import::{go_on, import};

/// How long a viber may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);
/// Requests that one list makes to the viber to find sessions that are unknown here.
const MAX_LIST_REQUESTS: usize = 5;
/// Lines of a log in one excerpt.
const MAX_EXCERPT_LINES: usize = 400;
/// Text of a log in one excerpt, bytes.
const MAX_EXCERPT_BYTES: usize = 256 * 1024;
/// Longest title of a log, bytes.
const MAX_TITLE_BYTES: usize = 400;

/// A session in a machine's own log.
#[derive(Clone, Debug)]
pub struct MachineSession {
    pub logged: LoggedSession,
    /// The Board has the session, but not its last task.
    pub behind: bool,
    /// Lines of its log that were imported.
    pub taken: u64,
}

/// An excerpt of a log.
#[derive(Clone, Debug)]
pub struct LogExcerpt {
    pub agent: String,
    pub title: String,
    pub tasks: Vec<LoggedTask>,
    /// Where the log continues.
    pub next: Option<LogPlace>,
    /// It ends before a task that still runs, or that is still being reported.
    pub runs: bool,
    /// The Board has the session.
    pub known: bool,
}

/// What an import brought.
#[derive(Clone, Debug)]
pub struct ImportResult {
    pub session: Session,
    pub tasks: u64,
    /// Tasks that were refused because their ids belong to others.
    pub refused: u64,
    /// There is more, and the import continues in the background.
    pub more: bool,
}

async fn viber(board: &Board, team: &TeamId, id: &ViberId) -> Result<Viber> {
    let found = db::vibers::load(&mut board.db.reader_of(team).await?, id).await?;
    found.ok_or(Error::NotFound)
}

/// The sessions of a machine that the Board does not have, or not completely, from number `from` on, and where the rest
/// begins.
pub async fn list(board: &Board, team: &TeamId, id: &ViberId, from: u64) -> Result<(Vec<MachineSession>, Option<u64>)> {
    viber(board, team, id).await?;
    let (mut all, mut next) = (Vec::new(), Some(from));
    for _ in 0..MAX_LIST_REQUESTS {
        let Some(from) = next else { break };
        let answer =
            board.hub.request(id, "session.list", json!({ "from": from }), ANSWER_TIMEOUT).await.map_err(refused)?;
        let mut listed: SessionList = serde_json::from_value(answer).map_err(|_| strange())?;
        listed.items.truncate(sessions::MAX_SESSIONS);
        // A list that does not advance has ended.
        next = listed.next.filter(|next| *next > from && !listed.items.is_empty());
        all.extend(unknown(board, team, id, listed.items).await?);
        if all.len() >= sessions::MAX_SESSIONS / 2 {
            break;
        }
    }
    Ok((all, next))
}

async fn unknown(
    board: &Board,
    team: &TeamId,
    id: &ViberId,
    listed: Vec<LoggedSession>,
) -> Result<Vec<MachineSession>> {
    let mut tx = board.db.reader_of(team).await?;
    let mut kept = Vec::new();
    for mut logged in listed {
        logged.title = head(&logged.title, MAX_TITLE_BYTES).to_owned();
        logged.agent_id = head(&logged.agent_id, 100).to_owned();
        let known = db::sessions::load(&mut tx, &logged.session_id).await?;
        let behind = match (&known, &logged.last_task_id) {
            (Some(session), Some(task)) if session.viber_id == *id => db::tasks::load(&mut tx, task).await?.is_none(),
            _ => false,
        };
        if known.is_none() || behind {
            let taken = match behind {
                true => db::imports::position(&mut tx, &logged.session_id).await?.line,
                false => 0,
            };
            kept.push(MachineSession { logged, behind, taken });
        }
    }
    Ok(kept)
}

/// A piece of a log from `from` on.
async fn piece(
    board: &Board,
    id: &ViberId,
    session: &SessionId,
    agent: Option<&str>,
    from: LogPlace,
) -> Result<SessionPiece> {
    let mut params = json!({ "sessionId": session, "from": from, "limit": sessions::MAX_LINES });
    if let Some(agent) = agent {
        params["agentId"] = agent.into();
    }
    let answer = board.hub.request(id, "session.log", params, ANSWER_TIMEOUT).await.map_err(refused)?;
    let mut piece: SessionPiece = serde_json::from_value(answer).map_err(|_| strange())?;
    let ordered = piece.lines.iter().zip(from.line + 1..).all(|(line, seq)| line.seq == seq);
    let rising = piece.lines.iter().try_fold(from.at, |at, line| (line.end > at).then_some(line.end)).is_some();
    let ends = piece.lines.last().map_or(from, |last| LogPlace { line: last.seq, at: last.end });
    let on = piece.next.is_none_or(|next| next == ends && !piece.lines.is_empty());
    let sized = ends.line < 1 << 53 && ends.at < 1 << 53 && piece.lines.len() <= sessions::MAX_LINES;
    if piece.session_id != *session || !ordered || !rising || !on || !sized {
        return Err(strange());
    }
    piece.title = db::clean(head(&piece.title, MAX_TITLE_BYTES));
    piece.agent_id = db::clean(head(&piece.agent_id, 100));
    Ok(piece)
}

/// An excerpt of a session's log, from `from` on.
pub async fn look(
    board: &Board,
    team: &TeamId,
    id: &ViberId,
    session: &SessionId,
    from: LogPlace,
) -> Result<LogExcerpt> {
    viber(board, team, id).await?;
    let known = ours(board, team, id, session).await?;
    let mut book = Logbook::new(board.clock.now());
    let (mut place, mut count, mut agent) = (from, 0, None);
    loop {
        let piece = piece(board, id, session, agent.as_deref(), place).await?;
        let (mut next, mut runs) = (piece.next, false);
        for line in &piece.lines {
            if !book.read(line, &piece.open) {
                (next, runs) = (None, true);
                break;
            }
            place = LogPlace { line: line.seq, at: line.end };
            count += 1;
            if count >= MAX_EXCERPT_LINES || book.bytes() >= MAX_EXCERPT_BYTES {
                let last = piece.lines.last().is_some_and(|last| last.seq == line.seq);
                next = if last { piece.next } else { Some(place) };
                break;
            }
        }
        let full = count >= MAX_EXCERPT_LINES || book.bytes() >= MAX_EXCERPT_BYTES;
        if let Some(next) = next.filter(|_| !full) {
            (place, agent) = (next, Some(piece.agent_id));
            continue;
        }
        let SessionPiece { agent_id, title, .. } = piece;
        return Ok(LogExcerpt { agent: agent_id, title, tasks: book.finish(), next, runs, known: known.is_some() });
    }
}

/// The session, if the Board has it under this viber. One of another viber is not found.
async fn ours(board: &Board, team: &TeamId, id: &ViberId, session: &SessionId) -> Result<Option<Session>> {
    let found = db::sessions::load(&mut board.db.reader_of(team).await?, session).await?;
    match found {
        Some(found) if found.viber_id != *id => Err(Error::NotFound),
        found => Ok(found),
    }
}

fn strange() -> Error {
    Error::unacceptable("viber_refused", "the viber's answer is not understood")
}
