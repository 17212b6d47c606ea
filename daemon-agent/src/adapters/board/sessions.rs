//! Sessions that only this machine has recorded, for a Board that does not know them: `session.list {from?}` and
//! `session.log {sessionId, agentId?, from?, limit?}`.
//!
//! A log may contain anything, of any size. It is read in pieces; of a line that is no JSON object or is too long, only
//! the size is reported. Logs are opened beneath the home, never through a link.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    os::fd::{AsRawFd, OwnedFd},
};

use protocol::{
    AttemptRef, Instant, LogPlace, LoggedLine, LoggedSession, SessionId, SessionList, SessionPiece, TaskId,
    sessions::{MAX_LINE_BYTES, MAX_LINES, MAX_LINES_BYTES, MAX_SESSIONS},
    text::{head_and_tail, title},
};
use rustix::{
    fs::{Dir, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};
use serde_json::Value;

use crate::{home::Home, mesh::Mesh};

/// Most logs of a machine that are looked at; further ones are not listed.
const MAX_LOGS: usize = 20_000;
/// Bytes that a single list may read to count lines.
const MAX_COUNTED_BYTES: u64 = 64 * 1024 * 1024;
/// Bytes at each end of a log that are searched for its title and its last task.
const EDGE_BYTES: u64 = 128 * 1024;
/// Longest part of a line that is read, bytes.
const MAX_READ_LINE_BYTES: usize = 1024 * 1024;
/// A longer text within a line is shortened to its two ends, bytes.
const MAX_TEXT_BYTES: usize = 48 * 1024;

/// Answers a request about sessions.
pub async fn answer(mesh: &Mesh, method: &str, params: &Value) -> Result<Value, String> {
    let (home, params) = (mesh.home().clone(), params.clone());
    let open: BTreeSet<AttemptRef> = mesh.unsettled().into_iter().collect();
    let lists = method == "session.list";
    let looked = move || {
        let looked = if lists { list(&home, &params) } else { log(&home, &params, &open) };
        looked.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => "not_found: this machine has no such log".to_owned(),
            _ => format!("unreadable: {error}"),
        })
    };
    tokio::task::spawn_blocking(looked).await.map_err(|error| error.to_string())?
}

/// A log and what its folder says about it.
struct SessionLogFile {
    agent: String,
    session: SessionId,
    mtime: i64,
    bytes: u64,
}

fn list(home: &Home, params: &Value) -> io::Result<Value> {
    let from = params["from"].as_u64().and_then(|from| usize::try_from(from).ok()).unwrap_or(0);
    let mut all = found(home)?;
    all.sort_by(|a, b| (b.mtime, &b.session).cmp(&(a.mtime, &a.session)));
    let end = from.saturating_add(MAX_SESSIONS).min(all.len());
    let mut budget = MAX_COUNTED_BYTES;
    let items = all.get(from..end).unwrap_or_default().iter().map(|log| logged(home, log, &mut budget)).collect();
    let next = (end < all.len()).then_some(end as u64);
    Ok(serde_json::to_value(SessionList { items, next })?)
}

/// All logs of all agents.
fn found(home: &Home) -> io::Result<Vec<SessionLogFile>> {
    let mut all = Vec::new();
    for agent in names(home, "agents")? {
        let folder = format!("agents/{agent}/sessions");
        for name in names(home, &folder).unwrap_or_default() {
            let session = name.strip_suffix(".jsonl").and_then(|id| id.parse::<SessionId>().ok());
            let Some(session) = session else { continue };
            let Ok(file) = open_log(home, &agent, &session) else { continue };
            let Ok(meta) = file.metadata() else { continue };
            let at = meta.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
            let mtime = at.and_then(|at| i64::try_from(at.as_millis()).ok()).unwrap_or_default();
            all.push(SessionLogFile { agent: agent.clone(), session, mtime, bytes: meta.len() });
            if all.len() >= MAX_LOGS {
                return Ok(all);
            }
        }
    }
    Ok(all)
}

