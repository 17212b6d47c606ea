//! `agents/{id}/sessions/{session}.jsonl`: what happened on this machine, one line per completed part, for people and
//! their tools. Not the delivery log: nothing reads it back, nothing is fsynced, and a task does not fail because of it.

use std::{
    fs::{DirBuilder, OpenOptions},
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::PathBuf,
};

use protocol::TaskSubmit;
use serde_json::{Map, Value};

use crate::{clock::Clock, home::Home};

/// The log of one attempt.
pub struct SessionLog {
    clock: Clock,
    path: PathBuf,
    task_id: String,
    attempt: u32,
    seq: u64,
    /// One complaint is enough.
    complained: bool,
}

impl SessionLog {
    /// The log that the attempt `submit` writes to; nothing is touched yet.
    pub fn of(submit: &TaskSubmit, home: &Home, clock: Clock) -> Self {
        Self {
            clock,
            path: home.session_log(&submit.agent_id, submit.session_id.as_str()),
            task_id: submit.task_id.to_string(),
            attempt: submit.attempt,
            seq: 0,
            complained: false,
        }
    }

    /// Appends one completed part: `{"at","seq","taskId","attempt","type",…}` with the fields of `rest`, an object.
    /// `seq` counts the lines of the attempt.
    pub async fn part(&mut self, kind: &str, rest: Value) {
        self.seq += 1;
        let mut line = Map::new();
        line.insert("at".to_owned(), self.clock.now().to_string().into());
        line.insert("seq".to_owned(), self.seq.into());
        line.insert("taskId".to_owned(), self.task_id.clone().into());
        line.insert("attempt".to_owned(), self.attempt.into());
        line.insert("type".to_owned(), kind.into());
        if let Value::Object(rest) = rest {
            line.extend(rest);
        }
        let path = self.path.clone();
        let line = format!("{}\n", Value::Object(line));
        let written = tokio::task::spawn_blocking(move || append(&path, &line)).await;
        if let Ok(Err(error)) = written
            && !std::mem::replace(&mut self.complained, true)
        {
            tracing::warn!(task.id = %self.task_id, file = %self.path.display(), %error, "the session log cannot be written");
        }
    }
}

/// One write, so that lines of tasks that share a session do not mix.
fn append(path: &std::path::Path, line: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)?.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_part_is_a_line_that_only_the_owner_reads() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("agents/default/sessions/ses_1.jsonl");
        let mut log = SessionLog {
            clock: Clock::fixed(protocol::Instant(1)),
            path: path.clone(),
            task_id: "task_1".into(),
            attempt: 2,
            seq: 0,
            complained: false,
        };
        log.part("text", json!({ "text": "two\nlines" })).await;
        log.part("tool-call", json!({ "callId": "a" })).await;
        let text = std::fs::read_to_string(&path).expect("the log");
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[0]["seq"], &lines[1]["seq"]), (&json!(1), &json!(2)));
        assert_eq!(
            (&lines[1]["type"], &lines[1]["attempt"], &lines[1]["callId"]),
            (&json!("tool-call"), &json!(2), &json!("a"))
        );
        assert_eq!(lines[0]["at"], "1970-01-01T00:00:00.001Z");
        assert_eq!(std::fs::metadata(&path).expect("the log").permissions().mode() & 0o777, 0o600);
    }
}
