//! `agents/{id}/sessions/{session}.jsonl`: what happened on this machine, one line per completed part, for people,
//! their tools, and a Board that does not know the session. It is not the delivery log: nothing is fsynced, and a task
//! does not fail because of it.

use std::{
    collections::HashSet,
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use protocol::{AttemptRef, CompactRequest, Instant, TaskSubmit, Turn, TurnPart, TurnRole};
use rustix::fs::{FlockOperation, OFlags, flock};
use serde_json::{Map, Value, json};

use crate::{
    clock::Clock,
    home::{Home, open_plain},
    report::EngineOutcome,
};

/// How often the lock is tried while another process writes; after that, the line is written without it.
const MAX_LOCK_ATTEMPTS: usize = 50;
/// Time between two tries.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Bytes at a log's end that are searched for an attempt.
const TAIL_BYTES: u64 = 1024 * 1024;

/// The log of one attempt.
pub struct SessionLog {
    clock: Clock,
    path: PathBuf,
    task_id: String,
    attempt: u32,
    known: CountedLines,
    /// Whether a failure was logged: once is enough.
    complained: bool,
}

/// How much of the file has been counted.
#[derive(Clone, Copy, Debug, Default)]
struct CountedLines {
    lines: u64,
    bytes: u64,
}

impl SessionLog {
    /// The log that the attempt `submit` writes to; touches nothing yet.
    pub fn of(submit: &TaskSubmit, home: &Home, clock: Clock) -> Self {
        Self {
            clock,
            path: home.session_log(&submit.agent_id, submit.session_id.as_str()),
            task_id: submit.task_id.to_string(),
            attempt: submit.attempt,
            known: CountedLines::default(),
            complained: false,
        }
    }

    /// Records how the attempt ended.
    pub async fn outcome(&mut self, outcome: &EngineOutcome) {
        match outcome {
            EngineOutcome::Completed(result) => {
                self.part("completed", json!({ "summary": result.summary, "usage": result.usage })).await;
            }
            EngineOutcome::Stopped { killed } => self.part("stopped", json!({ "killed": killed })).await,
            EngineOutcome::Failed(error) => self.part("error", json!({ "error": error })).await,
        }
    }

    /// Appends one completed part: `{"at","seq","taskId","attempt","type",…}` with the fields of the object `rest`.
    /// `seq` is the number of the line in the file.
    pub async fn part(&mut self, kind: &str, rest: Value) {
        let mut line = Map::new();
        line.insert("at".to_owned(), self.clock.now().to_string().into());
        line.insert("seq".to_owned(), Value::Null);
        line.insert("taskId".to_owned(), self.task_id.clone().into());
        line.insert("attempt".to_owned(), self.attempt.into());
        line.insert("type".to_owned(), kind.into());
        if let Value::Object(rest) = rest {
            line.extend(rest);
        }
        for last in (0..MAX_LOCK_ATTEMPTS).rev() {
            let (path, known, line) = (self.path.clone(), self.known, line.clone());
            match tokio::task::spawn_blocking(move || append(&path, known, line, last == 0)).await {
                Ok(Ok(Some(known))) => self.known = known,
                Ok(Ok(None)) => {
                    tokio::time::sleep(LOCK_RETRY_INTERVAL).await;
                    continue;
                }
                Ok(Err(error)) if !std::mem::replace(&mut self.complained, true) => {
                    tracing::warn!(task.id = %self.task_id, file = %self.path.display(), %error, "the session log cannot be written");
                }
                Ok(Err(_)) | Err(_) => {}
            }
            return;
        }
    }
}

/// The `kind` in the goal's line of a task that is no work: a summary of older turns, or notes.
pub fn kind_of(asked: &CompactRequest) -> &'static str {
    if asked.summary { "compact" } else { "flush" }
}

/// Whether a line near the end of the log at `path` belongs to this attempt. Blocks.
pub fn names(path: &Path, attempt: &AttemptRef) -> bool {
    !lines_of(path, attempt).is_empty()
}