/// Names in a folder that could belong to an agent or a log.
fn names(home: &Home, way: &str) -> io::Result<Vec<String>> {
    let folder = match open(home, way, OFlags::RDONLY | OFlags::DIRECTORY) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut names = Vec::new();
    for entry in Dir::new(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if is_plain(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

fn is_plain(name: &str) -> bool {
    let plain = |c: char| !c.is_control() && !matches!(c, '/' | '\\' | char::REPLACEMENT_CHARACTER);
    !name.is_empty() && !name.starts_with('.') && name.len() <= 200 && name.chars().all(plain)
}

fn logged(home: &Home, log: &SessionLogFile, budget: &mut u64) -> LoggedSession {
    let mut session = LoggedSession {
        session_id: log.session.clone(),
        agent_id: log.agent.clone(),
        title: String::new(),
        at: (log.mtime > 0).then_some(Instant(log.mtime)),
        lines: None,
        bytes: log.bytes,
        last_task_id: None,
    };
    let Ok(mut file) = open_log(home, &log.agent, &log.session) else { return session };
    session.title = titled(&mut file).unwrap_or_default();
    session.last_task_id = last_task(&mut file, log.bytes);
    if let Some(left) = budget.checked_sub(log.bytes) {
        *budget = left;
        session.lines = count(&mut file).ok();
    }
    session
}

/// The title, from the goal in the first line.
fn titled(file: &mut File) -> Option<String> {
    file.rewind().ok()?;
    let mut first = Vec::new();
    BufReader::new(file.take(EDGE_BYTES)).read_until(b'\n', &mut first).ok()?;
    let line: Value = serde_json::from_slice(&first).ok()?;
    (line["type"] == "goal").then(|| line["text"].as_str().map(title))?
}

/// The task of the last line that names one.
fn last_task(file: &mut File, bytes: u64) -> Option<TaskId> {
    file.seek(SeekFrom::Start(bytes.saturating_sub(EDGE_BYTES))).ok()?;
    let mut end = Vec::new();
    file.take(EDGE_BYTES).read_to_end(&mut end).ok()?;
    let named = |line: &[u8]| serde_json::from_slice::<Value>(line).ok()?["taskId"].as_str()?.parse().ok();
    end.split(|byte| *byte == b'\n').rev().find_map(named)
}

fn count(file: &mut File) -> io::Result<u64> {
    file.rewind()?;
    let (mut piece, mut lines) = (vec![0; 256 * 1024], 0);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(lines),
            read => lines += piece[..read].iter().filter(|byte| **byte == b'\n').count() as u64,
        }
    }
}

fn log(home: &Home, params: &Value, open: &BTreeSet<AttemptRef>) -> io::Result<Value> {
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    let session: SessionId = params["sessionId"].as_str().and_then(|id| id.parse().ok()).ok_or_else(missing)?;
    let agent = match params["agentId"].as_str() {
        Some(agent) if is_plain(agent) => agent.to_owned(),
        Some(_) => return Err(missing()),
        None => {
            let has = |agent: &String| open_log(home, agent, &session).is_ok();
            names(home, "agents")?.into_iter().find(has).ok_or_else(missing)?
        }
    };
    let mut file = open_log(home, &agent, &session)?;
    let title = titled(&mut file).unwrap_or_default();
    let from: LogPlace = serde_json::from_value(params["from"].clone()).unwrap_or_default();
    let limit = params["limit"].as_u64().and_then(|limit| usize::try_from(limit).ok()).unwrap_or(MAX_LINES);
    let (lines, next) = read(file, from, limit.clamp(1, MAX_LINES))?;
    let open: BTreeSet<AttemptRef> =
        lines.iter().filter_map(attempt).filter(|attempt| open.contains(attempt)).collect();
    let open = open.into_iter().collect();
    Ok(serde_json::to_value(SessionPiece { session_id: session, agent_id: agent, title, lines, next, open })?)
}

/// Reads lines from `from` on, and returns where the rest begins.
fn read(mut file: File, from: LogPlace, limit: usize) -> io::Result<(Vec<LoggedLine>, Option<LogPlace>)> {
    let size = file.metadata()?.len();
    let moved = || io::Error::other("the log is not the one that was read before");
    if from.at > size {
        return Err(moved());
    }
    if from.at > 0 {
        let mut before = [0];
        file.seek(SeekFrom::Start(from.at - 1))?;
        file.read_exact(&mut before)?;
        if before != *b"\n" {
            return Err(moved());
        }
    }
    file.seek(SeekFrom::Start(from.at))?;
    let mut reader = BufReader::with_capacity(64 * 1024, file);
    let (mut lines, mut room, mut place) = (Vec::new(), MAX_LINES_BYTES, from);
    while let Some((bytes, text)) = next_line(&mut reader)? {
        let line = text.and_then(|text| logged_object(&text));
        let cost = 96 + line.as_ref().map_or(0, |line| line.to_string().len());
        if lines.len() >= limit || (cost > room && !lines.is_empty()) {
            return Ok((lines, Some(place)));
        }
        room = room.saturating_sub(cost);
        place = LogPlace { line: place.line + 1, at: place.at + bytes };
        lines.push(LoggedLine { seq: place.line, end: place.at, bytes, line });
    }
    Ok((lines, None))
}

/// The next complete line: its size with the line end, and its text unless it is too long.
fn next_line(reader: &mut impl BufRead) -> io::Result<Option<(u64, Option<Vec<u8>>)>> {
    let mut text = Vec::new();
    reader.by_ref().take(MAX_READ_LINE_BYTES as u64 + 1).read_until(b'\n', &mut text)?;
    let mut bytes = text.len() as u64;
    if text.pop_if(|last| *last == b'\n').is_some() {
        return Ok(Some((bytes, Some(text))));
    }
    if text.len() <= MAX_READ_LINE_BYTES {
        // The line is still being written, or a crash cut it off; the next writer will end it.
        return Ok(None);
    }
    loop {
        let piece = match reader.fill_buf() {
            Ok([]) => return Ok(None),
            Ok(piece) => piece,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = if piece.contains(&b'\n') { piece.iter().position(|byte| *byte == b'\n') } else { None };
        let taken = end.map_or(piece.len(), |end| end + 1);
        bytes += taken as u64;
        reader.consume(taken);
        if end.is_some() {
            return Ok(Some((bytes, None)));
        }
    }
}

/// A line as it is reported: an object whose long texts are shortened to their ends.
fn logged_object(text: &[u8]) -> Option<Value> {
    let mut line: Value = serde_json::from_slice(text).ok().filter(Value::is_object)?;
    if text.len() > MAX_TEXT_BYTES {
        shorten(&mut line);
    }
    (line.to_string().len() <= MAX_LINE_BYTES).then_some(line)
}

fn shorten(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > MAX_TEXT_BYTES => *text = head_and_tail(text, MAX_TEXT_BYTES),
        Value::Array(items) => items.iter_mut().for_each(shorten),
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        _ => {}
    }
}

fn attempt(line: &LoggedLine) -> Option<AttemptRef> {
    let line = line.line.as_ref()?;
    let task_id = line["taskId"].as_str()?.parse().ok()?;
    let attempt = line["attempt"].as_u64().and_then(|attempt| u32::try_from(attempt).ok()).unwrap_or(1);
    Some(AttemptRef { task_id, attempt })
}

fn open_log(home: &Home, agent: &str, session: &SessionId) -> io::Result<File> {
    let found = open(home, &format!("agents/{agent}/sessions/{session}.jsonl"), OFlags::PATH | OFlags::NOFOLLOW)?;
    if FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::from(io::ErrorKind::NotFound));
    }
    // Through the descriptor, whatever the path leads to by now.
    File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

