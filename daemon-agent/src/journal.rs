//! The write-ahead journal of the Board's commands and their outcomes: a command is on disk before it is acknowledged.
//!
//! Owns which attempts were requested, begun and ended. Runs nothing; reports belong to the outbox.

mod state;

use std::{
    collections::BTreeSet,
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use protocol::{AttemptRef, Command, CommandDone, EditId, Instant, NumberedCommand, WorkspaceWritten};

use crate::{
    damaged, fault,
    home::write_private,
    outbox::{FileSpan, Record, encode, is_torn, salvage},
};
use state::JournalEntry;
pub use state::{JournalState, PendingAttempt, PendingLedger, PendingMessage, PendingWrite, RecentCommand};

/// Bytes by which the file may grow before it is rewritten.
const COMPACT_AFTER_BYTES: u64 = 4 * 1024 * 1024;

/// Commands and attempts that are not settled yet.
pub struct Journal {
    path: PathBuf,
    inner: Mutex<Inner>,
}

struct Inner {
    file: File,
    /// Bytes, and how many there were after the last compaction.
    size: u64,
    compact_size: u64,
    held: JournalState,
}

/// Why commands could not be journalled.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("command {got} arrived where {expected} was expected")]
    Gap { expected: u64, got: u64 },
    #[error("the journal cannot be written: {0}")]
    Disk(#[from] io::Error),
}

impl Journal {
    /// Opens the journal at `path` with what a former process left in it. A torn end is cut off, because it was never
    /// acknowledged. Of a damaged file everything sound is used and the original is kept in `damaged`; missing commands
    /// are requested again.
    pub fn open(path: PathBuf, damaged: &Path, now: Instant) -> io::Result<Self> {
        let bytes = match damaged::read(&path) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                let kept = damaged::move_aside(damaged, &path, "journal", now)?;
                tracing::error!(kept = %kept.display(), "the journal was not a file; a new one is started");
                Vec::new()
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let mut held = JournalState::default();
        let mut lost = 0;
        let mut rest = bytes.len();
        for stretch in salvage(&bytes) {
            match stretch {
                FileSpan::Sound(record) => {
                    rest -= record.size();
                    held.add(state::read(record.payload).map_err(|error| of_another_version(&path, &error))?);
                }
                FileSpan::Damaged(end) if end.len() == rest && is_torn(end) => {
                    tracing::warn!(bytes = end.len(), "the last record of the journal was incomplete and is removed");
                }
                FileSpan::Damaged(stretch) => {
                    rest -= stretch.len();
                    lost += stretch.len();
                }
            }
        }
        if lost > 0 {
            match damaged::copy_aside(damaged, &path, "journal", now) {
                Ok(kept) => {
                    tracing::error!(bytes = lost, kept = %kept.display(), "the journal was damaged; its intact records are used");
                }
                Err(error) => {
                    tracing::error!(bytes = lost, "the journal was damaged, and its original cannot be kept: {error}");
                }
            }
        }
        let (file, size) = rewrite(&path, &held)?;
        Ok(Self { path, inner: Mutex::new(Inner { file, size, compact_size: size, held }) })
    }

    /// Everything that is not settled.
    pub fn held(&self) -> JournalState {
        self.inner().held.clone()
    }

    /// Outcomes of file edits that the Board has not acknowledged yet.
    pub fn unacknowledged_edits(&self) -> Vec<WorkspaceWritten> {
        self.inner().held.written.clone()
    }

    /// The number of the last command on disk.
    pub fn last_cmd_seq(&self) -> u64 {
        self.inner().held.last_cmd_seq
    }

    /// Writes the new ones among `commands` and returns them once all are on disk. Blocks.
    pub fn commands(&self, commands: Vec<NumberedCommand>) -> Result<Vec<NumberedCommand>, JournalError> {
        let mut inner = self.inner();
        let mut due = inner.held.last_cmd_seq + 1;
        let mut fresh: Vec<NumberedCommand> = Vec::new();
        for command in commands {
            if command.cmd_seq > due {
                return Err(JournalError::Gap { expected: due, got: command.cmd_seq });
            }
            if command.cmd_seq == due {
                due += 1;
                if !inner.held.knows(command.cmd_seq) {
                    fresh.push(command);
                }
            }
            while inner.held.ahead.contains(&due) {
                due += 1;
            }
        }
        let entries: Vec<JournalEntry> = fresh.iter().cloned().map(JournalEntry::Command).collect();
        inner.write(entries, &self.path)?;
        Ok(fresh)
    }

    /// The Board continues at `next`: what it sent before is settled, although this disk lost it. Blocks.
    pub fn skip_to(&self, next: u64) -> io::Result<()> {
        let mut inner = self.inner();
        if next <= inner.held.last_cmd_seq + 1 {
            return Ok(());
        }
        let entry = JournalEntry::At { last_cmd_seq: next - 1, drained: inner.held.drained, ahead: BTreeSet::new() };
        inner.write(vec![entry], &self.path)
    }

    /// Records that the attempt's engine starts now. Blocks.
    pub fn begun(&self, attempt: &AttemptRef) -> io::Result<()> {
        self.inner().write(vec![JournalEntry::Begun(attempt.clone())], &self.path)
    }

    /// Whether the command is on disk.
    pub fn knows(&self, cmd_seq: u64) -> bool {
        self.inner().held.knows(cmd_seq)
    }

    /// Records that these attempts, which no command requested, are to be stopped. Blocks.
    pub fn stopped(&self, attempts: &[AttemptRef], reason: &str) -> io::Result<()> {
        let stop = |AttemptRef { task_id, attempt }: &AttemptRef| Command::Stop {
            task_id: task_id.clone(),
            attempt: *attempt,
            reason: reason.to_owned(),
        };
        self.keep(attempts.iter().map(stop).collect())
    }

    /// Records what somebody at this machine wants of attempts, as if the Board had said it. Blocks.
    pub fn keep(&self, commands: Vec<Command>) -> io::Result<()> {
        let mut inner = self.inner();
        let cmd_seq = inner.held.last_cmd_seq;
        let entry = |command| JournalEntry::Command(NumberedCommand { cmd_seq, command });
        inner.write(commands.into_iter().map(entry).collect(), &self.path)
    }

    /// Records that the attempts' endings are in the outbox, or with the Board. Blocks.
    pub fn ended(&self, attempts: &[AttemptRef]) -> io::Result<()> {
        let mut inner = self.inner();
        let known = attempts.iter().filter(|attempt| inner.held.names(attempt));
        let entries: Vec<JournalEntry> = known.cloned().map(JournalEntry::Ended).collect();
        inner.write(entries, &self.path)
    }

    /// Records the outcome of a file edit. Blocks.
    pub fn written(&self, written: WorkspaceWritten) -> io::Result<()> {
        self.inner().write(vec![JournalEntry::Written(written)], &self.path)
    }

    /// Records that the Board has acknowledged the outcomes of these edits. Blocks.
    pub fn edits_acknowledged(&self, edits: &[EditId]) -> io::Result<()> {
        let mut inner = self.inner();
        let known = edits.iter().filter(|edit| inner.held.written.iter().any(|written| written.edit_id == **edit));
        let entries: Vec<JournalEntry> = known.cloned().map(JournalEntry::EditAcknowledged).collect();
        inner.write(entries, &self.path)
    }

    /// Outcomes of changes of skills that the Board has not acknowledged yet.
    pub fn unacknowledged_outcomes(&self) -> Vec<CommandDone> {
        self.inner().held.done.clone()
    }

    /// Records the outcome of a change of skills. Blocks.
    pub fn done(&self, done: CommandDone) -> io::Result<()> {
        self.inner().write(vec![JournalEntry::Done(done)], &self.path)
    }

    /// Records that the Board has acknowledged the outcomes of these commands. Blocks.
    pub fn outcomes_acknowledged(&self, cmd_seqs: &[u64]) -> io::Result<()> {
        let mut inner = self.inner();
        let known = cmd_seqs.iter().filter(|seq| inner.held.done.iter().any(|done| done.cmd_seq == **seq));
        let entries: Vec<JournalEntry> = known.copied().map(JournalEntry::DoneAcknowledged).collect();
        inner.write(entries, &self.path)
    }

    /// Ledgers that are still to be written.
    pub fn pending_ledgers(&self) -> Vec<PendingLedger> {
        self.inner().held.ledgers.clone()
    }

    /// Records that nothing is left to be done about the ledger of this command. Blocks.
    pub fn ledger_written(&self, cmd_seq: u64) -> io::Result<()> {
        let mut inner = self.inner();
        let known = inner.held.ledgers.iter().any(|held| held.cmd_seq == cmd_seq);
        let entries = known.then_some(JournalEntry::LedgerWritten(cmd_seq)).into_iter().collect();
        inner.write(entries, &self.path)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn write(&mut self, entries: Vec<JournalEntry>, path: &Path) -> io::Result<()> {
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
            // A partial record must not precede complete ones.
            self.file.set_len(self.size)?;
            return Err(error);
        }
        self.size += bytes.len() as u64;
        for entry in entries {
            self.held.add(entry);
        }
        if self.size > self.compact_size + COMPACT_AFTER_BYTES {
            (self.file, self.size) = rewrite(path, &self.held)?;
            self.compact_size = self.size;
        }
        Ok(())
    }
}

fn of_another_version(path: &Path, error: &serde_json::Error) -> io::Error {
    io::Error::other(format!(
        "{} was written by another version of the daemon ({error}): start that version, or move the file away",
        path.display()
    ))
}

fn put(entry: &JournalEntry, out: &mut Vec<u8>) -> io::Result<()> {
    let payload = serde_json::to_vec(entry)?;
    encode(&Record { from: 0, to: 0, payload: &payload }, out);
    Ok(())
}

/// Replaces the file with one that contains only `held`, and opens it for appending.
fn rewrite(path: &Path, held: &JournalState) -> io::Result<(File, u64)> {
    let mut bytes = Vec::new();
    put(&JournalEntry::At { last_cmd_seq: 0, drained: held.drained, ahead: BTreeSet::new() }, &mut bytes)?;
    for attempt in &held.attempts {
        let command = Command::Submit(attempt.submit.clone());
        put(&JournalEntry::Command(NumberedCommand { cmd_seq: attempt.cmd_seq, command }), &mut bytes)?;
        let AttemptRef { task_id, attempt: number } = attempt.attempt();
        for PendingMessage { cmd_seq, message } in &attempt.messages {
            let command = Command::Message(message.clone());
            put(&JournalEntry::Command(NumberedCommand { cmd_seq: *cmd_seq, command }), &mut bytes)?;
        }
        if let Some(at) = attempt.paused {
            let command = Command::Pause { task_id: task_id.clone(), attempt: number, at };
            put(&JournalEntry::Command(NumberedCommand { cmd_seq: attempt.cmd_seq, command }), &mut bytes)?;
        }
        if let Some(reason) = attempt.stopped.clone() {
            let command = Command::Stop { task_id: task_id.clone(), attempt: number, reason };
            put(&JournalEntry::Command(NumberedCommand { cmd_seq: attempt.cmd_seq, command }), &mut bytes)?;
        }
        if attempt.begun {
            put(&JournalEntry::Begun(AttemptRef { task_id, attempt: number }), &mut bytes)?;
        }
    }
    for recent in &held.recent {
        put(&JournalEntry::Command(NumberedCommand::clone(&recent.numbered)), &mut bytes)?;
    }
    for PendingWrite { cmd_seq, write } in &held.writes {
        let command = Command::Write(write.clone());
        put(&JournalEntry::Command(NumberedCommand { cmd_seq: *cmd_seq, command }), &mut bytes)?;
    }
    for written in &held.written {
        put(&JournalEntry::Written(written.clone()), &mut bytes)?;
    }
    for change in &held.skill_changes {
        put(&JournalEntry::Command(change.clone()), &mut bytes)?;
    }
    for done in &held.done {
        put(&JournalEntry::Done(done.clone()), &mut bytes)?;
    }
    for PendingLedger { cmd_seq, ledger } in &held.ledgers {
        let command = Command::Ledger(ledger.clone());
        put(&JournalEntry::Command(NumberedCommand { cmd_seq: *cmd_seq, command }), &mut bytes)?;
    }
    let (last_cmd_seq, drained, ahead) = (held.last_cmd_seq, held.drained, held.ahead.clone());
    put(&JournalEntry::At { last_cmd_seq, drained, ahead }, &mut bytes)?;
    write_private(path, &bytes)?;
    let file = OpenOptions::new().append(true).mode(0o600).open(path)?;
    Ok((file, bytes.len() as u64))
}

#[cfg(test)]
mod tests;