/// The attempt's lines near the end of the log at `path`. Tasks of a session run one after another, so the newest attempt's
/// lines are there.
fn lines_of(path: &Path, attempt: &AttemptRef) -> Vec<Value> {
    let mut bytes = Vec::new();
    let read = open_plain(path, OFlags::NOFOLLOW).and_then(|mut file| {
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(TAIL_BYTES)))?;
        file.take(TAIL_BYTES).read_to_end(&mut bytes)
    });
    if let Err(error) = read
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(file = %path.display(), %error, "the session log cannot be read");
    }
    let id = attempt.task_id.as_str();
    let of_task = bytes.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    let lines = of_task.filter(|line| line.contains(id)).map(|line| serde_json::from_str(line).unwrap_or_default());
    lines.filter(|line: &Value| line["taskId"] == id && line["attempt"] == attempt.attempt).collect()
}

/// Whether the attempt did more after `at` than ask people and hear them: an old copy of `state/` does not know. Blocks.
pub fn shows_work_after(path: &Path, attempt: &AttemptRef, at: Instant) -> bool {
    let is_work = |line: &Value| !matches!(line["type"].as_str(), Some("approval-required" | "approval" | "notice"));
    let is_later = |line: &Value| serde_json::from_value(line["at"].clone()).is_ok_and(|then: Instant| then > at);
    lines_of(path, attempt).iter().any(|line| is_work(line) && is_later(line))
}

/// What was said in the session of the log at `path`, the oldest first, as the history of its next task: goals and
/// answers near its end, without calls, and without tasks that were no work. A log that cannot be read has no history.
pub async fn turns(path: PathBuf) -> Vec<Turn> {
    tokio::task::spawn_blocking(move || read_turns(&path)).await.unwrap_or_default()
}

fn read_turns(path: &Path) -> Vec<Turn> {
    let mut bytes = Vec::new();
    let read = open_plain(path, OFlags::NOFOLLOW).and_then(|mut file| {
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(TAIL_BYTES)))?;
        file.take(TAIL_BYTES).read_to_end(&mut bytes)
    });
    if let Err(error) = read
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(file = %path.display(), %error, "the session's history cannot be read");
    }
    let (mut turns, mut no_work): (Vec<Turn>, HashSet<String>) = Default::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        let line: Value = serde_json::from_slice(line).unwrap_or_default();
        let task = line["taskId"].as_str().unwrap_or_default();
        if line["type"] == "goal" && line["kind"].is_string() {
            no_work.insert(task.to_owned());
        }
        if no_work.contains(task) {
            continue;
        }
        let role = match line["type"].as_str() {
            Some("goal" | "message") => TurnRole::User,
            Some("text") => TurnRole::Assistant,
            _ => continue,
        };
        let Some(text) = line["text"].as_str().filter(|text| !text.is_empty()) else { continue };
        let part = TurnPart::Text { text: text.to_owned() };
        match turns.last_mut() {
            Some(last) if last.role == role => last.parts.push(part),
            // A history begins with a person's words.
            None if role == TurnRole::Assistant => {}
            _ => turns.push(Turn { role, parts: vec![part] }),
        }
    }
    turns
}

/// Appends in one write under the file's lock, so that lines of tasks that share a session neither mix nor share a
/// number. `None` means that somebody else holds the lock; `anyway` does not wait for it.
fn append(
    path: &Path,
    known: CountedLines,
    mut line: Map<String, Value>,
    anyway: bool,
) -> io::Result<Option<CountedLines>> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    let lock = flock(&file, FlockOperation::NonBlockingLockExclusive);
    if lock == Err(rustix::io::Errno::WOULDBLOCK) && !anyway {
        return Ok(None);
    }
    let (known, torn) = count(&mut file, known)?;
    let seq = known.lines + 1 + u64::from(torn);
    line.insert("seq".to_owned(), seq.into());
    // What a crash left without a line end becomes a line of its own.
    let text = format!("{}{}\n", if torn { "\n" } else { "" }, Value::Object(line));
    file.write_all(text.as_bytes())?;
    Ok(Some(CountedLines { lines: seq, bytes: known.bytes + text.len() as u64 }))
}