/// Opens what lies beneath the home, never through a link.
fn open(home: &Home, way: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let root = rustix::fs::open(home.root(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let rules = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, way, flags | OFlags::CLOEXEC, Mode::empty(), rules)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Fixture {
        folder: tempfile::TempDir,
        home: Home,
    }

    impl Fixture {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let home = Home::at(folder.path().join("home"));
            home.open().expect("a home");
            Self { folder, home }
        }

        fn log(&self, agent: &str, session: &SessionId, text: &[u8]) {
            let path = self.home.session_log(agent, session.as_str());
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
            std::fs::write(path, text).expect("a log");
        }

        fn list(&self) -> SessionList {
            let listed = list(&self.home, &Value::Null).expect("a list");
            serde_json::from_value(listed).expect("its shape")
        }

        fn piece(&self, session: &SessionId, from: LogPlace) -> io::Result<SessionPiece> {
            let params = json!({ "sessionId": session, "from": from });
            let piece = log(&self.home, &params, &BTreeSet::new())?;
            Ok(serde_json::from_value(piece).expect("its shape"))
        }
    }

    fn line(task: &TaskId, kind: &str, text: &str) -> String {
        format!("{}\n", json!({ "taskId": task, "attempt": 1, "type": kind, "text": text }))
    }

    #[test]
    fn a_log_is_listed_with_its_goal_and_read_in_pieces() {
        let machine = Fixture::new();
        let (session, task) = (SessionId::new(1), TaskId::new(2));
        let mut text = line(&task, "goal", "Water the plants\nall of them");
        (0..1_200).for_each(|n| text.push_str(&line(&task, "text", &n.to_string())));
        machine.log("default", &session, text.as_bytes());
        let listed = machine.list();
        let one = &listed.items[0];
        assert_eq!(
            (one.agent_id.as_str(), one.title.as_str(), one.lines),
            ("default", "Water the plants", Some(1_201))
        );
        assert_eq!((one.last_task_id.as_ref(), one.bytes, listed.next), (Some(&task), text.len() as u64, None));

        let (mut read, mut from) = (Vec::new(), LogPlace::default());
        loop {
            let piece = machine.piece(&session, from).expect("a piece");
            assert!(piece.lines.len() <= MAX_LINES);
            read.extend(piece.lines);
            match piece.next {
                Some(next) => from = next,
                None => break,
            }
        }
        assert!(read.iter().map(|line| line.seq).eq(1..=1_201), "each line once, by its number");
        assert_eq!(read.last().and_then(|line| line.line.as_ref()).map(|line| &line["text"]), Some(&json!("1199")));
        assert_eq!(read.last().map(|line| line.end), Some(text.len() as u64));
        assert!(machine.piece(&session, LogPlace { line: 1, at: 3 }).is_err(), "no line begins there");
    }

    #[test]
    fn what_is_no_line_is_told_of_and_not_told() {
        let machine = Fixture::new();
        let (session, task) = (SessionId::new(1), TaskId::new(2));
        let mut text = line(&task, "goal", "go").into_bytes();
        text.extend(b"not json\n[1]\n\xff\xfe\n");
        text.extend(vec![b'x'; 3 * MAX_READ_LINE_BYTES]);
        text.push(b'\n');
        text.extend(format!("{}\n", "[".repeat(10_000)).as_bytes());
        text.extend(line(&task, "tool-result", &"y".repeat(2 * MAX_TEXT_BYTES)).as_bytes());
        text.extend(b"{\"taskId\":");
        machine.log("default", &session, &text);
        let piece = machine.piece(&session, LogPlace::default()).expect("a piece");
        let complete: Vec<bool> = piece.lines.iter().map(|line| line.line.is_some()).collect();
        assert_eq!(complete, [true, false, false, false, false, false, true], "the last one has no end yet");
        assert_eq!(piece.lines[4].bytes, 3 * MAX_READ_LINE_BYTES as u64 + 1);
        let long = piece.lines[6].line.as_ref().and_then(|line| line["text"].as_str()).expect("a text");
        assert!(long.len() <= MAX_TEXT_BYTES && long.contains("bytes omitted"));
        assert!(serde_json::to_string(&piece).expect("JSON").len() < protocol::limits::MAX_FRAME_BYTES);
    }

    #[test]
    fn no_link_leads_out_and_no_name_leads_elsewhere() {
        let machine = Fixture::new();
        let (session, other) = (SessionId::new(1), SessionId::new(2));
        let outside = machine.folder.path().join("outside.jsonl");
        std::fs::write(&outside, line(&TaskId::new(1), "goal", "secret")).expect("a file");
        machine.log("default", &other, b"");
        let link = machine.home.session_log("default", session.as_str());
        std::os::unix::fs::symlink(&outside, &link).expect("a link");
        std::os::unix::fs::symlink(machine.home.agents().join("default"), machine.home.agents().join("twin"))
            .expect("a link");
        let listed: Vec<_> = machine.list().items.into_iter().map(|one| (one.agent_id, one.session_id)).collect();
        assert_eq!(listed, [("default".to_owned(), other)]);
        assert!(machine.piece(&session, LogPlace::default()).is_err());
        for agent in ["..", "../default", "a/b", ""] {
            let params = json!({ "sessionId": session, "agentId": agent });
            assert!(log(&machine.home, &params, &BTreeSet::new()).is_err(), "{agent}");
        }
    }
}
