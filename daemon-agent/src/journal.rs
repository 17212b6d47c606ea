//! The commands of the Board and what became of them, on disk before they are acknowledged.
//!
//! Owns which attempts were asked for, begun and ended. Refuses to run anything; reports are the outbox's.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use protocol::{Command, EditId, Numbered, Running, TaskSubmit, WorkspaceWrite, WorkspaceWritten};
use serde::{Deserialize, Serialize};

use crate::{
    fault,
    home::write_private,
    outbox::{Record, encode, scan},
};

/// The file is written anew when it has grown by this much.
const COMPACT: u64 = 4 * 1024 * 1024;

/// Commands and attempts that are not settled yet.
pub struct Journal {
    path: PathBuf,
    inner: Mutex<Inner>,
}

struct Inner {
    file: File,
    /// Bytes, and how many of them were there after the last compaction.
    size: u64,
    compact_size: u64,
    held: Held,
}

/// What the records add up to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    pub last_cmd_seq: u64,
    pub drained: bool,
    /// Attempts without an ending, in the order they came.
    pub attempts: Vec<HeldAttempt>,
    /// Changes of files that are to be made, in the order they came.
    pub writes: Vec<HeldWrite>,
    /// What became of others, until the Board has heard it.
    pub written: Vec<WorkspaceWritten>,
}

/// A change of a file that was asked for and is not made.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldWrite {
    pub cmd_seq: u64,
    pub write: Box<WorkspaceWrite>,
}

/// An attempt that was asked for and is not over.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldAttempt {
    pub cmd_seq: u64,
    pub submit: Box<TaskSubmit>,
    /// Its engine was about to start: it is never started again.
    pub begun: bool,
    /// It was stopped before it began.
    pub stopped: Option<String>,
}

