//! The state that results from replaying the records of a journal.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use protocol::{
    AttemptRef, Command, CommandDone, EditId, NumberedCommand, PausePoint, PlaybookLedger, TaskMessage, TaskSubmit,
    WorkspaceWrite, WorkspaceWritten,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Most messages to an attempt that has not begun that are kept, and their text in bytes. Further ones are not kept over a
/// restart, and stay with the Board.
const MAX_KEPT_MESSAGES: usize = 128;
const MAX_KEPT_MESSAGE_BYTES: usize = 1024 * 1024;

/// Most ledgers that are kept while they cannot be written. The oldest go first: each is sent again with the next change of its
/// run.
const MAX_PENDING_LEDGERS: usize = 32;

/// Most commands to attempts that had begun that are kept, and their bytes. The oldest ones go first: of decisions those
/// beyond half of that, else the others.
const MAX_RECENT_COMMANDS: usize = 512;
const MAX_RECENT_BYTES: usize = 4 * 1024 * 1024;

/// The result of replaying a journal's records.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JournalState {
    /// Every command up to this one is known.
    pub last_cmd_seq: u64,
    /// Known commands beyond one that damage destroyed: they are skipped when the Board sends them again.
    pub ahead: BTreeSet<u64>,
    pub drained: bool,
    /// Attempts without an ending, in the order in which they arrived.
    pub attempts: Vec<PendingAttempt>,
    /// File edits that are still to be made, in the order in which they arrived.
    pub writes: Vec<PendingWrite>,
    /// Outcomes of other edits, until the Board has acknowledged them.
    pub written: Vec<WorkspaceWritten>,
    /// Changes of skills, and of what MCP servers may offer, that are still to be made, in the order in which they arrived.
    pub skill_changes: Vec<NumberedCommand>,
    /// Outcomes of other such commands, until the Board has acknowledged them.
    pub done: Vec<CommandDone>,
    /// Ledgers that are still to be written, of each run the newest, in the order in which they arrived.
    pub ledgers: Vec<PendingLedger>,
    /// What people decided, said and wanted of attempts that had begun or that no command requested, newest last: an attempt
    /// that goes on after a restart is told again.
    pub recent: VecDeque<RecentCommand>,
}

/// A command to an attempt that had begun.
#[derive(Clone, Debug, PartialEq)]
pub struct RecentCommand {
    pub numbered: Arc<NumberedCommand>,
    bytes: usize,
}

impl RecentCommand {
    /// The attempt or task that it is for; a decision is for whoever asked.
    fn is_of(&self, attempt: &AttemptRef) -> bool {
        match &self.numbered.command {
            Command::Message(message) => message.task_id == attempt.task_id,
            Command::Child(report) => report.call.task_id == attempt.task_id,
            Command::Pause { task_id, attempt: number, .. }
            | Command::Resume { task_id, attempt: number }
            | Command::Stop { task_id, attempt: number, .. } => {
                *task_id == attempt.task_id && *number == attempt.attempt
            }
            _ => false,
        }
    }
}

/// A requested file edit that has not been made.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingWrite {
    pub cmd_seq: u64,
    pub write: Box<WorkspaceWrite>,
}

/// The ledger of a run that has not been written.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingLedger {
    pub cmd_seq: u64,
    pub ledger: Box<PlaybookLedger>,
}

/// A requested attempt that is not over.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingAttempt {
    pub cmd_seq: u64,
    pub submit: Box<TaskSubmit>,
    /// Its engine was about to start: it must never be started again.
    pub begun: bool,
    /// Why it is to be stopped.
    pub stopped: Option<String>,
    /// Where it is to be held, if it was paused and has not begun.
    pub paused: Option<PausePoint>,
    /// The newest version of each message to it, until it begins.
    pub messages: Vec<PendingMessage>,
}

/// A message to an attempt that has not begun.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingMessage {
    pub cmd_seq: u64,
    pub message: Box<TaskMessage>,
}

impl PendingAttempt {
    /// Which attempt this is.
    pub fn attempt(&self) -> AttemptRef {
        AttemptRef { task_id: self.submit.task_id.clone(), attempt: self.submit.attempt }
    }

