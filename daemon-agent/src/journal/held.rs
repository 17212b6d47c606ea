//! What the records of a journal add up to.

use std::collections::BTreeSet;

use protocol::{Command, EditId, Numbered, Running, TaskSubmit, WorkspaceWrite, WorkspaceWritten};
use serde::{Deserialize, Serialize};

/// What the records add up to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    /// Every command up to here is known.
    pub last_cmd_seq: u64,
    /// Commands beyond one that damage took: they are not taken again when the Board sends from there on.
    pub ahead: BTreeSet<u64>,
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
pub(super) enum Entry {
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
        #[serde(skip_serializing_if = "BTreeSet::is_empty", default)]
        ahead: BTreeSet<u64>,
    },
}

impl Held {
    pub(super) fn add(&mut self, entry: Entry) {
        match entry {
            Entry::Command(Numbered { cmd_seq, command }) => {
                if !self.knows(cmd_seq) {
                    self.ahead.insert(cmd_seq);
                    self.close_up();
                }
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
            Entry::At { last_cmd_seq, drained, ahead } => {
                (self.last_cmd_seq, self.drained) = (last_cmd_seq, drained);
                self.ahead.extend(ahead);
                self.close_up();
            }
        }
    }

    /// Whether the command is on the disk.
    pub(super) fn knows(&self, cmd_seq: u64) -> bool {
        cmd_seq <= self.last_cmd_seq || self.ahead.contains(&cmd_seq)
    }

    fn close_up(&mut self) {
        self.ahead = self.ahead.split_off(&(self.last_cmd_seq + 1));
        while self.ahead.remove(&(self.last_cmd_seq + 1)) {
            self.last_cmd_seq += 1;
        }
    }

    /// Attempts that were asked for after a command: one that is sent again does not mean them.
    pub fn newer_than(&self, cmd_seq: u64) -> Vec<Running> {
        self.attempts.iter().filter(|held| held.cmd_seq > cmd_seq).map(HeldAttempt::attempt).collect()
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
            Command::StopAll { reason } => self.stop(&reason, |held| held.cmd_seq < cmd_seq),
            Command::Interrupt { target_agent_id, reason } => {
                self.stop(&reason, |held| {
                    held.cmd_seq < cmd_seq && (target_agent_id == "*" || held.submit.agent_id == target_agent_id)
                });
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