impl HeldAttempt {
    /// Which attempt this is.
    pub fn attempt(&self) -> Running {
        Running { task_id: self.submit.task_id.clone(), attempt: self.submit.attempt }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Entry {
    Command(Numbered),
    Begun(Running),
    Ended(Running),
    /// What became of a change of a file.
    Written(WorkspaceWritten),
    /// The Board has heard it.
    Heard(EditId),
    /// Where a compacted file starts, or where the Board goes on after this disk was lost.
    At {
        last_cmd_seq: u64,
        drained: bool,
    },
}

/// Commands that do not follow each other.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("command {got} came where {expected} was due")]
    Gap { expected: u64, got: u64 },
    #[error("the journal cannot be written: {0}")]
    Disk(#[from] io::Error),
}

impl Journal {
    /// Opens the journal at `path` with what a former process left in it. A torn end is cut off: it was never
    /// acknowledged.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let mut held = Held::default();
        for (_, record) in scan(&bytes) {
            match serde_json::from_slice(record.payload) {
                Ok(entry) => held.add(entry),
                Err(error) => {
                    return Err(io::Error::other(format!("{} is of another version: {error}", path.display())));
                }
            }
        }
        let (file, size) = rewrite(&path, &held)?;
        Ok(Self { path, inner: Mutex::new(Inner { file, size, compact_size: size, held }) })
    }

    /// What is not settled.
    pub fn held(&self) -> Held {
        self.inner().held.clone()
    }

    /// What became of changes of files and was not heard yet.
    pub fn unheard(&self) -> Vec<WorkspaceWritten> {
        self.inner().held.written.clone()
    }

    /// The number of the last command that is on the disk.
    pub fn last_cmd_seq(&self) -> u64 {
        self.inner().held.last_cmd_seq
    }

    /// Writes the commands that are new and returns them; all are on the disk then. Blocks.
    pub fn commands(&self, commands: Vec<Numbered>) -> Result<Vec<Numbered>, Refused> {
        let mut inner = self.inner();
        let mut due = inner.held.last_cmd_seq + 1;
        let mut fresh = Vec::new();
        for command in commands.into_iter() {
            if command.cmd_seq > due {
                return Err(Refused::Gap { expected: due, got: command.cmd_seq });
            }
            if command.cmd_seq == due {
                due += 1;
                fresh.push(command);
            }
        }
        let entries: Vec<Entry> = fresh.iter().cloned().map(Entry::Command).collect();
        inner.write(entries, &self.path)?;
        Ok(fresh)
    }

    /// The Board goes on at `next`: what it sent before is settled, though this disk has forgotten it. Blocks.
    pub fn skip_to(&self, next: u64) -> io::Result<()> {
        let mut inner = self.inner();
        if next <= inner.held.last_cmd_seq + 1 {
            return Ok(());
        }
        let entry = Entry::At { last_cmd_seq: next - 1, drained: inner.held.drained };
        inner.write(vec![entry], &self.path)
    }

    /// The attempt's engine starts now. Blocks.
    pub fn begun(&self, attempt: &Running) -> io::Result<()> {
        self.inner().write(vec![Entry::Begun(attempt.clone())], &self.path)
    }

    /// The attempts' endings are in the outbox, or with the Board. Blocks.
    pub fn ended(&self, attempts: &[Running]) -> io::Result<()> {
        let mut inner = self.inner();
        let known =
            attempts.iter().filter(|attempt| inner.held.attempts.iter().any(|held| held.attempt() == **attempt));
        let entries: Vec<Entry> = known.cloned().map(Entry::Ended).collect();
        inner.write(entries, &self.path)
    }

    /// A change of a file was made, or will never be. Blocks.
    pub fn written(&self, written: WorkspaceWritten) -> io::Result<()> {
        self.inner().write(vec![Entry::Written(written)], &self.path)
    }

    /// The Board has heard what became of these changes. Blocks.
    pub fn heard(&self, edits: &[EditId]) -> io::Result<()> {
        let mut inner = self.inner();
        let known = edits.iter().filter(|edit| inner.held.written.iter().any(|written| written.edit_id == **edit));
        let entries: Vec<Entry> = known.cloned().map(Entry::Heard).collect();
        inner.write(entries, &self.path)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn write(&mut self, entries: Vec<Entry>, path: &Path) -> io::Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        for entry in &entries {
            put(entry, &mut bytes)?;
        }
        let written = self.file.write_all(&bytes).and_then(|()| {
            if fault::at("journal::before_fsync") {
                return Err(io::Error::other("a test"));
            }
            self.file.sync_data()
        });
        fault::at("journal::after_fsync");
        if let Err(error) = written {
            // Half a record must not stand before whole ones.
            self.file.set_len(self.size)?;
            return Err(error);
        }
        self.size += bytes.len() as u64;
        for entry in entries {
            self.held.add(entry);
        }
        if self.size > self.compact_size + COMPACT {
            (self.file, self.size) = rewrite(path, &self.held)?;
            self.compact_size = self.size;
        }
        Ok(())
    }
}

impl Held {
    fn add(&mut self, entry: Entry) {
        match entry {
            Entry::Command(Numbered { cmd_seq, command }) => {
                self.last_cmd_seq = self.last_cmd_seq.max(cmd_seq);
                self.command(cmd_seq, command);
            }
            Entry::Begun(attempt) => {
                if let Some(held) = self.attempts.iter_mut().find(|held| held.attempt() == attempt) {
                    held.begun = true;
                }
            }
            Entry::Ended(attempt) => self.attempts.retain(|held| held.attempt() != attempt),
            Entry::Written(written) => {
                self.writes.retain(|held| held.write.edit_id != written.edit_id);
                self.written.retain(|known| known.edit_id != written.edit_id);
                self.written.push(written);
            }
            Entry::Heard(edit) => self.written.retain(|known| known.edit_id != edit),
            Entry::At { last_cmd_seq, drained } => (self.last_cmd_seq, self.drained) = (last_cmd_seq, drained),
        }
    }