    fn keep(&mut self, pending: PendingMessage) {
        let (id, rev) = (&pending.message.message_id, pending.message.rev);
        if self.messages.iter().any(|known| known.message.message_id == *id && known.message.rev >= rev) {
            return;
        }
        self.messages.retain(|known| known.message.message_id != *id);
        let bytes: usize = self.messages.iter().chain([&pending]).map(|kept| kept.message.content.len()).sum();
        if self.messages.len() < MAX_KEPT_MESSAGES && bytes <= MAX_KEPT_MESSAGE_BYTES {
            self.messages.push(pending);
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum JournalEntry {
    Command(NumberedCommand),
    Begun(AttemptRef),
    Ended(AttemptRef),
    /// The outcome of a file edit.
    Written(WorkspaceWritten),
    /// The Board has acknowledged the outcome of a file edit.
    #[serde(rename = "heard")]
    EditAcknowledged(EditId),
    /// The outcome of a change of skills.
    Done(CommandDone),
    /// The Board has acknowledged the outcome of this command.
    DoneAcknowledged(u64),
    /// The ledger of this command is in its file.
    LedgerWritten(u64),
    /// Where a compacted file starts, or where the Board continues after this disk was lost.
    At {
        last_cmd_seq: u64,
        drained: bool,
        #[serde(skip_serializing_if = "BTreeSet::is_empty", default)]
        ahead: BTreeSet<u64>,
    },
}

/// A command as it came: everything that a frame can hold can be read again.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum CommandEntry<'a> {
    #[serde(borrow)]
    Command(&'a RawValue),
}

/// Reads a record. One that holds a command nests a level deeper than the command did in its frame, and that may be the
/// one level too many: then it is read from within.
pub(super) fn read(payload: &[u8]) -> serde_json::Result<JournalEntry> {
    serde_json::from_slice(payload).or_else(|error| match serde_json::from_slice(payload) {
        Ok(CommandEntry::Command(command)) => serde_json::from_str(command.get()).map(JournalEntry::Command),
        Err(_) => Err(error),
    })
}

impl JournalState {
    pub(super) fn add(&mut self, entry: JournalEntry) {
        match entry {
            JournalEntry::Command(NumberedCommand { cmd_seq, command }) => {
                if !self.knows(cmd_seq) {
                    self.ahead.insert(cmd_seq);
                    self.close_up();
                }
                self.command(cmd_seq, command);
            }
            JournalEntry::Begun(attempt) => {
                if let Some(held) = self.attempts.iter_mut().find(|held| held.attempt() == attempt) {
                    held.begun = true;
                    let (cmd_seq, paused, messages) =
                        (held.cmd_seq, held.paused.take(), std::mem::take(&mut held.messages));
                    let AttemptRef { task_id, attempt } = attempt;
                    if let Some(at) = paused {
                        self.keep(cmd_seq, Command::Pause { task_id, attempt, at });
                    }
                    for PendingMessage { cmd_seq, message } in messages {
                        self.keep(cmd_seq, Command::Message(message));
                    }
                }
            }
            JournalEntry::Ended(attempt) => {
                self.attempts.retain(|held| held.attempt() != attempt);
                // What became of a task is for whichever attempt comes next, too.
                let is_left = self.attempts.iter().any(|held| held.submit.task_id == attempt.task_id);
                let is_kept = |recent: &RecentCommand| is_left && matches!(recent.numbered.command, Command::Child(_));
                self.recent.retain(|recent| is_kept(recent) || !recent.is_of(&attempt));
            }
            JournalEntry::Written(written) => {
                self.writes.retain(|held| held.write.edit_id != written.edit_id);
                self.written.retain(|known| known.edit_id != written.edit_id);
                self.written.push(written);
            }
            JournalEntry::EditAcknowledged(edit) => self.written.retain(|known| known.edit_id != edit),
            JournalEntry::Done(done) => {
                self.skill_changes.retain(|held| held.cmd_seq != done.cmd_seq);
                self.done.retain(|known| known.cmd_seq != done.cmd_seq);
                self.done.push(done);
            }
            JournalEntry::DoneAcknowledged(cmd_seq) => self.done.retain(|known| known.cmd_seq != cmd_seq),
            JournalEntry::LedgerWritten(cmd_seq) => self.ledgers.retain(|held| held.cmd_seq != cmd_seq),
            JournalEntry::At { last_cmd_seq, drained, ahead } => {
                (self.last_cmd_seq, self.drained) = (last_cmd_seq, drained);
                self.ahead.extend(ahead);
                self.close_up();
            }
        }
    }

    /// Whether the command is on disk.
    pub(super) fn knows(&self, cmd_seq: u64) -> bool {
        cmd_seq <= self.last_cmd_seq || self.ahead.contains(&cmd_seq)
    }

    /// Whether anything here is about the attempt.
    pub(super) fn names(&self, attempt: &AttemptRef) -> bool {
        self.attempts.iter().any(|held| held.attempt() == *attempt)
            || self.recent.iter().any(|recent| recent.is_of(attempt))
    }

    fn close_up(&mut self) {
        self.ahead = self.ahead.split_off(&(self.last_cmd_seq + 1));
        while self.ahead.remove(&(self.last_cmd_seq + 1)) {
            self.last_cmd_seq += 1;
        }
    }

    /// Attempts that were requested after a command: a repetition of that command does not refer to them.
    pub fn newer_than(&self, cmd_seq: u64) -> Vec<AttemptRef> {
        self.attempts.iter().filter(|held| held.cmd_seq > cmd_seq).map(PendingAttempt::attempt).collect()
    }

    fn command(&mut self, cmd_seq: u64, command: Command) {
        match command {
            Command::Submit(submit) => {
                let held =
                    PendingAttempt { cmd_seq, submit, begun: false, stopped: None, paused: None, messages: Vec::new() };
                if self.attempts.iter().all(|known| known.attempt() != held.attempt()) {
                    self.attempts.push(held);
                }
            }
            Command::Stop { task_id, attempt, reason } => {
                let named = AttemptRef { task_id, attempt };
                self.stop(&reason, |held| held.attempt() == named);
                if self.attempts.iter().all(|held| held.attempt() != named) {
                    let AttemptRef { task_id, attempt } = named;
                    self.keep(cmd_seq, Command::Stop { task_id, attempt, reason });
                }
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
                    self.writes.push(PendingWrite { cmd_seq, write });
                }
            }
            Command::InstallSkill(_)
            | Command::RemoveSkill { .. }
            | Command::AcceptSkill { .. }
            | Command::EnableSkill { .. }
            | Command::AllowMcp { .. } => {
                let known = self.skill_changes.iter().any(|held| held.cmd_seq == cmd_seq)
                    || self.done.iter().any(|done| done.cmd_seq == cmd_seq);
                if !known {
                    self.skill_changes.push(NumberedCommand { cmd_seq, command });
                }
            }
            Command::Ledger(ledger) => {
                let is_same = |held: &PendingLedger| held.ledger.run_id == ledger.run_id;
                // One that was lost to damage and is sent again may be older.
                if self.ledgers.iter().any(|held| is_same(held) && held.cmd_seq > cmd_seq) {
                    return;
                }
                self.ledgers.retain(|held| !is_same(held));
                self.ledgers.push(PendingLedger { cmd_seq, ledger });
                let more = self.ledgers.len().saturating_sub(MAX_PENDING_LEDGERS);
                self.ledgers.drain(..more);
            }
            Command::Message(message) => {
                let mut waiting = self.attempts.iter_mut().filter(|held| !held.begun && held.cmd_seq < cmd_seq);
                match waiting.rfind(|held| held.submit.task_id == message.task_id) {
                    Some(held) => held.keep(PendingMessage { cmd_seq, message }),
                    None => self.keep(cmd_seq, Command::Message(message)),
                }
            }
            Command::Pause { ref task_id, attempt, at } => {
                let named = AttemptRef { task_id: task_id.clone(), attempt };
                self.pause(cmd_seq, &named, Some(at), command);
            }
            Command::Resume { ref task_id, attempt } => {
                let named = AttemptRef { task_id: task_id.clone(), attempt };
                self.pause(cmd_seq, &named, None, command);
            }
            Command::Approval(_) | Command::Child(_) => self.keep(cmd_seq, command),
        }
    }

    fn pause(&mut self, cmd_seq: u64, named: &AttemptRef, at: Option<PausePoint>, command: Command) {
        match self.attempts.iter_mut().find(|held| !held.begun && held.attempt() == *named) {
            Some(held) => held.paused = at,
            None => self.keep(cmd_seq, command),
        }
    }

    /// Keeps a command to an attempt that has begun.
    fn keep(&mut self, cmd_seq: u64, command: Command) {
        let bytes = serde_json::to_vec(&command).map_or(0, |json| json.len());
        let numbered = Arc::new(NumberedCommand { cmd_seq, command });
        self.recent.push_back(RecentCommand { numbered, bytes });
        let mut all: usize = self.recent.iter().map(|recent| recent.bytes).sum();
        loop {
            let is_decision = |recent: &RecentCommand| matches!(recent.numbered.command, Command::Approval(_));
            let decisions = self.recent.iter().filter(|recent| is_decision(recent));
            // A decision lies nowhere else: what people said since, the Board still has. But nothing says when one is done
            // with, so that they leave room for the others.
            let decision_leaves = if self.recent.len() > MAX_RECENT_COMMANDS {
                decisions.count() > MAX_RECENT_COMMANDS / 2
            } else if all > MAX_RECENT_BYTES {
                decisions.map(|recent| recent.bytes).sum::<usize>() > MAX_RECENT_BYTES / 2
            } else {
                break;
            };
            let at = self.recent.iter().position(|recent| is_decision(recent) == decision_leaves).unwrap_or(0);
            let Some(oldest) = self.recent.remove(at) else { break };
            all -= oldest.bytes;
        }
    }

    fn stop(&mut self, reason: &str, hit: impl Fn(&PendingAttempt) -> bool) {
        for held in self.attempts.iter_mut().filter(|held| hit(held)) {
            held.stopped.get_or_insert_with(|| reason.to_owned());
        }
    }
}
