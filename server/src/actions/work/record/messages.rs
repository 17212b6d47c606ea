//! What a viber reports of messages to its tasks and of what it asks people: how far each message has come, where its agent
//! was told, and which questions that leaves.

use protocol::{AgentStreamEvent, InjectionPoint, Instant, MessageId, MessageProgress, TaskId, text::head};

use super::{Recording, effects::stream_event};
use crate::{
    db::{self, TeamTx, tasks::messages::TellingPlace},
    domain::{KnownEnd, Part, Report, TaskMessage, TaskMessageState, task},
    error::Result,
};

/// Longest message of somebody at a machine, and longest name, bytes.
const MAX_SAID_BYTES: usize = 128 * 1024;
const MAX_NAME_BYTES: usize = 120;
/// Longest note of a denied question, bytes: the words that were said instead of an answer.
const MAX_NOTE_BYTES: usize = 8 * 1024;

/// What a report says of one version of a message.
#[derive(Clone, Copy, Debug)]
struct MessageReport<'a> {
    seq: u64,
    id: &'a MessageId,
    rev: u32,
    state: MessageProgress,
    turn: Option<u32>,
}

impl Recording<'_, '_> {
    /// Stores what the run asks people and what becomes of it, and moves the task's messages as it says, in the order of the
    /// events: what somebody steered with denies what was asked before. Reports about messages of other tasks, of an attempt
    /// that a newer one follows, or that come too late, change nothing.
    pub(super) async fn record_talk(&mut self) -> Result<()> {
        let run = self.run;
        let mut waiting = Vec::new();
        if run.reports.iter().any(|report| progress(report).is_some()) {
            // What is read behind the session's lock is not old.
            db::sessions::lock(self.tx, &self.held.session_id).await?;
            // A newer one is told again what this one was, unless it was stopped before it could be.
            if self.is_newest() || db::attempts::is_last_of_stopped(self.tx, self.task, self.attempt).await? {
                waiting = db::tasks::messages::open_of_task(self.tx, self.task).await?;
            }
        }
        for report in &run.reports {
            if let Some(told) = progress(report) {
                self.record_progress(told, &mut waiting).await?;
            } else if let Some(AgentStreamEvent::UserMessage { .. }) = stream_event(report) {
                self.record_words(report, &mut waiting).await?;
            } else if let Some(event) = stream_event(report) {
                self.record_question(report, event).await?;
            }
        }
        Ok(())
    }

    /// Stores what somebody said at the machine. It is the viber's own word, and shown as that.
    async fn record_words(&mut self, report: &Report, waiting: &mut Vec<TaskMessage>) -> Result<()> {
        let Some(AgentStreamEvent::UserMessage { message_id, author, content, origin, mode }) = stream_event(report)
        else {
            return Ok(());
        };
        if content.len() > MAX_SAID_BYTES {
            return Ok(());
        }
        db::sessions::lock(self.tx, &self.held.session_id).await?;
        let origin = task::origin_name(head(origin, MAX_NAME_BYTES));
        let author_name = db::clean(&format!("{} ({origin})", head(author, MAX_NAME_BYTES)));
        let message = TaskMessage {
            id: message_id.clone(),
            session_id: self.held.session_id.clone(),
            task_id: self.task.clone(),
            author: self.connection.viber.to_string(),
            author_name,
            content: db::clean(content),
            context: None,
            attachments: Vec::new(),
            mode: *mode,
            place: 0,
            rev: 1,
            earlier: Vec::new(),
            state: TaskMessageState::Accepted,
            withdrawing: false,
            why: None,
            end: KnownEnd::NotYet,
            next_task: None,
            late_for: None,
            created_at: self.tx.now,
            consumed_at: None,
        };
        if db::tasks::messages::insert_of_viber(self.tx, &message).await? {
            waiting.push(message);
        }
        Ok(())
    }

    /// Moves one of the messages that wait.
    async fn record_progress(&mut self, report: MessageReport<'_>, waiting: &mut Vec<TaskMessage>) -> Result<()> {
        let MessageReport { seq, id, rev, state, turn } = report;
        let Some(at) = waiting.iter().position(|message| message.id == *id) else { return Ok(()) };
        match state {
            MessageProgress::Delivered => {
                db::tasks::messages::deliver(self.tx, self.task, id, rev).await?;
            }
            MessageProgress::Consumed => {
                let newest = waiting.remove(at);
                let told = as_told(newest.clone(), rev);
                let place = TellingPlace { attempt: self.attempt, seq, turn };
                db::tasks::messages::consume(self.tx, &told, place).await?;
                if told.content != newest.content && !newest.withdrawing {
                    db::tasks::messages::insert(self.tx, &held_copy(newest, self.tx.now)).await?;
                }
                if told.mode == InjectionPoint::Steer {
                    // It was said instead of an answer.
                    let note = head(&told.content, MAX_NOTE_BYTES);
                    db::approvals::deny_all(self.tx, (self.task, self.attempt), &told.author, note).await?;
                }
            }
            MessageProgress::Withdrawn if waiting[at].withdrawing && waiting[at].rev == rev => {
                let gone = waiting.remove(at);
                db::tasks::messages::close(self.tx, &gone.id, TaskMessageState::Withdrawn).await?;
            }
            // What its task does not tell is handled when the task ends.
            MessageProgress::Withdrawn | MessageProgress::Discarded | MessageProgress::Unknown => return Ok(()),
        }
        self.book.after.task(&self.held.session_id, self.task);
        Ok(())
    }
}

/// Fills in what messages say that were told in an attempt. One that the Board does not know, or that was told before, is
/// left out.
pub(in crate::actions) async fn fill_messages(
    tx: &mut TeamTx<'_>,
    attempt: (&TaskId, u32),
    parts: Vec<Part>,
) -> Result<Vec<Part>> {
    let mut filled = Vec::with_capacity(parts.len());
    for part in parts {
        let Part::Message { id, seq, .. } = &part else {
            filled.push(part);
            continue;
        };
        let told = db::tasks::messages::told_at(tx, attempt, *seq).await?;
        if let Some(told) = told.filter(|told| told.id == *id) {
            let TaskMessage { id, author, author_name: name, mode, content: text, attachments: files, .. } = told;
            filled.push(Part::Message { id, author, name, mode, text, files, seq: *seq });
        }
    }
    Ok(filled)
}

/// How far which version of which message has come.
fn progress(report: &Report) -> Option<MessageReport<'_>> {
    match stream_event(report)? {
        AgentStreamEvent::MessageState { message_id: id, rev, state, turn } => {
            Some(MessageReport { seq: report.seq, id, rev: *rev, state: *state, turn: *turn })
        }
        _ => None,
    }
}

/// What an edit said that came too late: a person decides what becomes of it.
fn held_copy(message: TaskMessage, now: Instant) -> TaskMessage {
    TaskMessage {
        id: MessageId::new(now.0),
        late_for: Some(message.id),
        // Its agent has them.
        attachments: Vec::new(),
        rev: 1,
        state: TaskMessageState::Held,
        created_at: now,
        ..message
    }
}

/// The version of a message that was told.
fn as_told(message: TaskMessage, rev: u32) -> TaskMessage {
    match message.earlier.iter().find(|version| version.rev == rev).cloned() {
        Some(version) => TaskMessage { rev, content: version.content, mode: version.mode, ..message },
        None => message,
    }
}