    fn command(&mut self, cmd_seq: u64, command: Command) {
        match command {
            Command::Submit(submit) => {
                let held = HeldAttempt { cmd_seq, submit, begun: false, stopped: None };
                if self.attempts.iter().all(|known| known.attempt() != held.attempt()) {
                    self.attempts.push(held);
                }
            }
            Command::Stop { task_id, attempt, reason } => {
                self.stop(&reason, |held| held.submit.task_id == task_id && held.submit.attempt == attempt);
            }
            Command::StopAll { reason } => self.stop(&reason, |_| true),
            Command::Interrupt { target_agent_id, reason } => {
                self.stop(&reason, |held| target_agent_id == "*" || held.submit.agent_id == target_agent_id);
            }
            Command::Drain { drained } => self.drained = drained,
            Command::Write(write) => {
                let edit = &write.edit_id;
                let known = self.writes.iter().any(|held| held.write.edit_id == *edit)
                    || self.written.iter().any(|written| written.edit_id == *edit);
                if !known {
                    self.writes.push(HeldWrite { cmd_seq, write });
                }
            }
            Command::Message { .. } | Command::Approval(_) => {}
        }
    }

    fn stop(&mut self, reason: &str, hit: impl Fn(&HeldAttempt) -> bool) {
        for held in self.attempts.iter_mut().filter(|held| !held.begun && hit(held)) {
            held.stopped.get_or_insert_with(|| reason.to_owned());
        }
    }
}

fn put(entry: &Entry, out: &mut Vec<u8>) -> io::Result<()> {
    let payload = serde_json::to_vec(entry)?;
    encode(&Record { from: 0, to: 0, payload: &payload }, out);
    Ok(())
}

/// Replaces the file by one that says only `held`, and opens it for appending.
fn rewrite(path: &Path, held: &Held) -> io::Result<(File, u64)> {
    let mut bytes = Vec::new();
    put(&Entry::At { last_cmd_seq: 0, drained: held.drained }, &mut bytes)?;
    for attempt in &held.attempts {
        let command = Command::Submit(attempt.submit.clone());
        put(&Entry::Command(Numbered { cmd_seq: attempt.cmd_seq, command }), &mut bytes)?;
        let Running { task_id, attempt: number } = attempt.attempt();
        if let Some(reason) = attempt.stopped.clone() {
            let command = Command::Stop { task_id: task_id.clone(), attempt: number, reason };
            put(&Entry::Command(Numbered { cmd_seq: attempt.cmd_seq, command }), &mut bytes)?;
        }
        if attempt.begun {
            put(&Entry::Begun(Running { task_id, attempt: number }), &mut bytes)?;
        }
    }
    for HeldWrite { cmd_seq, write } in &held.writes {
        let command = Command::Write(write.clone());
        put(&Entry::Command(Numbered { cmd_seq: *cmd_seq, command }), &mut bytes)?;
    }
    for written in &held.written {
        put(&Entry::Written(written.clone()), &mut bytes)?;
    }
    put(&Entry::At { last_cmd_seq: held.last_cmd_seq, drained: held.drained }, &mut bytes)?;
    write_private(path, &bytes)?;
    let file = OpenOptions::new().append(true).mode(0o600).open(path)?;
    Ok((file, bytes.len() as u64))
}

#[cfg(test)]
mod tests {
    use protocol::{SessionId, TaskId};
    use serde_json::json;

    use super::*;

    fn submit(cmd_seq: u64, task: &TaskId) -> Numbered {
        let submit = serde_json::from_value(json!({"taskId": task, "attempt": 1, "sessionId": SessionId::new(1),
            "agentId": "default", "goal": "Fix it"}));
        Numbered { cmd_seq, command: Command::Submit(submit.expect("a submit")) }
    }

    fn first(task: &TaskId) -> Running {
        Running { task_id: task.clone(), attempt: 1 }
    }