/// Counts lines that were added since; returns whether the last line has no end.
fn count(file: &mut File, known: CountedLines) -> io::Result<(CountedLines, bool)> {
    let size = file.metadata()?.len();
    // The file became shorter, so it is another file.
    let mut known = if size < known.bytes { CountedLines::default() } else { known };
    if size == known.bytes {
        return Ok((known, false));
    }
    file.seek(SeekFrom::Start(known.bytes))?;
    let (mut piece, mut last) = (vec![0; 64 * 1024], b'\n');
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok((known, last != b'\n')),
            Ok(read) => {
                known.lines += piece[..read].iter().filter(|byte| **byte == b'\n').count() as u64;
                known.bytes += read as u64;
                last = piece[read - 1];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn log(path: &Path, task: &str) -> SessionLog {
        SessionLog {
            clock: Clock::fixed(protocol::Instant(1)),
            path: path.to_owned(),
            task_id: task.into(),
            attempt: 2,
            known: CountedLines::default(),
            complained: false,
        }
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).expect("the log");
        text.lines().map(|line| serde_json::from_str(line).unwrap_or(Value::Null)).collect()
    }

    #[tokio::test]
    async fn a_part_is_a_line_that_only_the_owner_reads() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("agents/default/sessions/ses_1.jsonl");
        let mut log = log(&path, "task_1");
        log.part("text", json!({ "text": "two\nlines" })).await;
        log.part("tool-call", json!({ "callId": "a" })).await;
        let lines = lines(&path);
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[0]["seq"], &lines[1]["seq"]), (&json!(1), &json!(2)));
        assert_eq!(
            (&lines[1]["type"], &lines[1]["attempt"], &lines[1]["callId"]),
            (&json!("tool-call"), &json!(2), &json!("a"))
        );
        assert_eq!(lines[0]["at"], "1970-01-01T00:00:00.001Z");
        assert_eq!(std::fs::metadata(&path).expect("the log").permissions().mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn the_history_of_a_session_has_what_people_said_meanwhile() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ses_1.jsonl");
        let mut log = log(&path, "task_1");
        for (kind, text) in [("goal", "Fix it"), ("text", "Fixed."), ("message", "And that"), ("text", "That too.")] {
            log.part(kind, json!({ "text": text })).await;
        }
        let roles: Vec<TurnRole> = turns(path).await.into_iter().map(|turn| turn.role).collect();
        assert_eq!(roles, [TurnRole::User, TurnRole::Assistant, TurnRole::User, TurnRole::Assistant]);
    }

    #[tokio::test]
    async fn a_compaction_is_no_part_of_the_history() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ses_1.jsonl");
        let (mut work, mut compaction) = (log(&path, "task_1"), log(&path, "task_2"));
        work.part("goal", json!({ "text": "Fix it" })).await;
        work.part("text", json!({ "text": "Fixed." })).await;
        compaction.part("goal", json!({ "text": "Compact the conversation", "kind": "compact" })).await;
        compaction.part("text", json!({ "text": "## Session Summary (compacted)" })).await;
        let turns = turns(path).await;
        let words = turns.iter().flat_map(|turn| &turn.parts).map(|part| match part {
            TurnPart::Text { text } => text.as_str(),
            other => panic!("{other:?}"),
        });
        assert_eq!(words.collect::<Vec<_>>(), ["Fix it", "Fixed."]);
    }

    #[tokio::test]
    async fn a_number_is_given_once_in_a_session_whoever_writes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ses_1.jsonl");
        // An older log, in which each task numbered its own lines, and a line that a crash cut off.
        std::fs::write(&path, "{\"seq\":1}\n{\"seq\":1}\n{\"se").expect("an old log");
        let (mut one, mut other) = (log(&path, "task_1"), log(&path, "task_2"));
        for _ in 0..3 {
            one.part("text", json!({})).await;
            other.part("text", json!({})).await;
        }
        let seqs: Vec<Value> = lines(&path)[3..].iter().map(|line| line["seq"].clone()).collect();
        assert_eq!(seqs, [4, 5, 6, 7, 8, 9].map(|seq| json!(seq)));
        std::fs::write(&path, "").expect("emptied");
        one.part("text", json!({})).await;
        assert_eq!(lines(&path)[0]["seq"], 1);
    }
}