    #[test]
    fn what_is_not_settled_survives_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || Journal::open(folder.path().join("journal")).expect("a journal");
        let [a, b, c, d] = [1, 2, 3, 4].map(TaskId::new);
        let journal = open();
        let commands = vec![
            submit(1, &a),
            submit(2, &b),
            submit(3, &c),
            submit(4, &d),
            Numbered {
                cmd_seq: 5,
                command: Command::Stop { task_id: d.clone(), attempt: 1, reason: "operator".to_owned() },
            },
            Numbered { cmd_seq: 6, command: Command::Drain { drained: true } },
        ];
        assert_eq!(journal.commands(commands).expect("written").len(), 6);
        journal.begun(&first(&a)).expect("written");
        journal.begun(&first(&b)).expect("written");
        journal.ended(&[first(&b)]).expect("written");
        let held = journal.held();
        drop(journal);
        for _ in 0..2 {
            assert_eq!(open().held(), held, "also after it was compacted");
        }
        let seen: Vec<_> =
            held.attempts.iter().map(|held| (held.attempt(), held.begun, held.stopped.is_some())).collect();
        assert_eq!(seen, [(first(&a), true, false), (first(&c), false, false), (first(&d), false, true)]);
        assert_eq!((held.last_cmd_seq, held.drained), (6, true));
    }

    #[test]
    fn changes_of_files_are_kept_until_the_board_has_heard_of_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || Journal::open(folder.path().join("journal")).expect("a journal");
        let edits = [1, 2, 3].map(EditId::new);
        let write = |n: usize| {
            let write = serde_json::from_value(json!({"editId": edits[n], "path": "task.md", "content": "x"}));
            Numbered { cmd_seq: n as u64 + 1, command: Command::Write(write.expect("a write")) }
        };
        let written = |n: usize| WorkspaceWritten {
            edit_id: edits[n].clone(),
            path: "task.md".to_owned(),
            state: protocol::WriteState::Applied,
            hash: None,
            reason: None,
        };
        let journal = open();
        journal.commands((0..3).map(write).collect()).expect("written");
        journal.written(written(0)).expect("written");
        journal.written(written(1)).expect("written");
        journal.heard(&[edits[0].clone(), edits[2].clone()]).expect("written");
        let held = journal.held();
        drop(journal);
        for _ in 0..2 {
            assert_eq!(open().held(), held, "also after it was compacted");
        }
        let waiting: Vec<_> = held.writes.iter().map(|held| held.write.edit_id.clone()).collect();
        assert_eq!((waiting, held.written), (vec![edits[2].clone()], vec![written(1)]));
        assert_eq!(held.last_cmd_seq, 3);
    }

    #[test]
    fn duplicates_are_passed_over_and_gaps_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = Journal::open(folder.path().join("journal")).expect("a journal");
        let task = TaskId::new(1);
        assert_eq!(journal.commands(vec![submit(1, &task), submit(1, &task)]).expect("written").len(), 1);
        assert!(journal.commands(vec![submit(1, &task)]).expect("nothing new").is_empty());
        assert!(matches!(journal.commands(vec![submit(3, &task)]), Err(Refused::Gap { expected: 2, got: 3 })));
        journal.skip_to(10).expect("written");
        assert_eq!(journal.commands(vec![submit(10, &task)]).expect("written").len(), 1);
    }

    #[test]
    fn a_torn_end_is_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let [a, b] = [1, 2].map(TaskId::new);
        let journal = Journal::open(path.clone()).expect("a journal");
        journal.commands(vec![submit(1, &a), submit(2, &b)]).expect("written");
        let bytes = fs::read(&path).expect("there");
        fs::write(&path, &bytes[..bytes.len() - 5]).expect("torn");
        let held = Journal::open(path).expect("a journal").held();
        assert_eq!((held.last_cmd_seq, held.attempts.len()), (1, 1));
    }
}
